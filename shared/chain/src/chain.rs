//! Reads balances, and verifies that a transaction in a final block is the authorized payment.
//!
//! Before a block is final, the evidence is [`Evidence::Pending`], because a reorganization may undo a payment or a
//! mismatch. The call that reads the newest block also proves that the transaction's block is an ancestor of the newest
//! block (`view.rs`), so a replaced block never counts as final.
//!
//! An attacker can add zero-value transfers between the same wallets. If a block therefore has too many logs, the logs
//! are read from the transaction's receipt.
//!
//! [`find_authorized_transfer`] defines which logs a payment must have.

use crate::{
    ChainError,
    balances::{balanceOfCall, parse_balance_word},
    blocks::Standing,
    http_node::{HttpNode, parse_node_urls},
    logs::Filter,
    rpc::{Node, Quantity, Rpc, WireReceipt, WireTransaction},
};
use alloy::primitives::{Address, Bytes};
use alloy::sol_types::SolCall as _;
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use purser_domain::{
    AUTHORIZATION_USED, Amount, BlockId, ExpectedTransfer, Mismatch, Network, TRANSFER, Transfer, TxHash,
    find_authorized_transfer,
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// The number of confirmations after which a block is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finality {
    /// The number of blocks from the transaction's block to the newest block, including both. 0 is treated as 1.
    pub confirmations: u64,
}

/// The timeout of one call to one endpoint. A hosted node responds in 20 to 200 ms. With two endpoints, a call may take
/// twice as long.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// The chain's evidence about one transaction and one authorized payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The transaction is the authorized payment, in a final block.
    Final(Transfer),
    /// The transaction is in a final block, but does not contain the authorized payment.
    Mismatch {
        /// The block that contains the transaction.
        block: BlockId,
        /// Why the transaction does not contain the payment.
        mismatch: Mismatch,
    },
    /// A reorganization may still change the evidence, or the transaction is not in a block.
    Pending(Pending),
}

/// Why the evidence is not final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// The node has no block with the transaction, which may not exist.
    NotMined,
    /// The transaction's block does not have enough confirmations.
    NotFinal {
        /// The number of confirmations that are missing.
        missing: u64,
    },
}

impl Pending {
    /// Returns the `reason` of a retryable `onchain_settlement_not_verified` (docs/spec.md §7).
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotMined => "transaction_not_mined",
            Self::NotFinal { .. } => "transaction_not_final",
        }
    }

    /// Returns the number of blocks after which a retry makes sense.
    pub const fn blocks_to_wait(self) -> u64 {
        match self {
            Self::NotMined => 1,
            Self::NotFinal { missing } => missing,
        }
    }
}

/// A blockchain behind one or two RPC endpoints. The second endpoint is called when the first fails.
#[derive(Debug)]
pub struct Chain {
    pub(crate) network: Network,
    pub(crate) finality: Finality,
    pub(crate) rpc: Rpc,
}

impl Chain {
    /// Creates a client for the one or two endpoints in the RPC secret, without a call to an endpoint.
    pub fn new(
        http: SharedHttpConnector,
        network: Network,
        rpc_secret: &str,
        finality: Finality,
    ) -> Result<Self, ChainError> {
        let node = |http, address| -> Result<Arc<dyn Node>, ChainError> {
            Ok(Arc::new(HttpNode::new(http, address, NODE_TIMEOUT)?))
        };
        let (first, second) = parse_node_urls(network, rpc_secret)?;
        Ok(match second {
            None => Self::from_node(network, node(http, first)?, finality),
            Some(second) => Self::from_nodes(network, [node(http.clone(), first)?, node(http, second)?], finality),
        })
    }

    /// Creates a client that reads the blockchain through one node.
    pub fn from_node(network: Network, node: Arc<dyn Node>, finality: Finality) -> Self {
        Self::with_rpc(network, Rpc::new(network.chain_id(), node), finality)
    }

    /// Creates a client that reads the blockchain through two nodes.
    pub fn from_nodes(network: Network, [first, second]: [Arc<dyn Node>; 2], finality: Finality) -> Self {
        Self::with_rpc(
            network,
            Rpc::from_two_nodes(network.chain_id(), first, second),
            finality,
        )
    }

