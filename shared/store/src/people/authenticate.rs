//! Authenticates agents by their keys. The three steps are before, around and after the first read of a request:
//!
//! ```text
//! let call = authenticator.begin_call(scope, key, key_use, now).await?;
//! let read = ledger.read_decision_inputs(Reader::Unverified(&call.key, now), &keys);
//! let (agent, inputs) = authenticator.run_throttled(&call, read).await?;
//! let caller = authenticator.verify_call(call, agent, inputs, clock.now())?;
//! ```
//!
//! A key is verified at a time after the agent was read, so a key that ended meanwhile is rejected. The permissions of
//! a key are checked after the secret, so only a caller with a valid key learns what the key does not permit.

use crate::{people::key_limit::KeyLimit, people::key_use::KeyUses, people::throttle::Throttle};
use purser_domain::{Agent, ErrorKind, KeyId, KeyScope, KeyUse, PresentedKey, Result, Timestamp};
use std::fmt;

/// Authenticates agents by their keys.
#[derive(Clone, Debug)]
pub struct Authenticator {
    /// The request counters per source, for example per source address.
    pub throttle: Throttle,
    /// The request counters per key.
    pub key_limit: KeyLimit,
    /// The times at which keys were last used.
    pub key_uses: KeyUses,
}

/// A caller with a valid key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatedCaller<T> {
    /// The agent's record that was used to verify the key.
    pub agent: Agent,
    /// The id of the agent key that authenticated the call.
    pub key: KeyId,
    /// The data that was read together with the agent's record, in one round trip.
    pub read: T,
}

impl<T> AuthenticatedCaller<T> {
    /// Returns the scope of the caller's key.
    pub fn key_scope(&self) -> Result<&KeyScope> {
        find_key_scope(&self.agent, self.key)
    }
}

fn find_key_scope(agent: &Agent, key: KeyId) -> Result<&KeyScope> {
    let key = agent.find_key(key).ok_or(ErrorKind::InvalidAgentKey)?;
    Ok(&key.scope)
}

/// A call whose key is well-formed but not verified. `Debug` is not implemented, because the key is a secret.
pub struct UnverifiedCall {
    /// The key in the request.
    pub key: PresentedKey,
    key_use: KeyUse,
    /// The scope under which the throttle counts the request, for example a source address.
    scope: String,
    began: Timestamp,
}

impl Authenticator {
    /// Begins a call of a scope, for example a source address. Rejects a malformed key, and a throttled key.
    pub async fn begin_call(
        &self,
        scope: impl fmt::Display,
        key: Result<PresentedKey>,
        key_use: KeyUse,
        now: Timestamp,
    ) -> Result<UnverifiedCall> {
        let scope = scope.to_string();
        let key = match key {
            Ok(key) => key,
            Err(error) => return self.throttle.run_limited_by(scope, now, async { Err(error) }).await,
        };
        self.key_limit.check_limit(&key, now)?;
        Ok(UnverifiedCall {
            key,
            key_use,
            scope,
            began: now,
        })
    }

    /// Runs `operation` while the request is counted. Returns 429 for a throttled scope.
    ///
    /// `operation` must not write. Unless the key is valid, the amount of work must not reveal whether the agent
    /// exists.
    pub async fn run_throttled<T>(
        &self,
        call: &UnverifiedCall,
        operation: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.throttle.run_limited_by(&call.scope, call.began, operation).await
    }

    /// Verifies the key and the permissions, counts the call, and records the key's use. `now` must be after the read.
    pub fn verify_call<T>(
        &self,
        call: UnverifiedCall,
        agent: Option<Agent>,
        inputs: T,
        now: Timestamp,
    ) -> Result<AuthenticatedCaller<T>> {
        let began = call.began;
        let caller = call.verify_key(agent, inputs, now)?;
        self.key_limit.count_call(&caller.agent, caller.key, began);
        self.key_uses.record_use(caller.agent.id, caller.key, began);
        Ok(caller)
    }
}

impl UnverifiedCall {
    fn verify_key<T>(self, agent: Option<Agent>, inputs: T, now: Timestamp) -> Result<AuthenticatedCaller<T>> {
        // The comparison also runs without an agent, so that the duration does not reveal whether the agent exists.
        let is_valid = self.key.is_valid_for(agent.as_ref(), now);
        let agent = agent.filter(|_| is_valid).ok_or(ErrorKind::InvalidAgentKey)?;
        let key = self.key.key;
        if let Err(error) = find_key_scope(&agent, key)?.check_use(self.key_use) {
            // This log line may be a sign that the key was stolen.
            tracing::warn!(agent.id = %agent.id, key.id = %key, %error, "key.not_allowed");
            return Err(error);
        }
        Ok(AuthenticatedCaller {
            agent,
            key,
            read: inputs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{Address, AgentId, AgentStatus, NewKey, Wallet};
    use uuid::Uuid;

    /// The key is revoked after the call begins and before the agent is read, so the call must be rejected.
    #[test]
    fn keys_revoked_during_authentication_are_rejected() {
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
                archived: false,
                labels: purser_domain::Labels::default(),
                starting_set: None,
                template: None,
                max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
                former_owners: Vec::new(),
                version: 2,
            };
            let presented = PresentedKey::from_header(&format!("Bearer {}", new.text)).ok().unwrap();
            let call = UnverifiedCall {
                key: presented,
                key_use: KeyUse {
                    from: None,
                    needs: None,
                },
                scope: "127.0.0.1".to_owned(),
                began: at(900),
            };
            let verified = call.verify_key(Some(agent), (), at(read_at));
            assert_eq!(verified.is_ok(), gets_in, "read at {read_at}");
        }
    }
}
