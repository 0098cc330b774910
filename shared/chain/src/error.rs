//! Why a call to the node failed. The texts are for the log.
//!
//! No error contains the RPC's address: hosted nodes carry their API key in it.

/// The call failed, or the answer makes no sense. It says nothing about any payment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The configured address is unusable; it is not repeated here.
    #[error(
        "the RPC secret must be one https address or two different ones; http is for Base Sepolia, on this machine or a \
         private network"
    )]
    Address,
    /// No complete answer came in time.
    #[error("`{method}` got no answer")]
    Unreachable {
        /// The JSON-RPC method.
        method: &'static str,
        /// Why, without the address.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The HTTP answer was not a success.
    #[error("`{method}` was answered with HTTP status {status}")]
    Status {
        /// The JSON-RPC method.
        method: &'static str,
        /// The status: 429 where the node throttles.
        status: u16,
    },
    /// The node refused the call. Its message is left out, since some nodes repeat the address in it.
    #[error("`{method}` was refused with JSON-RPC code {code}")]
    Refused {
        /// The JSON-RPC method.
        method: &'static str,
        /// The code.
        code: i64,
    },
    /// The answer is not of the form that the method has.
    #[error("`{method}` was answered with {what}")]
    Malformed {
        /// The JSON-RPC method.
        method: &'static str,
        /// The difference.
        what: &'static str,
    },
    /// The answer is larger than what is read of one.
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
        /// The node's.
        found: u64,
    },
}

impl ChainError {
    /// Whether the same question may be answered in smaller parts: nodes limit the size of requests and answers, the gas
    /// of a call and the blocks of a search, each in its own words. A node that throttles, or that can't be reached, does
    /// not answer parts either.
    pub(crate) const fn may_pass_in_parts(&self) -> bool {
        matches!(self, Self::Malformed { .. }) || self.is_of_size()
    }

    /// Whether the node may have refused the question for its size, or the answer was too large to read.
    pub(crate) const fn is_of_size(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::TooLarge { .. } => true,
            Self::Status { status, .. } => !matches!(status, 429 | 502..=504),
            Self::Address | Self::Malformed { .. } | Self::Unreachable { .. } | Self::WrongChain { .. } => false,
        }
    }
}
