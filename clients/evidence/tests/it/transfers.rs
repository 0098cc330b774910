//! Compares the transfer that a receipt states with a node's responses.

use crate::sample::statement_key;
use purser_evidence::{JwkSet, StatementKind, VerifiedStatement};
use purser_verify::{Network, NoTransfer, NodeResponses, StatedTransfer};
use serde_json::{Value, json};

const PAYER: &str = "0x00000000000000000000000000000000000000Aa";
const PAYEE: &str = "0x00000000000000000000000000000000000000bB";

fn hash() -> String {
    format!("0x{}", "Ab".repeat(32))
}

fn payload() -> Value {
    json!({"settlement": {
        "tx_hash": hash(), "network": "eip155:8453", "wallet": PAYER, "pay_to": PAYEE, "amount_units": "255",
        "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "nonce_prefix": "0x0123456789abcdef", "block_number": 31,
        "delivery": "ok",
    }})
}

fn stated(kind: StatementKind, payload: &Value) -> VerifiedStatement {
    let key = statement_key();
    let statement = key.sign(kind, payload.to_string().as_bytes()).unwrap();
    JwkSet::new(key.jwk().clone(), []).verify(&statement).unwrap()
}

/// Returns an honest node's responses about the transaction of the payload.
fn responses() -> NodeResponses {
    let word = |digits: &str| format!("0x{digits:0>64}");
    let usdc = Network::from_name("base").unwrap().usdc;
    let transfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
    let used = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5";
    let block = format!("0x{}", "0c".repeat(32));
    let receipt = json!({
        "transactionHash": hash().to_lowercase(), "status": "0x1", "blockNumber": "0x1f", "blockHash": block,
        "logs": [
            {"address": PAYEE, "topics": [], "data": "0x", "logIndex": "0x3"},
            {
                "address": usdc, "topics": [used, word("aa"), format!("0x0123456789ABCDEF{}", "7".repeat(48))],
                "data": "0x", "logIndex": "0x4",
            },
            {"address": usdc, "topics": [transfer, word("aa"), word("bb")], "data": word("ff"), "logIndex": "0x5"},
        ],
    });
    NodeResponses {
        chain_id: json!("0x2105"),
        receipt,
        block: json!({"number": "0x1f", "hash": block}),
    }
}

#[test]
fn a_stated_transfer_is_compared_with_the_node_responses() {
    let transfer = StatedTransfer::from_statement(&stated(StatementKind::Receipt, &payload())).unwrap();
    assert_eq!(transfer.tx_hash(), hash().to_lowercase());
    assert_eq!(transfer.block_number(), "0x1f");
    assert_eq!(
        transfer.verify_in_responses(&responses()),
        Ok(format!("0x{}", "0c".repeat(32)))
    );
    let refused = |change: &dyn Fn(&mut NodeResponses)| {
        let mut responses = responses();
        change(&mut responses);
        assert!(transfer.verify_in_responses(&responses).is_err(), "{responses:?}");
    };
    for chain in [json!("0x14a34"), Value::Null] {
        refused(&|responses| responses.chain_id = chain.clone());
    }
    refused(&|responses| responses.receipt = Value::Null);
    refused(&|responses| responses.block = Value::Null);
    let other = json!(format!("0x{}", "00".repeat(32)));
    for (at, value) in [
        ("/number", json!("0x20")),
        ("/hash", other.clone()),
        ("/hash", json!("")),
    ] {
        refused(&|responses| *responses.block.pointer_mut(at).unwrap() = value.clone());
    }
    let sepolia = json!(Network::from_name("base-sepolia").unwrap().usdc);
    let changes: [(&str, Value); 22] = [
        ("/status", json!("0x0")),
        ("/status", Value::Null),
        ("/transactionHash", other.clone()),
        ("/blockNumber", Value::Null),
        ("/blockNumber", json!("0x20")),
        ("/blockHash", other),
        ("/logs", Value::Null),
        ("/logs/1/address", sepolia.clone()),
        ("/logs/1/topics/0", json!("0x00")),
        ("/logs/1/topics/1", json!(format!("0x{:0>64}", "ab"))),
        (
            "/logs/1/topics/2",
            json!(format!("0x0123456789abcdee{}", "7".repeat(48))),
        ),
        ("/logs/1/removed", json!(true)),
        ("/logs/2/address", sepolia),
        ("/logs/2/topics/0", json!("0x00")),
        ("/logs/2/topics/1", json!(format!("0x{:0>64}", "ab"))),
        ("/logs/2/topics/2", json!(format!("0x{:0>64}", "aa"))),
        ("/logs/2/topics", json!([])),
        ("/logs/2/data", json!(format!("0x{:0>64}", "fe"))),
        ("/logs/2/data", json!("0xff")),
        ("/logs/2/logIndex", json!("0x6")),
        ("/logs/2/logIndex", Value::Null),
        ("/logs/2/removed", json!(true)),
    ];
    for (at, value) in changes {
        refused(&|responses| {
            let (parent, name) = at.rsplit_once('/').unwrap();
            match responses.receipt.pointer_mut(parent).unwrap() {
                Value::Array(list) => list[name.parse::<usize>().unwrap()] = value.clone(),
                object => object[name] = value.clone(),
            }
        });
    }
    // The authorization was used twice, or there is another log between the use and the transfer.
    for (from, to) in [(1, 1), (0, 2)] {
        refused(&|responses| {
            let logs = responses.receipt["logs"].as_array_mut().unwrap();
            let log = logs[from].clone();
            logs.insert(to, log);
        });
    }
}

/// Two receipts that claim the same transfer have different nonces.
#[test]
fn each_transfer_matches_only_its_own_receipt() {
    let mut other = payload();
    other["settlement"]["nonce_prefix"] = json!("0x0123456789abcdee");
    let [one, other] = [payload(), other].map(|payload| {
        let transfer = StatedTransfer::from_statement(&stated(StatementKind::Receipt, &payload)).unwrap();
        transfer.verify_in_responses(&responses()).is_ok()
    });
    assert_eq!([one, other], [true, false]);
}

#[test]
fn only_receipt_statements_contain_a_transfer() {
    let of = |kind, payload: &Value| StatedTransfer::from_statement(&stated(kind, payload)).err();
    assert_eq!(of(StatementKind::Decision, &payload()), Some(NoTransfer::Unstated));
    for unstated in [
        json!({}),
        json!({"settlement": {"tx_hash": null}}),
        json!({"settlement": null}),
    ] {
        assert_eq!(of(StatementKind::Receipt, &unstated), Some(NoTransfer::Unstated));
    }
    for (name, value) in [
        ("tx_hash", json!("0xab")),
        ("tx_hash", json!("ab".repeat(33))),
        ("network", json!("eip155:1")),
        ("asset", json!(PAYEE)),
        ("asset", Value::Null),
        ("wallet", json!("0xzz00000000000000000000000000000000000000")),
        ("pay_to", json!(null)),
        ("amount_units", json!("0255")),
        ("amount_units", json!(-1)),
        ("nonce_prefix", json!("0x0123")),
        ("nonce_prefix", Value::Null),
        ("block_number", json!("0x1f")),
        ("block_number", Value::Null),
    ] {
        let mut payload = payload();
        payload["settlement"][name] = value;
        assert_eq!(
            of(StatementKind::Receipt, &payload),
            Some(NoTransfer::Malformed),
            "{name}"
        );
    }
    let mut number = payload();
    number["settlement"]["amount_units"] = json!(255);
    number["settlement"]["asset"] = json!("USDC");
    assert_eq!(of(StatementKind::Receipt, &number), None);
}
