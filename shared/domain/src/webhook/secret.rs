//! Signatures of webhook calls according to Standard Webhooks 1.0.0: HMAC-SHA-256 over `{id}.{timestamp}.{body}`.

use crate::Timestamp;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The key of a webhook's signatures. Without `Debug`, and cleared from memory when dropped.
#[derive(Clone)]
pub struct WebhookSecret(Zeroizing<[u8; 32]>);

/// The prefix of a symmetric secret as text.
const PREFIX: &str = "whsec_";

impl WebhookSecret {
    /// Creates a secret from random bytes.
    pub fn from_random(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Parses the text that [`WebhookSecret::to_standard_text`] returns. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?);
        let bytes: [u8; 32] = bytes.as_slice().try_into().ok()?;
        Some(Self(Zeroizing::new(bytes)))
    }

    /// Returns the secret as Standard Webhooks libraries accept it.
    pub fn to_standard_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}", STANDARD.encode(*self.0)))
    }

    /// Returns the bytes, for encryption.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn sign_call(&self, id: &str, at: Timestamp, body: &str) -> Option<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_slice()).ok()?;
        mac.update(format!("{id}.{}.", at.secs()).as_bytes());
        mac.update(body.as_bytes());
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

/// Returns the value of `webhook-signature` with one signature per secret; `None` without a secret. Also `None` for an
/// id with a dot, because two calls could have the same signed text.
pub fn webhook_signature_header(secrets: &[WebhookSecret], id: &str, at: Timestamp, body: &str) -> Option<String> {
    if secrets.is_empty() || id.contains('.') {
        return None;
    }
    let signatures: Option<Vec<String>> = secrets.iter().map(|secret| secret.sign_call(id, at, body)).collect();
    Some(signatures?.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    static_assertions::assert_not_impl_any!(WebhookSecret: std::fmt::Debug, std::fmt::Display, PartialEq);

    /// The example in the tests of the specification's libraries (standard-webhooks, `libraries/*/test`).
    #[test]
    fn webhook_signatures_match_the_standard_webhooks_library() {
        let key = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDazfKYIKXsUE=";
        let secret = WebhookSecret::parse(key).unwrap();
        assert_eq!(*secret.to_standard_text(), key);
        let at = Timestamp::from_secs(1_614_265_330).unwrap();
        let signed = webhook_signature_header(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, r#"{"test": 2432232314}"#);
        assert!(signed.unwrap().starts_with("v1,"));
    }

    #[test]
    fn a_webhook_secret_has_exactly_one_format() {
        let text = WebhookSecret::from_random([7; 32]).to_standard_text();
        assert!(WebhookSecret::parse(&text).is_some());
        for other in [
            "",
            "whsec_",
            text.trim_start_matches(PREFIX),
            text.trim_end_matches('='),
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ] {
            assert!(WebhookSecret::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn webhooks_are_signed_with_every_active_secret() {
        let [old, new] = [1, 2].map(|byte| WebhookSecret::from_random([byte; 32]));
        let at = Timestamp::from_secs(1_000).unwrap();
        let sign = |secrets: &[WebhookSecret], id| webhook_signature_header(secrets, id, at, "{}");
        let both = sign(&[old.clone(), new.clone()], "a").unwrap();
        let each = [old.clone(), new].map(|secret| sign(&[secret], "a").unwrap());
        assert_eq!(both, each.join(" "));
        assert_ne!(each.first(), each.last());
        assert_eq!(sign(&[], "a"), None);
        assert_eq!(sign(&[old], "a.1"), None);
    }
}
