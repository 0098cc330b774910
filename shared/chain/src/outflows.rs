//! Finds the outflows of many wallets in a range of blocks: their transfers and their used authorizations.
//!
//! Anybody can flood the chain with zero-value `Transfer` events from any wallet, but only the wallet's key can use an
//! authorization. For a flooded wallet, used authorizations are searched and their receipts are read, so a flood does
//! not hide them.

use crate::{
    Chain, ChainError,
    logs::{Filter, FoundLogs},
    multicall::MAX_CONCURRENT_CALLS,
};
use alloy::primitives::{Address, B256};
use futures_util::future::join_all;
use purser_domain::{AUTHORIZATION_USED, BlockId, Log, Outflow, TRANSFER, TxHash, find_outflows};
use std::collections::BTreeSet;
use tokio::time::Instant;

/// The maximum number of wallets per call. Nodes accept up to a thousand values per topic.
const MAX_WALLETS_PER_CALL: usize = 500;
/// The number of calls per search for a wallet with too many logs after which no block range is split.
const MAX_PER_WALLET: usize = 16;
/// The maximum number of receipts per search for a wallet with too many logs. Eight concurrent calls of 200 ms read
/// them in 13 seconds.
const MAX_RECEIPTS: usize = 500;

/// Blocks in which a wallet has too many logs. Only outflows of used authorizations were found in these blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsearchedBlocks {
    /// The address of the wallet that has too many logs.
    pub wallet: Address,
    /// The first block of the range, inclusive.
    pub first: u64,
    /// The last block of the range, inclusive.
    pub last: u64,
}

/// The outflows that a search found, and the blocks that the search covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundOutflows {
    /// The outflows in all searched blocks, up to block `last`.
    pub outflows: Vec<Outflow>,
    /// The last block that was searched for all wallets.
    pub last: u64,
    /// The blocks of each wallet, up to block `last`, that were not searched completely.
    pub unsearched: Vec<UnsearchedBlocks>,
}

/// The wallets and blocks of one `eth_getLogs` call.
#[derive(Clone, Copy)]
struct Part<'a> {
    wallets: &'a [Address],
    first: u64,
    last: u64,
}

impl Part<'_> {
    fn unsearched_blocks_per_wallet(&self) -> impl Iterator<Item = UnsearchedBlocks> {
        let Self { first, last, .. } = *self;
        let unsearched = move |wallet: &Address| UnsearchedBlocks {
            wallet: *wallet,
            first,
            last,
        };
        self.wallets.iter().map(unsearched)
    }
}

