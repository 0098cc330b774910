//! Questions to contracts, many in one call.
//!
//! They are asked by `Multicall3`, a contract that is at the same address on nearly every chain; on one without it, such
//! as a fresh local one, each is asked alone. Always true: all are asked at the hash of one block (EIP-1898). So all
//! answers are about the block whose time is compared, and a node that does not have that block on its chain can't
//! answer.
//!
//! Deliberately elsewhere: the questions, and how their answers are read (`nonces.rs`, `balances.rs`).

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

    /// `Multicall3`, of which every call may fail alone.
    function aggregate3(Call3[] calls) returns (Result3[] returnData);
}

/// `Multicall3` (mds1/multicall3, "Deployments").
const MULTICALL: Address = address!("0xcA11bde05977b3631167028862bE2a173976CA11");
/// How many questions one call has: 256 kB of request, and some 4 million gas where nodes allow 30 and more.
pub(crate) const IN_ONE_CALL: usize = 500;
/// How many calls one list of questions may take in all, where a node refuses large ones: then the rest stays unknown,
/// and a later run asks again.
pub(crate) const MOST_CALLS: usize = 64;

/// How many are asked side by side where each takes a call: what a hosted node allows one client.
pub(crate) const AT_ONCE: usize = 8;

const METHOD: &str = "eth_call";

/// A question to a contract.
pub(crate) fn call_of(target: Address, data: Vec<u8>) -> Call3 {
    Call3 {
        target,
        allowFailure: true,
        callData: data.into(),
    }
}

impl Chain {
    /// The answer to each of these calls as of that block, read by `read`; `None` if the node gives no answer, or
    /// would be asked after `until`.
    pub(crate) async fn ask<T: Send>(
        &self,
        calls: &[Call3],
        read: fn(&[u8]) -> Option<T>,
        block: &FinalBlock,
        until: Instant,
    ) -> Vec<Option<T>> {
        let mut answers = Vec::with_capacity(calls.len());
        let mut made = 0_usize;
        for chunk in calls.chunks(IN_ONE_CALL) {
            // Halves of what was refused wait here, the first one on top.
            let mut parts = vec![chunk];
            while let Some(part) = parts.pop() {
                if Instant::now() > until {
                    answers.extend(part.iter().map(|_| None));
                    continue;
                }
                made = made.saturating_add(1);
                let answer = match part {
                    [_] => Ok(None),
                    _ => self.aggregate(part, read, block).await,
                };
                match answer {
                    Ok(Some(answered)) => answers.extend(answered),
                    Ok(None) => answers.extend(self.each_alone(part, read, block, until).await),
                    Err(error) if part.len() > 1 && made < MOST_CALLS && error.may_pass_in_parts() => {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                    Err(_) => answers.extend(part.iter().map(|_| None)),
                }
            }
        }
        answers
    }

    async fn each_alone<T: Send>(
        &self,
        calls: &[Call3],
        read: fn(&[u8]) -> Option<T>,
        block: &FinalBlock,
        until: Instant,
    ) -> Vec<Option<T>> {
        let mut answers = Vec::with_capacity(calls.len());
        for some in calls.chunks(AT_ONCE) {
            if Instant::now() > until {
                answers.extend(some.iter().map(|_| None));
                continue;
            }
            let mut asked = Vec::with_capacity(some.len());
            for call in some {
                asked.push(self.call_at(call.target, call.callData.clone(), block));
            }
            let answered = join_all(asked).await.into_iter();
            answers.extend(answered.map(|answer| read(&answer.ok()?)));
        }
        answers
    }

    /// By one call; `None` where the chain has no `Multicall3`.
    async fn aggregate<T>(
        &self,
        calls: &[Call3],
        read: fn(&[u8]) -> Option<T>,
        block: &FinalBlock,
    ) -> Result<Option<Vec<Option<T>>>, ChainError> {
        let all = aggregate3Call { calls: calls.to_vec() };
        let answer = self.call_at(MULTICALL, all.abi_encode().into(), block).await?;
        // An address without code answers zero bytes.
        if answer.is_empty() {
            return Ok(None);
        }
        let results =
            aggregate3Call::abi_decode_returns(&answer).map_err(|_| malformed("no results of a multicall"))?;
        if results.len() != calls.len() {
            return Err(malformed("another number of results than of calls"));
        }
        let answers = results
            .iter()
            .map(|result| result.success.then(|| read(&result.returnData))?);
        Ok(Some(answers.collect()))
    }

    async fn call_at(&self, to: Address, data: Bytes, block: &FinalBlock) -> Result<Bytes, ChainError> {
        let call = json!({"to": to, "data": data});
        let at: Value = json!({"blockHash": block.hash, "requireCanonical": true});
        self.rpc.call(METHOD, json!([call, at])).await
    }
}

const fn malformed(what: &'static str) -> ChainError {
    ChainError::Malformed { method: METHOD, what }
}
