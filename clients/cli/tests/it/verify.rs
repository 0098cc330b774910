//! Tests of `purser verify`, which needs neither a key nor Purser.

use crate::home::{Home, Said};
use axum::{Json, Router, routing::post};
use purser_evidence::{
    Checkpoint, Edge, JwkSet, KeyType, Network, NoteSigner, Seed, StatementKey, StatementKind, TlogProof,
};
use serde_json::{Value, json};

const ORIGIN: &str = "log.example/decisions";
const PAYER: &str = "0x1111111111111111111111111111111111111111";
const PAYEE: &str = "0x2222222222222222222222222222222222222222";

fn seed(byte: u8) -> Seed {
    Seed::new([byte; 32].into())
}

/// A receipt, and the proof that it is the only entry of a log, in files `statement`, `proof` and `trust`.
fn home() -> Home {
    let home = Home::at("");
    let key = StatementKey::new(&seed(1)).unwrap();
    let settlement = json!({
        "tx_hash": format!("0x{}", "ab".repeat(32)), "network": "base-sepolia", "wallet": PAYER, "pay_to": PAYEE,
        "amount_units": 10_000, "asset": "USDC",
    });
    let payload = json!({"settlement": settlement}).to_string();
    let statement = key.sign(StatementKind::Receipt, payload.as_bytes()).unwrap();
    let log = NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed(2)).unwrap();
    let head = Edge::empty().append(&[&statement]).unwrap().head;
    let checkpoint = Checkpoint::new(ORIGIN, head).unwrap().sign(&log).unwrap();
    let proof = TlogProof::new(Some(statement.as_bytes()), 0, Vec::new(), &checkpoint).unwrap();
    let trust = json!({
        "jwks": JwkSet::new(key.jwk().clone(), []),
        "logs": [{"vkey": log.verifier().to_string(), "origin": ORIGIN}],
    });
    let files = [
        ("statement", statement),
        ("proof", proof.to_string()),
        ("trust", trust.to_string()),
    ];
    for (name, text) in files {
        std::fs::write(home.folder().join(name), text).unwrap();
    }
    home
}

async fn verified(home: &Home, file: &str, node: Option<&str>) -> (i32, Vec<String>) {
    let node = node.map(|node| ["--node", node]);
    let arguments = ["--json", "verify", file, "--trust", "trust"];
    let arguments: Vec<_> = arguments.into_iter().chain(node.into_iter().flatten()).collect();
    let said = home.run(&arguments).await;
    let told: Value = serde_json::from_str(&said.out).unwrap_or_default();
    let steps = told["steps"].as_array().cloned().unwrap_or_default();
    let text = |step: &Value, name: &str| step[name].as_str().unwrap().to_owned();
    let steps = steps.iter();
    let steps = steps.map(|step| format!("{}: {}", text(step, "step"), text(step, "outcome")));
    (said.code, steps.collect())
}

/// A node that knows the transaction, with a transfer of this many units.
async fn node(units: u64) -> String {
    let word = |digits: &str| format!("0x{digits:0>64}");
    let log = json!({
        "address": Network::of("base-sepolia").unwrap().usdc,
        "topics": [
            "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
            word(PAYER.trim_start_matches("0x")),
            word(PAYEE.trim_start_matches("0x")),
        ],
        "data": word(&format!("{units:x}")),
    });
    let answer = move |Json(call): Json<Value>| async move {
        let result = match call["method"].as_str().unwrap() {
            "eth_chainId" => json!("0x14a34"),
            "eth_getTransactionReceipt" => json!({
                "transactionHash": call["params"][0], "status": "0x1", "blockNumber": "0x10", "logs": [log],
            }),
            other => panic!("{other}"),
        };
        Json(json!({"jsonrpc": "2.0", "id": call["id"], "result": result}))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/key", post(answer))).await });
    format!("http://{address}/key")
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_lists_each_step() {
    let home = home();
    let log = ["inclusion", "checkpoint"];
    let with = |outcome: &str, chain: &str| {
        let log = log.map(|step| format!("{step}: {outcome}"));
        let [inclusion, checkpoint] = log;
        let rest = ["witnesses: skipped".to_owned(), format!("chain: {chain}")];
        [
            vec!["statement: passed".to_owned(), inclusion, checkpoint],
            rest.to_vec(),
        ]
        .concat()
    };
    assert_eq!(
        verified(&home, "statement", None).await,
        (0, with("skipped", "skipped"))
    );
    assert_eq!(verified(&home, "proof", None).await, (0, with("passed", "skipped")));
    assert_eq!(
        verified(&home, "proof", Some(&node(10_000).await)).await,
        (0, with("passed", "passed"))
    );
    assert_eq!(
        verified(&home, "proof", Some(&node(9_999).await)).await,
        (6, with("passed", "failed"))
    );
    assert_eq!(
        verified(&home, "proof", Some("http://127.0.0.1:1/")).await,
        (6, with("passed", "failed"))
    );

    let said = home.run(&["verify", "proof", "--trust", "trust"]).await.done();
    assert!(said.contains("no node was named") && said.contains(PAYEE), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_tells_refused_from_unreadable() {
    let home = home();
    let edit = |name: &str, old: &str, new: &str| {
        let text = std::fs::read_to_string(home.folder().join(name)).unwrap();
        assert!(text.contains(old), "{text}");
        std::fs::write(home.folder().join(format!("{name}.edited")), text.replacen(old, new, 1)).unwrap();
    };
    edit("proof", "index 0", "index 1");
    edit("statement", ".", "A.");
    for edited in ["proof.edited", "statement.edited"] {
        assert_eq!(verified(&home, edited, None).await.0, 6, "{edited}");
    }
    edit("proof", "index 0", "index 00");
    edit("trust", "jwks", "keys");
    let code = |said: Said| said.code;
    assert_eq!(verified(&home, "proof.edited", None).await.0, 7);
    assert_eq!(verified(&home, "missing", None).await.0, 7);
    assert_eq!(verified(&home, "trust", None).await.0, 7);
    assert_eq!(code(home.run(&["verify", "proof", "--trust", "trust.edited"]).await), 7);
    assert_eq!(code(home.run(&["verify", "proof"]).await), 2);
    let node = home
        .run(&[
            "verify",
            "proof",
            "--trust",
            "trust",
            "--node",
            "http://node.example/key",
        ])
        .await;
    assert_eq!(node.code, 1);
    assert!(!node.err.contains("key"), "{node:?}");
}
