//! Tests that a change of any attribute behind a statement is found, as `docs/evidence/found.toml` lists.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "a test stops where its ground is missing"
)]

use crate::Folder;
use crate::stating::{Stating, TIME};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{SettlementId, TransactionId};
use purser_evidence::{Checkpoint, Note, TreeHead, build_consistency_proof};
use purser_log::{LogReader, ObjectStore};
use purser_store::ApprovalDecision;
use purser_testkit::{DECISIONS, LEDGER, USAGE, invariants::scan};
use purser_verify::{Trust, verify_document};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

type Row = HashMap<String, AttributeValue>;

/// The lines that the process logs.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub(crate) fn start() -> Self {
        let lines = Self::default();
        let writer = lines.clone();
        purser_api::log_to("info", move || writer.clone());
        lines
    }

    /// Returns the alarms that were logged since the last call.
    pub(crate) fn alarms(&self) -> Vec<Value> {
        let text = std::mem::take(&mut *self.0.lock().unwrap());
        let lines = String::from_utf8(text).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["message"] == "change.seen" || line["message"] == "statement.set_aside")
            .collect()
    }
}

/// A kind of row that a statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Rejection,
    Payment,
    Call,
    Reversal,
    Release,
    Payout,
    Approval,
    History,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Rejection,
        Self::Payment,
        Self::Call,
        Self::Reversal,
        Self::Release,
        Self::Payout,
        Self::Approval,
        Self::History,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Rejection => "rejection or escalation (decisions table)",
            Self::Payment => "confirmed payment (`S#`)",
            Self::Call => "its idempotency record (`I#`)",
            Self::Reversal => "reverted confirmation (decisions table)",
            Self::Release => "released payment (`S#`)",
            Self::Payout => "withdrawal (`S#`)",
            Self::Approval => "approved request (`AP#`)",
            Self::History => "entry of the decision history (`J#`)",
        }
    }

    const fn table(self) -> &'static str {
        match self {
            Self::Rejection | Self::Reversal => DECISIONS,
            Self::Payment | Self::Call | Self::Release | Self::Payout | Self::Approval => LEDGER,
            Self::History => USAGE,
        }
    }

    /// Returns whether this row has this kind and belongs to the decision with these ids.
    fn is_row(self, row: &Row, ids: &[String]) -> bool {
        let text = |name| row.get(name).and_then(|value| value.as_s().ok());
        let (Some(pk), Some(sk)) = (text("pk"), text("sk")) else {
            return false;
        };
        match self {
            Self::Rejection | Self::Reversal => ids.contains(sk),
            Self::Payment | Self::Release | Self::Payout => pk.starts_with("S#") && ids.contains(sk),
            Self::Call => pk.starts_with("I#") && text("sid").is_some_and(|id| ids.contains(id)),
            Self::Approval => pk
                .strip_prefix("AP#")
                .is_some_and(|request_prefix| ids.iter().any(|id| id == request_prefix)),
            Self::History => pk.starts_with("J#") && !pk.ends_with("#R") && ids.contains(sk),
        }
    }
}

/// A test case: a change of one row.
struct Case {
    kind: Kind,
    /// The changed attribute; `None` for the whole row.
    attribute: Option<String>,
    is_removed: bool,
    /// The ids of the decision: of the settlement, the transaction, the idempotency record, or the approval.
    ids: Vec<String>,
}

impl Case {
    fn finds(&self, alarm: &Value) -> bool {
        let text = alarm.to_string();
        self.ids.iter().any(|id| text.contains(id))
    }

    fn label(&self) -> &str {
        self.attribute.as_deref().unwrap_or("the row")
    }

