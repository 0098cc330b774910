//! Users' encrypted secrets: the ciphertext, and the purpose to which the ciphertext is bound.

use crate::{NoticeUrlId, UserId, WebhookId, WebhookSecretId};
use std::collections::BTreeMap;

/// An encrypted secret in the stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ciphertext(Vec<u8>);

impl Ciphertext {
    /// Creates a ciphertext from the stored bytes.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The purpose of a secret. The ciphertext is bound to it and can't be decrypted for another user or row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretOf {
    /// The secret that signs a webhook's calls.
    Webhook {
        /// The user who owns the webhook.
        person: UserId,
        /// The webhook whose calls the secret signs.
        webhook: WebhookId,
        /// The id of the secret among the webhook's secrets.
        secret: WebhookSecretId,
    },
    /// The URL that receives a user's notifications.
    NoticeUrl {
        /// The user who receives the notifications.
        person: UserId,
        /// The id under which the URL of the user's Slack incoming webhook is stored.
        url: NoticeUrlId,
    },
}

impl SecretOf {
    /// Returns the KMS encryption context. The field `use` determines which Lambda function may decrypt the secret
    /// (`template.yaml`, `WebhookSecretsKey`).
    pub fn encryption_context(&self) -> BTreeMap<&'static str, String> {
        match self {
            Self::Webhook {
                person: user,
                webhook,
                secret,
            } => BTreeMap::from([
                ("use", "webhook".to_owned()),
                ("person", user.to_string()),
                ("webhook", webhook.to_string()),
                ("secret", secret.to_string()),
            ]),
            Self::NoticeUrl { person: user, url } => BTreeMap::from([
                ("use", "notice".to_owned()),
                ("person", user.to_string()),
                ("url", url.to_string()),
            ]),
        }
    }
}
