//! Compares the USDC transfer in a receipt with a node's responses about the transaction. The reader chooses and trusts
//! the node.
//!
//! The payment's authorization (EIP-3009) identifies the transfer. The token logs the authorization's use directly
//! before the transfer, and an authorization can be used only once.

use crate::network::Network;
use purser_evidence::{StatementKind, VerifiedStatement, parse_decimal};
use serde::Deserialize;
use serde_json::Value;

/// Keccak-256 of `Transfer(address,address,uint256)` (ERC-20).
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
/// Keccak-256 of `AuthorizationUsed(address,bytes32)` (EIP-3009).
const AUTHORIZATION_USED: &str = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5";

/// The transfer in a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedTransfer {
    network: Network,
    /// The transaction hash in lower case, as the addresses.
    tx_hash: String,
    payer: String,
    payee: String,
    units: u64,
    /// The first eight bytes of the authorization's nonce.
    nonce_prefix: String,
    block_number: u64,
}

/// A node's responses about a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResponses {
    /// The result of `eth_chainId`.
    pub chain_id: Value,
    /// The result of `eth_getTransactionReceipt` for [`StatedTransfer::tx_hash`].
    pub receipt: Value,
    /// The result of `eth_getBlockByNumber` for [`StatedTransfer::block_number`].
    pub block: Value,
}

/// Why a statement contains no transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTransfer {
    /// The statement is not a receipt, or the payment has no transaction.
    #[error("the statement names no transaction")]
    Unstated,
    /// The receipt's `settlement` is malformed, or the network or asset is unknown.
    #[error("the statement's `settlement` is not a transfer of USDC on a known network")]
    Malformed,
}

#[derive(Deserialize)]
struct Payload {
    settlement: Settlement,
}

/// The `settlement` field of a receipt. Other fields are ignored.
#[derive(Deserialize)]
struct Settlement {
    tx_hash: String,
    network: String,
    wallet: String,
    pay_to: String,
    amount_units: Units,
    asset: String,
    nonce_prefix: String,
    block_number: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Units {
    Number(u64),
    Text(String),
}

impl StatedTransfer {
    /// Returns the transfer in a receipt's field `settlement`.
    pub fn from_statement(statement: &VerifiedStatement) -> Result<Self, NoTransfer> {
        if statement.kind() != Some(StatementKind::Receipt) {
            return Err(NoTransfer::Unstated);
        }
        Self::from_payload(statement.payload())
    }

    fn from_payload(payload: &[u8]) -> Result<Self, NoTransfer> {
        let payload: Value = serde_json::from_slice(payload).map_err(|_| NoTransfer::Malformed)?;
        if payload.pointer("/settlement/tx_hash").is_none_or(Value::is_null) {
            return Err(NoTransfer::Unstated);
        }
        let Payload { settlement } = Payload::deserialize(payload).map_err(|_| NoTransfer::Malformed)?;
        let network = Network::from_name(&settlement.network).filter(|network| network.is_usdc(&settlement.asset));
        let units = match settlement.amount_units {
            Units::Number(units) => Some(units),
            Units::Text(text) => parse_decimal(&text),
        };
        let hex = |text: &str, bytes: usize| parse_hex(text, bytes).ok_or(NoTransfer::Malformed);
        Ok(Self {
            network: network.ok_or(NoTransfer::Malformed)?,
            tx_hash: hex(&settlement.tx_hash, 32)?,
            payer: hex(&settlement.wallet, 20)?,
            payee: hex(&settlement.pay_to, 20)?,
            units: units.ok_or(NoTransfer::Malformed)?,
            nonce_prefix: hex(&settlement.nonce_prefix, 8)?,
            block_number: settlement.block_number,
        })
    }

    /// Returns the transaction hash, for `eth_getTransactionReceipt`.
    pub fn tx_hash(&self) -> &str {
        &self.tx_hash
    }

    /// Returns the number of the transaction's block as an RPC quantity, the parameter of `eth_getBlockByNumber`.
    pub fn block_number(&self) -> String {
        format!("0x{:x}", self.block_number)
    }

