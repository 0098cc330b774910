//! What happens without a write: approvals that expire, and delayed changes of the catalog that take effect. They are looked
//! for each minute.

use crate::{Shared, bus::Told};
use purser_domain::{Error, Result, Timestamp};
use purser_store::{Awaited, Fact, Reminder};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

/// How many rows are looked at before what they say is told.
const AT_ONCE: u32 = 50;
/// What is left of the time for the last of them.
const LAST: Duration = Duration::from_secs(10);

impl Shared {
    /// Publishes what has happened, by the rows, oldest first, until all reminders were read or the time is over. A row
    /// that can't be read is skipped: it keeps its reminder, and the run fails after the others are done.
    pub(crate) async fn sweep(&self, time_left: Duration) -> Result<()> {
        // Its failure holds up nothing else.
        let attested = self.attest_first().await;
        let now = self.clock.now();
        let began = Instant::now();
        let until = began.checked_add(time_left.saturating_sub(LAST)).unwrap_or(began);
        let (mut after, mut failure) = (None, None);
        loop {
            let page = self.usage.reminders(now, after, AT_ONCE).await?;
            failure = page.unreadable.or(failure);
            let (mut facts, mut seen) = (Vec::new(), Vec::new());
            for reminder in page.found {
                match self.happened(reminder, now).await {
                    Ok(happened) => {
                        facts.extend(happened);
                        seen.push(reminder);
                    }
                    Err(error) => failure = Some(error),
                }
            }
            self.tell_facts(facts).await?;
            for reminder in seen {
                self.usage.forget(reminder).await?;
            }
            after = page.next;
            if after.is_none() || Instant::now() >= until {
                return failure.map_or(attested, Err);
            }
        }
    }

    /// What has happened to the row, which alone says so: one that is gone, was used or withdrawn tells nothing.
    async fn happened(&self, reminder: Reminder, now: Timestamp) -> Result<Vec<Fact>> {
        Ok(match reminder.of {
            Awaited::Expiry(approval) => {
                let approval = self.ledger.approval(approval).await?;
                let fact = approval.and_then(|approval| Fact::expired(&approval, now));
                fact.into_iter().collect()
            }
            Awaited::Pricing(service) => {
                let service = self.catalog.service(service).await?;
                service.map_or_else(Vec::new, |service| Fact::in_effect(&service, reminder.at))
            }
        })
    }

    async fn tell_facts(&self, facts: Vec<Fact>) -> Result<()> {
        let agents: BTreeSet<_> = facts.iter().filter_map(Fact::agent_of_owner).collect();
        let owners = self.ledger.owners(&agents).await?;
        let mut events = Vec::new();
        for fact in facts {
            match fact.told(&self.source, |agent| owners.of(agent)) {
                Ok(event) => events.push(event),
                // An agent without an owner, which was set aside before.
                Err(error) => tracing::error!(cause = %error, "expiry.untold"),
            }
        }
        match self.bus.tell(&events).await {
            Told::All => Ok(()),
            // They are looked at again by the next run.
            Told::UpTo(_) => Err(Error::temporarily_unavailable(
                "telling what has happened",
                "the bus refuses",
            )),
        }
    }
}
