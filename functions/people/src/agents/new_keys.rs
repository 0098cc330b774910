//! The source of new wallets' keys.

use purser_chain::KmsKeys;

/// Where the key of a new wallet comes from. This function can use none.
pub(crate) enum NewKeys {
    /// The wallet seed, which this function does not have: it numbers the wallets.
    Seed,
    /// KMS.
    Kms {
        keys: Box<KmsKeys>,
        /// The deployment's name, by which the roles know its keys.
        stack: String,
        /// Who may use a key; `None` leaves it to IAM's policies.
        policy: Option<String>,
    },
}
