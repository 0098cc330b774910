//! Users and their browser sessions.

use crate::{Amount, Duration, ErrorKind, Fingerprint, Result, SecretDigest, Timestamp};
use std::{borrow::Borrow, fmt};

/// A user's id: the SHA-256 of the issuer and the user's `sub`, as 64 hexadecimal digits.
///
/// The same `sub` at two issuers means two users (OpenID Connect Core §5.7).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(String);

impl UserId {
    /// Derives the id of the user with this `sub` at this issuer. An issuer is a URL and contains no line break, so the
    /// line break separates the parts unambiguously.
    pub fn derive(issuer: &str, subject: &str) -> Self {
        Self(Fingerprint::for_text(&format!("person\n{issuer}\n{subject}")).to_string())
    }

    /// Parses 64 lower-case hexadecimal digits. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        is_sha256_hex(text).then(|| Self(text.to_owned()))
    }

    /// Returns the 64 lower-case hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Allows lookups of a user id by text.
impl Borrow<str> for UserId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A session's id: the digest of the cookie's secret, in hexadecimal. The id gives no access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionId(String);

impl SessionId {
    /// Derives the id from the session's secret. The secret has 256 random bits, so no salt or key stretching is
    /// needed.
    pub fn from_secret(secret: &str) -> Self {
        let digest = SecretDigest::from_secret(secret);
        Self(alloy_primitives::hex::encode(digest.as_bytes()))
    }

    /// Parses 64 lower-case hexadecimal digits. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        is_sha256_hex(text).then(|| Self(text.to_owned()))
    }

    /// Returns the 64 lower-case hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A user's session in one browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The digest of the secret in the browser's cookie.
    pub id: SessionId,
    /// The user who signed in.
    pub person: UserId,
    /// The user's display name at sign-in, from the issuer.
    pub name: Option<String>,
    /// The time at which the session began.
    pub created_at: Timestamp,
    /// The time of the session's last use, rounded to the minute.
    pub seen_at: Timestamp,
    /// The time at which the session ends, even if the session is in use.
    pub ends_at: Timestamp,
    /// The time at which the issuer authenticated the user.
    pub signed_in_at: Timestamp,
    /// The fingerprint of the sign-in settings at the sign-in. A change of the settings ends the session.
    pub terms: Fingerprint,
    /// The `User-Agent` header that the browser sent.
    pub user_agent: Option<String>,
    /// The IP address of the sign-in.
    pub address: Option<String>,
    /// Whether the user may read the operators' pages, according to the issuer at sign-in.
    pub is_operator: bool,
}

/// The validity of sessions and of recent sign-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// The duration for which an unused session stays valid.
    pub idle: Duration,
    /// The maximum duration of a session.
    pub longest: Duration,
    /// The duration for which a sign-in counts as recent.
    pub recent: Duration,
    /// The amount, in micro-USDC, above which an approval requires a recent sign-in.
    pub recent_sign_in_above: Amount,
}

impl SessionLimits {
    /// Returns whether, at `now`, the session has not ended and was used within the duration `idle`.
    pub fn is_open(&self, session: &Session, now: Timestamp) -> bool {
        now < session.ends_at && now < session.seen_at.after(self.idle)
    }

    /// Rejects a sign-in that is not recent, for actions that require a recent sign-in.
    pub fn require_recent_sign_in(&self, signed_in_at: Timestamp, now: Timestamp) -> Result<()> {
        if now < signed_in_at.after(self.recent) {
            return Ok(());
        }
        let max_age_seconds = self.recent.secs();
        Err(ErrorKind::RecentSignInRequired { max_age_seconds }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    const LIMITS: SessionLimits = SessionLimits {
        idle: Duration::from_secs_u32(60),
        longest: Duration::from_secs_u32(600),
        recent: Duration::from_secs_u32(10),
        recent_sign_in_above: Amount::ZERO,
    };

    #[test]
    fn user_ids_depend_on_issuer_and_subject() {
        let ann = UserId::derive("https://a.example", "ann");
        assert_eq!(UserId::parse(ann.as_str()), Some(ann.clone()));
        for (issuer, subject) in [("https://b.example", "ann"), ("https://a.example", "bob")] {
            assert_ne!(UserId::derive(issuer, subject), ann);
        }
        for text in [
            "",
            "ann",
            &ann.as_str().to_uppercase(),
            &format!("{ann}0"),
            &"g".repeat(64),
        ] {
            assert_eq!(UserId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sessions_end_when_idle_or_expired() {
        let session = Session {
            id: SessionId::from_secret("secret"),
            person: UserId::derive("https://a.example", "ann"),
            name: None,
            created_at: at(1_000),
            seen_at: at(1_100),
            ends_at: at(1_150),
            signed_in_at: at(1_000),
            terms: Fingerprint::for_text(""),
            user_agent: None,
            address: None,
            is_operator: false,
        };
        let later = Session {
            ends_at: at(1_600),
            ..session.clone()
        };
        for (session, secs, open) in [
            (&session, 1_149, true),
            (&session, 1_150, false),
            (&later, 1_159, true),
            (&later, 1_160, false),
        ] {
            assert_eq!(LIMITS.is_open(session, at(secs)), open, "{secs}");
        }
    }

    #[test]
    fn a_sign_in_is_recent_for_the_configured_time() {
        assert!(LIMITS.require_recent_sign_in(at(100), at(109)).is_ok());
        let refused = LIMITS.require_recent_sign_in(at(100), at(110)).unwrap_err();
        assert!(matches!(
            refused.kind(),
            ErrorKind::RecentSignInRequired { max_age_seconds: 10 }
        ));
    }
}
