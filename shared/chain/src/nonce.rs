//! Derives the nonce of a payment from the settlement id.
//!
//! If a settlement is signed twice, both signatures have the same nonce, so the chain accepts only one transfer. The
//! derivation uses a secret key, so that nobody who learns a settlement id can use the nonce first.

use crate::KeyError;
use hmac::{Hmac, KeyInit as _, Mac as _};
use purser_domain::{B256, NoncePrefix, SettlementId};
use sha2::Sha256;
use std::fmt;

/// The secret key from which nonces are derived. Changing it makes the payments of open settlements unrecognizable.
#[derive(Clone)]
pub struct NonceKey(Hmac<Sha256>);

/// Separates nonces from any other HMAC with the same key.
const DOMAIN: &[u8] = b"purser/nonce/v1\0";

impl NonceKey {
    /// The minimum length of the key, in characters. 32 hexadecimal digits have 128 bits.
    pub const MIN_CHARS: usize = 32;

    /// Creates the key from a text of at least [`Self::MIN_CHARS`] characters.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        if text.chars().count() < Self::MIN_CHARS {
            return Err(KeyError::Nonce);
        }
        Hmac::new_from_slice(text.as_bytes())
            .map(Self)
            .map_err(|_| KeyError::Nonce)
    }

    /// Derives the nonce of an existing settlement. Fails if the stored `prefix` was derived from another key.
    ///
    /// After this error, nothing may be signed for the settlement, and the chain proves nothing about it.
    pub fn derive_existing_nonce(&self, settlement: SettlementId, prefix: NoncePrefix) -> Result<B256, KeyError> {
        let nonce = self.derive_nonce(settlement);
        if NoncePrefix::from_nonce(nonce) == prefix {
            Ok(nonce)
        } else {
            Err(KeyError::NonceChanged)
        }
    }

    /// Derives the nonce of a new settlement.
    pub fn derive_nonce(&self, settlement: SettlementId) -> B256 {
        let mut mac = self.0.clone();
        mac.update(DOMAIN);
        mac.update(settlement.uuid().as_bytes());
        B256::new(mac.finalize().into_bytes().into())
    }
}

/// Omits the key, because debug output may be logged.
impl fmt::Debug for NonceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NonceKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    // `Debug` is not forbidden, because the implementation omits the key.
    static_assertions::assert_not_impl_any!(NonceKey: PartialEq, fmt::Display);

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn settlement(number: u128) -> SettlementId {
        SettlementId::from_uuid(Uuid::from_u128(number))
    }

    /// Nonces identify the payments of open settlements, so the derivation must never change. Python's `hmac` computed
    /// the value.
    #[test]
    fn the_nonce_derivation_matches_a_fixed_vector() {
        let nonce = NonceKey::from_text(KEY)
            .unwrap()
            .derive_nonce(settlement(0x018f_2f6e_0c00_7000_8000_0000_0000_0001));
        assert_eq!(
            nonce.to_string(),
            "0xfe739d508e7450b4b20b643f9867951fd56b64729390e96f815af65de00e7118"
        );
    }

    #[test]
    fn payment_nonces_depend_on_settlement_and_key() {
        let [one, other] = [KEY.to_owned(), KEY.replace('0', "z")].map(|text| NonceKey::from_text(&text).unwrap());
        assert_eq!(one.derive_nonce(settlement(1)), one.derive_nonce(settlement(1)));
        assert_ne!(one.derive_nonce(settlement(1)), one.derive_nonce(settlement(2)));
        assert_ne!(one.derive_nonce(settlement(1)), other.derive_nonce(settlement(1)));
    }

    #[test]
    fn the_nonce_prefix_reveals_a_changed_key() {
        let [one, other] = [KEY.to_owned(), KEY.replace('0', "z")].map(|text| NonceKey::from_text(&text).unwrap());
        let nonce = one.derive_nonce(settlement(1));
        assert_eq!(
            one.derive_existing_nonce(settlement(1), NoncePrefix::from_nonce(nonce)),
            Ok(nonce)
        );
        assert_eq!(
            other.derive_existing_nonce(settlement(1), NoncePrefix::from_nonce(nonce)),
            Err(KeyError::NonceChanged)
        );
    }

    #[test]
    fn nonce_keys_are_long_enough_and_redacted() {
        let short: String = KEY.chars().skip(1).collect();
        for text in ["", &short] {
            assert_eq!(NonceKey::from_text(text).unwrap_err(), KeyError::Nonce, "{text:?}");
        }
        assert_eq!(format!("{:?}", NonceKey::from_text(KEY).unwrap()), "NonceKey(..)");
    }
}
