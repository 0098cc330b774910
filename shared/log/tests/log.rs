//! Tests the log with interrupted and concurrent runs: no change gets two statements, and no checkpoint is rolled back.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test that fails may panic"
)]

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use purser_domain::{AgentId, Error, Result, SettlementId, Timestamp, TransactionId, TxHash};
use purser_evidence::{
    Checkpoint, JwkSet, KeyType, Note, NoteSigner, Seed, StatementKey, StatementKind, TilePath, TreeHead,
    build_consistency_proof, build_inclusion_proof, read_unverified_entries, read_unverified_entry,
};
use purser_log::{
    Archive, Confirmation, Log, LogReader, MissingReason, ObjectStore, Outcome, PendingBatch, PendingChange,
    SignedStatement, StatedChange, Stating, TRUST, TrustDocument, continue_log_audit, make_quarantined_changes_pending,
    read_oldest_pending_time, write_signed_statements,
};
use purser_verify::{Trust, verify_document};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const ORIGIN: &str = "purser:test";

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("purser-log-test-{}", Uuid::new_v4())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _missing = fs::remove_dir_all(&self.0);
    }
}

fn seed(byte: u8) -> Seed {
    Seed::new(zeroize::Zeroizing::new([byte; 32]))
}

fn key() -> StatementKey {
    StatementKey::new(&seed(1)).unwrap()
}

fn log(objects: ObjectStore) -> Log {
    Log::new(
        objects,
        ORIGIN,
        NoteSigner::new(ORIGIN, KeyType::Ed25519, &seed(2)).unwrap(),
    )
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(1_795_000_000 + secs).unwrap()
}

fn settlement(n: u8) -> SettlementId {
    SettlementId::new_at(at(u64::from(n)), [n; 8])
}

fn transaction(n: u8) -> TransactionId {
    TransactionId::new_at(at(u64::from(n)), [n; 8])
}

fn fact(n: u8, fact: StatedChange) -> PendingChange {
    PendingChange {
        sequence: format!("{n:040}"),
        changed_at: at(u64::from(n)),
        agent: AgentId::from_uuid(Uuid::from_u128(1)),
        fact,
        row: "00".to_owned(),
    }
}

fn confirmation(n: u8) -> Confirmation {
    Confirmation {
        tx_hash: TxHash::parse(&format!("0x{n:064x}")).unwrap(),
        block_number: u64::from(n),
        settled_at: at(u64::from(n)),
    }
}

/// Returns the pending changes of two shards. Every fifth change is a confirmation, and every fifth a rejection.
fn batches() -> Vec<PendingBatch> {
    let of = |shard: &str, numbers: std::ops::Range<u8>| PendingBatch {
        shard: shard.to_owned(),
        facts: numbers
            .map(|n| match n % 5 {
                0 => fact(n, StatedChange::Confirmed(settlement(n.max(1) - 1), confirmation(n))),
                4 => fact(n, StatedChange::Refused(transaction(n))),
                _ => fact(n, StatedChange::Allowed(settlement(n))),
            })
            .collect(),
    };
    vec![of("shardId-1", 1..8), of("shardId-2", 50..53), of("shardId-1", 6..20)]
}

/// The number of changes in [`batches`]: 1 to 19 and 50 to 52.
const FACTS: u64 = 22;

/// Signs like ES256: each run gives a different signature, even for the same change.
struct Signer(Uuid);

impl Stating for Signer {
    async fn sign_change(&self, fact: &PendingChange) -> Result<Outcome> {
        tokio::task::yield_now().await;
        Ok(Outcome::Stated(stated(self.0, fact)))
    }

    async fn verify_stored_statement(&self, fact: &PendingChange, statement: String) -> Option<SignedStatement> {
        let keys = JwkSet::new(key().jwk().clone(), []);
        let is_own = keys.verify(&statement).is_ok();
        is_own.then(|| SignedStatement {
            statement,
            ..stated(self.0, fact)
        })
    }

    fn report_quarantined_change(&self, key: &str, reason: &str) {
        panic!("{key}: {reason}");
    }
}

