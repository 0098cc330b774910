//! Reads the state of EIP-3009 authorizations at the final block: unused, or used by a transaction. Many authorizations
//! are read in one batch, because a batch takes only a few calls to the node.
//!
//! Invariants:
//!
//! - A transaction counts only in the final block or in an ancestor of the final block.
//! - Zero-value transfers can't hide a payment: if a block has too many transfers, the receipt is read instead.
//!
//! [`purser_domain::reconcile`] decides what happens for each state.

use crate::{
    Chain, ChainError,
    logs::{Filter, FoundLog, FoundLogs},
    multicall::{MAX_CALLS, MAX_CALLS_PER_BATCH, MAX_CONCURRENT_CALLS},
};
use alloy::primitives::B256;
use futures_util::future::join_all;
use purser_domain::{
    AUTHORIZATION_CANCELED, AUTHORIZATION_USED, AuthorizationState, BlockId, Duration, ExpectedTransfer, FinalBlock,
    Settlement, TRANSFER, Timestamp, TxHash,
};
use std::collections::{HashMap, VecDeque};
use tokio::time::Instant;

/// How far before `authorized_at` the search for `AuthorizationUsed` events begins. The clock that set `authorized_at`
/// may have been ahead.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs_u32(3_600);
/// The maximum number of `eth_getLogs` searches per batch of authorizations. With 1,000 blocks per search, these
/// searches cover nine days of the chain Base; with ten blocks, the limit of some hosted nodes, two hours.
const MAX_SEARCHES: u32 = 400;

/// The number of rejected `eth_getLogs` calls after which transfers are read from receipts. Halving 500 payments nine
/// times leaves one payment.
const MAX_REFUSED: usize = 9;

/// An authorization to look up on chain.
#[derive(Clone, Copy, Debug)]
pub struct Authorization {
    /// The transfer that uses the authorization.
    pub expected: ExpectedTransfer,
    /// The time at which the payment was authorized.
    pub authorized_at: Timestamp,
    /// The EIP-3009 `validBefore`: the chain accepts the authorization only in earlier blocks.
    pub valid_before: Timestamp,
}

impl Authorization {
    /// Creates the authorization of a settlement's transfer with this nonce.
    pub const fn for_settlement(settlement: &Settlement, nonce: B256) -> Self {
        let terms = &settlement.terms;
        Self {
            expected: ExpectedTransfer::new(terms, nonce),
            authorized_at: terms.authorized_at,
            valid_before: terms.valid_before,
        }
    }

    fn map_key(&self) -> Name {
        (self.expected.from.into_word(), self.expected.nonce)
    }
}

type Name = (B256, B256);

impl Chain {
    /// Reads the state of each authorization at `block`. `log_range` is the maximum number of blocks per `eth_getLogs`
    /// call.
    ///
    /// A state is `None` if the node did not respond or if `deadline` passed.
    pub async fn read_authorization_states(
        &self,
        authorizations: &[Authorization],
        block: &FinalBlock,
        log_range: u64,
        deadline: Instant,
    ) -> Vec<Option<AuthorizationState>> {
        let expected: Vec<&ExpectedTransfer> = authorizations
            .iter()
            .map(|authorization| &authorization.expected)
            .collect();
        let used = self.read_nonce_use_flags(&expected, block, deadline).await;
        let both = || authorizations.iter().zip(&used);
        let mut traced: Vec<(usize, Authorization)> = both()
            .enumerate()
            .filter(|(_, (_, used))| **used == Some(true))
            .map(|(index, (authorization, _))| (index, *authorization))
            .collect();
        // The authorizations are sorted by time, so that an old authorization does not lengthen the search for newer
        // authorizations.
        traced.sort_by_key(|(_, authorization)| authorization.authorized_at);
        let are_near = |(_, item): &(usize, Authorization), (_, next): &(usize, Authorization)| {
            next.authorized_at.since(item.authorized_at) < MAX_CLOCK_SKEW
        };
        let near = traced.chunk_by(are_near);
        let mut chunks: Vec<&[(usize, Authorization)]> =
            near.flat_map(|near| near.chunks(MAX_CALLS_PER_BATCH)).collect();
        chunks.sort_by_key(|chunk| chunk.iter().map(|(index, _)| *index).min());
        let mut states = HashMap::new();
        for chunk in chunks {
            let wanted: Vec<Authorization> = chunk.iter().map(|(_, authorization)| *authorization).collect();
            let mut trace = Trace::new(self, &wanted, block, log_range, deadline);
            // A failed call to the node ends the search. The logs that the search has already found stay valid.
            let searched_to = trace.search_blocks_for_authorization_uses().await.ok();
            trace.drop_logs_in_replaced_blocks().await;
            trace.resolve_authorization_states(searched_to, &mut states).await;
        }
        let state = |(authorization, used): (&Authorization, &Option<bool>)| {
            if (*used)? {
                states.get(&authorization.map_key()).cloned()
            } else {
                Some(AuthorizationState::Unused)
            }
        };
        both().map(state).collect()
    }
}

/// The search for the transactions that used or canceled the authorizations in `wanted`.
struct Trace<'a> {
    chain: &'a Chain,
    wanted: &'a [Authorization],
    block: &'a FinalBlock,
    /// The number of blocks per search, halved when the node rejects a search.
    range: u64,
    searches_left: u32,
    /// When the search ends. The last quarter of the time to the deadline is for reading the transfers.
    search_until: Instant,
    until: Instant,
    /// The logs of used and canceled authorizations, by payer and nonce.
    uses: HashMap<Name, FoundLog>,
    /// The authorizations whose log was in a block that a reorganization has replaced. The state of these
    /// authorizations stays unknown.
    replaced: Vec<Name>,
    /// The authorizations that were unused when they expired. If the nonce of such an authorization is used now, the
    /// authorization was canceled.
    unused_in_time: Vec<Name>,
    times: HashMap<u64, Option<Timestamp>>,
}

