//! Freezes agents by their anomaly brakes.
//!
//! After a batch is folded, each hour in which it has a new payment of an agent with a brake is judged by the sums of
//! the journal. The freeze is an edit of the agent's record, conditional on the version that was judged; then the sum of the
//! hour is noted, so that the person can unfreeze the agent within it: from then on the agent is frozen again after as much
//! as in any other hour. If the call is killed in between, the batch
//! is repeated: an agent that its brake has frozen is not frozen again, and the hour is noted.

use crate::payees::{is_corrupt, report_unreadable};
use purser_api::Clock;
use purser_domain::{
    Act, Acting, Actor, Agent, AgentId, AgentStatus, Anomaly, AnomalyBrake, AuditChanges, AuditKind, AuditOutcome,
    Error, Hour, LoggedDecision, PersonId, RequestSource, Result, Timestamp,
};
use purser_store::{AuditEntry, AuditLog, EditResult, JournalChange, Ledger, Owners, UsageTable};
use std::collections::BTreeMap;

/// The number of attempts to freeze an agent whose record is edited at the same time.
const ATTEMPTS: u32 = 5;

/// The hours in which these changes have new payments, by agent, each with the time of the last payment.
pub(crate) fn hours_to_check(changes: &[JournalChange]) -> BTreeMap<(AgentId, Hour), Timestamp> {
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

/// Judges agents by their anomaly brakes, and freezes an agent whose brake trips.
pub(crate) struct Brakes {
    pub(crate) ledger: Ledger,
    pub(crate) usage: UsageTable,
    pub(crate) audit: AuditLog,
    pub(crate) clock: Clock,
}

impl Brakes {
    /// Judges these hours, which must be in the journal, and freezes the agents whose brakes they trip. No agent's failure
    /// stops another's brake.
    pub(crate) async fn judge(&self, hours: &BTreeMap<(AgentId, Hour), Timestamp>, owners: &Owners) -> Result<()> {
        let mut judged = Ok(());
        for ((agent, _), at) in hours {
            let Some(owned) = owners.get(*agent) else {
                continue;
            };
            let Some(brake) = owned.brake else {
                continue;
            };
            match self.judge_hour(*agent, &owned.owner, *at, brake).await {
                Err(error) if is_corrupt(&error) => report_unreadable(&error),
                Err(error) => judged = Err(error),
                Ok(()) => {}
            }
        }
        judged
    }

    async fn judge_hour(&self, agent: AgentId, owner: &PersonId, at: Timestamp, brake: AnomalyBrake) -> Result<()> {
        match self.usage.anomaly(owner, agent, at, brake).await? {
            Some(anomaly) => self.brake(agent, owner, &anomaly).await,
            None => Ok(()),
        }
    }

    /// Freezes the agent, unless it is frozen, or its owner or brake has changed so that the anomaly is none.
    async fn brake(&self, id: AgentId, owner: &PersonId, anomaly: &Anomaly) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let Some((agent, mark)) = self.ledger.read_agent_and_mark(id).await? else {
                return Ok(());
            };
            let brake = AnomalyBrake::among(&agent.rules);
            let is_tripped = brake.is_some_and(|brake| brake.is_tripped_by(anomaly.sum, anomaly.usual));
            if !is_tripped || agent.owner != owner.as_str() {
                return Ok(());
            }
            if agent.is_frozen() {
                // By its brake in an earlier attempt, or for the hour before. Of a person's own freeze nothing is noted.
                if !mark.is_by_rule() {
                    return Ok(());
                }
            } else if self
                .ledger
                .freeze_by_brake(&agent, &self.row(&agent, owner, anomaly))
                .await?
                == EditResult::Conflict
            {
                continue;
            }
            return self.usage.note_braked(owner, id, anomaly.hour).await;
        }
        Err(Error::temporarily_unavailable("freezing an agent", ContentionError))
    }

    /// The row of the freeze in the audit log.
    fn row(&self, agent: &Agent, owner: &PersonId, anomaly: &Anomaly) -> AuditEntry {
        let frozen = Agent {
            status: AgentStatus::Frozen,
            ..agent.clone()
        };
        let changes = AuditChanges::between(Some(agent.audit_members()), Some(frozen.audit_members()));
        let acting = Acting {
            actor: Actor::Rule { owner: owner.clone() },
            source: RequestSource {
                reason: anomaly.reason(),
                ..RequestSource::default()
            },
        };
        let act = Act::new(AuditKind::AgentFrozen).on(agent.id);
        // The last bits of an agent's id are random, and each of its versions is stored once.
        let (_, low) = agent.id.uuid().as_u64_pair();
        let random = (low ^ agent.version).to_be_bytes();
        let now = self.clock.now();
        self.audit
            .entry(&acting.record(now, random, &act, AuditOutcome::Done(changes)))
    }
}

/// The cause of the error for an agent that is edited all the time.
#[derive(Debug, thiserror::Error)]
#[error("the agent is edited all the time")]
struct ContentionError;
