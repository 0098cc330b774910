//! A grant, as it is stored in an agent's record.

use crate::value::line::line;
use ed25519_dalek::{Signature, VerifyingKey};

line! {
    /// The unverified name of a client: one line of at most 60 characters.
    ClientName, 60
}

line! {
    /// Where a grant's code was sent: the host of the redirect URI, a private-use scheme with a colon, or
    /// [`GrantOrigin::DEVICE`].
    GrantOrigin, 100
}

impl GrantOrigin {
    /// The origin of a grant with a device code (RFC 8628). No redirect URI has this host.
    pub const DEVICE: &'static str = "device";

    /// Returns [`GrantOrigin::DEVICE`].
    pub fn device() -> Self {
        Self(Self::DEVICE.to_owned())
    }
}

/// A grant: a user's permission for a client program to use an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientGrant {
    /// The key that verifies the grant's access tokens.
    pub verification_key: VerificationKey,
    /// The unverified name of the client.
    pub client: ClientName,
    /// Where the authorization code was sent.
    pub origin: GrantOrigin,
}

/// An Ed25519 verification key (RFC 8032), which is not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationKey([u8; 32]);

impl VerificationKey {
    /// Creates a key from the stored bytes. With bytes that are not a curve point, verification always fails.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the key's encoding (RFC 8032 §5.1.5), for storage.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns whether this key signed the text. Signatures by weak keys are rejected.
    pub fn has_signed(&self, text: &str, signature: &[u8; Signature::BYTE_SIZE]) -> bool {
        let signature = Signature::from_bytes(signature);
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| key.verify_strict(text.as_bytes(), &signature).is_ok())
    }
}
