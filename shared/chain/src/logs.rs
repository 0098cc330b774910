//! Reads the token's logs of one block, of a range of blocks, or of one transaction.
//!
//! Invariant: every returned log matches the filter and was not removed. A response with any other log is an error.

use crate::{
    Chain, ChainError,
    rpc::{WireLog, WireReceiptLogs},
};
use alloy::primitives::{Address, B256};
use purser_domain::{BlockId, Log, TransactionLogs, TxHash};
use serde_json::{Value, json};

const METHOD: &str = "eth_getLogs";

/// A log filter: each topic must have one of the listed values, at most a thousand per topic.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// The contract of the token, which emits the logs.
    pub(crate) token: Address,
    /// The hashes of the event signatures. The first topic of a matching log is one of these hashes.
    pub(crate) events: Vec<B256>,
    /// The payers, which are the first indexed argument of all events that this crate reads.
    pub(crate) payers: Vec<B256>,
    /// The values of the second indexed argument: nonces, or payees of transfers. If empty, any value matches.
    pub(crate) nonces_or_payees: Vec<B256>,
}

#[derive(Clone, Debug)]
pub(crate) struct FoundLog {
    pub(crate) tx_hash: TxHash,
    pub(crate) block: BlockId,
    pub(crate) log: Log,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FoundLogs(pub(crate) Vec<FoundLog>);

impl FoundLogs {
    pub(crate) fn transaction_logs(&self, tx_hash: TxHash, block: BlockId) -> TransactionLogs {
        let of_it = |found: &&FoundLog| found.tx_hash == tx_hash && found.block == block;
        TransactionLogs {
            tx_hash,
            block,
            logs: self.0.iter().filter(of_it).map(|found| found.log.clone()).collect(),
        }
    }
}

impl Filter {
    fn eth_get_logs_params(&self, mut block_range: Value) -> Value {
        if let Some(object) = block_range.as_object_mut() {
            object.insert("address".to_owned(), json!(self.token));
            let topics = if self.nonces_or_payees.is_empty() {
                json!([self.events, self.payers])
            } else {
                json!([self.events, self.payers, self.nonces_or_payees])
            };
            object.insert("topics".to_owned(), topics);
        }
        json!([block_range])
    }

    fn matches(&self, log: &Log) -> bool {
        let [event, payer, nonce_or_payee] = log.topics.as_slice() else {
            return false;
        };
        !log.removed
            && log.address == self.token
            && self.events.contains(event)
            && self.payers.contains(payer)
            && (self.nonces_or_payees.is_empty() || self.nonces_or_payees.contains(nonce_or_payee))
    }
}

impl Chain {
    /// Reads the logs of one block, selected by hash.
    pub(crate) async fn read_block_logs(&self, filter: &Filter, block: BlockId) -> Result<FoundLogs, ChainError> {
        self.read_logs(filter, json!({"blockHash": block.hash}), |found| found == block)
            .await
    }

    /// Reads the logs of the canonical blocks from `first` to `last`.
    pub(crate) async fn read_logs_between(
        &self,
        filter: &Filter,
        first: u64,
        last: u64,
    ) -> Result<FoundLogs, ChainError> {
        let range = json!({"fromBlock": format!("{first:#x}"), "toBlock": format!("{last:#x}")});
        self.read_logs(filter, range, |found| (first..=last).contains(&found.number))
            .await
    }

    /// Reads the logs of a transaction in this block from the receipt. Omits logs that do not match the filter.
    pub(crate) async fn read_receipt_logs(
        &self,
        filter: &Filter,
        tx_hash: TxHash,
        block: BlockId,
    ) -> Result<FoundLogs, ChainError> {
        const METHOD: &str = "eth_getTransactionReceipt";
        let malformed = |what| ChainError::Malformed { method: METHOD, what };
        let receipt: Option<WireReceiptLogs> = self.rpc.call(METHOD, json!([tx_hash.to_b256()])).await?;
        let receipt = receipt.ok_or_else(|| malformed("no receipt of a transaction in a block"))?;
        let mut logs = Vec::new();
        for wire in receipt.logs {
            let (by, found_in, log) = wire.into_log();
            if by != tx_hash || found_in != block {
                return Err(malformed("logs of another transaction or block"));
            }
            if filter.matches(&log) {
                let (tx_hash, block) = (by, found_in);
                logs.push(FoundLog { tx_hash, block, log });
            }
        }
        Ok(FoundLogs(logs))
    }

    async fn read_logs(
        &self,
        filter: &Filter,
        block_range: Value,
        is_expected_block: impl Fn(BlockId) -> bool,
    ) -> Result<FoundLogs, ChainError> {
        let answered: Vec<WireLog> = self.rpc.call(METHOD, filter.eth_get_logs_params(block_range)).await?;
        let mut logs = Vec::with_capacity(answered.len());
        for wire in answered {
            let (tx_hash, block, log) = wire.into_log();
            if !filter.matches(&log) || !is_expected_block(block) {
                return Err(ChainError::Malformed {
                    method: METHOD,
                    what: "logs that do not match the filter",
                });
            }
            logs.push(FoundLog { tx_hash, block, log });
        }
        Ok(FoundLogs(logs))
    }
}
