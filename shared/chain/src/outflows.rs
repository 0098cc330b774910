//! What left wallets, in a range of blocks: for all of them at once, by their transfers and the authorizations that they
//! used.
//!
//! Deliberately elsewhere: which of it a settlement explains (`functions/reconcile`).

use crate::{Chain, ChainError, logs::Filter};
use alloy::primitives::Address;
use purser_domain::{AUTHORIZATION_USED, BlockId, Log, Outflow, TRANSFER, TxHash, outflows};
use tokio::time::Instant;

/// How many wallets one call asks for: nodes take up to a thousand values at a place, and an answer may be 16 MiB.
const WALLETS_IN_ONE_CALL: usize = 500;
/// How many calls more one search may take, where a node refuses large ones.
const MOST_MORE: usize = 64;

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundOutflows {
    /// What left the wallets in the blocks up to `last`.
    pub outflows: Vec<Outflow>,
    /// The last block that was searched for all wallets.
    pub last: u64,
}

impl Chain {
    /// What left these wallets from block `first` on: up to `last`, or less far where the node takes fewer blocks at once
    /// than `log_range`. `None` if not even the first could be searched until `until`.
    pub async fn outflows(
        &self,
        wallets: &[Address],
        (first, last): (u64, u64),
        log_range: u64,
        until: Instant,
    ) -> Result<Option<FoundOutflows>, ChainError> {
        let token = self.network.token().address;
        let mut calls = 0_usize;
        let mut last = last.min(first.saturating_add(log_range.saturating_sub(1)));
        let mut logs: Vec<(TxHash, BlockId, Log)> = Vec::new();
        // Halves of what was refused wait here.
        let mut parts: Vec<&[Address]> = wallets.chunks(WALLETS_IN_ONE_CALL).collect();
        let most = parts.len().saturating_add(MOST_MORE);
        while let Some(part) = parts.pop() {
            if Instant::now() > until || calls >= most {
                return Ok(None);
            }
            calls = calls.saturating_add(1);
            let filter = Filter {
                token,
                events: vec![AUTHORIZATION_USED, TRANSFER],
                payers: part.iter().map(Address::into_word).collect(),
                nonces_or_payees: Vec::new(),
            };
            match self.logs_between(&filter, first, last).await {
                Ok(found) => logs.extend(found.0.into_iter().map(|found| (found.tx_hash, found.block, found.log))),
                // Fewer blocks first: what was found in them stays right.
                Err(error) if first < last && error.may_pass_in_parts() => {
                    last = first.midpoint(last);
                    parts.push(part);
                }
                Err(error) if part.len() > 1 && error.may_pass_in_parts() => {
                    let (some, others) = part.split_at(part.len() / 2);
                    parts.extend([some, others]);
                }
                Err(error) => return Err(error),
            }
        }
        logs.retain(|(_, block, _)| block.number <= last);
        let outflows = outflows(&logs);
        Ok(Some(FoundOutflows { outflows, last }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_chain::{FINAL, ScriptedChain, asked, blocks_searched, chain_at, payment, too_large};
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::Value;
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
        while first <= FINAL {
            let next = chain
                .outflows(wallets, (first, FINAL), range, until)
                .await
                .unwrap()
                .unwrap();
            assert!(next.last >= first && next.last <= FINAL);
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
        let found = chain.outflows(&wallets(4), (FINAL - 10, FINAL), 1_000, until).await;
        assert_eq!(
            found.unwrap().unwrap(),
            FoundOutflows {
                last: FINAL - 10,
                ..two(&moved().serve().await).await
            }
        );
    }

    /// Those of one block.
    async fn two(node: &ScriptedNode) -> FoundOutflows {
        let until = Instant::now() + Duration::from_hours(1);
        let found = chain_at(&node.url)
            .outflows(&wallets(4), (FINAL - 10, FINAL - 10), 1_000, until)
            .await;
        found.unwrap().unwrap()
    }

    #[tokio::test]
    async fn without_time_nothing_is_asked_and_what_is_refused_altogether_is_an_error() {
        let node = moved().serve().await;
        let past = Instant::now() - Duration::from_secs(1);
        let found = chain_at(&node.url)
            .outflows(&wallets(4), (FINAL - 10, FINAL), 1_000, past)
            .await;
        assert_eq!(found.unwrap(), None);
        assert_eq!(asked(&node).len(), 0);
        let refused = |method: &str, _: &Value| (method == "eth_getLogs").then_some(Reply::Refused(-32_000));
        let node = moved().serve_except(refused).await;
        let until = Instant::now() + Duration::from_hours(1);
        let found = chain_at(&node.url)
            .outflows(&wallets(4), (FINAL - 900, FINAL), 1_000, until)
            .await;
        assert!(matches!(found, Err(ChainError::Refused { .. })), "{found:?}");
        assert!(asked(&node).len() <= 20, "{}", asked(&node).len());
    }
}
