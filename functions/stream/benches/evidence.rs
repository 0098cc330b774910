//! `make bench`: measures the speed of statements (append, proof, rebuild) and the bytes per leaf. Each time is
//! compared with a reference time of the same run.
//!
//! The figures are written to `target/bench/evidence.jsonl`.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench stops where its ground is missing"
)]

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_domain::{AgentId, Day, DocumentHash, Result, Timestamp, TransactionId, UserId};
use purser_evidence::{KeyType, NoteSigner, Seed, StatementKey, StatementKind};
use purser_log::{
    Archive, Log, LogReader, ObjectStore, Outcome, PendingBatch, PendingChange, SignedStatement, StatedChange, Stating,
};
use purser_store::UsageTable;
use purser_testkit::{
    Emulator, Proxy, ProxyConfig, USAGE, Units,
    authorize::{Answer, Request, authorize},
    client, sample,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The number of statements per append.
const BATCH: u64 = 1_000;
/// The log sizes that are measured, in statements.
const SIZES: [u64; 2] = [10_000, 100_000];
/// The number of inclusion proofs per log size.
const PROOFS: u64 = 200;
/// The number of decision history entries that are rebuilt.
const ENTRIES: u64 = 500;

fn seed(byte: u8) -> Seed {
    Seed::new(zeroize::Zeroizing::new([byte; 32]))
}

/// Signs the published sample's decision, with a new hash and id for each statement.
struct Signer {
    key: StatementKey,
    payload: Value,
}

impl Signer {
    fn new() -> Self {
        let sample: Value = serde_json::from_str(include_str!("../../../docs/evidence/sample/receipt.json")).unwrap();
        let statement = sample["decision"]["statement"].as_str().unwrap();
        let payload = statement.split('.').nth(1).unwrap();
        Self {
            key: StatementKey::new(&seed(1)).unwrap(),
            payload: serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap(),
        }
    }

    fn sign(&self, id: Uuid) -> String {
        let mut payload = self.payload.clone();
        payload["transaction_id"] = id.to_string().into();
        payload["decision_hash"] = DocumentHash::for_document(&json!(id.to_string())).to_string().into();
        let payload = payload.to_string();
        self.key.sign(StatementKind::Decision, payload.as_bytes()).unwrap()
    }
}

impl Stating for Signer {
    async fn sign_change(&self, change: &PendingChange) -> Result<Outcome> {
        let StatedChange::Refused(id) = change.fact else {
            panic!("a refusal")
        };
        Ok(Outcome::Stated(SignedStatement {
            kind: StatementKind::Decision,
            id: id.uuid(),
            statement: self.sign(id.uuid()),
        }))
    }

    async fn verify_stored_statement(&self, _: &PendingChange, _: String) -> Option<SignedStatement> {
        None
    }

    fn report_quarantined_change(&self, key: &str, reason: &str) {
        panic!("{key}: {reason}");
    }
}

fn at(number: u64) -> Timestamp {
    sample::start().after(purser_domain::Duration::from_millis_u32(u32::try_from(number).unwrap()))
}

fn transaction(number: u64) -> TransactionId {
    TransactionId::new_at(at(number), number.to_be_bytes())
}

fn rate(count: u64, duration: Duration) -> String {
    let micros = u64::try_from(duration.as_micros()).unwrap().max(1);
    (count * 1_000_000 / micros).to_string()
}

/// Returns the ratio of two durations with two decimals.
fn ratio(duration: Duration, reference: Duration) -> String {
    let hundredths = duration.as_nanos() * 100 / reference.as_nanos().max(1);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn bytes_below(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        bytes += if path.is_dir() {
            bytes_below(&path)
        } else {
            fs::metadata(&path).unwrap().len()
        };
    }
    bytes
}

/// A folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("purser-bench-{}", Uuid::new_v4())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _missing = fs::remove_dir_all(&self.0);
    }
}