    /// Compares a node's responses with the receipt. Returns the block hash, or the reason for the mismatch.
    pub fn verify_in_responses(&self, responses: &NodeResponses) -> Result<String, String> {
        let NodeResponses {
            chain_id,
            receipt,
            block,
        } = responses;
        if parse_quantity(chain_id) != Some(self.network.chain_id) {
            return Err(format!("the node is not one of {}", self.network.name));
        }
        if receipt.is_null() {
            return Err("the node knows no such transaction".to_owned());
        }
        if !has_text_field(receipt, "transactionHash", &self.tx_hash) {
            return Err("the node responded about another transaction".to_owned());
        }
        if !has_text_field(receipt, "status", "0x1") {
            return Err("the transaction was reverted".to_owned());
        }
        if receipt.get("blockNumber").and_then(parse_quantity) != Some(self.block_number) {
            return Err(format!("the transaction is not in block {}", self.block_number));
        }
        let hash = block.get("hash").and_then(Value::as_str).unwrap_or_default();
        let is_block = block.get("number").and_then(parse_quantity) == Some(self.block_number);
        if !is_block || parse_hex(hash, 32).is_none() || !has_text_field(receipt, "blockHash", hash) {
            return Err(format!(
                "the transaction's block is not the block {} of the chain",
                self.block_number
            ));
        }
        self.verify_logs(receipt)?;
        Ok(hash.to_owned())
    }

    /// Finds the only use of the authorization, and checks that the next log is the transfer.
    fn verify_logs(&self, receipt: &Value) -> Result<(), String> {
        let logs = receipt.get("logs").and_then(Value::as_array);
        let logs = logs.map(Vec::as_slice).unwrap_or_default();
        let [from, to] = [&self.payer, &self.payee].map(|address| address_word(address));
        let mut authorizations = logs.iter().enumerate().filter(|(_, log)| {
            let topics = self.log_topics(log);
            topics.is_some_and(|topics| {
                let [event, authorizer, nonce] = topics;
                event == AUTHORIZATION_USED && authorizer == from && nonce.starts_with(&self.nonce_prefix)
            })
        });
        let (Some((index, used)), None) = (authorizations.next(), authorizations.next()) else {
            return Err(format!(
                "the transaction does not use the authorization with the nonce {}… once",
                self.nonce_prefix
            ));
        };
        let next = logs.get(index.saturating_add(1));
        let is_transfer = next.is_some_and(|log| {
            let log_number = |log: &Value| log.get("logIndex").and_then(parse_quantity);
            self.log_topics(log) == Some([TRANSFER.to_owned(), from, to])
                && has_text_field(log, "data", &abi_word(&format!("{:x}", self.units)))
                && log_number(used).and_then(|used| used.checked_add(1)) == log_number(log)
        });
        if !is_transfer {
            return Err(format!(
                "the authorization was not used for a transfer of {} units of USDC from {} to {}",
                self.units, self.payer, self.payee
            ));
        }
        Ok(())
    }

    /// Returns the three topics of a token log, in lower case. Returns `None` if a reorganization removed the log.
    fn log_topics(&self, log: &Value) -> Option<[String; 3]> {
        let is_removed = log.get("removed").and_then(Value::as_bool) == Some(true);
        if is_removed || !has_text_field(log, "address", self.network.usdc) {
            return None;
        }
        let topics = log.get("topics")?.as_array()?.iter();
        let topics: Option<Vec<_>> = topics.map(|topic| topic.as_str().map(str::to_lowercase)).collect();
        topics?.try_into().ok()
    }
}

/// Returns whether a field has this text, ignoring case.
fn has_text_field(value: &Value, name: &str, expected: &str) -> bool {
    let text = value.get(name).and_then(Value::as_str);
    text.is_some_and(|text| text.eq_ignore_ascii_case(expected))
}

fn address_word(address: &str) -> String {
    abi_word(address.trim_start_matches("0x"))
}

/// Encodes digits as an ABI word: 32 bytes, padded on the left.
fn abi_word(digits: &str) -> String {
    format!("0x{digits:0>64}")
}

/// Parses an RPC quantity (Ethereum JSON-RPC).
fn parse_quantity(value: &Value) -> Option<u64> {
    let digits = value.as_str()?.strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}

/// Parses `0x` and this number of bytes in hexadecimal. Returns the text in lower case.
fn parse_hex(text: &str, bytes: usize) -> Option<String> {
    let digits = text.strip_prefix("0x")?;
    let is_hex = digits.len() == bytes.saturating_mul(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| text.to_ascii_lowercase())
}
