//! Limits the costs of a payment's decision history and statements. `infra/sam/costs.py` reads these limits.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod folding;
mod stating;

use folding::{FLEETS, measure};
use purser_testkit::Units;
use stating::Stating;
use std::path::{Path, PathBuf};

/// The write units and read units per payment stay within each fleet's limits.
#[tokio::test]
async fn aggregating_payments_stays_within_capacity_limits() {
    for fleet in &FLEETS {
        let folded = measure(fleet).await;
        let words = format!(
            "{}: {} and {} hundredths, {} records of a batch, {} writes of an item",
            fleet.name, folded.write, folded.read, folded.records_of_a_batch, folded.hottest
        );
        assert!(folded.write <= fleet.limit, "{words}");
        // Each item with sums is written once per batch.
        assert!(folded.hottest <= 1, "{words}");
        // Owners and items with sums are read once per batch. The sums per agent are read twice.
        assert!(folded.read <= fleet.read_limit, "{words}");
    }
}

/// The capacity units for the decision history of a payment in separate batches, in tenths.
const HISTORY: Units = Units { read: 80, write: 70 };
/// The capacity units for the payment's two statements, in tenths.
const STATEMENTS: Units = Units { read: 60, write: 0 };
/// The capacity units of the daily check for a payment, in tenths.
const DAILY_CHECK: Units = Units { read: 45, write: 0 };
/// The number of database calls of the daily check for a payment.
const CHECK_CALLS: usize = 5;
/// The number of signatures by the statements' key, one for each statement.
const SIGNATURES: usize = 2;
/// The number of objects that the log writes in a minute with statements.
const OBJECTS_OF_A_MINUTE: usize = 10;

#[tokio::test]
async fn the_cost_of_a_single_payment_is_counted_exactly() {
    let folder = std::env::temp_dir().join(format!("purser-costs-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir_all(&folder).unwrap();
    let stating = Stating::start(&folder).await;
    let events = stating.function(Some(&stating.kms.create_p256()));
    let signatures = || {
        stating
            .kms
            .asked()
            .iter()
            .filter(|(operation, _)| operation == "Sign")
            .count()
    };
    let units = || Units::sum(&stating.database.calls().take());
    let files = || contents(&folder.join("log"));
    // The first payment reads data that is then cached for later payments.
    let first = stating.pay(10, "first").await.unwrap();
    stating.confirm(first, 1).await;
    stating.state(&events).await;
    let _first = (units(), signatures());

    let id = stating.pay(10, "second").await.unwrap();
    stating.fold().await;
    stating.confirm(id, 2).await;
    stating.fold().await;
    assert_eq!((units(), signatures()), (HISTORY, 0));
    let before = files();
    stating.state(&events).await;
    assert_eq!((units(), signatures()), (STATEMENTS, SIGNATURES));
    let written = files().into_iter().filter(|file| !before.contains(file)).count();
    assert!(written <= OBJECTS_OF_A_MINUTE, "{written}");

    stating.sleep();
    stating.state(&events).await;
    let of_both = Units {
        read: 2 * DAILY_CHECK.read,
        write: 2 * DAILY_CHECK.write,
    };
    let calls = stating.database.calls().take();
    assert_eq!((Units::sum(&calls), calls.len()), (of_both, 2 * CHECK_CALLS));
    assert_eq!(signatures(), 0, "nothing is signed again");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The append of statements that were signed early only checks that each payment is still confirmed.
#[tokio::test]
async fn appending_statements_signed_early_signs_nothing_and_reads_each_payment_once() {
    const PAYMENTS: u8 = 20;
    let folder = std::env::temp_dir().join(format!("purser-costs-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir_all(&folder).unwrap();
    let stating = Stating::start(&folder).await;
    let events = stating.function(Some(&stating.kms.create_p256()));
    let signatures = || {
        let asked = stating.kms.asked();
        asked.iter().filter(|(operation, _)| operation == "Sign").count()
    };
    let mut paid = Vec::new();
    for n in 0..PAYMENTS {
        paid.push(stating.pay(10, &format!("busy {n}")).await.unwrap());
    }
    stating.pass(Some(&events)).await;
    for (n, id) in (0..).zip(paid) {
        stating.confirm(id, n).await;
    }
    stating.pass(Some(&events)).await;
    assert_eq!(signatures(), usize::from(PAYMENTS) * SIGNATURES);

    let _ahead = stating.database.calls().take();
    stating.state(&events).await;
    let calls = stating.database.calls().take();
    let reads = calls.iter().filter(|call| call.operation == "GetItem").count();
    assert_eq!((signatures(), reads), (0, usize::from(PAYMENTS)));
    let log = purser_log::LogReader::new(purser_log::ObjectStore::open_folder(folder.join("log")));
    let checkpoint = String::from_utf8(log.read_checkpoint().await.unwrap().unwrap()).unwrap();
    assert_eq!(checkpoint.lines().nth(1), Some("40"));
    assert!(!folder.join("log/signed").exists() || contents(&folder.join("log/signed")).is_empty());

    stating.sleep();
    stating.state(&events).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                contents(&path)
            } else {
                vec![(path.clone(), std::fs::read(&path).unwrap())]
            }
        })
        .collect()
}
