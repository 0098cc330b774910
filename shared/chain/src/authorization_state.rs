//! The final block, and the state of an authorization at it.
//!
//! Always true: whether the nonce is used is asked by the hash of the block (EIP-1898). So the answer is about the same
//! block whose time is compared, and a node that does not have that block on its chain can't answer. A transaction
//! counts if it is in a block up to the final one, on the chain that the node holds to be canonical.
//!
//! Deliberately elsewhere: what follows from it ([`purser_domain::reconcile`]).

use crate::{
    Chain, ChainError,
    rpc::{Mined, Quantity, WireFound, WireHeader},
};
use alloy::primitives::{B256, Bytes, U256};
use alloy::sol_types::SolCall as _;
use purser_domain::{
    AUTHORIZATION_CANCELED, AUTHORIZATION_USED, AuthorizationState, Duration, Expected, FinalBlock, Receipt,
    Settlement, Terms, Timestamp, TxHash, match_transfer,
};
use serde_json::json;

alloy::sol! {
    /// EIP-3009.
    function authorizationState(address authorizer, bytes32 nonce) returns (bool);
}

/// How long before its recorded time an authorization's use is searched for. It can't be used before it is made, but
/// the clock that recorded it may have been ahead by this much.
const CLOCKS_APART: Duration = Duration::from_secs_u32(3_600);
/// The most searches before `validBefore`, and after it. Of 1,000 blocks each, 64 are 35 hours of Base, and a payment
/// of an hour takes four; a later cancellation is known by the state before it, or not found.
const MOST_SEARCHES: u32 = 64;

/// How an authorization was used.
enum Trace {
    /// By this transaction.
    Transaction(TxHash),
    /// Not by a transfer: it was unused in a final block at or past its `validBefore`.
    UnusedInTime,
    /// Not found.
    None,
}

impl Chain {
    /// The newest final block. Each call asks the node again which chain it serves.
    pub async fn final_block(&self) -> Result<FinalBlock, ChainError> {
        let (right, head) = tokio::join!(self.verify_chain_id(), self.head());
        right?;
        self.final_below(head?).await
    }

    /// Whether this transaction can no longer be in a block that takes a payment of before `valid_before`: a final
    /// block is of that time or later (EIP-3009 takes no authorization in it, and block times never fall along a
    /// chain), and the node does not know the transaction.
    ///
    /// The transaction is asked for after the block, in case the node was behind on both.
    pub async fn is_too_late_for(&self, tx_hash: TxHash, valid_before: Timestamp) -> Result<bool, ChainError> {
        let (right, head) = tokio::join!(self.check_chain(), self.head());
        right?;
        let block = self.final_below(head?).await?;
        Ok(block.at >= valid_before && self.receipt(tx_hash).await?.is_none())
    }

    /// The newest final block, where `head` is the newest block.
    async fn final_below(&self, head: u64) -> Result<FinalBlock, ChainError> {
        // On a chain shorter than that, the first block: it is on every fork.
        let number = head.saturating_add(1).saturating_sub(self.finality.confirmations);
        let block = self.header(number).await?;
        block.ok_or(ChainError::Malformed {
            method: HEADER,
            what: "nothing, for a block below its newest",
        })
    }

    /// The state of a settlement's authorization at that block. `log_range` is how many blocks the node searches in one
    /// call.
    pub async fn authorization_state(
        &self,
        settlement: &Settlement,
        expected: &Expected,
        block: &FinalBlock,
        log_range: u64,
    ) -> Result<AuthorizationState, ChainError> {
        // The transaction that confirmed it is usually still there, and then nothing else needs to be asked.
        if let Some(tx_hash) = settlement.tx_hash()
            && let Some(receipt) = self.receipt_up_to(block, tx_hash).await?
            && match_transfer(expected, &receipt).is_ok()
        {
            return Ok(AuthorizationState::Used(receipt));
        }
        if !self.is_used(expected, block).await? {
            return Ok(AuthorizationState::Unused);
        }
        match self.trace(&settlement.terms, expected, block, log_range).await? {
            Trace::Transaction(tx_hash) => {
                let receipt = self.receipt_up_to(block, tx_hash).await?;
                Ok(receipt.map_or(AuthorizationState::UsedUntraced, AuthorizationState::Used))
            }
            Trace::UnusedInTime => Ok(AuthorizationState::Unused),
            Trace::None => Ok(AuthorizationState::UsedUntraced),
        }
    }

