//! The sweep: reconcile requests first, then the holds in the index, from where the last run stopped to the end and
//! then from the beginning.
//!
//! Always true: a run reconciles no settlement twice; where a run stops, nothing before that place was left out, so the
//! next one continues there; and nothing is started that could not finish in time.

use crate::{Shared, run::Outcome, run::Run};
use purser_api::at_most;
use purser_domain::{AgentId, Error, FinalBlock, Result, Settlement, SettlementId, SettlementState, Timestamp};
use purser_store::{Held, IndexKey, ReconcileRequest, ScanCursor};
use std::{collections::HashMap, collections::HashSet, sync::Arc};
use tokio::time::Instant;

/// How many keys of the index are read at a time: as many rows as one `BatchGetItem` reads.
const PAGE: u8 = 100;
/// How many settlements are reconciled concurrently: what a hosted node allows one client.
const AT_ONCE: usize = 8;

pub(crate) struct Sweep {
    shared: Arc<Shared>,
    block: FinalBlock,
    /// What starts later might not finish in time.
    last_start: Instant,
    seen: HashSet<SettlementId>,
    /// How many settlements may still be reconciled.
    room: usize,
    run: Run,
}

/// How much of a page was reconciled.
enum Looked {
    /// All of it.
    All,
    /// Up to this position; `None` is the start of the index.
    UpTo(Option<ScanCursor>),
}

impl Sweep {
    pub(crate) fn new(shared: Arc<Shared>, block: FinalBlock, last_start: Instant) -> Self {
        Self {
            room: shared.most,
            shared,
            block,
            last_start,
            seen: HashSet::new(),
            run: Run::new(),
        }
    }

    /// Reconciles everything that is due, within its limits.
    pub(crate) async fn run(mut self) -> (Run, Result<()>) {
        if let Err(error) = self.marked().await {
            tracing::error!(cause = %error, "reconcile.marks_failed");
        }
        let gone = self.held().await;
        (self.run, gone)
    }

    /// The reconcile requests, for settlements in any state.
    async fn marked(&mut self) -> Result<()> {
        let marks = self.shared.ledger.reconcile_requests().await?;
        if marks.is_empty() {
            return Ok(());
        }
        let wanted: Vec<(AgentId, SettlementId)> = marks.iter().map(|mark| (mark.agent, mark.settlement)).collect();
        let mut settlements = self.settlements(&wanted).await?;
        let (there, gone): (Vec<ReconcileRequest>, Vec<ReconcileRequest>) = marks
            .into_iter()
            .partition(|mark| settlements.contains_key(&mark.settlement));
        let wanted = there.iter().filter_map(|mark| settlements.remove(&mark.settlement));
        let looks = self.reconcile_all(wanted.collect()).await;
        let done = there.into_iter().zip(looks);
        let done = done.filter(|(_, outcomes)| !outcomes.contains(&Outcome::Failed));
        for mark in done.map(|(mark, _)| mark).chain(gone) {
            self.shared.ledger.clear_reconcile_request(&mark).await?;
        }
        Ok(())
    }

    /// The holds in the index.
    async fn held(&mut self) -> Result<()> {
        let began = self.shared.ledger.scan_cursor().await?;
        let mut from = began.clone();
        let mut from_the_beginning = began.is_none();
        let stopped = loop {
            let (page, next) = self.shared.ledger.holds(from.as_ref(), PAGE).await?;
            if let Looked::UpTo(stopped) = self.page(page, from.as_ref()).await? {
                break stopped;
            }
            from = next;
            if from.is_none() && from_the_beginning {
                self.run.is_complete = true;
                break None;
            }
            from_the_beginning |= from.is_none();
        };
        if stopped != began {
            self.shared.ledger.save_scan_cursor(stopped.as_ref()).await?;
        }
        Ok(())
    }

