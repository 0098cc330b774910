//! The holds that are due: their authorization can't be used in any later block, so the chain decides each.
//!
//! Always true: what is not due costs nothing; the longest due come first; a run that ends early, for whatever reason,
//! leaves the rest due for the next one; and what could not be decided is put off, so that it holds up nobody else's.

use crate::{
    Shared,
    batch::{BATCH, Cause, Reconciled, is_held},
    part::Part,
    run::{Outcome, Run},
};
use purser_api::at_most;
use purser_domain::{AgentId, Duration, Error, FinalBlock, Result, SettlementId};
use purser_store::Held;
use std::sync::Arc;
use tokio::time::Instant;

/// How many keys of the index one query reads.
const PAGE: u16 = 1_000;
/// How many batches go side by side: each waits for the node several times.
const BATCHES_AT_ONCE: usize = 4;

/// What a batch came to.
struct BatchRun {
    /// Those that were not begun: time was up, or the ledger could not be read.
    left: Vec<Held>,
    reconciled: Vec<Reconciled>,
    /// How many settlements could not be read.
    unreadable: usize,
    /// Whether the chain was asked about all of them.
    in_time: bool,
    /// Whether it failed for a reason that is nobody's hold in particular.
    error: Option<Error>,
}

/// The holds that are due, as far as they could be read.
struct DueHolds {
    holds: Vec<Held>,
    all: bool,
    /// Why a partition could not be read.
    error: Option<Error>,
}

impl Shared {
    /// Reconciles what is due of this part. An error means that the ledger or the node could not be asked about some of
    /// it, for a reason that is nobody's hold in particular.
    pub(crate) async fn due(
        self: &Arc<Self>,
        part: Part,
        block: &FinalBlock,
        until: Instant,
        run: &mut Run,
    ) -> Result<()> {
        let DueHolds { holds, all, error } = self.due_holds(part, block, until, run).await;
        let batches = holds.chunks(BATCH).map(|batch| {
            let (shared, batch, block) = (Arc::clone(self), batch.to_vec(), *block);
            async move { shared.due_batch(&batch, &block, until).await }
        });
        let done = at_most(BATCHES_AT_ONCE, batches.collect::<Vec<_>>().into_iter()).await;
        run.is_complete = all && done.len() == holds.len().div_ceil(BATCH);
        let mut failed = error;
        for batch in done {
            for _ in 0..batch.unreadable {
                run.note(Outcome::Failed);
            }
            for held in &batch.left {
                run.is_complete = false;
                run.waits(block.at.since(held.due_at));
            }
            run.is_complete &= batch.in_time;
            for reconciled in &batch.reconciled {
                reconciled.outcomes.iter().for_each(|outcome| run.note(*outcome));
                if reconciled.outcomes.last().is_none_or(|outcome| outcome.waits()) {
                    run.waits(block.at.since(reconciled.settlement.terms.valid_before));
                }
            }
            failed = failed.or(batch.error);
        }
        failed.map_or(Ok(()), Err)
    }

    /// The holds that are due, the longest due first, and whether these are all. A partition that can't be read leaves
    /// the others.
    async fn due_holds(&self, part: Part, block: &FinalBlock, until: Instant, run: &mut Run) -> DueHolds {
        let partitions = part.partitions();
        let most = self.most.div_ceil(partitions.len().max(1));
        let mut due = DueHolds {
            holds: Vec::new(),
            all: true,
            error: None,
        };
        for partition in partitions {
            // What is due is told even by a run without time; but a table that fails is not asked again and again.
            if due.error.is_some() && Instant::now() > until {
                break;
            }
            let mut of_this = Vec::new();
            match self.due_in(partition, most, block, &mut of_this, run).await {
                Ok(all) => due.all &= all,
                Err(error) => {
                    due.all = false;
                    due.error = due.error.or(Some(error));
                }
            }
            due.holds.append(&mut of_this);
        }
        due.holds.sort_by_key(|held| held.due_at);
        due.all &= due.holds.len() <= self.most;
        due.holds.truncate(self.most);
        due
    }

