//! Freezes agents automatically after unusual spending (`anomaly_brake` rules), or disables the service that received most
//! of the amount.
//!
//! An automatic freeze first updates the agent's record or policy, and then stores the sum of the agent's payments in the
//! hour. The rule no longer counts the payments in the stored sum, so the user can unfreeze the agent or enable the
//! service within the hour. If the Lambda function `history` is interrupted between the two writes, Lambda repeats the
//! batch, and the repeated call makes the second write.

use crate::payees::{is_corruption_error, report_unreadable_row};
use purser_api::Clock;
use purser_domain::{
    Act, Acting, Actor, Agent, AgentId, AgentStatus, Anomaly, AuditChanges, AuditKind, AuditOutcome, AutomaticFreeze,
    EnabledService, Error, Hour, LoggedDecision, RequestSource, Result, Timestamp, UserId,
};
use purser_store::{AuditEntry, AuditLog, HistoryChange, Ledger, Owners, UpdateResult, UsageTable};
use std::collections::BTreeMap;

/// The maximum number of attempts to freeze an agent. An attempt fails if the agent's record changes concurrently.
const ATTEMPTS: u32 = 5;

/// Returns each pair of an agent and an hour in which the agent made new payments, with the time of the last payment in
/// the hour.
pub(crate) fn hours_to_check(changes: &[HistoryChange]) -> BTreeMap<(AgentId, Hour), Timestamp> {
    let mut hours = BTreeMap::new();
    for change in changes.iter().filter(|change| change.old.is_none()) {
        if let LoggedDecision::Allowed(settlement) = &change.new {
            let at = settlement.terms.id.authorized_at();
            let last = hours.entry((change.agent, Hour::containing(at))).or_insert(at);
            *last = at.max(*last);
        }
    }
    hours
}

pub(crate) struct AutomaticFreezes {
    pub(crate) ledger: Ledger,
    pub(crate) usage: UsageTable,
    pub(crate) audit: AuditLog,
    pub(crate) clock: Clock,
}

impl AutomaticFreezes {
    /// Evaluates the `anomaly_brake` rules for these hours of agents, and freezes agents. A failure for one agent does
    /// not stop the evaluation for the other agents.
    pub(crate) async fn evaluate_hours(
        &self,
        hours: &BTreeMap<(AgentId, Hour), Timestamp>,
        owners: &Owners,
    ) -> Result<()> {
        let mut judged = Ok(());
        for ((agent, _), at) in hours {
            let Some(owned) = owners.find(*agent) else {
                continue;
            };
            let Some(automatic_freeze) = owned.automatic_freeze else {
                continue;
            };
            match self
                .freeze_if_anomalous(*agent, &owned.owner, *at, automatic_freeze)
                .await
            {
                Err(error) if is_corruption_error(&error) => report_unreadable_row(&error),
                Err(error) => judged = Err(error),
                Ok(()) => {}
            }
        }
        judged
    }

    async fn freeze_if_anomalous(
        &self,
        agent: AgentId,
        owner: &UserId,
        at: Timestamp,
        automatic_freeze: AutomaticFreeze,
    ) -> Result<()> {
        match self.usage.find_anomaly(owner, agent, at, automatic_freeze).await? {
            Some(anomaly) => self.freeze(agent, owner, &anomaly).await,
            None => Ok(()),
        }
    }

    /// Freezes the agent, or disables the anomaly's service for the agent, if an active rule requires the freeze. Does
    /// nothing if the agent has a new owner, or if the agent is frozen or the service disabled and no rule did so.
    async fn freeze(&self, id: AgentId, owner: &UserId, anomaly: &Anomaly) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let Some((agent, mark)) = self.ledger.read_agent_with_update_mark(id).await? else {
                return Ok(());
            };
            let automatic_freeze = AutomaticFreeze::find_in_rules(&agent.rules);
            let is_tripped = automatic_freeze
                .is_some_and(|automatic_freeze| automatic_freeze.is_unusual_sum(anomaly.sum, anomaly.usual));
            if !is_tripped || agent.owner != owner.as_str() {
                return Ok(());
            }
            let policy = match anomaly.service.filter(|_| !agent.is_frozen()) {
                Some(service) => self.ledger.read_policy_with_update_mark(id, service).await?,
                None => None,
            };
            let audit = |policy| self.freeze_audit_entry(&agent, policy, owner, anomaly);
            // If a rule made the update already, an earlier attempt may have been killed before the attempt stored the
            // sum of the hour's payments, or the payments were decided before the update. This attempt stores the sum.
            let result = match &policy {
                _ if agent.is_frozen() && mark.was_made_by_rule() => UpdateResult::Stored,
                Some((policy, mark)) if !policy.enabled && mark.was_made_by_rule() => UpdateResult::Stored,
                _ if agent.is_frozen() => return Ok(()),
                Some((policy, _)) if !policy.enabled => return Ok(()),
                Some((policy, _)) if !anomaly.is_repeated => {
                    let audit = audit(Some(policy));
                    self.ledger.disable_automatically(&agent, policy, &audit).await?
                }
                _ => self.ledger.freeze_automatically(&agent, &audit(None)).await?,
            };
            if result == UpdateResult::Stored {
                return self.usage.record_automatic_freeze(owner, id, anomaly.hour).await;
            }
        }
        Err(Error::temporarily_unavailable("freezing an agent", ContentionError))
    }

    fn freeze_audit_entry(
        &self,
        agent: &Agent,
        policy: Option<&EnabledService>,
        owner: &UserId,
        anomaly: &Anomaly,
    ) -> AuditEntry {
        let (action, before, after, version) = if let Some(policy) = policy {
            let action = Act::new(AuditKind::ServiceDisabled).about_service(policy.service);
            let disabled = EnabledService {
                enabled: false,
                ..policy.clone()
            };
            (
                action,
                policy.audit_log_fields(),
                disabled.audit_log_fields(),
                policy.version,
            )
        } else {
            let frozen = Agent {
                status: AgentStatus::Frozen,
                ..agent.clone()
            };
            let action = Act::new(AuditKind::AgentFrozen);
            (
                action,
                agent.audit_log_fields(),
                frozen.audit_log_fields(),
                agent.version,
            )
        };
        let changes = AuditChanges::between(Some(before), Some(after));
        let acting = Acting {
            actor: Actor::Rule { owner: owner.clone() },
            source: RequestSource {
                reason: anomaly.freeze_reason(),
                ..RequestSource::default()
            },
        };
        // `random` distinguishes audit rows of the same microsecond, because the low bits of ids are random and each
        // version of a record is stored once.
        let (_, low) = agent.id.uuid().as_u64_pair();
        let service = policy.map_or(0, |policy| policy.service.uuid().as_u64_pair().1);
        let random = (low ^ service ^ version).to_be_bytes();
        let now = self.clock.now();
        let action = action.on_agent(agent.id);
        self.audit
            .new_entry(&acting.audit_record(now, random, &action, AuditOutcome::Done(changes)))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the agent was updated during every attempt")]
struct ContentionError;
