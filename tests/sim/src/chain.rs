//! A simulated chain with one EIP-3009 token and reorgs, which responds to the JSON-RPC calls of `shared/chain`.
//!
//! Every block contains the state that results from its parent. A transaction that fails is also included in a block,
//! as on a real chain.

use alloy::primitives::Bytes;
use alloy::sol_types::SolCall as _;
use purser_domain::{AUTHORIZATION_CANCELED, AUTHORIZATION_USED, Address, B256, Network, TRANSFER};
use purser_testkit::Rng;
use purser_testkit::chain::{
    MULTICALL,
    calls::{Call3, Result3, aggregate3Call, authorizationStateCall, balanceOfCall},
    returned,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const NETWORK: Network = Network::BaseSepolia;

const BLOCK_SECS: u64 = 2;
/// The maximum number of blocks that a jump in time adds. More blocks would make reconcile slow, because it reads the
/// claims of each block.
const MAX_BLOCKS_AT_ONCE: u64 = 8;

/// A pruned node can execute calls only at this many of the newest blocks.
const STATES_KEPT: usize = 16;

/// The signed fields of an authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignedTerms {
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) value: u64,
    pub(crate) valid_before: u64,
    pub(crate) nonce: B256,
}

/// One call of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `transferWithAuthorization`.
    Use(SignedTerms),
    /// `cancelAuthorization`.
    Cancel(Address, B256),
    /// A transfer of the same amount that another account sends.
    Plain { from: Address, to: Address, value: u64 },
}

/// A transaction. Its calls succeed or fail together.
#[derive(Clone, Debug)]
pub(crate) struct Tx {
    pub(crate) hash: B256,
    pub(crate) calls: Vec<Call>,
    /// The earliest time of the transaction's block, in seconds. A block is mined at exactly this time.
    pub(crate) at: u64,
}

#[derive(Clone, Debug)]
struct MinedTransaction {
    tx: Tx,
    succeeded: bool,
    first_log: u64,
}

/// Whether an authorization was used or canceled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Used(B256),
    Canceled,
}

#[derive(Clone, Debug, Default)]
struct State {
    balances: BTreeMap<Address, u64>,
    ended: BTreeMap<(Address, B256), Fate>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) number: u64,
    hash: B256,
    parent: B256,
    pub(crate) time: u64,
    mined: Vec<MinedTransaction>,
    state: Arc<State>,
}

impl Block {
    /// Returns whether an authorization was used or canceled before or in this block.
    pub(crate) fn fate(&self, from: Address, nonce: B256) -> Option<Fate> {
        self.state.ended.get(&(from, nonce)).copied()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of calls in a multicall; `None` if the chain has no `Multicall3`.
    pub(crate) multicall: Option<usize>,
    /// The maximum number of blocks in a log query.
    pub(crate) log_range: u64,
    /// Whether the node is pruned, so that it has no states of old blocks.
    pub(crate) forgets: bool,
}

impl Limits {
    /// Draws the node's limits for a run.
    pub(crate) fn drawn(mut rng: Rng) -> Self {
        Self {
            multicall: rng.weighted(&[(4, Some(500)), (2, Some(2)), (2, None)]),
            log_range: rng.weighted(&[(4, 1_000), (2, 2)]),
            forgets: rng.one_in(3),
        }
    }
}

/// The part of the chain that a node shows in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The number of blocks that the node is behind.
    pub(crate) behind: u64,
    /// Whether the node still shows the blocks that the newest reorg removed.
    pub(crate) is_aside: bool,
    /// How the node responds to log queries.
    pub(crate) logs: Logs,
}

/// How a node responds to log queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Logs {
    /// The node returns all logs.
    #[default]
    Told,
    /// The node returns no logs.
    Omitted,
    /// The node rejects the query because it has too many logs.
    TooMany,
}