    /// Whether the nonce is used, or canceled, as of that block.
    async fn is_used(&self, expected: &Expected, block: &FinalBlock) -> Result<bool, ChainError> {
        const METHOD: &str = "eth_call";
        let call = authorizationStateCall {
            authorizer: expected.from,
            nonce: expected.nonce,
        };
        let call = json!({"to": expected.token, "data": Bytes::from(call.abi_encode())});
        let at = json!({"blockHash": block.hash, "requireCanonical": true});
        let answer: Bytes = self.rpc.call(METHOD, json!([call, at])).await?;
        // An address without code answers zero bytes, which must not be read as "unused".
        let word = <[u8; 32]>::try_from(answer.as_ref()).map(U256::from_be_bytes);
        match word {
            Ok(U256::ZERO) => Ok(false),
            Ok(U256::ONE) => Ok(true),
            _ => Err(ChainError::Malformed {
                method: METHOD,
                what: "something that is neither true nor false",
            }),
        }
    }

    /// The receipt of a transaction, if it is in a block up to that one.
    async fn receipt_up_to(&self, block: &FinalBlock, tx_hash: TxHash) -> Result<Option<Receipt>, ChainError> {
        let Some(Mined { receipt, block_hash }) = self.receipt(tx_hash).await? else {
            return Ok(None);
        };
        if receipt.block_number > block.number {
            return Ok(None);
        }
        let on_chain = self.block_at(receipt.block_number).await?;
        Ok(on_chain
            .is_some_and(|block| block.hash == block_hash)
            .then_some(receipt))
    }

    /// What used or canceled an authorization, in a block up to that one.
    ///
    /// A transfer is in a block before `validBefore`, so the search goes back from there, or from the block itself:
    /// usually the first call finds it. Only a cancellation can come later. Then the nonce was unused at `validBefore`,
    /// which is enough if the node still has that state; else the search continues after it.
    async fn trace(
        &self,
        terms: &Terms,
        expected: &Expected,
        block: &FinalBlock,
        log_range: u64,
    ) -> Result<Trace, ChainError> {
        let beyond_first = log_range.saturating_sub(1);
        let too_late = self.first_past(terms.valid_before, block, log_range).await?;
        let earliest = terms.authorized_at.before(CLOCKS_APART);
        let mut last = too_late;
        for _ in 0..MOST_SEARCHES {
            let first = last.saturating_sub(beyond_first);
            if let Some(found) = self.search(expected, first, last).await? {
                return Ok(Trace::Transaction(found));
            }
            if first == 0 || self.is_before(first, earliest).await? {
                break;
            }
            last = first.saturating_sub(1);
        }
        if too_late < block.number && self.is_known_unused(expected, too_late).await? {
            return Ok(Trace::UnusedInTime);
        }
        let mut first = too_late.saturating_add(1);
        for _ in 0..MOST_SEARCHES {
            if first > block.number {
                break;
            }
            let last = first.saturating_add(beyond_first).min(block.number);
            if let Some(found) = self.search(expected, first, last).await? {
                return Ok(Trace::Transaction(found));
            }
            first = last.saturating_add(1);
        }
        Ok(Trace::None)
    }

    /// Whether the node says that the nonce was unused as of that block. Few nodes keep old states, and none has to: no
    /// answer counts as no.
    async fn is_known_unused(&self, expected: &Expected, number: u64) -> Result<bool, ChainError> {
        let Some(block) = self.header(number).await? else {
            return Ok(false);
        };
        Ok(self.is_used(expected, &block).await.is_ok_and(|used| !used))
    }

