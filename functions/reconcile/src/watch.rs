//! Checks each block that confirmed payments a second time, when the block is `watch` blocks deep. If another block has
//! replaced it, each confirmation in the replaced block is reconciled again.
//!
//! Invariants:
//!
//! - Blocks are checked in order. The checkpoint advances past a block only if the block is still on the chain, or
//!   after the block's confirmations are reconciled, so no block is left out if a run ends early.
//! - A claim is removed only after no settlement depends on the claim.
//! - A confirmation that is unreadable or contradicts the chain is reported, and stays until an operator acts.

use crate::{
    Inner,
    batch::{Cause, ReconciledSettlement},
    run::{Outcome, Step},
};
use purser_api::run_with_concurrency_limit;
use purser_chain::ChainError;
use purser_domain::{AgentId, BlockId, Error, FinalBlock, Result, Settlement, SettlementId, SettlementState};
use purser_store::StoredClaim;
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};
use tokio::time::Instant;

const CHECKING: &str = "checking a block again";

/// The number of blocks whose claims are read concurrently.
const MAX_CONCURRENT_BLOCKS: usize = 32;
/// The number of concurrent calls to the node.
const MAX_CONCURRENT_CALLS: usize = 8;

/// The claims on transactions in block `number`, and the block that the chain now has at this height. A claim
/// is a row that reserves a transaction, or one transfer in the transaction, for a settlement.
struct BlockClaims {
    number: u64,
    claims: Vec<StoredClaim>,
    on_chain: Result<Option<BlockId>, ChainError>,
}

/// What happened to a confirmation whose block is no longer on the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsupportedResult {
    /// The confirmation was reverted or moved to another block. The claim in the old block can be removed.
    Ended,
    /// The settlement stays confirmed, and the problem was reported.
    Kept,
    /// It is unknown whether the settlement is still confirmed. The next run checks the settlement again.
    Open,
}

impl Inner {
    /// Checks whether the blocks that reached the depth `watch` since the last run are still on the chain.
    pub(crate) async fn recheck_blocks_at_watch_depth(self: &Arc<Self>, block: &FinalBlock, deadline: Instant) -> Step {
        // The number of blocks from the final block (depth `confirmations`) down to the depth `watch`.
        let below = self.watch.saturating_sub(self.confirmations);
        let Some(deep) = block.number.checked_sub(below) else {
            return Step::new();
        };
        let checked = match self.ledger.read_last_checked_block_number().await {
            Ok(Some(checked)) => checked,
            // The first run of a deployment starts at this block. Earlier confirmations are not checked again.
            Ok(None) => return self.save_checked_block(Step::new(), deep).await,
            Err(error) => return Step::new().mark_failed(error),
        };
        let mut step = Step::new();
        let mut first = checked.saturating_add(1);
        while first <= deep && Instant::now() <= deadline {
            let max = u64::try_from(MAX_CONCURRENT_BLOCKS.saturating_sub(1)).unwrap_or(u64::MAX);
            let last = first.saturating_add(max).min(deep);
            let claimed = match self.load_claims(first, last).await {
                Ok(claimed) => claimed,
                Err(error) => return step.mark_failed(error),
            };
            for claimed in claimed {
                let below = claimed.number.saturating_sub(1);
                step = step.combine(self.reconcile_if_block_replaced(claimed, block, deadline).await);
                if !step.is_complete() {
                    // The next run starts at this block, so the checks progress even if the node allows few calls per
                    // minute.
                    return self.save_checked_block(step, below).await;
                }
            }
            step = self.save_checked_block(step, last).await;
            if !step.is_complete() {
                return step;
            }
            first = last.saturating_add(1);
        }
        if first > deep { step } else { step.mark_incomplete() }
    }

    /// Stores the number of the last checked block. Marks the step as failed if the write fails.
    async fn save_checked_block(&self, step: Step, number: u64) -> Step {
        match self.ledger.save_checked_block(number).await {
            Ok(()) => step,
            Err(error) => step.mark_failed(error),
        }
    }

    /// Reads the blocks with claims, in order.
    async fn load_claims(self: &Arc<Self>, first: u64, last: u64) -> Result<Vec<BlockClaims>> {
        let reads = (first..=last).map(|number| {
            let shared = Arc::clone(self);
            async move { (number, shared.ledger.read_claims_in_block(shared.network, number).await) }
        });
        let blocks = usize::try_from(last.saturating_sub(first).saturating_add(1)).unwrap_or(usize::MAX);
        let read = run_concurrently(MAX_CONCURRENT_BLOCKS, blocks, reads).await?;
        let mut claims = Vec::new();
        for (number, of_block) in read {
            let of_block = of_block?;
            if !of_block.is_empty() {
                claims.push((number, of_block));
            }
        }
        let count = claims.len();
        let looks = claims.into_iter().map(|(number, claims)| {
            let shared = Arc::clone(self);
            async move {
                let on_chain = shared.chain.read_block_id(number).await;
                BlockClaims {
                    number,
                    claims,
                    on_chain,
                }
            }
        });
        let mut claimed = run_concurrently(MAX_CONCURRENT_CALLS, count, looks).await?;
        claimed.sort_by_key(|claimed| claimed.number);
        Ok(claimed)
    }

