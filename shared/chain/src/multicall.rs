//! Makes many contract calls in one RPC call, through the contract `Multicall3`. On a chain without `Multicall3`, each
//! contract call is a separate RPC call.
//!
//! Invariant: all calls in a list are made at the hash of one block (EIP-1898), so a node without this block can't
//! respond.

use crate::{Chain, ChainError};
use alloy::primitives::{Address, Bytes, address};
use alloy::sol_types::SolCall as _;
use futures_util::future::join_all;
use purser_domain::FinalBlock;
use serde_json::{Value, json};
use tokio::time::Instant;

alloy::sol! {
    struct Call3 {
        address target;
        bool allowFailure;
        bytes callData;
    }

    struct Result3 {
        bool success;
        bytes returnData;
    }

    /// The function of `Multicall3` in which a call may fail without failing the others.
    function aggregate3(Call3[] calls) returns (Result3[] returnData);
}

/// The address of `Multicall3` (mds1/multicall3, "Deployments").
const MULTICALL: Address = address!("0xcA11bde05977b3631167028862bE2a173976CA11");
/// The maximum number of contract calls per RPC call: 256 kB and some 4 million gas. Nodes allow at least 30 million
/// gas.
pub(crate) const MAX_CALLS_PER_BATCH: usize = 500;
/// The number of RPC calls for one list of contract calls after which a rejected group of contract calls is
/// not split anymore. The results of the rejected contract calls then stay unknown.
pub(crate) const MAX_CALLS: usize = 64;

/// The maximum number of concurrent RPC calls, which hosted nodes allow.
pub(crate) const MAX_CONCURRENT_CALLS: usize = 8;

const METHOD: &str = "eth_call";

pub(crate) fn contract_call(target: Address, data: Vec<u8>) -> Call3 {
    Call3 {
        target,
        allowFailure: true,
        callData: data.into(),
    }
}

impl Chain {
    /// Makes each call at `block` and parses the result with `parse`. A result is `None` if the node did not respond or
    /// if `deadline` passed.
    pub(crate) async fn call_all<T: Send>(
        &self,
        calls: &[Call3],
        parse: fn(&[u8]) -> Option<T>,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Vec<Option<T>> {
        let mut answers = Vec::with_capacity(calls.len());
        let mut made = 0_usize;
        for chunk in calls.chunks(MAX_CALLS_PER_BATCH) {
            // A stack of groups of contract calls. A group that the node rejects is split into halves.
            let mut parts = vec![chunk];
            while let Some(part) = parts.pop() {
                if Instant::now() > deadline {
                    answers.extend(part.iter().map(|_| None));
                    continue;
                }
                made = made.saturating_add(1);
                let response = match part {
                    [_] => Ok(None),
                    _ => self.call_aggregated(part, parse, block).await,
                };
                match response {
                    Ok(Some(answered)) => answers.extend(answered),
                    Ok(None) => answers.extend(self.call_each_alone(part, parse, block, deadline).await),
                    Err(error) if part.len() > 1 && made < MAX_CALLS && error.may_succeed_with_smaller_requests() => {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                    Err(_) => answers.extend(part.iter().map(|_| None)),
                }
            }
        }
        answers
    }

    async fn call_each_alone<T: Send>(
        &self,
        calls: &[Call3],
        parse: fn(&[u8]) -> Option<T>,
        block: &FinalBlock,
        deadline: Instant,
    ) -> Vec<Option<T>> {
        let mut answers = Vec::with_capacity(calls.len());
        for some in calls.chunks(MAX_CONCURRENT_CALLS) {
            if Instant::now() > deadline {
                answers.extend(some.iter().map(|_| None));
                continue;
            }
            let mut request = Vec::with_capacity(some.len());
            for call in some {
                request.push(self.call_at(call.target, call.callData.clone(), block));
            }
            let answered = join_all(request).await.into_iter();
            answers.extend(answered.map(|response| parse(&response.ok()?)));
        }
        answers
    }

    /// Makes these calls in one RPC call; `None` if the chain has no `Multicall3` contract.
    async fn call_aggregated<T>(
        &self,
        calls: &[Call3],
        parse: fn(&[u8]) -> Option<T>,
        block: &FinalBlock,
    ) -> Result<Option<Vec<Option<T>>>, ChainError> {
        let all = aggregate3Call { calls: calls.to_vec() };
        let response = self.call_at(MULTICALL, all.abi_encode().into(), block).await?;
        // A call to an address without code returns no data.
        if response.is_empty() {
            return Ok(None);
        }
        let results = aggregate3Call::abi_decode_returns(&response)
            .map_err(|_| malformed_response_error("no results of a multicall"))?;
        if results.len() != calls.len() {
            return Err(malformed_response_error("different numbers of results and calls"));
        }
        let answers = results
            .iter()
            .map(|result| result.success.then(|| parse(&result.returnData))?);
        Ok(Some(answers.collect()))
    }

    async fn call_at(&self, to: Address, data: Bytes, block: &FinalBlock) -> Result<Bytes, ChainError> {
        let call = json!({"to": to, "data": data});
        let at: Value = json!({"blockHash": block.hash, "requireCanonical": true});
        self.rpc.call(METHOD, json!([call, at])).await
    }
}

const fn malformed_response_error(response_name: &'static str) -> ChainError {
    ChainError::Malformed {
        method: METHOD,
        what: response_name,
    }
}
