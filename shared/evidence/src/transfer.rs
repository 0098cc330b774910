//! The transfer of USDC that a receipt states, compared with what a node says about its transaction.
//!
//! A node is a third party. Its answer must be about the transaction that was asked for, on the network that is stated;
//! that it is the truth is for the reader to believe of the node that they chose.

use crate::network::Network;
use crate::statement::{StatementKind, VerifiedStatement};
use serde::Deserialize;
use serde_json::Value;

/// Keccak-256 of `Transfer(address,address,uint256)` (ERC-20).
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

/// The transfer that a receipt states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedTransfer {
    network: Network,
    /// In lowercase, as the addresses.
    tx_hash: String,
    payer: String,
    payee: String,
    units: u64,
}

/// Why a statement has no transfer to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTransfer {
    /// The statement is no receipt, or its payment has no transaction.
    #[error("the statement names no transaction")]
    Unstated,
    /// The receipt's `settlement` is malformed, or its network or asset is unknown here.
    #[error("the statement's `settlement` is not a transfer of USDC on a known network")]
    Malformed,
}

#[derive(Deserialize)]
struct Payload {
    settlement: Settlement,
}

/// Other members are ignored.
#[derive(Deserialize)]
struct Settlement {
    tx_hash: String,
    network: String,
    wallet: String,
    pay_to: String,
    amount_units: Units,
    asset: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Units {
    Number(u64),
    Text(String),
}

impl StatedTransfer {
    /// The transfer of a receipt: `settlement` with `tx_hash`, `network`, `wallet` (the payer), `pay_to`, `amount_units`
    /// (a number, or its decimal digits) and `asset` (USDC's address or symbol).
    pub fn of(statement: &VerifiedStatement) -> Result<Self, NoTransfer> {
        if statement.kind() != Some(StatementKind::Receipt) {
            return Err(NoTransfer::Unstated);
        }
        Self::read(statement.payload())
    }

    fn read(payload: &[u8]) -> Result<Self, NoTransfer> {
        let payload: Value = serde_json::from_slice(payload).map_err(|_| NoTransfer::Malformed)?;
        if payload.pointer("/settlement/tx_hash").is_none_or(Value::is_null) {
            return Err(NoTransfer::Unstated);
        }
        let Payload { settlement } = Payload::deserialize(payload).map_err(|_| NoTransfer::Malformed)?;
        let network = Network::of(&settlement.network).filter(|network| network.is_usdc(&settlement.asset));
        let units = match settlement.amount_units {
            Units::Number(units) => Some(units),
            Units::Text(text) => crate::decimal::parse(&text),
        };
        let hex = |text: &str, bytes: usize| hexadecimal(text, bytes).ok_or(NoTransfer::Malformed);
        Ok(Self {
            network: network.ok_or(NoTransfer::Malformed)?,
            tx_hash: hex(&settlement.tx_hash, 32)?,
            payer: hex(&settlement.wallet, 20)?,
            payee: hex(&settlement.pay_to, 20)?,
            units: units.ok_or(NoTransfer::Malformed)?,
        })
    }

    /// The transaction's hash, the parameter of `eth_getTransactionReceipt`.
    pub fn tx_hash(&self) -> &str {
        &self.tx_hash
    }

    /// Compares the results of `eth_chainId` and `eth_getTransactionReceipt` with the statement. Returns the number of
    /// the transaction's block, or why the transfer is not there.
    pub fn find(&self, chain_id: &Value, receipt: &Value) -> Result<u64, String> {
        if number(chain_id) != Some(self.network.chain_id) {
            return Err(format!("the node is not one of {}", self.network.name));
        }
        if receipt.is_null() {
            return Err("the node knows no such transaction".to_owned());
        }
        let is = |value: &Value, name: &str, wanted: &str| {
            let text = value.get(name).and_then(Value::as_str);
            text.is_some_and(|text| text.eq_ignore_ascii_case(wanted))
        };
        if !is(receipt, "transactionHash", &self.tx_hash) {
            return Err("the node answered about another transaction".to_owned());
        }
        if !is(receipt, "status", "0x1") {
            return Err("the transaction was reverted".to_owned());
        }
        let logs = receipt.get("logs").and_then(Value::as_array);
        let topics = [
            TRANSFER.to_owned(),
            word(self.payer.trim_start_matches("0x")),
            word(self.payee.trim_start_matches("0x")),
        ];
        let is_it = |log: &&Value| {
            let given = log.get("topics").and_then(Value::as_array);
            let given = given.map(Vec::as_slice).unwrap_or_default();
            let same = |(given, wanted): (&Value, &String)| {
                given.as_str().is_some_and(|given| given.eq_ignore_ascii_case(wanted))
            };
            is(log, "address", self.network.usdc)
                && given.len() == topics.len()
                && given.iter().zip(&topics).all(same)
                && is(log, "data", &word(&format!("{:x}", self.units)))
                && log.get("removed").and_then(Value::as_bool) != Some(true)
        };
        if logs.into_iter().flatten().find(is_it).is_none() {
            return Err(format!(
                "the transaction has no transfer of {} units of USDC from {} to {}",
                self.units, self.payer, self.payee
            ));
        }
        let block = receipt.get("blockNumber").and_then(number);
        block.ok_or_else(|| "the transaction is in no block".to_owned())
    }
}

/// A word of the ABI: 32 bytes, padded on the left.
fn word(digits: &str) -> String {
    format!("0x{digits:0>64}")
}

/// A quantity (Ethereum JSON-RPC).
fn number(value: &Value) -> Option<u64> {
    let digits = value.as_str()?.strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}

/// Parses `0x` and this number of bytes in hexadecimal, and returns it in lowercase.
fn hexadecimal(text: &str, bytes: usize) -> Option<String> {
    let digits = text.strip_prefix("0x")?;
    let is_hex = digits.len() == bytes.saturating_mul(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| text.to_ascii_lowercase())
}
