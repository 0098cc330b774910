//! The secret from which a signing key is derived.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use std::fmt;
use zeroize::Zeroizing;

/// The 32 secret bytes of an Ed25519 key (RFC 8032 §5.1.5) or a P-256 key. The bytes are wiped on drop.
#[derive(Clone)]
pub struct Seed(Zeroizing<[u8; 32]>);

impl Seed {
    /// Creates a seed from the secret bytes.
    pub const fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Derives the Ed25519 key pair. The library wipes its own copy of the key.
    pub(crate) fn derive_ed25519(&self) -> Result<Ed25519KeyPair, SeedError> {
        Ed25519KeyPair::from_seed_unchecked(&self.0[..]).map_err(|_| SeedError)
    }

    /// Derives the P-256 key pair. About one seed in 2^32 is not below the group order and therefore invalid.
    pub(crate) fn derive_p256(&self) -> Result<EcdsaKeyPair, SeedError> {
        // The bytes around the secret in an ECPrivateKey (RFC 5915 §3). The library computes the public key.
        const DER_PREFIX: [u8; 7] = [0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20];
        const CURVE: [u8; 12] = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        let der = Zeroizing::new([&DER_PREFIX[..], &self.0[..], &CURVE].concat());
        EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).map_err(|_| SeedError)
    }
}

/// Omits the secret, because debug output may be logged.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The error for a seed that is not a valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the seed does not derive a valid key")]
pub struct SeedError;
