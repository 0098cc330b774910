//! Tests which keys verify the statements in the log and in the archive, and that no statement contains names.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod rewrites;
mod stating;
mod witnesses;

use aws_sdk_dynamodb::types::AttributeValue;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use flate2::read::GzDecoder;
use purser_domain::{Day, SettlementId};
use purser_evidence::{Checkpoint, Hash, Note, StatementKind, read_unverified_entries};
use purser_log::{LogReader, MissingStatements, ObjectStore, unverified_payload};
use purser_store::{ApprovalDecision, Reminder, ReminderKind, UsageTable};
use purser_testkit::{Fate, LEDGER, USAGE, sample};
use purser_verify::{Trust, verify_document};
use serde_json::{Value, json};
use stating::{NAMES, ORIGIN, Stating, TIME};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::PathBuf;

/// A folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("purser-stated-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn log(&self) -> ObjectStore {
        ObjectStore::open_folder(self.0.join("log"))
    }

    fn trust(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.0.join("log/trust.json")).unwrap()).unwrap()
    }

    async fn size(&self) -> u64 {
        let checkpoint = LogReader::new(self.log()).read_checkpoint().await.unwrap().unwrap();
        let note = Note::parse(std::str::from_utf8(&checkpoint).unwrap()).unwrap();
        Checkpoint::parse(note.unverified_text()).unwrap().tree_head().size
    }

    /// Returns the first `size` statements.
    async fn statements(&self, size: u64) -> Vec<String> {
        let entries = read_unverified_entries(&self.log(), size, 0..size).await.unwrap();
        entries
            .into_iter()
            .map(|entry| String::from_utf8(entry).unwrap())
            .collect()
    }
}

impl Folder {
    /// Returns the contents of all files by their paths in the folder.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).unwrap();
                    files.push((path.strip_prefix(&self.0).unwrap().to_owned(), bytes));
                }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _missing = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the lines of the archive.
fn archived(folder: &Folder) -> Vec<Value> {
    let files = folder.files().into_iter();
    let objects = files.filter(|(path, _)| path.starts_with("archive/statements"));
    let texts = objects.map(|(_, bytes)| {
        let mut text = String::new();
        GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
        text
    });
    let texts: Vec<String> = texts.collect();
    texts
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The signing key is replaced twice. Each statement verifies with the key that signed it.
#[tokio::test]
async fn statements_verify_after_their_key_was_replaced() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let keys = [None, Some(stating.kms.create_p256()), Some(stating.kms.create_p256())];
    let mut known = Vec::new();
    for (number, key) in (1_u8..).zip(&keys) {
        let events = stating.function(key.as_deref());
        let id = stating.pay(10, &format!("payment {number}")).await.unwrap();
        stating.confirm(id, number).await;
        stating.state(&events).await;
        let trust = folder.trust();
        let kids = trust["jwks"]["keys"].as_array().unwrap().iter();
        let kids: Vec<String> = kids.map(|key| key["kid"].as_str().unwrap().to_owned()).collect();
        // The current key comes first, and all earlier keys stay.
        assert_eq!(kids.len(), usize::from(number));
        let earlier: BTreeSet<&String> = kids[1..].iter().collect();
        assert_eq!(earlier, known.iter().collect());
        known.push(kids[0].clone());
    }
    let trust = Trust::parse(&folder.trust().to_string()).unwrap();
    let statements = folder.statements(6).await;
    for (statement, kid) in statements.iter().zip(known.iter().flat_map(|kid| [kid, kid])) {
        assert_eq!(trust.keys.verify(statement).unwrap().kid(), kid);
    }
    for key in trust.keys.keys() {
        assert_eq!(serde_json::to_value(key).unwrap()["alg"], "ES256");
    }
    // The function sends only digests to KMS for signing.
    for (operation, request) in stating.kms.asked() {
        assert!(operation == "GetPublicKey" || (operation == "Sign" && request["MessageType"] == "DIGEST"));
    }
}

