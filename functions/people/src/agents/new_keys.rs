//! The source of new wallets' keys.

use purser_chain::KmsKeys;

/// The source of a new wallet's key. This function can't sign with any of the keys.
pub(crate) enum NewKeys {
    /// The wallet seed. This function does not have the seed; it only assigns the numbers of wallets.
    Seed,
    /// KMS.
    Kms {
        keys: Box<KmsKeys>,
        /// The deployment's name, by which the IAM roles identify its keys.
        stack: String,
        /// The policy of a new key; `None` leaves access to IAM policies.
        policy: Option<String>,
    },
}
