//! Fuzzes a node's responses about a payment: `Chain::verify_transfer`, with a loopback node that returns the input.
//!
//! The lines of the input are the JSON-RPC responses to `eth_getTransactionByHash`, `eth_blockNumber` and
//! `eth_getLogs`. `verify_transfer` may find a payment only if a second implementation in this file also finds the
//! payment.

use purser_api::pooled_http_client;
use purser_chain::{Chain, Evidence, Finality, HttpNode};
use purser_domain::{
    AUTHORIZATION_USED, Amount, B256, BlockId, ExpectedTransfer, Network, TRANSFER, TxHash, parse_address,
};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

const NETWORK: Network = Network::BaseSepolia;
const CONFIRMATIONS: u64 = 3;

/// The lines of the input: a transaction, the number of the newest block, and logs.
type Lines = [String; 3];

static SAYS: Mutex<Lines> = Mutex::new([const { String::new() }; 3]);

fn says() -> MutexGuard<'static, Lines> {
    SAYS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Bench {
    runtime: Runtime,
    chain: Chain,
}

impl Bench {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket));
            }
        });
        let finality = Finality {
            confirmations: CONFIRMATIONS,
        };
        // The timeout is long, so that a busy machine does not cause a false finding.
        let node = HttpNode::new(pooled_http_client(), &url, Duration::from_mins(1)).expect("an address");
        let chain = Chain::from_node(NETWORK, Arc::new(node), finality);
        Self { runtime, chain }
    }
}

/// Checks that `Chain::verify_transfer` finds no payment that the node's responses don't prove.
pub fn node_answers(bytes: &[u8]) {
    static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| Mutex::new(Bench::new()));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.splitn(3, '\n').map(str::to_owned);
    let lines: Lines = std::array::from_fn(|_| lines.next().unwrap_or_default());
    let bench = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    says().clone_from(&lines);
    let verified = bench
        .runtime
        .block_on(bench.chain.verify_transfer(&expected(), tx_hash()));
    match verified {
        Ok(Evidence::Final(transfer)) => {
            let (block, logs) = final_block_of(&lines);
            assert_eq!((transfer.tx_hash(), transfer.block()), (tx_hash(), block));
            is_paid(block, &logs, transfer.log_index());
        }
        Ok(Evidence::Mismatch { block, .. }) => assert_eq!(block, final_block_of(&lines).0),
        Ok(Evidence::Pending(_)) => {}
        Err(error) => assert!(
            !error.to_string().contains("http://"),
            "no error repeats the address: {error}"
        ),
    }
}

fn tx_hash() -> TxHash {
    TxHash::from_b256(B256::repeat_byte(0x77))
}

fn expected() -> ExpectedTransfer {
    let address = |digits: &str| parse_address(&format!("0x{}", digits.repeat(20))).expect("an address");
    ExpectedTransfer {
        token: NETWORK.token().address,
        from: address("20"),
        to: address("30"),
        amount: Amount::from_units(10_000).expect("an amount"),
        nonce: B256::repeat_byte(0x40),
    }
}

/// Returns the transaction's block and the logs. Asserts that the block is final.
fn final_block_of(lines: &Lines) -> (BlockId, Value) {
    let [transaction, head, logs] = lines.each_ref().map(|line| result_of(line));
    assert!(same_word(&transaction["hash"], tx_hash().to_b256()));
    let number = quantity(&transaction["blockNumber"]).expect("the transaction is in a block");
    let head = quantity(&head).expect("there is a newest block");
    assert!(
        head >= number + (CONFIRMATIONS - 1),
        "{head} is not deep enough above {number}"
    );
    let digits = transaction["blockHash"].as_str().expect("the block has a hash");
    let hash = digits.parse().expect("thirty-two bytes");
    (BlockId { number, hash }, logs)
}

