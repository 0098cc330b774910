//! Device codes (RFC 8628): a program without a browser shows a user code, which the user enters on another device.

use crate::{AgentId, Duration, Fingerprint, KeyId, SecretDigest, Timestamp, oauth::grant::ClientName};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// The characters of user codes. Without vowels, a code contains no word (RFC 8628 §6.1).
const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LENGTH: usize = 8;
const SECRET_PREFIX: &str = "pdc_";

/// The code that the user enters in a browser: eight of 20 characters, so 2.5 * 10^10 codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCode(String);

impl UserCode {
    /// Derives a code from 64 random bits. The modulo bias is about 10^-9.
    pub fn from_random(random: [u8; 8]) -> Self {
        let mut rest = u64::from_be_bytes(random);
        let characters = std::iter::repeat_with(|| {
            let index = usize::try_from(rest % 20).unwrap_or_default();
            rest /= 20;
            ALPHABET.get(index).copied().map_or('B', char::from)
        });
        Self(characters.take(LENGTH).collect())
    }

    /// Parses what a user enters, in any case, with or without hyphens and spaces.
    pub fn parse(text: &str) -> Option<Self> {
        let kept = text.chars().filter(|character| !matches!(character, '-' | ' '));
        let code: String = kept
            .map(|character| character.to_ascii_uppercase())
            .take(LENGTH + 1)
            .collect();
        (code.len() == LENGTH && code.bytes().all(|byte| ALPHABET.contains(&byte))).then_some(Self(code))
    }

    /// Returns the eight characters without a hyphen.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Writes the code in two groups of four characters, such as `BCDF-GHJK`.
impl fmt::Display for UserCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = self.0.split_at_checked(LENGTH / 2).unwrap_or((&self.0, ""));
        write!(f, "{left}-{right}")
    }
}

/// The secret code with which a device polls: `pdc_<user code>_<secret>`. Without `Debug`, because debug output may be
/// logged.
pub struct DeviceCode {
    /// The code that the user enters in a browser.
    pub user_code: UserCode,
    /// The digest of the code's secret.
    pub digest: SecretDigest,
}

impl DeviceCode {
    /// Creates a device code from random bytes. Also returns the text for the device.
    pub fn from_random(user: [u8; 8], secret: [u8; 32]) -> (Self, String) {
        let user_code = UserCode::from_random(user);
        let secret = alloy_primitives::hex::encode(secret);
        let text = format!("{SECRET_PREFIX}{}_{secret}", user_code.as_str());
        let digest = SecretDigest::from_secret(&secret);
        (Self { user_code, digest }, text)
    }

    /// Parses the text of a device code. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (user_code, secret) = text.strip_prefix(SECRET_PREFIX)?.split_once('_')?;
        Some(Self {
            user_code: UserCode::parse(user_code).filter(|code| code.as_str() == user_code)?,
            digest: SecretDigest::from_secret(secret),
        })
    }
}

/// A device's request for access to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The code that the user enters in a browser, part of the row's key.
    pub user_code: UserCode,
    /// The digest of the device's secret.
    pub digest: SecretDigest,
    /// The fingerprint of the client's id.
    pub client: Fingerprint,
    /// The unverified name of the client.
    pub client_name: ClientName,
    /// The time from which the request is rejected.
    pub expires_at: Timestamp,
    /// The time of the device's last poll.
    pub polled_at: Option<Timestamp>,
    /// The decision of the user about the request.
    pub state: DeviceState,
}

/// The user's decision about a device's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// The user has not approved or denied the request yet.
    Pending,
    /// The user denied the request.
    Denied,
    /// The user approved the request. The device has no tokens yet.
    Approved {
        /// The agent to which the user gave access.
        agent: AgentId,
        /// The id of the grant. The agent's record stores each grant as an agent key, so the id is the id of an agent
        /// key.
        grant: KeyId,
    },
    /// The device has received the tokens.
    Redeemed {
        /// The agent to which the user gave access.
        agent: AgentId,
        /// The id of the grant. The agent's record stores each grant as an agent key, so the id is the id of an agent
        /// key.
        grant: KeyId,
    },
}

/// The response to a device's poll (RFC 8628 §3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevicePoll {
    /// The secret in the device code is wrong, or another client polls.
    Invalid,
    /// The response `expired_token`: the request has expired.
    Expired,
    /// The response `slow_down`: the device polls too often.
    TooFast,
    /// The response `authorization_pending`: the user has not decided yet.
    Pending,
    /// The response `access_denied`: the user denied the request.
    Denied,
    /// The user approved the request, and the device receives the tokens of this grant.
    Approved {
        /// The agent to which the user gave access.
        agent: AgentId,
        /// The id of the grant. The agent's record stores each grant as an agent key, so the id is the id of an agent
        /// key.
        grant: KeyId,
    },
    /// The device already received the tokens. The grant must end, because the code may be stolen.
    Reused {
        /// The agent to which the user gave access.
        agent: AgentId,
        /// The id of the grant. The agent's record stores each grant as an agent key, so the id is the id of an agent
        /// key.
        grant: KeyId,
    },
}