/// Appends `size` statements, proves some of the statements, and archives the log.
async fn log(size: u64) -> [Value; 2] {
    let [folder, place] = [Folder::new(), Folder::new()];
    let objects = ObjectStore::open_folder(&folder.0);
    let signer = Signer::new();
    let statement = signer.sign(Uuid::nil());
    let log = NoteSigner::new("purser:bench", KeyType::Ed25519, &seed(2)).unwrap();
    let log = Log::new(objects.clone(), "purser:bench", log);
    let (mut duration, mut signing) = (Duration::ZERO, Duration::ZERO);
    for first in (0..size).step_by(usize::try_from(BATCH).unwrap()) {
        let changes = (first..first + BATCH).map(|number| PendingChange {
            sequence: format!("{number:040}"),
            changed_at: at(number),
            agent: AgentId::from_uuid(Uuid::from_u128(1)),
            row: String::new(),
            fact: StatedChange::Refused(transaction(number)),
        });
        let shard = "shardId-1".to_owned();
        let batch = PendingBatch {
            shard,
            facts: changes.collect(),
        };
        batch.write_batch(&objects).await.unwrap();
        let start = Instant::now();
        let written = log.append_pending_statements(at(first), &signer).await.unwrap();
        duration += start.elapsed();
        assert_eq!(u64::try_from(written.statements).unwrap(), BATCH);
        let start = Instant::now();
        for number in first..first + BATCH {
            assert_eq!(signer.sign(transaction(number).uuid()).len(), statement.len());
        }
        signing += start.elapsed();
    }
    let reader = LogReader::new(objects.clone());
    let start = Instant::now();
    for number in (0..PROOFS).map(|number| number * (size / PROOFS)) {
        assert!(
            reader
                .find_decision_statement(transaction(number), at(number))
                .await
                .unwrap()
                .is_some()
        );
    }
    let proving = start.elapsed();
    let start = Instant::now();
    let archive = Archive::new(objects, ObjectStore::open_folder(&place.0));
    assert_eq!(archive.archive_batches(|| false).await.unwrap().entries, size);
    let archiving = start.elapsed();

    // A full tile or bundle replaces the partial file, which may then be removed (c2sp.org/tlog-tiles).
    let tiles = bytes_below(&folder.0.join("tile")) - partial_bytes(&folder.0.join("tile"));
    let of = |bytes: u64| (bytes / size).to_string();
    let name = format!("{size} statements");
    let length = u64::try_from(statement.len()).unwrap();
    [
        json!({
            "group": "appends to the log", "name": name, "over": false,
            "cells": [
                ["appends a second", rate(size, duration)],
                ["beside the signatures alone", ratio(duration, signing)],
                ["bytes of a statement", length.to_string()],
                ["bytes of a leaf in tiles and bundles", of(tiles)],
                ["bytes of a leaf in the index", of(bytes_below(&folder.0.join("index")))],
                ["bytes of a leaf in the archive", of(bytes_below(&place.0))],
                ["archived a second", rate(size, archiving)],
            ],
        }),
        json!({
            "group": "proofs of the log", "name": name, "over": false,
            "cells": [["proofs a second", rate(PROOFS, proving)], ["microseconds of one", (proving.as_micros() / u128::from(PROOFS)).to_string()]],
        }),
    ]
}

/// Returns the size of all partial tiles and bundles in bytes.
fn partial_bytes(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "p") {
            bytes += bytes_below(&path);
        } else if path.is_dir() {
            bytes += partial_bytes(&path);
        }
    }
    bytes
}

/// Rebuilds a day whose entries are all lost, once to count capacity units and once to measure the time.
async fn rebuild() -> Value {
    let (emulator, _streams) = Emulator::with_streams().await;
    let ledger = emulator.ledger();
    let owner = UserId::derive("https://issuer.example", "owner");
    let agent = purser_domain::Agent {
        owner: owner.to_string(),
        ..sample::agent(1, Vec::new())
    };
    ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    let enabled = sample::enabled(sample::service_id(1), 1_000_000, 1_000_000);
    let audit = sample::audit();
    ledger.put_policy(agent.id, &enabled, &audit).await.unwrap();
    for number in 0..ENTRIES {
        let request = Request::new(agent.id, sample::service_id(1), 1, format!("key {number}"));
        let response = authorize(&ledger, &request, at(number)).await.unwrap();
        assert!(matches!(response, Answer::Allowed(_)));
    }
    let day = Day::containing(sample::start());
    let later = day.days_later(3).start_time();
    let proxy = Proxy::start(emulator.url.clone(), ProxyConfig::default()).await;
    let counted = UsageTable::new(client(&proxy.url), USAGE);
    let agents = [agent];
    let rebuilt = counted.rebuild_day(&ledger, &owner, &agents, day, later).await.unwrap();
    assert_eq!(rebuilt.entries, ENTRIES);
    let units = Units::sum(&proxy.calls().take());

    let rows = purser_testkit::invariants::scan(&emulator.client, USAGE, None).await;
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|row| row["pk"].as_s().is_ok_and(|pk| pk.starts_with("J#")))
        .collect();
    for row in &rows {
        let delete = emulator.client.delete_item().table_name(USAGE);
        let delete = delete.key("pk", row["pk"].clone()).key("sk", row["sk"].clone());
        delete.send().await.unwrap();
    }
    let start = Instant::now();
    let usage = UsageTable::new(emulator.client.clone(), USAGE);
    let rebuilt = usage.rebuild_day(&ledger, &owner, &agents, day, later).await.unwrap();
    let duration = start.elapsed();
    assert_eq!(rebuilt.entries, ENTRIES);
    let start = Instant::now();
    for row in rows {
        let put = emulator.client.put_item().table_name(USAGE).set_item(Some(row));
        put.send().await.unwrap();
    }
    let bare = start.elapsed();
    // Capacity units are counted in tenths.
    let decimal = |tenths: u64| format!("{}.{:02}", tenths * 10 / ENTRIES / 100, tenths * 10 / ENTRIES % 100);
    json!({
        "group": "rebuilds of the journal", "name": format!("{ENTRIES} lost entries of a day"), "over": false,
        "cells": [
            ["entries a second", rate(ENTRIES, duration)],
            ["beside as many bare puts", ratio(duration, bare)],
            ["read units an entry", decimal(units.read)],
            ["write units an entry", decimal(units.write)],
        ],
    })
}

#[tokio::main]
async fn main() {
    let (mut appends, mut proofs) = (Vec::new(), Vec::new());
    for size in SIZES {
        let [append, proof] = log(size).await;
        appends.push(append);
        proofs.push(proof);
    }
    let lines: Vec<String> = appends
        .into_iter()
        .chain(proofs)
        .chain([rebuild().await])
        .map(|line| line.to_string())
        .collect();
    let text = lines.join("\n") + "\n";
    print!("{text}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("evidence.jsonl"), text).expect("written");
}
