use purser_chain::KmsKeys;

/// Where a new wallet's key comes from.
pub(crate) enum NewKeys {
    /// Keys are derived from the wallet seed, which the Lambda function `people` can't read.
    Seed,
    /// Each wallet has its own key in KMS.
    Kms {
        keys: Box<KmsKeys>,
        /// The deployment's name. IAM policies grant access to KMS keys by a tag with this name.
        stack: String,
        /// The key policy of a new KMS key; `None` if IAM policies alone grant access.
        policy: Option<String>,
    },
}
