//! Agents and their keys. One record contains both, so that authentication and evaluation share one read.

use crate::{
    AgentId, Amount, Duration, Fingerprint, FollowedTemplate, KeyScope, Labels, Rule, Timestamp, Wallet,
    catalog::service::named, oauth::grant::ClientGrant, value::line::line,
};
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::{Choice, ConstantTimeEq};

/// An agent, which makes payments. Every limit applies to one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The agent's UUID.
    pub id: AgentId,
    /// The name that users see, at most 100 characters ([`AgentName`]).
    pub name: String,
    /// The user who owns the agent: a [`crate::UserId`].
    pub owner: String,
    /// The time at which the agent was created.
    pub created_at: Timestamp,
    /// Whether the agent is active or frozen. An archived agent is frozen.
    pub status: AgentStatus,
    /// Whether the agent is archived. An archived agent is frozen and does not appear in lists.
    pub archived: bool,
    /// The agent's labels.
    pub labels: Labels,
    /// The wallet from which the agent pays.
    pub wallet: Wallet,
    /// The agent's keys, including revoked keys.
    pub keys: Vec<AgentKey>,
    /// The agent's rules.
    pub rules: Vec<Rule>,
    /// The digest of the agent's [`crate::DefaultServices`]; `None` if the agent has no default services.
    pub starting_set: Option<Fingerprint>,
    /// The owner's policy template that the agent follows.
    pub template: Option<FollowedTemplate>,
    /// The maximum cap that the agent may request, as a multiple of the policy's cap: 0 to
    /// [`Agent::MAX_INCREASE_FACTOR`]. With 0, the agent may request no limit increase.
    pub max_increase_factor: u32,
    /// The agent's former owners, oldest first. Each ownership transfer adds the previous owner.
    pub former_owners: Vec<FormerOwner>,
    /// The version of the record, which each update increments.
    pub version: u64,
}

/// A former owner of an agent, to whom the decisions before the ownership transfer still belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerOwner {
    /// The id of the former owner: a [`crate::UserId`].
    pub owner: String,
    /// The agent's name when the ownership was transferred.
    pub name: String,
    /// The agent's labels when the ownership was transferred.
    pub labels: Labels,
    /// The time of the ownership transfer.
    pub until: Timestamp,
}

/// The agent's owner at the time of a decision, and the name and labels that the agent had then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastOwner<'a> {
    /// The id of the owner: a [`crate::UserId`].
    pub owner: &'a str,
    /// The name that the agent had while this user owned the agent.
    pub name: &'a str,
    /// The labels that the agent had while this user owned the agent.
    pub labels: &'a Labels,
}

named! {
    /// Whether an agent may pay.
    AgentStatus {
        /// The agent may pay, within the agent's policies.
        Active = "active",
        /// The agent may not pay, even if a call was approved.
        Frozen = "frozen",
    }
}

line! {
    /// The name of an agent, which a user chose: one line of at most 100 characters.
    AgentName, 100
}

/// The stored record of a key. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentKey {
    /// The key's id, which is unique within the agent and part of the key's public half.
    pub id: KeyId,
    /// How a caller authenticates with the key: with a secret or with an access token.
    pub credential: KeyCredential,
    /// The time at which the key was created.
    pub created_at: Timestamp,
    /// The time from which a revoked or rotated key is rejected; `None` for other keys.
    pub ends_at: Option<Timestamp>,
    /// The key's permissions and expiry.
    pub scope: KeyScope,
    /// The key that opened this key's run; `None` if a user created the key.
    pub opened_by: Option<KeyId>,
}

/// What a caller must present to authenticate with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCredential {
    /// The SHA-256 of the key's secret half. The secret has 256 random bits, so no salt or key stretching is needed.
    Secret(SecretDigest),
    /// An OAuth grant. The client authenticates with access tokens instead of a secret.
    Grant(ClientGrant),
}

/// The id of a key within an agent: 64 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

impl KeyId {
    /// Parses sixteen lower-case hexadecimal digits. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let id = u64::from_str_radix(text, 16).ok().map(Self)?;
        (id.to_string() == text).then_some(id)
    }
}

