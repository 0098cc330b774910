//! Operations on agent keys.
//!
//! Only the response that creates a key contains the secret. The record contains a digest.

use crate::agents::owned::OwnedAgent;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Agent, AgentKey, AuditKind, Duration, Error, ErrorKind, KeyId, KeyRejection, KeyScope, KeyStatus, NewKey,
    Result, Timestamp, ValidationError,
};
use tracing::{info, warn};

/// A key with its status and last use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedKey {
    pub(crate) key: AgentKey,
    pub(crate) status: KeyStatus,
    /// To the minute; `None` if the time is unknown.
    pub(crate) last_used_at: Option<Timestamp>,
}

/// A new key. It does not implement `Debug`, because `text` is secret.
pub(crate) struct IssuedKey {
    pub(crate) agent: OwnedAgent,
    pub(crate) key: AgentKey,
    /// The key in the form `gak_pub_…:gak_sec_…`, which the user gives to the agent.
    pub(crate) text: String,
}

pub(crate) struct Rotation {
    pub(crate) issued: IssuedKey,
    /// The old key, with the time at which it ends.
    pub(crate) replaced: AgentKey,
}

impl People {
    /// Lists the active keys and the recently ended keys, newest first.
    pub(crate) async fn list_keys(&self, owned: &OwnedAgent) -> Result<Vec<ListedKey>> {
        let (agent, now) = (owned.agent(), self.now());
        let ids: Vec<KeyId> = agent.keys.iter().map(|key| key.id).collect();
        let used = self
            .authenticator
            .key_uses
            .read_last_uses(agent.id, &ids)
            .await
            .unwrap_or_else(|error| {
                warn!(cause = %error, "key_uses.unavailable");
                std::collections::HashMap::new()
            });
        let listed = agent.keys.iter().rev().map(|key| ListedKey {
            key: key.clone(),
            status: key.status(now),
            last_used_at: used.get(&key.id).copied(),
        });
        Ok(listed.collect())
    }

    pub(crate) async fn create_key(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        scope: KeyScope,
    ) -> Result<IssuedKey> {
        let now = self.now();
        let mut new = NewKey::from_random(owned.agent().id, self.entropy.random_bytes()?, now);
        new.record.scope = scope;
        let add = |agent: Agent| agent.with_key(new.record.clone(), now).map_err(key_rejection_error);
        let action = Act::new(AuditKind::KeyCreated).with_object(&new.record.id);
        let agent = self.update_agent_record(owned, if_match, action, add).await?;
        info!(agent.id = %agent.agent().id, key.id = %new.record.id, "key.created");
        issued_key(agent, new)
    }

    /// Replaces a key with a new key of the same scope. The old key remains valid for `overlap`.
    pub(crate) async fn rotate_key(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        old: KeyId,
        overlap: Duration,
    ) -> Result<Rotation> {
        let now = self.now();
        let new = NewKey::from_random(owned.agent().id, self.entropy.random_bytes()?, now);
        let rotate = |agent: Agent| {
            let rotated = agent.with_rotated_key(old, new.record.clone(), overlap, now);
            rotated.map_err(key_rejection_error)
        };
        let action = Act::new(AuditKind::KeyRotated).with_object(&old);
        let agent = self.update_agent_record(owned, if_match, action, rotate).await?;
        info!(agent.id = %agent.agent().id, key.id = %new.record.id, "key.created");
        let replaced = agent.agent().find_key(old).cloned().ok_or(ErrorKind::NotFound)?;
        Ok(Rotation {
            issued: issued_key(agent, new)?,
            replaced,
        })
    }

    /// Ends a key immediately and permanently. A key that has already ended is not changed.
    pub(crate) async fn revoke_key(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        id: KeyId,
    ) -> Result<(OwnedAgent, AgentKey)> {
        let now = self.now();
        let revoke = |agent: Agent| agent.with_revoked_key(id, now).map_err(key_rejection_error);
        let action = Act::new(AuditKind::KeyRevoked).with_object(&id);
        let agent = self.update_agent_record(owned, if_match, action, revoke).await?;
        let key = agent.agent().find_key(id).cloned().ok_or(ErrorKind::NotFound)?;
        Ok((agent, key))
    }
}

/// Returns the stored record, not `new.record`, because a rotation gives the new key the old key's scope.
pub(crate) fn issued_key(agent: OwnedAgent, new: NewKey) -> Result<IssuedKey> {
    let key = agent
        .agent()
        .find_key(new.record.id)
        .cloned()
        .ok_or(ErrorKind::NotFound)?;
    Ok(IssuedKey {
        agent,
        key,
        text: new.text,
    })
}

pub(crate) fn key_rejection_error(rejection: KeyRejection) -> Error {
    let too_many = |kind, max| format!("an agent has at most {max} {kind} that work; revoke one first");
    let (path, message) = match rejection {
        KeyRejection::Unknown => return ErrorKind::NotFound.into(),
        KeyRejection::Ended => ("/keyId", "has ended; create a new key instead".to_owned()),
        KeyRejection::IsGrant => (
            "/keyId",
            "is a grant, which has no secret to replace; revoke it instead".to_owned(),
        ),
        KeyRejection::IsRun => (
            "/keyId",
            "is a run's key, which has its own budget; revoke it instead".to_owned(),
        ),
        KeyRejection::TooMany => ("", too_many("keys", Agent::MAX_KEYS)),
        KeyRejection::TooManyGrants => ("", too_many("grants", Agent::MAX_GRANTS)),
        KeyRejection::TooManyRuns => {
            let message = format!("an agent has at most {} open runs; close one first", Agent::MAX_RUNS);
            ("", message)
        }
    };
    Error::invalid(vec![ValidationError::at_path(path, message)])
}
