//! An in-memory chain with a block every two seconds, which responds to JSON-RPC calls like a full node. A test changes
//! the chain's contents, or single responses ([`ScriptedChain::serve_except`]).

use crate::{Reply, ScriptedNode};
use alloy::primitives::{Address, B256, Bytes, U256, address};
use alloy::sol_types::SolCall as _;
use purser_domain::{
    AUTHORIZATION_CANCELED, AUTHORIZATION_USED, Amount, BlockId, ExpectedTransfer, FinalBlock, Network, TRANSFER,
    Timestamp, TxHash,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// The chain's network.
pub const NETWORK: Network = Network::BaseSepolia;
/// The number of the chain's newest block.
pub const HEAD: u64 = 1_000_000;
/// The number of confirmations of a final block. The newest block has one confirmation.
pub const CONFIRMATIONS: u64 = 5;
/// The number of the newest final block.
pub const FINAL: u64 = HEAD - CONFIRMATIONS + 1;
/// The address of the contract `Multicall3`, which is the same on nearly every chain.
pub const MULTICALL: Address = address!("0xcA11bde05977b3631167028862bE2a173976CA11");
/// The time of the first block, in seconds.
const START: u64 = 1_700_000_000;
/// The time between two blocks.
pub const BLOCK_SECONDS: u64 = 2;
/// The balance of every wallet, in micro-USDC.
pub const BALANCE: u64 = 1_000_000_000_000;

/// The contract functions that the service calls.
pub mod calls {
    #![allow(missing_docs, reason = "the contracts' own names")]
    alloy::sol! {
        function balanceOf(address account) returns (uint256);
        function authorizationState(address authorizer, bytes32 nonce) returns (bool);
        struct Call3 { address target; bool allowFailure; bytes callData; }
        struct Result3 { bool success; bytes returnData; }
        function aggregate3(Call3[] calls) returns (Result3[] returnData);
    }
}
pub use calls::{Call3, Result3};
use calls::{aggregate3Call, authorizationStateCall, balanceOfCall};

/// The contents of the chain.
#[derive(Clone, Debug)]
pub struct ScriptedChain {
    /// The number of the newest block.
    pub head: u64,
    /// Whether the contract `Multicall3` is deployed.
    pub multicall: bool,
    transactions: HashMap<TxHash, Mined>,
    /// The logs of each block, in order.
    logs: BTreeMap<u64, Vec<ChainLog>>,
    /// The first block in which a payer's nonce was used or canceled.
    used: HashMap<(B256, B256), u64>,
}

#[derive(Clone, Copy, Debug)]
struct Mined {
    block: u64,
    failed: bool,
}

#[derive(Clone, Debug)]
struct ChainLog {
    tx_hash: TxHash,
    index: usize,
    topics: [B256; 3],
    data: Bytes,
}

/// Returns the payment with this number. Payments have four payers and three payees in turn.
pub fn payment(number: u64) -> ExpectedTransfer {
    let address = |number: u64| Address::from_word(U256::from(number).into());
    ExpectedTransfer {
        token: NETWORK.token().address,
        from: address(0x2000 + number % 4),
        to: address(0x3000 + number % 3),
        amount: Amount::from_units(10_000 + number).unwrap(),
        nonce: U256::from(0x4000 + number).into(),
    }
}

/// Returns the payment in a response of authorize.
pub fn payment_of(authorized: &Value) -> ExpectedTransfer {
    let authorization = &authorized["payment"]["payload"]["payload"]["authorization"];
    let text = |name: &str| authorization[name].as_str().expect("a member of the authorization");
    let address = |name| text(name).parse().expect("an address");
    ExpectedTransfer {
        token: NETWORK.token().address,
        from: address("from"),
        to: address("to"),
        amount: Amount::from_units(text("value").parse().expect("a number")).expect("an amount"),
        nonce: text("nonce").parse().expect("a nonce"),
    }
}

/// Returns the hash of the transaction with this number.
pub fn tx_hash(number: u64) -> TxHash {
    TxHash::from_b256(U256::from(0x7700_0000 + number).into())
}

/// Returns the hash of a block.
pub fn hash_of(block: u64) -> B256 {
    U256::from(block).into()
}

/// Returns the time of a block.
pub fn time_of(block: u64) -> Timestamp {
    Timestamp::from_secs(START + BLOCK_SECONDS * block).unwrap()
}

/// Returns a block's number and hash.
pub fn block(number: u64) -> BlockId {
    BlockId {
        number,
        hash: hash_of(number),
    }
}

/// Returns the newest final block.
pub fn final_block() -> FinalBlock {
    FinalBlock {
        number: FINAL,
        hash: hash_of(FINAL),
        at: time_of(FINAL),
    }
}

/// Encodes a number as a JSON-RPC quantity.
pub fn quantity(number: u64) -> Value {
    json!(format!("{number:#x}"))
}

/// Decodes a JSON-RPC quantity.
pub fn number(quantity: &Value) -> u64 {
    u64::from_str_radix(quantity.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

/// Encodes a number as a contract returns it.
pub fn word(number: u64) -> Bytes {
    B256::from(U256::from(number)).into()
}

/// Returns the calls inside a call of `Multicall3`; empty for another contract.
pub fn calls_of_multicall(params: &Value) -> Vec<Call3> {
    if params[0]["to"] != json!(MULTICALL) {
        return vec![];
    }
    let data: Bytes = serde_json::from_value(params[0]["data"].clone()).unwrap();
    aggregate3Call::abi_decode(&data).unwrap().calls
}

/// Returns the response of `Multicall3` with these results.
pub fn aggregated(results: &[Result3]) -> Value {
    json!(Bytes::from(aggregate3Call::abi_encode_returns(&results.to_vec())))
}

/// Runs code that is not deployed, in the block `number`. Supports only instructions for block numbers and hashes.
pub fn returned(code: &[u8], number: u64, hash_of: impl Fn(u64) -> B256) -> Bytes {
    let (mut stack, mut memory) = (Vec::<U256>::new(), Vec::<u8>::new());
    let mut at = 0;
    let pop = |stack: &mut Vec<U256>| stack.pop().expect("a value on the stack");
    loop {
        let operation = code[at];
        at += 1;
        match operation {
            0x03 => {
                let (from, less) = (pop(&mut stack), pop(&mut stack));
                stack.push(from.wrapping_sub(less));
            }
            0x40 => {
                let wanted = u64::try_from(pop(&mut stack)).ok();
                let known = wanted.filter(|wanted| *wanted < number && number - wanted <= 256);
                stack.push(known.map_or(U256::ZERO, |known| hash_of(known).into()));
            }
            0x43 => stack.push(U256::from(number)),
            0x52 => {
                let (place, value): (usize, U256) = (pop(&mut stack).to(), pop(&mut stack));
                memory.resize(memory.len().max(place + 32), 0);
                memory[place..place + 32].copy_from_slice(&value.to_be_bytes::<32>());
            }
            push @ 0x60..=0x7f => {
                let end = at + usize::from(push - 0x5f);
                stack.push(U256::from_be_slice(&code[at..end]));
                at = end;
            }
            0xf3 => {
                let (place, size): (usize, usize) = (pop(&mut stack).to(), pop(&mut stack).to());
                return memory[place..place + size].to_vec().into();
            }
            other => panic!("unexpected operation {other:#x}"),
        }
    }
}

impl Default for ScriptedChain {
    fn default() -> Self {
        Self {
            head: HEAD,
            multicall: true,
            transactions: HashMap::new(),
            logs: BTreeMap::new(),
            used: HashMap::new(),
        }
    }
}

impl ScriptedChain {
    /// Adds a transaction with the authorized transfer to a block.
    pub fn pay(&mut self, payment: &ExpectedTransfer, block: u64, tx_hash: TxHash) {
        let topics = [AUTHORIZATION_USED, payment.from.into_word(), payment.nonce];
        self.log(block, tx_hash, topics, Bytes::new());
        self.transfer(payment, payment.amount.units(), block, tx_hash);
    }

    /// Returns the chain with a transaction that makes the payment.
    #[must_use]
    pub fn paid(mut self, payment: &ExpectedTransfer, block: u64, transaction: u64) -> Self {
        self.pay(payment, block, tx_hash(transaction));
        self
    }

    /// Returns the chain with a transfer of another amount from the payment's payer to its payee.
    #[must_use]
    pub fn transferred(mut self, payment: &ExpectedTransfer, units: u64, block: u64, transaction: u64) -> Self {
        self.transfer(payment, units, block, tx_hash(transaction));
        self
    }

    /// Returns the chain with a transaction in which the payer cancels the payment.
    #[must_use]
    pub fn canceled(self, payment: &ExpectedTransfer, block: u64, transaction: u64) -> Self {
        let topics = [AUTHORIZATION_CANCELED, payment.from.into_word(), payment.nonce];
        self.logged(block, transaction, topics, Bytes::new())
    }

    /// Returns the chain with a failed transaction, which has no logs.
    #[must_use]
    pub fn failed(mut self, block: u64, transaction: u64) -> Self {
        let mined = Mined { block, failed: true };
        self.transactions.insert(tx_hash(transaction), mined);
        self
    }

    /// Returns the chain with a further log of the token.
    #[must_use]
    pub fn logged(mut self, block: u64, transaction: u64, topics: [B256; 3], data: Bytes) -> Self {
        self.log(block, tx_hash(transaction), topics, data);
        self
    }

    fn transfer(&mut self, payment: &ExpectedTransfer, units: u64, block: u64, tx_hash: TxHash) {
        let topics = [TRANSFER, payment.from.into_word(), payment.to.into_word()];
        self.log(block, tx_hash, topics, word(units));
    }

    fn log(&mut self, block: u64, tx_hash: TxHash, topics: [B256; 3], data: Bytes) {
        let mined = Mined { block, failed: false };
        self.transactions.entry(tx_hash).or_insert(mined);
        let [event, payer, nonce] = topics;
        if [AUTHORIZATION_USED, AUTHORIZATION_CANCELED].contains(&event) {
            let first = self.used.entry((payer, nonce)).or_insert(block);
            *first = block.min(*first);
        }
        let logs = self.logs.entry(block).or_default();
        logs.push(ChainLog {
            tx_hash,
            index: logs.len(),
            topics,
            data,
        });
    }

    /// Returns the sum that a wallet has paid, in micro-USDC.
    pub fn spent(&self, wallet: Address) -> u64 {
        let of_wallet = |log: &&ChainLog| log.topics[0] == TRANSFER && log.topics[1] == wallet.into_word();
        let logs = self.logs.values().flatten().filter(of_wallet);
        logs.map(|log| U256::from_be_slice(&log.data).to::<u64>()).sum()
    }

    /// Starts a node that serves this chain.
    pub async fn serve(self) -> ScriptedNode {
        ScriptedNode::start(move |method, params| Reply::Result(self.answer(method, params))).await
    }

    /// Starts a node that serves this chain, except for the calls for which `other` returns a response.
    pub async fn serve_except(
        self,
        mut other: impl FnMut(&str, &Value) -> Option<Reply> + Send + 'static,
    ) -> ScriptedNode {
        let answer = move |method: &str, params: &Value| {
            other(method, params).unwrap_or_else(|| Reply::Result(self.answer(method, params)))
        };
        ScriptedNode::start(answer).await
    }

    /// Returns the response of a correct node.
    pub fn answer(&self, method: &str, params: &Value) -> Value {
        match method {
            "eth_chainId" => quantity(NETWORK.chain_id()),
            "eth_blockNumber" => quantity(self.head),
            "eth_getBlockByNumber" => self.header(number(&params[0])),
            "eth_getTransactionByHash" => self.transaction(&params[0]),
            "eth_getTransactionReceipt" => self.receipt(&params[0]),
            "eth_getLogs" => self.logs(&params[0]),
            "eth_call" => self.call(params).map_or_else(|| json!("0x"), |data| json!(data)),
            other => panic!("unexpected {other}"),
        }
    }

    fn header(&self, number: u64) -> Value {
        if number > self.head {
            return Value::Null;
        }
        let time = quantity(START + BLOCK_SECONDS * number);
        json!({"hash": hash_of(number), "number": quantity(number), "timestamp": time, "miner": Address::ZERO})
    }

    /// Returns a transaction with the fields that the service reads. Its type is that of OP Stack deposits, because the
    /// service must accept every type.
    fn transaction(&self, asked: &Value) -> Value {
        self.find(asked).map_or(Value::Null, |Mined { block, .. }| {
            json!({"type": "0x7e", "hash": asked, "blockHash": hash_of(block), "blockNumber": quantity(block)})
        })
    }

    fn receipt(&self, asked: &Value) -> Value {
        self.find(asked).map_or(Value::Null, |Mined { failed, block }| {
            let of_block = self.logs.get(&block).into_iter().flatten();
            let of_it = of_block.filter(|log| json!(log.tx_hash.to_b256()) == *asked);
            let logs: Vec<Value> = of_it.map(|log| log.on_the_wire(block)).collect();
            json!({"type": "0x7e", "transactionHash": asked, "status": quantity(u64::from(!failed)), "logs": logs})
        })
    }

    fn find(&self, asked: &Value) -> Option<Mined> {
        let hash: B256 = serde_json::from_value(asked.clone()).unwrap();
        self.transactions.get(&TxHash::from_b256(hash)).copied()
    }

    /// Returns the logs that match a filter: for a block hash, or for a range of existing blocks.
    fn logs(&self, filter: &Value) -> Value {
        let (first, last) = match serde_json::from_value::<B256>(filter["blockHash"].clone()) {
            Ok(hash) => {
                let number = U256::from_be_bytes(hash.0).to();
                (number, number)
            }
            Err(_) => (number(&filter["fromBlock"]), number(&filter["toBlock"])),
        };
        assert!(first <= last && last <= self.head, "{filter}");
        if filter["address"] != json!(NETWORK.token().address) {
            return json!([]);
        }
        let asked: Vec<Vec<B256>> = serde_json::from_value(filter["topics"].clone()).unwrap();
        let is_asked = |log: &ChainLog| asked.iter().zip(&log.topics).all(|(any, topic)| any.contains(topic));
        let blocks = self.logs.range(first..=last);
        let logs = blocks.flat_map(|(block, logs)| logs.iter().map(move |log| (*block, log)));
        logs.filter(|(_, log)| is_asked(log))
            .map(|(block, log)| log.on_the_wire(block))
            .collect()
    }

    /// Calls a contract or runs code that is not deployed. Returns `None` if the address has no contract.
    fn call(&self, params: &Value) -> Option<Bytes> {
        let data: Bytes = serde_json::from_value(params[0]["data"].clone()).unwrap();
        if params[0].get("to").is_none() {
            let at = serde_json::from_value::<B256>(params[1]["blockHash"].clone());
            let at = at.map_or(self.head, |hash| U256::from_be_bytes(hash.0).to());
            return Some(returned(&data, at, hash_of));
        }
        match serde_json::from_value(params[0]["to"].clone()).unwrap() {
            MULTICALL if self.multicall => {
                let result = |call: &Call3| {
                    assert!(call.allowFailure);
                    let returned = self.call_token(call.target, &call.callData, &params[1]);
                    Result3 {
                        success: true,
                        returnData: returned.unwrap_or_default(),
                    }
                };
                let results = calls_of_multicall(params).iter().map(result).collect();
                Some(aggregate3Call::abi_encode_returns(&results).into())
            }
            contract => self.call_token(contract, &data, &params[1]),
        }
    }

    fn call_token(&self, contract: Address, data: &Bytes, at: &Value) -> Option<Bytes> {
        if contract != NETWORK.token().address {
            return None;
        }
        if balanceOfCall::abi_decode(data).is_ok() {
            return Some(word(BALANCE));
        }
        let asked = authorizationStateCall::abi_decode(data).unwrap();
        assert_eq!(at["requireCanonical"], true);
        let hash: B256 = serde_json::from_value(at["blockHash"].clone()).unwrap();
        let last: u64 = U256::from_be_bytes(hash.0).to();
        let first = self.used.get(&(asked.authorizer.into_word(), asked.nonce));
        Some(word(u64::from(first.is_some_and(|first| *first <= last))))
    }
}

impl ChainLog {
    fn on_the_wire(&self, block: u64) -> Value {
        json!({
            "address": NETWORK.token().address, "topics": self.topics, "data": self.data,
            "logIndex": format!("{:#x}", self.index), "removed": false, "transactionHash": self.tx_hash.to_b256(),
            "blockHash": hash_of(block), "blockNumber": quantity(block), "transactionIndex": "0x0",
        })
    }
}
