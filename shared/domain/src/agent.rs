//! An agent and its keys. One record holds both, so that one read tells who calls and what holds for them now.

use crate::{Address, AgentId, Rule, Timestamp};
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// An agent: the one that pays, and the scope of every limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The agent's UUID.
    pub id: AgentId,
    /// For people.
    pub name: String,
    /// The `sub` of the user who owns it.
    pub owner: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether it may pay at all.
    pub status: AgentStatus,
    /// The wallet it pays from.
    pub wallet: Wallet,
    /// Its keys, revoked ones included.
    pub keys: Vec<AgentKey>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Counts the edits of this record.
    pub version: u64,
}

/// Whether an agent may pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentStatus {
    /// It may, under its policies.
    Active,
    /// It may not, approved calls included.
    Frozen,
}

/// Where an agent's money is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wallet {
    /// The last step of the BIP-44 path m/44'/60'/0'/0/`index`.
    pub index: u32,
    /// The address derived there; kept beside the index so that a wrong seed is noticed before anything is signed.
    pub address: Address,
}

/// What is stored of a key. The secret is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentKey {
    /// Which of the agent's keys this is; part of the public half.
    pub id: KeyId,
    /// SHA-256 of the secret half. The secret is 256 random bits, so no salt or stretching is needed.
    pub digest: SecretDigest,
    /// When it was created.
    pub created_at: Timestamp,
    /// From this instant on it is refused: set by revocation, and by rotation at the end of the overlap.
    pub ends_at: Option<Timestamp>,
}

/// A key's number within its agent: 64 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub u64);

/// Sixteen lower-case hexadecimal digits.
impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// SHA-256 of a key's secret half.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretDigest(pub [u8; 32]);

/// Nothing of the digest: debug output may reach a log.
impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(..)")
    }
}

impl SecretDigest {
    /// The digest of a secret half, prefix included.
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }
}

const PUBLIC_PREFIX: &str = "gak_pub_";
const SECRET_PREFIX: &str = "gak_sec_";

/// A key as an agent presents it: `gak_pub_<agent><key>:gak_sec_<secret>`, not yet checked against anything.
///
/// The public half is the agent's UUID as 32 hexadecimal digits and the key's number as 16 more, so that the agent's
/// record can be read in the same batch as everything else.
pub struct PresentedKey {
    /// Whom the key claims to belong to.
    pub agent: AgentId,
    /// Which key it claims to be.
    pub key: KeyId,
    digest: SecretDigest,
}

/// Why an `Authorization` header carries no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyProblem {
    /// Not of the form `Bearer <public>:<secret>`.
    HeaderForm,
    /// Of that form, but no key of ours.
    NotAKey,
}

impl PresentedKey {
    /// Reads the value of an `Authorization` header (`docs/spec.md` §5).
    pub fn from_header(value: &str) -> Result<Self, KeyProblem> {
        let (scheme, token) = value.split_once(' ').ok_or(KeyProblem::HeaderForm)?;
        // RFC 9110 §11.1: the scheme is case-insensitive.
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(KeyProblem::HeaderForm);
        }
        let (public, secret) = token.trim().split_once(':').ok_or(KeyProblem::HeaderForm)?;
        if public.is_empty() || secret.is_empty() || token.trim().contains(char::is_whitespace) {
            return Err(KeyProblem::HeaderForm);
        }
        Self::from_halves(public, secret).ok_or(KeyProblem::NotAKey)
    }

    fn from_halves(public: &str, secret: &str) -> Option<Self> {
        let id = public.strip_prefix(PUBLIC_PREFIX)?;
        let digits = secret.strip_prefix(SECRET_PREFIX)?;
        let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if id.len() != 48 || digits.len() != 64 || !is_hex(id) || !is_hex(digits) {
            return None;
        }
        let (agent, key) = id.split_at_checked(32)?;
        Some(Self {
            agent: AgentId::from_uuid(uuid::Uuid::try_parse(agent).ok()?),
            key: KeyId(u64::from_str_radix(key, 16).ok()?),
            digest: SecretDigest::of(secret),
        })
    }

    /// Whether the agent has this key and it is valid at `now`.
    ///
    /// An unknown agent or key costs the same comparison as a wrong secret, so that time tells nothing.
    pub fn is_valid_for(&self, agent: Option<&Agent>, now: Timestamp) -> bool {
        const NO_SUCH_KEY: SecretDigest = SecretDigest([0; 32]);
        let key = agent
            .filter(|agent| agent.id == self.agent)
            .and_then(|agent| agent.keys.iter().find(|key| key.id == self.key));
        let expected = key.map_or(NO_SUCH_KEY, |key| key.digest);
        let same_secret: bool = self.digest.0.ct_eq(&expected.0).into();
        let in_force = key.is_some_and(|key| key.ends_at.is_none_or(|ends_at| now < ends_at));
        same_secret & in_force
    }
}

