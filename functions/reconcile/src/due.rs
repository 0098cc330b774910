//! Reconciles the due holds. A hold is due when no later block can accept its authorization, so that the chain's
//! current state decides about the hold.
//!
//! Invariants: a hold that is not due causes no read. The hold that has been due for the longest time comes first. An
//! interrupted run leaves the remaining holds to the next run. A hold that can't be decided is postponed, so that it
//! delays no other hold.

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
    /// Reconciles the due holds in this part of the index. The step fails if the ledger or the node could not be
    /// reached. An error that concerns a single hold does not fail the step.
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

    /// Reads the due holds, the longest due first. If there are more due holds, the step is incomplete. An unreadable
    /// partition does not affect other partitions.
    async fn read_due_holds(&self, part: Part, block: &FinalBlock, deadline: Instant) -> (Vec<HeldSettlement>, Step) {
        let partitions = part.index_partitions();
        let max = self.most.div_ceil(partitions.len().max(1));
        let (mut holds, mut step) = (Vec::new(), Step::new());
        for partition in partitions {
            // The run counts the due holds even after the deadline. If a query has also failed, the run reads no
            // further partition.
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

    /// Reads up to `max_rows` due holds of one partition. If there are more, the step is incomplete.
    async fn read_due_holds_of_partition(
        &self,
        partition: u8,
        max_rows: usize,
        block: &FinalBlock,
    ) -> (Vec<HeldSettlement>, Step) {
        let (mut holds, mut step) = (Vec::new(), Step::new());
        let mut from = None;
        loop {
            // One key more than needed is read. DynamoDB returns a cursor whenever a query reaches its limit, so only a
            // further key shows that the list is incomplete.
            let wanted = max_rows.saturating_sub(holds.len()).saturating_add(1);
            let limit = u16::try_from(wanted).unwrap_or(PAGE).min(PAGE);
            let (page, next) = match self.ledger.read_due_holds(partition, block.at, from, limit).await {
                Ok(read) => read,
                Err(error) => return (holds, step.mark_failed(error)),
            };
            holds.extend(step.collect_readable(page));
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
        // The index may be outdated: a settlement that changed in the meantime is no longer due.
        let held = step.collect_readable(found).into_iter().filter(is_held).collect();
        let reconciled = self.reconcile_settlements(held, block, Cause::Due, deadline).await;
        for item in &reconciled {
            step = step.with_outcomes(&item.outcomes);
            if item.outcomes.last().is_none_or(|outcome| outcome.waits_for_chain()) {
                step = step.count_overdue_hold(block.at.since(item.settlement.terms.valid_before));
            }
        }
        let in_time = Instant::now() <= deadline || !reconciled.iter().any(ReconciledSettlement::has_failed);
        if !in_time {
            step = step.mark_incomplete();
        }
        match self.postpone_undecided_holds(&reconciled, block, in_time).await {
            Ok(()) => step,
            Err(error) => step.mark_failed(error),
        }
    }

    /// Postpones holds that could not be decided. If the chain calls were made in time (`in_time`) and none succeeded,
    /// the node has failed. In that case no hold is postponed, and the run ends if the node still fails.
    async fn postpone_undecided_holds(
        &self,
        settlements: &[ReconciledSettlement],
        block: &FinalBlock,
        in_time: bool,
    ) -> Result<()> {
        let node_failed = in_time && has_node_failed(settlements);
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

/// Whether chain calls were made and no call got a response.
fn has_node_failed(settlements: &[ReconciledSettlement]) -> bool {
    let mut request = settlements.iter().filter(|item| item.has_nonce).peekable();
    request.peek().is_some() && request.all(ReconciledSettlement::has_failed)
}

/// Returns how long a hold with this outcome is postponed. `age` is how long the hold has been due. The delay grows
/// while the chain does not explain what happened to the payment.
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