#[derive(Debug)]
pub(crate) struct Chain {
    blocks: Vec<Arc<Block>>,
    /// The blocks that the newest reorg replaced, and the number of the last common block.
    aside: Option<(Vec<Arc<Block>>, u64)>,
    /// The node may show removed blocks until the newest block is this far above the last common block.
    side_blocks: u64,
    waiting: Vec<Tx>,
    /// Transactions that a reorg removed and that are not on the chain. A later reorg may include them again.
    lost: Vec<Tx>,
    rng: Rng,
    confirmations: u64,
    /// Every block that ever counted as final.
    finals: BTreeMap<B256, Arc<Block>>,
    transactions: u64,
    limits: Limits,
}

impl Chain {
    pub(crate) fn new(
        rng: Rng,
        confirmations: u64,
        now: u64,
        balances: BTreeMap<Address, u64>,
        limits: Limits,
        side_blocks: u64,
    ) -> Self {
        let mut chain = Self {
            blocks: Vec::new(),
            aside: None,
            side_blocks,
            waiting: Vec::new(),
            lost: Vec::new(),
            rng,
            confirmations,
            finals: BTreeMap::new(),
            transactions: 0,
            limits,
        };
        let state = Arc::new(State {
            balances,
            ended: BTreeMap::new(),
        });
        // The first block's number is not zero, because the chain is older than the service. The chain starts with 31
        // blocks, so that some are final.
        let first = now - 30 * BLOCK_SECS;
        chain.append(1_000, B256::ZERO, first, Vec::new(), state);
        for block in 1..=30 {
            chain.advance(first + block * BLOCK_SECS);
        }
        chain
    }

    fn append(&mut self, number: u64, parent: B256, time: u64, mined: Vec<MinedTransaction>, state: Arc<State>) {
        let mut hash = B256::ZERO;
        self.rng.fill(hash.as_mut_slice());
        let block = Arc::new(Block {
            number,
            hash,
            parent,
            time,
            mined,
            state,
        });
        self.blocks.push(block);
        let depth = usize::try_from(self.confirmations).expect("few");
        if let Some(index) = self.blocks.len().checked_sub(depth) {
            let settled = Arc::clone(&self.blocks[index]);
            self.finals.insert(settled.hash, settled);
        }
    }

    fn head(&self) -> &Arc<Block> {
        self.blocks.last().expect("the first block")
    }

    /// The newest block's time.
    pub(crate) fn time(&self) -> u64 {
        self.head().time
    }

    /// Mines the blocks up to `now`.
    pub(crate) fn advance(&mut self, now: u64) {
        let gap = now.saturating_sub(self.time());
        let step = (gap / MAX_BLOCKS_AT_ONCE).max(BLOCK_SECS);
        loop {
            let last = self.time();
            let wanted = self.waiting.iter().map(|tx| tx.at.max(last + 1)).min();
            let regular = last + step;
            let next = wanted.map_or(regular, |wanted| wanted.min(regular));
            if next > now {
                return;
            }
            self.mine(next);
        }
    }

    /// Mines a block with this time.
    fn mine(&mut self, time: u64) {
        let head = Arc::clone(self.head());
        let (due, later): (Vec<Tx>, Vec<Tx>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|tx| tx.at <= time);
        self.waiting = later;
        let mut state = Arc::clone(&head.state);
        let mut logs = 0;
        let mut mined = Vec::new();
        for tx in due {
            let mut after = (*state).clone();
            let succeeded = tx.calls.iter().all(|call| after.apply(call, tx.hash, time));
            let first_log = logs;
            if succeeded {
                state = Arc::new(after);
                logs += tx.calls.iter().map(Call::logs).sum::<u64>();
            }
            mined.push(MinedTransaction {
                tx,
                succeeded,
                first_log,
            });
        }
        self.append(head.number + 1, head.hash, time, mined, state);
    }

    /// Returns a new transaction hash.
    pub(crate) fn new_hash(&mut self) -> B256 {
        self.transactions += 1;
        let mut hash = B256::ZERO;
        Rng::from_seed(self.transactions).fill(hash.as_mut_slice());
        hash
    }

    pub(crate) fn submit(&mut self, tx: Tx) {
        self.waiting.push(tx);
    }