fn stated(run: Uuid, fact: &PendingChange) -> SignedStatement {
    // Stored, because signing again would give a different signature.
    static SIGNED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let (kind, id) = match fact.fact {
        // A payment's decision has the transaction's id.
        StatedChange::Allowed(id) => (StatementKind::Decision, TransactionId::from_uuid(id.uuid()).uuid()),
        StatedChange::Refused(id) => (StatementKind::Decision, id.uuid()),
        StatedChange::Reverted(id) => (StatementKind::Change, id.uuid()),
        StatedChange::Released(id, _) | StatedChange::Withdrawn(id) => (StatementKind::Change, id.uuid()),
        StatedChange::ApprovalChanged(id, ..) => (StatementKind::Change, id.uuid()),
        StatedChange::Confirmed(id, _) => (StatementKind::Receipt, id.uuid()),
    };
    let payload = format!(r#"{{"about":"{:?}","run":"{run}"}}"#, fact.fact);
    let sign = || key().sign(kind, payload.as_bytes()).unwrap();
    let mut signed = SIGNED.lock().unwrap();
    let statement = signed.entry(payload.clone()).or_insert_with(sign).clone();
    SignedStatement { kind, id, statement }
}

fn trust() -> Trust {
    let log = log(ObjectStore::open_folder("unused"));
    let document = TrustDocument::new(key().jwk(), log.verifier_key(), ORIGIN, None, None);
    let bytes = document.to_bytes().unwrap();
    assert_eq!(TrustDocument::parse(&bytes).unwrap(), document);
    assert_eq!(TRUST, "trust.json");
    Trust::parse(std::str::from_utf8(&bytes).unwrap()).unwrap()
}

async fn head(objects: &ObjectStore) -> TreeHead {
    let checkpoint = LogReader::new(objects.clone()).read_checkpoint().await.unwrap();
    let Some(checkpoint) = checkpoint else {
        return TreeHead::empty();
    };
    let note = Note::parse(std::str::from_utf8(&checkpoint).unwrap()).unwrap();
    let log = log(ObjectStore::open_folder("unused"));
    Checkpoint::from_note(&note, log.verifier_key(), ORIGIN)
        .unwrap()
        .tree_head()
}

/// Asserts that every change has one statement that is found and verifies offline.
async fn check(objects: &ObjectStore, older: &TreeHead) {
    let head = head(objects).await;
    assert_eq!(head.size, FACTS);
    build_consistency_proof(objects, older, &head).await.unwrap();
    let mut entries = Vec::new();
    for index in 0..head.size {
        entries.push(read_unverified_entry(objects, head.size, index).await.unwrap());
    }
    let count = entries.len();
    entries.sort();
    entries.dedup();
    assert_eq!(entries.len(), count, "no fact is stated twice");
    let (reader, trust) = (LogReader::new(objects.clone()), trust());
    for n in (1..20).chain(50..53) {
        let time = at(u64::from(n));
        let found = match n % 5 {
            0 => reader.find_receipt(settlement(n - 1), time).await,
            4 => reader.find_decision_statement(transaction(n), time).await,
            _ => {
                reader
                    .find_decision_statement(TransactionId::from_uuid(settlement(n).uuid()), time)
                    .await
            }
        };
        let found = found.unwrap().unwrap_or_else(|| panic!("{n} is not found"));
        let report = verify_document(&found.proof, &trust).unwrap();
        assert!(report.is_verified(), "{n}: {:?}", report.steps());
    }
    let pending = fs::read_dir(folder_of(objects).join("pending/shardId-1")).unwrap();
    assert_eq!(pending.count(), 0, "what is stated is not pending");
    let none = reader.find_decision_statement(transaction(40), at(0)).await.unwrap();
    assert_eq!(none, None);
}

thread_local! {
    static PLACE: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
}

fn folder_of(_: &ObjectStore) -> PathBuf {
    PLACE.with_borrow(Clone::clone)
}

async fn pending(path: &Path) -> ObjectStore {
    PLACE.set(path.to_owned());
    let objects = ObjectStore::open_folder(path);
    for batch in batches() {
        batch.write_batch(&objects).await.unwrap();
    }
    sign_ahead(&objects, &batches()[0].facts).await;
    objects
}

/// The id of the run that signs statements before another run appends them.
const AHEAD: Uuid = Uuid::from_u128(7);

async fn sign_ahead(objects: &ObjectStore, facts: &[PendingChange]) {
    let signed = facts.iter().map(|fact| (fact.clone(), stated(AHEAD, fact).statement));
    write_signed_statements(objects, &signed.collect::<Vec<_>>())
        .await
        .unwrap();
}

async fn entries(objects: &ObjectStore) -> Vec<String> {
    let size = head(objects).await.size;
    let entries = read_unverified_entries(objects, size, 0..size).await.unwrap();
    entries
        .into_iter()
        .map(|entry| String::from_utf8(entry).unwrap())
        .collect()
}

#[tokio::test]
async fn an_early_signed_statement_is_committed_unchanged() {
    let folder = Folder::new();
    let objects = ObjectStore::open_folder(&folder.0);
    let facts: Vec<PendingChange> = (1..=6)
        .map(|n| fact(n, StatedChange::Refused(transaction(n))))
        .collect();
    let shard = "shardId-1".to_owned();
    let batch = PendingBatch {
        shard,
        facts: facts.clone(),
    };
    batch.write_batch(&objects).await.unwrap();
    // Another key signed the second statement. The third statement's row differs from the stream's row.
    let other = StatementKey::new(&seed(9))
        .unwrap()
        .sign(StatementKind::Decision, b"{}")
        .unwrap();
    let changed = PendingChange {
        row: "01".to_owned(),
        ..facts[2].clone()
    };
    let signed = [
        (facts[0].clone(), stated(AHEAD, &facts[0]).statement),
        (facts[1].clone(), other),
        (changed, stated(AHEAD, &facts[2]).statement),
    ];
    write_signed_statements(&objects, &signed).await.unwrap();
    objects.put("signed/000000000000-broken", b"{").await.unwrap();

    let now = Uuid::from_u128(8);
    log(objects.clone())
        .append_pending_statements(at(100), &Signer(now))
        .await
        .unwrap();
    let expected = facts.iter().map(|fact| {
        let run = if fact == &facts[0] { AHEAD } else { now };
        stated(run, fact).statement
    });
    assert_eq!(entries(&objects).await, expected.collect::<Vec<_>>());
    assert_eq!(objects.list("signed/", None, 10).await.unwrap(), [""; 0]);
}

/// A later run uses the statements that an earlier run did not commit. The object is deleted when it is old.
#[tokio::test]
async fn early_signed_statements_are_kept_until_committed_or_old() {
    let folder = Folder::new();
    let objects = ObjectStore::open_folder(&folder.0);
    let facts: Vec<PendingChange> = (1..=4)
        .map(|n| fact(n, StatedChange::Refused(transaction(n))))
        .collect();
    sign_ahead(&objects, &facts).await;
    let mut sizes = Vec::new();
    for (secs, facts) in [(10, &facts[..1]), (20, &facts[1..2]), (700, &facts[2..3])] {
        let shard = "shardId-1".to_owned();
        let batch = PendingBatch {
            shard,
            facts: facts.to_vec(),
        };
        batch.write_batch(&objects).await.unwrap();
        log(objects.clone())
            .append_pending_statements(at(secs), &Signer(Uuid::nil()))
            .await
            .unwrap();
        sizes.push(objects.list("signed/", None, 10).await.unwrap().len());
    }
    assert_eq!(sizes, [1, 1, 0]);
    let expected: Vec<_> = facts[..3].iter().map(|fact| stated(AHEAD, fact).statement).collect();
    assert_eq!(entries(&objects).await, expected);
}

/// A run commits only as much as fits into memory. The next runs commit the rest in order.
#[tokio::test]
async fn a_log_run_leaves_changes_beyond_its_memory_limit_to_the_next_run() {
    let folder = Folder::new();
    let objects = ObjectStore::open_folder(&folder.0);
    let large = |n: u8| {
        let statement = format!("{n:03}{}", "x".repeat(60_000));
        let (kind, id) = (StatementKind::Decision, Uuid::nil());
        Some(Outcome::Stated(SignedStatement { kind, id, statement }))
    };
    for shard in 0..2 {
        let facts = (0..100)
            .map(|n| n + shard * 100)
            .map(|n| fact(n, StatedChange::Refused(transaction(n))))
            .collect();
        let shard = format!("shardId-{shard}");
        PendingBatch { shard, facts }.write_batch(&objects).await.unwrap();
    }
    let mut runs = Vec::new();
    loop {
        let written = log(objects.clone())
            .append_pending_statements(at(300), &Picky::new(large))
            .await
            .unwrap();
        runs.push(written.statements);
        if !written.has_more {
            break;
        }
    }
    assert!(runs.len() == 2 && runs.iter().sum::<usize>() == 200, "{runs:?}");
    let numbers: Vec<_> = entries(&objects)
        .await
        .iter()
        .map(|entry| entry.get(..3).unwrap().parse::<u8>().unwrap())
        .collect();
    assert_eq!(numbers, (0..200).collect::<Vec<u8>>());
}

#[tokio::test]
async fn interrupted_log_runs_lose_and_duplicate_no_entry() {
    for writes in 0.. {
        let folder = Folder::new();
        let objects = pending(&folder.0).await;
        let stopped = log(ObjectStore::open_folder_with_write_limit(&folder.0, writes));
        let result = stopped
            .append_pending_statements(at(100), &Signer(Uuid::new_v4()))
            .await;
        let older = head(&objects).await;
        // The stream delivers the last batch again.
        batches()[2].write_batch(&objects).await.unwrap();
        for _ in 0..2 {
            log(objects.clone())
                .append_pending_statements(at(160), &Signer(Uuid::new_v4()))
                .await
                .unwrap();
        }
        check(&objects, &older).await;
        if result.is_ok() {
            assert!(writes > 10, "every step was interrupted: {writes}");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_log_runs_do_not_fork_the_log() {
    for writes in 0..60 {
        let folder = Folder::new();
        let objects = pending(&folder.0).await;
        let stopped = ObjectStore::open_folder_with_write_limit(&folder.0, writes);
        let runs = [stopped.clone(), stopped].map(|objects| {
            tokio::spawn(async move {
                log(objects)
                    .append_pending_statements(at(100), &Signer(Uuid::new_v4()))
                    .await
                    .ok()
            })
        });
        for run in runs {
            let _one_may_fail = run.await.unwrap();
        }
        let older = head(&objects).await;
        for _ in 0..3 {
            log(objects.clone())
                .append_pending_statements(at(160), &Signer(Uuid::new_v4()))
                .await
                .unwrap();
        }
        check(&objects, &older).await;
    }
}

/// Appends statements about 200 changes of a new shard.
async fn append_200(objects: &ObjectStore, round: u64) -> Result<purser_log::Written> {
    let facts = (0..200)
        .map(|n| fact(n, StatedChange::Refused(transaction(n))))
        .collect();
    let shard = format!("shardId-{round}");
    let now = at(300 + round);
    PendingBatch { shard, facts }.write_batch(objects).await?;
    log(objects.clone())
        .append_pending_statements(now, &Signer(Uuid::nil()))
        .await
}

async fn partial_tiles(objects: &ObjectStore) -> Vec<String> {
    let mut keys = objects.list("tile/", None, 1_000).await.unwrap();
    keys.retain(|key| key.contains(".p/"));
    keys
}

/// Asserts that the current log proves each entry of these trees, and extends each tree.
async fn prove_all(objects: &ObjectStore, heads: &[TreeHead]) {
    for (older, newer) in heads.iter().zip(&heads[1..]) {
        build_consistency_proof(objects, older, newer).await.unwrap();
    }
    for head in heads {
        let entries = read_unverified_entries(objects, head.size, 0..head.size).await.unwrap();
        for (index, entry) in (0..).zip(&entries) {
            build_inclusion_proof(objects, head, index, entry).await.unwrap();
        }
    }
}

/// Readers with an older checkpoint prove the same entries with the full tile.
#[tokio::test]
async fn partial_tiles_are_deleted_after_full_tiles_exist() {
    let folder = Folder::new();
    let objects = ObjectStore::open_folder(&folder.0);
    let mut heads = Vec::new();
    for round in 0..3 {
        append_200(&objects, round).await.unwrap();
        heads.push(head(&objects).await);
    }
    assert_eq!(
        partial_tiles(&objects).await,
        [
            "tile/0/002.p/88",
            "tile/1/000.p/1",
            "tile/1/000.p/2",
            "tile/entries/002.p/88"
        ]
    );
    prove_all(&objects, &heads).await;
}

#[tokio::test]
async fn interrupted_deletion_of_partial_tiles_loses_nothing() {
    let mut left = BTreeSet::new();
    for writes in 0..20 {
        let folder = Folder::new();
        let objects = ObjectStore::open_folder(&folder.0);
        append_200(&objects, 0).await.unwrap();
        let older = head(&objects).await;
        let stopped = append_200(&ObjectStore::open_folder_with_write_limit(&folder.0, writes), 1).await;
        let mut heads = vec![older];
        if stopped.is_err() {
            append_200(&objects, 1).await.unwrap();
        }
        heads.push(head(&objects).await);
        assert_eq!(heads[1].size, 400, "{writes}");
        prove_all(&objects, &heads).await;
        left.insert(partial_tiles(&objects).await.len());
    }
    assert!(
        left.contains(&3) && left.iter().all(|count| (3..=5).contains(count)),
        "{left:?}"
    );
}

#[tokio::test]
async fn the_audit_proves_every_entry_and_compares_the_archive() {
    let [folder, place] = [Folder::new(), Folder::new()];
    let (objects, archive) = (ObjectStore::open_folder(&folder.0), ObjectStore::open_folder(&place.0));
    let whole = Archive::new(objects.clone(), archive.clone());
    for round in 0..3 {
        append_200(&objects, round).await.unwrap();
    }
    whole.archive_batches(|| false).await.unwrap();
    let audit_all = async |secs: u64| {
        let found = Mutex::new(Vec::new());
        let report = |subject: &str, what: &str| found.lock().unwrap().push(format!("{subject}: {what}"));
        for _ in 0..20 {
            continue_log_audit(&objects, Some(&whole), at(secs), || false, report)
                .await
                .unwrap();
        }
        found.into_inner().unwrap()
    };
    assert_eq!(audit_all(400).await, [""; 0]);

    let weeks = |number: u64| 400 + number * 8 * 86_400;
    let mut number = 0;
    for (store, prefix) in [(&objects, "tile/"), (&objects, "index/"), (&archive, "statements/")] {
        for key in store.list(prefix, None, 1_000).await.unwrap() {
            let bytes = store.get(&key).await.unwrap().unwrap().bytes;
            // The audit reads only the widest partial tile or bundle at each position.
            let is_of_head = !key.contains(".p/") || key.ends_with(".p/88") || key.ends_with(".p/2");
            let mut flipped = bytes.clone();
            let last = flipped.len() - 1;
            flipped[last] ^= 1;
            for change in [Some(flipped), None] {
                match &change {
                    Some(changed) => store.put(&key, changed).await.unwrap(),
                    None => store.delete(&key).await.unwrap(),
                }
                number += 1;
                // The entries of this test are not statements, so the audit does not compare index objects.
                if prefix != "index/" || change.is_none() {
                    assert_eq!(
                        !audit_all(weeks(number)).await.is_empty(),
                        is_of_head,
                        "{key}: {}",
                        change.is_none()
                    );
                }
                store.put(&key, &bytes).await.unwrap();
            }
        }
    }
    assert_eq!(audit_all(weeks(number + 1)).await, [""; 0]);
    // The next audit starts a week later, so the change is not found earlier.
    archive
        .delete(&archive.list("statements/", None, 1).await.unwrap()[0])
        .await
        .unwrap();
    assert_eq!(audit_all(weeks(number + 1) + 86_400).await, [""; 0]);
}

/// Returns the lines of an archive in the order of the objects.
async fn lines(archive: &ObjectStore) -> Vec<Value> {
    let mut lines = Vec::new();
    for key in archive.list("statements/", None, 1_000).await.unwrap() {
        let bytes = archive.get(&key).await.unwrap().unwrap().bytes;
        let mut text = String::new();
        GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
        let of_object: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let number = |line: Option<&Value>| line.unwrap()["log_index"].as_u64().unwrap();
        let (first, last) = (number(of_object.first()), number(of_object.last()));
        let day = of_object[0]["logged_at"].as_str().unwrap().split('T').next().unwrap();
        assert_eq!(key, format!("statements/date={day}/{first:016}-{last:016}.jsonl.gz"));
        lines.extend(of_object);
    }
    lines
}

/// Interrupts one run at every write while another run archives.
#[tokio::test]
async fn the_archive_contains_each_log_entry_once() {
    for writes in 0.. {
        let [folder, place] = [Folder::new(), Folder::new()];
        let objects = pending(&folder.0).await;
        let write = async |secs| {
            log(objects.clone())
                .append_pending_statements(at(secs), &Signer(Uuid::new_v4()))
                .await
                .unwrap()
        };
        write(100).await;
        let late = PendingBatch {
            shard: "shardId-3".to_owned(),
            facts: batches()[1].facts.clone(),
        };
        late.write_batch(&objects).await.unwrap();
        // The clock of the next run is behind the clock of the previous run.
        write(40).await;
        let archive = ObjectStore::open_folder(&place.0);
        let stopped = Archive::new(
            ObjectStore::open_folder_with_write_limit(&folder.0, writes),
            ObjectStore::open_folder_with_write_limit(&place.0, writes),
        );
        let result = stopped.archive_batches(|| false).await;
        let whole = Archive::new(objects.clone(), archive.clone());
        whole.archive_batches(|| false).await.unwrap();
        assert_eq!(whole.archive_batches(|| false).await.unwrap().entries, 0);
        let more = PendingBatch {
            shard: "shardId-4".to_owned(),
            ..late
        };
        more.write_batch(&objects).await.unwrap();
        write(86_400).await;
        assert_eq!(whole.archive_batches(|| false).await.unwrap().entries, 3);

        let lines = lines(&archive).await;
        let size = head(&objects).await.size;
        assert_eq!(size, FACTS + 6);
        let indexes: Vec<u64> = lines.iter().map(|line| line["log_index"].as_u64().unwrap()).collect();
        assert_eq!(indexes, (0..size).collect::<Vec<_>>());
        for (index, line) in (0..).zip(&lines) {
            let entry = read_unverified_entry(&objects, size, index).await.unwrap();
            assert_eq!(line["statement"].as_str().unwrap().as_bytes(), entry);
        }
        if result.is_ok() {
            assert!(writes >= 2, "every step was interrupted: {writes}");
            return;
        }
    }
}

/// Neither the archive, nor the daily check, nor a search in other index objects fails.
#[tokio::test]
async fn the_log_archive_and_check_work_without_a_readable_index_object() {
    for is_missing in [false, true] {
        let [folder, place] = [Folder::new(), Folder::new()];
        let objects = pending(&folder.0).await;
        log(objects.clone())
            .append_pending_statements(at(100), &Signer(Uuid::new_v4()))
            .await
            .unwrap();
        let more = PendingBatch {
            shard: "shardId-3".to_owned(),
            facts: vec![fact(61, StatedChange::Allowed(settlement(61)))],
        };
        more.write_batch(&objects).await.unwrap();
        log(objects.clone())
            .append_pending_statements(at(160), &Signer(Uuid::new_v4()))
            .await
            .unwrap();
        let first = objects.list("index/", None, 1).await.unwrap().remove(0);
        if is_missing {
            objects.delete(&first).await.unwrap();
        } else {
            objects.put(&first, b"[").await.unwrap();
        }
        objects.put("index/no key of a batch", b"{}").await.unwrap();

        let whole = Archive::new(objects.clone(), ObjectStore::open_folder(&place.0));
        assert_eq!(whole.archive_batches(|| false).await.unwrap().entries, FACTS + 1);
        let reader = LogReader::new(objects.clone());
        let claim = reader.claim_entries(at(90_000)).await.unwrap().unwrap();
        let read = reader.read_claimed_entries(&claim).await.unwrap();
        assert_eq!(u64::try_from(read.statements.len()).unwrap(), FACTS + 1);
        reader.record_checked_entries(&claim, claim.end()).await.unwrap();
        assert_eq!(reader.claim_entries(at(90_000)).await.unwrap(), None);
        let decision =
            |n: u8| reader.find_decision_statement(TransactionId::from_uuid(settlement(n).uuid()), at(u64::from(n)));
        assert!(decision(61).await.unwrap().is_some());
        // The unreadable index object may contain the decision.
        assert_eq!(decision(1).await.is_err(), !is_missing);
    }
}

#[tokio::test]
async fn a_changed_archive_is_detected_when_it_is_written_again() {
    let [folder, place] = [Folder::new(), Folder::new()];
    let objects = pending(&folder.0).await;
    log(objects.clone())
        .append_pending_statements(at(100), &Signer(Uuid::new_v4()))
        .await
        .unwrap();
    let archive = ObjectStore::open_folder(&place.0);
    let whole = Archive::new(objects.clone(), archive.clone());
    assert_eq!(whole.archive_batches(|| true).await.unwrap().entries, 0);
    assert_eq!(whole.archive_batches(|| false).await.unwrap().entries, FACTS);
    let key = archive.list("statements/", None, 10).await.unwrap().remove(0);
    let mut other = GzEncoder::new(Vec::new(), Compression::default());
    other.write_all(b"{}\n").unwrap();
    archive.put(&key, &other.finish().unwrap()).await.unwrap();
    objects.delete("archived").await.unwrap();
    // The difference is reported, and later batches are archived.
    let more = PendingBatch {
        shard: "shardId-3".to_owned(),
        facts: batches().remove(1).facts,
    };
    more.write_batch(&objects).await.unwrap();
    log(objects.clone())
        .append_pending_statements(at(160), &Signer(Uuid::new_v4()))
        .await
        .unwrap();
    let archived = whole.archive_batches(|| false).await.unwrap();
    assert_eq!((archived.entries, archived.differing), (FACTS + 3, vec![key]));
}

/// The payloads have the fields in the statements' schema.
#[tokio::test]
async fn archive_lines_have_the_columns_of_their_schema() {
    /// Signs payloads that have a value for every column.
    struct Columns;
    impl Stating for Columns {
        async fn sign_change(&self, fact: &PendingChange) -> Result<Outcome> {
            let mut stated = stated(Uuid::nil(), fact);
            if let StatedChange::Refused(_) = fact.fact {
                stated.kind = StatementKind::Change;
            }
            let payload = match stated.kind {
                StatementKind::Decision => json!({
                    "iss": ORIGIN, "transaction_id": "t", "settlement_id": "s", "approval_id": null, "result": "allow",
                    "reason": "r", "decision_hash": "h", "facts": {"agent_id": "a", "amount_units": 5,
                    "decided_at": "2026-11-26T12:00:00Z", "call": {"url": "https://provider.example/private"}},
                }),
                StatementKind::Receipt => json!({
                    "iss": ORIGIN, "transaction_id": "t", "settlement_id": "s", "settlement": {"agent_id": "a",
                    "amount_units": 5, "tx_hash": "0x1", "block_number": 7, "settled_at": "2026-11-26T12:00:09Z"},
                }),
                StatementKind::Change => json!({
                    "iss": ORIGIN, "change": "reversal", "settlement_id": "s", "changed_at": "2026-11-26T12:09:00Z",
                    "changed_decision": {"transaction_id": "t", "decision_hash": "h"},
                    "changed_receipt": {"tx_hash": "0x1"}, "settlement": {"agent_id": "a", "amount_units": 5},
                }),
            };
            let statement = key().sign(stated.kind, payload.to_string().as_bytes()).unwrap();
            Ok(Outcome::Stated(SignedStatement { statement, ..stated }))
        }

        async fn verify_stored_statement(&self, _: &PendingChange, _: String) -> Option<SignedStatement> {
            None
        }

        fn report_quarantined_change(&self, key: &str, reason: &str) {
            panic!("{key}: {reason}");
        }
    }
    let [folder, place] = [Folder::new(), Folder::new()];
    let objects = pending(&folder.0).await;
    log(objects.clone())
        .append_pending_statements(at(100), &Columns)
        .await
        .unwrap();
    let archive = ObjectStore::open_folder(&place.0);
    Archive::new(objects, archive.clone())
        .archive_batches(|| false)
        .await
        .unwrap();
    let schema: Value = serde_json::from_str(include_str!("../../../docs/archive.schema.json")).unwrap();
    let described: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let mut required: Vec<&str> = schema["required"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    required.sort_unstable();
    assert_eq!(required, described);
    let lines = lines(&archive).await;
    for line in &lines {
        assert_eq!(line.as_object().unwrap().keys().collect::<Vec<_>>(), described);
        // Only the signed statement contains the bought operation.
        let values = line.as_object().unwrap().values();
        assert!(!values.filter_map(Value::as_str).any(|text| text.contains("private")));
    }
    let of = |kind: &str| lines.iter().find(|line| line["kind"] == kind).unwrap();
    let (decision, receipt, change) = (of("decision"), of("receipt"), of("change"));
    assert_eq!(
        [&decision["agent_id"], &receipt["agent_id"], &change["agent_id"]],
        ["a"; 3]
    );
    assert_eq!(
        [&change["result"], &change["transaction_id"], &change["tx_hash"]],
        ["reversal", "t", "0x1"]
    );
    assert_eq!([&decision["amount_units"], &receipt["amount_units"]], [5, 5]);
    assert_eq!(
        [&decision["stated_at"], &receipt["stated_at"]],
        ["2026-11-26T12:00:00Z", "2026-11-26T12:00:09Z"]
    );
    assert_eq!(
        (&decision["result"], &receipt["result"]),
        (&json!("allow"), &Value::Null)
    );
    assert_eq!(
        (&decision["block_number"], &receipt["block_number"]),
        (&Value::Null, &json!(7))
    );
}

#[tokio::test]
async fn a_changed_log_entry_has_no_proof_and_stops_the_log() {
    let folder = Folder::new();
    let objects = pending(&folder.0).await;
    log(objects.clone())
        .append_pending_statements(at(100), &Signer(Uuid::new_v4()))
        .await
        .unwrap();
    check(&objects, &TreeHead::empty()).await;
    let bundle = TilePath::for_entries(0, 22).unwrap().to_string();
    let mut bytes = objects.get(&bundle).await.unwrap().unwrap().bytes;
    *bytes.last_mut().unwrap() ^= 1;
    objects.put(&bundle, &bytes).await.unwrap();
    let reader = LogReader::new(objects.clone());
    reader
        .find_decision_statement(transaction(19), at(19))
        .await
        .unwrap_err();
    let more = PendingBatch {
        shard: "shardId-3".to_owned(),
        facts: batches()[1].facts.clone(),
    };
    more.write_batch(&objects).await.unwrap();
    log(objects)
        .append_pending_statements(at(200), &Signer(Uuid::new_v4()))
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_missing_statement_is_reported_with_a_reason() {
    let folder = Folder::new();
    let objects = pending(&folder.0).await;
    let reader = LogReader::new(objects.clone());
    let later = at(2 * 86_400);
    let reason = async |decided, now| reader.find_reason_for_missing_statement(decided, now).await.unwrap();
    assert_eq!(reason(at(1), at(100)).await, MissingReason::Pending);
    assert_eq!(reason(at(1), later).await, MissingReason::BeforeLog);
    log(objects)
        .append_pending_statements(at(100), &Signer(Uuid::new_v4()))
        .await
        .unwrap();
    // The first decision in the log was made in the first second of the test.
    assert_eq!(reason(at(0), later).await, MissingReason::BeforeLog);
    assert_eq!(reason(at(1), later).await, MissingReason::NotStated);
    assert_eq!(reason(at(86_500), later).await, MissingReason::Pending);
}

#[tokio::test]
async fn conditional_writes_never_replace_a_newer_object() {
    let folder = Folder::new();
    let objects = ObjectStore::open_folder(&folder.0);
    assert!(objects.put_if_version("a/b", b"1", None).await.unwrap());
    assert!(!objects.put_if_version("a/b", b"2", None).await.unwrap());
    let first = objects.get("a/b").await.unwrap().unwrap();
    assert!(objects.put_if_version("a/b", b"2", Some(&first.version)).await.unwrap());
    assert!(!objects.put_if_version("a/b", b"3", Some(&first.version)).await.unwrap());
    assert_eq!(objects.get("a/b").await.unwrap().unwrap().bytes, b"2");
    assert_eq!(objects.list("a/", None, 10).await.unwrap(), ["a/b"]);
    assert_eq!(objects.list("a/", Some("a/b"), 10).await.unwrap(), [""; 0]);
    objects.delete("a/b").await.unwrap();
    objects.delete("a/b").await.unwrap();
    assert_eq!(objects.get("a/b").await.unwrap(), None);
}

/// Returns a configured outcome for each change, and records which changes are set aside.
struct Picky {
    outcome: fn(u8) -> Option<Outcome>,
    aside: Mutex<Vec<String>>,
}

impl Picky {
    fn new(outcome: fn(u8) -> Option<Outcome>) -> Self {
        let aside = Mutex::default();
        Self { outcome, aside }
    }

    fn aside(&self) -> Vec<String> {
        std::mem::take(&mut self.aside.lock().unwrap())
    }
}

impl Stating for Picky {
    async fn sign_change(&self, fact: &PendingChange) -> Result<Outcome> {
        let number = fact.changed_at.since(at(0)).secs();
        let outcome = (self.outcome)(u8::try_from(number).unwrap());
        Ok(outcome.unwrap_or_else(|| Outcome::Stated(stated(Uuid::nil(), fact))))
    }

    async fn verify_stored_statement(&self, _: &PendingChange, _: String) -> Option<SignedStatement> {
        None
    }

    fn report_quarantined_change(&self, key: &str, reason: &str) {
        self.aside.lock().unwrap().push(format!("{key}: {reason}"));
    }
}

/// The outcome for the change with this number; `None` to sign the statement.
type OutcomeOf = fn(u8) -> Option<Outcome>;

fn too_long(fact: u8) -> Option<Outcome> {
    let statement = "x".repeat(65_536);
    let (kind, id) = (StatementKind::Decision, Uuid::nil());
    (fact == 4).then_some(Outcome::Stated(SignedStatement { kind, id, statement }))
}

/// The same run signs statements about the other changes.
#[tokio::test]
async fn the_log_quarantines_an_unsignable_change_and_signs_the_others() {
    let unreadable = |n: u8| (n == 4).then(|| Outcome::SetAside("`checks` can't be read".to_owned()));
    let rows: [(OutcomeOf, &str); 2] = [
        (unreadable, "`checks` can't be read"),
        (too_long, "the statement is longer than a log entry may be"),
    ];
    for (outcome, reason) in rows {
        let folder = Folder::new();
        let objects = pending(&folder.0).await;
        let picky = Picky::new(outcome);
        let written = log(objects.clone())
            .append_pending_statements(at(100), &picky)
            .await
            .unwrap();
        assert_eq!(written.statements, usize::try_from(FACTS - 1).unwrap());
        let key = format!("aside/{}/{:040}", Uuid::from_u128(1), 4);
        assert_eq!(picky.aside(), [format!("{key}: {reason}")]);
        let aside: Value = serde_json::from_slice(&objects.get(&key).await.unwrap().unwrap().bytes).unwrap();
        assert_eq!(
            (&aside["reason"], &aside["fact"]["row"]),
            (&json!(reason), &json!("00"))
        );
        assert_eq!(read_oldest_pending_time(&objects).await.unwrap(), None);

        // After the cause is fixed, an operator makes the change pending again.
        assert_eq!(make_quarantined_changes_pending(&objects, at(200)).await.unwrap(), 1);
        log(objects.clone())
            .append_pending_statements(at(201), &Signer(Uuid::new_v4()))
            .await
            .unwrap();
        check(&objects, &TreeHead::empty()).await;
        assert_eq!(make_quarantined_changes_pending(&objects, at(202)).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_unreadable_object_of_pending_changes_is_quarantined() {
    let folder = Folder::new();
    let objects = pending(&folder.0).await;
    objects.put("pending/shardId-1/0", b"no JSON").await.unwrap();
    objects.put("pending/shardId-9/0-0", br#"[{"seq":"1"}]"#).await.unwrap();
    let picky = Picky::new(|_| None);
    log(objects.clone())
        .append_pending_statements(at(100), &picky)
        .await
        .unwrap();
    check(&objects, &TreeHead::empty()).await;
    let aside = picky.aside();
    assert!(
        aside.len() == 2
            && aside
                .iter()
                .all(|line| line.ends_with("the value is not a pending change")),
        "{aside:?}"
    );
}

/// A later run signs the statement once, or quarantines the change after a day.
#[tokio::test]
async fn a_change_that_is_temporarily_unreadable_is_signed_in_a_later_log_run() {
    let fails = |n: u8| {
        let error = || Error::temporarily_unavailable("reading an item", "throttled");
        (n == 4 || n == 51).then(|| Outcome::Later(error()))
    };
    let folder = Folder::new();
    let objects = pending(&folder.0).await;
    let failing = Picky::new(fails);
    for secs in [100, 160] {
        let written = log(objects.clone())
            .append_pending_statements(at(secs), &failing)
            .await
            .unwrap();
        assert_eq!(written.statements, if secs == 100 { 20 } else { 0 });
        assert_eq!(read_oldest_pending_time(&objects).await.unwrap(), Some(at(4)));
    }
    assert_eq!(failing.aside(), [""; 0]);
    // The signing run stops after each number of writes.
    for writes in 0..8 {
        let stopped = log(ObjectStore::open_folder_with_write_limit(&folder.0, writes));
        let _interrupted = stopped.append_pending_statements(at(220), &Picky::new(|_| None)).await;
    }
    log(objects.clone())
        .append_pending_statements(at(280), &Signer(Uuid::new_v4()))
        .await
        .unwrap();
    check(&objects, &TreeHead::empty()).await;

    let folder = Folder::new();
    let objects = pending(&folder.0).await;
    log(objects.clone())
        .append_pending_statements(at(100), &failing)
        .await
        .unwrap();
    log(objects.clone())
        .append_pending_statements(at(86_500), &failing)
        .await
        .unwrap();
    assert_eq!(failing.aside().len(), 2);
    assert_eq!(read_oldest_pending_time(&objects).await.unwrap(), None);
}

/// A shard with many changes does not delay the changes of other shards.
#[tokio::test]
async fn a_busy_stream_shard_does_not_delay_the_log_entries_of_other_shards() {
    let folder = Folder::new();
    let objects = ObjectStore::open_folder(&folder.0);
    for number in 0..600_u32 {
        let facts = [0, 1].map(|half| PendingChange {
            sequence: format!("{:040}", number * 2 + half),
            ..fact(
                7,
                StatedChange::Refused(TransactionId::new_at(at(7), u64::from(number * 2 + half).to_be_bytes())),
            )
        });
        let (shard, facts) = ("shardId-1".to_owned(), facts.to_vec());
        PendingBatch { shard, facts }.write_batch(&objects).await.unwrap();
    }
    let facts = vec![fact(9, StatedChange::Refused(transaction(9)))];
    let shard = "shardId-2".to_owned();
    PendingBatch { shard, facts }.write_batch(&objects).await.unwrap();
    let written = log(objects.clone())
        .append_pending_statements(at(100), &Signer(Uuid::new_v4()))
        .await
        .unwrap();
    assert!(written.has_more);
    let found = LogReader::new(objects)
        .find_decision_statement(transaction(9), at(9))
        .await
        .unwrap();
    assert!(found.is_some());
}

/// An agent's changes are processed in order, although runs skip some changes of a shard.
#[tokio::test]
async fn a_flood_of_one_agent_does_not_delay_other_agents() {
    let folder = Folder::new();
    let objects = ObjectStore::open_folder(&folder.0);
    let (flood, other) = (0..200_u8, 200..203_u8);
    for numbers in [0..100, 100..200, 200..203] {
        let facts = numbers.map(|n| PendingChange {
            agent: AgentId::from_uuid(Uuid::from_u128(if other.contains(&n) { 2 } else { 1 })),
            ..fact(n, StatedChange::Refused(transaction(n)))
        });
        let (shard, facts) = ("shardId-1".to_owned(), facts.collect());
        PendingBatch { shard, facts }.write_batch(&objects).await.unwrap();
    }
    let large = |n: u8| {
        let statement = format!("{n:03}{}", "x".repeat(60_000));
        let (kind, id) = (StatementKind::Decision, transaction(n).uuid());
        Some(Outcome::Stated(SignedStatement { kind, id, statement }))
    };
    let numbers = async || -> Vec<u8> {
        let entries = entries(&objects).await;
        entries
            .iter()
            .map(|entry| entry.get(..3).unwrap().parse().unwrap())
            .collect()
    };
    let written = log(objects.clone())
        .append_pending_statements(at(300), &Picky::new(large))
        .await
        .unwrap();
    assert!(written.has_more && written.statements < 200);
    let first = numbers().await;
    assert!(other.clone().all(|n| first.contains(&n)), "{first:?}");
    // A repeated batch contains no new changes.
    let again = (150..203).map(|n| fact(n, StatedChange::Refused(transaction(n))));
    let (shard, facts) = ("shardId-1".to_owned(), again.collect());
    PendingBatch { shard, facts }.write_batch(&objects).await.unwrap();
    while log(objects.clone())
        .append_pending_statements(at(300), &Picky::new(large))
        .await
        .unwrap()
        .has_more
    {}
    let of = |range: std::ops::Range<u8>, numbers: &[u8]| -> Vec<u8> {
        numbers.iter().copied().filter(|n| range.contains(n)).collect()
    };
    let numbers = numbers().await;
    assert_eq!(of(flood.clone(), &numbers), flood.collect::<Vec<u8>>());
    assert_eq!(of(other.clone(), &numbers), other.collect::<Vec<u8>>());
    assert_eq!(read_oldest_pending_time(&objects).await.unwrap(), None);
}

/// Entries of a run that failed or stopped are compared by another run.
#[tokio::test]
async fn concurrent_log_checks_compare_every_entry_even_if_a_check_stops() {
    let folder = Folder::new();
    let objects = ObjectStore::open_folder(&folder.0);
    for n in 0..45 {
        let (shard, facts) = (
            "shardId-1".to_owned(),
            vec![fact(n, StatedChange::Refused(transaction(n)))],
        );
        PendingBatch { shard, facts }.write_batch(&objects).await.unwrap();
        let now = at(u64::from(n) * 60);
        log(objects.clone())
            .append_pending_statements(now, &Signer(Uuid::nil()))
            .await
            .unwrap();
    }
    let reader = LogReader::new(objects);
    let compared = async |claim| {
        let read = reader.read_claimed_entries(&claim).await.unwrap();
        assert_eq!(read.misindexed, []);
        read.statements
            .into_iter()
            .map(|(index, _)| index)
            .collect::<Vec<u64>>()
    };
    let early = reader.claim_entries(at(86_399)).await.unwrap();
    assert_eq!(early, None, "no entry is a day old");
    let now = at(100_000);
    let claims = tokio::join!(
        reader.claim_entries(now),
        reader.claim_entries(now),
        reader.claim_entries(now)
    );
    let mut claims = [claims.0, claims.1, claims.2].map(|claim| claim.unwrap().unwrap());
    claims.sort_by_key(purser_log::ClaimedEntries::end);
    let [first, second, third] = claims;
    assert_eq!(reader.claim_entries(now).await.unwrap(), None, "everything is claimed");
    assert_eq!(compared(first.clone()).await, (0..20).collect::<Vec<u64>>());
    assert_eq!(compared(second.clone()).await, (20..40).collect::<Vec<u64>>());
    assert_eq!(compared(third).await, (40..45).collect::<Vec<u64>>());
    // The first run compares its entries, the second run compares some, and the third run stops without a record.
    reader.record_checked_entries(&first, 20).await.unwrap();
    reader.record_checked_entries(&second, 25).await.unwrap();
    let again = reader.claim_entries(now).await.unwrap().unwrap();
    assert_eq!(compared(again.clone()).await, (25..40).collect::<Vec<u64>>());
    assert_eq!(
        reader.claim_entries(now).await.unwrap(),
        None,
        "the third range is claimed"
    );
    reader.record_checked_entries(&again, 40).await.unwrap();
    let later = at(100_121);
    let third = reader.claim_entries(later).await.unwrap().unwrap();
    assert_eq!(compared(third.clone()).await, (40..45).collect::<Vec<u64>>());
    // A run whose claim has expired records the same entries again.
    for claim in [&again, &third, &again, &first] {
        reader.record_checked_entries(claim, claim.end()).await.unwrap();
    }
    assert_eq!(reader.claim_entries(later).await.unwrap(), None);
}

/// The maximum number of changes per run, and the consecutive S3 requests of such a run. `infra/sam/costs.py` reads
/// these counts.
const FACTS_OF_A_RUN: usize = 5_000;
const REQUESTS_OF_A_RUN: u32 = 41;
/// The consecutive S3 requests of the daily check, from the claim to the record.
const REQUESTS_OF_A_CHECK: u32 = 31;

/// A signer that accepts every statement that was signed early.
struct Accepting;

impl Stating for Accepting {
    async fn sign_change(&self, fact: &PendingChange) -> Result<Outcome> {
        panic!("{} was not signed ahead", fact.sequence);
    }

    async fn verify_stored_statement(&self, fact: &PendingChange, statement: String) -> Option<SignedStatement> {
        let StatedChange::Refused(id) = fact.fact else {
            return None;
        };
        let (kind, id) = (StatementKind::Decision, id.uuid());
        Some(SignedStatement { kind, id, statement })
    }

    fn report_quarantined_change(&self, key: &str, reason: &str) {
        panic!("{key}: {reason}");
    }
}

/// Returns a decision's statement without a signature.
fn unsigned(fact: &PendingChange) -> String {
    let StatedChange::Refused(id) = fact.fact else { panic!() };
    let payload = json!({"statement": "purser.decision.v1", "transaction_id": id.to_string()});
    format!(".{}.", BASE64_URL_SAFE_NO_PAD.encode(payload.to_string()))
}

/// Makes changes pending: two batches of this size in each of 8 shards.
async fn busy_minute(objects: &ObjectStore, minute: u64, size: u64) {
    for shard in 0..8 {
        for batch in 0..2 {
            let facts = (0..size).map(|n| {
                let number = ((minute * 8 + shard) * 2 + batch) * size + n;
                PendingChange {
                    sequence: format!("{number:040}"),
                    changed_at: at(minute * 60),
                    agent: AgentId::from_uuid(Uuid::from_u128(u128::from(number % 40))),
                    fact: StatedChange::Refused(TransactionId::new_at(at(minute * 60), number.to_be_bytes())),
                    row: String::new(),
                }
            });
            let facts: Vec<PendingChange> = facts.collect();
            for facts in facts.chunks(25) {
                let signed = facts.iter().map(|fact| (fact.clone(), unsigned(fact)));
                write_signed_statements(objects, &signed.collect::<Vec<_>>())
                    .await
                    .unwrap();
            }
            let shard = format!("shardId-{shard}");
            PendingBatch { shard, facts }.write_batch(objects).await.unwrap();
        }
    }
}

/// S3's latency limits the log, because only one run appends at a time. The clock advances only during requests.
#[tokio::test(start_paused = true)]
async fn a_run_of_the_log_waits_for_few_consecutive_requests() {
    const LATENCY: Duration = Duration::from_millis(30);
    let [folder, archive] = [Folder::new(), Folder::new()];
    let objects = ObjectStore::open_folder(&folder.0);
    let delayed = ObjectStore::open_folder_with_latency(&folder.0, LATENCY);
    let log = log(delayed.clone()).with_anchor(Some(ObjectStore::open_folder_with_latency(&archive.0, LATENCY)));
    let requests = |began: Instant| u32::try_from(began.elapsed().as_millis() / LATENCY.as_millis()).unwrap();
    busy_minute(&objects, 1, 20).await;
    log.append_pending_statements(at(60), &Accepting).await.unwrap();
    busy_minute(&objects, 2, 400).await;
    let began = Instant::now();
    let written = log.append_pending_statements(at(120), &Accepting).await.unwrap();
    assert_eq!(
        (written.statements, requests(began)),
        (FACTS_OF_A_RUN, REQUESTS_OF_A_RUN)
    );

    log.append_pending_statements(at(180), &Accepting).await.unwrap();

    // A batch remains after the first range, so other runs help for ten minutes.
    let reader = LogReader::new(delayed);
    assert!(!reader.has_check_backlog(at(90_000)).await.unwrap());
    let began = Instant::now();
    let claimed = reader.claim_entries(at(90_000)).await.unwrap().unwrap();
    let read = reader.read_claimed_entries(&claimed).await.unwrap();
    reader.record_checked_entries(&claimed, claimed.end()).await.unwrap();
    assert_eq!(
        (read.statements.len(), read.misindexed),
        (320 + FACTS_OF_A_RUN, Vec::new())
    );
    assert_eq!(requests(began), REQUESTS_OF_A_CHECK);
    for (secs, is_busy) in [(90_000, true), (90_599, true), (90_600, false)] {
        assert_eq!(reader.has_check_backlog(at(secs)).await.unwrap(), is_busy);
    }
}