    /// Rewrites or removes the attribute or the row.
    async fn change(&self, stating: &Stating, rows: &[Row]) {
        let row = rows.iter().find(|row| self.kind.is_row(row, &self.ids)).unwrap();
        let client = &stating.emulator.client;
        let Some(attribute) = &self.attribute else {
            let delete = client.delete_item().table_name(self.kind.table());
            let delete = delete.key("pk", row["pk"].clone()).key("sk", row["sk"].clone());
            delete.send().await.unwrap();
            return;
        };
        let mut row = row.clone();
        let value = row.remove(attribute).unwrap();
        if !self.is_removed {
            row.insert(attribute.clone(), rewritten(&value));
        }
        let put = client.put_item().table_name(self.kind.table());
        put.set_item(Some(row)).send().await.unwrap();
    }
}

/// Returns a different value, which can still be parsed if possible.
fn rewritten(value: &AttributeValue) -> AttributeValue {
    match value {
        AttributeValue::N(digits) => {
            let number: u64 = digits.parse().unwrap();
            AttributeValue::N((number + 1).to_string())
        }
        AttributeValue::S(text) => {
            let mut text = text.clone();
            let last = text.pop();
            text.push(if last == Some('1') { '2' } else { '1' });
            AttributeValue::S(text)
        }
        AttributeValue::B(bytes) => {
            let mut bytes = bytes.clone().into_inner();
            match bytes.last_mut() {
                Some(last) => *last ^= 1,
                None => bytes.push(1),
            }
            AttributeValue::B(Blob::new(bytes))
        }
        AttributeValue::Bool(value) => AttributeValue::Bool(!value),
        AttributeValue::M(members) => {
            let mut members = members.clone();
            let name = members.keys().min().unwrap().clone();
            let value = rewritten(&members[&name]);
            members.insert(name, value);
            AttributeValue::M(members)
        }
        AttributeValue::L(values) => AttributeValue::L(values.iter().skip(1).cloned().collect()),
        other => panic!("{other:?}"),
    }
}

/// Makes a decision for each case.
struct Rig {
    stating: Stating,
    number: u32,
    /// The last transaction hash consists of this byte 32 times.
    transaction: u8,
}

impl Rig {
    async fn decide(&mut self, kind: Kind) -> Vec<String> {
        self.number += 1;
        let key = format!("case {}", self.number);
        let before = self.ids_of_rejections().await;
        if kind == Kind::Rejection {
            assert_eq!(self.stating.pay(5_000, &key).await, None);
            let after = self.ids_of_rejections().await;
            return after.difference(&before).cloned().collect();
        }
        if kind == Kind::Approval {
            let id = self.stating.request_approval(&key).await.id;
            self.stating.decide(id, ApprovalDecision::Approve).await;
            return vec![id.to_string(), id.request_prefix()];
        }
        if kind == Kind::Payout {
            let id = self.stating.pay_out().await;
            // An agent can have only one pending withdrawal, so the previous withdrawal is released.
            self.stating.release(id).await;
            return vec![id.to_string()];
        }
        let id: SettlementId = self.stating.pay(1, &key).await.unwrap();
        if kind == Kind::Release {
            self.stating.release(id).await;
            return vec![id.to_string()];
        }
        self.transaction += 1;
        self.stating.confirm(id, self.transaction).await;
        if kind == Kind::Reversal {
            return vec![self.stating.revert(id).await.to_string()];
        }
        let rows = scan(&self.stating.emulator.client, LEDGER, None).await;
        let row = rows
            .iter()
            .find(|row| Kind::Payment.is_row(row, &[id.to_string()]))
            .unwrap();
        let mut ids = vec![id.to_string(), row["txid"].as_s().unwrap().clone()];
        if kind == Kind::Call {
            let row = rows.iter().find(|row| kind.is_row(row, &ids)).unwrap();
            ids.push(row["sk"].as_s().unwrap().clone());
        }
        ids
    }

    async fn ids_of_rejections(&self) -> BTreeSet<String> {
        let rows = scan(&self.stating.emulator.client, DECISIONS, None).await;
        rows.iter().map(|row| row["sk"].as_s().unwrap().clone()).collect()
    }

