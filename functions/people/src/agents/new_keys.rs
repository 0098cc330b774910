//! The source of new wallets' keys.

use purser_chain::KmsKeys;

/// The source of a new wallet's key. This function can't sign with any of the keys.
pub(crate) enum NewKeys {
    /// The wallet seed, which this function does not have: it numbers the wallets.
    Seed,
    /// KMS.
    Kms {
        keys: Box<KmsKeys>,
        /// The deployment's name, by which the roles know its keys.
        stack: String,
        /// The policy of a new key; `None` leaves access to IAM policies.
        policy: Option<String>,
    },
}
