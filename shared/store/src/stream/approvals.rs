//! Facts about approvals. Expiry does not change an approval's row, so a reminder causes a check
//! (`usage/reminders.rs`).

use crate::{
    codec::{attribute::Item, ledger::Ledger},
    stream::{change::Change, fact::Fact},
};
use purser_domain::{Approval, ApprovalStatus, Duration, EventData, EventId, EventKind, Resolution, Result, Timestamp};

/// The delay after an approval's expiry before the expiry is published. The function that authorizes a payment may use
/// the approval until it expires by that function's clock, and writes within its timeout of 15 seconds. The rest of the
/// delay allows for clock skew.
const CERTAIN: Duration = Duration::from_secs_u32(120);

impl Ledger {
    /// The fact that an approval was requested, decided, withdrawn or used.
    pub(crate) fn facts_of_approval(&self, change: &Change) -> Result<Vec<Fact>> {
        let read = |image: &Item| self.listed_approval(image);
        let Some(new) = change.new.as_ref().map(read).transpose()? else {
            return Ok(Vec::new());
        };
        let old = change.old.as_ref().map(read).transpose()?;
        let was = old.as_ref().map(|old| &old.resolution);
        let was_pending = matches!(was, Some(Resolution::Pending));
        let was_approved = matches!(was, Some(Resolution::Approved(_)));
        let told = |kind, at, data| vec![fact(&new, kind, at, data)];
        Ok(match &new.resolution {
            Resolution::Pending if old.is_none() => told(EventKind::ApprovalAsked, new.created_at, data(&new)),
            Resolution::Approved(ruling) if was_pending => told(
                EventKind::ApprovalDecided,
                ruling.at,
                data(&new).text("status", "approved"),
            ),
            Resolution::Rejected(ruling) if was_pending => told(
                EventKind::ApprovalDecided,
                ruling.at,
                data(&new).text("status", "rejected"),
            ),
            Resolution::Rejected(ruling) if was_approved => told(EventKind::ApprovalWithdrawn, ruling.at, data(&new)),
            Resolution::Executed { settlement, .. } if old.is_some_and(|old| old.settlement().is_none()) => {
                let data = data(&new).text("settlement_id", settlement);
                told(EventKind::ApprovalUsed, settlement.authorized_at(), data)
            }
            // Only the owner has changed.
            Resolution::Pending | Resolution::Approved(_) | Resolution::Rejected(_) | Resolution::Executed { .. } => {
                Vec::new()
            }
        })
    }
}

impl Fact {
    /// The fact that an approval expired unused according to its row, if that is certain by `now`.
    pub fn expired(approval: &Approval, now: Timestamp) -> Option<Self> {
        if approval.status(now) != ApprovalStatus::Expired || !is_certain(approval.expires_at, now) {
            return None;
        }
        let was = match approval.resolution {
            Resolution::Approved(_) => "approved",
            Resolution::Pending | Resolution::Rejected(_) | Resolution::Executed { .. } => "pending",
        };
        let data = data(approval).text("was", was);
        Some(fact(approval, EventKind::ApprovalExpired, approval.expires_at, data))
    }
}

/// Whether payments can no longer use an approval that expired at `end`.
fn is_certain(end: Timestamp, now: Timestamp) -> bool {
    end.after(CERTAIN) <= now
}

/// The latest expiry of an approval that has certainly expired by `now`.
pub(crate) fn certain_until(now: Timestamp) -> Timestamp {
    now.before(CERTAIN)
}

fn fact(approval: &Approval, kind: EventKind, at: Timestamp, data: EventData) -> Fact {
    Fact::of_agent(approval.agent, kind, EventId::of(kind, &[&approval.id]), at, data)
}

fn data(approval: &Approval) -> EventData {
    let data = EventData::new()
        .text("approval_id", approval.id)
        .text("transaction_id", approval.transaction)
        .text("service_id", approval.service)
        .text("operation_id", &approval.operation)
        .text("key_id", approval.key)
        .amount("amount_units", approval.amount)
        .text("pay_to", approval.pay_to)
        .time("expires_at", approval.expires_at);
    match &approval.raise {
        Some(raise) => data.time("raised_until", raise.until),
        None => data,
    }
}
