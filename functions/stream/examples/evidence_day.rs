//! Writes the signed log of two days of decisions and payments into a new folder, for the independent verifiers of
//! `tests/evidence`:
//!
//! ```text
//! evidence_day <folder>
//! ```
//!
//! The folders `log` and `archive` will contain the objects. A key from the secret signs the first day, and a KMS key
//! signs the second day.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "an example stops where its ground is missing"
)]

#[path = "../tests/stating/mod.rs"]
mod stating;

use stating::Stating;
use std::fs::create_dir;
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
    stating.state(&events).await;

    stating.sleep();
    let key = stating.kms.create_p256();
    let events = stating.function(Some(&key));
    for number in 1..=3 {
        let id = stating.pay(20, &format!("day 2, {number}")).await.unwrap();
        stating.confirm(id, 20 + number).await;
        stating.state(&events).await;
    }
}
