//! The KMS key that protects users' stored secrets. The function `people` encrypts them; `webhooks` and `notices`
//! decrypt them.
//!
//! KMS checks the encryption context, so a ciphertext that was moved to another row is rejected.

use aws_sdk_kms::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    primitives::Blob,
};
use aws_types::SdkConfig;
use purser_domain::{Causes, Ciphertext, Error, Result, SecretOf};
use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, OnceLock, PoisonError},
};
use zeroize::Zeroizing;

/// The maximum number of cached secrets per Lambda instance. A full cache is emptied.
const MAX_CACHED: usize = 1_000;

/// A client for the KMS key that caches decrypted secrets by ciphertext, so that an instance calls KMS once per secret.
pub struct SecretsKey {
    aws: SdkConfig,
    client: OnceLock<Client>,
    arn: String,
    known: Mutex<HashMap<Sealed, Zeroizing<Vec<u8>>>>,
}

/// A ciphertext with the encryption context.
type Sealed = (Vec<(&'static str, String)>, Vec<u8>);

impl SecretsKey {
    /// Creates a client for the key with this ARN.
    pub fn new(aws: SdkConfig, arn: impl Into<String>) -> Self {
        Self {
            aws,
            client: OnceLock::new(),
            arn: arn.into(),
            known: Mutex::default(),
        }
    }

    fn kms_client(&self) -> &Client {
        self.client.get_or_init(|| Client::new(&self.aws))
    }

    /// Encrypts a secret of at most 4,096 bytes (API reference, `Encrypt`).
    pub async fn encrypt(&self, secret_owner: &SecretOf, secret: &[u8]) -> Result<Ciphertext> {
        const OPERATION: &str = "encrypting a secret";
        let mut request = self
            .kms_client()
            .encrypt()
            .key_id(&self.arn)
            .plaintext(Blob::new(secret));
        for (name, value) in secret_owner.encryption_context() {
            request = request.encryption_context(name, value);
        }
        let response = request.send().await.map_err(|error| kms_error(OPERATION, &error))?;
        let ciphertext = response.ciphertext_blob.map(Blob::into_inner);
        ciphertext
            .map(Ciphertext::from_bytes)
            .ok_or_else(|| Error::internal(OPERATION, "the response has no ciphertext"))
    }

    /// Decrypts a secret, or returns the cached value.
    pub async fn decrypt(&self, secret_owner: &SecretOf, ciphertext: &Ciphertext) -> Result<Zeroizing<Vec<u8>>> {
        const OPERATION: &str = "decrypting a secret";
        let context = secret_owner.encryption_context();
        let sealed = (context.clone().into_iter().collect(), ciphertext.as_bytes().to_vec());
        let known = self.lock_cache().get(&sealed).cloned();
        if let Some(secret) = known {
            return Ok(secret);
        }
        let ciphertext = Blob::new(ciphertext.as_bytes());
        let mut request = self
            .kms_client()
            .decrypt()
            .key_id(&self.arn)
            .ciphertext_blob(ciphertext);
        for (name, value) in context {
            request = request.encryption_context(name, value);
        }
        let response = request.send().await.map_err(|error| kms_error(OPERATION, &error))?;
        let secret = response.plaintext.map(Blob::into_inner).map(Zeroizing::new);
        let secret = secret.ok_or_else(|| Error::internal(OPERATION, "the response has no plaintext"))?;
        let mut known = self.lock_cache();
        if known.len() >= MAX_CACHED {
            known.clear();
        }
        known.insert(sealed, secret.clone());
        Ok(secret)
    }

    fn lock_cache(&self) -> std::sync::MutexGuard<'_, HashMap<Sealed, Zeroizing<Vec<u8>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Omits the secrets, because debug output may be logged.
impl fmt::Debug for SecretsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretsKey(..)")
    }
}

/// Converts the error of a KMS call. Throttled calls have status 400 and were already retried by the SDK.
fn kms_error<E>(operation: &'static str, error: &SdkError<E>) -> Error
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    const TRANSIENT_ERRORS: [&str; 3] = [
        "DependencyTimeoutException",
        "KeyUnavailableException",
        "ThrottlingException",
    ];
    let message = Causes(error).to_string();
    let may_pass = match error {
        SdkError::ServiceError(context) => {
            context
                .err()
                .code()
                .is_some_and(|code| TRANSIENT_ERRORS.contains(&code))
                || context.raw().status().as_u16() >= 500
        }
        _ => true,
    };
    if may_pass {
        Error::temporarily_unavailable(operation, message)
    } else {
        Error::internal(operation, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Boot, Clock};
    use purser_domain::{NoticeUrlId, UserId, WebhookId, WebhookSecretId};
    use purser_testkit::Kms;
    use uuid::Uuid;

    async fn key(kms: &Kms) -> SecretsKey {
        let env = [
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("KMS_ENDPOINT", kms.serve().await),
        ];
        let boot = Boot::new(env.into_iter().collect(), Clock::system());
        SecretsKey::new(boot.aws, Kms::SECRETS_KEY)
    }

    fn secret_of(person: &str, webhook: u128, secret: u128) -> SecretOf {
        SecretOf::Webhook {
            person: UserId::derive("https://issuer.example", person),
            webhook: WebhookId::from_uuid(Uuid::from_u128(webhook)),
            secret: WebhookSecretId::from_uuid(Uuid::from_u128(secret)),
        }
    }

    /// A ciphertext that was changed, or that belongs to another user or purpose, can't be decrypted.
    #[tokio::test]
    async fn secrets_are_decrypted_only_in_their_context() {
        let kms = Kms::default();
        let key = key(&kms).await;
        let of_ann = secret_of("ann", 1, 1);
        let ciphertext = key.encrypt(&of_ann, b"a secret").await.unwrap();
        assert!(!ciphertext.as_bytes().windows(8).any(|bytes| bytes == b"a secret"));
        assert_eq!(*key.decrypt(&of_ann, &ciphertext).await.unwrap(), b"a secret");
        let notice = SecretOf::NoticeUrl {
            person: UserId::derive("https://issuer.example", "ann"),
            url: NoticeUrlId::from_uuid(Uuid::from_u128(1)),
        };
        for other in [
            secret_of("bob", 1, 1),
            secret_of("ann", 2, 1),
            secret_of("ann", 1, 2),
            notice,
        ] {
            assert!(key.decrypt(&other, &ciphertext).await.is_err(), "{other:?}");
        }
        let mut changed = ciphertext.as_bytes().to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert!(key.decrypt(&of_ann, &Ciphertext::from_bytes(changed)).await.is_err());
    }

    /// Cached secrets stay readable while KMS fails.
    #[tokio::test]
    async fn decrypted_secrets_are_cached() {
        let kms = Kms::default();
        let key = key(&kms).await;
        let ciphertext = key.encrypt(&secret_of("ann", 1, 1), b"a secret").await.unwrap();
        kms.asked();
        for _ in 0..3 {
            key.decrypt(&secret_of("ann", 1, 1), &ciphertext).await.unwrap();
        }
        assert_eq!(kms.asked().len(), 1);
        kms.fail("Decrypt", "KMSInternalException");
        assert_eq!(
            *key.decrypt(&secret_of("ann", 1, 1), &ciphertext).await.unwrap(),
            b"a secret"
        );
        let other = key.encrypt(&secret_of("ann", 1, 2), b"another").await.unwrap();
        let refused = key.decrypt(&secret_of("ann", 1, 2), &other).await.unwrap_err();
        assert!(matches!(
            refused.kind(),
            purser_domain::ErrorKind::TemporarilyUnavailable { .. }
        ));
    }
}