    /// A block at or past that time, at most `near` blocks after the first such; `block` itself if it is earlier.
    async fn first_past(&self, time: Timestamp, block: &FinalBlock, near: u64) -> Result<u64, ChainError> {
        let (near, mut past) = (near.max(1), block.number);
        if block.at < time {
            return Ok(past);
        }
        // Backwards by growing steps to a block before that time, usually the first; then binary search in between.
        let mut step = near;
        let mut before = past.saturating_sub(step);
        while before > 0 && !self.is_before(before, time).await? {
            past = before;
            step = step.saturating_mul(2);
            before = past.saturating_sub(step);
        }
        while past.saturating_sub(before) > near {
            let middle = before.midpoint(past);
            if self.is_before(middle, time).await? {
                before = middle;
            } else {
                past = middle;
            }
        }
        Ok(past)
    }

    /// Whether a block is before that time. A block that the node no longer has is old.
    async fn is_before(&self, number: u64, time: Timestamp) -> Result<bool, ChainError> {
        Ok(self.header(number).await?.is_none_or(|header| header.at < time))
    }

    /// The transaction in these blocks with a log that uses or cancels the authorization.
    async fn search(&self, expected: &Expected, first: u64, last: u64) -> Result<Option<TxHash>, ChainError> {
        const METHOD: &str = "eth_getLogs";
        let events = [AUTHORIZATION_USED, AUTHORIZATION_CANCELED];
        let authorization = [expected.from.into_word(), expected.nonce];
        let filter = json!([{
            "address": expected.token,
            "fromBlock": format!("{first:#x}"),
            "toBlock": format!("{last:#x}"),
            "topics": [events, authorization[0], authorization[1]],
        }]);
        let found: Vec<WireFound> = self.rpc.call(METHOD, filter).await?;
        let malformed = |what| ChainError::Malformed { method: METHOD, what };
        let is_asked = |log: &WireFound| {
            let [event, topics @ ..] = log.topics.as_slice() else {
                return false;
            };
            !log.removed && log.address == expected.token && events.contains(event) && topics == authorization
        };
        if !found.iter().all(is_asked) {
            return Err(malformed("logs that were not asked for"));
        }
        let mut transactions = found.iter().map(|log| log.transaction_hash);
        let first: Option<B256> = transactions.next();
        if transactions.any(|other| Some(other) != first) {
            return Err(malformed("two uses of one authorization"));
        }
        Ok(first.map(TxHash::from_b256))
    }

    /// The time and hash of a block; `None` if the node does not have it.
    async fn header(&self, number: u64) -> Result<Option<FinalBlock>, ChainError> {
        let asked = json!([format!("{number:#x}"), false]);
        let Some(header) = self.rpc.call::<Option<WireHeader>>(HEADER, asked).await? else {
            return Ok(None);
        };
        let malformed = |what| ChainError::Malformed { method: HEADER, what };
        if header.number != Quantity(number) {
            return Err(malformed("another block"));
        }
        let at = Timestamp::from_secs(header.timestamp.0).ok_or_else(|| malformed("a time that is none"))?;
        Ok(Some(FinalBlock {
            number,
            hash: header.hash,
            at,
        }))
    }
}

const HEADER: &str = "eth_getBlockByNumber";

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")]
mod tests {
    use super::*;
    use crate::{Finality, rpc::tests::http};
    use alloy::primitives::Address;
    use purser_domain::{
        AgentId, Amount, Fingerprint, Network, ServiceId, SettlementId, SettlementState, TRANSFER, TransactionId,
        X402Version,
    };
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::Value;
    use uuid::Uuid;

    const NETWORK: Network = Network::BaseSepolia;
    const HEAD: u64 = 1_000_000;
    const CONFIRMATIONS: u64 = 5;
    const FINAL: u64 = HEAD - CONFIRMATIONS + 1;
    const RANGE: u64 = 1_000;
    /// A block every two seconds, as on Base.
    const START: u64 = 1_700_000_000;