    /// Reads what is due in one partition, until it is so many; whether that is all.
    async fn due_in(
        &self,
        partition: u8,
        most: usize,
        block: &FinalBlock,
        holds: &mut Vec<Held>,
        run: &mut Run,
    ) -> Result<bool> {
        let mut from = None;
        loop {
            // One more, which tells whether these are all: a query that returns its limit names a next position.
            let left = most.saturating_sub(holds.len()).saturating_add(1);
            let limit = u16::try_from(left).unwrap_or(PAGE).min(PAGE);
            let (page, next) = self.ledger.due(partition, block.at, from, limit).await?;
            for held in page {
                match held {
                    Ok(held) => holds.push(held),
                    Err(error) => unreadable(run, &error),
                }
            }
            from = next;
            if from.is_none() || holds.len() >= most {
                return Ok(from.is_none());
            }
        }
    }

    async fn due_batch(self: &Arc<Self>, batch: &[Held], block: &FinalBlock, until: Instant) -> BatchRun {
        let mut run = BatchRun {
            left: batch.to_vec(),
            reconciled: Vec::new(),
            unreadable: 0,
            in_time: true,
            error: None,
        };
        let wanted: Vec<(AgentId, SettlementId)> = batch.iter().map(|held| (held.agent, held.settlement)).collect();
        if Instant::now() > until {
            return run;
        }
        let settlements = match self.ledger.settlements_of(&wanted).await {
            Ok(settlements) => settlements,
            Err(error) => {
                run.error = Some(error);
                return run;
            }
        };
        run.left.clear();
        let mut held = Vec::new();
        for settlement in settlements {
            match settlement {
                // The index may lag: one that has changed is no longer due.
                Ok(settlement) if is_held(&settlement) => held.push(settlement),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(cause = %error, "reconcile.failed");
                    run.unreadable = run.unreadable.saturating_add(1);
                }
            }
        }
        run.reconciled = self.reconcile(held, block, Cause::Due, until).await;
        run.in_time = Instant::now() <= until || !run.reconciled.iter().any(Reconciled::has_failed);
        run.error = self.after(&run.reconciled, block, run.in_time).await.err();
        run
    }

    /// Puts off what could not be decided. If that is all that the chain was asked about, `in_time`, the node is to
    /// blame, and none of these is put off; if it is down, the run ends.
    async fn after(&self, reconciled: &[Reconciled], block: &FinalBlock, in_time: bool) -> Result<()> {
        let node_failed = in_time && node_failed(reconciled);
        if node_failed {
            let now = self.chain.final_block().await;
            now.map_err(|error| Error::internal("asking after the chain", error))?;
        }
        for one in reconciled {
            if node_failed && one.has_nonce {
                continue;
            }
            let overdue = block.at.since(one.settlement.terms.valid_before);
            if let Some(pause) = one.outcomes.last().and_then(|last| pause(*last, overdue)) {
                self.ledger.put_off(&one.settlement, block.at.after(pause)).await?;
            }
        }
        Ok(())
    }
}

/// Whether the chain was asked, and could say nothing of anything.
fn node_failed(reconciled: &[Reconciled]) -> bool {
    let mut asked = reconciled.iter().filter(|one| one.has_nonce).peekable();
    asked.peek().is_some() && asked.all(Reconciled::has_failed)
}

/// For how long to put off a hold with this outcome that is so long overdue. What the chain does not explain is looked at
/// ever more rarely.
fn pause(outcome: Outcome, overdue: Duration) -> Option<Duration> {
    match outcome {
        Outcome::Failed => Some(A_MINUTE),
        Outcome::Untraced | Outcome::Contradicted => Some(overdue.max(A_MINUTE).min(Duration::DAY)),
        Outcome::Confirmed
        | Outcome::Released
        | Outcome::ConfirmationReverted
        | Outcome::BlockChanged
        | Outcome::NotYet
        | Outcome::Unchanged
        | Outcome::Superseded => None,
    }
}

const A_MINUTE: Duration = Duration::from_secs_u32(60);

/// Notes a row that can't be read.
pub(crate) fn unreadable(run: &mut Run, error: &Error) {
    tracing::error!(cause = %error, "reconcile.failed");
    run.note(Outcome::Failed);
}
