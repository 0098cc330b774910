//! Tests of `purser verify`, which needs neither a key nor a Purser server, and of `purser evidence`.

use crate::home::{CommandOutput, Home};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use axum::{
    Json, Router,
    extract::Path,
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use purser_evidence::{Checkpoint, Edge, JwkSet, KeyType, NoteSigner, Seed, StatementKey, StatementKind, TlogProof};
use purser_verify::Network;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

const ORIGIN: &str = "log.example/decisions";
const PAYER: &str = "0x1111111111111111111111111111111111111111";
const SETTLEMENT: &str = "019ab7c4-5a00-7000-8000-000000000001";
const TRANSACTION: &str = "019ab7c4-5a00-7000-8000-000000000002";
const PAYEE: &str = "0x2222222222222222222222222222222222222222";
const NONCE_PREFIX: &str = "0x0123456789abcdef";

fn seed(byte: u8) -> Seed {
    Seed::new([byte; 32].into())
}

/// Creates a home with the files `statement`, `proof` and `trust`. The receipt is the only log entry.
fn home() -> Home {
    let home = Home::at("");
    let key = StatementKey::new(&seed(1)).unwrap();
    let settlement = json!({
        "tx_hash": format!("0x{}", "ab".repeat(32)), "network": "base-sepolia", "wallet": PAYER, "pay_to": PAYEE,
        "amount_units": 10_000, "asset": "USDC", "nonce_prefix": NONCE_PREFIX, "block_number": 16,
    });
    let payload = json!({"settlement": settlement}).to_string();
    let statement = key.sign(StatementKind::Receipt, payload.as_bytes()).unwrap();
    let log = NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed(2)).unwrap();
    let head = Edge::empty().append_entries(&[&statement]).unwrap().head;
    let checkpoint = Checkpoint::new(ORIGIN, head).unwrap().sign_as_note(&log).unwrap();
    let proof = TlogProof::new(Some(statement.as_bytes()), 0, Vec::new(), &checkpoint).unwrap();
    let trust = json!({
        "jwks": JwkSet::new(key.jwk().clone(), []),
        "logs": [{"vkey": log.verifier_key().to_string(), "origin": ORIGIN}],
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

/// Returns Purser's responses about the payment in [`home`]: the statements, the receipt, and the trust file.
fn answers(url: &str) -> (Value, Value, Value) {
    answers_of("allow", url)
}

fn answers_of(result: &str, url: &str) -> (Value, Value, Value) {
    let key = StatementKey::new(&seed(1)).unwrap();
    let log = NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed(2)).unwrap();
    let facts = json!({
        "network": "eip155:84532", "asset": Network::from_name("base-sepolia").unwrap().usdc, "amount_units": 10_000,
        "pay_to": PAYEE, "agent_id": "a", "call": {"url": url},
    });
    let settlement_id = (result == "allow").then_some(SETTLEMENT);
    let hashed = json!({
        "settlement_id": settlement_id, "transaction_id": TRANSACTION, "approval_id": null, "facts": facts,
        "reason": "x402_authorized", "result": result,
    });
    let hash = purser_domain::DocumentHash::for_document(&hashed).to_string();
    let mut decision = json!({"decision_hash": hash, "inputs": null});
    decision
        .as_object_mut()
        .unwrap()
        .extend(hashed.as_object().unwrap().clone());
    let mut settlement = facts;
    settlement.as_object_mut().unwrap().extend([
        ("wallet".to_owned(), json!(PAYER)),
        ("tx_hash".to_owned(), json!(format!("0x{}", "ab".repeat(32)))),
        ("nonce_prefix".to_owned(), json!(NONCE_PREFIX)),
        ("block_number".to_owned(), json!(16)),
        ("settled_at".to_owned(), json!("2026-11-26T12:00:09.000000Z")),
    ]);
    let receipt = json!({"settlement_id": SETTLEMENT, "transaction_id": TRANSACTION, "settlement": settlement});
    let sign = |kind, payload: &Value| key.sign(kind, payload.to_string().as_bytes()).unwrap();
    // Each statement is the only entry of a log.
    let stated = |statement: String| {
        let head = Edge::empty().append_entries(&[&statement]).unwrap().head;
        let checkpoint = Checkpoint::new(ORIGIN, head).unwrap().sign_as_note(&log).unwrap();
        let proof = TlogProof::new(Some(statement.as_bytes()), 0, Vec::new(), &checkpoint).unwrap();
        json!({"statement": statement, "proof": proof.to_string(), "index": 0})
    };
    let statements = json!({
        "settlement_id": SETTLEMENT, "transaction_id": TRANSACTION,
        "decision": stated(sign(StatementKind::Decision, &decision)),
        "receipt": stated(sign(StatementKind::Receipt, &receipt)),
        "changes": [], "missing_reason": null, "differing": [],
    });
    let read = json!({
        "id": SETTLEMENT, "transaction_id": TRANSACTION, "agent_id": "a", "service_id": TRANSACTION,
        "operation_id": "weather", "network": "eip155:84532", "token": "USDC", "amount_units": 10_000, "pay_to": PAYEE,
        "receipt_status": "confirmed", "tx_hash": format!("0x{}", "ab".repeat(32)),
        "authorized_at": "2026-11-26T12:00:00Z", "settled_at": "2026-11-26T12:00:09Z",
    });
    let trust = json!({
        "jwks": JwkSet::new(key.jwk().clone(), []),
        "logs": [{"vkey": log.verifier_key().to_string(), "origin": ORIGIN}],
    });
    (statements, read, trust)
}

/// The evidence file contains the provider's signed objects, and only the file's owner can read it.
#[tokio::test(flavor = "multi_thread")]
async fn the_evidence_file_of_a_payment_verifies() {
    let (statements, read, trust) = answers("https://provider.example/weather?city=Oslo");
    let own = format!("/x402/settlements/{SETTLEMENT}");
    let answer = |body: Value| get(move || async move { Json(body) });
    let purser = Router::new()
        .route(&format!("{own}/statement"), answer(statements))
        .route(&own, answer(read))
        .route("/log/trust", answer(trust.clone()));
    let home = Home::at(&serve(purser).await).with("PURSER_KEY", "gak_pub_a:gak_sec_b");
    std::fs::write(home.folder().join("trust"), trust.to_string()).unwrap();
    let vectors: Value = serde_json::from_str(include_str!("../../../evidence/tests/provider.json")).unwrap();
    let of_provider = |name: &str| {
        let mut all = vectors["vectors"].as_array().unwrap().iter();
        all.find(|vector| vector["name"] == name).unwrap()["object"].clone()
    };

    let said = home.run(&["evidence", SETTLEMENT]).await.done();
    let file = format!("purser-evidence-{SETTLEMENT}.json");
    assert!(said.contains(&file), "{said}");
    let path = home.folder().join(&file);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, steps) = verified(&home, &file, Some(&node(10_000).await)).await;
    let log = [
        "statement: passed",
        "inclusion: passed",
        "checkpoint: passed",
        "witnesses: skipped",
    ];
    let expected = [
        &log[..],
        &["hashes: passed"],
        &log,
        &["payment: passed", "copies: passed", "chain: passed"],
    ]
    .concat();
    assert_eq!(
        (code, steps),
        (0, expected.iter().map(|step| (*step).to_owned()).collect())
    );
    let (code, steps) = verified(&home, &file, Some(&node(1).await)).await;
    assert_eq!((code, steps.last().unwrap().as_str()), (6, "chain: failed"));
    let said = home.run(&["verify", &file, "--trust", "trust"]).await.done();
    assert!(
        said.starts_with("PART") && said.contains("no node was named") && said.contains(TRANSACTION),
        "{said}"
    );
    // The output names the fields that no statement contains. A field that differs from the statement is an error.
    assert!(
        said.contains("nothing that is signed: ") && said.contains(" /provider, "),
        "{said}"
    );
    let written = std::fs::read_to_string(&path).unwrap();
    let changed = written.replace("\"amount_units\": 10000", "\"amount_units\": 99990000");
    assert_ne!(changed, written);
    std::fs::write(home.folder().join("changed.json"), changed).unwrap();
    let (code, steps) = verified(&home, "changed.json", Some(&node(10_000).await)).await;
    assert_eq!(code, 6);
    assert!(steps.contains(&"copies: failed".to_owned()), "{steps:?}");

    // Files on the command line replace the objects that `pay` stored.
    let kept = home.folder().join(".local/state/purser/payments");
    std::fs::create_dir_all(&kept).unwrap();
    let objects = json!({"offers": [of_provider("an offer by the payee")], "receipt": null, "http_status": 500});
    std::fs::write(kept.join(format!("{SETTLEMENT}.json")), objects.to_string()).unwrap();
    home.run(&["evidence", SETTLEMENT, "-o", "kept.json"]).await.done();
    let written: Value = serde_json::from_slice(&std::fs::read(home.folder().join("kept.json")).unwrap()).unwrap();
    assert_eq!(written["provider"], objects);
    let (code, steps) = verified(&home, "kept.json", None).await;
    assert_eq!(code, 6);
    assert!(steps.contains(&"offer: failed".to_owned()), "{steps:?}");
    std::fs::write(
        home.folder().join("offer"),
        of_provider("an offer by did:web").to_string(),
    )
    .unwrap();
    let given = home
        .run(&["evidence", SETTLEMENT, "-o", "given.json", "--offer", "offer"])
        .await;
    given.done();
    let written: Value = serde_json::from_slice(&std::fs::read(home.folder().join("given.json")).unwrap()).unwrap();
    assert_eq!(
        written["provider"]["offers"],
        json!([of_provider("an offer by did:web")])
    );
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

/// Serves a node that knows the transaction. The transaction transfers `units` micro-USDC.
async fn node(units: u64) -> String {
    let word = |digits: &str| format!("0x{digits:0>64}");
    let usdc = Network::from_name("base-sepolia").unwrap().usdc;
    let [from, to] = [PAYER, PAYEE].map(|address| word(address.trim_start_matches("0x")));
    let transfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
    let used = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5";
    let nonce = format!("{NONCE_PREFIX}{}", "7".repeat(48));
    let logs = json!([
        {"address": usdc, "topics": [used, from, nonce], "data": "0x", "logIndex": "0x0"},
        {"address": usdc, "topics": [transfer, from, to], "data": word(&format!("{units:x}")), "logIndex": "0x1"},
    ]);
    let block = word("b10c");
    let answer = move |Json(call): Json<Value>| async move {
        let result = match call["method"].as_str().unwrap() {
            "eth_chainId" => json!("0x14a34"),
            "eth_getTransactionReceipt" => json!({
                "transactionHash": call["params"][0], "status": "0x1", "blockNumber": "0x10", "blockHash": block,
                "logs": logs,
            }),
            "eth_getBlockByNumber" => json!({"number": call["params"][0], "hash": block}),
            other => panic!("{other}"),
        };
        Json(json!({"jsonrpc": "2.0", "id": call["id"], "result": result}))
    };
    let node = Router::new().route("/key", post(answer));
    format!("{}/key", serve(node).await)
}

/// Serves these routes, and returns the server's URL.
async fn serve(routes: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verify_command_lists_each_step() {
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
async fn the_verify_command_distinguishes_invalid_from_unreadable_files() {
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
    let code = |said: CommandOutput| said.code;
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

/// A rejected payment has no receipt, so the evidence is the statement of the decision.
#[tokio::test(flavor = "multi_thread")]
async fn the_evidence_file_of_a_decision_verifies() {
    let (mut statements, _, trust) = answers_of("block", "https://provider.example/");
    statements["settlement_id"] = Value::Null;
    let own = format!("/x402/decisions/{TRANSACTION}/statement");
    let answer = |body: Value| get(move || async move { Json(body) });
    let purser = Router::new()
        .route(&own, answer(statements))
        .route("/log/trust", answer(trust.clone()));
    let home = Home::at(&serve(purser).await).with("PURSER_KEY", "gak_pub_a:gak_sec_b");
    std::fs::write(home.folder().join("trust"), trust.to_string()).unwrap();
    let arguments = ["evidence", "--decision", TRANSACTION, "-o", "block.json"];
    home.run(&arguments).await.done();
    let (code, steps) = verified(&home, "block.json", None).await;
    assert_eq!(code, 0);
    assert!(
        steps.contains(&"hashes: passed".to_owned()) && !steps.iter().any(|step| step.ends_with("failed")),
        "{steps:?}"
    );
    for wrong in [&["evidence"][..], &["evidence", SETTLEMENT, "--decision", TRANSACTION]] {
        assert_eq!(home.run(wrong).await.code, 2);
    }
}

/// A provider's `did:web` document is fetched only from the host of the resource.
#[tokio::test(flavor = "multi_thread")]
async fn provider_keys_are_fetched_from_the_host_of_the_resource() {
    let key = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let did = format!("did:web:{}", address.to_string().replace(':', "%3A"));
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(key.public_key())});
    let document = json!({
        "id": did, "verificationMethod": [{"id": "#key", "publicKeyJwk": jwk}], "assertionMethod": ["#key"],
    });
    let routes = Router::new().route(
        "/.well-known/did.json",
        get({
            let document = document.clone();
            move || async move { Json(document) }
        }),
    );
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let url = format!("http://{address}/weather");
    let (statements, read, trust) = answers(&url);
    let claims = json!({"network": "eip155:84532", "resourceUrl": url, "payer": PAYER, "issuedAt": 1});
    let header = json!({"alg": "EdDSA", "kid": format!("{did}#key")});
    let [header, claims] = [&header, &claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(format!("{header}.{claims}").as_bytes()));
    let receipt = json!({"format": "jws", "signature": format!("{header}.{claims}.{signature}")});
    let home = Home::at("");
    let file = json!({
        "decision": statements["decision"], "receipt": statements["receipt"], "settlement": read,
        "provider": {"offers": [], "receipt": receipt},
    });
    for (name, text) in [("file.json", file), ("trust", trust), ("did.json", document)] {
        std::fs::write(home.folder().join(name), text.to_string()).unwrap();
    }
    let step = async |more: &[&str]| {
        let arguments = [&["--json", "verify", "file.json", "--trust", "trust"], more].concat();
        let told = home.run(&arguments).await.json();
        let mut steps = told["steps"].as_array().unwrap().iter();
        steps.find(|step| step["step"] == "provider_receipt").unwrap()["outcome"].clone()
    };
    assert_eq!(step(&[]).await, "skipped");
    assert_eq!(step(&["--fetch-did"]).await, "passed");
    assert_eq!(step(&["--did", "did.json"]).await, "passed");
}

/// A log that is served from memory.
#[derive(Clone, Default)]
struct ServedLog(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl ServedLog {
    /// Replaces the served log with a log of these entries, and returns the checkpoint.
    fn put(&self, entries: &[String]) -> String {
        let appended = Edge::empty().append_entries(entries).unwrap();
        let signer = NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed(2)).unwrap();
        let note = Checkpoint::new(ORIGIN, appended.head)
            .unwrap()
            .sign_as_note(&signer)
            .unwrap();
        let tiles = appended
            .tiles
            .into_iter()
            .map(|(path, bytes)| (path.to_string(), bytes));
        *self.0.lock().unwrap() = tiles
            .chain([("checkpoint".to_owned(), note.clone().into_bytes())])
            .collect();
        note
    }

    async fn serve(&self) -> String {
        let log = self.clone();
        let object = async move |Path(path): Path<String>| {
            let found = log.0.lock().unwrap().get(&path).cloned();
            found.ok_or(axum::http::StatusCode::NOT_FOUND)
        };
        format!("{}/log", serve(Router::new().route("/log/{*path}", get(object))).await)
    }
}

fn entries(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("entry {number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_watch_command_detects_a_truncated_or_forked_log() {
    let (home, log) = (home(), ServedLog::default());
    let url = log.serve().await;
    let watch = async || {
        let arguments = ["log", "watch", &url, "--state", "state", "--trust", "trust"];
        home.run(&arguments).await.code
    };
    let kept = || std::fs::read_to_string(home.folder().join("state")).unwrap();
    assert_eq!(watch().await, 1, "there is no checkpoint yet");
    for size in [3, 3, 300, 700] {
        let note = log.put(&entries(size));
        assert_eq!((watch().await, kept()), (0, note), "{size}");
    }
    let honest = kept();
    let mut forked = entries(900);
    forked[5] = "rewritten".to_owned();
    let mut same_size = entries(700);
    same_size[699] = "rewritten".to_owned();
    for bad in [entries(300), forked, same_size] {
        let note = log.put(&bad);
        assert_eq!((watch().await, kept()), (6, honest.clone()));
        assert_eq!(
            std::fs::read_to_string(home.folder().join("state.conflict")).unwrap(),
            note
        );
    }
    // The tiles are missing, don't match the signed root, or belong to an unsigned checkpoint.
    let note = log.put(&entries(900));
    log.0.lock().unwrap().get_mut("tile/0/002").unwrap()[0] ^= 1;
    assert_eq!(watch().await, 6);
    log.0.lock().unwrap().retain(|path, _| path == "checkpoint");
    assert_eq!(watch().await, 6);
    log.put(&entries(900));
    let unsigned = note.replace("\n900\n", "\n901\n").into_bytes();
    log.0.lock().unwrap().insert("checkpoint".to_owned(), unsigned);
    assert_eq!(watch().await, 6);
    log.put(&entries(900));
    assert_eq!(watch().await, 0);
    std::fs::write(home.folder().join("state"), honest.replace(ORIGIN, "other.example")).unwrap();
    assert_eq!(watch().await, 7);
}

/// After a fork, a proof still verifies but is not consistent with an earlier checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn a_proof_is_compared_with_a_stored_checkpoint() {
    let (home, log) = (home(), ServedLog::default());
    let statement = std::fs::read_to_string(home.folder().join("statement")).unwrap();
    // The log in [`home`] has one entry, for which the proof was made.
    let mut all = entries(400);
    all[0] = statement;
    let kept = log.put(&all);
    std::fs::write(home.folder().join("kept"), kept).unwrap();
    let url = log.serve().await;
    let since = async || {
        let arguments = [
            "--json", "verify", "proof", "--trust", "trust", "--since", "kept", "--log", &url,
        ];
        let said = home.run(&arguments).await;
        let told: Value = serde_json::from_str(&said.out).unwrap();
        (
            said.code,
            told["steps"].as_array().unwrap().last().unwrap()["outcome"].clone(),
        )
    };
    assert_eq!(since().await, (0, json!("passed")));
    std::fs::write(home.folder().join("kept"), log.put(&entries(400))).unwrap();
    assert_eq!(since().await, (6, json!("failed")));
}
