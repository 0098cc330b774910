//! Ownership of agents. Only the checks in this module create an [`OwnedAgent`], so a user can't access other users'
//! agents.
//!
//! The module also stores updates of agents, conditional on the version of the agent's record.

use crate::caller::Caller;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Acting, Agent, AgentId, AgentStatus, Approval, ApprovalResolution, ApprovalStatus, AuditChanges, EditReason,
    Error, ErrorKind, Labels, Result, Timestamp,
};
use purser_store::{Backoff, GrantResult};

/// An agent that belonged to the caller when the agent was read.
#[derive(Clone, Debug)]
pub(crate) struct OwnedAgent {
    agent: Agent,
    /// The caller with the time of the sign-in, because a widening update requires a recent sign-in.
    caller: Caller,
}

impl OwnedAgent {
    pub(crate) const fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(crate) const fn signed_in_at(&self) -> Timestamp {
        self.caller.signed_in_at
    }

    pub(crate) const fn acting(&self) -> &Acting {
        &self.caller.acting
    }

    /// Sets the reason for the next update, for the audit log.
    #[must_use]
    pub(crate) fn with_reason(mut self, reason: Option<EditReason>) -> Self {
        self.caller.acting.source.reason = reason;
        self
    }

    /// Returns the agent as the user's own agent, or `None` if another user owns the agent.
    pub(crate) fn new(user: &Caller, agent: Agent) -> Option<Self> {
        let is_own = agent.owner == user.id.as_str();
        is_own.then(|| Self {
            agent,
            caller: user.clone(),
        })
    }
}

/// An agent's name and labels, for a user who owned the agent at the time of a decision or settlement.
#[derive(Clone, Debug)]
pub(crate) struct KnownAgent {
    pub(crate) id: AgentId,
    pub(crate) name: String,
    pub(crate) labels: Labels,
}

