//! Freezes agents automatically after unusual spending (`anomaly_brake` rules).
//!
//! An automatic freeze first updates the agent's record, and then stores the sum of the agent's payments in the hour.
//! The rule no longer counts the payments in the stored sum, so the user can unfreeze the agent within the hour. If the
//! Lambda function `history` is interrupted between the two writes, Lambda repeats the batch, and the repeated call
//! makes the second write.

use crate::payees::{is_corruption_error, report_unreadable_row};
use purser_api::Clock;
use purser_domain::{
    Act, Acting, Actor, Agent, AgentId, AgentStatus, Anomaly, AuditChanges, AuditKind, AuditOutcome, AutomaticFreeze,
    Error, Hour, LoggedDecision, RequestSource, Result, Timestamp, UserId,
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
                .freeze_agent_if_anomalous(*agent, &owned.owner, *at, automatic_freeze)
                .await
            {
                Err(error) if is_corruption_error(&error) => report_unreadable_row(&error),
                Err(error) => judged = Err(error),
                Ok(()) => {}
            }
        }
        judged
    }

    async fn freeze_agent_if_anomalous(
        &self,
        agent: AgentId,
        owner: &UserId,
        at: Timestamp,
        automatic_freeze: AutomaticFreeze,
    ) -> Result<()> {
        match self.usage.find_anomaly(owner, agent, at, automatic_freeze).await? {
            Some(anomaly) => self.freeze_agent(agent, owner, &anomaly).await,
            None => Ok(()),
        }
    }

    /// Freezes the agent if an active rule requires the freeze. Does nothing if the agent has a new owner, or if the
    /// agent is frozen and no rule made the freeze.
    async fn freeze_agent(&self, id: AgentId, owner: &UserId, anomaly: &Anomaly) -> Result<()> {
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
            if agent.is_frozen() {
                // If a rule froze the agent, an earlier attempt may have been killed after the freeze and before the
                // attempt stored the sum of the hour's payments. This attempt then stores the sum.
                if !mark.was_made_by_rule() {
                    return Ok(());
                }
            } else if self
                .ledger
                .freeze_automatically(&agent, &self.freeze_audit_entry(&agent, owner, anomaly))
                .await?
                == UpdateResult::Conflict
            {
                continue;
            }
            return self.usage.record_automatic_freeze(owner, id, anomaly.hour).await;
        }
        Err(Error::temporarily_unavailable("freezing an agent", ContentionError))
    }

    fn freeze_audit_entry(&self, agent: &Agent, owner: &UserId, anomaly: &Anomaly) -> AuditEntry {
        let frozen = Agent {
            status: AgentStatus::Frozen,
            ..agent.clone()
        };
        let changes = AuditChanges::between(Some(agent.audit_log_fields()), Some(frozen.audit_log_fields()));
        let acting = Acting {
            actor: Actor::Rule { owner: owner.clone() },
            source: RequestSource {
                reason: anomaly.freeze_reason(),
                ..RequestSource::default()
            },
        };
        let action = Act::new(AuditKind::AgentFrozen).on_agent(agent.id);
        // `random` distinguishes audit rows of the same microsecond, because the low bits of an agent's id are random
        // and each version of an agent is stored once.
        let (_, low) = agent.id.uuid().as_u64_pair();
        let random = (low ^ agent.version).to_be_bytes();
        let now = self.clock.now();
        self.audit
            .new_entry(&acting.audit_record(now, random, &action, AuditOutcome::Done(changes)))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the agent was updated during every attempt")]
struct ContentionError;