impl Chain {
    /// Finds the outflows of these wallets from block `first` to `last`, or to an earlier block. Returns `None` if
    /// `deadline` passed before block `first` was searched.
    ///
    /// Adds wallets with too many logs to `noisy_addresses` and searches them separately, so that they do not shorten
    /// the search for other wallets.
    pub async fn find_outflows(
        &self,
        wallets: &[Address],
        (first, last): (u64, u64),
        log_range: u64,
        noisy_addresses: &mut BTreeSet<Address>,
        deadline: Instant,
    ) -> Result<Option<FoundOutflows>, ChainError> {
        let mut last = last.min(first.saturating_add(log_range.saturating_sub(1)));
        let (alone, together): (Vec<Address>, Vec<Address>) =
            wallets.iter().partition(|wallet| noisy_addresses.contains(*wallet));
        let mut logs = FoundLogs::default();
        let mut unsearched = Vec::new();
        // A stack of wallet groups. A rejected group is split into halves.
        let mut parts: Vec<&[Address]> = together.chunks(MAX_WALLETS_PER_CALL).collect();
        while let Some(wallets) = parts.pop() {
            if Instant::now() > deadline {
                return Ok(None);
            }
            match self.find_logs(Part { wallets, first, last }, ALL).await {
                Ok(found) => logs.0.extend(found.0),
                // Halves the block range first, and splits the list of wallets only for a single block,
                // because logs that were already found stay valid for a shorter range.
                Err(error) if first < last && error.may_succeed_with_smaller_requests() => {
                    last = first.midpoint(last);
                    parts.push(wallets);
                }
                Err(error) if wallets.len() > 1 && error.may_succeed_with_smaller_requests() => {
                    let (some, others) = wallets.split_at(wallets.len() / 2);
                    parts.extend([some, others]);
                }
                Err(error) => {
                    let part = Part { wallets, first, last };
                    let mut remaining_receipts = MAX_RECEIPTS;
                    let found = self
                        .retry_rejected_log_search(part, error, &mut remaining_receipts, deadline)
                        .await?;
                    let Some((found, is_all)) = found else {
                        return Ok(None);
                    };
                    logs.0.extend(found.0);
                    if !is_all {
                        unsearched.extend(part.unsearched_blocks_per_wallet());
                        noisy_addresses.extend(wallets);
                    }
                }
            }
        }
        for wallet in alone.chunks(1) {
            let mut parts = vec![Part {
                wallets: wallet,
                first,
                last,
            }];
            let (mut calls, mut remaining_receipts) = (0_usize, MAX_RECEIPTS);
            while let Some(part) = parts.pop() {
                if Instant::now() > deadline {
                    return Ok(None);
                }
                calls = calls.saturating_add(1);
                match self.find_logs(part, ALL).await {
                    Ok(found) => logs.0.extend(found.0),
                    Err(error)
                        if part.first < part.last
                            && calls < MAX_PER_WALLET
                            && error.may_succeed_with_smaller_requests() =>
                    {
                        let middle = part.first.midpoint(part.last);
                        let (low, high) = (Part { last: middle, ..part }, middle.saturating_add(1));
                        parts.extend([Part { first: high, ..part }, low]);
                    }
                    Err(error) => {
                        let found = self
                            .retry_rejected_log_search(part, error, &mut remaining_receipts, deadline)
                            .await?;
                        let Some((found, is_all)) = found else {
                            return Ok(None);
                        };
                        logs.0.extend(found.0);
                        if !is_all {
                            unsearched.extend(part.unsearched_blocks_per_wallet());
                        }
                    }
                }
            }
        }
        let logs: Vec<(TxHash, BlockId, Log)> = logs
            .0
            .into_iter()
            .map(|found| (found.tx_hash, found.block, found.log))
            .filter(|(_, block, _)| block.number <= last)
            .collect();
        unsearched.retain(|item: &UnsearchedBlocks| item.first <= last);
        let outflows = find_outflows(&logs);
        Ok(Some(FoundOutflows {
            outflows,
            last,
            unsearched,
        }))
    }

    /// Repeats a search that the node rejected with `chain_error`. Returns the logs and whether the logs are
    /// complete; `None` if time ran out.
    ///
    /// If there are too many `Transfer` events, reads the receipts of used authorizations, because only the
    /// wallet's key can sign an authorization. Fails if the node also rejects the search for used
    /// authorizations, because no block may be skipped.
    async fn retry_rejected_log_search(
        &self,
        part: Part<'_>,
        chain_error: ChainError,
        remaining_receipts: &mut usize,
        deadline: Instant,
    ) -> Result<Option<(FoundLogs, bool)>, ChainError> {
        if !chain_error.is_size_limit() {
            return Err(chain_error);
        }
        let uses = self.find_logs(part, &[AUTHORIZATION_USED]).await?;
        match self.find_logs(part, ALL).await {
            Ok(found) => return Ok(Some((found, true))),
            Err(error) if error.is_size_limit() => {}
            Err(error) => return Err(error),
        }
        let found = self
            .find_logs_in_receipts(part, &uses, remaining_receipts, deadline)
            .await?;
        Ok(found.map(|found| (found, false)))
    }