    fn time_of(number: u64) -> u64 {
        START + 2 * number
    }

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn tx_hash(byte: u8) -> TxHash {
        TxHash::from_b256(B256::repeat_byte(byte))
    }

    /// A payment of a minute, authorized when that block was mined.
    fn settlement(block: u64, state: SettlementState) -> Settlement {
        let authorized_at = at(time_of(block));
        Settlement {
            terms: Terms {
                id: SettlementId::from_uuid(Uuid::max()),
                transaction: TransactionId::from_uuid(Uuid::nil()),
                agent: AgentId::from_uuid(Uuid::nil()),
                wallet: Address::repeat_byte(0x20),
                service: ServiceId::from_uuid(Uuid::nil()),
                operation: purser_domain::OperationSlug::parse("a.b").unwrap(),
                network: NETWORK,
                amount: Amount::from_units(10_000).unwrap(),
                pay_to: Address::repeat_byte(0x30),
                authorized_at,
                valid_before: authorized_at.after(Duration::from_secs_u32(60)),
                x402_version: X402Version::V2,
                offer_index: 0,
                policy_version: 1,
                budgets: vec![],
                idempotency_key: Fingerprint::of_text("k"),
                approval: None,
                checks: vec![],
            },
            state,
            counted_at: authorized_at,
        }
    }

    fn held(block: u64) -> Settlement {
        settlement(block, SettlementState::Authorized)
    }

    fn expected(settlement: &Settlement) -> Expected {
        Expected::of(&settlement.terms, B256::repeat_byte(0x40))
    }

