//! Why a call to the node failed. The texts are only for the log.
//!
//! No error contains the RPC's address, because the addresses of hosted nodes contain an API key.

/// The call failed, or its answer is invalid. This proves nothing about any payment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The configured address is invalid. The error does not contain it.
    #[error(
        "the RPC secret must be one https address or two different ones; http is for Base Sepolia, on this machine or a \
         private network"
    )]
    Address,
    /// No complete answer was received in time.
    #[error("`{method}` got no answer")]
    Unreachable {
        /// The JSON-RPC method.
        method: &'static str,
        /// The cause, without the address.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The HTTP status of the answer is not a success.
    #[error("`{method}` was answered with HTTP status {status}")]
    Status {
        /// The JSON-RPC method.
        method: &'static str,
        /// The status; 429 if the node throttles.
        status: u16,
    },
    /// The node refused the call. Its message is left out, because some nodes repeat the address in it.
    #[error("`{method}` was refused with JSON-RPC code {code}")]
    Refused {
        /// The JSON-RPC method.
        method: &'static str,
        /// The code.
        code: i64,
    },
    /// The answer does not have the form that the method requires.
    #[error("`{method}` was answered with {what}")]
    Malformed {
        /// The JSON-RPC method.
        method: &'static str,
        /// The deviation from that form.
        what: &'static str,
    },
    /// The answer exceeds the size limit.
    #[error("`{method}` was answered with more bytes than the limit")]
    TooLarge {
        /// The JSON-RPC method.
        method: &'static str,
    },
    /// The node serves another chain than the configured one.
    #[error("the RPC serves chain {found} instead of {expected}")]
    WrongChain {
        /// The configured chain id.
        expected: u64,
        /// The chain id of the node.
        found: u64,
    },
}

impl ChainError {
    /// Whether a split request may succeed: nodes limit the size of requests and answers, the gas of a call and the
    /// blocks of a search, each with different errors. A node that throttles, or that can't be reached, does not answer
    /// smaller requests either.
    pub(crate) const fn may_pass_in_parts(&self) -> bool {
        matches!(self, Self::Malformed { .. }) || self.is_of_size()
    }

    /// Whether the node may have refused the request because of its size, or the answer was too large to read.
    pub(crate) const fn is_of_size(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::TooLarge { .. } => true,
            Self::Status { status, .. } => !matches!(status, 429 | 502..=504),
            Self::Address | Self::Malformed { .. } | Self::Unreachable { .. } | Self::WrongChain { .. } => false,
        }
    }
}