    /// Replaces the newest `depth` blocks by `depth + 1` blocks. Some removed transactions are included again, and the
    /// others stay in `lost`.
    pub(crate) fn reorganize(&mut self, depth: u64) {
        let depth = usize::try_from(depth).expect("few").min(self.blocks.len() - 1);
        let common = self.blocks[self.blocks.len() - 1 - depth].number;
        if self.side_blocks > 0 {
            self.aside = Some((self.blocks.clone(), common));
        }
        let gone = self.blocks.split_off(self.blocks.len() - depth);
        let now = gone.last().map_or(0, |block| block.time);
        let times: Vec<u64> = gone.iter().map(|block| block.time).collect();
        let taken_back = gone.iter().flat_map(|block| &block.mined).map(|mined| mined.tx.clone());
        let homeless: Vec<Tx> = std::mem::take(&mut self.lost).into_iter().chain(taken_back).collect();
        for tx in homeless {
            match self.rng.below(3) {
                0 => self.lost.push(tx),
                1 => self.waiting.push(tx),
                _ => {
                    let at = tx.at.max(self.time() + 1 + self.rng.below(3) * BLOCK_SECS);
                    self.waiting.push(Tx { at, ..tx });
                }
            }
        }
        for time in times {
            let time = time.max(self.time() + 1);
            self.mine(time);
        }
        let last = now.max(self.time()) + 1;
        self.mine(last);
    }

    pub(crate) fn balance(&self, of: Address) -> u64 {
        self.head().state.balances.get(&of).copied().unwrap_or(0)
    }

    /// Returns whether an authorization was used or canceled up to the newest block.
    pub(crate) fn fate(&self, from: Address, nonce: B256) -> Option<Fate> {
        self.head().fate(from, nonce)
    }

    /// Returns whether a block that ever counted as final contained this transaction and its transfer.
    pub(crate) fn was_finally_paid(&self, signed: &SignedTerms, hash: B256) -> bool {
        self.finals.values().any(|block| {
            let in_it = block
                .mined
                .iter()
                .any(|mined| mined.succeeded && mined.tx.hash == hash && mined.tx.calls.contains(&Call::Use(*signed)));
            in_it && block.fate(signed.from, signed.nonce) == Some(Fate::Used(hash))
        })
    }

    /// Returns whether a block that ever counted as final proved that an authorization can never be used.
    pub(crate) fn was_finally_unused(&self, from: Address, nonce: B256, valid_before: u64) -> bool {
        self.finals.values().any(|block| match block.fate(from, nonce) {
            Some(Fate::Canceled) => true,
            Some(Fate::Used(_)) => false,
            None => block.time >= valid_before,
        })
    }

    /// The newest final block.
    pub(crate) fn final_block(&self) -> &Arc<Block> {
        let depth = usize::try_from(self.confirmations).expect("few");
        &self.blocks[self.blocks.len().saturating_sub(depth)]
    }

    /// Returns whether a block with this time or a later time ever counted as final.
    pub(crate) fn was_finally_past(&self, time: u64) -> bool {
        self.finals.values().any(|block| block.time >= time)
    }

    pub(crate) fn holds_at(&self, hash: B256, number: u64) -> bool {
        let block = self.blocks.iter().find(|block| block.number == number);
        block.is_some_and(|block| block.mined.iter().any(|mined| mined.succeeded && mined.tx.hash == hash))
    }

    /// Returns the log indexes of a transaction's transfers for an authorization, in a block that ever counted as
    /// final.
    pub(crate) fn final_transfers(&self, block: B256, number: u64, hash: B256, signed: &SignedTerms) -> Vec<u64> {
        let block = self.finals.get(&block).filter(|block| block.number == number);
        let mined = block.and_then(|block| {
            block
                .mined
                .iter()
                .find(|mined| mined.succeeded && mined.tx.hash == hash)
        });
        let Some(mined) = mined else { return Vec::new() };
        let mut next = mined.first_log;
        let mut places = Vec::new();
        for call in &mined.tx.calls {
            next += call.logs();
            if *call == Call::Use(*signed) {
                places.push(next - 1);
            }
        }
        places
    }