/// A new key: what the agent keeps and what we keep. The text is shown once and stored nowhere.
pub struct NewKey {
    /// `gak_pub_…:gak_sec_…`, for the agent.
    pub text: String,
    /// The record, for us.
    pub record: AgentKey,
}

impl NewKey {
    /// A key of `agent` from 40 random bytes: 8 number it, 32 are its secret.
    pub fn from_random(agent: AgentId, random: [u8; 40], created_at: Timestamp) -> Self {
        let (number, secret) = random
            .split_first_chunk::<8>()
            .map_or(([0; 8], [].as_slice()), |(n, rest)| (*n, rest));
        let id = KeyId(u64::from_be_bytes(number));
        let secret = format!("{SECRET_PREFIX}{}", alloy_primitives::hex::encode(secret));
        let text = format!("{PUBLIC_PREFIX}{}{id}:{secret}", agent.uuid().simple());
        Self {
            text,
            record: AgentKey {
                id,
                digest: SecretDigest::of(&secret),
                created_at,
                ends_at: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Duration;
    use uuid::Uuid;

    fn agent(keys: Vec<AgentKey>) -> Agent {
        Agent {
            id: AgentId::from_uuid(Uuid::from_u128(1)),
            name: "a".to_owned(),
            owner: "o".to_owned(),
            created_at: Timestamp::EPOCH,
            status: AgentStatus::Active,
            wallet: Wallet {
                index: 0,
                address: Address::ZERO,
            },
            keys,
            rules: Vec::new(),
            version: 1,
        }
    }

    #[test]
    fn a_key_is_valid_from_creation_until_it_ends() {
        let new = NewKey::from_random(AgentId::from_uuid(Uuid::from_u128(1)), [7; 40], Timestamp::EPOCH);
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
    fn a_wrong_secret_is_refused() {
        let new = NewKey::from_random(AgentId::from_uuid(Uuid::from_u128(1)), [7; 40], Timestamp::EPOCH);
        let wrong = new.text.replace("gak_sec_07", "gak_sec_08");
        let presented = PresentedKey::from_header(&format!("Bearer {wrong}")).ok().unwrap();
        assert!(!presented.is_valid_for(Some(&agent(vec![new.record])), Timestamp::EPOCH));
    }

    #[test]
    fn the_form_of_the_header_and_of_the_key_are_told_apart() {
        let good = NewKey::from_random(AgentId::from_uuid(Uuid::from_u128(1)), [7; 40], Timestamp::EPOCH).text;
        let cases = [
            (format!("bearer {good}"), None),
            (good.clone(), Some(KeyProblem::HeaderForm)),
            (format!("Basic {good}"), Some(KeyProblem::HeaderForm)),
            ("Bearer abc".to_owned(), Some(KeyProblem::HeaderForm)),
            ("Bearer :".to_owned(), Some(KeyProblem::HeaderForm)),
            ("Bearer a: b".to_owned(), Some(KeyProblem::HeaderForm)),
            ("Bearer a:b".to_owned(), Some(KeyProblem::NotAKey)),
            (
                format!("Bearer {}", good.replace("gak_pub", "gak_pox")),
                Some(KeyProblem::NotAKey),
            ),
            (format!("Bearer {}", good.to_uppercase()), Some(KeyProblem::NotAKey)),
            (format!("Bearer {good}0"), Some(KeyProblem::NotAKey)),
        ];
        for (header, problem) in cases {
            assert_eq!(PresentedKey::from_header(&header).err(), problem, "{header}");
        }
    }
}
