//! The transfer that a receipt states, and a node's answers.

use crate::sample::statement_key;
use purser_evidence::{JwkSet, Network, NoTransfer, StatedTransfer, StatementKind, VerifiedStatement};
use serde_json::{Value, json};

const PAYER: &str = "0x00000000000000000000000000000000000000Aa";
const PAYEE: &str = "0x00000000000000000000000000000000000000bB";

fn hash() -> String {
    format!("0x{}", "Ab".repeat(32))
}

fn payload() -> Value {
    json!({"settlement": {
        "tx_hash": hash(), "network": "eip155:8453", "wallet": PAYER, "pay_to": PAYEE, "amount_units": "255",
        "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "delivery": "ok",
    }})
}

fn stated(kind: StatementKind, payload: &Value) -> VerifiedStatement {
    let key = statement_key();
    let statement = key.sign(kind, payload.to_string().as_bytes()).unwrap();
    JwkSet::new(key.jwk().clone(), []).verify(&statement).unwrap()
}

fn receipt() -> Value {
    let word = |digits: &str| format!("0x{digits:0>64}");
    let transfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
    let other = json!({"address": PAYEE, "topics": [], "data": "0x"});
    json!({
        "transactionHash": hash().to_lowercase().replace("0X", "0x"), "status": "0x1", "blockNumber": "0x1f",
        "logs": [other, {
            "address": Network::of("base").unwrap().usdc,
            "topics": [transfer, word("aa"), word("bb")],
            "data": word("ff"),
        }],
    })
}

#[test]
fn a_stated_transfer_is_found_or_not() {
    let transfer = StatedTransfer::of(&stated(StatementKind::Receipt, &payload())).unwrap();
    assert_eq!(transfer.tx_hash(), hash().to_lowercase());
    let chain = json!("0x2105");
    assert_eq!(transfer.find(&chain, &receipt()), Ok(31));
    assert!(transfer.find(&json!("0x14a34"), &receipt()).is_err());
    assert!(transfer.find(&Value::Null, &receipt()).is_err());
    assert!(transfer.find(&chain, &Value::Null).is_err());
    let changes: [(&str, Value); 12] = [
        ("/status", json!("0x0")),
        ("/status", Value::Null),
        ("/transactionHash", json!(format!("0x{}", "00".repeat(32)))),
        ("/blockNumber", Value::Null),
        ("/logs", Value::Null),
        ("/logs/1/address", json!(Network::of("base-sepolia").unwrap().usdc)),
        ("/logs/1/topics/0", json!("0x00")),
        ("/logs/1/topics/1", json!(format!("0x{:0>64}", "ab"))),
        ("/logs/1/topics/2", json!(format!("0x{:0>64}", "aa"))),
        ("/logs/1/topics", json!([])),
        ("/logs/1/data", json!(format!("0x{:0>64}", "fe"))),
        ("/logs/1/data", json!("0xff")),
    ];
    for (at, value) in changes {
        let mut receipt = receipt();
        *receipt.pointer_mut(at).unwrap() = value;
        assert!(transfer.find(&chain, &receipt).is_err(), "{at}");
    }
    let mut removed = receipt();
    removed["logs"][1]["removed"] = json!(true);
    assert!(transfer.find(&chain, &removed).is_err());
}

#[test]
fn statements_without_a_transfer_have_none_to_look_for() {
    let of = |kind, payload: &Value| StatedTransfer::of(&stated(kind, payload)).err();
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
