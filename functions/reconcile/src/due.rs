//! Reconciles the due holds: held payments whose authorization no later block can accept.
//!
//! Invariants: a run reads only due holds, oldest first. A hold that can be neither confirmed nor released is
//! postponed, so that it does not delay other holds.

use crate::{
    Inner,
    batch::{BATCH, Cause, ReconciledSettlement, is_held},
    part::Part,
    run::{Outcome, Step},
};
use purser_api::run_with_concurrency_limit;
use purser_domain::{AgentId, Duration, Error, FinalBlock, Result, SettlementId};
use purser_store::HeldSettlement;
use std::sync::Arc;
use tokio::time::Instant;

/// The number of index keys that one query reads.
const PAGE: u16 = 1_000;
/// The number of concurrent batches. Each batch waits for the node several times.
const MAX_CONCURRENT_BATCHES: usize = 4;

impl Inner {
    /// Reconciles the due holds of this share. The step fails if the ledger or the node is unreachable.
    pub(crate) async fn reconcile_due_holds(
        self: &Arc<Self>,
        part: Part,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Step {
        let (holds, mut step) = self.read_due_holds(part, block, deadline).await;
        let batches = holds.chunks(BATCH).map(|batch| {
            let (shared, batch, block) = (Arc::clone(self), batch.to_vec(), *block);
            async move { shared.reconcile_due_batch(&batch, &block, deadline).await }
        });
        let done = run_with_concurrency_limit(MAX_CONCURRENT_BATCHES, batches.collect::<Vec<_>>().into_iter()).await;
        // Results are missing if the task of a batch panicked.
        if done.len() < holds.len().div_ceil(BATCH) {
            step = step.mark_incomplete();
        }
        done.into_iter().fold(step, Step::combine)
    }

    /// Reads up to `self.most` due holds, oldest first. The step is incomplete if more holds are due.
    async fn read_due_holds(&self, part: Part, block: &FinalBlock, deadline: Instant) -> (Vec<HeldSettlement>, Step) {
        let partitions = part.index_partitions();
        let max = self.most.div_ceil(partitions.len().max(1));
        let (mut holds, mut step) = (Vec::new(), Step::new());
        for partition in partitions {
            // After the deadline, partitions are read only to count due holds, and not after a failure.
            if step.has_failed() && Instant::now() > deadline {
                break;
            }
            let (of_partition, read) = self.read_due_holds_of_partition(partition, max, block).await;
            holds.extend(of_partition);
            step = step.combine(read);
        }
        holds.sort_by_key(|held| held.due_at);
        if holds.len() > self.most {
            step = step.mark_incomplete();
        }
        holds.truncate(self.most);
        (holds, step)
    }

    /// Reads up to `max_rows` due holds of one partition. The step is incomplete if more holds are due.
    async fn read_due_holds_of_partition(
        &self,
        partition: u8,
        max_rows: usize,
        block: &FinalBlock,
    ) -> (Vec<HeldSettlement>, Step) {
        let (mut holds, mut step) = (Vec::new(), Step::new());
        let mut from = None;
        loop {
            // DynamoDB returns a cursor at the limit of a query, so only one more key shows that more holds are due.
            let wanted = max_rows.saturating_sub(holds.len()).saturating_add(1);
            let limit = u16::try_from(wanted).unwrap_or(PAGE).min(PAGE);
            let (page, next) = match self.ledger.read_due_holds(partition, block.at, from, limit).await {
                Ok(read) => read,
                Err(error) => return (holds, step.mark_failed(error)),
            };
            holds.extend(step.collect_rows_and_count_failures(page));
            from = next;
            if from.is_none() {
                return (holds, step);
            }
            if holds.len() >= max_rows {
                return (holds, step.mark_incomplete());
            }
        }
    }

    async fn reconcile_due_batch(
        self: &Arc<Self>,
        batch: &[HeldSettlement],
        block: &FinalBlock,
        deadline: Instant,
    ) -> Step {
        let not_begun = || {
            let waiting = batch.iter().map(|held| block.at.since(held.due_at));
            waiting.fold(Step::new().mark_incomplete(), Step::count_overdue_hold)
        };
        if Instant::now() > deadline {
            return not_begun();
        }
        let ids: Vec<(AgentId, SettlementId)> = batch.iter().map(|held| (held.agent, held.settlement)).collect();
        let found = match self.ledger.read_settlements_by_id(&ids).await {
            Ok(found) => found,
            Err(error) => return not_begun().mark_failed(error),
        };
        let mut step = Step::new();
        // The index may be outdated. A settlement that changed in the meantime is no longer due.
        let held = step
            .collect_rows_and_count_failures(found)
            .into_iter()
            .filter(is_held)
            .collect();
        let reconciled = self.reconcile_settlements(held, block, Cause::Due, deadline).await;
        for item in &reconciled {
            step = step.with_outcomes(&item.outcomes);
            if item.outcomes.last().is_none_or(|outcome| outcome.waits_for_chain()) {
                step = step.count_overdue_hold(block.at.since(item.settlement.terms.valid_before));
            }
        }
        let had_enough_time = Instant::now() <= deadline || !reconciled.iter().any(ReconciledSettlement::has_failed);
        if !had_enough_time {
            step = step.mark_incomplete();
        }
        match self.postpone_undecided_holds(&reconciled, block, had_enough_time).await {
            Ok(()) => step,
            Err(error) => step.mark_failed(error),
        }
    }

    /// Postpones the holds that could be neither confirmed nor released. If all chain calls failed before the deadline,
    /// reads the final block again, fails if this read fails, and postpones only holds without a derived nonce.
    async fn postpone_undecided_holds(
        &self,
        settlements: &[ReconciledSettlement],
        block: &FinalBlock,
        had_enough_time: bool,
    ) -> Result<()> {
        let node_failed = had_enough_time && have_all_chain_calls_failed(settlements);
        if node_failed {
            let now = self.chain.read_final_block().await;
            now.map_err(|error| Error::internal("reading the final block", error))?;
        }
        for item in settlements {
            if node_failed && item.has_nonce {
                continue;
            }
            let age = block.at.since(item.settlement.terms.valid_before);
            if let Some(pause) = item.outcomes.last().and_then(|last| retry_delay(*last, age)) {
                self.ledger
                    .postpone_hold(&item.settlement, block.at.after(pause))
                    .await?;
            }
        }
        Ok(())
    }
}

fn have_all_chain_calls_failed(settlements: &[ReconciledSettlement]) -> bool {
    let mut request = settlements.iter().filter(|item| item.has_nonce).peekable();
    request.peek().is_some() && request.all(ReconciledSettlement::has_failed)
}

/// Returns how long a hold with this outcome is postponed. The delay grows with the hold's `age`.
fn retry_delay(outcome: Outcome, age: Duration) -> Option<Duration> {
    match outcome {
        Outcome::Failed => Some(MINUTE),
        Outcome::Untraced | Outcome::Contradicted => Some(age.max(MINUTE).min(Duration::DAY)),
        Outcome::Confirmed
        | Outcome::Released
        | Outcome::ConfirmationReverted
        | Outcome::BlockChanged
        | Outcome::NotYet
        | Outcome::Unchanged
        | Outcome::Superseded => None,
    }
}

const MINUTE: Duration = Duration::from_secs_u32(60);
