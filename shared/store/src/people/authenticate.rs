//! How an agent is authenticated: its call is counted while its record is read, its key is verified against that
//! record, and the use of the key is recorded.
//!
//! Always true: a key is verified at a time after its agent was read, so one that ended meanwhile is rejected; an
//! unknown agent costs the same comparison as a wrong secret; a 429 takes precedence over any result of the read.

use crate::{people::key_use::KeyUses, people::throttle::Throttle};
use purser_domain::{Agent, ErrorKind, KeyId, PresentedKey, Result, Timestamp};
use std::fmt;

/// Authenticates agents by their keys.
#[derive(Clone, Debug)]
pub struct Authenticator {
    /// Where calls are counted.
    pub throttle: Throttle,
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

impl Authenticator {
    /// The agent of the presented key, and what `read` returned besides its record; `now` is the clock.
    ///
    /// `read` must not write, since it runs before the throttle's result is known. Nor may the work it does reveal
    /// whether the agent exists, unless the key is that agent's own.
    pub async fn authenticate<T>(
        &self,
        scope: impl fmt::Display,
        presented: Result<PresentedKey>,
        now: impl Fn() -> Timestamp,
        read: impl AsyncFnOnce(&PresentedKey) -> Result<(Option<Agent>, T)>,
    ) -> Result<Authenticated<T>> {
        let began = now();
        let judged = judged(presented, now, read);
        let caller = self.throttle.limit(scope, began, judged).await?;
        self.key_uses.note(caller.agent.id, caller.key, began);
        Ok(caller)
    }
}

async fn judged<T>(
    presented: Result<PresentedKey>,
    now: impl Fn() -> Timestamp,
    read: impl AsyncFnOnce(&PresentedKey) -> Result<(Option<Agent>, T)>,
) -> Result<Authenticated<T>> {
    let presented = presented?;
    let (agent, read) = read(&presented).await?;
    let now = now();
    // Compared even if there is no agent.
    let is_valid = presented.is_valid_for(agent.as_ref(), now);
    match agent.filter(|_| is_valid) {
        Some(agent) => Ok(Authenticated {
            agent,
            key: presented.key,
            read,
        }),
        None => Err(ErrorKind::InvalidAgentKey.into()),
    }
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
                    index: 0,
                    address: Address::ZERO,
                },
                keys: vec![record],
                rules: Vec::new(),
                version: 2,
            };
            let presented = PresentedKey::from_header(&format!("Bearer {}", new.text)).ok().unwrap();
            let clock = Cell::new(at(900));
            let read = async |_: &PresentedKey| {
                clock.set(at(read_at));
                Ok((Some(agent), ()))
            };
            let judged = judged(Ok(presented), || clock.get(), read).await;
            assert_eq!(judged.is_ok(), gets_in, "read at {read_at}");
        }
    }
}
