//! The due holds: their authorization can't be used in any later block, so the chain decides each.
//!
//! Invariants: a hold that is not due costs nothing; the longest due hold comes first; a run that ends early leaves
//! the rest to the next run; an undecided hold is put off, so that it delays no other.

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

/// The number of index keys that one query reads.
const PAGE: u16 = 1_000;
/// The number of concurrent batches: each waits for the node several times.
const BATCHES_AT_ONCE: usize = 4;

/// The result of a batch.
struct BatchRun {
    /// The holds that were not begun, because time was up or the ledger could not be read.
    left: Vec<Held>,
    reconciled: Vec<Reconciled>,
    /// The number of unreadable settlements.
    unreadable: usize,
    /// Whether the chain was asked about all of them.
    in_time: bool,
    /// Whether it failed for a reason that is not specific to a hold.
    error: Option<Error>,
}

/// The due holds, as far as they could be read.
struct DueHolds {
    holds: Vec<Held>,
    all: bool,
    /// The reason that a partition could not be read.
    error: Option<Error>,
}

impl Shared {
    /// Reconciles the due holds of this part. An error means that the ledger or the node could not be asked about some
    /// of them, for a reason that is not specific to a hold.
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

    /// The due holds, the longest due first, and whether the list is complete. An unreadable partition does not affect
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
            // Even a run without time reports the due holds, but it does not repeat a query that fails.
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

    /// Reads up to `most` due holds of one partition; returns whether the partition is exhausted.
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
            // One more than wanted shows whether the list is complete: a query that returns its limit always names a
            // next position.
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
                // The index may lag behind: a settlement that has changed is no longer due.
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

    /// Puts off undecided holds. If the chain was asked about nothing else (`in_time`), the fault is the node's and
    /// none is put off; if the node is down, the run ends.
    async fn after(&self, reconciled: &[Reconciled], block: &FinalBlock, in_time: bool) -> Result<()> {
        let node_failed = in_time && node_failed(reconciled);
        if node_failed {
            let now = self.chain.final_block().await;
            now.map_err(|error| Error::internal("reading the final block", error))?;
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

/// Whether the chain was asked and gave no answer about anything.
fn node_failed(reconciled: &[Reconciled]) -> bool {
    let mut asked = reconciled.iter().filter(|one| one.has_nonce).peekable();
    asked.peek().is_some() && asked.all(Reconciled::has_failed)
}

/// The delay for a hold with this outcome that has been due for `overdue`. The delay grows for a hold that the chain
/// does not explain.
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

/// Logs and counts an unreadable row.
pub(crate) fn unreadable(run: &mut Run, error: &Error) {
    tracing::error!(cause = %error, "reconcile.failed");
    run.note(Outcome::Failed);
}
