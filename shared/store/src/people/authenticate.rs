//! How an agent is authenticated: its call is counted while its record is read, its key is verified against that
//! record, as is what the key may do, and the use of the key is counted and recorded.
//!
//! Always true: a key is verified at a time after its agent was read, so one that ended meanwhile is rejected; an
//! unknown agent costs the same comparison as a wrong secret; only who has a valid key is told what it may not do; a 429
//! takes precedence over any result of the read, and one from memory over the read itself.

use crate::{people::key_limit::KeyLimit, people::key_use::KeyUses, people::throttle::Throttle};
use purser_domain::{Agent, ErrorKind, KeyId, KeyScope, KeyUse, PresentedKey, Result, Timestamp};
use std::fmt;

/// Authenticates agents by their keys.
#[derive(Clone, Debug)]
pub struct Authenticator {
    /// Where calls are counted.
    pub throttle: Throttle,
    /// Where the calls of each key are counted.
    pub key_limit: KeyLimit,
    /// Where the use of keys is recorded.
    pub key_uses: KeyUses,
}

/// A caller with a valid key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated<T> {
    /// The agent's record that the key was verified against.
    pub agent: Agent,
    /// The key that it called with.
    pub key: KeyId,
    /// What else was read in the same round trip.
    pub read: T,
}

impl<T> Authenticated<T> {
    /// What the caller's key may do.
    pub fn scope(&self) -> Result<&KeyScope> {
        scope_of(&self.agent, self.key)
    }
}

fn scope_of(agent: &Agent, key: KeyId) -> Result<&KeyScope> {
    let key = agent.key(key).ok_or(ErrorKind::InvalidAgentKey)?;
    Ok(&key.scope)
}

impl Authenticator {
    /// The agent of the presented key, which must be allowed this use, and what `read` returned besides its record;
    /// `now` is the clock.
    ///
    /// `read` must not write, since it runs before the throttle's result is known. Nor may the work it does reveal
    /// whether the agent exists, unless the key is that agent's own.
    pub async fn authenticate<T>(
        &self,
        scope: impl fmt::Display,
        presented: Result<PresentedKey>,
        key_use: KeyUse,
        now: impl Fn() -> Timestamp,
        read: impl AsyncFnOnce(&PresentedKey) -> Result<(Option<Agent>, T)>,
    ) -> Result<Authenticated<T>> {
        let began = now();
        if let Ok(presented) = &presented {
            self.key_limit.check(presented, began)?;
        }
        let judged = judged(presented, key_use, now, read);
        let caller = self.throttle.limit(scope, began, judged).await?;
        self.key_limit.count(&caller.agent, caller.key, began);
        self.key_uses.note(caller.agent.id, caller.key, began);
        Ok(caller)
    }
}

async fn judged<T>(
    presented: Result<PresentedKey>,
    key_use: KeyUse,
    now: impl Fn() -> Timestamp,
    read: impl AsyncFnOnce(&PresentedKey) -> Result<(Option<Agent>, T)>,
) -> Result<Authenticated<T>> {
    let presented = presented?;
    let (agent, read) = read(&presented).await?;
    let now = now();
    // Compared even if there is no agent.
    let is_valid = presented.is_valid_for(agent.as_ref(), now);
    let agent = agent.filter(|_| is_valid).ok_or(ErrorKind::InvalidAgentKey)?;
    let key = presented.key;
    if let Err(error) = scope_of(&agent, key)?.check_use(key_use) {
        // A key that turns up where it should not be may be stolen.
        tracing::warn!(agent.id = %agent.id, key.id = %key, %error, "key.not_allowed");
        return Err(error);
    }
    Ok(Authenticated { agent, key, read })
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{Address, AgentId, AgentStatus, NewKey, Wallet};
    use std::cell::Cell;
    use uuid::Uuid;

    /// The call arrives, the key is revoked, and then the agent is read: the completed revocation must take effect.
    #[tokio::test]
    async fn a_key_that_ends_while_its_agent_is_read_does_not_get_in() {
        let id = AgentId::from_uuid(Uuid::from_u128(1));
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        for (read_at, gets_in) in [(999, true), (1_000, false)] {
            let new = NewKey::from_random(id, [7; 40], Timestamp::EPOCH);
            let mut record = new.record;
            record.ends_at = Some(at(1_000));
            let agent = Agent {
                id,
                name: "a".to_owned(),
                owner: "o".to_owned(),
                created_at: Timestamp::EPOCH,
                status: AgentStatus::Active,
                wallet: Wallet {
                    key: purser_domain::WalletKey::Seed { index: 0 },
                    address: Address::ZERO,
                    attestation: purser_domain::WalletAttestation::from_bytes([0; 65]),
                },
                keys: vec![record],
                rules: Vec::new(),
                starting_set: None,
                version: 2,
            };
            let presented = PresentedKey::from_header(&format!("Bearer {}", new.text)).ok().unwrap();
            let clock = Cell::new(at(900));
            let read = async |_: &PresentedKey| {
                clock.set(at(read_at));
                Ok((Some(agent), ()))
            };
            let anywhere = KeyUse {
                from: None,
                needs: None,
            };
            let judged = judged(Ok(presented), anywhere, || clock.get(), read).await;
            assert_eq!(judged.is_ok(), gets_in, "read at {read_at}");
        }
    }
}
