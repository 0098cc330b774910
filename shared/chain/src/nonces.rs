//! Reads whether nonces are used, for many nonces at once, through `multicall.rs`.

use crate::{
    Chain,
    multicall::{Call3, contract_call},
};
use alloy::sol_types::SolCall as _;
use purser_domain::{ExpectedTransfer, FinalBlock};
use tokio::time::Instant;

alloy::sol! {
    /// The EIP-3009 function that returns whether a nonce is used.
    function authorizationState(address authorizer, bytes32 nonce) returns (bool);
}

impl Chain {
    /// Reads whether each authorization is used or canceled at `block`. A result is `None` if the node did not respond
    /// or if `deadline` passed.
    pub(crate) async fn read_nonce_use_flags(
        &self,
        transfers: &[&ExpectedTransfer],
        block: &FinalBlock,
        deadline: Instant,
    ) -> Vec<Option<bool>> {
        let calls: Vec<Call3> = transfers.iter().map(|expected| nonce_state_call(expected)).collect();
        self.call_all(&calls, parse_bool_word, block, deadline).await
    }
}

fn nonce_state_call(expected: &ExpectedTransfer) -> Call3 {
    let call = authorizationStateCall {
        authorizer: expected.from,
        nonce: expected.nonce,
    };
    contract_call(expected.token, call.abi_encode())
}

