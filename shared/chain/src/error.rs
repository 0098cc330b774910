//! Errors of calls to the node. No error contains the endpoint's URL, because the URLs of hosted nodes contain an API
//! key.

/// A failed call, or an invalid response. It proves nothing about any payment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The URL in the RPC secret is invalid.
    #[error(
        "the RPC secret must be one https address or two different ones; http is for Base Sepolia, on this machine or a \
         private network"
    )]
    Address,
    /// No complete response arrived before the timeout.
    #[error("`{method}` got no response")]
    Unreachable {
        /// The JSON-RPC method of the call, for example `eth_call`.
        method: &'static str,
        /// The cause, without the URL.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The HTTP status is not a success.
    #[error("`{method}` returned HTTP status {status}")]
    Status {
        /// The JSON-RPC method of the call, for example `eth_call`.
        method: &'static str,
        /// The HTTP status; 429 if the node throttles the client.
        status: u16,
    },
    /// The node rejected the call. Omits the node's message, because some nodes repeat the URL in it.
    #[error("`{method}` was rejected with JSON-RPC code {code}")]
    Refused {
        /// The JSON-RPC method of the call, for example `eth_call`.
        method: &'static str,
        /// The JSON-RPC error code.
        code: i64,
    },
    /// The response does not have the format that the method requires.
    #[error("`{method}` returned {what}")]
    Malformed {
        /// The JSON-RPC method of the call, for example `eth_call`.
        method: &'static str,
        /// How the response differs from the required format.
        what: &'static str,
    },
    /// The response exceeds the size limit.
    #[error("`{method}` returned more bytes than the limit")]
    TooLarge {
        /// The JSON-RPC method of the call, for example `eth_call`.
        method: &'static str,
    },
    /// The node serves another chain than configured.
    #[error("the RPC serves chain {found} instead of {expected}")]
    WrongChain {
        /// The configured chain id.
        expected: u64,
        /// The chain id of the node.
        found: u64,
    },
}

impl ChainError {
    /// Returns whether smaller requests may succeed. Nodes return various errors for their limits on size, gas and
    /// block ranges. Returns `false` if the node throttles or can't be reached, because smaller requests would fail
    /// too.
    pub(crate) const fn may_succeed_with_smaller_requests(&self) -> bool {
        matches!(self, Self::Malformed { .. }) || self.is_size_limit()
    }

    /// Returns whether the request or the response may have been too large.
    pub(crate) const fn is_size_limit(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::TooLarge { .. } => true,
            Self::Status { status, .. } => !matches!(status, 429 | 502..=504),
            Self::Address | Self::Malformed { .. } | Self::Unreachable { .. } | Self::WrongChain { .. } => false,
        }
    }
}
