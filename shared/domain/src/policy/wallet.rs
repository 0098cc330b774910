//! An agent's wallet: the key, the address, and the attestation that the wallet belongs to the agent.

use crate::Address;
use std::fmt;
use uuid::Uuid;

/// An agent's wallet. The wallet's key has attested the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wallet {
    /// The key that signs for the wallet.
    pub key: WalletKey,
    /// The address of the key. It is stored, so that a wrong key is detected before it signs.
    pub address: Address,
    /// The key's signature over the agent's id and the address.
    pub attestation: WalletAttestation,
}

/// The key of a wallet. Each variant is one way to keep the private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalletKey {
    /// A key that is derived from the wallet seed.
    Seed {
        /// The last, hardened step of the derivation path: m/44'/60'/0'/0'/`index`'.
        index: u32,
    },
    /// A KMS key for this wallet only. KMS never reveals the private key.
    Kms {
        /// The id of the wallet's key in KMS.
        id: KmsKeyId,
        /// The public key that KMS returned when the wallet was created.
        public_key: PublicKey,
    },
}

/// The id of a single-Region KMS key, a UUID. Ids of multi-Region keys begin with `mrk-` and are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KmsKeyId(Uuid);

impl KmsKeyId {
    /// Parses a UUID in lower case with hyphens. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok().map(Self)?;
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for KmsKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A compressed secp256k1 point of 33 bytes (SEC 1, §2.3.3). It may not be on the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; 33]);

impl PublicKey {
    /// Creates a public key from bytes, unchecked.
    pub const fn from_bytes(bytes: [u8; 33]) -> Self {
        Self(bytes)
    }

    /// Returns the 33 bytes of the compressed point.
    pub const fn as_bytes(&self) -> &[u8; 33] {
        &self.0
    }
}

/// The wallet key's unverified signature over the agent's id and the wallet's address: r, s, and v (27 or 28).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WalletAttestation([u8; 65]);

impl WalletAttestation {
    /// Creates an attestation from a signature's 65 bytes: r, s and v.
    pub const fn from_bytes(bytes: [u8; 65]) -> Self {
        Self(bytes)
    }

    /// Returns the 65 bytes of the signature: r, s and v.
    pub const fn as_bytes(&self) -> &[u8; 65] {
        &self.0
    }
}

/// Omits the signature, because debug output may be logged.
impl fmt::Debug for WalletAttestation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WalletAttestation(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kms_key_id_has_exactly_one_format() {
        let text = "0b1d2c3e-4f50-4617-8a9b-acbdcedfe0f1";
        assert_eq!(KmsKeyId::parse(text).unwrap().to_string(), text);
        for wrong in [
            "mrk-0b1d2c3e4f5046178a9bacbdcedfe0f1",
            "0b1d2c3e4f5046178a9bacbdcedfe0f1",
            "0B1D2C3E-4F50-4617-8A9B-ACBDCEDFE0F1",
            "arn:aws:kms:us-east-1:123456789012:key/0b1d2c3e-4f50-4617-8a9b-acbdcedfe0f1",
            "",
        ] {
            assert_eq!(KmsKeyId::parse(wrong), None, "{wrong}");
        }
    }
}
