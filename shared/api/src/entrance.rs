//! How an agent gets in: what a request says of its sender, and the way from there to a known agent.

use crate::{Clock, ThrottleScope, admit, presented_key};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use purser_domain::{Agent, ErrorKind, KeyId, PresentedKey, Result};
use std::convert::Infallible;
use std::future::Future;

/// What a request says of its sender: nothing of it is checked yet.
pub struct Caller {
    key: Result<PresentedKey>,
    scope: ThrottleScope,
}

/// Always succeeds: a request without a usable key is counted before it is refused.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            key: presented_key(&parts.headers),
            scope: ThrottleScope::of(&parts.extensions),
        })
    }
}

impl Caller {
    /// The key that it presents, not yet checked against anything.
    pub const fn presented_key(&self) -> Option<&PresentedKey> {
        match &self.key {
            Ok(key) => Some(key),
            Err(_) => None,
        }
    }

    /// Whose requests the throttle counts this one with.
    pub const fn scope(&self) -> ThrottleScope {
        self.scope
    }

    /// The agent whose key this is, which key it is, and what was read in the same round trip.
    ///
    /// `hit` counts the request and says how many seconds to wait, if any; `read` reads the agent's record and whatever
    /// else the handler needs, and must not write, since it runs beside both checks. Nor may its work tell whether there is
    /// such an agent, unless the key is its own.
    ///
    /// The key is judged at the time when its agent has been read: one that was ended in between has ended.
    pub async fn enter<T>(
        self,
        hit: impl Future<Output = Result<Option<u64>>>,
        clock: &Clock,
        read: impl AsyncFnOnce(&PresentedKey) -> Result<(Option<Agent>, T)>,
    ) -> Result<(Agent, KeyId, T)> {
        let known = async {
            let key = self.key?;
            let (agent, rest) = read(&key).await?;
            let now = clock.now();
            match agent {
                Some(agent) if key.is_valid_for(Some(&agent), now) => Ok((agent, key.key, rest)),
                Some(_) => Err(ErrorKind::InvalidAgentKey.into()),
                None => {
                    // An unknown agent costs the comparison all the same.
                    key.is_valid_for(None, now);
                    Err(ErrorKind::InvalidAgentKey.into())
                }
            }
        };
        admit(hit, known).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{Address, AgentId, AgentStatus, NewKey, Timestamp, Wallet};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
    use uuid::Uuid;

    /// The call comes, the key is revoked, and then its agent is read: what the person was answered has to hold.
    #[tokio::test]
    async fn a_key_that_ends_while_its_agent_is_read_does_not_get_in() {
        let id = AgentId::from_uuid(Uuid::from_u128(1));
        let ends = Timestamp::from_micros(1_000).unwrap();
        for (read_at, gets_in) in [(999, true), (1_000, false)] {
            let new = NewKey::from_random(id, [7; 40], Timestamp::EPOCH);
            let mut record = new.record;
            record.ends_at = Some(ends);
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
            let caller = Caller {
                key: Ok(PresentedKey::from_header(&format!("Bearer {}", new.text)).ok().unwrap()),
                scope: ThrottleScope::Unknown,
            };
            let micros = Arc::new(AtomicI64::new(900));
            let clock = Clock::still(Arc::clone(&micros));
            let read = async |_: &PresentedKey| {
                micros.store(read_at, SeqCst);
                Ok((Some(agent), ()))
            };
            let entered = caller.enter(async { Ok(None) }, &clock, read).await;
            assert_eq!(entered.is_ok(), gets_in, "read at {read_at}");
        }
    }
}
