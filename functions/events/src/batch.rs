//! A batch of a stream: count, remember, tell.

use crate::{Shared, bus::Told};
use purser_domain::{ApprovalId, Event, EventKind, EventSubject, Result, UsageCount};
use purser_store::{Awaited, Change, Fact, Reminder, SetAside};
use serde_json::Value;
use std::collections::BTreeSet;

/// An event, and the place of the record that it is from.
struct Placed {
    event: Event,
    sequence: String,
}

impl Shared {
    /// Does a batch, as far as it can be done: the place of the first record that has to come again, if one has.
    ///
    /// An error is one of reading or counting: then nothing was told, and all of it comes again.
    pub(crate) async fn tell_batch(&self, records: &[Value]) -> Result<Option<String>> {
        self.log_signs(records);
        self.attest_changes(records).await?;
        let placed = self.events_of(records).await?;
        let counts: Vec<UsageCount> = placed
            .iter()
            .filter_map(|placed| UsageCount::of(&placed.event))
            .collect();
        self.usage.count(&counts, self.clock.now()).await?;
        for reminder in placed.iter().filter_map(|placed| reminder_of(&placed.event)) {
            self.usage.remind(reminder).await?;
        }
        let (events, sequences): (Vec<Event>, Vec<String>) =
            placed.into_iter().map(|placed| (placed.event, placed.sequence)).unzip();
        match self.bus.tell(&events).await {
            Told::All => Ok(None),
            Told::UpTo(first) => Ok(sequences.into_iter().nth(first)),
        }
    }

    /// The events of these records, in their order. What can't be read is set aside.
    async fn events_of(&self, records: &[Value]) -> Result<Vec<Placed>> {
        let mut facts = Vec::new();
        for record in records {
            match Change::parse(record) {
                Ok(change) => match self.facts_of(&change) {
                    Ok(found) => facts.extend(found.into_iter().map(|fact| (fact, change.clone()))),
                    Err(error) => self.set_aside(aside(&change, &error)).await?,
                },
                Err(unreadable) => {
                    self.set_aside(SetAside {
                        table: String::new(),
                        sequence: unreadable.sequence.clone().unwrap_or_default(),
                        key: String::new(),
                        problem: unreadable.to_string(),
                    })
                    .await?;
                }
            }
        }
        let agents: BTreeSet<_> = facts.iter().filter_map(|(fact, _)| fact.agent_of_owner()).collect();
        let owners = self.ledger.owners(&agents).await?;
        let mut placed = Vec::new();
        for (fact, change) in facts {
            match fact.told(&self.source, |agent| owners.of(agent)) {
                Ok(event) => placed.push(Placed {
                    event,
                    sequence: change.sequence,
                }),
                Err(error) => self.set_aside(aside(&change, &error)).await?,
            }
        }
        Ok(placed)
    }

    fn facts_of(&self, change: &Change) -> Result<Vec<Fact>> {
        if self.catalog.has_table(&change.table) {
            self.catalog.facts_of(change)
        } else {
            self.ledger.facts_of(change)
        }
    }

    async fn set_aside(&self, aside: SetAside) -> Result<()> {
        self.usage.set_aside(&aside, self.clock.now()).await?;
        let SetAside {
            table,
            sequence,
            key,
            problem,
        } = &aside;
        tracing::error!(table, sequence, key, problem, "event.set_aside");
        Ok(())
    }
}

fn aside(change: &Change, problem: &purser_domain::Error) -> SetAside {
    SetAside {
        table: change.table.clone(),
        sequence: change.sequence.clone(),
        key: change.key(),
        problem: problem.to_string(),
    }
}

/// When to look at what will happen without a write.
fn reminder_of(event: &Event) -> Option<Reminder> {
    let data = event.data();
    match (event.kind(), event.subject()) {
        (EventKind::ApprovalAsked, _) => Some(Reminder {
            of: Awaited::Expiry(ApprovalId::parse(data.get_text("approval_id")?)?),
            at: data.get_time("expires_at")?,
        }),
        (EventKind::ServiceChangeDelayed, EventSubject::Service(service)) => Some(Reminder {
            of: Awaited::Pricing(*service),
            at: data.get_time("from")?,
        }),
        _ => None,
    }
}
