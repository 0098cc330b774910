//! Tests the log's checkpoints with witnesses that implement the checks of c2sp.org/tlog-witness.

use crate::Folder;
use crate::stating::{ORIGIN, Stating};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use purser_evidence::{Checkpoint, Hash, KeyType, Note, NoteSigner, Seed, TreeHead, VerifierKey};
use purser_log::LogReader;
use purser_verify::{Outcome, StepName, Trust, verify_document};
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Cosigns,
    /// The witness responds with an invalid signature under its own key.
    Forges,
    Fails,
    Hangs,
}

/// A witness. Clones share all state.
#[derive(Clone)]
struct Witness(Arc<Mutex<Kept>>);

struct Kept {
    signer: NoteSigner,
    log: VerifierKey,
    /// The tree that the witness cosigned last.
    tree: TreeHead,
    behaviour: Behaviour,
    requests: usize,
}

fn signer(name: &str, seed: u8) -> NoteSigner {
    NoteSigner::new(name, KeyType::Cosignature, &Seed::new(Zeroizing::new([seed; 32]))).unwrap()
}

impl Witness {
    fn new(name: &str, seed: u8, log: &VerifierKey) -> Self {
        Self(Arc::new(Mutex::new(Kept {
            signer: signer(name, seed),
            log: log.clone(),
            tree: TreeHead::empty(),
            behaviour: Behaviour::Cosigns,
            requests: 0,
        })))
    }

    /// Starts a server for the witness, and returns the witness's vkey and URL.
    async fn serve(&self) -> String {
        let witness = self.clone();
        let router = axum::Router::new().route("/witness/add-checkpoint", post(add_checkpoint));
        let url = purser_testkit::serve(router.with_state(witness)).await;
        format!("{} {url}/witness/", self.0.lock().unwrap().signer.verifier_key())
    }

    fn behave(&self, behaviour: Behaviour) {
        self.0.lock().unwrap().behaviour = behaviour;
    }

    fn requests(&self) -> usize {
        self.0.lock().unwrap().requests
    }
}

async fn add_checkpoint(State(witness): State<Witness>, body: String) -> (StatusCode, String) {
    let behaviour = witness.0.lock().unwrap().behaviour;
    if behaviour == Behaviour::Hangs {
        std::future::pending::<()>().await;
    }
    let mut kept = witness.0.lock().unwrap();
    kept.requests = kept.requests.saturating_add(1);
    if behaviour == Behaviour::Fails {
        return (StatusCode::SERVICE_UNAVAILABLE, String::new());
    }
    let (proof, checkpoint) = body.split_once("\n\n").unwrap();
    let mut lines = proof.lines();
    let size: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
    let hashes: Vec<Hash> = lines.map(|line| line.parse().unwrap()).collect();
    let note = Note::parse(checkpoint).unwrap();
    let Ok(opened) = Checkpoint::from_note(&note, &kept.log, ORIGIN) else {
        return (StatusCode::FORBIDDEN, String::new());
    };
    if size != kept.tree.size {
        return (StatusCode::CONFLICT, format!("{}\n", kept.tree.size));
    }
    let is_same = opened.tree_head() == kept.tree && hashes.is_empty();
    if !is_same && opened.tree_head().verify_consistency(&kept.tree, &hashes).is_err() {
        return (StatusCode::UNPROCESSABLE_ENTITY, String::new());
    }
    kept.tree = opened.tree_head();
    let text = match behaviour {
        Behaviour::Forges => "another text\n",
        _ => note.unverified_text(),
    };
    let line = kept.signer.cosign_checkpoint(text, 1_800_000_000).unwrap();
    // The response also contains a line of an unknown key, which the log must ignore.
    let other = signer("other.example", 98)
        .cosign_checkpoint(note.unverified_text(), 1)
        .unwrap();
    (StatusCode::OK, format!("{other}{line}"))
}

/// A deployment with two witnesses, and a payment with a statement.
struct Witnessed {
    folder: Folder,
    stating: Stating,
    witnesses: [Witness; 2],
    setting: String,
}

impl Witnessed {
    async fn start() -> Self {
        let folder = Folder::new();
        let stating = Stating::start(&folder.0).await;
        stating.state(&stating.function(None)).await;
        let log: VerifierKey = folder.trust()["logs"][0]["vkey"].as_str().unwrap().parse().unwrap();
        let witnesses = [
            Witness::new("one.example", 1, &log),
            Witness::new("two.example", 2, &log),
        ];
        let setting = format!("{} {}", witnesses[0].serve().await, witnesses[1].serve().await);
        Self {
            folder,
            stating,
            witnesses,
            setting,
        }
    }

    /// Makes a payment, and a statement about it with a new instance of the function.
    async fn pay(&self, key: &str) {
        self.stating.pay(10, key).await.unwrap();
        self.state().await;
    }

    async fn state(&self) {
        let events = self.stating.function_with("LOG_WITNESSES", &self.setting);
        self.stating.state(&events).await;
    }

    async fn checkpoint(&self) -> String {
        let checkpoint = LogReader::new(self.folder.log())
            .read_checkpoint()
            .await
            .unwrap()
            .unwrap();
        String::from_utf8(checkpoint).unwrap()
    }

