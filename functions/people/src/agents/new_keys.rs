//! Where the keys of new wallets come from.

use purser_chain::KmsKeys;

/// Where a new wallet's key comes from. This function cannot sign with wallet keys.
pub(crate) enum NewKeys {
    /// Keys are derived from the wallet seed. This function does not have the seed and only assigns wallet numbers.
    Seed,
    /// Each wallet has its own key in KMS.
    Kms {
        keys: Box<KmsKeys>,
        /// The deployment's name. KMS keys are tagged with it, and IAM policies grant access by that tag.
        stack: String,
        /// The key policy of a new key. With `None`, only IAM policies grant access to the key.
        policy: Option<String>,
    },
}