/// Parses a Solidity `bool`. An empty result is `None` and not `false`, because a call to an address without
/// code returns no data.
fn parse_bool_word(word: &[u8]) -> Option<bool> {
    let (last, zeros) = word.split_last()?;
    let is_word = word.len() == 32 && zeros.iter().all(|byte| *byte == 0);
    match last {
        0 if is_word => Some(false),
        1 if is_word => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_chain::{
        FINAL, Result3, ScriptedChain, aggregated, calls_of_multicall, chain_for_node_url, final_block, hash_of,
        payment, recorded_calls, word,
    };
    use alloy::primitives::Bytes;
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::{Value, json};

    fn payments(count: u64) -> Vec<ExpectedTransfer> {
        (0..count).map(payment).collect()
    }

    /// Returns a chain on which every third payment is in a final block, and the next payment in a block that is not
    /// final.
    fn every_third_used(payments: &[ExpectedTransfer]) -> ScriptedChain {
        let used = (0..).zip(payments).filter(|(number, _)| number % 3 < 2);
        used.fold(ScriptedChain::default(), |chain, (number, payment)| {
            chain.paid(payment, FINAL + number % 3, number)
        })
    }

    fn thirds(count: usize) -> Vec<Option<bool>> {
        (0..count).map(|number| Some(number % 3 == 0)).collect()
    }

    async fn are_used(node: &ScriptedNode, payments: &[ExpectedTransfer]) -> Vec<Option<bool>> {
        let wanted: Vec<&ExpectedTransfer> = payments.iter().collect();
        let in_an_hour = Instant::now() + std::time::Duration::from_hours(1);
        chain_for_node_url(&node.url)
            .read_nonce_use_flags(&wanted, &final_block(), in_an_hour)
            .await
    }

    /// Returns the call data of `authorizationState(address,bytes32)`: the selector and both arguments as words.
    fn data(payment: &ExpectedTransfer) -> String {
        let digits = |text: String| text.trim_start_matches("0x").to_owned();
        let (payer, nonce) = (payment.from.into_word().to_string(), payment.nonce.to_string());
        format!("0xe94a0102{}{}", digits(payer), digits(nonce))
    }

    #[tokio::test]
    async fn hundreds_of_nonces_take_one_multicall() {
        let payments = payments(499);
        let node = every_third_used(&payments).serve().await;
        assert_eq!(are_used(&node, &payments).await, thirds(499));

        let calls = recorded_calls(&node);
        let [(method, params)] = &calls[..] else {
            panic!("{} calls", calls.len())
        };
        assert_eq!(method, "eth_call");
        assert_eq!(
            params[1],
            json!({"blockHash": hash_of(FINAL), "requireCanonical": true})
        );
        assert_eq!(params[0]["to"], "0xca11bde05977b3631167028862be2a173976ca11");
        // The selector of `aggregate3`.
        assert!(params[0]["data"].as_str().unwrap().starts_with("0x82ad56cb"));
        let parts = calls_of_multicall(params);
        assert_eq!(parts.len(), 499);
        for (call, payment) in parts.iter().zip(&payments) {
            assert_eq!((call.target, call.allowFailure), (payment.token, true));
            assert_eq!(call.callData.to_string(), data(payment));
        }
    }

    #[tokio::test]
    async fn nonces_beyond_one_multicall_take_two_multicalls() {
        let payments = payments(501);
        let node = every_third_used(&payments).serve().await;
        assert_eq!(are_used(&node, &payments).await, thirds(501));
        assert_eq!(recorded_calls(&node).len(), 2);
    }

    #[tokio::test]
    async fn a_single_nonce_is_queried_without_multicall() {
        let node = every_third_used(&payments(1)).serve().await;
        assert_eq!(are_used(&node, &payments(1)).await, [Some(true)]);
        let call = json!({"to": "0x036cbd53842c5426634e7929541ec2318f3dcf7e", "data": data(&payment(0))});
        let at = json!({"blockHash": hash_of(FINAL), "requireCanonical": true});
        assert_eq!(recorded_calls(&node), [("eth_call".to_owned(), json!([call, at]))]);
        assert_eq!(are_used(&node, &[]).await, []);
        assert_eq!(recorded_calls(&node).len(), 1);
    }

    #[tokio::test]
    async fn chains_without_multicall_are_queried_one_by_one() {
        let payments = payments(20);
        let mut chain = every_third_used(&payments);
        chain.multicall = false;
        let node = chain.serve().await;
        assert_eq!(are_used(&node, &payments).await, thirds(20));
        assert_eq!(recorded_calls(&node).len(), 21);
    }

    #[tokio::test]
    async fn invalid_nonce_states_are_treated_as_unknown() {
        let one = |answer: Reply| async {
            let node = every_third_used(&payments(1))
                .serve_except(move |method, _| (method == "eth_call").then(|| answer.clone()))
                .await;
            are_used(&node, &payments(1)).await
        };
        for answer in [
            "0x".to_owned(),
            "0x00".to_owned(),
            word(2).to_string(),
            format!("{}00", word(0)),
        ] {
            assert_eq!(one(Reply::Result(json!(answer))).await, [None], "{answer}");
        }
        // The node does not have the block.
        assert_eq!(one(Reply::Refused(-32_001)).await, [None]);
        assert_eq!(one(Reply::Status(503)).await, [None]);
    }

    fn result(success: bool, returned: impl Into<Bytes>) -> Result3 {
        Result3 {
            success,
            returnData: returned.into(),
        }
    }

    #[tokio::test]
    async fn failed_multicall_subcalls_do_not_affect_other_nonces() {
        let rows = [
            result(false, word(0)),
            result(false, word(1)),
            result(true, Bytes::new()),
            result(true, [0]),
            result(true, [0; 31]),
            result(true, [0; 33]),
            result(true, word(2)),
            result(true, [1; 32]),
        ];
        for odd in rows {
            let shown = format!("{} {}", odd.success, odd.returnData);
            let answer = aggregated(&[result(true, word(1)), odd, result(true, word(0))]);
            let other = move |method: &str, _: &Value| (method == "eth_call").then(|| Reply::Result(answer.clone()));
            let node = every_third_used(&payments(3)).serve_except(other).await;
            assert_eq!(
                are_used(&node, &payments(3)).await,
                [Some(true), None, Some(false)],
                "{shown}"
            );
        }
    }

    /// Each nonce is then read by a separate call, and the node does not respond to these calls.
    #[tokio::test]
    async fn malformed_multicall_responses_are_ignored() {
        let unused = || result(true, word(0));
        let rows = [
            aggregated(&[]),
            aggregated(&[unused()]),
            aggregated(&[unused(), unused(), unused(), unused()]),
            json!("0x00"),
            json!(word(0)),
            json!(Bytes::from(vec![0xff; 512])),
            json!({}),
            Value::Null,
        ];
        for answer in rows {
            let shown = answer.to_string();
            let other = move |method: &str, params: &Value| {
                let is_multicall = !calls_of_multicall(params).is_empty();
                let nonsense = if is_multicall {
                    Reply::Result(answer.clone())
                } else {
                    Reply::Refused(-32_000)
                };
                (method == "eth_call").then_some(nonsense)
            };
            let node = every_third_used(&payments(3)).serve_except(other).await;
            assert_eq!(are_used(&node, &payments(3)).await, [None; 3], "{shown}");
        }
    }

    #[tokio::test]
    async fn rejected_multicalls_are_split_in_halves() {
        let payments = payments(400);
        for refusal in [Reply::Refused(-32_000), Reply::Status(413), Reply::Status(500)] {
            let shown = format!("{refusal:?}");
            let limited =
                move |_: &str, params: &Value| (calls_of_multicall(params).len() > 100).then(|| refusal.clone());
            let node = every_third_used(&payments).serve_except(limited).await;
            assert_eq!(are_used(&node, &payments).await, thirds(400), "{shown}");
            // One call for all nonces, two for the halves, and four for the quarters.
            assert_eq!(recorded_calls(&node).len(), 7, "{shown}");
        }
    }

    #[tokio::test]
    async fn calls_to_a_node_that_rejects_them_are_limited() {
        let payments = payments(1_000);
        let refused = |method: &str, _: &Value| (method == "eth_call").then_some(Reply::Refused(-32_000));
        let node = ScriptedChain::default().serve_except(refused).await;
        assert_eq!(are_used(&node, &payments).await, [None; 1_000]);
        assert!(recorded_calls(&node).len() <= 80, "{}", recorded_calls(&node).len());
    }

    #[tokio::test]
    async fn throttled_or_unresponsive_multicalls_are_not_split() {
        // `HttpNode` repeats a call once if the connection closes without a response.
        for (answer, calls) in [(Reply::Status(429), 1), (Reply::Status(503), 1), (Reply::HangUp, 2)] {
            let shown = format!("{answer:?}");
            let node = ScriptedChain::default()
                .serve_except(move |method, _| (method == "eth_call").then(|| answer.clone()))
                .await;
            assert_eq!(are_used(&node, &payments(400)).await, [None; 400], "{shown}");
            assert_eq!(recorded_calls(&node).len(), calls, "{shown}");
        }
    }
}
