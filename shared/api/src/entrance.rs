//! How an agent gets in: what a request says of its sender, and the way from there to a known agent.

use crate::{ThrottleScope, admit, presented_key};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use purser_domain::{Agent, ErrorKind, KeyId, PresentedKey, Result, Timestamp};
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
    /// Whose requests the throttle counts this one with.
    pub const fn scope(&self) -> ThrottleScope {
        self.scope
    }

    /// The agent whose key this is, which key it is, and what was read in the same round trip.
    ///
    /// `hit` counts the request and says how many seconds to wait, if any; `read` reads the agent's record and whatever
    /// else the handler needs, and must not write, since it runs beside both checks. Nor may its work tell whether there is
    /// such an agent, unless the key is its own.
    pub async fn enter<T>(
        self,
        hit: impl Future<Output = Result<Option<u64>>>,
        now: Timestamp,
        read: impl AsyncFnOnce(&PresentedKey) -> Result<(Option<Agent>, T)>,
    ) -> Result<(Agent, KeyId, T)> {
        let known = async {
            let key = self.key?;
            let (agent, rest) = read(&key).await?;
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
