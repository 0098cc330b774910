//! The outflows of wallets in a range of blocks, searched for all wallets at once by their transfers and the
//! authorizations that they used.
//!
//! Deliberately elsewhere: which of it a settlement explains (`functions/reconcile`).

use crate::{
    Chain, ChainError,
    logs::{Filter, FoundLogs},
};
use alloy::primitives::{Address, B256};
use purser_domain::{AUTHORIZATION_USED, BlockId, Log, Outflow, TRANSFER, TxHash, outflows};
use std::collections::BTreeSet;
use tokio::time::Instant;

/// How many wallets one call asks for: nodes take up to a thousand values at a place, and an answer may be 16 MiB.
const WALLETS_IN_ONE_CALL: usize = 500;
/// How many calls one search may take for each noisy wallet: then the rest of its blocks is given up.
const MOST_OF_ONE: usize = 16;

/// Blocks in which a wallet's logs are more than the node returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsearched {
    /// The wallet.
    pub wallet: Address,
    /// The first block.
    pub first: u64,
    /// The last block.
    pub last: u64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundOutflows {
    /// The outflows in the blocks up to `last`.
    pub outflows: Vec<Outflow>,
    /// The last block that was searched for all wallets.
    pub last: u64,
    /// Wallets' blocks up to `last` that could not be searched.
    pub unsearched: Vec<Unsearched>,
}

/// Wallets and the blocks to search for them.
#[derive(Clone, Copy)]
struct Part<'a> {
    wallets: &'a [Address],
    first: u64,
    last: u64,
}

impl Part<'_> {
    fn given_up(&self) -> impl Iterator<Item = Unsearched> {
        let Self { first, last, .. } = *self;
        let unsearched = move |wallet: &Address| Unsearched {
            wallet: *wallet,
            first,
            last,
        };
        self.wallets.iter().map(unsearched)
    }
}

