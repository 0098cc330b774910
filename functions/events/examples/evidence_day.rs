//! Writes what the function states of two days of decisions and payments into a new folder, for the foreign tools of
//! `tests/evidence`:
//!
//!     evidence_day <folder>
//!
//! | file | content |
//! |---|---|
//! | `log/`, `archive/` | the objects of the log and of the archive: the first day is signed with `EdDSA`, the second with ES256 by KMS |
//! | `sample/` | of the first day, what `docs/evidence/sample` publishes |

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "an example stops where its ground is missing"
)]

#[path = "../tests/stating/mod.rs"]
mod stating;

use purser_domain::TransactionId;
use purser_log::{LogReader, ObjectStore};
use serde_json::{Value, json};
use stating::Stating;
use std::fs::{create_dir, read_to_string, write};
use std::path::Path;

#[tokio::main]
async fn main() {
    let folder = std::env::args_os().nth(1).unwrap();
    let folder = Path::new(&folder);
    create_dir(folder).unwrap();
    let stating = Stating::start(folder).await;
    let events = stating.function(None);
    for number in 1..=5 {
        let id = stating
            .pay(10 * u64::from(number), &format!("day 1, {number}"))
            .await
            .unwrap();
        if number == 3 {
            stating.confirm(id, number).await;
        }
    }
    assert_eq!(stating.pay(5_000, "day 1, blocked").await, None);
    let proven = stating.pay(60, "day 1, proven").await.unwrap();
    stating.confirm(proven, 9).await;
    stating.state(&events).await;

    let sample = folder.join("sample");
    create_dir(&sample).unwrap();
    let log = folder.join("log");
    let reader = LogReader::new(ObjectStore::folder(&log));
    let at = proven.authorized_at();
    let receipt = reader.receipt(proven, at).await.unwrap().unwrap();
    // The decision has the id of its own that the receipt names.
    let payload: Value = serde_json::from_slice(&payload_of(&receipt.statement)).unwrap();
    let transaction = TransactionId::parse(payload["transaction_id"].as_str().unwrap()).unwrap();
    let decision = reader.decision(transaction, at).await.unwrap().unwrap();
    let trust = read_to_string(log.join("trust.json")).unwrap();
    let keys: Value = serde_json::from_str(&trust).unwrap();
    let evidence =
        json!({"transaction_id": transaction.to_string(), "decision": decision, "receipt": receipt, "inputs": null});
    for (name, text) in [
        ("statement.jws", receipt.statement.clone()),
        ("proof.txt", receipt.proof.clone()),
        ("checkpoint", read_to_string(log.join("checkpoint")).unwrap()),
        ("jwks.json", serde_json::to_string_pretty(&keys["jwks"]).unwrap() + "\n"),
        ("trust.json", serde_json::to_string_pretty(&keys).unwrap() + "\n"),
        ("evidence.json", serde_json::to_string_pretty(&evidence).unwrap() + "\n"),
    ] {
        write(sample.join(name), text).unwrap();
    }

    stating.sleep();
    let key = stating.kms.create_p256();
    let events = stating.function(Some(&key));
    for number in 1..=3 {
        let id = stating.pay(20, &format!("day 2, {number}")).await.unwrap();
        stating.confirm(id, 20 + number).await;
        stating.state(&events).await;
    }
}

fn payload_of(statement: &str) -> Vec<u8> {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let payload = statement.split('.').nth(1).unwrap();
    BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()
}