    async fn rows(&self, kind: Kind) -> Vec<Row> {
        scan(&self.stating.emulator.client, kind.table(), None).await
    }

    /// Returns two cases for each attribute of the sample's row (changed and removed), and one case for the row.
    async fn cases(&mut self, samples: &BTreeMap<Kind, Row>) -> Vec<Case> {
        let mut cases = Vec::new();
        for (kind, row) in samples {
            let attributes: BTreeSet<&String> = row.keys().filter(|name| *name != "pk" && *name != "sk").collect();
            let mut changes: Vec<_> = attributes
                .iter()
                .flat_map(|name| [(Some((*name).clone()), false), (Some((*name).clone()), true)])
                .collect();
            changes.push((None, true));
            for (attribute, is_removed) in changes {
                let decided = if *kind == Kind::History { Kind::Rejection } else { *kind };
                let ids = self.decide(decided).await;
                cases.push(Case {
                    kind: *kind,
                    attribute,
                    is_removed,
                    ids,
                });
            }
        }
        cases
    }

    async fn put_back(&self, kind: Kind, rows: Vec<Row>) {
        for row in rows {
            let put = self.stating.emulator.client.put_item().table_name(kind.table());
            put.set_item(Some(row)).send().await.unwrap();
        }
    }

    async fn change(&self, cases: &[Case]) {
        for kind in Kind::ALL {
            let rows = self.rows(kind).await;
            for case in cases.iter().filter(|case| case.kind == kind) {
                case.change(&self.stating, &rows).await;
            }
        }
    }
}