/// Asserts that the block's logs contain the expected use of the nonce, directly followed by the expected transfer.
fn is_paid(block: BlockId, logs: &Value, log_index: u64) {
    let ExpectedTransfer {
        token,
        from,
        to,
        amount,
        nonce,
    } = expected();
    let of_ours: Vec<&Value> = logs
        .as_array()
        .expect("logs")
        .iter()
        .filter(|log| same_word(&log["transactionHash"], tx_hash().to_b256()))
        .collect();
    for log in &of_ours {
        assert!(same_word(&log["blockHash"], block.hash), "{log}");
        assert_eq!(quantity(&log["blockNumber"]), Some(block.number), "{log}");
        assert_ne!(log["removed"], true, "{log}");
    }
    let all = |topics: [B256; 3]| -> Vec<&Value> {
        let is = |log: &&&Value| {
            let found = log["topics"].as_array().expect("topics");
            log["address"]
                .as_str()
                .is_some_and(|text| text.eq_ignore_ascii_case(&token.to_string()))
                && found.len() == topics.len()
                && found.iter().zip(topics).all(|(found, topic)| same_word(found, topic))
        };
        of_ours.iter().filter(is).copied().collect()
    };
    let used = all([AUTHORIZATION_USED, from.into_word(), nonce]);
    assert_eq!(used.len(), 1, "{logs}");
    let behind = quantity(&used[0]["logIndex"]).map(|index| index + 1);
    assert_eq!(behind, Some(log_index));
    let transfers = all([TRANSFER, from.into_word(), to.into_word()]);
    let data = format!("{:064x}", amount.units());
    let is_ours = |log: &&Value| {
        quantity(&log["logIndex"]) == behind
            && log["data"]
                .as_str()
                .is_some_and(|text| text.trim_start_matches("0x") == data)
    };
    assert_eq!(transfers.into_iter().filter(is_ours).count(), 1, "{logs}");
}

fn same_word(value: &Value, word: B256) -> bool {
    let digits = value
        .as_str()
        .map(|text| text.trim_start_matches("0x").to_ascii_lowercase());
    digits.is_some_and(|digits| format!("0x{digits}") == word.to_string())
}

fn quantity(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

fn reply_of(line: &str) -> Option<Value> {
    let reply: Value = serde_json::from_str(line).ok()?;
    reply.get("jsonrpc").is_some().then_some(reply)
}

fn result_of(line: &str) -> Value {
    match reply_of(line) {
        Some(mut reply) => reply["result"].take(),
        None => serde_json::from_str(line).expect("what was made sense of is JSON"),
    }
}

/// Returns the result of `eth_call`: the number of the newest block and the hash of the transaction's block.
fn viewed() -> String {
    let [transaction, head, _] = says().each_ref().map(|line| {
        reply_of(line).map_or_else(
            || serde_json::from_str(line).unwrap_or_default(),
            |mut reply| reply["result"].take(),
        )
    });
    let hash = transaction["blockHash"]
        .as_str()
        .unwrap_or_default()
        .trim_start_matches("0x")
        .to_owned();
    let word = quantity(&head).map(|head| format!("0x{head:064x}{hash}"));
    json!(word).to_string()
}

async fn serve(mut socket: TcpStream) {
    let mut bytes = Vec::new();
    loop {
        let Some(call) = next_call(&mut socket, &mut bytes).await else {
            return;
        };
        let line = match call["method"].as_str() {
            Some("eth_getTransactionByHash") => says()[0].clone(),
            Some("eth_call") => viewed(),
            Some("eth_getLogs") => says()[2].clone(),
            // `Chain` reads the receipt if the transaction has no matching logs.
            Some("eth_getTransactionReceipt") => {
                json!({"transactionHash": tx_hash().to_b256(), "status": "0x0"}).to_string()
            }
            _ => json!(format!("{:#x}", NETWORK.chain_id())).to_string(),
        };
        let body = if reply_of(&line).is_some() {
            line
        } else {
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{line}}}"#, call["id"])
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        if socket.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn next_call(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())?;
            let (start, end) = (end + 4, end + 4 + length);
            if bytes.len() >= end {
                let call = serde_json::from_slice(&bytes[start..end]).ok();
                bytes.drain(..end);
                return call;
            }
        }
        if socket.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}