    /// Returns whether the block is on the chain.
    pub(crate) fn has(&self, block: B256, number: u64) -> bool {
        let mut blocks = self.blocks.iter();
        blocks.any(|on_chain| on_chain.hash == block && on_chain.number == number)
    }

    /// Returns the number of the block that contains a transaction.
    pub(crate) fn block_of(&self, hash: B256) -> Option<u64> {
        block_of(&self.blocks, hash).map(|block| block.number)
    }

    /// Returns what a node without faults shows of a transaction.
    pub(crate) fn shows(&self, signed: &SignedTerms, hash: B256) -> ShownView {
        let found = self.blocks.iter().find_map(|block| {
            let mined = block.mined.iter().find(|mined| mined.tx.hash == hash)?;
            Some((block, mined))
        });
        let Some((block, mined)) = found else {
            return ShownView::NotMined;
        };
        let missing = self.confirmations.saturating_sub(self.head().number - block.number + 1);
        if missing > 0 {
            return ShownView::NotFinal { missing };
        }
        if mined.succeeded && mined.tx.calls.contains(&Call::Use(*signed)) {
            ShownView::Paid
        } else {
            ShownView::Other
        }
    }

    /// Returns the removed blocks, if a node may still show them.
    fn aside(&self) -> Option<&[Arc<Block>]> {
        let (blocks, common) = self.aside.as_ref()?;
        (self.head().number - common <= self.side_blocks).then_some(blocks)
    }

    /// Returns whether a node may still show removed blocks.
    pub(crate) fn has_aside(&self) -> bool {
        self.aside().is_some()
    }

    /// Returns the result of a JSON-RPC call to a node with this view.
    pub(crate) fn answer(&self, method: &str, params: &Value, view: View) -> Result<Value, i64> {
        let all = if view.is_aside { self.aside() } else { None };
        let all = all.unwrap_or(&self.blocks);
        let shown = all.len() - usize::try_from(view.behind).expect("few").min(all.len() - 1);
        let blocks = &all[..shown];
        let head = blocks.last().expect("the first block");
        Ok(match method {
            "eth_chainId" => quantity(NETWORK.chain_id()),
            "eth_blockNumber" => quantity(head.number),
            "eth_getTransactionByHash" => transaction(blocks, &self.waiting, hash(&params[0])),
            "eth_getTransactionReceipt" => receipt(blocks, hash(&params[0])),
            "eth_getBlockByNumber" => by_number(blocks, &params[0]).map_or(Value::Null, |block| header(block)),
            "eth_call" => call(blocks, params, self.limits).ok_or(-32_000)?,
            "eth_getLogs" if view.logs == Logs::Omitted => json!([]),
            "eth_getLogs" if view.logs == Logs::TooMany => return Err(-32_005),
            "eth_getLogs" => logs(blocks, &params[0], self.limits).ok_or(-32_000)?,
            other => panic!("the simulation's chain knows no method {other}"),
        })
    }
}

/// What a node shows of a transaction that an agent reports as a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShownView {
    NotMined,
    /// The transaction needs `missing` more blocks to be final.
    NotFinal {
        missing: u64,
    },
    Paid,
    Other,
}

impl State {
    /// Applies a call and returns whether it succeeded. After a failure, the caller must discard the changes.
    fn apply(&mut self, call: &Call, hash: B256, time: u64) -> bool {
        match call {
            Call::Use(signed) => {
                let ended = self.ended.insert((signed.from, signed.nonce), Fate::Used(hash));
                ended.is_none() && time < signed.valid_before && self.transfer(signed.from, signed.to, signed.value)
            }
            Call::Cancel(from, nonce) => self.ended.insert((*from, *nonce), Fate::Canceled).is_none(),
            Call::Plain { from, to, value } => self.transfer(*from, *to, *value),
        }
    }

