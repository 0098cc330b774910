//! Operations with which an agent opens and closes runs.

use crate::agents::owned::{OwnedAgent, require_id};
use crate::caller::Caller;
use crate::keys::operations::{IssuedKey, issued_key, key_rejection_error};
use crate::state::People;
use purser_api::{AgentCredentials, Precondition};
use purser_domain::{
    Act, Actor, Agent, AgentId, AgentKey, Amount, AuditKind, BudgetLimit, ErrorKind, Freeze, KeyId, KeyScope, NewKey,
    Permission, RequestSource, Result, RuleId, RuleKind, RuleWindow, UnpaidDenial,
};
use purser_store::DecisionKeys;
use tracing::info;

/// The number of runs that an agent may open per minute. Each run changes the agent's version, which the owner's
/// updates name.
pub(crate) const RUNS_PER_MINUTE: u32 = 20;

/// An agent whose key may pay.
pub(crate) struct PayingAgent {
    pub(crate) owned: OwnedAgent,
    pub(crate) key: KeyId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedRun {
    /// The maximum amount of all payments with the run's key.
    pub(crate) limit: Amount,
    /// The services and the expiry; `None` in `services` for the services of the opener's key.
    pub(crate) scope: KeyScope,
}

impl People {
    /// Returns `not_found` if the path names another agent.
    pub(crate) async fn authenticate_paying_agent(
        &self,
        credentials: AgentCredentials,
        source: RequestSource,
        agent_in_path: &str,
    ) -> Result<PayingAgent> {
        let keys = DecisionKeys::default();
        let caller = self
            .authenticate_agent_and_read_inputs(credentials, Permission::Pay, &keys)
            .await?;
        require_id(AgentId::parse(agent_in_path).filter(|id| *id == caller.agent.id))?;
        let key = caller.key;
        let actor = |owner| Actor::Agent { owner, key };
        let acting = Caller::for_actor_of_owner(&caller.agent.owner, actor, source)?;
        let owned = OwnedAgent::new(&acting, caller.agent).ok_or(ErrorKind::NotFound)?;
        Ok(PayingAgent { owned, key })
    }

    /// Adds a key with the narrowed scope of the caller's key, and a lifetime budget for the new key. Returns the
    /// budget's id.
    pub(crate) async fn open_run(&self, caller: PayingAgent, run: &RequestedRun) -> Result<(IssuedKey, RuleId)> {
        let (agent, now) = (caller.owned.agent().id, self.now());
        let read = self.ledger.read_effective_freezes();
        let freezes = self
            .run_openings
            .run_limited_by(format!("runs {agent}"), now, read)
            .await?;
        let operator_freeze = freezes.widest_for_agent(caller.owned.agent());
        let mut new = NewKey::from_random(agent, self.entropy.random_bytes()?, now);
        new.record.opened_by = Some(caller.key);
        new.record.scope = run.scope.clone();
        let rule = self.new_rule_id()?;
        let window = RuleWindow::for_run(new.record.id);
        let budget = RuleKind::BudgetLimit(BudgetLimit {
            limit: run.limit,
            window,
        });
        let open = |agent: Agent| {
            if let Some(freeze) = Freeze::effective_freeze(&agent, operator_freeze) {
                let denial = UnpaidDenial::for_freeze(freeze, self.now().since(now).millis());
                return Err(ErrorKind::UnpaidRefused(Box::new(denial)).into());
            }
            let key = agent.narrow_run_key(new.record.clone(), now)?;
            let agent = agent.without_budgets_of_ended_keys(now);
            let agent = agent.with_key(key, now).map_err(key_rejection_error)?;
            Ok(agent.with_rule(rule, budget.clone())?)
        };
        let action = Act::new(AuditKind::KeyCreated)
            .on_agent(agent)
            .with_object(&new.record.id);
        // Without audit rows for rejections, so that an agent can't flood the owner's audit log.
        let owned = self
            .store_agent_update(caller.owned, Precondition::Any, &action, None, open)
            .await?;
        info!(agent.id = %agent, key.id = %new.record.id, "key.created");
        Ok((issued_key(owned, new)?, rule))
    }

    /// Ends a run. Only the key that opened the run may end it. For other keys, the error is `not_found`.
    pub(crate) async fn close_run(&self, caller: PayingAgent, run: KeyId) -> Result<(OwnedAgent, AgentKey)> {
        let key = caller.owned.agent().find_key(run);
        require_id(key.filter(|key| key.opened_by == Some(caller.key)))?;
        self.revoke_key(caller.owned, Precondition::Any, run).await
    }
}
