//! Publishes a stream batch after storing the versions and reminders that the batch contains.

use crate::{Inner, bus::PublishResult};
use purser_domain::{ApprovalId, Event, EventKind, EventSubject, Result, Timestamp};
use purser_store::{Change, Fact, QuarantinedRow, Reminder, ReminderKind};
use serde_json::Value;
use std::collections::BTreeSet;

/// An event with the sequence number of its stream record.
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
    /// Publishes a batch until the bus rejects an event. Returns the sequence number of the first record to repeat.
    ///
    /// On an error, no event was published and Lambda must repeat the whole batch.
    pub(crate) async fn tell_batch(&self, records: &[Value]) -> Result<Option<String>> {
        self.log_signs(records);
        self.keep_versions(records).await?;
        self.attest_changes(records).await?;
        let Batch { placed, unreadable } = self.read_batch(records).await?;
        for aside in unreadable {
            self.set_aside(aside).await?;
        }
        for reminder in placed.iter().filter_map(|placed| reminder_of(&placed.event)) {
            self.usage.remind(reminder).await?;
        }
        let (events, sequences): (Vec<Event>, Vec<String>) =
            placed.into_iter().map(|placed| (placed.event, placed.sequence)).unzip();
        match self.bus.publish(&events).await {
            PublishResult::All => Ok(None),
            PublishResult::UpTo(first) => Ok(sequences.into_iter().nth(first)),
        }
    }

    /// Stores the versions of agents, policies and catalog services that these records wrote. Unreadable rows are left
    /// out because [`Self::read_batch`] reports them.
    async fn keep_versions(&self, records: &[Value]) -> Result<()> {
        for change in records.iter().filter_map(|record| Change::parse(record).ok()) {
            let version = if self.catalog.has_table(&change.table) {
                self.catalog.input_version(&change)
            } else {
                self.ledger.input_version(&change)
            };
            if let Ok(Some(version)) = version {
                self.usage.keep_version(version).await?;
            }
        }
        Ok(())
    }

    /// Parses these records into events and unreadable rows.
    pub(crate) async fn read_batch(&self, records: &[Value]) -> Result<Batch> {
        let (mut facts, mut unreadable) = (Vec::new(), Vec::new());
        for record in records {
            match Change::parse(record) {
                Ok(change) => match self.facts_of(&change) {
                    Ok(found) => facts.extend(found.into_iter().map(|fact| (fact, change.clone()))),
                    Err(error) => unreadable.push(aside(&change, &error)),
                },
                Err(problem) => unreadable.push(QuarantinedRow {
                    table: String::new(),
                    sequence: problem.sequence.clone().unwrap_or_default(),
                    key: String::new(),
                    problem: problem.to_string(),
                }),
            }
        }
        let agents: BTreeSet<_> = facts.iter().filter_map(|(fact, _)| fact.agent_of_owner()).collect();
        let owners = self.ledger.owners(&agents).await?;
        let mut placed = Vec::new();
        for (fact, change) in facts {
            match fact.into_event(&self.source, &owners) {
                Ok(event) => placed.push(PositionedEvent {
                    event,
                    sequence: change.sequence,
                }),
                Err(error) => unreadable.push(aside(&change, &error)),
            }
        }
        Ok(Batch { placed, unreadable })
    }

    fn facts_of(&self, change: &Change) -> Result<Vec<Fact>> {
        if self.catalog.has_table(&change.table) {
            self.catalog.facts_of(change)
        } else {
            self.ledger.facts_of(change)
        }
    }

    async fn set_aside(&self, aside: QuarantinedRow) -> Result<()> {
        self.usage.set_aside(&aside, self.clock.now()).await?;
        let QuarantinedRow {
            table,
            sequence,
            key,
            problem,
        } = &aside;
        tracing::error!(table, sequence, key, problem, "event.set_aside");
        Ok(())
    }
}

fn aside(change: &Change, problem: &purser_domain::Error) -> QuarantinedRow {
    QuarantinedRow {
        table: change.table.clone(),
        sequence: change.sequence.clone(),
        key: change.key(),
        problem: problem.to_string(),
    }
}

/// Returns the reminder for an event that will happen later without a write; `None` for other events.
fn reminder_of(event: &Event) -> Option<Reminder> {
    let data = event.data();
    match (event.kind(), event.subject()) {
        (EventKind::ApprovalAsked, _) => Some(Reminder {
            of: ReminderKind::Expiry(ApprovalId::parse(data.get_text("approval_id")?)?),
            at: data.get_time("expires_at")?,
        }),
        // A change that still needs a second operator's confirmation has no effective time yet.
        (EventKind::ServiceChangeDelayed, EventSubject::Service(service)) => Some(Reminder {
            of: ReminderKind::Pricing(*service),
            at: data.get_time("from").filter(|from| *from != Timestamp::MAX)?,
        }),
        _ => None,
    }
}