    fn number(value: &Value) -> u64 {
        u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    fn hash_of(number: u64) -> B256 {
        B256::from(U256::from(number))
    }

    /// A chain on which that transaction used the authorization, in that block.
    fn used_in(block: u64) -> impl FnMut(&str, &Value) -> Reply + Send {
        move |method, params| {
            let Expected {
                token, from, to, nonce, ..
            } = expected(&held(0));
            Reply::Result(match method {
                "eth_chainId" => json!("0x14a34"),
                "eth_blockNumber" => json!(format!("{HEAD:#x}")),
                "eth_call" => {
                    let asked: B256 = serde_json::from_value(params[1]["blockHash"].clone()).unwrap();
                    json!(format!("0x{:064x}", u8::from(asked >= hash_of(block))))
                }
                "eth_getBlockByNumber" => {
                    let number = number(&params[0]);
                    json!({"hash": hash_of(number), "number": params[0], "timestamp": format!("{:#x}", time_of(number))})
                }
                "eth_getLogs" => {
                    let (first, last) = (number(&params[0]["fromBlock"]), number(&params[0]["toBlock"]));
                    assert!(last >= first && last - first < RANGE && last <= FINAL, "{params}");
                    let topics = [AUTHORIZATION_USED, from.into_word(), nonce];
                    let found = json!({"address": token, "topics": topics, "transactionHash": tx_hash(7).b256()});
                    if (first..=last).contains(&block) {
                        json!([found])
                    } else {
                        json!([])
                    }
                }
                "eth_getTransactionReceipt" => {
                    let log = |index: &str, topics: [B256; 3], data: &str| {
                        json!({"address": token, "topics": topics, "data": data, "logIndex": index,
                            "transactionHash": params[0]})
                    };
                    json!({
                        "status": "0x1", "transactionHash": params[0], "blockHash": hash_of(block),
                        "blockNumber": format!("{block:#x}"),
                        "logs": [
                            log("0x7", [AUTHORIZATION_USED, from.into_word(), nonce], "0x"),
                            log("0x8", [TRANSFER, from.into_word(), to.into_word()], &format!("0x{:064x}", 10_000)),
                        ]
                    })
                }
                other => panic!("unexpected {other}"),
            })
        }
    }

    /// The same, except for one method.
    fn except(method: &'static str, answer: Reply, block: u64) -> impl FnMut(&str, &Value) -> Reply + Send {
        let mut node = used_in(block);
        move |called, params| {
            if called == method {
                answer.clone()
            } else {
                node(called, params)
            }
        }
    }

    fn chain(node: &ScriptedNode) -> Chain {
        let finality = Finality {
            confirmations: CONFIRMATIONS,
        };
        Chain::new(http(), NETWORK, &node.url, finality).unwrap()
    }

    fn final_block() -> FinalBlock {
        FinalBlock {
            number: FINAL,
            hash: hash_of(FINAL),
            at: at(time_of(FINAL)),
        }
    }

    async fn authorization_state(
        node: &ScriptedNode,
        settlement: &Settlement,
    ) -> Result<AuthorizationState, ChainError> {
        let chain = chain(node);
        chain
            .authorization_state(settlement, &expected(settlement), &final_block(), RANGE)
            .await
    }

    /// The transaction that was found, or the state instead.
    async fn seen(node: &ScriptedNode, settlement: &Settlement) -> String {
        match authorization_state(node, settlement).await {
            Ok(AuthorizationState::Used(receipt)) => receipt.tx_hash.to_string(),
            Ok(AuthorizationState::Unused) => "unused".to_owned(),
            Ok(AuthorizationState::UsedUntraced) => "untraced".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn the_final_block_is_the_one_of_the_configured_depth_with_its_own_hash_and_time() {
        let node = ScriptedNode::start(used_in(0)).await;
        assert_eq!(chain(&node).final_block().await.unwrap(), final_block());
        // On a chain shorter than that, the first one.
        let node = ScriptedNode::start(except("eth_blockNumber", Reply::Result(json!("0x2")), 0)).await;
        assert_eq!(chain(&node).final_block().await.unwrap().number, 0);
    }

    #[tokio::test]
    async fn a_node_that_makes_no_sense_has_no_final_block() {
        let block = |number: &str, time: &str| json!({"hash": hash_of(FINAL), "number": number, "timestamp": time});
        let rows = [
            ("eth_chainId", json!("0x1"), "the RPC serves chain 1 instead of 84532"),
            (
                "eth_getBlockByNumber",
                Value::Null,
                "`eth_getBlockByNumber` was answered with nothing, for a block below its newest",
            ),
            (
                "eth_getBlockByNumber",
                block("0x1", "0x1"),
                "`eth_getBlockByNumber` was answered with another block",
            ),
            (
                "eth_getBlockByNumber",
                block(&format!("{FINAL:#x}"), "0xffffffffffffffff"),
                "`eth_getBlockByNumber` was answered with a time that is none",
            ),
        ];
        for (method, answer, words) in rows {
            let node = ScriptedNode::start(except(method, Reply::Result(answer), 0)).await;
            assert_eq!(chain(&node).final_block().await.unwrap_err().to_string(), words);
        }
    }

    /// A node may be replaced by one of another chain while a function runs.
    #[tokio::test]
    async fn each_final_block_asks_the_node_for_its_chain() {
        let mut asked = 0;
        let mut honest = used_in(0);
        let node = ScriptedNode::start(move |method: &str, params: &Value| {
            asked += u32::from(method == "eth_chainId");
            match (method, asked) {
                ("eth_chainId", 2) => Reply::Result(json!("0x1")),
                _ => honest(method, params),
            }
        })
        .await;
        let chain = chain(&node);
        chain.final_block().await.unwrap();
        assert!(matches!(
            chain.final_block().await,
            Err(ChainError::WrongChain { found: 1, .. })
        ));
        chain.final_block().await.unwrap();
    }

    #[tokio::test]
    async fn the_nonce_is_asked_for_at_the_final_block_by_its_hash() {
        let node = ScriptedNode::start(except("eth_call", Reply::Result(json!(format!("0x{:064x}", 0))), 0)).await;
        let settlement = held(FINAL - 100);
        assert_eq!(seen(&node, &settlement).await, "unused");
        let calls = node.calls();
        let [(method, params)] = &calls[..] else {
            panic!("{calls:?}")
        };
        assert_eq!(method, "eth_call");
        // The selector of authorizationState(address,bytes32), and both as words.
        let data = format!("0xe94a0102{}{}{}", "00".repeat(12), "20".repeat(20), "40".repeat(32));
        let call = json!({"to": "0x036cbd53842c5426634e7929541ec2318f3dcf7e", "data": data});
        let at = json!({"blockHash": hash_of(FINAL), "requireCanonical": true});
        assert_eq!(*params, json!([call, at]));
    }

    #[tokio::test]
    async fn what_is_neither_true_nor_false_is_no_state_of_a_nonce() {
        for answer in [json!("0x"), json!("0x00"), json!(format!("0x{:064x}", 2))] {
            let node = ScriptedNode::start(except("eth_call", Reply::Result(answer), 0)).await;
            assert_eq!(
                seen(&node, &held(FINAL - 100)).await,
                "`eth_call` was answered with something that is neither true nor false"
            );
        }
        // A node that does not have that block on its chain.
        let node = ScriptedNode::start(except("eth_call", Reply::Refused(-32_001), 0)).await;
        assert_eq!(
            seen(&node, &held(FINAL - 100)).await,
            "`eth_call` was refused with JSON-RPC code -32001"
        );
    }

    /// How many searches and how many headers it takes, for uses from seconds to months ago.
    #[tokio::test]
    async fn a_use_is_found_wherever_it_is_with_few_calls() {
        let rows = [
            // Authorized and used in these blocks: paid immediately, in the last block that can take it, and long ago.
            (FINAL - 20, FINAL - 19, 1, 0),
            (FINAL - 40, FINAL - 40 + 29, 1, 1),
            (FINAL - 5_000, FINAL - 4_999, 1, 5),
            (3_000, 3_029, 1, 20),
            (0, 0, 1, 20),
            // The clock that recorded it was half an hour ahead.
            (FINAL - 20, FINAL - 920, 1, 0),
            (FINAL - 20, FINAL - 1_700, 2, 1),
        ];
        for (authorized, used, searches, headers) in rows {
            let node = ScriptedNode::start(used_in(used)).await;
            let name = format!("authorized in {authorized}, used in {used}");
            assert_eq!(seen(&node, &held(authorized)).await, tx_hash(7).to_string(), "{name}");
            assert!(
                node.count("eth_getLogs") <= searches,
                "{name}: {}",
                node.count("eth_getLogs")
            );
            // One more is for the receipt.
            let asked = node.count("eth_getBlockByNumber") - 1;
            assert!(asked <= headers, "{name}: {asked}");
        }
    }

    /// A cancellation after a day without reconciliation.
    #[tokio::test]
    async fn a_late_cancellation_is_known_by_the_state_before_it_or_found() {
        let (authorized, canceled) = (FINAL - 50_000, FINAL - 7_000);
        let node = ScriptedNode::start(used_in(canceled)).await;
        assert_eq!(seen(&node, &held(authorized)).await, "unused");
        assert!(node.count("eth_getLogs") <= 3, "{}", node.count("eth_getLogs"));
        // A node that does not keep states that old refuses; then the logs are searched.
        let mut full = used_in(canceled);
        let node = ScriptedNode::start(move |method: &str, params: &Value| {
            if method == "eth_call" && params[1]["blockHash"] != json!(hash_of(FINAL)) {
                return Reply::Refused(-32_000);
            }
            full(method, params)
        })
        .await;
        assert_eq!(seen(&node, &held(authorized)).await, tx_hash(7).to_string());
        assert!(node.count("eth_getLogs") <= 48, "{}", node.count("eth_getLogs"));
    }

    #[tokio::test]
    async fn what_is_not_found_is_given_up_and_untraced() {
        let no_logs = Reply::Result(json!([]));
        for authorized in [FINAL - 20, FINAL - 900_000, 0] {
            let node = ScriptedNode::start(except("eth_getLogs", no_logs.clone(), 0)).await;
            assert_eq!(seen(&node, &held(authorized)).await, "untraced");
            assert!(node.count("eth_getLogs") <= 67, "{}", node.count("eth_getLogs"));
        }
        // Its receipt is of a block that is not on the chain, or above the final one, or is gone.
        let params = json!([tx_hash(7).b256()]);
        let Reply::Result(receipt) = used_in(FINAL)("eth_getTransactionReceipt", &params) else {
            panic!()
        };
        let with = |name: &str, value: Value| {
            let mut receipt = receipt.clone();
            receipt[name] = value;
            receipt
        };
        let receipts = [
            with("blockHash", json!(B256::repeat_byte(1))),
            with("blockNumber", json!(format!("{:#x}", FINAL + 1))),
            Value::Null,
        ];
        for receipt in receipts {
            let answer = Reply::Result(receipt);
            let node = ScriptedNode::start(except("eth_getTransactionReceipt", answer, FINAL - 19)).await;
            assert_eq!(seen(&node, &held(FINAL - 20)).await, "untraced");
        }
    }

    #[tokio::test]
    async fn logs_that_were_not_asked_for_are_an_error() {
        let Expected { token, from, nonce, .. } = expected(&held(0));
        let log = |topics: Vec<B256>, transaction: u8| json!({"address": token, "topics": topics, "transactionHash": B256::repeat_byte(transaction)});
        let ours = || vec![AUTHORIZATION_CANCELED, from.into_word(), nonce];
        let removed = json!({"address": token, "topics": ours(), "transactionHash": nonce, "removed": true});
        let rows = [
            (
                json!([log(vec![TRANSFER, from.into_word(), nonce], 7)]),
                "logs that were not asked for",
            ),
            (json!([log(vec![], 7)]), "logs that were not asked for"),
            (json!([removed]), "logs that were not asked for"),
            (json!([log(ours(), 7), log(ours(), 8)]), "two uses of one authorization"),
            (json!({}), "a result of another shape"),
        ];
        for (answer, words) in rows {
            let node = ScriptedNode::start(except("eth_getLogs", Reply::Result(answer), FINAL - 19)).await;
            assert_eq!(
                seen(&node, &held(FINAL - 20)).await,
                format!("`eth_getLogs` was answered with {words}")
            );
        }
    }

    #[tokio::test]
    async fn a_confirmed_one_is_looked_for_where_it_was_first() {
        let confirmed = |byte| {
            let state = SettlementState::Confirmed {
                tx_hash: tx_hash(byte),
                block_number: FINAL - 19,
                settled_at: at(START),
            };
            settlement(FINAL - 20, state)
        };
        let node = ScriptedNode::start(used_in(FINAL - 19)).await;
        assert_eq!(seen(&node, &confirmed(7)).await, tx_hash(7).to_string());
        assert_eq!((node.count("eth_call"), node.count("eth_getLogs")), (0, 0));

        // The transaction that confirmed it is gone, and the authorization is unused again, or used by another one.
        let mut honest = used_in(FINAL - 19);
        let node = ScriptedNode::start(move |method: &str, params: &Value| match method {
            "eth_getTransactionReceipt" if params[0] == json!(tx_hash(8).b256()) => Reply::Result(Value::Null),
            _ => honest(method, params),
        })
        .await;
        assert_eq!(seen(&node, &confirmed(8)).await, tx_hash(7).to_string());
        let gone = Reply::Result(Value::Null);
        let mut gone = except("eth_getTransactionReceipt", gone, FINAL);
        let node = ScriptedNode::start(move |method: &str, params: &Value| match method {
            "eth_call" => Reply::Result(json!(format!("0x{:064x}", 0))),
            _ => gone(method, params),
        })
        .await;
        assert_eq!(seen(&node, &confirmed(7)).await, "unused");
    }
}