    /// Reconciles the holds of one page of the index.
    async fn page(&mut self, page: Vec<Result<Held>>, start: Option<&ScanCursor>) -> Result<Looked> {
        let mut wanted = Vec::new();
        for held in page {
            match held {
                Ok(held) if self.is_due(&held) => wanted.push(held),
                Ok(_) => {}
                Err(error) => self.unreadable(&error),
            }
        }
        let keys: Vec<(AgentId, SettlementId)> = wanted.iter().map(|held| (held.agent, held.settlement)).collect();
        let mut settlements = self.settlements(&keys).await?;
        // The index may lag: a settlement that has changed is no longer due.
        wanted.retain(|held| {
            let settlement = settlements.get(&held.settlement);
            settlement.is_some_and(|settlement| self.is_open(settlement))
        });
        let rows = wanted.iter().filter_map(|held| settlements.remove(&held.settlement));
        let looks = self.reconcile_all(rows.collect()).await;
        for (index, held) in wanted.iter().enumerate() {
            let last = looks.get(index).and_then(|outcomes| outcomes.last());
            if let IndexKey::Held(valid_before) = held.place
                && last.is_none_or(|outcome| outcome.waits())
            {
                self.waits_since(valid_before);
            }
        }
        self.ask_after(&looks).await?;
        if looks.len() >= wanted.len() {
            return Ok(Looked::All);
        }
        let last = looks.len().checked_sub(1).and_then(|last| wanted.get(last));
        let stopped = last.map_or(start, |held| Some(held.position()));
        Ok(Looked::UpTo(stopped.cloned()))
    }

    /// Whether reconciling may change it, by the index.
    fn is_due(&self, held: &Held) -> bool {
        let may_move = match held.place {
            IndexKey::Held(_) => true,
            IndexKey::Watched(block_number) => self.shared.is_deep(block_number, &self.block),
        };
        may_move && !self.seen.contains(&held.settlement)
    }

    /// The same, by the settlement itself.
    fn is_open(&self, settlement: &Settlement) -> bool {
        match settlement.state {
            SettlementState::Authorized => true,
            SettlementState::Confirmed { block_number, .. } => self.shared.is_deep(block_number, &self.block),
            SettlementState::Expired => false,
        }
    }

    /// The settlements that exist and can be read.
    async fn settlements(&mut self, wanted: &[(AgentId, SettlementId)]) -> Result<HashMap<SettlementId, Settlement>> {
        let mut settlements = HashMap::new();
        if wanted.is_empty() {
            return Ok(settlements);
        }
        for settlement in self.shared.ledger.settlements_of(wanted).await? {
            match settlement {
                Ok(settlement) => {
                    settlements.insert(settlement.id(), settlement);
                }
                Err(error) => self.unreadable(&error),
            }
        }
        Ok(settlements)
    }

    /// Reconciles these in order, as many as time and limit allow. Returns all outcomes of each that was started.
    async fn reconcile_all(&mut self, settlements: Vec<Settlement>) -> Vec<Vec<Outcome>> {
        let (count, block, last_start) = (settlements.len().min(self.room), self.block, self.last_start);
        let looks = settlements
            .into_iter()
            .take(count)
            .enumerate()
            .map(|(index, settlement)| {
                let shared = Arc::clone(&self.shared);
                async move {
                    let id = settlement.id();
                    let outcomes = if Instant::now() <= last_start {
                        Some(shared.reconcile_one(settlement, &block).await)
                    } else {
                        None
                    };
                    (index, id, outcomes)
                }
            });
        // One that panicked returns no outcomes, so it counts as failed.
        let mut begun: Vec<Option<Vec<Outcome>>> = vec![Some(vec![Outcome::Failed]); count];
        for (index, id, outcomes) in at_most(AT_ONCE, looks).await {
            if outcomes.is_some() {
                self.seen.insert(id);
            }
            if let Some(slot) = begun.get_mut(index) {
                *slot = outcomes;
            }
        }
        // They start in order, so nothing after the first that was not started was started either.
        let begun: Vec<Vec<Outcome>> = begun.into_iter().map_while(|outcomes| outcomes).collect();
        self.room = self.room.saturating_sub(begun.len());
        for outcome in begun.iter().flatten() {
            self.run.note(*outcome);
        }
        begun
    }

    /// If all of a page failed, the node may be down: then this run ends.
    async fn ask_after(&self, looks: &[Vec<Outcome>]) -> Result<()> {
        let failed = |outcomes: &Vec<Outcome>| outcomes.contains(&Outcome::Failed);
        if looks.is_empty() || !looks.iter().all(failed) {
            return Ok(());
        }
        let block = self.shared.chain.final_block().await;
        block
            .map(|_| ())
            .map_err(|error| Error::internal("asking after the chain", error))
    }

    fn waits_since(&mut self, valid_before: Timestamp) {
        self.run.lag = self.run.lag.max(self.block.at.since(valid_before));
    }

    fn unreadable(&mut self, error: &Error) {
        tracing::error!(cause = %error, "reconcile.failed");
        self.run.note(Outcome::Failed);
    }
}
