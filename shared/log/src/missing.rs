//! Finds decisions and payments without a statement in the log, and makes their changes pending. Changes of the last
//! day are skipped, because a DynamoDB stream may still deliver their records.

use crate::{
    aside::{Aside, QUARANTINE_PREFIX},
    find::{LogReader, unverified_payload},
    index::{self, About},
    objects::ObjectStore,
    pending::{Confirmation, PREFIX, PendingBatch, PendingChange, StatedChange},
    state::State,
};
use purser_domain::{Duration, LoggedDecision, Result, Settlement, SettlementState, Timestamp};
use purser_evidence::StatementKind;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;

/// The age after which no stream record of a change can arrive: the retention of DynamoDB streams, plus an hour.
const STREAM_RETENTION: Duration = Duration::from_secs_u32(25 * 3_600);
/// The shard name of the changes that this module makes pending.
const SHARD: &str = "missing";

/// The result of a search for missing statements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingStatements {
    /// The number of missing statements that will be signed.
    pub pending: u64,
    /// The number of missing statements that can't be signed, by reason, such as `the change was made within the last 25
    /// hours`.
    pub reasons: BTreeMap<String, u64>,
}

impl MissingStatements {
    fn count_unrecoverable_statement(&mut self, reason: impl Into<String>) {
        let count = self.reasons.entry(reason.into()).or_default();
        *count = count.saturating_add(1);
    }

    /// Makes the changes of these decisions pending if the log has no statement about them. Each decision comes with
    /// the row hash, in hexadecimal.
    pub async fn requeue_changes_without_statements(
        &mut self,
        objects: &ObjectStore,
        decisions: &[(LoggedDecision, String)],
        now: Timestamp,
    ) -> Result<()> {
        let unstated = find_pending_changes(objects).await?;
        let mut changes = Vec::new();
        for (decision, row) in decisions {
            for (change, at) in changes_requiring_statements(decision) {
                if is_in_log(objects, decision, &change).await? {
                    continue;
                }
                let known = unstated.iter().find(|(known, _)| *known == change);
                match (known, &change) {
                    (Some((_, Some(reason))), _) => {
                        self.count_unrecoverable_statement(format!("the change was set aside: {reason}"));
                    }
                    (Some((_, None)), _) => self.count_unrecoverable_statement("the change is pending"),
                    (None, _) if now.since(at) < STREAM_RETENTION => {
                        self.count_unrecoverable_statement("the change was made within the last 25 hours");
                    }
                    (None, StatedChange::Released(..)) => {
                        self.count_unrecoverable_statement("the settlement record has no release time");
                    }
                    (None, _) => changes.push(PendingChange {
                        sequence: String::new(),
                        changed_at: now,
                        agent: decision.agent_id(),
                        fact: change,
                        row: row.clone(),
                    }),
                }
            }
        }
        for (sequence, change) in (now.micros()..).zip(&mut changes) {
            change.sequence = format!("{sequence:040}");
            self.pending = self.pending.saturating_add(1);
        }
        let shard = SHARD.to_owned();
        PendingBatch { shard, facts: changes }.write_batch(objects).await
    }
}

/// Returns the changes of a decision that need a statement, with the time of each change.
fn changes_requiring_statements(decision: &LoggedDecision) -> Vec<(StatedChange, Timestamp)> {
    let at = decision.decided_at();
    let payment = |settlement: &Settlement| match settlement.state {
        SettlementState::Authorized => None,
        SettlementState::Expired => Some((StatedChange::Released(settlement.id(), at), at)),
        SettlementState::Confirmed {
            tx_hash,
            block_number,
            settled_at,
        } => {
            let confirmation = Confirmation {
                tx_hash,
                block_number,
                settled_at,
            };
            Some((StatedChange::Confirmed(settlement.id(), confirmation), settled_at))
        }
    };
    match decision {
        LoggedDecision::Refused(denial) => vec![(StatedChange::Refused(denial.transaction), at)],
        LoggedDecision::ConfirmationReverted(reverted) => vec![(StatedChange::Reverted(reverted.transaction), at)],
        LoggedDecision::Allowed(settlement) => [(StatedChange::Allowed(settlement.id()), at)]
            .into_iter()
            .chain(payment(settlement))
            .collect(),
        LoggedDecision::PaidOut(settlement) => [(StatedChange::Withdrawn(settlement.id()), at)]
            .into_iter()
            .chain(payment(settlement))
            .collect(),
    }
}

async fn is_in_log(objects: &ObjectStore, decision: &LoggedDecision, change: &StatedChange) -> Result<bool> {
    let (kind, id, name) = match (change, decision) {
        (StatedChange::Confirmed(id, _), _) => (StatementKind::Receipt, id.uuid(), None),
        (StatedChange::Released(id, _), _) => (StatementKind::Change, id.uuid(), Some("release")),
        (StatedChange::Withdrawn(id), _) => (StatementKind::Change, id.uuid(), Some("withdrawal")),
        (StatedChange::Reverted(_), LoggedDecision::ConfirmationReverted(reverted)) => {
            (StatementKind::Change, reverted.settlement.uuid(), Some("reversal"))
        }
        _ => (StatementKind::Decision, decision.transaction_id().uuid(), None),
    };
    let log = LogReader::new(objects.clone());
    for index in index::find_entries(objects, About { kind, id }, decision.decided_at()).await? {
        let Some(entry) = log.read_entry(index).await? else {
            continue;
        };
        let payload = unverified_payload(&String::from_utf8_lossy(&entry)).unwrap_or_default();
        let is_same = match change {
            StatedChange::Confirmed(_, confirmation) => {
                let tx_hash = Value::from(confirmation.tx_hash.to_string());
                let block = Value::from(confirmation.block_number);
                payload.pointer("/settlement/tx_hash") == Some(&tx_hash)
                    && payload.pointer("/settlement/block_number") == Some(&block)
            }
            StatedChange::Reverted(id) => payload.get("transaction_id") == Some(&id.to_string().into()),
            _ => name.is_none_or(|name| payload.get("change") == Some(&name.into())),
        };
        if is_same {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the pending changes without a reason, and the quarantined changes with their reason.
async fn find_pending_changes(objects: &ObjectStore) -> Result<Vec<(StatedChange, Option<String>)>> {
    let (state, _) = State::read_state(objects).await?;
    let mut changes: Vec<_> = state.later.into_iter().map(|later| (later.fact, None)).collect();
    for prefix in [PREFIX, QUARANTINE_PREFIX] {
        let mut after = None::<String>;
        loop {
            let keys = objects.list(prefix, after.as_deref(), 1_000).await?;
            for key in &keys {
                let Some(object) = objects.get(key).await? else {
                    continue;
                };
                if prefix == QUARANTINE_PREFIX {
                    let row: Option<Aside> = serde_json::from_slice(&object.bytes).ok();
                    changes.extend(row.map(|row| (row.fact.fact, Some(row.reason))));
                } else {
                    let stored: Vec<Value> = serde_json::from_slice(&object.bytes).unwrap_or_default();
                    let pending = stored.iter().filter_map(|value| PendingChange::deserialize(value).ok());
                    changes.extend(pending.map(|pending| (pending.fact, None)));
                }
            }
            match keys.last() {
                Some(last) => after = Some(last.clone()),
                None => break,
            }
        }
    }
    Ok(changes)
}
