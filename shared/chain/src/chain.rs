//! Balances, and whether a transaction is the authorized payment, in a final block.
//!
//! A block is final at the configured depth, counted from the node's newest block, on the chain that the node holds to
//! be canonical. Until then the answer is [`Evidence::Pending`]: neither a payment nor a mismatch counts while a
//! reorganization may still undo it.
//!
//! Deliberately elsewhere: what the payment must look like ([`match_transfer`]), and what follows from the answer.

use crate::{
    ChainError,
    rpc::{HttpNode, Mined, Node, Quantity, Rpc, WireBlock, WireReceipt, log_failure},
};
use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::SolCall as _;
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use purser_domain::{Amount, Expected, Mismatch, Network, Transfer, TxHash, match_transfer};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::RwLock,
    time::{sleep, timeout},
};

alloy::sol! {
    /// ERC-20.
    function balanceOf(address account) returns (uint256);
}

/// How deep a block must be to be final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finality {
    /// The number of blocks from the transaction's own to the newest, both included; 0 counts as 1.
    pub confirmations: u64,
}

/// How long one call to the node may take, from connecting to the last byte; looking up a transaction takes two calls
/// in sequence. A hosted node answers in 20 to 200 ms: this allows for one slow answer within the time that a caller
/// waits.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the chain shows about one transaction and one authorized payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It is the payment, and final.
    Final(Transfer),
    /// It is not the payment, and that is final.
    Mismatch(Mismatch),
    /// Not known yet.
    Pending(Pending),
}

/// Why it is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// The node knows no receipt: the transaction is not mined yet, or does not exist.
    NotMined,
    /// Its block is not deep enough.
    NotFinal,
    /// Its block was removed by a reorganization.
    Reorganized,
}

impl Pending {
    /// `reason` of a retryable `onchain_settlement_not_verified` (docs/spec.md §7).
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotMined => "transaction_not_mined",
            Self::NotFinal => "transaction_not_final",
            Self::Reorganized => "transaction_reorganized",
        }
    }
}

/// How often a pending transaction is looked up again: Base has a block every two seconds, a Flashblock every 200 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// One chain, read through one node.
#[derive(Debug)]
pub struct Chain {
    network: Network,
    pub(crate) finality: Finality,
    pub(crate) rpc: Rpc,
    /// Whether the node was seen to serve this network. Never reset.
    verified: AtomicBool,
    /// Locked while the node is warmed up.
    greeting: RwLock<()>,
}

impl Chain {
    /// The network's chain through the node at `rpc_url`, over this client. Nothing is called yet.
    pub fn new(
        http: SharedHttpConnector,
        network: Network,
        rpc_url: &str,
        finality: Finality,
    ) -> Result<Self, ChainError> {
        let node = HttpNode::new(http, rpc_url, NODE_TIMEOUT)?;
        Ok(Self::of_node(network, Arc::new(node), finality))
    }

    /// The network's chain through this node.
    pub fn of_node(network: Network, node: Arc<dyn Node>, finality: Finality) -> Self {
        let finality = Finality {
            confirmations: finality.confirmations.max(1),
        };
        Self {
            network,
            finality,
            rpc: Rpc::new(node),
            verified: AtomicBool::new(false),
            greeting: RwLock::default(),
        }
    }

    /// The chain's network.
    pub const fn network(&self) -> Network {
        self.network
    }

    /// What a wallet holds of the network's token, in the newest block; more than [`Amount::MAX`] counts as that.
    pub async fn balance(&self, wallet: Address) -> Result<Amount, ChainError> {
        const METHOD: &str = "eth_call";
        let data = Bytes::from(balanceOfCall { account: wallet }.abi_encode());
        let call = json!([{"to": self.network.token().address, "data": data}, "latest"]);
        let (right, answer) = tokio::join!(self.check_chain(), self.rpc.call::<Bytes>(METHOD, call));
        right?;
        // An address without code answers zero bytes, which must not be read as a balance of zero.
        let word: [u8; 32] = answer?.as_ref().try_into().map_err(|_| ChainError::Malformed {
            method: METHOD,
            what: "something that is not a balance",
        })?;
        let units = u64::try_from(U256::from_be_bytes(word))
            .ok()
            .and_then(Amount::from_units);
        Ok(units.unwrap_or(Amount::MAX))
    }

