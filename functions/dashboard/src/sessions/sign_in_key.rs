//! The key that signs pending sign-ins, so that nobody else can make Purser call the issuer.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use purser_domain::{Error, Result};
use sha2::Sha256;
use std::fmt;

/// The HMAC key for pending sign-ins.
pub(crate) struct SignInKey(Hmac<Sha256>);

/// In bytes: the output length of SHA-256. RFC 2104 §3 discourages shorter HMAC keys.
const MIN_KEY_BYTES: usize = 32;

impl SignInKey {
    /// Parses the text of the Secrets Manager secret. Surrounding whitespace is not part of the key.
    pub(crate) fn from_text(text: &str) -> Result<Self> {
        let text = text.trim();
        let key = Hmac::new_from_slice(text.as_bytes()).ok();
        let key = key.filter(|_| text.len() >= MIN_KEY_BYTES).map(Self);
        key.ok_or_else(|| Error::internal("reading a secret", "the sign-in key must have at least 32 characters"))
    }

    pub(crate) fn sign(&self, text: &str) -> String {
        let mut mac = self.0.clone();
        mac.update(text.as_bytes());
        let mac = BASE64_URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        format!("{text}.{mac}")
    }

    /// Returns the text without the signature; `None` unless this key signed the text. Takes constant time.
    pub(crate) fn verify<'a>(&self, signed: &'a str) -> Option<&'a str> {
        let (text, signature) = signed.rsplit_once('.')?;
        let mut mac = self.0.clone();
        mac.update(text.as_bytes());
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        mac.verify_slice(&signature).ok().map(|()| text)
    }
}

/// `Debug` does not print the key.
impl fmt::Debug for SignInKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignInKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_signed_with_the_sign_in_key_are_accepted() {
        let [ours, another] = ["a", "b"].map(|letter| SignInKey::from_text(&letter.repeat(32)).unwrap());
        let signed = ours.sign("a.b");
        assert_eq!(ours.verify(&signed), Some("a.b"));
        let (_, signature) = signed.rsplit_once('.').unwrap();
        for text in [
            another.sign("a.b"),
            format!("a.c.{signature}"),
            format!("{signed}A"),
            "a.b.".to_owned(),
            "a.b".to_owned(),
            String::new(),
        ] {
            assert_eq!(ours.verify(&text), None, "{text}");
        }
        assert!(SignInKey::from_text(&"a".repeat(31)).is_err());
    }
}