    fn with_rpc(network: Network, rpc: Rpc, finality: Finality) -> Self {
        let finality = Finality {
            confirmations: finality.confirmations.max(1),
        };
        Self { network, finality, rpc }
    }

    /// Returns one client per endpoint. A payment is released or reverted only if all endpoints agree.
    pub fn chains_per_endpoint(&self) -> Vec<Self> {
        let witness = |rpc| Self::with_rpc(self.network, rpc, self.finality);
        self.rpc.clients_per_endpoint().map(witness).collect()
    }

    /// Reads a wallet's balance of the network's token in the newest block, capped at [`Amount::MAX`].
    pub async fn read_balance(&self, wallet: Address) -> Result<Amount, ChainError> {
        const METHOD: &str = "eth_call";
        let data = Bytes::from(balanceOfCall { account: wallet }.abi_encode());
        let call = json!([{"to": self.network.token().address, "data": data}, "latest"]);
        let response: Bytes = self.rpc.call(METHOD, call).await?;
        parse_balance_word(&response).ok_or(ChainError::Malformed {
            method: METHOD,
            what: "an invalid balance",
        })
    }

    /// Verifies that a transaction contains the authorized payment. Takes one call if the transaction is not mined, and
    /// usually three for a payment.
    ///
    /// If a call fails, the whole verification is repeated with the other endpoint.
    pub async fn verify_transfer(&self, expected: &ExpectedTransfer, tx_hash: TxHash) -> Result<Evidence, ChainError> {
        let proof = |rpc| {
            let chain = Self::with_rpc(self.network, rpc, self.finality);
            async move { chain.read_transfer_proof(expected, tx_hash).await }
        };
        self.rpc.run_with_one_endpoint(proof).await
    }

    async fn read_transfer_proof(&self, expected: &ExpectedTransfer, tx_hash: TxHash) -> Result<Evidence, ChainError> {
        let Some(block) = self.find_transaction_block(tx_hash).await? else {
            return Ok(Evidence::Pending(Pending::NotMined));
        };
        let filter = Filter {
            token: expected.token,
            events: vec![AUTHORIZATION_USED, TRANSFER],
            payers: vec![expected.from.into_word()],
            nonces_or_payees: vec![expected.nonce, expected.to.into_word()],
        };
        let (standing, logs) = tokio::join!(self.read_block_finality(block), self.read_block_logs(&filter, block));
        match standing? {
            Standing::Final => {}
            Standing::NotFinal { missing } => return Ok(Evidence::Pending(Pending::NotFinal { missing })),
            // A server behind the node's endpoint still has the replaced block with the transaction, so the
            // transaction counts as not mined.
            Standing::Replaced => return Ok(Evidence::Pending(Pending::NotMined)),
        }
        let logs = match logs {
            Err(error) if error.is_size_limit() => {
                self.read_receipt_logs(&filter, tx_hash, block).await.map_err(|_| error)
            }
            logs => logs,
        };
        let found = logs?.transaction_logs(tx_hash, block);
        Ok(match find_authorized_transfer(expected, &found) {
            Ok(transfer) => Evidence::Final(transfer),
            Err(Mismatch::AuthorizationNotUsed) if self.has_transaction_failed(tx_hash).await? => Evidence::Mismatch {
                block,
                mismatch: Mismatch::TransactionReverted,
            },
            Err(mismatch) => Evidence::Mismatch { block, mismatch },
        })
    }

    /// Opens the connection and verifies the node's chain id. After a failure, which is logged, the next call verifies
    /// the chain id.
    pub async fn warm_up(&self) {
        self.rpc.warm_up().await;
    }

    /// Verifies the node's chain id, even if it was verified before.
    pub(crate) async fn verify_chain_id(&self) -> Result<(), ChainError> {
        self.rpc.reverify_endpoint_chain_id().await
    }

    pub(crate) async fn read_head_number(&self) -> Result<u64, ChainError> {
        self.rpc
            .call("eth_blockNumber", json!([]))
            .await
            .map(|Quantity(number)| number)
    }