impl DeviceRequest {
    /// How long the user can enter the user code and the device can poll.
    pub const LIFETIME: Duration = Duration::from_secs_u32(600);
    /// The minimum interval between two polls.
    pub const POLL_INTERVAL: Duration = Duration::from_secs_u32(5);

    /// Returns the response to a poll with this device code.
    pub fn poll(&self, code: &DeviceCode, client: &Fingerprint, now: Timestamp) -> DevicePoll {
        let is_device: bool = self.digest.ct_eq(&code.digest).into();
        if !is_device || self.client != *client {
            return DevicePoll::Invalid;
        }
        match self.state {
            DeviceState::Redeemed { agent, grant } => DevicePoll::Reused { agent, grant },
            _ if now >= self.expires_at => DevicePoll::Expired,
            DeviceState::Denied => DevicePoll::Denied,
            _ if self
                .polled_at
                .is_some_and(|polled| now < polled.after(Self::POLL_INTERVAL)) =>
            {
                DevicePoll::TooFast
            }
            DeviceState::Pending => DevicePoll::Pending,
            DeviceState::Approved { agent, grant } => DevicePoll::Approved { agent, grant },
        }
    }

    /// Returns whether the user can still approve or deny the request.
    pub fn is_pending(&self, now: Timestamp) -> bool {
        self.state == DeviceState::Pending && now < self.expires_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    static_assertions::assert_not_impl_any!(DeviceCode: PartialEq, fmt::Debug);

    #[test]
    fn a_user_code_can_be_entered_in_any_case_and_grouping() {
        let code = UserCode::from_random([0xff; 8]);
        assert_eq!(code.as_str().len(), 8);
        assert_eq!(code.to_string().len(), 9);
        let lower = code.to_string().to_lowercase();
        for text in [code.as_str(), &code.to_string(), &lower, &format!(" {lower} ")] {
            assert_eq!(UserCode::parse(text), Some(code.clone()), "{text}");
        }
        for text in ["", "BCDF", "BCDF-GHJA", "BCDF-GHJKL", "BCDF-GHJK-LMNP", "ВCDF-GHJK"] {
            assert_eq!(UserCode::parse(text), None, "{text}");
        }
        assert_eq!(UserCode::from_random([0; 8]).as_str(), "BBBBBBBB");
    }

    #[test]
    fn a_device_polls_until_the_user_decides() {
        let at = |secs| Timestamp::from_secs(secs).unwrap();
        let client = Fingerprint::for_text("purser-cli");
        let (code, text) = DeviceCode::from_random([1; 8], [2; 32]);
        let request = |state, polled: Option<u64>| DeviceRequest {
            user_code: code.user_code.clone(),
            digest: code.digest,
            client,
            client_name: ClientName::parse("Purser command line").unwrap(),
            expires_at: at(600),
            polled_at: polled.map(at),
            state,
        };
        let (agent, grant) = (AgentId::from_uuid(Uuid::nil()), KeyId(1));
        let (approved, redeemed) = (
            DeviceState::Approved { agent, grant },
            DeviceState::Redeemed { agent, grant },
        );
        let rows = [
            (DeviceState::Pending, None, 0, DevicePoll::Pending),
            (DeviceState::Pending, Some(100), 104, DevicePoll::TooFast),
            (DeviceState::Pending, Some(100), 105, DevicePoll::Pending),
            (DeviceState::Pending, None, 600, DevicePoll::Expired),
            (DeviceState::Denied, Some(100), 101, DevicePoll::Denied),
            (approved, Some(100), 104, DevicePoll::TooFast),
            (approved, None, 599, DevicePoll::Approved { agent, grant }),
            (approved, None, 600, DevicePoll::Expired),
            (redeemed, None, 700, DevicePoll::Reused { agent, grant }),
        ];
        for (state, polled, now, expected) in rows {
            let parsed = DeviceCode::parse(&text).unwrap();
            assert_eq!(
                request(state, polled).poll(&parsed, &client, at(now)),
                expected,
                "{state:?} {now}"
            );
        }
        let other_client = Fingerprint::for_text("other");
        assert_eq!(
            request(approved, None).poll(&code, &other_client, at(0)),
            DevicePoll::Invalid
        );
        let (other, _) = DeviceCode::from_random([1; 8], [3; 32]);
        assert_eq!(
            request(approved, None).poll(&other, &client, at(0)),
            DevicePoll::Invalid
        );
        for text in ["", "pdc_", "pdc_BBBBBBBB", "pdc_bbbbbbbb_0", "pdc_BBBB-BBBB_0"] {
            assert!(DeviceCode::parse(text).is_none(), "{text}");
        }
    }
}
