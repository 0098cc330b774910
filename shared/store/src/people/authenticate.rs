//! How an agent gets in: its call is counted while its record is read, its key is judged by that record, and the use of the
//! key is noted.
//!
//! Always true: a key is judged at a time when its agent has been read, so one that was ended in between has ended; an
//! unknown agent costs the same comparison as a wrong secret; and the count's "no" wins over whatever was read.

use crate::{people::key_use::KeyUses, people::throttle::Throttle};
use purser_domain::{Agent, ErrorKind, KeyId, PresentedKey, Result, Timestamp};
use std::fmt;

/// Lets agents in, each by a key of its own.
#[derive(Clone, Debug)]
pub struct Authenticator {
    /// Where calls are counted.
    pub throttle: Throttle,
    /// Where the use of keys is noted.
    pub key_uses: KeyUses,
}

/// A caller whose key was found good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated<T> {
    /// The agent, as it was when its key was judged.
    pub agent: Agent,
    /// The key that it called with.
    pub key: KeyId,
    /// What else was read in the same round trip.
    pub read: T,
}

impl Authenticator {
    /// The agent whose key is presented, and what `read` has read beside its record; `now` tells the time.
    ///
    /// `read` must not write, since it runs while the request is counted, with those of its scope. Nor may its work tell
    /// whether there is such an agent, unless the key is its own.
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
    // The comparison comes first, whether there is an agent or not.
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

    /// The call comes, the key is revoked, and then its agent is read: what the person was answered has to hold.
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
