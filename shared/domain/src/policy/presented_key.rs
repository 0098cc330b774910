//! Keys that callers present: agent keys and access tokens.

use crate::{
    AccessToken, Agent, AgentId, AgentKey, KeyCredential, KeyId, KeyScope, SecretDigest, Timestamp, VerificationKey,
    policy::agent::PUBLIC_PREFIX, policy::agent::format_key_ids, policy::agent::parse_key_ids,
};
use subtle::ConstantTimeEq as _;

const SECRET_PREFIX: &str = "gak_sec_";
const NO_SUCH_KEY: SecretDigest = SecretDigest::from_bytes([0; 32]);
/// A verification key whose signing key nobody knows: the group point with the smallest y coordinate. A token of an
/// unknown grant is verified with this key, so that timing reveals nothing.
const NO_SUCH_GRANT: VerificationKey = VerificationKey::from_bytes({
    let mut bytes = [0; 32];
    bytes[0] = 26;
    bytes
});

/// An unverified key from a caller: `gak_pub_<agent><key>:gak_sec_<secret>`, or the [`AccessToken`] of a grant.
///
/// Both contain the agent's UUID and the key's id, so that the agent's record is read together with all other inputs.
pub struct PresentedKey {
    /// The agent's id.
    pub agent: AgentId,
    /// The key's id.
    pub key: KeyId,
    proof: Proof,
}

enum Proof {
    Secret(SecretDigest),
    Token(AccessToken),
}

/// Why an `Authorization` header contains no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormatError {
    /// The header is not of the form `Bearer <public>:<secret>` or `Bearer pat_…`.
    HeaderForm,
    /// The text after `Bearer` is neither an agent key nor an access token.
    NotAKey,
}

impl PresentedKey {
    /// Parses the value of an `Authorization` header (`docs/spec.md` §5).
    pub fn from_header(value: &str) -> Result<Self, KeyFormatError> {
        let (scheme, token) = value.split_once(' ').ok_or(KeyFormatError::HeaderForm)?;
        // RFC 9110 §11.1: the scheme is case-insensitive.
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(KeyFormatError::HeaderForm);
        }
        let token = token.trim();
        if AccessToken::has_token_prefix(token) {
            let token = AccessToken::parse(token).ok_or(KeyFormatError::NotAKey)?;
            return Ok(Self {
                agent: token.agent,
                key: token.grant,
                proof: Proof::Token(token),
            });
        }
        let (public, secret) = token.split_once(':').ok_or(KeyFormatError::HeaderForm)?;
        if public.is_empty() || secret.is_empty() || token.contains(char::is_whitespace) {
            return Err(KeyFormatError::HeaderForm);
        }
        Self::from_halves(public, secret).ok_or(KeyFormatError::NotAKey)
    }

    fn from_halves(public_half: &str, secret: &str) -> Option<Self> {
        let (agent, key) = parse_key_ids(public_half.strip_prefix(PUBLIC_PREFIX)?)?;
        let digits = secret.strip_prefix(SECRET_PREFIX)?;
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (digits.len() == 64 && digits.bytes().all(is_hex)).then(|| Self {
            agent,
            key,
            proof: Proof::Secret(SecretDigest::from_secret(secret)),
        })
    }

    /// Returns whether the agent has this key and the key is valid at `now`. The comparison takes as long for
    /// an unknown agent or key as for a known key.
    pub fn is_valid_for(&self, agent: Option<&Agent>, now: Timestamp) -> bool {
        let key = agent
            .filter(|agent| agent.id == self.agent)
            .and_then(|agent| agent.find_key(self.key));
        let is_proven = self.matches_credential(key.map(|key| &key.credential));
        let in_force = key.is_some_and(|key| !key.has_ended(now)) && self.is_current(now);
        is_proven & in_force
    }

    /// Returns whether this proves possession of `key` and the key is valid at `now`. The caller checks that the key
    /// belongs to the agent.
    pub fn matches_key(&self, key: &AgentKey, now: Timestamp) -> bool {
        self.matches_credential(Some(&key.credential)) & (!key.has_ended(now) && self.is_current(now))
    }

    /// Compares the proof with a key's credential. Without a suitable credential, compares with a constant
    /// and returns false, so that timing does not reveal whether the key exists.
    fn matches_credential(&self, credential: Option<&KeyCredential>) -> bool {
        match &self.proof {
            Proof::Secret(digest) => {
                let expected = match credential {
                    Some(KeyCredential::Secret(expected)) => Some(expected),
                    Some(KeyCredential::Grant(_)) | None => None,
                };
                let is_same: bool = digest.ct_eq(expected.unwrap_or(&NO_SUCH_KEY)).into();
                is_same & expected.is_some()
            }
            Proof::Token(token) => {
                let expected = match credential {
                    Some(KeyCredential::Grant(grant)) => Some(&grant.verification_key),
                    Some(KeyCredential::Secret(_)) | None => None,
                };
                token.is_signed_by(expected.unwrap_or(&NO_SUCH_GRANT)) & expected.is_some()
            }
        }
    }

    fn is_current(&self, now: Timestamp) -> bool {
        match &self.proof {
            Proof::Secret(_) => true,
            Proof::Token(token) => now < token.expires_at,
        }
    }
}

