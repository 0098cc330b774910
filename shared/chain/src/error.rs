//! Errors of calls to the node. The messages are only for the log.
//!
//! No error contains the endpoint's URL, because the URLs of hosted nodes contain an API key.

/// The call failed, or the response is invalid. The error proves nothing about any payment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The configured URL is invalid. The error does not contain the URL.
    #[error(
        "the RPC secret must be one https address or two different ones; http is for Base Sepolia, on this machine or a \
         private network"
    )]
    Address,
    /// No complete response arrived in time.
    #[error("`{method}` got no answer")]
    Unreachable {
        /// The JSON-RPC method.
        method: &'static str,
        /// The cause, without the URL.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The HTTP status of the response is not a success.
    #[error("`{method}` was answered with HTTP status {status}")]
    Status {
        /// The JSON-RPC method.
        method: &'static str,
        /// The HTTP status; 429 if the node throttles.
        status: u16,
    },
    /// The node rejected the call. The error omits the node's message, because some nodes repeat the URL in it.
    #[error("`{method}` was refused with JSON-RPC code {code}")]
    Refused {
        /// The JSON-RPC method.
        method: &'static str,
        /// The JSON-RPC error code.
        code: i64,
    },
    /// The response does not have the form that the method requires.
    #[error("`{method}` was answered with {what}")]
    Malformed {
        /// The JSON-RPC method.
        method: &'static str,
        /// How the response differs from the required form.
        what: &'static str,
    },
    /// The response exceeds the size limit.
    #[error("`{method}` was answered with more bytes than the limit")]
    TooLarge {
        /// The JSON-RPC method.
        method: &'static str,
    },
    /// The node serves another chain than the configured chain.
    #[error("the RPC serves chain {found} instead of {expected}")]
    WrongChain {
        /// The configured chain id.
        expected: u64,
        /// The chain id of the node.
        found: u64,
    },
}

impl ChainError {
    /// Whether smaller requests may succeed. Nodes limit the size of requests and responses, the gas of a call and the
    /// block range of a search, each with a different error. A node that throttles, or that can't be reached, does not
    /// respond to smaller requests either.
    pub(crate) const fn may_succeed_in_parts(&self) -> bool {
        matches!(self, Self::Malformed { .. }) || self.is_size_limit()
    }

    /// Whether the node may have rejected the request because of its size, or the response was too large.
    pub(crate) const fn is_size_limit(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::TooLarge { .. } => true,
            Self::Status { status, .. } => !matches!(status, 429 | 502..=504),
            Self::Address | Self::Malformed { .. } | Self::Unreachable { .. } | Self::WrongChain { .. } => false,
        }
    }
}
