//! Where the keys of new wallets come from.

use purser_chain::KmsKeys;

/// Where a new wallet's key comes from. The Lambda function `people`, which creates agents, cannot sign with wallet
/// keys.
pub(crate) enum NewKeys {
    /// Keys are derived from the wallet seed and the wallet's number. The Lambda function `people` only assigns the
    /// number, because the function has no access to the seed.
    Seed,
    /// Each wallet has its own key in KMS.
    Kms {
        keys: Box<KmsKeys>,
        /// The deployment's name. KMS keys have a tag with this name, and IAM policies grant access by the tag.
        stack: String,
        /// The key policy of a new KMS key. With `None`, IAM policies alone grant access to the key.
        policy: Option<String>,
    },
}