impl KnownAgent {
    /// Returns the agent's name and labels if the user owned the agent after this number of ownership transfers.
    /// Otherwise, returns `not_found`.
    pub(crate) fn for_owner_after_transfers(user: &Caller, agent: &Agent, transfers: u32) -> Result<Self> {
        let then = agent.owner_after_transfers(transfers);
        if then.owner != user.id.as_str() {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(Self {
            id: agent.id,
            name: then.name.to_owned(),
            labels: then.labels.clone(),
        })
    }
}

/// An invalid id in a path is `not_found`.
pub(crate) fn require_id<T>(id: Option<T>) -> Result<T> {
    id.ok_or_else(|| ErrorKind::NotFound.into())
}

impl People {
    /// Returns `not_found` for an unknown agent and for another user's agent.
    pub(crate) async fn read_own_agent(&self, user: &Caller, id: AgentId) -> Result<OwnedAgent> {
        let agent = self.ledger.read_agent_by_id(id).await?;
        let owned = agent.and_then(|agent| OwnedAgent::new(user, agent));
        owned.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Callers must also check each decision with [`KnownAgent::for_owner_after_transfers`].
    pub(crate) async fn find_current_or_former_agent(&self, user: &Caller, id: AgentId) -> Result<Agent> {
        let agent = self.ledger.read_agent_by_id(id).await?.ok_or(ErrorKind::NotFound)?;
        let owners = agent.former_owners.iter().map(|former| &former.owner);
        if !owners.chain([&agent.owner]).any(|owner| owner == user.id.as_str()) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(agent)
    }

    /// Stores an update of the agent with an audit row. A widening update requires a recent sign-in.
    ///
    /// If `if_match` accepts any version, the update is retried after a concurrent update, so a freeze always
    /// takes effect.
    ///
    /// A repeated update still updates the agent's windows, because an earlier attempt may have failed before that.
    /// Windows reject decisions that are based on an earlier record.
    pub(crate) async fn update_agent_record(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        action: Act,
        change: impl Fn(Agent) -> Result<Agent>,
    ) -> Result<OwnedAgent> {
        let audit_action = action.on_agent(owned.agent.id);
        let acting = owned.acting().clone();
        self.audit_rejection(
            &acting,
            &audit_action,
            self.store_agent_update(owned, if_match, &audit_action, None, change),
        )
        .await
    }

    /// Updates an agent like [`Self::update_agent_record`], but writes no audit row if the update is rejected. The
    /// same transaction stores the decision on the approval `approved`.
    pub(crate) async fn store_agent_update(
        &self,
        owned: OwnedAgent,
        if_match: Precondition,
        action: &Act,
        approved: Option<(&Approval, &ApprovalResolution)>,
        change: impl Fn(Agent) -> Result<Agent>,
    ) -> Result<OwnedAgent> {
        let OwnedAgent { mut agent, caller } = owned;
        let mut backoff = Backoff::new();
        loop {
            if_match.check_version(agent.version)?;
            let mut updated_agent = change(agent.clone())?.without_unlimited_runs(self.now());
            if updated_agent == agent {
                if may_deny_previously_allowed_payments(&agent) {
                    self.ledger.fence_windows(&agent).await?;
                }
                return Ok(OwnedAgent { agent, caller });
            }
            let now = self.now();
            require_valid_exceptions(&updated_agent, &agent, now)?;
            // Budgets of ended grants and runs are left out, because removing such a budget widens no limit.
            if updated_agent.widens(&agent.clone().without_budgets_of_ended_keys(now)) {
                self.limits.require_recent_sign_in(caller.signed_in_at, now)?;
            }
            // A budget that this update adds stays until the next update, so that the response can show it.
            let kept = updated_agent.clone().without_budgets_of_ended_keys(now).rules;
            updated_agent
                .rules
                .retain(|rule| kept.contains(rule) || !agent.rules.contains(rule));
            let next = Agent {
                version: agent.version.saturating_add(1),
                ..updated_agent
            };
            let [before, after] = [&agent, &next].map(|agent| Some(agent.audit_log_fields()));
            let mut audit_changes = AuditChanges::between(before, after);
            if approved.is_some() {
                let status = |status: ApprovalStatus| ("status".to_owned(), status.name().into());
                audit_changes.before.extend([status(ApprovalStatus::Pending)]);
                audit_changes.after.extend([status(ApprovalStatus::Approved)]);
            }
            let entry = self.audit_entry(&caller.acting, action, audit_changes)?;
            match (
                self.ledger.put_agent_and_approve(&next, approved, &entry).await?,
                approved,
            ) {
                (GrantResult::Done, _) => return Ok(OwnedAgent { agent: next, caller }),
                (GrantResult::NotPending, Some((request, resolution))) => {
                    // The approval is also not pending if an attempt of this call was stored but the response
                    // was lost. Then the record has the rules that only this call adds.
                    let newer = self.ledger.read_agent_by_id(next.id).await?;
                    let is_stored = |newer: &Agent| {
                        let mut added = next.rules.iter().filter(|rule| !agent.rules.contains(rule));
                        newer.owner == agent.owner && added.all(|rule| newer.rules.contains(rule))
                    };
                    if let Some(agent) = newer.filter(is_stored) {
                        return Ok(OwnedAgent { agent, caller });
                    }
                    let (approval, stored) = (request.id, self.ledger.read_approval_by_id(request.id).await?);
                    let status = stored.ok_or(ErrorKind::NotFound)?.status(resolution.at);
                    return Err(ErrorKind::ApprovalNotPending { approval, status }.into());
                }
                (GrantResult::Conflict | GrantResult::NotPending, _) => backoff.wait_for_retry().await?,
            }
            let newer = self.ledger.read_agent_by_id(next.id).await?;
            // An agent that has a new owner is `not_found`.
            let newer = newer.filter(|newer| newer.owner == agent.owner);
            agent = newer.ok_or(ErrorKind::NotFound)?;
        }
    }
}

/// Rejects invalid `approval_exception` rules that `updated_agent` adds to `agent`. Updates, previews and shadow
/// policies make this check.
pub(crate) fn require_valid_exceptions(updated_agent: &Agent, agent: &Agent, now: Timestamp) -> Result<()> {
    let errors = updated_agent.added_exception_errors(agent, now);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid(errors))
    }
}

/// Returns whether this version of the agent may deny payments that an earlier version allowed.
fn may_deny_previously_allowed_payments(agent: &Agent) -> bool {
    agent.status == AgentStatus::Frozen || !agent.rules.is_empty() || agent.keys.iter().any(|key| key.ends_at.is_some())
}