/// A new key: the text for the agent and the record to store. The text is never stored.
pub struct NewKey {
    /// `gak_pub_…:gak_sec_…`, for the agent.
    pub text: String,
    /// The record of the key, which is stored in the agent's record.
    pub record: AgentKey,
}

impl NewKey {
    /// Creates a key from 40 random bytes: 8 for the id and 32 for the secret. The scope has no limits.
    pub fn from_random(agent: AgentId, random: [u8; 40], created_at: Timestamp) -> Self {
        let (number, secret) = random
            .split_first_chunk::<8>()
            .map_or(([0; 8], [].as_slice()), |(n, rest)| (*n, rest));
        let id = KeyId(u64::from_be_bytes(number));
        let secret = format!("{SECRET_PREFIX}{}", alloy_primitives::hex::encode(secret));
        let text = format!("{PUBLIC_PREFIX}{}:{secret}", format_key_ids(agent, id));
        Self {
            text,
            record: AgentKey {
                id,
                credential: KeyCredential::Secret(SecretDigest::from_secret(&secret)),
                created_at,
                ends_at: None,
                scope: KeyScope::default(),
                opened_by: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentStatus, ClientGrant, ClientName, Duration, GrantOrigin, Labels, OAuthKey, Wallet};
    use std::fmt;
    use uuid::Uuid;

    // The timing of `==` could reveal parts of a secret, and debug output may be logged.
    static_assertions::assert_not_impl_any!(PresentedKey: PartialEq, fmt::Debug, fmt::Display);
    static_assertions::assert_not_impl_any!(NewKey: PartialEq, fmt::Debug, fmt::Display);

    fn agent(keys: Vec<AgentKey>) -> Agent {
        Agent {
            id: AgentId::from_uuid(Uuid::from_u128(1)),
            name: "a".to_owned(),
            owner: "o".to_owned(),
            created_at: Timestamp::EPOCH,
            status: AgentStatus::Active,
            wallet: Wallet {
                key: crate::WalletKey::Seed { index: 0 },
                address: crate::Address::ZERO,
                attestation: crate::WalletAttestation::from_bytes([0; 65]),
            },
            keys,
            rules: Vec::new(),
            archived: false,
            labels: Labels::default(),
            starting_set: None,
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        }
    }

    #[test]
    fn agent_keys_are_valid_until_they_expire() {
        let owner = AgentId::from_uuid(Uuid::from_u128(1));
        let new = NewKey::from_random(owner, [7; 40], Timestamp::EPOCH);
        let public = new.record.public_half(owner);
        assert_eq!(new.text.split_once(':').map(|(half, _)| half), Some(&*public));
        let presented = PresentedKey::from_header(&format!("Bearer {}", new.text)).ok().unwrap();
        let end = Timestamp::EPOCH.after(Duration::DAY);
        let mut record = new.record;
        assert!(presented.is_valid_for(Some(&agent(vec![record.clone()])), end));
        record.ends_at = Some(end);
        let rotated = agent(vec![record]);
        assert!(presented.is_valid_for(Some(&rotated), Timestamp::from_micros(end.micros() - 1).unwrap()));
        assert!(!presented.is_valid_for(Some(&rotated), end));
        assert!(!presented.is_valid_for(Some(&agent(vec![])), Timestamp::EPOCH));
        assert!(!presented.is_valid_for(None, Timestamp::EPOCH));
    }

    #[test]
    fn a_wrong_agent_key_secret_is_rejected() {
        let new = NewKey::from_random(AgentId::from_uuid(Uuid::from_u128(1)), [7; 40], Timestamp::EPOCH);
        let wrong = new.text.replace("gak_sec_07", "gak_sec_08");
        let presented = PresentedKey::from_header(&format!("Bearer {wrong}")).ok().unwrap();
        assert!(!presented.is_valid_for(Some(&agent(vec![new.record])), Timestamp::EPOCH));
    }

    #[test]
    fn authorization_header_and_key_format_errors_are_distinguished() {
        let good = NewKey::from_random(AgentId::from_uuid(Uuid::from_u128(1)), [7; 40], Timestamp::EPOCH).text;
        let cases = [
            (format!("bearer {good}"), None),
            (good.clone(), Some(KeyFormatError::HeaderForm)),
            (format!("Basic {good}"), Some(KeyFormatError::HeaderForm)),
            ("Bearer abc".to_owned(), Some(KeyFormatError::HeaderForm)),
            ("Bearer :".to_owned(), Some(KeyFormatError::HeaderForm)),
            ("Bearer :b".to_owned(), Some(KeyFormatError::HeaderForm)),
            ("Bearer a:".to_owned(), Some(KeyFormatError::HeaderForm)),
            ("Bearer a: b".to_owned(), Some(KeyFormatError::HeaderForm)),
            (format!("Bearer{good}"), Some(KeyFormatError::HeaderForm)),
            (format!("Bearer\t{good}"), Some(KeyFormatError::HeaderForm)),
            (format!("Bearer Bearer {good}"), Some(KeyFormatError::HeaderForm)),
            (
                format!("Bearer {good}, Bearer {good}"),
                Some(KeyFormatError::HeaderForm),
            ),
            (
                format!("Bearer {}", good.replace(':', "%3A")),
                Some(KeyFormatError::HeaderForm),
            ),
            (format!("Bearer {good}:"), Some(KeyFormatError::NotAKey)),
            (
                format!("Bearer {}", good.replace("gak_pub_", "")),
                Some(KeyFormatError::NotAKey),
            ),
            (
                format!("Bearer {}", good.replace("gak_sec_", "gak_sec_0")),
                Some(KeyFormatError::NotAKey),
            ),
            (
                format!("Bearer {}", good.replace("gak_sec_07", "gak_sec_0g")),
                Some(KeyFormatError::NotAKey),
            ),
            (
                format!("Bearer {}", good.replace("gak_pub_0", "gak_pub_g")),
                Some(KeyFormatError::NotAKey),
            ),
            (
                format!("Bearer {}", good.replace("gak_pub_0", "gak_pub_")),
                Some(KeyFormatError::NotAKey),
            ),
            ("Bearer a:b".to_owned(), Some(KeyFormatError::NotAKey)),
            (
                format!("Bearer {}", good.replace("gak_pub", "gak_pox")),
                Some(KeyFormatError::NotAKey),
            ),
            (format!("Bearer {}", good.to_uppercase()), Some(KeyFormatError::NotAKey)),
            (format!("Bearer {good}0"), Some(KeyFormatError::NotAKey)),
            ("Bearer pat_".to_owned(), Some(KeyFormatError::NotAKey)),
            ("Bearer pat_a:b".to_owned(), Some(KeyFormatError::NotAKey)),
        ];
        for (header, problem) in cases {
            assert_eq!(PresentedKey::from_header(&header).err(), problem, "{header}");
        }
    }

    #[test]
    fn an_access_token_is_valid_for_its_grant_until_it_expires() {
        let at = |secs| Timestamp::from_secs(secs).unwrap();
        let (owner, oauth) = (
            AgentId::from_uuid(Uuid::from_u128(1)),
            OAuthKey::from_secret(&"k".repeat(32)).unwrap(),
        );
        let grant = |id, verification_key| AgentKey {
            id: KeyId(id),
            credential: KeyCredential::Grant(ClientGrant {
                verification_key,
                client: ClientName::parse("client").unwrap(),
                origin: GrantOrigin::device(),
            }),
            created_at: Timestamp::EPOCH,
            ends_at: Some(at(2_000)),
            scope: KeyScope::default(),
            opened_by: None,
        };
        let granted = |id| grant(id, oauth.verification_key(owner, KeyId(id)));
        let present = |expires_at| {
            let text = oauth.sign_access_token(owner, KeyId(1), at(expires_at));
            PresentedKey::from_header(&format!("Bearer {text}")).ok().unwrap()
        };
        let token = present(1_600);
        let holder = agent(vec![granted(1), granted(2)]);
        assert!(token.is_valid_for(Some(&holder), at(1_599)) && token.matches_key(&holder.keys[0], at(1_599)));
        assert!(!token.is_valid_for(Some(&holder), at(1_600)) && !token.matches_key(&holder.keys[0], at(1_600)));
        // The token has not expired, but the grant has ended.
        assert!(!present(2_600).is_valid_for(Some(&holder), at(2_000)));
        assert!(present(2_600).is_valid_for(Some(&holder), at(1_999)));
        assert!(!token.matches_key(&holder.keys[1], at(1_000)), "another grant's key");
        assert!(!token.is_valid_for(None, at(1_000)) && !token.is_valid_for(Some(&agent(vec![])), at(1_000)));
        let forged = agent(vec![grant(1, NO_SUCH_GRANT)]);
        assert!(!token.is_valid_for(Some(&forged), at(1_000)));
        let secret = AgentKey {
            credential: KeyCredential::Secret(SecretDigest::from_bytes([0; 32])),
            ..granted(1)
        };
        assert!(
            !token.is_valid_for(Some(&agent(vec![secret])), at(1_000)),
            "a token for an agent key"
        );
        let new = NewKey::from_random(owner, [7; 40], Timestamp::EPOCH);
        let text = PresentedKey::from_header(&format!("Bearer {}", new.text)).ok().unwrap();
        let same_id = AgentKey {
            id: new.record.id,
            ..granted(1)
        };
        assert!(
            !text.is_valid_for(Some(&agent(vec![same_id])), at(1_000)),
            "an agent key for a grant"
        );
    }
}