    /// Reads the wallets' logs from at most `remaining_receipts` receipts; `None` if time ran out. Omits receipts
    /// above the size limit.
    async fn find_logs_in_receipts(
        &self,
        part: Part<'_>,
        found_logs: &FoundLogs,
        remaining_receipts: &mut usize,
        deadline: Instant,
    ) -> Result<Option<FoundLogs>, ChainError> {
        let cursors = found_logs.0.iter().map(|found| (found.block, found.tx_hash));
        let cursors: Vec<(BlockId, TxHash)> = cursors
            .collect::<BTreeSet<_>>()
            .into_iter()
            .take(*remaining_receipts)
            .collect();
        *remaining_receipts = remaining_receipts.saturating_sub(cursors.len());
        let filter = self.log_filter(part, ALL);
        let mut logs = FoundLogs::default();
        for some in cursors.chunks(MAX_CONCURRENT_CALLS) {
            if Instant::now() > deadline {
                return Ok(None);
            }
            let reads = some
                .iter()
                .map(|(block, tx_hash)| self.read_receipt_logs(&filter, *tx_hash, *block));
            for found in join_all(reads).await {
                match found {
                    Ok(found) => logs.0.extend(found.0),
                    Err(ChainError::TooLarge { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Some(logs))
    }

    async fn find_logs(&self, part: Part<'_>, events: &[B256]) -> Result<FoundLogs, ChainError> {
        self.read_logs_between(&self.log_filter(part, events), part.first, part.last)
            .await
    }

    fn log_filter(&self, part: Part<'_>, events: &[B256]) -> Filter {
        Filter {
            token: self.network.token().address,
            events: events.to_vec(),
            payers: part.wallets.iter().map(Address::into_word).collect(),
            nonces_or_payees: Vec::new(),
        }
    }
}

const ALL: &[B256] = &[AUTHORIZATION_USED, TRANSFER];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_chain::{
        FINAL, ScriptedChain, chain_for_node_url, oversized_rpc_response, payment, recorded_calls, searched_block_count,
    };
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn wallets(count: u64) -> Vec<Address> {
        (0..count).map(|number| payment(number).from).collect()
    }

    /// Returns a chain with two payments, and with a transfer that used no authorization.
    fn moved() -> ScriptedChain {
        ScriptedChain::default()
            .paid(&payment(1), FINAL - 900, 1)
            .paid(&payment(2), FINAL - 10, 2)
            .transferred(&payment(1), 7, FINAL - 10, 3)
            .transferred(&payment(1), 0, FINAL - 9, 4)
    }

    /// Returns all outflows up to the final block.
    async fn all(node: &ScriptedNode, wallets: &[Address], range: u64) -> Vec<(u64, String, bool)> {
        let chain = chain_for_node_url(&node.url);
        let until = Instant::now() + Duration::from_hours(1);
        let (mut first, mut found) = (FINAL - 1_500, Vec::new());
        let mut noisy = BTreeSet::new();
        while first <= FINAL {
            let next = chain
                .find_outflows(wallets, (first, FINAL), range, &mut noisy, until)
                .await
                .unwrap()
                .unwrap();
            assert!(next.last >= first && next.last <= FINAL);
            assert_eq!(next.unsearched, []);
            found.extend(next.outflows);
            first = next.last + 1;
        }
        let told = found.iter().map(|outflow| {
            (
                FINAL - outflow.block.number,
                outflow.units.to_string(),
                outflow.nonce.is_some(),
            )
        });
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        told
    }

    fn expected() -> Vec<(u64, String, bool)> {
        vec![
            (10, "10002".to_owned(), true),
            (10, "7".to_owned(), false),
            (900, "10001".to_owned(), true),
        ]
    }

    #[tokio::test]
    async fn one_node_call_per_range_searches_all_wallets() {
        let node = moved().serve().await;
        assert_eq!(all(&node, &wallets(4), 1_000).await, expected());
        let searches = |node: &ScriptedNode| {
            recorded_calls(node)
                .iter()
                .filter(|(method, _)| method == "eth_getLogs")
                .count()
        };
        assert_eq!(searches(&node), 2);
        // A search for a wallet without outflows, and a search without wallets.
        let node = moved().serve().await;
        assert_eq!(all(&node, &[Address::repeat_byte(1)], 1_000).await, []);
        assert_eq!(all(&node, &[], 1_000).await, []);
        assert_eq!(searches(&node), 2);
    }

    #[tokio::test]
    async fn rejected_outflow_searches_are_split_by_blocks_and_wallets() {
        let few_blocks = |method: &str, params: &Value| {
            (method == "eth_getLogs" && searched_block_count(params) > 100).then(oversized_rpc_response)
        };
        let node = moved().serve_except(few_blocks).await;
        assert_eq!(all(&node, &wallets(4), 1_000).await, expected());
        let few_wallets = |method: &str, params: &Value| {
            let of_many = params[0]["topics"][1]
                .as_array()
                .is_some_and(|wallets| wallets.len() > 1);
            (method == "eth_getLogs" && of_many).then(oversized_rpc_response)
        };
        let node = moved().serve_except(few_wallets).await;
        let chain = chain_for_node_url(&node.url);
        let until = Instant::now() + Duration::from_hours(1);
        let found = chain
            .find_outflows(&wallets(4), (FINAL - 10, FINAL), 1_000, &mut BTreeSet::new(), until)
            .await;
        assert_eq!(
            found.unwrap().unwrap(),
            FoundOutflows {
                last: FINAL - 10,
                ..two(&moved().serve().await).await
            }
        );
    }

    async fn two(node: &ScriptedNode) -> FoundOutflows {
        let until = Instant::now() + Duration::from_hours(1);
        let found = chain_for_node_url(&node.url)
            .find_outflows(
                &wallets(4),
                (FINAL - 10, FINAL - 10),
                1_000,
                &mut BTreeSet::new(),
                until,
            )
            .await;
        found.unwrap().unwrap()
    }

    /// A node that rejects every search gets a limited number of calls.
    #[tokio::test]
    async fn outflow_searches_after_the_deadline_make_no_node_call() {
        let node = moved().serve().await;
        let past = Instant::now() - Duration::from_secs(1);
        let found = chain_for_node_url(&node.url)
            .find_outflows(&wallets(4), (FINAL - 10, FINAL), 1_000, &mut BTreeSet::new(), past)
            .await;
        assert_eq!(found.unwrap(), None);
        assert_eq!(recorded_calls(&node).len(), 0);
        let refused = |method: &str, _: &Value| (method == "eth_getLogs").then_some(Reply::Refused(-32_000));
        let node = moved().serve_except(refused).await;
        let until = Instant::now() + Duration::from_hours(1);
        let found = chain_for_node_url(&node.url)
            .find_outflows(&wallets(4), (FINAL - 900, FINAL), 1_000, &mut BTreeSet::new(), until)
            .await;
        assert!(matches!(found, Err(ChainError::Refused { .. })), "{found:?}");
        assert!(recorded_calls(&node).len() <= 20, "{}", recorded_calls(&node).len());
    }

    /// Returns a script that rejects searches for this wallet's transfers, as for a wallet that is flooded with
    /// zero-value transfers.
    fn flood(wallet: Address) -> impl Fn(&str, &Value) -> Option<Reply> + Send + Sync + 'static {
        move |method, params| {
            let topics = &params[0]["topics"];
            let has = |place: usize, word: B256| topics[place].as_array().unwrap().contains(&json!(word));
            (method == "eth_getLogs" && has(0, TRANSFER) && has(1, wallet.into_word())).then(oversized_rpc_response)
        }
    }

    #[tokio::test]
    async fn a_flood_of_one_wallet_hides_no_outflow_of_other_wallets() {
        let flooded = payment(3).from;
        let node = moved().serve_except(flood(flooded)).await;
        let chain = chain_for_node_url(&node.url);
        let until = Instant::now() + Duration::from_hours(1);
        let (mut first, mut noisy) = (FINAL - 1_000, BTreeSet::new());
        let (mut found, mut unsearched) = (Vec::new(), Vec::new());
        while first <= FINAL {
            let next = chain
                .find_outflows(&wallets(4), (first, FINAL), 1_000, &mut noisy, until)
                .await;
            let next = next.unwrap().unwrap();
            found.extend(
                next.outflows
                    .iter()
                    .map(|outflow| (FINAL - outflow.block.number, outflow.wallet)),
            );
            unsearched.extend(next.unsearched);
            first = next.last + 1;
        }
        found.sort_unstable();
        let (one, two) = (payment(1).from, payment(2).from);
        let mut others = [(10, one), (10, two), (900, one)];
        others.sort_unstable();
        assert_eq!(found, others);
        assert_eq!(noisy, BTreeSet::from([flooded]));
        unsearched.sort_by_key(|one| one.first);
        let mut next = FINAL - 1_000;
        for one in &unsearched {
            assert_eq!((one.wallet, one.first), (flooded, next));
            next = one.last + 1;
        }
        assert_eq!(next, FINAL + 1);
        assert!(recorded_calls(&node).len() <= 80, "{}", recorded_calls(&node).len());
    }

    async fn searched(node: &ScriptedNode, blocks: (u64, u64)) -> Result<Option<FoundOutflows>, ChainError> {
        let until = Instant::now() + Duration::from_hours(1);
        let (chain, mut noisy) = (chain_for_node_url(&node.url), BTreeSet::new());
        chain.find_outflows(&wallets(4), blocks, 1_000, &mut noisy, until).await
    }

    #[tokio::test]
    async fn a_flood_of_logs_hides_no_authorized_transfer() {
        let flooded = payment(2).from;
        let node = moved().serve_except(flood(flooded)).await;
        let found = searched(&node, (FINAL - 10, FINAL - 10)).await.unwrap().unwrap();
        let calm = two(&moved().serve().await).await;
        let sorted = |mut outflows: Vec<Outflow>| {
            outflows.sort_by_key(|outflow| (outflow.tx_hash, outflow.log_index));
            outflows
        };
        assert_eq!(sorted(found.outflows), sorted(calm.outflows));
        // A transfer that used no authorization may be missing, so the wallet is reported as unsearched.
        let unsearched: Vec<Address> = found.unsearched.iter().map(|one| one.wallet).collect();
        assert_eq!(unsearched, [flooded]);
    }

    #[tokio::test]
    async fn oversized_receipts_are_reported_as_unsearched() {
        let flooded = payment(2).from;
        let refusing = flood(flooded);
        let large = move |method: &str, params: &Value| {
            let is_receipt = method == "eth_getTransactionReceipt";
            is_receipt
                .then(oversized_rpc_response)
                .or_else(|| refusing(method, params))
        };
        let node = moved().serve_except(large).await;
        let found = searched(&node, (FINAL - 10, FINAL - 10)).await.unwrap().unwrap();
        assert!(found.outflows.iter().all(|outflow| outflow.wallet != flooded));
        assert_eq!(found.unsearched.len(), 1);
    }

    #[tokio::test]
    async fn an_unreadable_receipt_fails_the_outflow_search() {
        let refusing = flood(payment(2).from);
        let failing = move |method: &str, params: &Value| {
            let is_receipt = method == "eth_getTransactionReceipt";
            let fails = || Reply::Status(503);
            is_receipt.then(fails).or_else(|| refusing(method, params))
        };
        let node = moved().serve_except(failing).await;
        let found = searched(&node, (FINAL - 10, FINAL - 10)).await;
        assert!(found.is_err(), "{found:?}");
    }

    #[tokio::test]
    async fn the_number_of_receipts_read_per_wallet_is_limited() {
        let flooded = payment(2);
        let more = u64::try_from(MAX_RECEIPTS).unwrap() + 50;
        let used = (0..more).fold(ScriptedChain::default(), |chain, number| {
            chain.paid(&flooded, FINAL - 10, 100 + number)
        });
        let node = used.serve_except(flood(flooded.from)).await;
        let found = searched(&node, (FINAL - 10, FINAL - 10)).await.unwrap().unwrap();
        assert_eq!(found.outflows.len(), MAX_RECEIPTS);
        assert_eq!(found.unsearched.len(), 1);
    }
}
