//! Encrypted secrets of people: the ciphertext, and the purpose that it is bound to.

use crate::{NoticeUrlId, PersonId, WebhookId, WebhookSecretId};
use std::collections::BTreeMap;

/// An encrypted secret in its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ciphertext(Vec<u8>);

impl Ciphertext {
    /// The ciphertext of these bytes.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The purpose of a secret. A ciphertext is bound to it: it can't be decrypted for another person or in another row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretOf {
    /// The secret with which a webhook's calls are signed.
    Webhook {
        /// The person who owns the webhook.
        person: PersonId,
        /// The webhook.
        webhook: WebhookId,
        /// The secret's id.
        secret: WebhookSecretId,
    },
    /// The URL to which a person's notices are posted.
    NoticeUrl {
        /// The person who receives the notices.
        person: PersonId,
        /// The id of the URL.
        url: NoticeUrlId,
    },
}

impl SecretOf {
    /// The encryption context. Its member `use` determines which function may decrypt (`template.yaml`,
    /// `WebhookSecretsKey`).
    pub fn context(&self) -> BTreeMap<&'static str, String> {
        match self {
            Self::Webhook {
                person,
                webhook,
                secret,
            } => BTreeMap::from([
                ("use", "webhook".to_owned()),
                ("person", person.to_string()),
                ("webhook", webhook.to_string()),
                ("secret", secret.to_string()),
            ]),
            Self::NoticeUrl { person, url } => BTreeMap::from([
                ("use", "notice".to_owned()),
                ("person", person.to_string()),
                ("url", url.to_string()),
            ]),
        }
    }
}