    async fn reconcile_if_block_replaced(
        self: &Arc<Self>,
        block_claims: BlockClaims,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Step {
        let BlockClaims {
            number,
            claims,
            on_chain,
        } = block_claims;
        let mut step = Step::new();
        let on_chain = match on_chain {
            Ok(Some(on_chain)) => on_chain,
            Ok(None) => return step.mark_failed(Error::internal(CHECKING, "the node does not have the block")),
            Err(error) => return step.mark_failed(Error::internal(CHECKING, error)),
        };
        let gone: Vec<StoredClaim> = claims
            .into_iter()
            .filter(|claim| claim.block_hash != on_chain.hash)
            .collect();
        if gone.is_empty() {
            return step;
        }
        if Instant::now() > deadline {
            return step.mark_incomplete();
        }
        // A settlement may have two claims in a block, but is reconciled once.
        let ids: BTreeSet<(AgentId, SettlementId)> = gone.iter().map(|claim| (claim.agent, claim.settlement)).collect();
        let found = match self
            .ledger
            .read_settlements_by_id(&ids.into_iter().collect::<Vec<_>>())
            .await
        {
            Ok(found) => step.collect_rows_and_count_failures(found),
            Err(error) => return step.mark_failed(error),
        };
        let (settlements, others): (Vec<Settlement>, Vec<Settlement>) = found
            .into_iter()
            .partition(|settlement| is_confirmed_by_claims(settlement, number, &gone));
        // The settlements whose claims in the replaced block can be removed.
        let mut ended: HashSet<SettlementId> = others.iter().map(Settlement::id).collect();
        let count = settlements.len();
        let reconciled = self
            .reconcile_settlements(settlements, block, Cause::Reorganized, deadline)
            .await;
        let mut are_done = reconciled.len() == count;
        for item in &reconciled {
            step = step.with_outcomes(&item.outcomes);
            match classify_confirmation_after_reorg(item) {
                UnsupportedResult::Ended => {
                    ended.insert(item.settlement.id());
                }
                UnsupportedResult::Kept => {}
                UnsupportedResult::Open => are_done = false,
            }
        }
        for claim in gone.iter().filter(|claim| ended.contains(&claim.settlement)) {
            match self.ledger.try_remove_claim(claim).await {
                // The claim stays if it confirms the settlement again. The next run then rechecks the block.
                Ok(is_removed) => are_done &= is_removed,
                Err(error) => return step.mark_failed(error),
            }
        }
        if are_done {
            return step;
        }
        let message = "a confirmation in the block could not be reconciled";
        step.mark_failed(Error::internal(CHECKING, message))
    }
}

/// Runs all futures, at most `max_concurrent` at a time, and returns their results. Fails if a future panicked.
pub(crate) async fn run_concurrently<T: Send + 'static>(
    max_concurrent: usize,
    future_count: usize,
    work: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Result<Vec<T>> {
    let done = run_with_concurrency_limit(max_concurrent, work).await;
    if done.len() == future_count {
        return Ok(done);
    }
    Err(Error::internal(
        "reading blocks and claims",
        "a concurrent read panicked",
    ))
}

/// Classifies what happened to a confirmation whose block was replaced.
fn classify_confirmation_after_reorg(settlement: &ReconciledSettlement) -> UnsupportedResult {
    // The settlement is held again and is reconciled like any other hold.
    if settlement.outcomes.contains(&Outcome::ConfirmationReverted) {
        return UnsupportedResult::Ended;
    }
    match settlement.outcomes.last() {
        Some(Outcome::BlockChanged) => UnsupportedResult::Ended,
        Some(Outcome::Contradicted) => UnsupportedResult::Kept,
        Some(
            Outcome::Confirmed
            | Outcome::Released
            | Outcome::ConfirmationReverted
            | Outcome::NotYet
            | Outcome::Unchanged
            | Outcome::Superseded
            | Outcome::Untraced
            | Outcome::Failed,
        )
        | None => UnsupportedResult::Open,
    }
}

/// Returns whether one of these claims still confirms the settlement. Otherwise, another block confirms it.
fn is_confirmed_by_claims(settlement: &Settlement, claimed_block_number: u64, claims: &[StoredClaim]) -> bool {
    let SettlementState::Confirmed {
        tx_hash, block_number, ..
    } = settlement.state
    else {
        return false;
    };
    let is_it = |claim: &StoredClaim| claim.settlement == settlement.id() && claim.tx_hash == tx_hash;
    block_number == claimed_block_number && claims.iter().any(is_it)
}
