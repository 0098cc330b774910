//! Approvals that have expired: no write says so, so they are looked for each minute.

use crate::{Shared, bus::Told};
use purser_domain::{Error, Result};
use purser_store::Fact;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

/// How many approvals are looked at before they are told.
const AT_ONCE: u32 = 50;
/// What is left of the time for the last of them.
const LAST: Duration = Duration::from_secs(10);

impl Shared {
    /// Tells of the approvals that have expired unused, by their rows, oldest first, as long as there is time.
    pub(crate) async fn sweep(&self, time_left: Duration) -> Result<()> {
        let now = self.clock.now();
        let began = Instant::now();
        let until = began.checked_add(time_left.saturating_sub(LAST)).unwrap_or(began);
        loop {
            let expiries = self.usage.expiries(now, AT_ONCE).await?;
            let (mut facts, mut seen, mut failure) = (Vec::new(), Vec::new(), None);
            for expiry in &expiries {
                // Its row alone says whether it was used. One that is gone tells nothing; one that can't be read holds up
                // no other, and is looked at again.
                match self.ledger.approval(expiry.approval).await {
                    Ok(approval) => {
                        facts.extend(approval.and_then(|approval| Fact::expired(&approval, now)));
                        seen.push(*expiry);
                    }
                    Err(error) => failure = Some(error),
                }
            }
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
                Told::All => {}
                // They are looked at again by the next run.
                Told::UpTo(_) => {
                    return Err(Error::temporarily_unavailable(
                        "telling of approvals",
                        "the bus refuses",
                    ));
                }
            }
            for expiry in seen {
                self.usage.forget_expiry(expiry).await?;
            }
            if let Some(error) = failure {
                return Err(error);
            }
            if expiries.is_empty() || Instant::now() >= until {
                return Ok(());
            }
        }
    }
}