    fn transfer(&mut self, from: Address, to: Address, value: u64) -> bool {
        let Some(left) = self.balances.get(&from).copied().unwrap_or(0).checked_sub(value) else {
            return false;
        };
        self.balances.insert(from, left);
        *self.balances.entry(to).or_default() += value;
        true
    }
}

impl Call {
    const fn logs(&self) -> u64 {
        match self {
            Self::Use(_) => 2,
            Self::Cancel(..) | Self::Plain { .. } => 1,
        }
    }

    /// Returns the topics and data of the events that the call emits.
    fn events(&self) -> Vec<(Vec<String>, String)> {
        let word = |address: Address| address.into_word().to_string();
        let moved = |from, to, value: u64| {
            (
                vec![TRANSFER.to_string(), word(from), word(to)],
                format!("0x{value:064x}"),
            )
        };
        match *self {
            Self::Use(SignedTerms {
                from, to, value, nonce, ..
            }) => vec![
                (
                    vec![AUTHORIZATION_USED.to_string(), word(from), nonce.to_string()],
                    "0x".to_owned(),
                ),
                moved(from, to, value),
            ],
            Self::Cancel(from, nonce) => {
                vec![(
                    vec![AUTHORIZATION_CANCELED.to_string(), word(from), nonce.to_string()],
                    "0x".to_owned(),
                )]
            }
            Self::Plain { from, to, value } => vec![moved(from, to, value)],
        }
    }
}

fn quantity(number: u64) -> Value {
    format!("{number:#x}").into()
}

fn hash(value: &Value) -> B256 {
    value.as_str().and_then(|text| text.parse().ok()).expect("a hash")
}

fn read_quantity(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

fn by_number<'a>(blocks: &'a [Arc<Block>], which: &Value) -> Option<&'a Arc<Block>> {
    if let Some("latest" | "pending") = which.as_str() {
        return blocks.last();
    }
    let number = read_quantity(which)?;
    blocks.iter().find(|block| block.number == number)
}

fn header(block: &Block) -> Value {
    json!({
        "number": quantity(block.number),
        "hash": block.hash.to_string(),
        "parentHash": block.parent.to_string(),
        "timestamp": quantity(block.time),
    })
}

fn logs_of(block: &Block, mined: &MinedTransaction) -> Vec<Value> {
    if !mined.succeeded {
        return Vec::new();
    }
    let events = mined.tx.calls.iter().flat_map(Call::events);
    let log = |(place, (topics, data)): (u64, (Vec<String>, String))| {
        json!({
            "address": NETWORK.token().address.to_string(),
            "topics": topics,
            "data": data,
            "logIndex": quantity(mined.first_log + place),
            "transactionHash": mined.tx.hash.to_string(),
            "transactionIndex": "0x0",
            "blockHash": block.hash.to_string(),
            "blockNumber": quantity(block.number),
            "removed": false,
        })
    };
    (0..).zip(events).map(log).collect()
}

fn block_of(blocks: &[Arc<Block>], wanted: B256) -> Option<&Arc<Block>> {
    let holds = |block: &&Arc<Block>| block.mined.iter().any(|mined| mined.tx.hash == wanted);
    blocks.iter().find(holds)
}

/// Responds to `eth_getTransactionByHash`. A pending transaction has no block.
fn transaction(blocks: &[Arc<Block>], waiting: &[Tx], wanted: B256) -> Value {
    let (block, number) = match block_of(blocks, wanted) {
        Some(block) => (block.hash.to_string().into(), quantity(block.number)),
        None if waiting.iter().any(|tx| tx.hash == wanted) => (Value::Null, Value::Null),
        None => return Value::Null,
    };
    json!({"hash": wanted.to_string(), "blockHash": block, "blockNumber": number})
}

fn receipt(blocks: &[Arc<Block>], wanted: B256) -> Value {
    let mut all = blocks
        .iter()
        .flat_map(|block| block.mined.iter().map(move |mined| (block, mined)));
    let Some((block, mined)) = all.find(|(_, mined)| mined.tx.hash == wanted) else {
        return Value::Null;
    };
    let status = quantity(mined.succeeded.into());
    json!({"transactionHash": wanted.to_string(), "status": status, "logs": logs_of(block, mined)})
}

