//! The secret that an Ed25519 key is derived from.

use aws_lc_rs::signature::Ed25519KeyPair;
use std::fmt;
use zeroize::Zeroizing;

/// The seed of an Ed25519 key (RFC 8032 §5.1.5): 32 secret bytes, wiped on drop.
#[derive(Clone)]
pub struct Seed(Zeroizing<[u8; 32]>);

impl Seed {
    /// The seed of these bytes.
    pub const fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// The key pair of this seed. The library wipes its copy of the key.
    pub(crate) fn key_pair(&self) -> Result<Ed25519KeyPair, SeedError> {
        Ed25519KeyPair::from_seed_unchecked(&self.0[..]).map_err(|_| SeedError)
    }
}

/// `Debug` prints no secret.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The library makes no key of the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the seed makes no Ed25519 key")]
pub struct SeedError;
