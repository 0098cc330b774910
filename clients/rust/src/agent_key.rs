//! The agent key or access token, with which an agent authenticates to Purser.

use reqwest::header::HeaderValue;
use std::fmt;
use zeroize::Zeroizing;

/// An agent key (spec §5) or an access token. The client sends it to Purser only and never prints it.
#[derive(Clone)]
pub struct AgentKey(Zeroizing<String>);

/// The error for a text that is not an agent key. It does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentKeyError {
    /// The environment variable `PURSER_KEY` is not set.
    #[error("the environment variable PURSER_KEY is not set")]
    Missing,
    /// The text does not have the format `gak_pub_<id>:gak_sec_<secret>` or `pat_…`.
    #[error("an agent key has the form gak_pub_<id>:gak_sec_<secret>, and an access token the form pat_…")]
    Form,
}

impl AgentKey {
    /// Parses a key and ignores surrounding white space.
    pub fn from_text(text: &str) -> Result<Self, AgentKeyError> {
        let text = text.trim();
        let is_half = |half: &str, prefix: &str| {
            half.strip_prefix(prefix)
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()))
        };
        let is_key = match text.split_once(':') {
            Some((public, secret)) => is_half(public, "gak_pub_") && is_half(secret, "gak_sec_"),
            None => is_half(text, "pat_"),
        };
        if is_key {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err(AgentKeyError::Form)
        }
    }

    /// Reads the key from the environment variable `PURSER_KEY`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client has no other settings, and reads this when it is asked to"
    )]
    pub fn from_env() -> Result<Self, AgentKeyError> {
        let text = std::env::var("PURSER_KEY").map_err(|_| AgentKeyError::Missing)?;
        Self::from_text(&Zeroizing::new(text))
    }

    fn bearer(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("Bearer {}", self.0.as_str()))
    }

    /// Returns the `Authorization` header, marked as sensitive so that debug output omits the value.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&self.bearer()).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Omits the key, because debug output may be written to a log.
impl fmt::Debug for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_keys_need_both_halves_and_stay_redacted() {
        let key = AgentKey::from_text(" gak_pub_1:gak_sec_2\n").unwrap();
        assert_eq!(key.bearer().as_str(), "Bearer gak_pub_1:gak_sec_2");
        assert_eq!(format!("{key:?}"), "AgentKey(..)");
        assert_eq!(AgentKey::from_text("pat_1").unwrap().bearer().as_str(), "Bearer pat_1");
        for text in [
            "",
            "gak_pub_1",
            "gak_pub_:gak_sec_2",
            "gak_sec_2:gak_pub_1",
            "pat_",
            "pat_1:gak_sec_2",
            "gak_pub_1:gak_sec_2\r\nX: y",
        ] {
            assert_eq!(AgentKey::from_text(text).unwrap_err(), AgentKeyError::Form, "{text:?}");
        }
    }
}
