//! Change events of approvals. An expiry does not change the row, so a reminder triggers a check
//! (`usage/reminders.rs`).

use crate::{
    codec::{attribute::Item, key, ledger::Ledger},
    stream::{change::Change, fact::ChangeEvent, row_hash::RowHash, sequence::SequenceNumber},
};
use purser_domain::{
    Approval, ApprovalChange, ApprovalStatus, Duration, EventData, EventId, EventKind, Resolution, Result, Timestamp,
};

/// An approval decision, read from a stream record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidedApproval {
    /// The approval after the decision.
    pub approval: Approval,
    /// Whether the approval was approved, rejected or withdrawn.
    pub change: ApprovalChange,
    /// The time of the decision.
    pub at: Timestamp,
    /// The sequence number of the stream record.
    pub sequence: SequenceNumber,
    /// The time of the stream record, in seconds.
    pub changed_at: Timestamp,
    /// The hash of the row in the stream record.
    pub row: RowHash,
}

/// The delay between an approval's expiry and the event: longer than the timeout of the function `payments`
/// (15 seconds), and allows for clock differences.
const EXPIRY_MARGIN: Duration = Duration::from_secs_u32(120);

impl Ledger {
    /// Returns the approval decision in a changed row; `None` if there is none. Fails if the row can't be read.
    pub fn parse_decided_approval(&self, change: &Change) -> Result<Option<DecidedApproval>> {
        let (Some(old), Some(new)) = (&change.old, &change.new) else {
            return Ok(None);
        };
        if *change.table != *self.table || change.is_unchanged() || !key::partition_key_text(new).starts_with("AP#") {
            return Ok(None);
        }
        let (old, approval) = (self.read_listed_approval(old)?, self.read_listed_approval(new)?);
        let Some((change_of_approval, at)) = approval_change_and_time(Some(&old), &approval) else {
            return Ok(None);
        };
        let sequence = SequenceNumber::parse(&change.sequence);
        Ok(Some(DecidedApproval {
            approval,
            change: change_of_approval,
            at,
            sequence: sequence.ok_or_else(|| self.item_row(new).corrupt_error("sequence"))?,
            changed_at: change.at,
            row: RowHash::from_item(new),
        }))
    }

    /// Returns the change event if an approval was requested, decided, withdrawn or used.
    pub(crate) fn approval_change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        let read = |image: &Item| self.read_listed_approval(image);
        let Some(new) = change.new.as_ref().map(read).transpose()? else {
            return Ok(Vec::new());
        };
        let old = change.old.as_ref().map(read).transpose()?;
        let result = |kind, at, data| vec![approval_event(&new, kind, at, data)];
        if let Some((change, at)) = approval_change_and_time(old.as_ref(), &new) {
            let (kind, data) = match change {
                ApprovalChange::Withdrawn => (EventKind::ApprovalWithdrawn, approval_data(&new)),
                ApprovalChange::Rejected => (
                    EventKind::ApprovalDecided,
                    approval_data(&new).text("status", "rejected"),
                ),
                ApprovalChange::Approved | ApprovalChange::Expired => (
                    EventKind::ApprovalDecided,
                    approval_data(&new).text("status", "approved"),
                ),
            };
            return Ok(result(kind, at, data));
        }
        Ok(match &new.resolution {
            Resolution::Pending if old.is_none() => {
                result(EventKind::ApprovalAsked, new.created_at, approval_data(&new))
            }
            Resolution::Executed { settlement, .. } if old.is_some_and(|old| old.settlement_id().is_none()) => {
                let data = approval_data(&new).text("settlement_id", settlement);
                result(EventKind::ApprovalUsed, settlement.authorized_at(), data)
            }
            // The change replaced only the approval's owner, so it has no event.
            Resolution::Pending | Resolution::Approved(_) | Resolution::Rejected(_) | Resolution::Executed { .. } => {
                Vec::new()
            }
        })
    }
}

/// Returns the decision that this change of the row stored, and the time of the decision.
fn approval_change_and_time(old: Option<&Approval>, new: &Approval) -> Option<(ApprovalChange, Timestamp)> {
    match (&old?.resolution, &new.resolution) {
        (Resolution::Pending, Resolution::Approved(resolution)) => Some((ApprovalChange::Approved, resolution.at)),
        (Resolution::Pending, Resolution::Rejected(resolution)) => Some((ApprovalChange::Rejected, resolution.at)),
        (Resolution::Approved(_), Resolution::Rejected(resolution)) => Some((ApprovalChange::Withdrawn, resolution.at)),
        _ => None,
    }
}

impl ChangeEvent {
    /// Returns the change event if the approval has certainly expired unused by `now`.
    pub fn expiry_event(approval: &Approval, now: Timestamp) -> Option<Self> {
        if approval.status(now) != ApprovalStatus::Expired || !is_expiry_certain(approval.expires_at, now) {
            return None;
        }
        let was = match approval.resolution {
            Resolution::Approved(_) => "approved",
            Resolution::Pending | Resolution::Rejected(_) | Resolution::Executed { .. } => "pending",
        };
        let data = approval_data(approval).text("was", was);
        Some(approval_event(
            approval,
            EventKind::ApprovalExpired,
            approval.expires_at,
            data,
        ))
    }
}

/// Returns whether no payment can use an approval that expires at `end` any more: [`EXPIRY_MARGIN`] after `end`.
fn is_expiry_certain(end: Timestamp, now: Timestamp) -> bool {
    end.after(EXPIRY_MARGIN) <= now
}

pub(crate) fn certain_expiry_cutoff(now: Timestamp) -> Timestamp {
    now.before(EXPIRY_MARGIN)
}

fn approval_event(approval: &Approval, kind: EventKind, at: Timestamp, data: EventData) -> ChangeEvent {
    ChangeEvent::for_agent(approval.agent, kind, EventId::derive(kind, &[&approval.id]), at, data)
}

fn approval_data(approval: &Approval) -> EventData {
    let data = EventData::new()
        .text("approval_id", approval.id)
        .text("transaction_id", approval.transaction)
        .text("service_id", approval.service)
        .text("operation_id", &approval.operation)
        .text("key_id", approval.key)
        .amount("amount_units", approval.amount)
        .text("pay_to", approval.pay_to)
        .time("expires_at", approval.expires_at);
    match approval.temporary_caps() {
        Some(increase) => data
            .optional_amount("raised_max_per_call_units", increase.caps.max_per_call)
            .optional_amount("raised_max_per_day_units", increase.caps.max_per_day)
            .time("raised_until", increase.until),
        None => data,
    }
}
