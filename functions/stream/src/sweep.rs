//! Publishes the events that no write causes: the expiry of approvals and the start of delayed catalog changes.

use crate::{Inner, bus::PublishResult};
use purser_domain::{Approval, Error, Result, Timestamp};
use purser_store::{ChangeEvent, Reminder, ReminderKind, RowHash};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

const PAGE_SIZE: u32 = 50;
/// The time reserved for publishing the last events.
const RESERVED_TIME: Duration = Duration::from_secs(10);

impl Inner {
    /// Publishes the events of due reminders, oldest first. An unreadable row keeps its reminder, and the run fails at
    /// its end.
    pub(crate) async fn publish_due_reminders(&self, time_left: Duration) -> Result<()> {
        // A failed verification of payees does not stop the reminders.
        let verified_service = self.verify_payees_on_first_run().await;
        let now = self.clock.now();
        let start = Instant::now();
        let until = start
            .checked_add(time_left.saturating_sub(RESERVED_TIME))
            .unwrap_or(start);
        let (mut after, mut failure) = (None, None);
        loop {
            let page = self.usage.read_reminders(now, after, PAGE_SIZE).await?;
            failure = page.unreadable.or(failure);
            let (mut changes, mut seen, mut expired) = (Vec::new(), Vec::new(), Vec::new());
            for reminder in page.found {
                match self.read_due_reminder_events(reminder, now, &mut expired).await {
                    Ok(changes_due) => {
                        changes.extend(changes_due);
                        seen.push(reminder);
                    }
                    Err(error) => failure = Some(error),
                }
            }
            self.publish_change_events(changes).await?;
            self.queue_expired_approvals(&expired).await?;
            for reminder in seen {
                self.usage.remove_reminder(reminder).await?;
            }
            after = page.next;
            if after.is_none() || Instant::now() >= until {
                return failure.map_or(verified_service, Err);
            }
        }
    }

    /// Returns the events of a due reminder, if it still applies. Adds an expired approval to `expired`.
    async fn read_due_reminder_events(
        &self,
        reminder: Reminder,
        now: Timestamp,
        expired: &mut Vec<(Approval, RowHash)>,
    ) -> Result<Vec<ChangeEvent>> {
        Ok(match reminder.of {
            ReminderKind::Expiry(approval) => {
                let approval = self.ledger.read_approval_with_hash(approval).await?;
                let change = approval
                    .as_ref()
                    .and_then(|(approval, _)| ChangeEvent::expiry_event(approval, now));
                expired.extend(approval.filter(|_| change.is_some()));
                change.into_iter().collect()
            }
            ReminderKind::Pricing(service) => {
                let service = self.catalog.read_service_by_id(service).await?;
                service.map_or_else(Vec::new, |service| {
                    ChangeEvent::delayed_pricing_events(&service, reminder.at)
                })
            }
        })
    }

    async fn publish_change_events(&self, changes: Vec<ChangeEvent>) -> Result<()> {
        let agents: BTreeSet<_> = changes
            .iter()
            .filter_map(ChangeEvent::agent_requiring_owner_lookup)
            .collect();
        let owners = self.ledger.read_owners(&agents).await?;
        let mut events = Vec::new();
        for change in changes {
            match change.into_event(&self.source, &owners) {
                Ok(event) => events.push(event),
                // The owner is unknown: the agent's row is unreadable, and `quarantine_row` logged the row.
                Err(error) => tracing::error!(cause = %error, "expiry.untold"),
            }
        }
        match self.bus.publish(&events).await {
            PublishResult::All => Ok(()),
            // The reminders are still stored, so the next run publishes their events again.
            PublishResult::UpTo(_) => Err(Error::temporarily_unavailable(
                "publishing events",
                "the event bus rejected an event",
            )),
        }
    }
}