    /// What the chain shows now about a transaction that is said to be an authorized payment.
    pub async fn look_up(&self, expected: &Expected, tx_hash: TxHash) -> Result<Evidence, ChainError> {
        let (right, mined, head) = tokio::join!(self.check_chain(), self.receipt(tx_hash), self.head());
        right?;
        let Some(Mined { receipt, block_hash }) = mined? else {
            return Ok(Evidence::Pending(Pending::NotMined));
        };
        // The newest block has depth 1; 0 if the node is behind the one that gave the receipt.
        let depth = head?
            .checked_sub(receipt.block_number)
            .and_then(|above| above.checked_add(1))
            .unwrap_or(0);
        if depth < self.finality.confirmations {
            return Ok(Evidence::Pending(Pending::NotFinal));
        }
        match self.block_at(receipt.block_number).await? {
            Some(block) if block.hash == block_hash => {}
            Some(_) => return Ok(Evidence::Pending(Pending::Reorganized)),
            None => return Ok(Evidence::Pending(Pending::NotFinal)),
        }
        Ok(match match_transfer(expected, &receipt) {
            Ok(transfer) => Evidence::Final(transfer),
            Err(mismatch) => Evidence::Mismatch(mismatch),
        })
    }

    /// As [`Chain::look_up`]; a transaction in a block that is not final yet is looked up again until `max_wait` is
    /// over. One that the node does not know is not waited for: it may come, or may be made up.
    pub async fn await_transfer(
        &self,
        expected: &Expected,
        tx_hash: TxHash,
        max_wait: Duration,
    ) -> Result<Evidence, ChainError> {
        let mut evidence = self.look_up(expected, tx_hash).await;
        if !matches!(
            evidence,
            Ok(Evidence::Pending(Pending::NotFinal | Pending::Reorganized))
        ) {
            return evidence;
        }
        let polling = async {
            while unsettled(&evidence) {
                sleep(POLL_INTERVAL).await;
                evidence = self.look_up(expected, tx_hash).await;
            }
        };
        // When `max_wait` is over, the last evidence is returned.
        let _ended = timeout(max_wait, polling).await;
        evidence
    }

    /// Warms up before the first request: opens the connection, and asks which chain the node serves. A failure, or a
    /// wrong chain, is logged, and the next call asks again.
    pub async fn warm_up(&self) {
        let _greeting = self.greeting.write().await;
        let _logged = self.verify_chain_id().await;
    }

    /// Checks once that the node serves the right chain: another chain's answer would be about other money.
    pub(crate) async fn check_chain(&self) -> Result<(), ChainError> {
        if !self.verified.load(Ordering::Relaxed) {
            // A warm-up that is under way makes the same check.
            drop(self.greeting.read().await);
        }
        if self.verified.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.verify_chain_id().await
    }

    /// Asks the node which chain it serves, even if that was checked before.
    pub(crate) async fn verify_chain_id(&self) -> Result<(), ChainError> {
        let Quantity(found) = self.rpc.call("eth_chainId", json!([])).await?;
        let expected = self.network.chain_id();
        if found != expected {
            let wrong = ChainError::WrongChain { expected, found };
            log_failure(&wrong);
            return Err(wrong);
        }
        self.verified.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) async fn head(&self) -> Result<u64, ChainError> {
        self.rpc
            .call("eth_blockNumber", json!([]))
            .await
            .map(|Quantity(number)| number)
    }

    pub(crate) async fn receipt(&self, tx_hash: TxHash) -> Result<Option<Mined>, ChainError> {
        const METHOD: &str = "eth_getTransactionReceipt";
        let Some(receipt) = self
            .rpc
            .call::<Option<WireReceipt>>(METHOD, json!([tx_hash.b256()]))
            .await?
        else {
            return Ok(None);
        };
        receipt
            .into_mined(tx_hash)
            .map_err(|what| ChainError::Malformed { method: METHOD, what })
    }

    pub(crate) async fn block_at(&self, number: u64) -> Result<Option<WireBlock>, ChainError> {
        self.rpc
            .call("eth_getBlockByNumber", json!([format!("{number:#x}"), false]))
            .await
    }
}