/// The trust document keeps the log's earlier keys, so saved proofs still verify.
#[tokio::test]
async fn inclusion_proofs_verify_after_the_log_keys_were_replaced() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let reader = LogReader::new(folder.log());
    let mut proofs = Vec::new();
    let mut trusts: Vec<Trust> = Vec::new();
    for (number, secret) in (1_u8..).zip(["one", "two", "three"]) {
        stating.replace_secret(secret);
        let events = stating.function(None);
        stating.state(&events).await;
        let trust = Trust::parse(&folder.trust().to_string()).unwrap();
        let checkpoint = String::from_utf8(reader.read_checkpoint().await.unwrap().unwrap()).unwrap();
        trust
            .policy
            .open_checkpoint(&Note::parse(&checkpoint).unwrap())
            .unwrap();
        for earlier in &trusts {
            earlier
                .policy
                .open_checkpoint(&Note::parse(&checkpoint).unwrap())
                .unwrap_err();
        }
        let id = stating.pay(10, secret).await.unwrap();
        stating.confirm(id, number).await;
        stating.state(&events).await;
        let found = reader.find_receipt(id, id.authorized_at()).await.unwrap().unwrap();
        proofs.push(found.proof);
        for proof in &proofs {
            let report = verify_document(proof, &trust).unwrap();
            assert!(report.is_verified(), "{:?}", report.steps());
        }
        trusts.push(trust);
    }
    assert_eq!(folder.trust()["logs"].as_array().unwrap().len(), 3);
}

/// Witnesses and readers identify a log by the origin, so the origin never changes.
#[tokio::test]
async fn a_statement_log_keeps_its_first_origin() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    stating.state(&stating.function(None)).await;
    stating
        .state(&stating.function_with("LOG_ORIGIN", "other.example/log"))
        .await;
    let trust = folder.trust();
    assert_eq!(trust["logs"].as_array().unwrap().len(), 1);
    assert_eq!(trust["logs"][0]["origin"], ORIGIN);
    let checkpoint = std::fs::read_to_string(folder.0.join("log/checkpoint")).unwrap();
    assert_eq!(checkpoint.lines().next(), Some(ORIGIN));
}

/// While KMS fails, changes stay pending, and no change is lost.
#[tokio::test]
async fn statements_stay_pending_while_kms_fails() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let key = stating.kms.create_p256();
    let events = stating.function(Some(&key));
    stating.state(&events).await;
    stating.pay(10, "one").await.unwrap();
    stating.kms.fail("Sign", "KMSInternalException");
    stating.fold().await;
    assert!(events.sign_pending_statements(TIME).await.is_err());
    stating.kms.behave();
    stating.state(&events).await;
    assert_eq!(folder.statements(1).await.len(), 1);
    assert_eq!(archived(&folder).len(), 1);
}

/// A reversal's statement names the receipt. A second confirmation adds a second receipt.
#[tokio::test]
async fn reversal_and_release_statements_name_the_receipt_they_change() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let events = stating.function(None);
    let paid = stating.pay(10, "taken back").await.unwrap();
    let unpaid = stating.pay(20, "never paid").await.unwrap();
    stating.confirm(paid, 1).await;
    stating.state(&events).await;
    let reversal = stating.revert(paid).await;
    stating.release(unpaid).await;
    stating.state(&events).await;
    stating.confirm(paid, 2).await;
    stating.state(&events).await;
    stating.sleep();
    stating.sleep();
    // The daily check rebuilds each statement.
    let lines = rewrites::Lines::start();
    stating.state(&events).await;
    assert_eq!(lines.alarms(), [Value::Null; 0]);

    let statements = folder.statements(6).await;
    let payload = |statement: &String| unverified_payload(statement).unwrap();
    let payloads: Vec<Value> = statements.iter().map(payload).collect();
    let of = |name: &str, id: SettlementId| {
        let is_own = |payload: &Value| {
            let kind = payload["change"].as_str().or(payload["statement"].as_str());
            kind == Some(name) && payload["settlement_id"] == id.to_string()
        };
        payloads.iter().position(is_own).unwrap()
    };
    let [decision, receipt] = [of("purser.decision.v1", paid), of("purser.receipt.v1", paid)];
    let reverted = &payloads[of("reversal", paid)];
    assert_eq!(reverted["transaction_id"], reversal.to_string());
    let leaf = Hash::for_leaf(statements[receipt].as_bytes());
    let digits = leaf.as_bytes().iter();
    let leaf_hash = digits.fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let expected = json!({
        "tx_hash": payloads[receipt]["settlement"]["tx_hash"],
        "index": receipt,
        "leaf_hash": leaf_hash,
    });
    assert_eq!(reverted["changed_receipt"], expected);
    let changed = |decision: &Value| json!({"transaction_id": decision["transaction_id"], "decision_hash": decision["decision_hash"]});
    assert_eq!(reverted["changed_decision"], changed(&payloads[decision]));
    let released = &payloads[of("release", unpaid)];
    assert_eq!(
        released["changed_decision"],
        changed(&payloads[of("purser.decision.v1", unpaid)])
    );
    assert_eq!(released["changed_receipt"], Value::Null);
    let again = &payloads[5]["settlement"]["tx_hash"];
    assert_eq!(*again, sample::tx_hash(2).to_string());
    let (reader, ledger) = (LogReader::new(folder.log()), stating.emulator.ledger());
    for (id, receipt, change) in [(paid, Some(5), "reversal"), (unpaid, None, "release")] {
        let settlement = ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let found = reader.find_payment_statements(&settlement).await.unwrap();
        assert_eq!(found.receipt.map(|receipt| receipt.index), receipt);
        let indexes: Vec<u64> = found.changes.iter().map(|change| change.index).collect();
        assert_eq!(indexes, [u64::try_from(of(change, id)).unwrap()]);
    }
}

