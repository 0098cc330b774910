//! Tests of `purser replay`, which needs neither a key nor a Purser server.

use crate::home::Home;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use purser_evidence::{Checkpoint, Edge, JwkSet, KeyType, NoteSigner, Seed, StatementKey, StatementKind, TlogProof};
use serde_json::{Value, json};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/evidence/sample");

fn sample(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(format!("{SAMPLE}/{name}")).unwrap()).unwrap()
}

/// Returns the exit code, the printed outcome and the JSON output.
async fn replay(home: &Home, file: &Value, trust: &Value) -> (i32, String, Value) {
    for (name, document) in [("file", file), ("trust", trust)] {
        std::fs::write(home.folder().join(name), document.to_string()).unwrap();
    }
    let said = home.run(&["--json", "replay", "file", "--trust", "trust"]).await;
    let answer: Value = serde_json::from_str(&said.out).unwrap_or_default();
    let outcome = answer["outcome"].as_str().unwrap_or_default().to_owned();
    (said.code, outcome, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn published_decisions_can_be_replayed_offline() {
    let (home, trust) = (Home::at(""), sample("trust.json"));
    for name in ["receipt.json", "block.json", "escalation.json"] {
        let mut file = sample(name);
        let (code, outcome, answer) = replay(&home, &file, &trust).await;
        assert_eq!((code, outcome.as_str()), (0, "same"), "{name}: {answer}");
        assert_eq!(answer["differences"], json!([]));
        // The changed document does not match the hash in the statement.
        file["inputs"]["policy"]["max_per_call_units"] = json!(1);
        let (code, outcome, answer) = replay(&home, &file, &trust).await;
        assert_eq!((code, outcome.as_str()), (7, "impossible"), "{answer}");
        // An agent's evidence file has no input documents.
        file["inputs"] = Value::Null;
        let (code, outcome, answer) = replay(&home, &file, &trust).await;
        assert_eq!((code, outcome.as_str()), (7, "impossible"), "{answer}");
        let mut nobody = trust.clone();
        nobody["jwks"]["keys"] = json!([]);
        let (code, outcome, _) = replay(&home, &file, &nobody).await;
        assert_eq!((code, outcome.as_str()), (6, "not_verified"));
    }
    assert_eq!(replay(&home, &json!({}), &trust).await.0, 7);
}

/// Returns the trust file and the evidence of a signed and logged decision.
fn evidence(payload: &Value, inputs: &Value) -> (Value, Value) {
    let seed = |byte| Seed::new([byte; 32].into());
    let key = StatementKey::new(&seed(1)).unwrap();
    let log = NoteSigner::new("log.example", KeyType::Ed25519, &seed(2)).unwrap();
    let statement = key
        .sign(StatementKind::Decision, payload.to_string().as_bytes())
        .unwrap();
    let head = Edge::empty().append_entries(&[&statement]).unwrap().head;
    let checkpoint = Checkpoint::new("log.example", head)
        .unwrap()
        .sign_as_note(&log)
        .unwrap();
    let proof = TlogProof::new(Some(statement.as_bytes()), 0, Vec::new(), &checkpoint).unwrap();
    let decision = json!({"statement": statement, "proof": proof.to_string(), "index": 0});
    let file = json!({
        "transaction_id": payload["transaction_id"], "decision": decision, "receipt": null, "inputs": inputs,
    });
    let trust = json!({
        "jwks": JwkSet::new(key.jwk().clone(), []),
        "logs": [{"vkey": log.verifier_key().to_string(), "origin": "log.example"}],
    });
    (file, trust)
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_replay_detects_a_wrong_decision() {
    let (home, block) = (Home::at(""), sample("block.json"));
    let statement = block["decision"]["statement"].as_str().unwrap();
    let payload = URL_SAFE_NO_PAD.decode(statement.split('.').nth(1).unwrap()).unwrap();
    let genuine: Value = serde_json::from_slice(&payload).unwrap();
    let with_hash = |mut payload: Value| {
        let hashed = [
            "transaction_id",
            "settlement_id",
            "approval_id",
            "facts",
            "result",
            "reason",
        ];
        let hashed: Value = hashed
            .iter()
            .map(|name| ((*name).to_owned(), payload[name].clone()))
            .collect();
        payload["decision_hash"] = purser_domain::DocumentHash::for_document(&hashed).to_string().into();
        payload
    };
    let (file, trust) = evidence(&with_hash(genuine.clone()), &block["inputs"]);
    let (code, outcome, answer) = replay(&home, &file, &trust).await;
    assert_eq!((code, outcome.as_str()), (0, "same"), "{answer}");

    let mut other = genuine.clone();
    other["reason"] = json!("daily_spend_limit_exceeded");
    let (file, trust) = evidence(&with_hash(other), &block["inputs"]);
    let (code, outcome, answer) = replay(&home, &file, &trust).await;
    assert_eq!((code, outcome.as_str()), (8, "different"));
    assert_eq!(answer["differences"][0]["what"], "reason");
    assert_eq!(answer["differences"][0]["replayed"], genuine["reason"]);

    // An unknown field could change the evaluation, so the replay is impossible.
    let mut later = genuine.clone();
    later["facts"]["later"] = json!(1);
    let (file, trust) = evidence(&with_hash(later), &block["inputs"]);
    let (code, outcome, answer) = replay(&home, &file, &trust).await;
    assert_eq!((code, outcome.as_str()), (7, "impossible"), "{answer}");
}