/// Writes sixteen lower-case hexadecimal digits.
impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The SHA-256 of a secret, such as a key's secret half. Digests can be compared only in constant time.
#[derive(Clone, Copy)]
pub struct SecretDigest([u8; 32]);

/// Omits the digest, because debug output may be logged.
impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(..)")
    }
}

impl ConstantTimeEq for SecretDigest {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl PartialEq for SecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for SecretDigest {}

impl SecretDigest {
    /// Hashes a secret. For an agent key, the secret is the secret half with the prefix.
    pub fn from_secret(secret: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Creates a digest from the stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses 64 hexadecimal digits. Returns `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        alloy_primitives::hex::decode_to_slice(text, &mut bytes).ok()?;
        (!text.starts_with("0x")).then_some(Self(bytes))
    }

    /// Returns the digest as 64 lower-case hexadecimal digits.
    pub fn to_hex(&self) -> String {
        alloy_primitives::hex::encode(self.0)
    }

    /// Returns the bytes to store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A key's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// The key is valid and was neither rotated nor revoked. The key's scope may have an expiry.
    Active,
    /// The key was rotated and is still valid during the overlap.
    Ending {
        /// The time from which the key is rejected.
        ends_at: Timestamp,
    },
    /// The key was revoked, or the overlap or expiry time has passed.
    Ended {
        /// The time since which the key is rejected.
        ended_at: Timestamp,
    },
}

impl KeyStatus {
    /// Returns the name of the status in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Ending { .. } => "ending",
            Self::Ended { .. } => "ended",
        }
    }
}

impl AgentKey {
    /// Returns the key's status at `now`.
    pub fn status(&self, now: Timestamp) -> KeyStatus {
        match (self.end_time(), self.ends_at) {
            (Some(ended_at), _) if ended_at <= now => KeyStatus::Ended { ended_at },
            (_, Some(ends_at)) => KeyStatus::Ending { ends_at },
            (_, None) => KeyStatus::Active,
        }
    }

    pub(super) fn end_time(&self) -> Option<Timestamp> {
        self.ends_at.into_iter().chain(self.scope.expires_at).min()
    }

    /// Returns the public half: `gak_pub_…`.
    pub fn public_half(&self, agent: AgentId) -> String {
        format!("{PUBLIC_PREFIX}{}", format_key_ids(agent, self.id))
    }

    /// Returns the grant, if the key is a grant.
    pub const fn grant(&self) -> Option<&ClientGrant> {
        match &self.credential {
            KeyCredential::Secret(_) => None,
            KeyCredential::Grant(grant) => Some(grant),
        }
    }

    pub(crate) fn has_ended(&self, now: Timestamp) -> bool {
        matches!(self.status(now), KeyStatus::Ended { .. })
    }

    pub(super) fn with_earlier_end(self, end: Timestamp) -> Self {
        let end = self.end_time().map_or(end, |already| already.min(end));
        Self {
            ends_at: Some(end),
            ..self
        }
    }
}

/// Why an agent's keys were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRejection {
    /// The agent has no key with this id.
    Unknown,
    /// The key has already ended. An ended key can't be changed.
    Ended,
    /// The agent already has [`Agent::MAX_KEYS`] valid keys.
    TooMany,
    /// The agent already has [`Agent::MAX_GRANTS`] grants.
    TooManyGrants,
    /// The agent already has [`Agent::MAX_RUNS`] open runs.
    TooManyRuns,
    /// The key is a grant, which has no secret to replace.
    IsGrant,
    /// The key is a run's key. The run's budget would not count payments with another key.
    IsRun,
}

impl<'a> PastOwner<'a> {
    /// Returns the agent's owner after this number of ownership transfers. `self` is the current owner.
    #[must_use]
    pub fn past_owner_after_transfers(self, transfers: u32, former_owners: &'a [FormerOwner]) -> Self {
        let then = usize::try_from(transfers)
            .ok()
            .and_then(|index| former_owners.get(index));
        then.map_or(self, |then| PastOwner {
            owner: &then.owner,
            name: &then.name,
            labels: &then.labels,
        })
    }
}

impl Agent {
    /// Returns the number of ownership transfers. Each decision records this number, because it determines the
    /// decision's owner.
    pub fn transfer_count(&self) -> u32 {
        u32::try_from(self.former_owners.len()).unwrap_or(u32::MAX)
    }

    /// Returns the owner of a decision that recorded this number of ownership transfers.
    pub fn owner_after_transfers(&self, transfers: u32) -> PastOwner<'_> {
        let now = PastOwner {
            owner: &self.owner,
            name: &self.name,
            labels: &self.labels,
        };
        now.past_owner_after_transfers(transfers, &self.former_owners)
    }

    /// Returns whether the agent is frozen by this record, which blocks every payment.
    pub fn is_frozen(&self) -> bool {
        self.archived || self.status == AgentStatus::Frozen
    }

    /// Archives the agent and freezes it.
    #[must_use]
    pub fn archive(self) -> Self {
        Self {
            status: AgentStatus::Frozen,
            archived: true,
            ..self
        }
    }

    /// Restores an archived agent. The agent stays frozen.
    #[must_use]
    pub fn restore(self) -> Self {
        Self {
            archived: false,
            ..self
        }
    }

    /// The maximum number of an agent's keys that have not ended.
    pub const MAX_KEYS: usize = 20;
    /// The maximum number of an agent's grants that have not ended. Grants also count as keys.
    pub const MAX_GRANTS: usize = 10;
    /// The maximum number of stored keys, including ended keys. Every payment reads the record with all keys.
    pub const MAX_KEPT_KEYS: usize = 50;
    /// The default of [`Agent::max_increase_factor`]. The default applies until the owner sets another factor.
    pub const DEFAULT_INCREASE_FACTOR: u32 = 10;
    /// The maximum of [`Agent::max_increase_factor`] that an owner can set.
    pub const MAX_INCREASE_FACTOR: u32 = 1_000;
    /// How long an ended key is stored, so that users can see it.
    pub const ENDED_KEY_RETENTION: Duration = Duration::from_secs_u32(30 * 86_400);
    /// The maximum duration for which a rotated key stays valid.
    pub const MAX_KEY_OVERLAP: Duration = Duration::from_secs_u32(30 * 86_400);

    /// Returns the maximum value that the agent may request for a cap of a policy.
    pub fn max_requestable_cap(&self, cap: Amount) -> Amount {
        let units = cap.units().saturating_mul(self.max_increase_factor.into());
        Amount::from_units(units).unwrap_or(Amount::MAX)
    }

    /// Adds a key, and drops keys that ended long ago. Does nothing if the key id exists, because an earlier attempt
    /// then added the key.
    pub fn with_key(mut self, key: AgentKey, now: Timestamp) -> Result<Self, KeyRejection> {
        if self.find_key(key.id).is_some() {
            return Ok(self);
        }
        let working = self.keys.iter().filter(|key| !key.has_ended(now));
        if working.clone().count() >= Self::MAX_KEYS {
            return Err(KeyRejection::TooMany);
        }
        if key.grant().is_some() && working.clone().filter(|key| key.grant().is_some()).count() >= Self::MAX_GRANTS {
            return Err(KeyRejection::TooManyGrants);
        }
        if key.opened_by.is_some() && working.filter(|key| key.opened_by.is_some()).count() >= Self::MAX_RUNS {
            return Err(KeyRejection::TooManyRuns);
        }
        let cut = now.before(Self::ENDED_KEY_RETENTION);
        self.keys
            .retain(|key| !key.has_ended(now) || key.end_time().is_some_and(|end| end > cut));
        while self.keys.len() >= Self::MAX_KEPT_KEYS {
            let ended = self.keys.iter().enumerate().filter(|(_, key)| key.has_ended(now));
            // Keys of runs are dropped first, so that an agent's runs don't displace the owner's keys.
            let Some((longest, _)) = ended.min_by_key(|(_, key)| (key.opened_by.is_none(), key.end_time())) else {
                break;
            };
            self.keys.remove(longest);
        }
        self.keys.push(key);
        Ok(self)
    }

    /// Replaces a key by `new` with the same scope. The old key and its runs stay valid for at most `overlap`.
    pub fn with_rotated_key(
        self,
        old: KeyId,
        mut new: AgentKey,
        overlap: Duration,
        now: Timestamp,
    ) -> Result<Self, KeyRejection> {
        match self.find_key(old) {
            None => Err(KeyRejection::Unknown),
            // The record already has the new key: an earlier attempt rotated the key, and the response to that attempt
            // was lost.
            Some(_) if self.find_key(new.id).is_some() => Ok(self),
            Some(key) if key.has_ended(now) => Err(KeyRejection::Ended),
            Some(key) if key.grant().is_some() => Err(KeyRejection::IsGrant),
            Some(key) if key.opened_by.is_some() => Err(KeyRejection::IsRun),
            Some(key) => {
                new.scope = key.scope.clone();
                self.with_earlier_key_end(old, now.after(overlap)).with_key(new, now)
            }
        }
    }

    /// Revokes a key and its runs at `now`. Does nothing if the key has already ended.
    pub fn with_revoked_key(self, id: KeyId, now: Timestamp) -> Result<Self, KeyRejection> {
        match self.find_key(id) {
            None => Err(KeyRejection::Unknown),
            Some(key) if key.has_ended(now) => Ok(self),
            Some(_) => Ok(self.with_earlier_key_end(id, now)),
        }
    }

    /// Returns the key with this id, even if the key has ended.
    pub fn find_key(&self, id: KeyId) -> Option<&AgentKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// Returns whether the key is valid at `now`. The caller must compare the secret first.
    pub fn accepts_key(&self, id: KeyId, now: Timestamp) -> bool {
        self.find_key(id).is_some_and(|key| !key.has_ended(now))
    }

    fn with_earlier_key_end(self, id: KeyId, end: Timestamp) -> Self {
        let is_run = |key: &AgentKey| key.opened_by == Some(id) && key.end_time().is_none_or(|earlier| end < earlier);
        let keys = self.keys.into_iter().map(|key| {
            if key.id == id || is_run(&key) {
                key.with_earlier_end(end)
            } else {
                key
            }
        });
        Self {
            keys: keys.collect(),
            ..self
        }
    }
}

pub(crate) const PUBLIC_PREFIX: &str = "gak_pub_";

pub(crate) fn format_key_ids(agent: AgentId, key: KeyId) -> String {
    format!("{}{key}", agent.uuid().simple())
}

pub(crate) fn parse_key_ids(text: &str) -> Option<(AgentId, KeyId)> {
    let (agent, key) = text.split_at_checked(32)?;
    let agent = AgentId::from_uuid(uuid::Uuid::try_parse(agent).ok()?);
    let key = KeyId::parse(key)?;
    (format_key_ids(agent, key) == text).then_some((agent, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientName, GrantOrigin, Permission, VerificationKey};
    use proptest::prelude::*;
    use uuid::Uuid;

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
    fn a_restored_agent_is_still_frozen() {
        let archived = agent(vec![]).archive();
        assert!(archived.archived && archived.is_frozen());
        let restored = archived.clone().restore();
        assert!(!restored.archived && restored.is_frozen());
        let unfrozen = |agent: Agent| Agent {
            status: AgentStatus::Active,
            ..agent
        };
        assert!(unfrozen(archived).is_frozen());
        assert!(!unfrozen(restored).is_frozen());
    }

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn key(id: u64, ends_at: Option<Timestamp>) -> AgentKey {
        AgentKey {
            id: KeyId(id),
            credential: KeyCredential::Secret(SecretDigest([7; 32])),
            created_at: Timestamp::EPOCH,
            ends_at,
            scope: KeyScope::default(),
            opened_by: None,
        }
    }

    fn expiring(id: u64, expires_at: u64, ends_at: Option<u64>) -> AgentKey {
        let scope = KeyScope {
            permissions: Some(vec![Permission::Read]),
            expires_at: Some(secs(expires_at)),
            ..KeyScope::default()
        };
        AgentKey {
            scope,
            ..key(id, ends_at.map(secs))
        }
    }

    #[test]
    fn rotation_and_revocation_never_extend_a_keys_expiry() {
        let (before, now) = (secs(999), secs(1_000));
        let expired = agent(vec![expiring(1, 1_000, None)]);
        assert!(expired.accepts_key(KeyId(1), before) && !expired.accepts_key(KeyId(1), now));
        let status = |key: AgentKey, at| key.status(at);
        assert_eq!(status(expiring(1, 1_000, None), before), KeyStatus::Active);
        let ended_at = now;
        assert_eq!(status(expiring(1, 1_000, None), now), KeyStatus::Ended { ended_at });
        assert_eq!(
            status(expiring(1, 1_000, Some(2_000)), now),
            KeyStatus::Ended { ended_at }
        );
        let ending = KeyStatus::Ending { ends_at: now };
        assert_eq!(status(expiring(1, 2_000, Some(1_000)), before), ending);

        assert_eq!(expired.clone().with_revoked_key(KeyId(1), now), Ok(expired.clone()));
        let rotated = |at| {
            expired
                .clone()
                .with_rotated_key(KeyId(1), key(2, None), Duration::DAY, at)
        };
        assert_eq!(rotated(now), Err(KeyRejection::Ended));
        // The scope's expiry is before the end of the overlap.
        let keys = rotated(before).unwrap().keys;
        assert_eq!(keys, [expiring(1, 1_000, Some(1_000)), expiring(2, 1_000, None)]);
    }

    #[test]
    fn a_rotated_key_passes_its_scope_to_the_new_key() {
        let end = agent(vec![expiring(1, 5_000, Some(2_000))]);
        let rotated = end.with_rotated_key(KeyId(1), key(2, None), Duration::DAY, secs(1_000));
        assert_eq!(rotated.unwrap().keys[1], expiring(2, 5_000, None));
    }

    #[test]
    fn the_rotation_overlap_never_extends_a_keys_validity() {
        let now = secs(1_000);
        let rows = [
            (None, 0, Ok(1_000)),
            (None, 60, Ok(1_060)),
            (Some(1_030), 60, Ok(1_030)),
            (Some(1_090), 60, Ok(1_060)),
            (Some(1_000), 60, Err(KeyRejection::Ended)),
            (Some(999), 60, Err(KeyRejection::Ended)),
        ];
        for (ends_at, overlap, expected) in rows {
            let agent = agent(vec![key(1, ends_at.map(secs)), key(2, None)]);
            let rotated = agent.with_rotated_key(KeyId(1), key(3, None), Duration::from_secs_u32(overlap), now);
            let end = rotated.map(|agent| {
                assert_eq!(agent.keys.len(), 3);
                assert_eq!(agent.keys[1..], [key(2, None), key(3, None)]);
                agent.find_key(KeyId(1)).unwrap().ends_at.unwrap().secs()
            });
            assert_eq!(end, expected, "{ends_at:?} {overlap}");
        }
        let unknown = agent(vec![]).with_rotated_key(KeyId(1), key(3, None), Duration::DAY, now);
        assert_eq!(unknown, Err(KeyRejection::Unknown));
    }

    #[test]
    fn revoking_a_key_ends_it_unless_it_already_ended() {
        let now = secs(1_000);
        for (ends_at, expected) in [(None, 1_000), (Some(1_030), 1_000), (Some(1_000), 1_000), (Some(7), 7)] {
            let revoked = agent(vec![key(1, ends_at.map(secs))])
                .with_revoked_key(KeyId(1), now)
                .unwrap();
            let status = revoked.find_key(KeyId(1)).unwrap().status(now);
            assert_eq!(
                status,
                KeyStatus::Ended {
                    ended_at: secs(expected)
                }
            );
        }
        assert_eq!(
            agent(vec![]).with_revoked_key(KeyId(1), now),
            Err(KeyRejection::Unknown)
        );
    }

    #[test]
    fn an_agent_accepts_a_key_until_it_expires() {
        let agent = agent(vec![key(1, None), key(2, Some(secs(1_000)))]);
        for (id, at, taken) in [
            (1, 1_000, true),
            (2, 999, true),
            (2, 1_000, false),
            (2, 1_001, false),
            (3, 0, false),
        ] {
            assert_eq!(agent.accepts_key(KeyId(id), secs(at)), taken, "{id} {at}");
        }
        let status = |index: usize, at| agent.keys[index].status(secs(at)).name();
        assert_eq!(
            [status(0, 0), status(1, 999), status(1, 1_000)],
            ["active", "ending", "ended"]
        );
    }

    #[test]
    fn an_agent_has_at_most_twenty_active_keys() {
        let now = secs(1_000);
        let full = agent((0..20).map(|id| key(id, None)).collect());
        assert_eq!(full.clone().with_key(key(20, None), now), Err(KeyRejection::TooMany));
        let rotate = |overlap| full.clone().with_rotated_key(KeyId(3), key(20, None), overlap, now);
        assert_eq!(rotate(Duration::DAY), Err(KeyRejection::TooMany));
        assert!(rotate(Duration::from_secs_u32(0)).is_ok());
        assert_eq!(Agent::MAX_KEY_OVERLAP.secs(), 30 * 86_400);
    }

    #[test]
    fn an_eleventh_grant_and_the_rotation_of_a_grant_are_rejected() {
        let now = secs(1_000);
        let grant = |id, ends_at| AgentKey {
            credential: KeyCredential::Grant(ClientGrant {
                verification_key: VerificationKey::from_bytes([7; 32]),
                client: ClientName::parse("client").unwrap(),
                origin: GrantOrigin::device(),
            }),
            ..key(id, ends_at)
        };
        let full = agent((0..10).map(|id| grant(id, None)).collect());
        assert_eq!(
            full.clone().with_key(grant(10, None), now),
            Err(KeyRejection::TooManyGrants)
        );
        assert!(full.clone().with_key(key(10, None), now).is_ok());
        let rotated = full
            .clone()
            .with_rotated_key(KeyId(3), key(10, None), Duration::DAY, now);
        assert_eq!(rotated, Err(KeyRejection::IsGrant));
        let revoked = full.with_revoked_key(KeyId(3), now).unwrap();
        assert!(revoked.with_key(grant(10, None), now).is_ok());
    }

    #[test]
    fn a_key_ends_its_open_runs_and_no_other_key() {
        let run = |key: AgentKey, opener| AgentKey {
            opened_by: Some(KeyId(opener)),
            ..key
        };
        let now = secs(1_000);
        let keys = vec![
            key(1, None),
            run(expiring(2, 5_000, None), 1),
            run(expiring(3, 1_030, None), 1),
            run(expiring(4, 900, None), 1),
            run(key(5, Some(secs(950))), 1),
            run(expiring(6, 5_000, None), 9),
        ];
        let ends = |agent: Agent| -> Vec<Option<u64>> {
            agent.keys.iter().map(|key| key.ends_at.map(Timestamp::secs)).collect()
        };
        let revoked = agent(keys.clone()).with_revoked_key(KeyId(1), now).unwrap();
        let expected = [Some(1_000), Some(1_000), Some(1_000), None, Some(950), None];
        assert_eq!(ends(revoked), expected);
        let overlap = Duration::from_secs_u32(60);
        let rotate = |id| agent(keys.clone()).with_rotated_key(KeyId(id), key(7, None), overlap, now);
        let expected = [Some(1_060), Some(1_060), None, None, Some(950), None, None];
        assert_eq!(ends(rotate(1).unwrap()), expected);
        assert_eq!(rotate(2), Err(KeyRejection::IsRun));
    }

    #[test]
    fn ended_runs_displace_no_ended_key_of_the_owner() {
        let ended = |id| key(id, Some(secs(900 + id)));
        let mut full: Vec<AgentKey> = (0..50).map(ended).collect();
        full[7].opened_by = Some(KeyId(0));
        let added = agent(full).with_key(key(99, None), secs(1_000)).unwrap();
        assert!(added.find_key(KeyId(7)).is_none() && added.find_key(KeyId(0)).is_some());
        assert_eq!(added.keys.len(), Agent::MAX_KEPT_KEYS);
    }

    #[test]
    fn ended_agent_keys_are_kept_for_thirty_days() {
        let end = secs(1_000);
        let kept = |now: Timestamp| {
            let agent = agent(vec![key(1, Some(end))]).with_key(key(2, None), now);
            agent.unwrap().keys.len() == 2
        };
        let last = end.after(Duration::from_secs_u32(30 * 86_400));
        assert!(kept(Timestamp::from_micros(last.micros() - 1).unwrap()) && !kept(last));
    }

    #[test]
    fn adding_an_existing_agent_key_changes_nothing() {
        let now = secs(1_000);
        let full = agent((0..20).map(|id| key(id, None)).collect());
        assert_eq!(full.clone().with_key(key(7, None), now), Ok(full.clone()));
        let rotated = full.with_rotated_key(KeyId(3), key(20, None), Duration::from_secs_u32(0), now);
        let rotated = rotated.unwrap();
        let again = rotated
            .clone()
            .with_rotated_key(KeyId(3), key(20, None), Duration::from_secs_u32(0), now);
        assert_eq!(again, Ok(rotated));
    }

    #[test]
    fn a_secret_digest_has_exactly_one_hexadecimal_form() {
        let digest = SecretDigest::from_secret("secret");
        let text = digest.to_hex();
        assert!(SecretDigest::from_hex(&text) == Some(digest));
        assert_eq!(format!("{digest:?}"), "SecretDigest(..)");
        for other in ["", "ab", &format!("0x{text}")] {
            assert!(SecretDigest::from_hex(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_key_id_has_exactly_one_text_form() {
        assert_eq!(KeyId::parse("00000000000000ff"), Some(KeyId(255)));
        for text in [
            "",
            "ff",
            "00000000000000FF",
            "+0000000000000ff",
            "000000000000000ff",
            "00000000000000fg",
        ] {
            assert_eq!(KeyId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_agent_name_is_one_line_of_text() {
        let long = "\u{e9}".repeat(100);
        for (text, expected) in [
            (" a b ", Some("a b")),
            (&long, Some(&long)),
            ("\u{1f4b8}", Some("\u{1f4b8}")),
        ] {
            assert_eq!(AgentName::parse(text).as_ref().map(AgentName::as_str), expected);
        }
        for text in ["", " \t", "a\nb", "a\u{7f}", &"a".repeat(101)] {
            assert_eq!(AgentName::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn adding_an_agent_key_removes_only_ended_keys(
            ends in prop::collection::vec(prop::option::of(0_u64..8_000_000), 0..60),
            now in 3_000_000_u64..5_000_000,
        ) {
            let now = secs(now);
            let keys = ends.iter().zip(0..).map(|(end, id)| key(id, end.map(secs))).collect();
            let before = agent(keys);
            let working = |agent: &Agent| -> Vec<AgentKey> {
                agent.keys.iter().filter(|key| !key.has_ended(now)).cloned().collect()
            };
            let mut expected = working(&before);
            let Ok(after) = before.with_key(key(99, None), now) else {
                prop_assert!(expected.len() >= Agent::MAX_KEYS);
                return Ok(());
            };
            expected.push(key(99, None));
            prop_assert_eq!(working(&after), expected);
            prop_assert!(after.keys.len() <= Agent::MAX_KEPT_KEYS);
            let cut = now.before(Agent::ENDED_KEY_RETENTION);
            prop_assert!(after.keys.iter().all(|key| key.ends_at.is_none_or(|end| end > cut)));
        }
    }
}