/// Another run repeats a failed check after two minutes. Two concurrent checks compare no statement twice.
#[tokio::test]
async fn a_failed_check_of_rows_against_statements_is_repeated_by_a_later_run() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let events = stating.function(None);
    let id = stating.pay(10, "payment").await.unwrap();
    stating.state(&events).await;
    stating.sleep();
    stating.sleep();
    stating.rewrite_amount(id).await;
    let lines = rewrites::Lines::start();
    let run = async |job: &str| events.handle_event(&json!({"job": job}), TIME).await;
    // One run is enough, because only a few statements are due.
    run("check").await.unwrap();
    stating
        .database
        .follow(|_| Fate::Answer(400, json!({"__type": "ValidationException"})));
    run("archive").await.unwrap_err();
    stating.database.behave();
    run("archive").await.unwrap();
    assert_eq!(lines.alarms(), [Value::Null; 0], "the range is still claimed");
    for _ in 0..120 {
        stating.now();
    }
    run("archive").await.unwrap();
    let found: Vec<Value> = lines.alarms().iter().map(|line| line["what"].clone()).collect();
    assert_eq!(found, ["`decision_hash` differs from the statement"]);
    run("archive").await.unwrap();
    assert_eq!(lines.alarms(), [Value::Null; 0]);
    run("unknown").await.unwrap_err();
}

/// The statement of a withdrawal names no policy decision. Its payment has a receipt.
#[tokio::test]
async fn withdrawals_have_signed_statements() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let events = stating.function(None);
    let id = stating.pay_out().await;
    stating.confirm(id, 1).await;
    stating.state(&events).await;
    let ledger = stating.emulator.ledger();
    let settlement = ledger
        .read_settlement_by_id(sample::agent_id(1), id)
        .await
        .unwrap()
        .unwrap();
    let found = LogReader::new(folder.log())
        .find_payment_statements(&settlement)
        .await
        .unwrap();
    assert!(found.receipt.is_some());
    let change = found.find_change_statement(settlement.terms.transaction).unwrap();
    let payload = unverified_payload(&change.statement).unwrap();
    assert_eq!(payload["change"], "withdrawal");
    assert_eq!(payload["settlement"]["pay_to"], sample::wallet(9).to_string());
    assert_eq!(payload["settlement"]["amount_units"], 1);
    assert_eq!(payload["changed_decision"]["decision_hash"], Value::Null);
    assert_eq!(found.differing_statement_names(None, &settlement), [""; 0]);
    stating.sleep();
    stating.sleep();
    let lines = rewrites::Lines::start();
    stating.state(&events).await;
    assert_eq!(lines.alarms(), [Value::Null; 0]);
}

impl Stating {
    /// Changes the amount in a payment's row.
    async fn rewrite_amount(&self, id: SettlementId) {
        let row = self.emulator.client.update_item().table_name(LEDGER);
        let row = row.key("pk", AttributeValue::S(format!("S#{}", sample::agent_id(1))));
        let row = row.key("sk", AttributeValue::S(id.to_string()));
        let amount = AttributeValue::N("9".to_owned());
        let row = row
            .update_expression("SET amt = :amount")
            .expression_attribute_values(":amount", amount);
        row.send().await.unwrap();
    }

    /// Makes each change of the first day that has no statement in the log pending again.
    async fn find_missing(&self, folder: &Folder) -> MissingStatements {
        let (agent, day) = (sample::agent_id(1), Day::containing(sample::start()));
        let (decisions, unreadable) = self.emulator.ledger().read_decisions_of_day(agent, day).await.unwrap();
        assert_eq!(unreadable, 0);
        let decisions = decisions.into_iter().map(|(decision, row)| (decision, row.to_string()));
        let mut missing = MissingStatements::default();
        let decisions: Vec<_> = decisions.collect();
        missing
            .requeue_changes_without_statements(&folder.log(), &decisions, self.now())
            .await
            .unwrap();
        missing
    }
}