impl<'a> Trace<'a> {
    fn new(
        chain: &'a Chain,
        authorizations: &'a [Authorization],
        block: &'a FinalBlock,
        log_range: u64,
        deadline: Instant,
    ) -> Self {
        let now = Instant::now();
        let for_transfers = deadline
            .saturating_duration_since(now)
            .checked_div(4)
            .unwrap_or_default();
        Self {
            chain,
            wanted: authorizations,
            block,
            range: log_range.max(1),
            searches_left: MAX_SEARCHES,
            search_until: deadline.checked_sub(for_transfers).unwrap_or(deadline),
            until: deadline,
            uses: HashMap::new(),
            replaced: Vec::new(),
            unused_in_time: Vec::new(),
            times: HashMap::new(),
        }
    }

    /// Returns the authorizations whose use was not found yet.
    fn unresolved_authorizations(&self) -> Vec<&'a Authorization> {
        let is_missing = |authorization: &&Authorization| {
            let name = authorization.map_key();
            !self.uses.contains_key(&name) && !self.unused_in_time.contains(&name)
        };
        self.wanted.iter().filter(is_missing).collect()
    }

    /// Searches the blocks in which the authorizations were valid. Then searches earlier blocks, because the clock that
    /// set `authorized_at` may have been ahead. Finally searches later blocks, because an expired authorization can be
    /// canceled.
    ///
    /// Returns the time up to which all blocks were searched.
    async fn search_blocks_for_authorization_uses(&mut self) -> Result<Timestamp, ChainError> {
        let authorized = self
            .wanted
            .iter()
            .map(|authorization| authorization.authorized_at)
            .min();
        let too_late = self.wanted.iter().map(|authorization| authorization.valid_before).max();
        let (Some(authorized), Some(too_late)) = (authorized, too_late) else {
            return Ok(Timestamp::EPOCH);
        };
        let (first, _) = self.find_blocks_around(authorized).await?;
        let (_, last) = self.find_blocks_around(too_late).await?;
        let next = self.search_blocks_upwards(first, last).await?;
        if next <= last && !self.unresolved_authorizations().is_empty() {
            let came_to = next.checked_sub(1).filter(|came_to| *came_to >= first);
            return match came_to {
                Some(came_to) => Ok(self.read_block_time(came_to).await?.unwrap_or(Timestamp::EPOCH)),
                None => Ok(Timestamp::EPOCH),
            };
        }
        self.search_blocks_downwards(first, authorized.before(MAX_CLOCK_SKEW))
            .await?;
        if !self.unresolved_authorizations().is_empty() && last < self.block.number {
            self.record_unused_authorizations(last).await?;
            self.search_blocks_upwards(last.saturating_add(1), self.block.number)
                .await?;
        }
        Ok(too_late)
    }

    /// Searches blocks `first` to `last` for used authorizations. Returns the first unsearched block.
    async fn search_blocks_upwards(&mut self, mut first: u64, last: u64) -> Result<u64, ChainError> {
        while first <= last && !self.unresolved_authorizations().is_empty() && self.searches_left > 0 {
            let end = first.saturating_add(self.range.saturating_sub(1)).min(last);
            if self.try_search_block_range(first, end).await? {
                first = end.saturating_add(1);
            }
        }
        Ok(first)
    }

    /// Searches the blocks below `above` for used authorizations, newest first, back to the time `earliest`.
    async fn search_blocks_downwards(&mut self, mut above: u64, earliest: Timestamp) -> Result<(), ChainError> {
        while above > 0 && !self.unresolved_authorizations().is_empty() && self.searches_left > 0 {
            if self.is_block_before(above, earliest).await? {
                break;
            }
            let start = above.saturating_sub(self.range);
            if self.try_search_block_range(start, above.saturating_sub(1)).await? {
                above = start;
            }
        }
        Ok(())
    }

    /// Searches blocks `first` to `last` for used authorizations. If the node may accept a smaller search,
    /// sets `self.range` to half of these blocks and returns `false`.
    async fn try_search_block_range(&mut self, first: u64, last: u64) -> Result<bool, ChainError> {
        let missing = self.unresolved_authorizations();
        let Some(any) = missing.first() else { return Ok(true) };
        self.searches_left = self.searches_left.saturating_sub(1);
        self.check_deadline()?;
        let names = || missing.iter().map(|authorization| authorization.map_key());
        let filter = Filter {
            token: any.expected.token,
            events: vec![AUTHORIZATION_USED, AUTHORIZATION_CANCELED],
            payers: distinct_hashes(names().map(|(payer, _)| payer)),
            nonces_or_payees: distinct_hashes(names().map(|(_, nonce)| nonce)),
        };
        let logs = match self.chain.read_logs_between(&filter, first, last).await {
            Ok(logs) => logs,
            Err(error) if last > first && error.may_succeed_with_smaller_requests() => {
                let blocks = last.saturating_sub(first).saturating_add(1);
                self.range = (blocks / 2).max(1);
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        // Logs are collected per response, because two transactions that use the same authorization make the
        // whole response invalid.
        let mut uses: HashMap<Name, FoundLog> = HashMap::new();
        for found in logs.0 {
            let [_, payer, nonce] = found.log.topics.as_slice() else {
                continue;
            };
            let (name, tx_hash) = ((*payer, *nonce), found.tx_hash);
            let other = uses.insert(name, found);
            if other.is_some_and(|other| other.tx_hash != tx_hash) {
                return Err(malformed_response_error("two uses of one authorization"));
            }
        }
        self.uses.extend(uses);
        Ok(true)
    }

    fn check_deadline(&self) -> Result<(), ChainError> {
        if Instant::now() > self.search_until {
            return Err(malformed_response_error("no result before the run's deadline"));
        }
        Ok(())
    }

    /// Records the authorizations that were still unused at block `block_number`. Few nodes keep the state of old blocks, so
    /// the call often fails.
    async fn record_unused_authorizations(&mut self, block_number: u64) -> Result<(), ChainError> {
        self.check_deadline()?;
        let Some(block) = self.chain.read_header(block_number).await? else {
            return Ok(());
        };
        let FinalBlock { number, hash, .. } = block;
        if !self
            .chain
            .find_replaced_blocks(&[BlockId { number, hash }], self.block)
            .await?
            .is_empty()
        {
            return Err(malformed_response_error(
                "a block that is not an ancestor of the final block",
            ));
        }
        let missing = self.unresolved_authorizations();
        let expected: Vec<&ExpectedTransfer> = missing.iter().map(|authorization| &authorization.expected).collect();
        let used = self
            .chain
            .read_nonce_use_flags(&expected, &block, self.search_until)
            .await;
        let unused = missing.iter().zip(used).filter(|(_, used)| *used == Some(false));
        self.unused_in_time
            .extend(unused.map(|(authorization, _)| authorization.map_key()));
        Ok(())
    }

    /// Drops the logs in replaced blocks. Another server behind the node's endpoint may have returned such logs. If the
    /// node does not respond, drops all logs.
    async fn drop_logs_in_replaced_blocks(&mut self) {
        let mut blocks: Vec<BlockId> = self.uses.values().map(|found| found.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        // If the node does not respond, every block counts as replaced.
        let strangers = self
            .chain
            .find_replaced_blocks(&blocks, self.block)
            .await
            .unwrap_or(blocks);
        let of_strangers = self.uses.extract_if(|_, found| strangers.contains(&found.block));
        self.replaced.extend(of_strangers.map(|(name, _)| name));
    }

    /// Determines the state of each authorization after the search. `searched_to` is the time up to which all blocks
    /// were searched, or `None` if the search failed.
    async fn resolve_authorization_states(
        &self,
        searched_to: Option<Timestamp>,
        states: &mut HashMap<Name, AuthorizationState>,
    ) {
        let mut used = Vec::new();
        for authorization in self.wanted {
            let name = authorization.map_key();
            match self.uses.get(&name) {
                Some(found) => used.push((authorization, found)),
                None if self.unused_in_time.contains(&name) => {
                    states.insert(name, AuthorizationState::Unused);
                }
                None if self.replaced.contains(&name) => {}
                None if searched_to.is_some_and(|time| authorization.valid_before <= time) => {
                    states.insert(name, AuthorizationState::UsedUntraced);
                }
                None => {}
            }
        }
        used.sort_by_key(|(_, found)| found.block);
        // Halves of a rejected range go to the end of the queue, so that other ranges are not delayed.
        let mut parts = VecDeque::from([used.as_slice()]);
        let (mut request, mut refused) = (false, 0_usize);
        let mut by_receipt = Vec::new();
        while let Some(part) = parts.pop_front() {
            // The node would reject this range of blocks, so the range is split without a call.
            if self.exceeds_node_block_range(part) {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([first, second]);
                continue;
            }
            // The event `AuthorizationUsed` alone does not prove a payment. If the transfers are not read, the state of
            // the authorization stays unknown.
            if request && Instant::now() > self.until {
                return;
            }
            if refused >= MAX_REFUSED {
                by_receipt.extend_from_slice(part);
                continue;
            }
            request = true;
            match self.read_transfers_in_block_range(part).await {
                Ok(transfers) => insert_used_authorization_states(part, &transfers, states),
                Err(error) => {
                    refused = refused.saturating_add(1);
                    if are_in_one_block(part) && error.is_size_limit() {
                        by_receipt.extend_from_slice(part);
                    } else if part.len() > 1 && error.may_succeed_with_smaller_requests() {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([first, second]);
                    }
                    // Without a split or a receipt, the states of the authorizations in `part` stay unknown.
                }
            }
        }
        self.resolve_states_by_receipt(&by_receipt, states).await;
    }

    /// Determines the states of used authorizations from the receipts of the transactions. Each round reads one receipt
    /// per payer, so that no payer delays the other payers.
    async fn resolve_states_by_receipt(
        &self,
        used_authorizations: &[(&Authorization, &FoundLog)],
        states: &mut HashMap<Name, AuthorizationState>,
    ) {
        let mut of_payer: HashMap<B256, usize> = HashMap::new();
        let mut of_transaction: HashMap<TxHash, Vec<(&Authorization, &FoundLog)>> = HashMap::new();
        let mut turns: Vec<(usize, TxHash)> = Vec::new();
        for (authorization, found) in used_authorizations {
            let turn = of_payer.entry(authorization.expected.from.into_word()).or_default();
            let together = of_transaction.entry(found.tx_hash).or_default();
            if together.is_empty() {
                turns.push((*turn, found.tx_hash));
                *turn = turn.saturating_add(1);
            }
            together.push((authorization, found));
        }
        turns.sort_by_key(|(turn, _)| *turn);
        let (mut refused, mut any_read) = (0_usize, false);
        for some in turns.chunks(MAX_CONCURRENT_CALLS) {
            // A node that rejects `MAX_CALLS` calls and accepts none probably rejects every call.
            if Instant::now() > self.until || (refused >= MAX_CALLS && !any_read) {
                return;
            }
            let groups: Vec<&[(&Authorization, &FoundLog)]> = some
                .iter()
                .filter_map(|(_, hash)| of_transaction.get(hash))
                .map(Vec::as_slice)
                .collect();
            let read = join_all(groups.iter().map(|group| self.read_transfers_in_receipt(group))).await;
            for (group, transfers) in groups.into_iter().zip(read) {
                match transfers {
                    Ok(transfers) => {
                        any_read = true;
                        insert_used_authorization_states(group, &transfers, states);
                    }
                    Err(_) => refused = refused.saturating_add(1),
                }
            }
        }
    }

    async fn read_transfers_in_receipt(
        &self,
        used_authorizations: &[(&Authorization, &FoundLog)],
    ) -> Result<FoundLogs, ChainError> {
        let Some((any, found)) = used_authorizations.first() else {
            return Ok(FoundLogs::default());
        };
        let filter = transfer_filter(any, used_authorizations);
        self.chain.read_receipt_logs(&filter, found.tx_hash, found.block).await
    }

    /// Returns whether the logs, sorted by block, span more blocks than one `eth_getLogs` call may search.
    fn exceeds_node_block_range(&self, used_authorizations: &[(&Authorization, &FoundLog)]) -> bool {
        let numbers = used_authorizations.first().zip(used_authorizations.last());
        let blocks = numbers.map(|((_, first), (_, last))| last.block.number.saturating_sub(first.block.number));
        used_authorizations.len() > 1 && blocks.is_some_and(|blocks| blocks >= self.range)
    }

    /// Reads the transfers between the payers and payees of the used authorizations, which must be sorted by block.
    async fn read_transfers_in_block_range(
        &self,
        used_authorizations: &[(&Authorization, &FoundLog)],
    ) -> Result<FoundLogs, ChainError> {
        let (Some((any, first)), Some((_, last))) = (used_authorizations.first(), used_authorizations.last()) else {
            return Ok(FoundLogs::default());
        };
        let filter = transfer_filter(any, used_authorizations);
        let (first, last) = (first.block, last.block);
        if first == last {
            return self.chain.read_block_logs(&filter, first).await;
        }
        self.chain.read_logs_between(&filter, first.number, last.number).await
    }

    /// Returns two blocks at most `self.range` apart: one before `time`, and one at or after `time`. If the
    /// final block is before `time`, both are the final block. If no block is before `time`, the first is
    /// block 0.
    async fn find_blocks_around(&mut self, time: Timestamp) -> Result<(u64, u64), ChainError> {
        let mut past = self.block.number;
        if self.block.at < time {
            return Ok((past, past));
        }
        // Doubles the step until a block is before `time`, which usually takes one step. Then a binary search narrows
        // the range.
        let near = self.range.saturating_sub(1).max(1);
        let mut step = near;
        let mut before = past.saturating_sub(step);
        while before > 0 && !self.is_block_before(before, time).await? {
            past = before;
            step = step.saturating_mul(2);
            before = past.saturating_sub(step);
        }
        while past.saturating_sub(before) > near {
            let middle = before.midpoint(past);
            if self.is_block_before(middle, time).await? {
                before = middle;
            } else {
                past = middle;
            }
        }
        Ok((before, past))
    }

    /// Returns whether a block is before `time`. A block that the node has pruned counts as before `time`.
    async fn is_block_before(&mut self, block_number: u64, time: Timestamp) -> Result<bool, ChainError> {
        let at = self.read_block_time(block_number).await?;
        Ok(at.is_none_or(|at| at < time))
    }

    async fn read_block_time(&mut self, block_number: u64) -> Result<Option<Timestamp>, ChainError> {
        if let Some(at) = self.times.get(&block_number) {
            return Ok(*at);
        }
        self.check_deadline()?;
        let at = self.chain.read_header(block_number).await?.map(|header| header.at);
        self.times.insert(block_number, at);
        Ok(at)
    }
}

/// Stores each authorization's state as used, with the logs of the transaction that used the authorization.
fn insert_used_authorization_states(
    used_authorizations: &[(&Authorization, &FoundLog)],
    transfers: &FoundLogs,
    states: &mut HashMap<Name, AuthorizationState>,
) {
    for (authorization, found) in used_authorizations {
        let mut transaction = transfers.transaction_logs(found.tx_hash, found.block);
        transaction.logs.push(found.log.clone());
        states.insert(authorization.map_key(), AuthorizationState::Used(transaction));
    }
}

fn transfer_filter(first_authorization: &Authorization, used_authorizations: &[(&Authorization, &FoundLog)]) -> Filter {
    let expected = || {
        used_authorizations
            .iter()
            .map(|(authorization, _)| authorization.expected)
    };
    Filter {
        token: first_authorization.expected.token,
        events: vec![TRANSFER],
        payers: distinct_hashes(expected().map(|expected| expected.from.into_word())),
        nonces_or_payees: distinct_hashes(expected().map(|expected| expected.to.into_word())),
    }
}

/// Returns whether all logs, sorted by block, are in the same block.
fn are_in_one_block(used_authorizations: &[(&Authorization, &FoundLog)]) -> bool {
    let ends = used_authorizations.first().zip(used_authorizations.last());
    ends.is_some_and(|((_, first), (_, last))| first.block == last.block)
}

const fn malformed_response_error(response_name: &'static str) -> ChainError {
    ChainError::Malformed {
        method: "eth_getLogs",
        what: response_name,
    }
}

fn distinct_hashes(values: impl Iterator<Item = B256>) -> Vec<B256> {
    let mut values: Vec<B256> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_chain::{
        FINAL, Result3, ScriptedChain, aggregated, authorization, block, calls_of_multicall, chain_for_in_memory_node,
        chain_for_node_url, final_block, hash_of, is_authorization_log_search, number, oversized_rpc_response, payment,
        quantity, recorded_calls, searched_block_count, tx_hash, word,
    };
    use alloy::primitives::U256;
    use purser_domain::find_authorized_transfer;
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::{Value, json};

    const RANGE: u64 = 1_000;

    fn in_an_hour() -> Instant {
        Instant::now() + std::time::Duration::from_hours(1)
    }

    async fn states_by(node: &ScriptedNode, wanted: &[Authorization], range: u64) -> Vec<String> {
        let chain = chain_for_node_url(&node.url);
        let states = chain
            .read_authorization_states(wanted, &final_block(), range, in_an_hour())
            .await;
        for (_, params) in node.calls().iter().filter(|(method, _)| method == "eth_getLogs") {
            assert!(searched_block_count(params) <= range.max(1), "{params}");
            let last = &params[0]["toBlock"];
            assert!(last.is_null() || number(last) <= FINAL, "{params}");
        }
        wanted.iter().zip(states).map(in_words).collect()
    }

    async fn states(node: &ScriptedNode, wanted: &[Authorization]) -> Vec<String> {
        states_by(node, wanted, RANGE).await
    }

    /// Returns the state of payment 1 as text. `authorized` is the block in which the payment was authorized.
    async fn state(node: &ScriptedNode, authorized: u64) -> String {
        states(node, &[authorization(1, authorized)]).await.concat()
    }

    fn in_words((authorization, state): (&Authorization, Option<AuthorizationState>)) -> String {
        match state {
            Some(AuthorizationState::Used(transaction)) => {
                let by = U256::from_be_bytes(transaction.tx_hash.to_b256().0) - U256::from(0x7700_0000);
                assert_eq!(transaction.block, block(transaction.block.number));
                match find_authorized_transfer(&authorization.expected, &transaction) {
                    Ok(transfer) => format!("paid by {by}, log {}", transfer.log_index()),
                    Err(mismatch) => format!("{} by {by}", mismatch.name()),
                }
            }
            Some(AuthorizationState::Unused) => "unused".to_owned(),
            Some(AuthorizationState::UsedUntraced) => "untraced".to_owned(),
            None => "unknown".to_owned(),
        }
    }

    fn searches(node: &ScriptedNode) -> usize {
        let is_search =
            |(method, params): &&(String, Value)| method == "eth_getLogs" && is_authorization_log_search(params);
        node.calls().iter().filter(is_search).count()
    }

    fn paid_in(block: u64) -> ScriptedChain {
        ScriptedChain::default().paid(&payment(1), block, 1)
    }

    /// Returns a chain with `count` payments, and their authorizations. Each payment is in the block after the
    /// authorization.
    fn many(count: u64) -> (ScriptedChain, Vec<Authorization>) {
        let wanted: Vec<Authorization> = (0..count)
            .map(|number| authorization(number, FINAL - 500 + 3 * number))
            .collect();
        let paid = |chain: ScriptedChain, (number, one): (u64, &Authorization)| {
            chain.paid(&one.expected, FINAL - 499 + 3 * number, number)
        };
        ((0..).zip(&wanted).fold(ScriptedChain::default(), paid), wanted)
    }

    fn all_paid(count: u64) -> Vec<String> {
        (0..count).map(|number| format!("paid by {number}, log 1")).collect()
    }

    #[tokio::test]
    async fn an_unused_authorization_takes_one_node_call() {
        for used in [None, Some(FINAL + 1)] {
            let chain = used.map_or_else(ScriptedChain::default, paid_in);
            let node = chain.serve().await;
            assert_eq!(state(&node, FINAL - 20).await, "unused");
            assert_eq!((recorded_calls(&node).len(), node.count("eth_call")), (1, 1));
        }
    }

    /// The number of searches and header reads is limited, whether the use is seconds or months old.
    #[tokio::test]
    async fn a_used_authorization_is_found_at_any_age() {
        let rows = [
            // Each row: the block of the authorization, the block of the use, and the maximum numbers of searches and
            // header reads.
            (FINAL - 20, FINAL - 19, 1, 1),
            (FINAL - 40, FINAL - 40 + 29, 1, 1),
            (FINAL - 5_000, FINAL - 4_999, 1, 6),
            (3_000, 3_029, 1, 20),
            (0, 0, 1, 20),
            // The clock was up to an hour ahead, so the use is in a block before the authorization time.
            (FINAL - 20, FINAL - 920, 1, 1),
            (FINAL - 20, FINAL - 1_700, 2, 1),
        ];
        for (authorized, used, most_searches, most_headers) in rows {
            let node = paid_in(used).serve().await;
            let name = format!("authorized in {authorized}, used in {used}");
            assert_eq!(state(&node, authorized).await, "paid by 1, log 1", "{name}");
            assert!(searches(&node) <= most_searches, "{name}: {}", searches(&node));
            assert_eq!(node.count("eth_getLogs"), searches(&node) + 1, "{name}");
            let headers = node.count("eth_getBlockByNumber");
            assert!(headers <= most_headers, "{name}: {headers}");
        }
    }

    #[tokio::test]
    async fn a_used_authorization_is_found_with_any_search_range() {
        for range in [0, 1, 2, 10, 5_000] {
            let node = paid_in(FINAL - 19).serve().await;
            let found = states_by(&node, &[authorization(1, FINAL - 20)], range).await;
            assert_eq!(found, ["paid by 1, log 1"], "{range}");
            assert!(
                recorded_calls(&node).len() <= 20,
                "{range}: {}",
                recorded_calls(&node).len()
            );
        }
    }

    #[tokio::test]
    async fn one_hundred_payments_take_at_most_nine_node_calls() {
        let (chain, wanted) = many(100);
        let node = chain.serve().await;
        assert_eq!(states(&node, &wanted).await, all_paid(100));
        assert!(recorded_calls(&node).len() <= 9, "{}", recorded_calls(&node).len());
        assert_eq!((node.count("eth_call"), node.count("eth_getLogs")), (2, 2));
    }

    #[tokio::test]
    async fn an_old_payment_does_not_widen_the_search_for_other_payments() {
        let (chain, mut wanted) = many(3);
        wanted.push(authorization(3, 1_000));
        let node = chain.paid(&payment(3), 1_001, 3).serve().await;
        assert_eq!(states(&node, &wanted).await, all_paid(4));
        assert_eq!((searches(&node), node.count("eth_getLogs")), (2, 4));
    }

    #[tokio::test]
    async fn payments_in_one_transaction_are_matched_to_distinct_logs() {
        // Payments between one payer and one payee, authorized twelve blocks apart.
        let wanted = [0, 12, 24].map(|number| authorization(number, FINAL - 20 - number));
        let node = wanted
            .iter()
            .fold(ScriptedChain::default(), |chain, one| {
                chain.paid(&one.expected, FINAL - 5, 9)
            })
            .serve()
            .await;
        let each = ["paid by 9, log 1", "paid by 9, log 3", "paid by 9, log 5"];
        assert_eq!(states(&node, &wanted).await, each);
        assert_eq!(node.count("eth_getLogs"), 2);
    }

    /// Anybody can make the token log a zero-value transfer from any payer to any payee.
    #[tokio::test]
    async fn zero_amount_transfers_are_ignored() {
        let spammed = |chain: ScriptedChain, block, transaction| {
            let of_nothing = |chain: ScriptedChain, _| chain.transferred(&payment(1), 0, block, transaction);
            (0..20).fold(chain, of_nothing)
        };
        let chain = [(FINAL - 25, 5), (FINAL - 19, 6), (FINAL - 19, 1)]
            .into_iter()
            .fold(ScriptedChain::default(), |chain, (block, by)| spammed(chain, block, by));
        let chain = spammed(chain.paid(&payment(1), FINAL - 19, 1), FINAL - 19, 1);
        let other = payment(13);
        let node = spammed(chain.paid(&other, FINAL - 15, 13), FINAL - 15, 7).serve().await;
        let wanted = [authorization(1, FINAL - 20), authorization(13, FINAL - 20)];
        assert_eq!(states(&node, &wanted).await, ["paid by 1, log 41", "paid by 13, log 1"]);
    }

    #[tokio::test]
    async fn a_mismatched_or_canceled_authorization_is_reported() {
        let less = ExpectedTransfer {
            amount: purser_domain::Amount::from_units(1).unwrap(),
            ..payment(1)
        };
        let node = ScriptedChain::default().paid(&less, FINAL - 19, 4).serve().await;
        assert_eq!(state(&node, FINAL - 20).await, "usdc_transfer_mismatch by 4");

        let node = ScriptedChain::default()
            .canceled(&payment(1), FINAL - 19, 4)
            .serve()
            .await;
        let wanted = [authorization(1, FINAL - 20)];
        let chain = chain_for_node_url(&node.url);
        let states = chain
            .read_authorization_states(&wanted, &final_block(), RANGE, in_an_hour())
            .await;
        let [Some(AuthorizationState::Used(transaction))] = &states[..] else {
            panic!("{states:?}")
        };
        assert_eq!(
            (transaction.tx_hash, transaction.block),
            (tx_hash(4), block(FINAL - 19))
        );
        let topics = [AUTHORIZATION_CANCELED, payment(1).from.into_word(), payment(1).nonce];
        assert_eq!(transaction.logs[0].topics, topics);
        assert_eq!(transaction.logs.len(), 1);
    }

    /// The authorization was canceled a day later, without a reconciliation in between.
    #[tokio::test]
    async fn late_authorization_cancellations_are_found_by_state_or_logs() {
        let (authorized, canceled) = (FINAL - 50_000, FINAL - 7_000);
        let chain = || ScriptedChain::default().canceled(&payment(1), canceled, 1);
        let node = chain().serve().await;
        assert_eq!(state(&node, authorized).await, "unused");
        assert!(searches(&node) <= 3, "{}", searches(&node));
        // This node rejects calls about old blocks, so the logs are searched instead.
        let pruned = |method: &str, params: &Value| {
            let is_old = method == "eth_call" && params[1]["blockHash"] != json!(hash_of(FINAL));
            is_old.then_some(Reply::Refused(-32_000))
        };
        let node = chain().serve_except(pruned).await;
        assert_eq!(state(&node, authorized).await, "authorization_not_used by 1");
        assert!(searches(&node) <= 48, "{}", searches(&node));
    }

    #[tokio::test]
    async fn a_used_authorization_without_logs_becomes_untraced() {
        for authorized in [FINAL - 20, FINAL - 900_000, 0] {
            let no_logs = |method: &str, _: &Value| (method == "eth_getLogs").then(|| Reply::Result(json!([])));
            let node = paid_in(0).serve_except(no_logs).await;
            assert_eq!(state(&node, authorized).await, "untraced");
            assert!(searches(&node) <= 400, "{}", searches(&node));
        }
    }

    /// The node searches only ten blocks per call, so the search ends before it reaches the use.
    #[tokio::test]
    async fn an_authorization_state_is_unknown_if_the_log_search_ends_before_the_use() {
        let wanted = [6_000, 4_500, 3_000, 1_500].map(|age| authorization(age, FINAL - age));
        let paid = |chain: ScriptedChain, one: &Authorization, block| chain.paid(&one.expected, block, block);
        // The first authorization was used in block 10, which is not searched.
        let chain = paid(ScriptedChain::default(), &wanted[0], 10);
        let chain = paid(chain, &wanted[1], FINAL - 4_499);
        let chain = paid(chain, &wanted[2], FINAL - 2_999);
        let node = paid(chain, &wanted[3], FINAL - 1_499).serve().await;
        let [second, third] = [FINAL - 4_499, FINAL - 2_999].map(|block| format!("paid by {block}, log 1"));
        let known = ["untraced", &second, &third, "unknown"];
        assert_eq!(states_by(&node, &wanted, 10).await, known);
        assert_eq!(searches(&node), 400);
    }

    /// Returns a node whose search for uses (`of_search`) or for transfers returns these logs.
    async fn with_logs(of_search: bool, logs: Value) -> ScriptedNode {
        let changed = move |method: &str, params: &Value| {
            (method == "eth_getLogs" && is_authorization_log_search(params) == of_search)
                .then(|| Reply::Result(logs.clone()))
        };
        paid_in(FINAL - 19).serve_except(changed).await
    }

    #[tokio::test]
    async fn unexpected_logs_make_an_authorization_state_unknown() {
        let ExpectedTransfer {
            token, from, to, nonce, ..
        } = payment(1);
        let log = |topics: &[B256], by: u64| {
            json!({
                "address": token, "topics": topics, "data": "0x", "logIndex": "0x0", "transactionHash": tx_hash(by).to_b256(),
                "blockHash": hash_of(FINAL - 19), "blockNumber": quantity(FINAL - 19),
            })
        };
        let with = |mut log: Value, name: &str, value: Value| {
            log[name] = value;
            json!([log])
        };
        let canceled = || log(&[AUTHORIZATION_CANCELED, from.into_word(), nonce], 7);
        let odd = [
            json!({}),
            json!([log(&[TRANSFER, from.into_word(), nonce], 7)]),
            json!([log(&[AUTHORIZATION_USED, to.into_word(), nonce], 7)]),
            json!([log(&[AUTHORIZATION_USED, from.into_word(), B256::ZERO], 7)]),
            json!([log(&[], 7)]),
            with(canceled(), "removed", json!(true)),
            with(canceled(), "address", json!(to)),
            with(canceled(), "blockNumber", quantity(FINAL + 1)),
            json!([canceled(), log(&[AUTHORIZATION_USED, from.into_word(), nonce], 8)]),
        ];
        for logs in odd {
            let node = with_logs(true, logs.clone()).await;
            assert_eq!(state(&node, FINAL - 20).await, "unknown", "{logs}");
        }
        let node = with_logs(true, json!([canceled(), canceled()])).await;
        assert_eq!(state(&node, FINAL - 20).await, "authorization_not_used by 7");

        let transfer = || log(&[TRANSFER, from.into_word(), to.into_word()], 1);
        let odd = [
            json!([canceled()]),
            json!([log(&[TRANSFER, to.into_word(), from.into_word()], 1)]),
            with(transfer(), "removed", json!(true)),
            with(transfer(), "blockHash", json!(hash_of(1))),
        ];
        for logs in odd {
            let node = with_logs(false, logs.clone()).await;
            assert_eq!(state(&node, FINAL - 20).await, "unknown", "{logs}");
        }
    }

    #[tokio::test]
    async fn search_ranges_that_the_node_rejects_are_halved() {
        for refusal in [Reply::Refused(-32_005), Reply::Status(413), oversized_rpc_response()] {
            let shown = format!("{refusal:.40?}");
            let limited = move |method: &str, params: &Value| {
                (method == "eth_getLogs" && searched_block_count(params) > 100).then(|| refusal.clone())
            };
            let (chain, wanted) = many(20);
            let node = chain.serve_except(limited).await;
            assert_eq!(states(&node, &wanted).await, all_paid(20), "{shown}");
            assert!(
                recorded_calls(&node).len() <= 30,
                "{shown}: {}",
                recorded_calls(&node).len()
            );
        }
    }

    #[tokio::test]
    async fn failing_nodes_are_not_asked_for_smaller_ranges() {
        // `HttpNode` repeats a call once if the connection closes without a response.
        for (answer, calls) in [(Reply::Status(429), 1), (Reply::Status(503), 1), (Reply::HangUp, 2)] {
            let shown = format!("{answer:?}");
            let gone = move |method: &str, _: &Value| (method == "eth_getLogs").then(|| answer.clone());
            let (chain, mut wanted) = many(3);
            wanted.push(authorization(3, FINAL - 20));
            let node = chain.serve_except(gone).await;
            let known = ["unknown", "unknown", "unknown", "unused"];
            assert_eq!(states(&node, &wanted).await, known, "{shown}");
            assert_eq!(node.count("eth_getLogs"), calls, "{shown}");
        }
    }

    #[tokio::test]
    async fn searches_stop_when_the_node_rejects_every_range() {
        let refused = |method: &str, _: &Value| (method == "eth_getLogs").then_some(Reply::Refused(-32_005));
        let (chain, wanted) = many(20);
        let node = chain.serve_except(refused).await;
        assert_eq!(states(&node, &wanted).await, ["unknown"; 20]);
        assert!(searches(&node) <= 12, "{}", searches(&node));
    }

    #[tokio::test]
    async fn transfer_lookups_stop_after_too_many_rejections() {
        let refused = |with_receipts: bool| {
            move |method: &str, params: &Value| {
                let is_refused = method == "eth_getLogs" && !is_authorization_log_search(params)
                    || method == "eth_getTransactionReceipt" && !with_receipts;
                is_refused.then_some(Reply::Refused(-32_005))
            }
        };
        let wanted: Vec<Authorization> = (0..500)
            .map(|number| authorization(number, FINAL - 900 + number))
            .collect();
        let chain = (0..)
            .zip(&wanted)
            .fold(ScriptedChain::default(), |chain, (number, one)| {
                chain.paid(&one.expected, FINAL - 899 + number, number)
            });
        let node = chain.clone().serve_except(refused(false)).await;
        assert_eq!(states(&node, &wanted).await, ["unknown"; 500]);
        let asked = node.count("eth_getLogs") - searches(&node);
        assert!(asked <= MAX_REFUSED, "{asked}");
        let receipts = node.count("eth_getTransactionReceipt");
        assert!(receipts <= MAX_CALLS + MAX_CONCURRENT_CALLS, "{receipts}");

        let node = chain.serve_except(refused(true)).await;
        assert!(
            states(&node, &wanted)
                .await
                .iter()
                .all(|state| state.starts_with("paid"))
        );
        assert_eq!(node.count("eth_getTransactionReceipt"), 500);
    }

    /// All blocks and receipts of one payer are too large for the node's limits.
    #[tokio::test]
    async fn flooded_blocks_do_not_hide_other_payments() {
        let of_flooder = |number: u64| authorization(4 * number, FINAL - 200 + number);
        let mut wanted: Vec<Authorization> = (0..100).map(of_flooder).collect();
        let chain = (0..)
            .zip(&wanted)
            .fold(ScriptedChain::default(), |chain, (number, one)| {
                chain.paid(&one.expected, FINAL - 199 + number, number)
            });
        let other = authorization(1, FINAL - 51);
        wanted.push(other);
        let chain = chain.paid(&other.expected, FINAL - 50, 500);
        let too_many = |method: &str, params: &Value| {
            let flooded = FINAL - 199..FINAL - 99;
            let is_flooded = match method {
                "eth_getLogs" if is_authorization_log_search(params) => false,
                "eth_getLogs" if params[0]["fromBlock"].is_null() => flooded
                    .clone()
                    .any(|block| params[0]["blockHash"] == json!(hash_of(block))),
                "eth_getLogs" => number(&params[0]["fromBlock"]) < flooded.end,
                "eth_getTransactionReceipt" => (0..100).any(|by| params[0] == json!(tx_hash(by).to_b256())),
                _ => false,
            };
            is_flooded.then(oversized_rpc_response)
        };
        let node = chain.serve_except(too_many).await;
        let known = states(&node, &wanted).await;
        assert_eq!(known[100], "paid by 500, log 1");
        assert_eq!(known[..100], ["unknown"; 100]);
        assert!(recorded_calls(&node).len() <= 130, "{}", recorded_calls(&node).len());
    }

    /// The endpoint returns a log from a block that was replaced.
    #[tokio::test]
    async fn authorization_states_from_a_replaced_block_are_unknown() {
        let beside = |method: &str, params: &Value| {
            let is_view = method == "eth_call" && params[0].get("to").is_none();
            let words = [word(FINAL), word(0x5a)].concat();
            is_view.then(|| Reply::Result(json!(alloy::primitives::Bytes::from(words))))
        };
        let node = paid_in(FINAL - 19).serve_except(beside).await;
        assert_eq!(state(&node, FINAL - 20).await, "unknown");
        let refused = |method: &str, params: &Value| {
            let is_view = method == "eth_call" && params[0].get("to").is_none();
            is_view.then_some(Reply::Refused(-32_000))
        };
        let node = paid_in(FINAL - 19).serve_except(refused).await;
        assert_eq!(state(&node, FINAL - 20).await, "unknown");
    }

    #[tokio::test]
    async fn rejected_transfer_lookups_are_split_down_to_single_blocks() {
        let one_block = |method: &str, params: &Value| {
            let refused =
                method == "eth_getLogs" && !is_authorization_log_search(params) && params[0]["blockHash"].is_null();
            refused.then_some(Reply::Refused(-32_005))
        };
        let (chain, wanted) = many(5);
        let node = chain.serve_except(one_block).await;
        assert_eq!(states(&node, &wanted).await, all_paid(5));
        // One search finds the uses. Calls for 5, 2, 3 and 2 payments are rejected, then five calls read one payment
        // each.
        assert_eq!(node.count("eth_getLogs"), 1 + 4 + 5);
    }

    #[tokio::test]
    async fn one_unreadable_payment_does_not_affect_other_payments() {
        // The block of one payment has too many transfers.
        let bad = hash_of(FINAL - 499 + 6);
        let too_many = move |method: &str, params: &Value| {
            let filter = &params[0];
            let is_bad = method == "eth_getLogs"
                && !is_authorization_log_search(params)
                && (filter["blockHash"] == json!(bad) || searched_block_count(params) > 3);
            (is_bad || method == "eth_getTransactionReceipt").then(oversized_rpc_response)
        };
        let (chain, wanted) = many(4);
        let node = chain.serve_except(too_many).await;
        let mut known = all_paid(4);
        "unknown".clone_into(&mut known[2]);
        assert_eq!(states(&node, &wanted).await, known);

        let one_fails = |method: &str, params: &Value| {
            let calls = calls_of_multicall(params);
            let result = |number: usize| Result3 {
                success: number != 2,
                returnData: word(1),
            };
            let results: Vec<Result3> = (0..calls.len()).map(result).collect();
            (method == "eth_call" && !calls.is_empty()).then(|| Reply::Result(aggregated(&results)))
        };
        let (chain, wanted) = many(4);
        let node = chain.serve_except(one_fails).await;
        assert_eq!(states(&node, &wanted).await, known);
    }

    #[tokio::test(start_paused = true)]
    async fn authorization_states_found_before_the_deadline_are_kept() {
        let wanted = [
            authorization(0, FINAL - 1_000),
            authorization(1, FINAL - 200),
            authorization(2, FINAL - 1_000),
        ];
        let chain = ScriptedChain::default()
            .paid(&payment(0), FINAL - 999, 0)
            .paid(&payment(1), FINAL - 199, 1);
        let chain = chain_for_in_memory_node(chain, |method| {
            let secs = u64::from(method == "eth_getLogs");
            Box::pin(tokio::time::sleep(std::time::Duration::from_secs(secs)))
        });
        let within = async |secs| {
            let until = Instant::now() + std::time::Duration::from_secs(secs);
            let states = chain
                .read_authorization_states(&wanted, &final_block(), 100, until)
                .await;
            wanted.iter().zip(states).map(in_words).collect::<Vec<String>>()
        };
        let started = Instant::now();
        assert_eq!(within(3).await, ["paid by 0, log 1", "unknown", "unused"]);
        assert!(started.elapsed().as_secs() <= 5, "{:?}", started.elapsed());
        assert_eq!(within(60).await, ["paid by 0, log 1", "paid by 1, log 1", "unused"]);
    }

    /// Each call of the method `slow` takes a second.
    #[tokio::test(start_paused = true)]
    async fn no_node_calls_are_made_after_the_deadline() {
        for slow in ["eth_call", "eth_getBlockByNumber", "eth_getLogs"] {
            let mut wanted = vec![authorization(0, 3_000)];
            wanted.extend((1..400).map(|number| authorization(number, FINAL - 900 + number)));
            let mut chain = (0..)
                .zip(&wanted)
                .fold(ScriptedChain::default(), |chain, (number, one)| {
                    chain.paid(
                        &one.expected,
                        if number == 0 { 3_001 } else { FINAL - 899 + number },
                        number,
                    )
                });
            chain.multicall = slow != "eth_call";
            let chain = chain_for_in_memory_node(chain, move |method| {
                let secs = u64::from(method == slow);
                Box::pin(tokio::time::sleep(std::time::Duration::from_secs(secs)))
            });
            let started = Instant::now();
            let until = started + std::time::Duration::from_secs(3);
            // The node searches ten blocks per call.
            chain
                .read_authorization_states(&wanted, &final_block(), 10, until)
                .await;
            assert!(started.elapsed().as_secs() <= 5, "{slow}: {:?}", started.elapsed());
        }
    }
}
