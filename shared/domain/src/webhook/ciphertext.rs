//! Secrets that are kept for people, encrypted: a ciphertext, and what it is bound to.

use crate::{NoticeUrlId, PersonId, WebhookId, WebhookSecretId};
use std::collections::BTreeMap;

/// An encrypted secret, as it is stored.
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

/// The purpose of a secret. A ciphertext is bound to it: as another person's, or in another row, it can't be decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretOf {
    /// The secret that a webhook's calls are signed with.
    Webhook {
        /// The webhook's person.
        person: PersonId,
        /// The webhook.
        webhook: WebhookId,
        /// The secret.
        secret: WebhookSecretId,
    },
    /// The URL that a person's notices are posted to.
    NoticeUrl {
        /// The person whose notices they are.
        person: PersonId,
        /// The URL.
        url: NoticeUrlId,
    },
}

impl SecretOf {
    /// The encryption context. `use` says which function may decrypt (`template.yaml`, `WebhookSecretsKey`).
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