/// Changes that the streams lost become pending again once, except lost releases, because no record has the release
/// time.
#[tokio::test]
async fn missing_statements_become_pending_again_once() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let events = stating.function(None);
    let stated = stating.pay(10, "stated").await.unwrap();
    stating.confirm(stated, 1).await;
    let rewritten = stating.pay(10, "rewritten").await.unwrap();
    stating.fold().await;
    stating.rewrite_amount(rewritten).await;
    stating.state(&events).await;
    let paid = stating.pay(10, "lost").await.unwrap();
    stating.confirm(paid, 2).await;
    let reverted = stating.pay(10, "reverted").await.unwrap();
    stating.confirm(reverted, 3).await;
    stating.revert(reverted).await;
    stating.pay(5_000, "blocked").await;
    let released = stating.pay(10, "released").await.unwrap();
    stating.release(released).await;
    let payout = stating.pay_out().await;
    stating.fold().await;
    std::fs::remove_dir_all(folder.0.join("log/pending")).unwrap();
    let reason = |text: &str| (text.to_owned(), 1);
    let aside = reason("the change was set aside: the row was rewritten");
    let young = stating.find_missing(&folder).await;
    assert_eq!((young.pending, young.reasons.get(&aside.0)), (0, Some(&1)));
    stating.sleep();
    stating.sleep();

    let missing = stating.find_missing(&folder).await;
    let time = reason("the settlement record has no release time");
    assert_eq!(missing.pending, 8);
    assert_eq!(missing.reasons, BTreeMap::from([aside.clone(), time.clone()]));
    let again = stating.find_missing(&folder).await;
    let pending = ("the change is pending".to_owned(), 8);
    assert_eq!(
        (again.pending, again.reasons),
        (0, BTreeMap::from([aside.clone(), pending, time.clone()]))
    );
    let before = folder.size().await;
    stating.state(&events).await;
    let left = stating.find_missing(&folder).await;
    assert_eq!((left.pending, left.reasons), (0, BTreeMap::from([aside, time])));
    assert_eq!(folder.size().await, before + 8);
    let ledger = stating.emulator.ledger();
    for (id, has_receipt, changes) in [(paid, true, 0), (reverted, false, 1), (payout, false, 1)] {
        let settlement = ledger
            .read_settlement_by_id(sample::agent_id(1), id)
            .await
            .unwrap()
            .unwrap();
        let found = LogReader::new(folder.log())
            .find_payment_statements(&settlement)
            .await
            .unwrap();
        assert_eq!((found.receipt.is_some(), found.changes.len()), (has_receipt, changes));
    }
}

