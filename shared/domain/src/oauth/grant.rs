//! A grant, as it is stored in an agent's record.

use crate::{Agent, KeyId, RuleKind, Timestamp, value::line::line};
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

impl Agent {
    /// Removes the budgets that count only payments of ended grants, because an agent may have only
    /// [`Agent::MAX_BUDGETS`].
    #[must_use]
    pub fn without_budgets_of_ended_grants(mut self, now: Timestamp) -> Self {
        let keys = &self.keys;
        let has_ended = |id: &KeyId| {
            let key = keys.iter().find(|key| key.id == *id);
            key.is_none_or(|key| key.grant().is_some() && key.has_ended(now))
        };
        self.rules.retain(|rule| match &rule.kind {
            RuleKind::BudgetLimit { window, .. } => {
                !window.keys.as_ref().is_some_and(|keys| keys.iter().all(has_ended))
            }
            _ => true,
        });
        self
    }
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