    /// Returns the published keys. `quorum` witnesses are required.
    fn trust(&self, quorum: usize) -> Trust {
        let mut trust = self.folder.trust();
        assert_eq!(trust["witnesses"].as_array().unwrap().len(), 2);
        trust["quorum"] = quorum.into();
        Trust::parse(&trust.to_string()).unwrap()
    }

    /// Returns the number of witnesses that cosigned the checkpoint.
    async fn cosigned(&self) -> usize {
        let note = Note::parse(&self.checkpoint().await).unwrap();
        let trust = self.trust(0);
        assert_eq!(trust.policy.open_checkpoint(&note).unwrap().origin(), ORIGIN);
        trust.policy.verify_cosignatures(&note).unwrap().len()
    }
}

#[tokio::test]
async fn cosigned_checkpoints_satisfy_a_witness_quorum() {
    let deployment = Witnessed::start().await;
    for (number, key) in (1_u64..).zip(["a", "b", "c", "d", "e"]) {
        deployment.pay(key).await;
        assert_eq!(deployment.cosigned().await, 2);
        assert_eq!(deployment.witnesses[0].0.lock().unwrap().tree.size, number);
    }
    let requests = deployment.witnesses[0].requests();
    deployment.state().await;
    assert_eq!(
        deployment.witnesses[0].requests(),
        requests,
        "a cosigned checkpoint is not submitted again"
    );

    let id = deployment.stating.pay(10, "f").await.unwrap();
    deployment.stating.confirm(id, 1).await;
    deployment.state().await;
    let reader = LogReader::new(deployment.folder.log());
    let proof = reader
        .find_receipt(id, id.authorized_at())
        .await
        .unwrap()
        .unwrap()
        .proof;
    assert!(verify_document(&proof, &deployment.trust(2)).unwrap().is_verified());
    for witness in ["one.example", "two.example"] {
        let lines = proof
            .lines()
            .filter(|line| !line.starts_with(&format!("\u{2014} {witness} ")));
        let without = format!("{}\n", lines.collect::<Vec<_>>().join("\n"));
        let report = verify_document(&without, &deployment.trust(2)).unwrap();
        let failed = report
            .steps()
            .iter()
            .find(|step| matches!(step.outcome, Outcome::Failed(_)));
        assert_eq!(failed.map(|step| step.step), Some(StepName::Witnesses));
        assert!(verify_document(&without, &deployment.trust(1)).unwrap().is_verified());
    }
}

/// The log continues without the faulty witness, and requests the missing cosignatures again later.
#[tokio::test]
async fn a_faulty_witness_blocks_neither_the_log_nor_other_witnesses() {
    let deployment = Witnessed::start().await;
    let [first, _] = &deployment.witnesses;
    for (behaviour, key) in [
        (Behaviour::Fails, "a"),
        (Behaviour::Forges, "b"),
        (Behaviour::Hangs, "c"),
    ] {
        first.behave(behaviour);
        deployment.pay(key).await;
        assert_eq!(deployment.cosigned().await, 1);
        let note = Note::parse(&deployment.checkpoint().await).unwrap();
        deployment.trust(1).policy.verify_cosignatures(&note).unwrap();
        deployment.trust(2).policy.verify_cosignatures(&note).unwrap_err();
    }
    // The witness is behind and responds with the size of the tree that it cosigned last.
    first.behave(Behaviour::Cosigns);
    deployment.state().await;
    assert_eq!(deployment.cosigned().await, 2);
}

/// A witness does not cosign a log that lost entries, nor a different checkpoint of the same size.
#[tokio::test]
async fn a_witness_does_not_cosign_a_truncated_log() {
    let deployment = Witnessed::start().await;
    deployment.pay("a").await;
    let kept = deployment.folder.files();
    deployment.pay("b").await;
    let written = deployment.folder.files();
    for (path, _) in &written {
        std::fs::remove_file(deployment.folder.0.join(path)).unwrap();
    }
    for (path, bytes) in &kept {
        std::fs::write(deployment.folder.0.join(path), bytes).unwrap();
    }
    deployment.pay("c").await;
    assert_eq!(deployment.cosigned().await, 0);
}

#[test]
fn malformed_witness_settings_stop_the_function_at_startup() {
    let vkey = signer("one.example", 1).verifier_key().to_string();
    let other = signer("two.example", 2).verifier_key().to_string();
    let log = NoteSigner::new("one.example", KeyType::Ed25519, &Seed::new(Zeroizing::new([1; 32]))).unwrap();
    let log = log.verifier_key();
    let many = (1..10).map(|seed| format!("{} https://w.example", signer("w", seed).verifier_key()));
    let many = many.collect::<Vec<_>>().join(" ");
    let rows = [
        (format!("{vkey} https://one.example/w"), true),
        (
            format!(" {vkey}  https://one.example/w\n{other} http://127.0.0.1:1/ "),
            true,
        ),
        (format!("{vkey} http://one.example/w"), false),
        (
            format!("{vkey} https://one.example/w {vkey} https://two.example/w"),
            false,
        ),
        (vkey.clone(), false),
        (format!("https://one.example/w {vkey}"), false),
        (format!("{vkey} ftp://one.example/w"), false),
        (format!("{vkey} data:text/plain,x"), false),
        (format!("{log} https://one.example/w"), false),
        (many, false),
    ];
    for (list, is_valid) in rows {
        let parsed = purser_log::Witnesses::parse(&list, reqwest::Client::new());
        assert_eq!(parsed.is_some(), is_valid, "{list}");
    }
}