    /// Returns the block that contains the transaction; `None` if the transaction is not on the node's canonical chain.
    async fn find_transaction_block(&self, tx_hash: TxHash) -> Result<Option<BlockId>, ChainError> {
        const METHOD: &str = "eth_getTransactionByHash";
        let request = json!([tx_hash.to_b256()]);
        let Some(transaction) = self.rpc.call::<Option<WireTransaction>>(METHOD, request).await? else {
            return Ok(None);
        };
        transaction
            .into_block(tx_hash)
            .map_err(|what| ChainError::Malformed { method: METHOD, what })
    }

    /// Returns whether a mined transaction failed, according to the transaction's receipt. Returns `false` if the node
    /// has no receipt.
    async fn has_transaction_failed(&self, tx_hash: TxHash) -> Result<bool, ChainError> {
        const METHOD: &str = "eth_getTransactionReceipt";
        let receipt: Option<WireReceipt> = self.rpc.call(METHOD, json!([tx_hash.to_b256()])).await?;
        receipt.map_or(Ok(false), |receipt| {
            receipt
                .has_failed(tx_hash)
                .map_err(|what| ChainError::Malformed { method: METHOD, what })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::tests::http;
    use crate::scripted_chain::{
        BALANCE, CONFIRMATIONS, NETWORK, ScriptedChain, block, chain_for_in_memory_node, chain_for_node_url, number,
        oversized_rpc_response, payment, quantity, tx_hash, word,
    };
    use alloy::primitives::B256;
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::Value;
    use tokio::sync::Barrier;

    const BLOCK: u64 = 100;
    /// The number of the newest block when `BLOCK` has just become final.
    const DEEP: u64 = BLOCK + CONFIRMATIONS - 1;

    fn expected() -> ExpectedTransfer {
        payment(1)
    }

    /// Returns a chain on which the expected payment is the third transaction of `BLOCK`. The block has just become
    /// final.
    fn paid() -> ScriptedChain {
        let others = ScriptedChain::default()
            .paid(&payment(13), BLOCK, 5)
            .transferred(&expected(), 0, BLOCK, 6);
        let mut chain = others.paid(&expected(), BLOCK, 1).paid(&payment(25), BLOCK, 7);
        chain.head = DEEP;
        chain
    }

    /// Returns a script that replaces the response to one method.
    fn except(method: &'static str, answer: Reply) -> impl FnMut(&str, &Value) -> Option<Reply> + Clone + Send {
        move |called, _| (called == method).then(|| answer.clone())
    }

    async fn paid_except(method: &'static str, answer: Reply) -> ScriptedNode {
        paid().serve_except(except(method, answer)).await
    }

    /// Returns an `eth_call` result with the newest block's number and an ancestor's hash, as words.
    fn viewed(head: u64, hash: u64) -> Value {
        json!(Bytes::from([word(head), word(hash)].concat()))
    }

    /// Returns the evidence, or the error, as text.
    async fn evidence(node: &ScriptedNode) -> String {
        match chain_for_node_url(&node.url)
            .verify_transfer(&expected(), tx_hash(1))
            .await
        {
            Ok(Evidence::Final(transfer)) => {
                assert_eq!((transfer.tx_hash(), transfer.block()), (tx_hash(1), block(BLOCK)));
                format!("paid by log {}", transfer.log_index())
            }
            Ok(Evidence::Mismatch { block: of, mismatch }) => {
                assert_eq!(of, block(BLOCK));
                mismatch.name().to_owned()
            }
            Ok(Evidence::Pending(pending)) => format!("{}: {}", pending.reason(), pending.blocks_to_wait()),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn only_final_matching_logs_prove_a_payment() {
        let with_head = |mut chain: ScriptedChain, head| {
            chain.head = head;
            chain
        };
        let alone = || ScriptedChain::default().paid(&expected(), BLOCK, 1);
        let less = ExpectedTransfer {
            amount: Amount::from_units(expected().amount.units() - 1).unwrap(),
            ..expected()
        };
        let cases = [
            (paid(), "paid by log 4"),
            (with_head(alone(), DEEP), "paid by log 1"),
            (with_head(alone(), u64::MAX), "paid by log 1"),
            (
                // One transaction contains several payments to this payee.
                ScriptedChain::default()
                    .transferred(&expected(), 5, BLOCK, 1)
                    .paid(&payment(13), BLOCK, 1)
                    .paid(&expected(), BLOCK, 1)
                    .transferred(&expected(), 0, BLOCK, 1),
                "paid by log 4",
            ),
            (ScriptedChain::default(), "transaction_not_mined: 1"),
            (with_head(alone(), DEEP - 1), "transaction_not_final: 1"),
            (with_head(alone(), BLOCK), "transaction_not_final: 4"),
            (ScriptedChain::default().failed(BLOCK, 1), "transaction_reverted"),
            // A failed transaction in a block that is not final. A reorganization may undo the failure.
            (
                with_head(ScriptedChain::default().failed(BLOCK, 1), DEEP - 1),
                "transaction_not_final: 1",
            ),
            (ScriptedChain::default().paid(&less, BLOCK, 1), "usdc_transfer_mismatch"),
            (
                with_head(ScriptedChain::default().paid(&less, BLOCK, 1), DEEP - 2),
                "transaction_not_final: 2",
            ),
            // The transaction makes another payment. The expected payment is in another transaction of the block.
            (
                ScriptedChain::default()
                    .paid(&payment(13), BLOCK, 1)
                    .paid(&expected(), BLOCK, 2),
                "authorization_not_used",
            ),
            (
                ScriptedChain::default().transferred(&expected(), expected().amount.units(), BLOCK, 1),
                "authorization_not_used",
            ),
            (
                ScriptedChain::default().canceled(&expected(), BLOCK, 1),
                "authorization_not_used",
            ),
        ];
        for (chain, outcome) in cases {
            let shown = format!("{chain:?}");
            assert_eq!(evidence(&chain.serve().await).await, outcome, "{shown}");
        }
    }

    /// The node has the transaction in no block, or in a block above the node's newest block.
    #[tokio::test]
    async fn lagging_nodes_and_unmined_transactions_stay_pending() {
        let unmined = json!({"hash": tx_hash(1).to_b256(), "blockHash": null, "blockNumber": null});
        let cases = [
            ("eth_getTransactionByHash", unmined, "transaction_not_mined: 1"),
            ("eth_call", viewed(BLOCK - 1, 0), "transaction_not_final: 5"),
            ("eth_call", viewed(0, 0), "transaction_not_final: 5"),
        ];
        for (method, answer, outcome) in cases {
            let node = paid_except(method, Reply::Result(answer)).await;
            assert_eq!(evidence(&node).await, outcome, "{method}");
        }
        // Without a receipt, a failed transaction looks like a transaction without the payment.
        let chain = ScriptedChain::default().failed(BLOCK, 1);
        let gone = except("eth_getTransactionReceipt", Reply::Result(Value::Null));
        assert_eq!(
            evidence(&chain.serve_except(gone).await).await,
            "authorization_not_used"
        );
    }

    #[tokio::test]
    async fn payment_verification_takes_at_most_four_node_calls() {
        const BLOCKS_LOGS: &str = "eth_call eth_getLogs eth_getTransactionByHash";
        let check = async |mut chain: ScriptedChain, calls: &str| {
            chain.head = DEEP;
            let node = chain.serve().await;
            let chain = chain_for_node_url(&node.url);
            chain.warm_up().await;
            chain.verify_transfer(&expected(), tx_hash(1)).await.unwrap();
            let mut called: Vec<String> = node.calls().into_iter().map(|(method, _)| method).collect();
            assert_eq!(called.remove(0), "eth_chainId");
            assert_eq!(called.first().unwrap(), "eth_getTransactionByHash");
            called.sort_unstable();
            assert_eq!(called.join(" "), calls);
        };
        check(ScriptedChain::default(), "eth_getTransactionByHash").await;
        check(paid(), BLOCKS_LOGS).await;
        let stranger = format!("{BLOCKS_LOGS} eth_getTransactionReceipt");
        check(ScriptedChain::default().paid(&payment(13), BLOCK, 1), &stranger).await;
        let less = ScriptedChain::default().paid(&expected(), BLOCK, 2).failed(BLOCK, 1);
        check(less, &stranger).await;
    }

    /// The scripted node responds only after it has received both calls, so the calls must be concurrent.
    #[tokio::test(start_paused = true)]
    async fn the_newest_block_and_the_logs_are_fetched_concurrently() {
        let both = Arc::new(Barrier::new(2));
        let chain = chain_for_in_memory_node(paid(), move |method| {
            let both = Arc::clone(&both);
            let waits = matches!(method, "eth_call" | "eth_getLogs");
            Box::pin(async move {
                if waits {
                    both.wait().await;
                }
            })
        });
        let (expected, hash) = (expected(), tx_hash(1));
        let verified = chain.verify_transfer(&expected, hash);
        let evidence = tokio::time::timeout(Duration::from_secs(1), verified).await;
        assert!(matches!(evidence.unwrap(), Ok(Evidence::Final(_))));
    }

    #[tokio::test]
    async fn transfer_logs_are_filtered_by_block_and_payment() {
        let node = paid().serve().await;
        evidence(&node).await;
        let calls = node.calls();
        let (_, params) = calls.iter().find(|(method, _)| method == "eth_getLogs").unwrap();
        let ExpectedTransfer { from, to, nonce, .. } = expected();
        let filter = json!({
            "blockHash": B256::left_padding_from(&[100]),
            "address": "0x036cbd53842c5426634e7929541ec2318f3dcf7e",
            "topics": [[AUTHORIZATION_USED, TRANSFER], [from.into_word()], [nonce, to.into_word()]],
        });
        assert_eq!(*params, json!([filter]));
    }

    /// The newest block's ancestor with the number of the transaction's block has another hash.
    #[tokio::test]
    async fn a_payment_in_a_replaced_block_is_unconfirmed() {
        let replaced = Reply::Result(viewed(DEEP, 0x5a));
        let node = paid_except("eth_call", replaced).await;
        assert_eq!(evidence(&node).await, "transaction_not_mined: 1");
        // The block's hash is compared with the node's block of the same number, because `BLOCKHASH` can't return this
        // block.
        let other = json!({"hash": word(0x5a), "number": quantity(BLOCK), "timestamp": "0x1"});
        let other = except("eth_getBlockByNumber", Reply::Result(other));
        let mut old = paid();
        old.head = BLOCK + 257;
        let node = old.clone().serve_except(other.clone()).await;
        assert_eq!(evidence(&node).await, "transaction_not_mined: 1");
        assert_eq!(evidence(&old.serve().await).await, "paid by log 4");
        let node = paid().serve_except(other).await;
        let chain = Chain::new(http(), NETWORK, &node.url, Finality { confirmations: 1 }).unwrap();
        let shown = chain.verify_transfer(&expected(), tx_hash(1)).await.unwrap();
        assert_eq!(shown, Evidence::Pending(Pending::NotMined));
    }

    #[tokio::test]
    async fn payment_verification_restarts_after_an_endpoint_failover() {
        let behind = paid_except("eth_call", Reply::Status(503)).await;
        let mut moved = ScriptedChain::default().paid(&expected(), BLOCK + 1, 1);
        moved.head = DEEP;
        let other = moved.serve().await;
        let both = format!("{}\n{}", behind.url, other.url);
        let finality = Finality {
            confirmations: CONFIRMATIONS,
        };
        let chain = Chain::new(http(), NETWORK, &both, finality).unwrap();
        let shown = chain.verify_transfer(&expected(), tx_hash(1)).await.unwrap();
        assert_eq!(shown, Evidence::Pending(Pending::NotFinal { missing: 1 }));
        for method in ["eth_getTransactionByHash", "eth_call", "eth_getLogs"] {
            assert_eq!(other.count(method), 1, "{method}");
        }
    }

    /// Zero-value transfers, which anybody can make, fill the block.
    #[tokio::test]
    async fn the_receipt_proves_payments_in_overfull_blocks() {
        for refusal in [oversized_rpc_response(), Reply::Refused(-32_005), Reply::Status(413)] {
            let node = paid_except("eth_getLogs", refusal).await;
            assert_eq!(evidence(&node).await, "paid by log 4");
            assert_eq!(node.count("eth_getTransactionReceipt"), 1);
        }
        // A receipt that is missing, malformed, or of another transaction or block.
        let receipt = paid().answer("eth_getTransactionReceipt", &json!([tx_hash(1).to_b256()]));
        let other = json!(B256::repeat_byte(0x78));
        let wrong = [
            Value::Null,
            json!({}),
            with(receipt.clone(), "/logs/0/transactionHash", other.clone()),
            with(receipt.clone(), "/logs/0/blockHash", other),
        ];
        for answer in wrong {
            let shown = answer.to_string();
            let changed = move |method: &str, _: &Value| match method {
                "eth_getLogs" => Some(oversized_rpc_response()),
                "eth_getTransactionReceipt" => Some(Reply::Result(answer.clone())),
                _ => None,
            };
            let node = paid().serve_except(changed).await;
            assert_eq!(
                evidence(&node).await,
                "`eth_getLogs` returned more bytes than the limit",
                "{shown}"
            );
        }
    }

    fn with(mut value: Value, pointer: &str, new: Value) -> Value {
        *value.pointer_mut(pointer).unwrap() = new;
        value
    }

    /// Returns the payment's logs with one changed field.
    fn logs(pointer: &str, new: Value) -> Reply {
        let ExpectedTransfer {
            token, from, to, nonce, ..
        } = expected();
        let topics = [
            vec![AUTHORIZATION_USED, TRANSFER],
            vec![from.into_word()],
            vec![nonce, to.into_word()],
        ];
        let filter = json!([{"blockHash": block(BLOCK).hash, "address": token, "topics": topics}]);
        let logs = paid().answer("eth_getLogs", &filter);
        Reply::Result(with(logs, pointer, new))
    }

    #[tokio::test]
    async fn malformed_node_responses_are_errors() {
        const TRANSACTION: &str = "eth_getTransactionByHash";
        const LOGS: &str = "eth_getLogs";
        const VIEW: &str = "eth_call";
        const NOT_ASKED_FOR: &str = "`eth_getLogs` returned logs that do not match the filter";
        let answered = |method: &str, what: &str| format!("`{method}` returned {what}");
        let shape = |method: &str| answered(method, "a result with an unexpected format");
        let other = json!(B256::repeat_byte(0x78));
        let mined =
            json!({"hash": tx_hash(1).to_b256(), "blockHash": block(BLOCK).hash, "blockNumber": quantity(BLOCK)});
        let body = |text: &str| Reply::Body(text.to_owned());
        let cases = [
            (
                "eth_chainId",
                Reply::Result(json!("0x2105")),
                "the RPC serves chain 8453 instead of 84532".to_owned(),
            ),
            ("eth_chainId", Reply::Result(json!(84_532)), shape("eth_chainId")),
            (VIEW, Reply::Result(json!(100)), shape(VIEW)),
            (
                VIEW,
                Reply::Result(viewed(DEEP, 0)),
                answered(VIEW, "no hash of a recent block"),
            ),
            (
                VIEW,
                Reply::Refused(-32_005),
                "`eth_call` was rejected with JSON-RPC code -32005".to_owned(),
            ),
            (VIEW, Reply::Status(429), answered(VIEW, "HTTP status 429")),
            (VIEW, Reply::Status(307), answered(VIEW, "HTTP status 307")),
            (VIEW, Reply::Silence, "`eth_call` got no response".to_owned()),
            (VIEW, Reply::HangUp, "`eth_call` got no response".to_owned()),
            (
                TRANSACTION,
                body("{}"),
                answered(TRANSACTION, "a response to another call"),
            ),
            (
                TRANSACTION,
                body(r#"{"id":2,"result":null}"#),
                answered(TRANSACTION, "a response to another call"),
            ),
            (
                TRANSACTION,
                body(r#"{"id":1}"#),
                answered(TRANSACTION, "neither a result nor an error"),
            ),
            (
                TRANSACTION,
                body(r#"{"id":1,"error":{"message":"no"}}"#),
                answered(TRANSACTION, "an error without a code"),
            ),
            (
                TRANSACTION,
                body("<html>"),
                answered(TRANSACTION, "a body that is not JSON"),
            ),
            (TRANSACTION, Reply::Result(json!({})), shape(TRANSACTION)),
            (
                TRANSACTION,
                Reply::Result(with(mined.clone(), "/hash", other.clone())),
                answered(TRANSACTION, "another transaction"),
            ),
            (
                TRANSACTION,
                Reply::Result(with(mined, "/blockNumber", json!(100))),
                shape(TRANSACTION),
            ),
            (LOGS, Reply::Result(Value::Null), shape(LOGS)),
            (LOGS, logs("/0/logIndex", Value::Null), shape(LOGS)),
            (LOGS, logs("/0/blockHash", Value::Null), shape(LOGS)),
            (LOGS, logs("/0/removed", json!(true)), NOT_ASKED_FOR.to_owned()),
            (LOGS, logs("/0/blockHash", other.clone()), NOT_ASKED_FOR.to_owned()),
            (
                LOGS,
                logs("/0/blockNumber", quantity(BLOCK + 1)),
                NOT_ASKED_FOR.to_owned(),
            ),
            (LOGS, logs("/0/address", json!(Address::ZERO)), NOT_ASKED_FOR.to_owned()),
            (LOGS, logs("/0/topics", json!([TRANSFER])), NOT_ASKED_FOR.to_owned()),
            (LOGS, logs("/0/topics/0", other.clone()), NOT_ASKED_FOR.to_owned()),
            (LOGS, logs("/0/topics/1", other.clone()), NOT_ASKED_FOR.to_owned()),
            (LOGS, logs("/0/topics/2", other.clone()), NOT_ASKED_FOR.to_owned()),
        ];
        for (method, answer, outcome) in cases {
            let shown = format!("{method} {answer:.200?}");
            assert_eq!(evidence(&paid_except(method, answer).await).await, outcome, "{shown}");
        }
        let node = paid_except(LOGS, logs("/2/transactionHash", other.clone())).await;
        assert_eq!(evidence(&node).await, "authorization_not_used");
        let node = paid_except(LOGS, logs("/3/transactionHash", other.clone())).await;
        assert_eq!(evidence(&node).await, "usdc_transfer_mismatch");
    }

    #[tokio::test]
    async fn inconsistent_transaction_receipts_are_ignored() {
        const RECEIPT: &str = "`eth_getTransactionReceipt` returned";
        let receipt = json!({"transactionHash": tx_hash(1).to_b256(), "status": "0x0"});
        let cases = [
            (json!({}), "a result with an unexpected format"),
            (
                with(receipt.clone(), "/transactionHash", json!(tx_hash(2).to_b256())),
                "the receipt of another transaction",
            ),
            (
                with(receipt.clone(), "/status", json!("0x2")),
                "a status that is neither 0 nor 1",
            ),
            (
                with(receipt, "/status", Value::Null),
                "a result with an unexpected format",
            ),
        ];
        for (answer, what) in cases {
            let chain = ScriptedChain::default().failed(BLOCK, 1);
            let changed = except("eth_getTransactionReceipt", Reply::Result(answer.clone()));
            let node = chain.serve_except(changed).await;
            assert_eq!(evidence(&node).await, format!("{RECEIPT} {what}"), "{answer}");
        }
    }

    #[tokio::test]
    async fn balances_have_32_bytes_and_are_capped_at_the_max_amount() {
        let cases = [
            (json!(word(2_500_000)), Some(2_500_000)),
            (json!(word(0)), Some(0)),
            (json!(format!("0x{}", "ff".repeat(32))), Some(Amount::MAX.units())),
            (json!(word(Amount::MAX.units() + 1)), Some(Amount::MAX.units())),
            (json!("0x"), None),
            (json!("0x00"), None),
            (json!(format!("0x{}", "00".repeat(33))), None),
            (json!(5), None),
        ];
        for (answer, units) in cases {
            let node = paid_except("eth_call", Reply::Result(answer.clone())).await;
            let balance = chain_for_node_url(&node.url).read_balance(expected().from).await.ok();
            assert_eq!(balance.map(Amount::units), units, "{answer}");
        }
    }

    #[tokio::test]
    async fn the_balance_call_uses_the_token_of_the_network() {
        let node = paid().serve().await;
        chain_for_node_url(&node.url)
            .read_balance(Address::repeat_byte(0x20))
            .await
            .unwrap();
        let call = node
            .calls()
            .into_iter()
            .find(|(method, _)| method == "eth_call")
            .unwrap()
            .1;
        // The selector of `balanceOf(address)`, and the address as one word.
        let data = format!("0x70a08231{}{}", "00".repeat(12), "20".repeat(20));
        assert_eq!(
            call,
            json!([{"to": "0x036cbd53842c5426634e7929541ec2318f3dcf7e", "data": data}, "latest"])
        );
    }

    #[tokio::test]
    async fn only_a_correct_chain_id_is_cached() {
        let node = paid().serve().await;
        let chain = chain_for_node_url(&node.url);
        for _ in 0..2 {
            chain.read_balance(expected().from).await.unwrap();
        }
        assert_eq!(node.count("eth_chainId"), 1);

        let wrong = paid_except("eth_chainId", Reply::Result(json!("0x1"))).await;
        let chain = chain_for_node_url(&wrong.url);
        for _ in 0..2 {
            let refused = chain.read_balance(expected().from).await.unwrap_err();
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
    async fn node_calls_await_the_warm_up_or_repeat_it() {
        let node = paid().serve().await;
        let chain = chain_for_node_url(&node.url);
        let ((), balance) = tokio::join!(chain.warm_up(), chain.read_balance(expected().from));
        balance.unwrap();
        chain.read_balance(expected().from).await.unwrap();
        assert_eq!(node.count("eth_chainId"), 1);

        let mut greeted = false;
        let fails_once = move |method: &str, _: &Value| {
            let fails = method == "eth_chainId" && !std::mem::replace(&mut greeted, true);
            fails.then_some(Reply::Status(503))
        };
        let node = paid().serve_except(fails_once).await;
        let chain = chain_for_node_url(&node.url);
        let ((), balance) = tokio::join!(chain.warm_up(), chain.read_balance(expected().from));
        balance.unwrap();
        assert_eq!(node.count("eth_chainId"), 2);
    }

    #[tokio::test]
    async fn rpc_api_keys_never_appear_in_errors() {
        const SECRET: &str = "s3cr3t-k3y";
        let node = paid_except("eth_chainId", Reply::HangUp).await;
        let urls = [
            format!("{}/v2/{SECRET}?key={SECRET}", node.url),
            format!("http://user:{SECRET}@127.0.0.1:1/{SECRET}"),
            format!("http://{SECRET}.invalid/{SECRET}"),
        ];
        for url in urls {
            let chain = chain_for_node_url(&url);
            let error = chain.read_balance(expected().from).await.unwrap_err();
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
    async fn zero_configured_confirmations_count_as_one() {
        let check = async |head: u64, missing: Option<u64>| {
            let not_yet = move |method: &str, params: &Value| {
                let is_new = method == "eth_getBlockByNumber" && number(&params[0]) > head;
                is_new.then_some(Reply::Result(Value::Null))
            };
            let node = paid().serve_except(not_yet).await;
            let chain = Chain::new(http(), NETWORK, &node.url, Finality { confirmations: 0 }).unwrap();
            let evidence = chain.verify_transfer(&expected(), tx_hash(1)).await.unwrap();
            let pending = missing.map(|missing| Evidence::Pending(Pending::NotFinal { missing }));
            assert_eq!(pending.is_none(), matches!(evidence, Evidence::Final(_)));
            assert!(pending.is_none_or(|pending| pending == evidence), "{evidence:?}");
        };
        check(BLOCK - 1, Some(1)).await;
        check(BLOCK, None).await;
    }

    /// The client of one endpoint does not call the other endpoint after a failure.
    #[tokio::test]
    async fn each_node_endpoint_is_a_separate_witness() {
        let one = paid().serve().await;
        let other = paid_except("eth_call", Reply::Result(json!(word(0)))).await;
        let both = format!("{}\n{}", one.url, other.url);
        for (secret, balances) in [(&both, vec![BALANCE, 0]), (&one.url, vec![BALANCE])] {
            let finality = Finality {
                confirmations: CONFIRMATIONS,
            };
            let chain = Chain::new(http(), NETWORK, secret, finality).unwrap();
            assert_eq!(chain.read_balance(expected().from).await.unwrap().units(), BALANCE);
            let mut heard = Vec::new();
            for witness in chain.chains_per_endpoint() {
                heard.push(witness.read_balance(expected().from).await.unwrap().units());
            }
            assert_eq!(heard, balances);
        }
        let chain = Chain::new(
            http(),
            NETWORK,
            &format!("{}\nhttp://127.0.0.1:1", one.url),
            Finality { confirmations: 1 },
        );
        let [_, down] = &chain.unwrap().chains_per_endpoint()[..] else {
            panic!("two endpoints have two witnesses")
        };
        assert!(matches!(
            down.read_balance(expected().from).await,
            Err(ChainError::Unreachable { .. })
        ));
    }
}
