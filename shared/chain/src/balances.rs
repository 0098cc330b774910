//! Reads the balances of many wallets at one block, through `multicall.rs`.

use crate::{
    Chain,
    multicall::{Call3, contract_call},
};
use alloy::primitives::{Address, U256};
use alloy::sol_types::SolCall as _;
use purser_domain::{Amount, FinalBlock};
use tokio::time::Instant;

alloy::sol! {
    function balanceOf(address account) returns (uint256);
}

impl Chain {
    /// Reads each wallet's balance of the network's token at `block`. A balance is `None` if the node did not respond
    /// or if `deadline` passed.
    pub async fn read_balances(
        &self,
        wallets: &[Address],
        block: &FinalBlock,
        deadline: Instant,
    ) -> Vec<Option<Amount>> {
        let token = self.network.token().address;
        let question = |account: &Address| contract_call(token, balanceOfCall { account: *account }.abi_encode());
        let calls: Vec<Call3> = wallets.iter().map(question).collect();
        self.call_all(&calls, parse_balance_word, block, deadline).await
    }
}

/// Parses a balance, capped at [`Amount::MAX`]. An empty result is `None` and not zero, because a call to an
/// address without code returns no data.
pub(crate) fn parse_balance_word(word: &[u8]) -> Option<Amount> {
    let word: [u8; 32] = word.try_into().ok()?;
    let units = u64::try_from(U256::from_be_bytes(word)).ok();
    Some(units.and_then(Amount::from_units).unwrap_or(Amount::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_chain::{
        BALANCE, FINAL, ScriptedChain, chain_for_node_url, final_block, hash_of, payment, recorded_calls,
    };
    use purser_testkit::Reply;
    use serde_json::json;
    use std::time::Duration;

    /// `nonces.rs` tests parsing, splitting and rejected calls.
    #[tokio::test]
    async fn balances_of_many_wallets_take_one_node_call() {
        let wallets: Vec<Address> = (0..3).map(|number| payment(number).from).collect();
        let until = Instant::now() + Duration::from_hours(1);
        let node = ScriptedChain::default().serve().await;
        let balances = chain_for_node_url(&node.url)
            .read_balances(&wallets, &final_block(), until)
            .await;
        assert_eq!(balances, vec![Amount::from_units(BALANCE); 3]);
        let calls = recorded_calls(&node);
        assert_eq!(calls.len(), 1);
        assert_eq!(
            calls[0].1[1],
            json!({"blockHash": hash_of(FINAL), "requireCanonical": true})
        );
        let past = Instant::now() - Duration::from_secs(1);
        let late = chain_for_node_url(&node.url)
            .read_balances(&wallets, &final_block(), past)
            .await;
        assert_eq!(late, [None; 3]);
    }

    #[tokio::test]
    async fn malformed_balance_responses_are_rejected() {
        assert_eq!(parse_balance_word(&[0; 32]), Some(Amount::ZERO));
        assert_eq!(parse_balance_word(&[0xff; 32]), Some(Amount::MAX));
        for wrong in [&[][..], &[0], &[0; 31], &[0; 33]] {
            assert_eq!(parse_balance_word(wrong), None, "{wrong:?}");
        }
        let until = Instant::now() + Duration::from_hours(1);
        let node = ScriptedChain::default()
            .serve_except(|method, _| (method == "eth_call").then(|| Reply::Result(json!("0x"))))
            .await;
        let wallets = [payment(0).from];
        let balances = chain_for_node_url(&node.url)
            .read_balances(&wallets, &final_block(), until)
            .await;
        assert_eq!(balances, [None]);
    }
}
