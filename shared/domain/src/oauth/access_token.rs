//! Access tokens of grants: `pat_<agent><grant>_<expiry>_<signature>`, with only characters of RFC 6750's `b64token`.
//!
//! The expiry is a Unix time in hexadecimal seconds. The signature is an Ed25519 signature in base64url. The agent's
//! record contains the verification key, so the verification of an access token needs no further read.

use crate::{
    AgentId, Duration, KeyId, Timestamp, oauth::grant::VerificationKey, policy::agent::format_key_ids,
    policy::agent::parse_key_ids,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

const PREFIX: &str = "pat_";

/// An access token with an unverified signature.
pub struct AccessToken {
    /// The agent to which the access token gives access.
    pub agent: AgentId,
    /// The id of the grant. The agent's record stores each grant as an agent key, so the id is the id of an agent key.
    pub grant: KeyId,
    /// The time from which the access token is rejected.
    pub expires_at: Timestamp,
    signature: [u8; 64],
}

impl AccessToken {
    /// How long an access token is valid after it was signed.
    pub const LIFETIME: Duration = Duration::from_secs_u32(600);

    /// Parses an access token. Returns `None` for a different spelling of the same token.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(PREFIX)?.splitn(3, '_');
        let (agent, grant) = parse_key_ids(parts.next()?)?;
        let expiry = parts.next()?;
        let secs = u64::from_str_radix(expiry, 16).ok()?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
        let token = Self {
            agent,
            grant,
            expires_at: Timestamp::from_secs(secs)?,
            signature: signature.try_into().ok()?,
        };
        (format!("{secs:x}") == expiry).then_some(token)
    }

    /// Returns whether a text begins like an access token. The rest of the text may be invalid.
    pub fn has_token_prefix(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// Returns whether the grant with this verification key has signed the token.
    pub fn is_signed_by(&self, key: &VerificationKey) -> bool {
        let text = Self::signed_text(self.agent, self.grant, self.expires_at);
        key.has_signed(&text, &self.signature)
    }

    /// Returns the text that is signed with a grant's key.
    pub(crate) fn signed_text(agent: AgentId, grant: KeyId, expires_at: Timestamp) -> String {
        format!("purser access token v1|{agent}|{grant}|{:x}", expires_at.secs())
    }

    pub(crate) fn format(agent: AgentId, grant: KeyId, expires_at: Timestamp, signature: &[u8; 64]) -> String {
        let ids = format_key_ids(agent, grant);
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
        format!("{PREFIX}{ids}_{:x}_{signature}", expires_at.secs())
    }
}