type Found = BTreeMap<(Kind, &'static str, String), BTreeMap<String, BTreeSet<&'static str>>>;

fn note(found: &mut Found, cases: &[Case], when: &'static str, finder: &'static str, alarms: &[Value]) {
    for case in cases {
        let change = if case.is_removed { "removed" } else { "rewritten" };
        let of_case = found.entry((case.kind, when, change.to_owned())).or_default();
        let finders = of_case.entry(case.label().to_owned()).or_default();
        if alarms.iter().any(|alarm| case.finds(alarm)) {
            finders.insert(finder);
        }
    }
}

/// Renders the attributes per kind, change and check that finds the change, as TOML.
fn table(found: &Found) -> String {
    let mut text = String::new();
    for ((kind, when, change), attributes) in found {
        let mut by_finders: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
        for (attribute, finders) in attributes {
            let finders = finders.iter().copied().collect();
            by_finders.entry(finders).or_default().push(attribute);
        }
        for (finders, attributes) in by_finders {
            let name = kind.name();
            writeln!(
                text,
                r#"  {{ row = "{name}", change = "{change} {when}", attributes = {attributes:?}, found_by = {finders:?} }},"#
            )
            .unwrap();
        }
    }
    text
}

/// Every change raises an alarm, except for the changes that the table names.
#[tokio::test]
async fn rewriting_or_removing_a_row_with_a_signed_statement_raises_an_alarm() {
    let folder = Folder::new();
    let lines = Lines::start();
    let stating = Stating::start(&folder.0).await;
    let events = stating.function(None);
    let mut rig = Rig {
        stating,
        number: 0,
        transaction: 0,
    };
    let mut samples = BTreeMap::new();
    let payment = rig.decide(Kind::Payment).await;
    let rejection = rig.decide(Kind::Rejection).await;
    let reversal = rig.decide(Kind::Reversal).await;
    let release = rig.decide(Kind::Release).await;
    let payout = rig.decide(Kind::Payout).await;
    let approval = rig.decide(Kind::Approval).await;
    rig.stating.state(&events).await;
    for kind in Kind::ALL {
        let ids = match kind {
            Kind::Payment | Kind::Call => &payment,
            Kind::Reversal => &reversal,
            Kind::Release => &release,
            Kind::Payout => &payout,
            Kind::Approval => &approval,
            Kind::Rejection | Kind::History => &rejection,
        };
        let rows = rig.rows(kind).await;
        samples.insert(kind, rows.into_iter().find(|row| kind.is_row(row, ids)).unwrap());
    }
    assert_eq!(lines.alarms(), [Value::Null; 0]);

    let mut found = Found::new();
    let (before, after) = ("before it is stated", "after it is stated");
    // No statement contains a value from an entry of the decision history.
    let of_rows = samples.iter().filter(|(kind, _)| **kind != Kind::History);
    let of_rows: BTreeMap<Kind, Row> = of_rows.map(|(kind, row)| (*kind, row.clone())).collect();
    let cases = rig.cases(&of_rows).await;
    let other = rig.stating.pay(1, "another's").await.unwrap();
    rig.stating.pass(Some(&events)).await;
    // The early statements are deleted, so that the next run signs the statements.
    std::fs::remove_dir_all(folder.0.join("log/signed")).unwrap();
    let rows = rig.rows(Kind::Approval).await;
    let approvals = rows
        .into_iter()
        .filter(|row| row["pk"].as_s().unwrap().starts_with("AP#"));
    let approvals = approvals.collect();
    rig.change(&cases).await;
    events.sign_pending_statements(TIME).await.unwrap();
    let log = LogReader::new(folder.log());
    let rows = rig.rows(Kind::Payment).await;
    let row = rows.iter().find(|row| Kind::Payment.is_row(row, &[other.to_string()]));
    let transaction = TransactionId::parse(row.unwrap()["txid"].as_s().unwrap()).unwrap();
    assert!(
        log.find_decision_statement(transaction, other.authorized_at())
            .await
            .unwrap()
            .is_some()
    );
    note(&mut found, &cases, before, "signing", &lines.alarms());
    rig.stating.pass(Some(&events)).await;
    note(&mut found, &cases, before, "stream", &lines.alarms());
    // An authorization reads all pending approvals, so their rows are restored first.
    rig.put_back(Kind::Approval, approvals).await;
    rig.stating.pass(Some(&events)).await;
    lines.alarms();

    let cases = rig.cases(&samples).await;
    rig.stating.state(&events).await;
    assert_eq!(lines.alarms(), [Value::Null; 0]);
    rig.change(&cases).await;
    rig.stating.pass(Some(&events)).await;
    note(&mut found, &cases, after, "stream", &lines.alarms());
    rig.stating.sleep();
    rig.stating.sleep();
    events.sign_pending_statements(TIME).await.unwrap();
    note(&mut found, &cases, after, "daily check", &lines.alarms());

    let table = table(&found);
    let file = include_str!("../../../../docs/evidence/found.toml");
    assert!(
        file.contains(&table),
        "docs/evidence/found.toml has other rows:\n{table}"
    );
}

/// The statement is signed from the stream's copy of the row. A later rewrite of the row is still found.
#[tokio::test]
async fn rewriting_a_decision_or_payment_row_after_early_signing_raises_an_alarm() {
    let folder = Folder::new();
    let lines = Lines::start();
    let stating = Stating::start(&folder.0).await;
    let events = stating.function(None);
    let mut rig = Rig {
        stating,
        number: 0,
        transaction: 0,
    };
    let mut samples = BTreeMap::new();
    for kind in [Kind::Rejection, Kind::Payment] {
        let ids = rig.decide(kind).await;
        let rows = rig.rows(kind).await;
        samples.insert(kind, rows.into_iter().find(|row| kind.is_row(row, &ids)).unwrap());
    }
    let mut found = Found::new();
    for when in ["signed ahead", "stated"] {
        let cases = rig.cases(&samples).await;
        rig.stating.pass(Some(&events)).await;
        assert!(folder.log().list("signed/", None, 1).await.unwrap().len() == 1);
        if when == "stated" {
            events.sign_pending_statements(TIME).await.unwrap();
        }
        assert_eq!(lines.alarms(), [Value::Null; 0]);
        rig.change(&cases).await;
        rig.stating.pass(Some(&events)).await;
        events.sign_pending_statements(TIME).await.unwrap();
        rig.stating.sleep();
        rig.stating.sleep();
        events.sign_pending_statements(TIME).await.unwrap();
        note(&mut found, &cases, when, "somebody", &lines.alarms());
    }
    let of = |wanted: &str| {
        let rows = found.iter().filter(|((_, when, _), _)| *when == wanted);
        rows.map(|((kind, _, change), finders)| ((*kind, change.clone()), finders.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(of("signed ahead"), of("stated"));
}

/// The contents of objects by key.
type Objects = BTreeMap<String, Vec<u8>>;

fn objects(folder: &Path) -> Objects {
    let mut objects = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let key = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                objects.insert(key, std::fs::read(&path).unwrap());
            }
        }
    }
    objects
}

fn restore(folder: &Path, objects: &Objects) {
    let _missing = std::fs::remove_dir_all(folder);
    for (key, bytes) in objects {
        let path = folder.join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Restores an older version of the log and appends other payments. Returns the objects of the new log.
async fn fork(folder: &Folder, stating: &Stating, older: &Objects, payments: u8) -> Objects {
    let path = folder.0.join("log");
    restore(&path, older);
    restore(&folder.0.join("archive"), &Objects::new());
    for number in 0..payments {
        stating.pay(1, &format!("fork {number}")).await.unwrap();
    }
    stating.state(&stating.function(None)).await;
    objects(&path)
}

/// What a reader saved from a log: the trust document, the tree head, and proven decisions.
struct Kept {
    trust: Trust,
    head: TreeHead,
    decisions: Vec<(SettlementId, TransactionId)>,
}

fn head_of(checkpoint: &[u8]) -> TreeHead {
    let note = Note::parse(std::str::from_utf8(checkpoint).unwrap()).unwrap();
    Checkpoint::parse(note.unverified_text()).unwrap().tree_head()
}

impl Kept {
    /// Returns whether the log still proves each decision with the saved keys.
    async fn proves_all(&self, objects: &ObjectStore) -> bool {
        let log = LogReader::new(objects.clone());
        for (settlement, transaction) in &self.decisions {
            let found = log
                .find_decision_statement(*transaction, settlement.authorized_at())
                .await;
            let Ok(Some(found)) = found else { return false };
            if !verify_document(&found.proof, &self.trust).is_ok_and(|report| report.is_verified()) {
                return false;
            }
        }
        true
    }

    /// Returns whether the log extends the saved checkpoint.
    async fn is_grown(&self, objects: &ObjectStore) -> bool {
        let Ok(Some(checkpoint)) = objects.get("checkpoint").await else {
            return false;
        };
        let Ok(text) = std::str::from_utf8(&checkpoint.bytes) else {
            return false;
        };
        if Note::parse(text).is_err() {
            return false;
        }
        let head = head_of(&checkpoint.bytes);
        head.size >= self.head.size && build_consistency_proof(objects, &self.head, &head).await.is_ok()
    }
}

/// Each object of the log is changed, removed, and replaced by an older version. Finally, the log is forked.
#[tokio::test]
async fn rewritten_removed_and_restored_log_objects_raise_an_alarm() {
    let folder = Folder::new();
    let lines = Lines::start();
    let stating = Stating::start(&folder.0).await;
    let path = folder.0.join("log");
    let mut events = stating.function(None);
    let mut kept = Kept {
        trust: Trust::parse(r#"{"jwks":{"keys":[]},"logs":[]}"#).unwrap(),
        head: TreeHead::empty(),
        decisions: Vec::new(),
    };
    let mut versions = Vec::new();
    for round in 0..2 {
        for number in 0..3 {
            let id = stating.pay(1, &format!("{round} {number}")).await.unwrap();
            let rows = scan(&stating.emulator.client, LEDGER, None).await;
            let row = rows.iter().find(|row| Kind::Payment.is_row(row, &[id.to_string()]));
            let transaction = TransactionId::parse(row.unwrap()["txid"].as_s().unwrap()).unwrap();
            kept.decisions.push((id, transaction));
        }
        stating.state(&events).await;
        versions.push(objects(&path));
    }
    let [older, newest] = &versions[..] else { panic!() };
    kept.trust = Trust::parse(&folder.trust().to_string()).unwrap();
    kept.head = head_of(&newest["checkpoint"]);

    let mut changes: Vec<(String, &str, Objects)> = Vec::new();
    for (key, bytes) in newest {
        let mut flipped = bytes.clone();
        flipped[0] ^= 1;
        let with = |bytes: Option<Vec<u8>>| {
            let mut objects = newest.clone();
            objects.remove(key);
            objects.extend(bytes.map(|bytes| (key.clone(), bytes)));
            objects
        };
        let name = key.split('/').next().unwrap().to_owned();
        let name = if key.starts_with("tile/entries") {
            "tile/entries".to_owned()
        } else {
            name
        };
        changes.push((name.clone(), "flipped", with(Some(flipped))));
        changes.push((name.clone(), "removed", with(None)));
        if let Some(old) = older.get(key).filter(|old| *old != bytes) {
            changes.push((name, "restored", with(Some(old.clone()))));
        }
    }
    changes.push(("everything".to_owned(), "restored", older.clone()));

    // An attacker who can write the log can't write the archive, so the archive is kept.
    let archive = objects(&folder.0.join("archive"));
    let forked = fork(&folder, &stating, older, 5).await;
    let trust = Trust::parse(std::str::from_utf8(&forked["trust.json"]).unwrap()).unwrap();
    let note = std::str::from_utf8(&forked["checkpoint"]).unwrap();
    trust.policy.open_checkpoint(&Note::parse(note).unwrap()).unwrap();
    assert!(head_of(&forked["checkpoint"]).size > kept.head.size);
    // Without the archive, only a reader with a saved checkpoint finds the fork.
    assert_eq!(lines.alarms(), [Value::Null; 0]);
    assert!(!kept.is_grown(&folder.log()).await);
    changes.push(("everything".to_owned(), "forked", forked));
    let mut found: BTreeMap<(String, &str), BTreeSet<&str>> = BTreeMap::new();
    for (number, (name, change, objects)) in changes.iter().enumerate() {
        restore(&path, objects);
        restore(&folder.0.join("archive"), &archive);
        let finders = found.entry((name.clone(), change)).or_default();
        lines.alarms();
        let store = folder.log();
        // The readers check the log before it continues and afterwards.
        let mut readers = (kept.proves_all(&store).await, kept.is_grown(&store).await);
        stating.pay(1, &format!("after {number}")).await.unwrap();
        events = stating.function(None);
        stating.pass(Some(&events)).await;
        if events.sign_pending_statements(TIME).await.is_err() {
            finders.insert("`events` stops");
        }
        stating.now();
        readers.0 &= kept.proves_all(&store).await;
        readers.1 &= kept.is_grown(&store).await;
        stating.sleep();
        stating.sleep();
        if events.sign_pending_statements(TIME).await.is_err() {
            finders.insert("`events` stops");
        }
        if !lines.alarms().is_empty() {
            finders.insert("daily check");
        }
        if !readers.0 {
            finders.insert("reader of a statement");
        }
        if !readers.1 {
            finders.insert("reader who kept a checkpoint");
        }
    }
    let mut table = String::new();
    for ((name, change), finders) in &found {
        let finders: Vec<&&str> = finders.iter().collect();
        writeln!(
            table,
            r#"  {{ object = "{name}", change = "{change}", found_by = {finders:?} }},"#
        )
        .unwrap();
    }
    let file = include_str!("../../../../docs/evidence/found.toml");
    assert!(
        file.contains(&table),
        "docs/evidence/found.toml has other objects:\n{table}"
    );
}