/// Whether another lookup of a transaction in a block may help. A wrong chain or address stays wrong.
const fn unsettled(evidence: &Result<Evidence, ChainError>) -> bool {
    match evidence {
        Ok(Evidence::Final(_) | Evidence::Mismatch(_) | Evidence::Pending(Pending::NotMined))
        | Err(ChainError::Address | ChainError::WrongChain { .. }) => false,
        Ok(Evidence::Pending(Pending::NotFinal | Pending::Reorganized))
        | Err(
            ChainError::Unreachable { .. }
            | ChainError::Status { .. }
            | ChainError::Refused { .. }
            | ChainError::Malformed { .. },
        ) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::tests::http;
    use alloy::primitives::B256;
    use purser_domain::{AUTHORIZATION_USED, TRANSFER};
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::Value;

    const NETWORK: Network = Network::BaseSepolia;
    const BLOCK: u64 = 100;
    const CONFIRMATIONS: u64 = 3;

    fn tx_hash() -> TxHash {
        TxHash::from_b256(B256::repeat_byte(0x77))
    }

    fn expected() -> Expected {
        Expected {
            token: NETWORK.token().address,
            from: Address::repeat_byte(0x20),
            to: Address::repeat_byte(0x30),
            amount: Amount::from_units(10_000).unwrap(),
            nonce: B256::repeat_byte(0x40),
        }
    }

    /// The receipt as a node writes it, with more members than are read.
    fn receipt() -> Value {
        let log = |index: &str, topics: [B256; 3], data: &str| {
            json!({
                "address": expected().token, "topics": topics, "data": data, "logIndex": index, "removed": false,
                "transactionHash": tx_hash().b256(), "blockHash": B256::repeat_byte(1), "blockNumber": "0x64",
                "transactionIndex": "0x0", "blockTimestamp": "0x1"
            })
        };
        let Expected { from, to, nonce, .. } = expected();
        json!({
            // A deposit transaction of the OP Stack: a payment may be in a transaction of any type.
            "type": "0x7e", "depositNonce": "0x1", "status": "0x1", "transactionHash": tx_hash().b256(),
            "blockHash": B256::repeat_byte(1), "blockNumber": "0x64", "gasUsed": "0x14f22",
            "logs": [
                log("0x7", [AUTHORIZATION_USED, from.into_word(), nonce], "0x"),
                log("0x8", [TRANSFER, from.into_word(), to.into_word()], &format!("0x{:064x}", 10_000)),
            ]
        })
    }

    /// A node of the right chain with our payment, deep enough; each test changes one answer.
    fn honest(method: &str, _params: &Value) -> Reply {
        Reply::Result(match method {
            "eth_chainId" => json!("0x14a34"),
            "eth_blockNumber" => json!(format!("{:#x}", BLOCK + CONFIRMATIONS - 1)),
            "eth_getTransactionReceipt" => receipt(),
            "eth_getBlockByNumber" => json!({"hash": B256::repeat_byte(1), "number": "0x64", "timestamp": "0x1"}),
            "eth_call" => json!(format!("0x{:064x}", 2_500_000)),
            other => panic!("unexpected {other}"),
        })
    }

    /// The honest node, except for one method.
    fn except(method: &'static str, answer: Reply) -> impl FnMut(&str, &Value) -> Reply + Send {
        move |called, params| {
            if called == method {
                answer.clone()
            } else {
                honest(called, params)
            }
        }
    }

    fn chain(url: &str) -> Chain {
        let node = HttpNode::new(http(), url, Duration::from_millis(500)).unwrap();
        let finality = Finality {
            confirmations: CONFIRMATIONS,
        };
        Chain::of_node(NETWORK, Arc::new(node), finality)
    }

    /// The evidence's kind, or the error as the log would show it.
    async fn look_up(node: impl FnMut(&str, &Value) -> Reply + Send + 'static) -> String {
        let node = ScriptedNode::start(node).await;
        match chain(&node.url).look_up(&expected(), tx_hash()).await {
            Ok(Evidence::Final(transfer)) => format!("final {}", transfer.block_number()),
            Ok(Evidence::Mismatch(mismatch)) => mismatch.reason().to_owned(),
            Ok(Evidence::Pending(pending)) => pending.reason().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn with(mut value: Value, pointer: &str, new: Value) -> Value {
        *value.pointer_mut(pointer).unwrap() = new;
        value
    }

    #[tokio::test]
    async fn a_payment_counts_once_its_block_is_deep_enough_and_on_the_chain() {
        assert_eq!(look_up(honest).await, "final 100");
        let block = |hash: u8| json!({"hash": B256::repeat_byte(hash)});
        let reverted = with(receipt(), "/status", json!("0x0"));
        let other_amount = with(receipt(), "/logs/1/data", json!(format!("0x{:064x}", 9_999)));
        let unmined = with(with(receipt(), "/blockHash", Value::Null), "/blockNumber", Value::Null);
        let cases = [
            ("eth_getTransactionReceipt", Value::Null, "transaction_not_mined"),
            ("eth_getTransactionReceipt", unmined, "transaction_not_mined"),
            ("eth_getTransactionReceipt", reverted, "transaction_reverted"),
            ("eth_getTransactionReceipt", other_amount, "usdc_transfer_mismatch"),
            (
                "eth_getTransactionReceipt",
                with(receipt(), "/logs", json!([])),
                "authorization_not_used",
            ),
            ("eth_blockNumber", json!("0x65"), "transaction_not_final"),
            ("eth_blockNumber", json!("0x64"), "transaction_not_final"),
            ("eth_blockNumber", json!("0x10"), "transaction_not_final"),
            ("eth_blockNumber", json!("0xffffffffffffffff"), "final 100"),
            ("eth_getBlockByNumber", block(2), "transaction_reorganized"),
            ("eth_getBlockByNumber", Value::Null, "transaction_not_final"),
        ];
        for (method, result, outcome) in cases {
            assert_eq!(
                look_up(except(method, Reply::Result(result.clone()))).await,
                outcome,
                "{method} {result}"
            );
        }
    }

    #[tokio::test]
    async fn a_mismatch_is_not_final_before_its_block_is() {
        let node = |called: &str, params: &Value| match called {
            "eth_getTransactionReceipt" => Reply::Result(with(receipt(), "/status", json!("0x0"))),
            "eth_blockNumber" => Reply::Result(json!("0x65")),
            _ => honest(called, params),
        };
        assert_eq!(look_up(node).await, "transaction_not_final");
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_an_error_and_never_a_fact() {
        const RECEIPT: &str = "`eth_getTransactionReceipt` was answered with";
        let other = json!(B256::repeat_byte(0x78));
        let cases = [
            (
                "eth_chainId",
                Reply::Result(json!("0x2105")),
                "the RPC serves chain 8453 instead of 84532".to_owned(),
            ),
            (
                "eth_chainId",
                Reply::Result(json!(84_532)),
                "`eth_chainId` was answered with a result of another shape".to_owned(),
            ),
            (
                "eth_blockNumber",
                Reply::Result(json!("100")),
                "`eth_blockNumber` was answered with a result of another shape".to_owned(),
            ),
            (
                "eth_blockNumber",
                Reply::Refused(-32_005),
                "`eth_blockNumber` was refused with JSON-RPC code -32005".to_owned(),
            ),
            (
                "eth_blockNumber",
                Reply::Status(429),
                "`eth_blockNumber` was answered with HTTP status 429".to_owned(),
            ),
            (
                "eth_blockNumber",
                Reply::Status(307),
                "`eth_blockNumber` was answered with HTTP status 307".to_owned(),
            ),
            (
                "eth_blockNumber",
                Reply::Silence,
                "`eth_blockNumber` got no answer".to_owned(),
            ),
            (
                "eth_blockNumber",
                Reply::HangUp,
                "`eth_blockNumber` got no answer".to_owned(),
            ),
            (
                "eth_getBlockByNumber",
                Reply::Result(json!({})),
                "`eth_getBlockByNumber` was answered with a result of another shape".to_owned(),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Body("{}".to_owned()),
                format!("{RECEIPT} no reply to this call"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Body(r#"{"id":2,"result":null}"#.to_owned()),
                format!("{RECEIPT} no reply to this call"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Body(r#"{"id":1}"#.to_owned()),
                format!("{RECEIPT} neither a result nor an error"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Body("<html>".to_owned()),
                format!("{RECEIPT} something that is not JSON"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Body(" ".repeat(4 * 1024 * 1024 + 1)),
                format!("{RECEIPT} more than is read"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Result(json!({})),
                format!("{RECEIPT} a result of another shape"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Result(with(receipt(), "/transactionHash", other.clone())),
                format!("{RECEIPT} the receipt of another transaction"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Result(with(receipt(), "/status", json!("0x2"))),
                format!("{RECEIPT} a status that is neither 0 nor 1"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Result(with(receipt(), "/logs/1/transactionHash", other)),
                format!("{RECEIPT} logs that are not the receipt's own"),
            ),
            (
                "eth_getTransactionReceipt",
                Reply::Result(with(receipt(), "/logs/0/removed", json!(true))),
                format!("{RECEIPT} logs that are not the receipt's own"),
            ),
        ];
        for (method, answer, outcome) in cases {
            assert_eq!(look_up(except(method, answer)).await, outcome, "{method}");
        }
    }

    #[tokio::test]
    async fn a_balance_is_one_word_and_at_most_what_an_amount_holds() {
        let cases = [
            (json!(format!("0x{:064x}", 2_500_000)), Some(2_500_000)),
            (json!(format!("0x{:064x}", 0)), Some(0)),
            (json!(format!("0x{}", "ff".repeat(32))), Some(Amount::MAX.units())),
            (
                json!(format!("0x{:064x}", Amount::MAX.units() + 1)),
                Some(Amount::MAX.units()),
            ),
            (json!("0x"), None),
            (json!("0x00"), None),
            (json!(format!("0x{}", "00".repeat(33))), None),
            (json!(5), None),
        ];
        for (answer, units) in cases {
            let node = ScriptedNode::start(except("eth_call", Reply::Result(answer.clone()))).await;
            let balance = chain(&node.url).balance(expected().from).await.ok();
            assert_eq!(balance.map(Amount::units), units, "{answer}");
        }
    }

    #[tokio::test]
    async fn the_balance_asked_for_is_the_wallets_in_the_pinned_token() {
        let node = ScriptedNode::start(honest).await;
        chain(&node.url).balance(expected().from).await.unwrap();
        let call = node
            .calls()
            .into_iter()
            .find(|(method, _)| method == "eth_call")
            .unwrap()
            .1;
        // The selector of balanceOf(address), and the address as one word.
        let data = format!("0x70a08231{}{}", "00".repeat(12), "20".repeat(20));
        assert_eq!(
            call,
            json!([{"to": "0x036cbd53842c5426634e7929541ec2318f3dcf7e", "data": data}, "latest"])
        );
    }

    #[tokio::test]
    async fn the_chain_id_is_asked_once_and_a_wrong_one_is_asked_again() {
        let node = ScriptedNode::start(honest).await;
        let chain_ = chain(&node.url);
        for _ in 0..2 {
            chain_.balance(expected().from).await.unwrap();
        }
        assert_eq!(node.count("eth_chainId"), 1);

        let wrong = ScriptedNode::start(except("eth_chainId", Reply::Result(json!("0x1")))).await;
        let chain_ = chain(&wrong.url);
        for _ in 0..2 {
            let refused = chain_.balance(expected().from).await.unwrap_err();
            assert!(
                matches!(
                    refused,
                    ChainError::WrongChain {
                        expected: 84_532,
                        found: 1
                    }
                ),
                "{refused:?}"
            );
        }
        assert_eq!(wrong.count("eth_chainId"), 2);
    }

    #[tokio::test]
    async fn a_greeting_is_waited_for_and_one_that_failed_is_made_up_for() {
        let node = ScriptedNode::start(honest).await;
        let chain_ = chain(&node.url);
        let ((), balance) = tokio::join!(chain_.warm_up(), chain_.balance(expected().from));
        balance.unwrap();
        chain_.balance(expected().from).await.unwrap();
        assert_eq!(node.count("eth_chainId"), 1);

        let mut greeted = false;
        let node = ScriptedNode::start(move |method: &str, params: &Value| {
            if method == "eth_chainId" && !std::mem::replace(&mut greeted, true) {
                return Reply::Status(503);
            }
            honest(method, params)
        })
        .await;
        let chain_ = chain(&node.url);
        let ((), balance) = tokio::join!(chain_.warm_up(), chain_.balance(expected().from));
        balance.unwrap();
        assert_eq!(node.count("eth_chainId"), 2);
    }

    #[tokio::test]
    async fn a_mined_transaction_is_waited_for_until_it_is_final() {
        let mut asked = 0;
        let node = ScriptedNode::start(move |method: &str, params: &Value| {
            asked += u32::from(method == "eth_blockNumber");
            match (method, asked) {
                ("eth_blockNumber", 1) => Reply::Result(json!("0x64")),
                ("eth_blockNumber", 2) => Reply::Status(503),
                _ => honest(method, params),
            }
        })
        .await;
        let evidence = chain(&node.url)
            .await_transfer(&expected(), tx_hash(), Duration::from_secs(5))
            .await
            .unwrap();
        assert!(matches!(evidence, Evidence::Final(_)), "{evidence:?}");
        assert_eq!(node.count("eth_getTransactionReceipt"), 3);
    }

    #[tokio::test]
    async fn after_max_wait_what_was_last_seen_is_the_answer() {
        let pending = ScriptedNode::start(except("eth_blockNumber", Reply::Result(json!("0x64")))).await;
        let evidence = chain(&pending.url)
            .await_transfer(&expected(), tx_hash(), Duration::from_millis(400))
            .await;
        assert_eq!(evidence.unwrap(), Evidence::Pending(Pending::NotFinal));
        assert_eq!(pending.count("eth_getTransactionReceipt"), 2);

        let down = ScriptedNode::start(except("eth_getTransactionReceipt", Reply::Status(500))).await;
        let error = chain(&down.url)
            .await_transfer(&expected(), tx_hash(), Duration::from_secs(5))
            .await
            .unwrap_err();
        assert!(matches!(error, ChainError::Status { status: 500, .. }), "{error:?}");
        assert_eq!(down.count("eth_getTransactionReceipt"), 1);
    }

    #[tokio::test]
    async fn what_the_node_does_not_know_is_not_waited_for() {
        let node = ScriptedNode::start(except("eth_getTransactionReceipt", Reply::Result(Value::Null))).await;
        let chain = chain(&node.url);
        let look = async || {
            let evidence = chain
                .await_transfer(&expected(), tx_hash(), Duration::from_secs(5))
                .await;
            assert_eq!(evidence.unwrap(), Evidence::Pending(Pending::NotMined));
        };
        look().await;
        look().await;
        let asked = ["eth_chainId", "eth_getTransactionReceipt", "eth_blockNumber"].map(|method| node.count(method));
        assert_eq!((asked, node.calls().len()), ([1, 2, 2], 5));
    }

    #[tokio::test]
    async fn a_final_answer_is_not_asked_for_twice() {
        let node = ScriptedNode::start(honest).await;
        chain(&node.url)
            .await_transfer(&expected(), tx_hash(), Duration::from_secs(5))
            .await
            .unwrap();
        assert_eq!(node.count("eth_getTransactionReceipt"), 1);
    }

    #[tokio::test]
    async fn the_api_key_in_the_address_is_never_shown() {
        const SECRET: &str = "s3cr3t-k3y";
        let node = ScriptedNode::start(except("eth_chainId", Reply::HangUp)).await;
        let urls = [
            format!("{}/v2/{SECRET}?key={SECRET}", node.url),
            format!("http://user:{SECRET}@127.0.0.1:1/{SECRET}"),
            format!("http://{SECRET}.invalid/{SECRET}"),
        ];
        for url in urls {
            let chain = chain(&url);
            let error = chain.balance(expected().from).await.unwrap_err();
            let mut shown = vec![format!("{chain:?} {error:?} {error}")];
            let mut source = std::error::Error::source(&error);
            while let Some(error) = source {
                shown.push(error.to_string());
                source = error.source();
            }
            assert!(!shown.concat().contains(SECRET), "{shown:?}");
        }
        let unusable = Chain::new(
            http(),
            NETWORK,
            &format!("ftp://{SECRET}"),
            Finality { confirmations: 1 },
        );
        assert!(!format!("{:?}", unusable.unwrap_err()).contains(SECRET));
    }

    #[tokio::test]
    async fn no_confirmations_are_taken_for_one() {
        let node = ScriptedNode::start(except("eth_blockNumber", Reply::Result(json!("0x63")))).await;
        let chain = Chain::new(http(), NETWORK, &node.url, Finality { confirmations: 0 }).unwrap();
        let evidence = chain.look_up(&expected(), tx_hash()).await.unwrap();
        assert_eq!(evidence, Evidence::Pending(Pending::NotFinal));
    }
}