/// The statements name the decision that required the approval. An expiry has one statement, even after an interrupted
/// run.
#[tokio::test]
async fn approval_decisions_and_expiries_have_signed_statements() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let events = stating.function(None);
    let mut requests = Vec::new();
    for key in ["approved", "rejected", "withdrawn", "unanswered"] {
        requests.push(stating.request_approval(key).await);
    }
    let [approved, rejected, withdrawn, unanswered] = &requests[..] else {
        panic!()
    };
    stating.decide(approved.id, ApprovalDecision::Approve).await;
    stating.decide(rejected.id, ApprovalDecision::Reject).await;
    stating.decide(withdrawn.id, ApprovalDecision::Approve).await;
    stating.withdraw(withdrawn.id).await;
    let lines = rewrites::Lines::start();
    stating.pass(Some(&events)).await;
    stating.state(&events).await;
    stating.sleep();
    stating.sleep();
    let usage = UsageTable::new(stating.emulator.client.clone(), USAGE);
    let (of, at) = (ReminderKind::Expiry(unanswered.id), unanswered.expires_at);
    let reminder = Reminder { of, at };
    usage.store_reminder(reminder).await.unwrap();
    // The sweep stops after it stored the expiry and before it deletes the reminder.
    stating.database.follow(|step| match step.call.split(' ').next() {
        Some("DeleteItem") => Fate::Answer(400, json!({"__type": "ValidationException"})),
        _ => Fate::PassOn,
    });
    for _ in 0..2 {
        events.publish_due_events(TIME).await.unwrap_err();
        stating.now();
    }
    stating.database.behave();
    let expired = folder.log().list("pending/expired/", None, 9).await.unwrap();
    assert_eq!(expired.len(), 2, "both sweeps stored the expiries");
    for _ in 0..2 {
        stating.state(&events).await;
        // The sweep stops again after the statement about the expiry was made.
        usage.store_reminder(reminder).await.unwrap();
        events.publish_due_events(TIME).await.unwrap();
    }
    stating.state(&events).await;
    // The daily check rebuilds each statement.
    stating.sleep();
    stating.sleep();
    stating.state(&events).await;
    assert_eq!(lines.alarms(), [Value::Null; 0]);

    let lines = archived(&folder);
    let line = lines
        .iter()
        .find(|line| line["result"] == "approval_withdrawal")
        .unwrap();
    assert_eq!(line["agent_id"], sample::agent_id(1).to_string());
    assert_eq!(line["approval_id"], withdrawn.id.to_string());
    let reader = LogReader::new(folder.log());
    for (request, expected) in [
        (approved, vec!["approval", "approval_expiry"]),
        (rejected, vec!["rejection"]),
        (withdrawn, vec!["approval", "approval_withdrawal"]),
        (unanswered, vec!["approval_expiry"]),
    ] {
        let id = request.transaction;
        let changes = reader.find_change_statements(id.uuid(), id.decided_at()).await.unwrap();
        let payloads: Vec<Value> = changes
            .iter()
            .map(|change| unverified_payload(&change.statement).unwrap())
            .collect();
        let names: Vec<&str> = payloads
            .iter()
            .map(|payload| payload["change"].as_str().unwrap())
            .collect();
        assert_eq!(names, expected);
        let decision = reader
            .find_decision_statement(id, id.decided_at())
            .await
            .unwrap()
            .unwrap();
        let decision = unverified_payload(&decision.statement).unwrap();
        for payload in &payloads {
            let is_expiry = payload["change"] == "approval_expiry";
            assert_eq!(payload["changed_decision"]["transaction_id"], id.to_string());
            assert_eq!(payload["changed_decision"]["decision_hash"], decision["decision_hash"]);
            assert_eq!(payload["approval"]["approval_id"], request.id.to_string());
            assert_eq!(payload["approval"]["amount_units"], 7);
            assert_eq!(
                payload["approval"]["decided_by"],
                if is_expiry { Value::Null } else { "owner".into() }
            );
            assert!(!NAMES.iter().any(|name| payload.to_string().contains(name)));
        }
    }
}

/// The log and the archive outlive an agent's rows, so neither may contain names of the agent.
#[tokio::test]
async fn the_statement_archive_equals_the_log_and_neither_contains_agent_names() {
    let folder = Folder::new();
    let stating = Stating::start(&folder.0).await;
    let events = stating.function(None);
    let first = stating.pay(10, "first").await.unwrap();
    assert_eq!(stating.pay(5_000, "blocked").await, None);
    stating.state(&events).await;
    stating.sleep();
    stating.confirm(first, 1).await;
    stating.pay(20, "second").await.unwrap();
    stating.state(&events).await;

    let lines = archived(&folder);
    let statements = folder.statements(4).await;
    let of_lines: Vec<&str> = lines.iter().map(|line| line["statement"].as_str().unwrap()).collect();
    assert_eq!(of_lines, statements);
    let days: BTreeSet<&str> = lines
        .iter()
        .filter_map(|line| line["logged_at"].as_str()?.split('T').next())
        .collect();
    assert_eq!(days.len(), 2);
    let results: Vec<Option<&str>> = lines.iter().map(|line| line["result"].as_str()).collect();
    assert_eq!(
        results.iter().flatten().collect::<BTreeSet<_>>(),
        BTreeSet::from([&"allow", &"block"])
    );

    let reader = LogReader::new(folder.log());
    let found = reader
        .find_receipt(first, first.authorized_at())
        .await
        .unwrap()
        .unwrap();
    let report = verify_document(&found.proof, &Trust::parse(&folder.trust().to_string()).unwrap()).unwrap();
    assert_eq!(report.statement().unwrap().kind(), Some(StatementKind::Receipt));

    let mut texts: Vec<Vec<u8>> = folder.files().into_iter().map(|(_, bytes)| bytes).collect();
    texts.extend(statements.iter().flat_map(|statement| {
        let parts = statement.split('.').take(2);
        parts.map(|part| BASE64_URL_SAFE_NO_PAD.decode(part).unwrap())
    }));
    texts.extend(lines.iter().map(|line| line.to_string().into_bytes()));
    for name in NAMES {
        let has_name = |text: &Vec<u8>| text.windows(name.len()).any(|part| part == name.as_bytes());
        assert!(!texts.iter().any(has_name), "{name}");
    }
}
