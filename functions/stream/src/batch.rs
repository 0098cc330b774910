//! Stores a stream batch's object versions, payees and reminders, and then publishes the batch's events.

use crate::{Inner, bus::PublishResult};
use purser_domain::{ApprovalId, Event, EventKind, EventSubject, Result, Timestamp};
use purser_store::{Change, ChangeEvent, QuarantinedRow, Reminder, ReminderKind};
use serde_json::Value;
use std::collections::BTreeSet;

pub(crate) struct PositionedEvent {
    pub(crate) event: Event,
    pub(crate) sequence: String,
}

/// The events of a batch in stream order, and the batch's unreadable rows.
pub(crate) struct Batch {
    pub(crate) placed: Vec<PositionedEvent>,
    pub(crate) unreadable: Vec<QuarantinedRow>,
}

impl Inner {
    /// Publishes the events of a batch, in order. Returns the sequence number of the first record that Lambda must
    /// repeat, or `None` if all events were published.
    ///
    /// Returns an error only if no event was published.
    pub(crate) async fn publish_batch(&self, records: &[Value]) -> Result<Option<String>> {
        self.log_suspicious_changes(records);
        self.store_input_versions(records).await?;
        self.verify_changed_payees(records).await?;
        let Batch { placed, unreadable } = self.read_batch(records).await?;
        for row in unreadable {
            self.quarantine_row(row).await?;
        }
        for reminder in placed.iter().filter_map(|placed| reminder_for_event(&placed.event)) {
            self.usage.store_reminder(reminder).await?;
        }
        let (events, sequences): (Vec<Event>, Vec<String>) =
            placed.into_iter().map(|placed| (placed.event, placed.sequence)).unzip();
        match self.bus.publish(&events).await {
            PublishResult::All => Ok(None),
            PublishResult::UpTo(first) => Ok(sequences.into_iter().nth(first)),
        }
    }

    /// Stores a copy of each new version of an agent, policy or service in these records. Skips unreadable rows.
    async fn store_input_versions(&self, records: &[Value]) -> Result<()> {
        for change in records.iter().filter_map(|record| Change::parse(record).ok()) {
            let version = if self.catalog.has_table(&change.table) {
                self.catalog.input_version_from_change(&change)
            } else {
                self.ledger.input_version_from_change(&change)
            };
            if let Ok(Some(version)) = version {
                self.usage.store_input_version(version).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn read_batch(&self, records: &[Value]) -> Result<Batch> {
        let (mut changes, mut unreadable) = (Vec::new(), Vec::new());
        for record in records {
            match Change::parse(record) {
                Ok(change) => match self.change_events(&change) {
                    Ok(found) => {
                        changes.extend(found.into_iter().map(|pending_change| (pending_change, change.clone())));
                    }
                    Err(error) => unreadable.push(quarantined_row(&change, &error)),
                },
                Err(message) => unreadable.push(QuarantinedRow {
                    table: String::new(),
                    sequence: message.sequence.clone().unwrap_or_default(),
                    key: String::new(),
                    problem: message.to_string(),
                }),
            }
        }
        let agents: BTreeSet<_> = changes
            .iter()
            .filter_map(|(pending_change, _)| pending_change.agent_requiring_owner_lookup())
            .collect();
        let owners = self.ledger.read_owners(&agents).await?;
        let mut placed = Vec::new();
        for (pending_change, change) in changes {
            match pending_change.into_event(&self.source, &owners) {
                Ok(event) => placed.push(PositionedEvent {
                    event,
                    sequence: change.sequence,
                }),
                Err(error) => unreadable.push(quarantined_row(&change, &error)),
            }
        }
        Ok(Batch { placed, unreadable })
    }

    fn change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        if self.catalog.has_table(&change.table) {
            self.catalog.change_events(change)
        } else {
            self.ledger.change_events(change)
        }
    }

    async fn quarantine_row(&self, row: QuarantinedRow) -> Result<()> {
        self.usage.quarantine_row(&row, self.clock.now()).await?;
        let QuarantinedRow {
            table,
            sequence,
            key,
            problem: error,
        } = &row;
        tracing::error!(table, sequence, key, problem = error, "event.set_aside");
        Ok(())
    }
}

fn quarantined_row(change: &Change, error: &purser_domain::Error) -> QuarantinedRow {
    QuarantinedRow {
        table: change.table.clone(),
        sequence: change.sequence.clone(),
        key: change.row_key(),
        problem: error.to_string(),
    }
}

/// Returns the reminder for an event that occurs later without a write, such as an approval's expiry.
fn reminder_for_event(event: &Event) -> Option<Reminder> {
    let data = event.data();
    match (event.kind(), event.subject()) {
        (EventKind::ApprovalAsked, _) => Some(Reminder {
            of: ReminderKind::Expiry(ApprovalId::parse(data.find_text("approval_id")?)?),
            at: data.find_time("expires_at")?,
        }),
        // `from` is `Timestamp::MAX` while a second operator must still confirm the change.
        (EventKind::ServiceChangeDelayed, EventSubject::Service(service)) => Some(Reminder {
            of: ReminderKind::Pricing(*service),
            at: data.find_time("from").filter(|from| *from != Timestamp::MAX)?,
        }),
        _ => None,
    }
}
