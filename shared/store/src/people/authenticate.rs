//! Authentication of agents. A call is counted while the agent's record is read. Its key and the key's scope are
//! verified against that record, and the use of the key is counted and recorded.
//!
//! Invariants: a key is verified at a time after its agent was read, so a key that ended meanwhile is rejected. An
//! unknown agent costs the same comparison as a wrong secret. Only a caller with a valid key learns the limits of its
//! scope. A 429 takes precedence over any result of the read; if it is known from memory, nothing is read.

use crate::{people::key_limit::KeyLimit, people::key_use::KeyUses, people::throttle::Throttle};
use purser_domain::{Agent, ErrorKind, KeyId, KeyScope, KeyUse, PresentedKey, Result, Timestamp};
use std::fmt;

/// Authenticates agents by their keys.
#[derive(Clone, Debug)]
pub struct Authenticator {
    /// The counters of calls by source.
    pub throttle: Throttle,
    /// The counters of calls by key.
    pub key_limit: KeyLimit,
    /// The record of the last use of keys.
    pub key_uses: KeyUses,
}

/// A caller with a valid key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated<T> {
    /// The agent's record that the key was verified against.
    pub agent: Agent,
    /// The key of the call.
    pub key: KeyId,
    /// The rest of what was read in the same round trip.
    pub read: T,
}

impl<T> Authenticated<T> {
    /// The scope of the caller's key.
    pub fn scope(&self) -> Result<&KeyScope> {
        scope_of(&self.agent, self.key)
    }
}

fn scope_of(agent: &Agent, key: KeyId) -> Result<&KeyScope> {
    let key = agent.key(key).ok_or(ErrorKind::InvalidAgentKey)?;
    Ok(&key.scope)
}

impl Authenticator {
    /// Authenticates the presented key, which must be allowed this use. Returns its agent and what `read` returned
    /// besides the agent's record. `now` is the clock.
    ///
    /// `read` must not write, because it runs before the throttle's result is known. Its work must not reveal whether
    /// the agent exists, unless the key is that agent's own.
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
    // The secret is compared even if there is no agent.
    let is_valid = presented.is_valid_for(agent.as_ref(), now);
    let agent = agent.filter(|_| is_valid).ok_or(ErrorKind::InvalidAgentKey)?;
    let key = presented.key;
    if let Err(error) = scope_of(&agent, key)?.check_use(key_use) {
        // A key used outside its scope may be stolen.
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

    /// The call arrives, the key is revoked, and then the agent is read. The completed revocation must take effect.
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