/// Responds to `eth_call`. Returns `None` if the block does not exist or its state was pruned.
fn call(blocks: &[Arc<Block>], params: &Value, limits: Limits) -> Option<Value> {
    let data: Bytes = params[0]["data"].as_str()?.parse().ok()?;
    let at = &params[1];
    let kept = if limits.forgets { STATES_KEPT } else { blocks.len() };
    let kept = &blocks[blocks.len().saturating_sub(kept)..];
    let block = if let Some(wanted) = at.get("blockHash") {
        let wanted = hash(wanted);
        kept.iter().find(|block| block.hash == wanted)?
    } else {
        by_number(kept, at.get("blockNumber").unwrap_or(at))?
    };
    let Some(to) = params[0].get("to") else {
        let hash_of = |number| {
            let found = blocks.iter().find(|block| block.number == number);
            found.map_or(B256::ZERO, |block| block.hash)
        };
        return Some(returned(&data, block.number, hash_of).to_string().into());
    };
    let to: Address = to.as_str()?.parse().ok()?;
    let answer = match limits.multicall {
        _ if to == NETWORK.token().address => token(block, &data),
        Some(most) if to == MULTICALL => {
            let calls = aggregate3Call::abi_decode(&data).ok()?.calls;
            let result = |call: &Call3| Result3 {
                success: call.target == NETWORK.token().address,
                returnData: token(block, &call.callData),
            };
            let results = (calls.len() <= most).then(|| calls.iter().map(result).collect())?;
            aggregate3Call::abi_encode_returns(&results).into()
        }
        // A call to an address without code returns no data.
        _ => Bytes::new(),
    };
    Some(answer.to_string().into())
}

fn token(block: &Block, data: &[u8]) -> Bytes {
    if let Ok(asked) = authorizationStateCall::abi_decode(data) {
        let is_used = block.fate(asked.authorizer, asked.nonce).is_some();
        return authorizationStateCall::abi_encode_returns(&is_used).into();
    }
    let asked = balanceOfCall::abi_decode(data).expect("one of the two functions");
    let balance = block.state.balances.get(&asked.account).copied().unwrap_or(0);
    balanceOfCall::abi_encode_returns(&alloy::primitives::U256::from(balance)).into()
}

/// Responds to `eth_getLogs`. Returns `None` for an unknown block, and for an invalid or too long range.
fn logs(blocks: &[Arc<Block>], filter: &Value, limits: Limits) -> Option<Value> {
    let within: Vec<&Arc<Block>> = if let Some(wanted) = filter.get("blockHash") {
        let wanted = hash(wanted);
        vec![blocks.iter().find(|block| block.hash == wanted)?]
    } else {
        let first = read_quantity(&filter["fromBlock"])?;
        let last = read_quantity(&filter["toBlock"])?;
        let is_known = blocks.last().is_some_and(|head| last <= head.number);
        if !is_known || last.checked_sub(first)? >= limits.log_range {
            return None;
        }
        let blocks = blocks.iter();
        blocks.filter(|block| (first..=last).contains(&block.number)).collect()
    };
    let fits = |log: &Value| {
        let topics = filter["topics"].as_array();
        let same = |(wanted, is): (&Value, &Value)| match wanted {
            Value::Null => true,
            Value::Array(any) => any.iter().any(|one| same_hex(one, is)),
            one => same_hex(one, is),
        };
        let is = log["topics"].as_array().expect("topics");
        same_hex(&filter["address"], &log["address"])
            && topics.is_none_or(|wanted| wanted.len() <= is.len() && wanted.iter().zip(is).all(same))
    };
    let all = within
        .into_iter()
        .flat_map(|block| block.mined.iter().flat_map(|mined| logs_of(block, mined)));
    Some(Value::Array(all.filter(fits).collect()))
}

fn same_hex(a: &Value, b: &Value) -> bool {
    a.as_str()
        .zip(b.as_str())
        .is_some_and(|(a, b)| a.eq_ignore_ascii_case(b))
}
