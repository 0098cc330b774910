//! Idempotency keys. A call that is repeated with the same key has the same payment.

use sha2::{Digest as _, Sha256};
use std::fmt;

/// An `idempotency_key` (spec §4.4). Purser signs at most one payment per key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// The error for a text that is not an idempotency key. A key has 1 to 255 characters and no control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key has 1 to 255 characters and no control characters")]
pub struct IdempotencyKeyError;

impl IdempotencyKey {
    /// Creates a key from a text that the caller chose.
    pub fn from_text(text: &str) -> Result<Self, IdempotencyKeyError> {
        if (1..=255).contains(&text.chars().count()) && !text.chars().any(char::is_control) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdempotencyKeyError)
        }
    }

    /// Derives the key for the `ordinal`-th identical request of a run. Ordinals start at 1.
    ///
    /// A run that is repeated with the same run id derives the same keys, so it pays for no call twice. All clients
    /// derive keys in the same way (`clients/vectors.json`).
    pub fn derive(run: &str, method: &str, url: &str, body: &[u8], ordinal: u64) -> Self {
        let mut hash = Sha256::new_with_prefix("purser-call-v1\n");
        let body = hex(&Sha256::digest(body));
        for part in [run, &method.to_uppercase(), url, &body, &ordinal.to_string()] {
            hash.update(format!("{}:{part}\n", part.len()));
        }
        Self(hex(&hash.finalize()))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Formats bytes as lowercase hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