impl Chain {
    /// The outflows of these wallets from block `first` to `last`, or to an earlier block if the node accepts fewer
    /// blocks at once than `log_range`. `None` if not even the first block could be searched until `until`.
    ///
    /// Anybody may have the token log transfers of nothing from any wallet, more than a node returns for a block. A wallet
    /// of which that is found is added to `noisy` and asked for alone from then on, so it shortens no other's search. Its
    /// blocks that can't be read are in the answer.
    pub async fn outflows(
        &self,
        wallets: &[Address],
        (first, last): (u64, u64),
        log_range: u64,
        noisy: &mut BTreeSet<Address>,
        until: Instant,
    ) -> Result<Option<FoundOutflows>, ChainError> {
        let mut last = last.min(first.saturating_add(log_range.saturating_sub(1)));
        let (alone, together): (Vec<Address>, Vec<Address>) =
            wallets.iter().partition(|wallet| noisy.contains(*wallet));
        let mut logs = FoundLogs::default();
        let mut unsearched = Vec::new();
        // Halves of what was refused wait here.
        let mut parts: Vec<&[Address]> = together.chunks(WALLETS_IN_ONE_CALL).collect();
        while let Some(wallets) = parts.pop() {
            if Instant::now() > until {
                return Ok(None);
            }
            match self.moved(Part { wallets, first, last }, ALL).await {
                Ok(found) => logs.0.extend(found.0),
                // Fewer blocks first: what was found in them stays right.
                Err(error) if first < last && error.may_pass_in_parts() => {
                    last = first.midpoint(last);
                    parts.push(wallets);
                }
                Err(error) if wallets.len() > 1 && error.may_pass_in_parts() => {
                    let (some, others) = wallets.split_at(wallets.len() / 2);
                    parts.extend([some, others]);
                }
                Err(error) => {
                    let part = Part { wallets, first, last };
                    if let Some(found) = self.again_if_noisy(part, error).await? {
                        logs.0.extend(found.0);
                    } else {
                        unsearched.extend(part.given_up());
                        noisy.extend(wallets);
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
            let mut calls = 0_usize;
            while let Some(part) = parts.pop() {
                if Instant::now() > until {
                    return Ok(None);
                }
                calls = calls.saturating_add(1);
                match self.moved(part, ALL).await {
                    Ok(found) => logs.0.extend(found.0),
                    Err(error) if part.first < part.last && calls < MOST_OF_ONE && error.may_pass_in_parts() => {
                        let middle = part.first.midpoint(part.last);
                        let (low, high) = (Part { last: middle, ..part }, middle.saturating_add(1));
                        parts.extend([Part { first: high, ..part }, low]);
                    }
                    Err(error) => {
                        if let Some(found) = self.again_if_noisy(part, error).await? {
                            logs.0.extend(found.0);
                        } else {
                            unsearched.extend(part.given_up());
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
        unsearched.retain(|one: &Unsearched| one.first <= last);
        let outflows = outflows(&logs);
        Ok(Some(FoundOutflows {
            outflows,
            last,
            unsearched,
        }))
    }

    /// Asks again for a part that the node refused; `None` if there are more transfers in it than the node returns. That
    /// is known by the uses of authorizations alone, which strangers can't add to: the node returns those. If it refuses
    /// these too, the node is at fault, and no block may be given up for that.
    async fn again_if_noisy(&self, part: Part<'_>, refusal: ChainError) -> Result<Option<FoundLogs>, ChainError> {
        if !refusal.is_of_size() {
            return Err(refusal);
        }
        self.moved(part, &[AUTHORIZATION_USED]).await?;
        match self.moved(part, ALL).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_of_size() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn moved(&self, part: Part<'_>, events: &[B256]) -> Result<FoundLogs, ChainError> {
        let filter = Filter {
            token: self.network.token().address,
            events: events.to_vec(),
            payers: part.wallets.iter().map(Address::into_word).collect(),
            nonces_or_payees: Vec::new(),
        };
        self.logs_between(&filter, part.first, part.last).await
    }
}

const ALL: &[B256] = &[AUTHORIZATION_USED, TRANSFER];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_chain::{FINAL, ScriptedChain, asked, blocks_searched, chain_at, payment, too_large};
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn wallets(count: u64) -> Vec<Address> {
        (0..count).map(|number| payment(number).from).collect()
    }

    /// Two payments, and a transfer that used no authorization.
    fn moved() -> ScriptedChain {
        ScriptedChain::default()
            .paid(&payment(1), FINAL - 900, 1)
            .paid(&payment(2), FINAL - 10, 2)
            .transferred(&payment(1), 7, FINAL - 10, 3)
            .transferred(&payment(1), 0, FINAL - 9, 4)
    }

    /// Every outflow up to the final block, by as many searches as it takes.
    async fn all(node: &ScriptedNode, wallets: &[Address], range: u64) -> Vec<(u64, String, bool)> {
        let chain = chain_at(&node.url);
        let until = Instant::now() + Duration::from_hours(1);
        let (mut first, mut found) = (FINAL - 1_500, Vec::new());
        let mut noisy = BTreeSet::new();
        while first <= FINAL {
            let next = chain
                .outflows(wallets, (first, FINAL), range, &mut noisy, until)
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
    async fn all_wallets_are_searched_by_one_call_for_each_range() {
        let node = moved().serve().await;
        assert_eq!(all(&node, &wallets(4), 1_000).await, expected());
        let searches = |node: &ScriptedNode| asked(node).iter().filter(|(method, _)| method == "eth_getLogs").count();
        assert_eq!(searches(&node), 2);
        // A stranger's wallet, and none.
        let node = moved().serve().await;
        assert_eq!(all(&node, &[Address::repeat_byte(1)], 1_000).await, []);
        assert_eq!(all(&node, &[], 1_000).await, []);
        assert_eq!(searches(&node), 2);
    }

    #[tokio::test]
    async fn a_node_that_takes_fewer_blocks_or_wallets_at_once_is_asked_for_fewer() {
        let few_blocks =
            |method: &str, params: &Value| (method == "eth_getLogs" && blocks_searched(params) > 100).then(too_large);
        let node = moved().serve_except(few_blocks).await;
        assert_eq!(all(&node, &wallets(4), 1_000).await, expected());
        let few_wallets = |method: &str, params: &Value| {
            let of_many = params[0]["topics"][1]
                .as_array()
                .is_some_and(|wallets| wallets.len() > 1);
            (method == "eth_getLogs" && of_many).then(too_large)
        };
        let node = moved().serve_except(few_wallets).await;
        let chain = chain_at(&node.url);
        let until = Instant::now() + Duration::from_hours(1);
        let found = chain
            .outflows(&wallets(4), (FINAL - 10, FINAL), 1_000, &mut BTreeSet::new(), until)
            .await;
        assert_eq!(
            found.unwrap().unwrap(),
            FoundOutflows {
                last: FINAL - 10,
                ..two(&moved().serve().await).await
            }
        );
    }

    /// The outflows of one block.
    async fn two(node: &ScriptedNode) -> FoundOutflows {
        let until = Instant::now() + Duration::from_hours(1);
        let found = chain_at(&node.url)
            .outflows(
                &wallets(4),
                (FINAL - 10, FINAL - 10),
                1_000,
                &mut BTreeSet::new(),
                until,
            )
            .await;
        found.unwrap().unwrap()
    }

    #[tokio::test]
    async fn without_time_nothing_is_asked_and_what_is_refused_altogether_is_an_error() {
        let node = moved().serve().await;
        let past = Instant::now() - Duration::from_secs(1);
        let found = chain_at(&node.url)
            .outflows(&wallets(4), (FINAL - 10, FINAL), 1_000, &mut BTreeSet::new(), past)
            .await;
        assert_eq!(found.unwrap(), None);
        assert_eq!(asked(&node).len(), 0);
        let refused = |method: &str, _: &Value| (method == "eth_getLogs").then_some(Reply::Refused(-32_000));
        let node = moved().serve_except(refused).await;
        let until = Instant::now() + Duration::from_hours(1);
        let found = chain_at(&node.url)
            .outflows(&wallets(4), (FINAL - 900, FINAL), 1_000, &mut BTreeSet::new(), until)
            .await;
        assert!(matches!(found, Err(ChainError::Refused { .. })), "{found:?}");
        assert!(asked(&node).len() <= 20, "{}", asked(&node).len());
    }

    /// In every block there are more transfers of nothing from one wallet than the node returns.
    #[tokio::test]
    async fn one_wallets_flood_hides_no_other_wallets_outflows() {
        let flooded = payment(2).from;
        let too_many = move |method: &str, params: &Value| {
            let topics = &params[0]["topics"];
            let has = |place: usize, word: B256| topics[place].as_array().unwrap().contains(&json!(word));
            (method == "eth_getLogs" && has(0, TRANSFER) && has(1, flooded.into_word())).then(too_large)
        };
        let node = moved().serve_except(too_many).await;
        let chain = chain_at(&node.url);
        let until = Instant::now() + Duration::from_hours(1);
        let (mut first, mut noisy) = (FINAL - 1_000, BTreeSet::new());
        let (mut found, mut unsearched) = (Vec::new(), Vec::new());
        while first <= FINAL {
            let next = chain
                .outflows(&wallets(4), (first, FINAL), 1_000, &mut noisy, until)
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
        let other = payment(1).from;
        assert_eq!(found, [(900, other), (10, other)]);
        assert_eq!(noisy, BTreeSet::from([flooded]));
        // Its blocks, all of them and each once.
        unsearched.sort_by_key(|one| one.first);
        let mut next = FINAL - 1_000;
        for one in &unsearched {
            assert_eq!((one.wallet, one.first), (flooded, next));
            next = one.last + 1;
        }
        assert_eq!(next, FINAL + 1);
        assert!(asked(&node).len() <= 80, "{}", asked(&node).len());
    }
}
