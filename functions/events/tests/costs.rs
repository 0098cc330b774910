//! Folding a payment into the journal costs a small part of the payment itself.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod folding;

use folding::{FLEETS, measure};

/// Each fleet has a limit of write units per payment; reads and the writes of one item are limited, too.
#[tokio::test]
async fn folding_payments_stays_within_capacity_limits() {
    for fleet in &FLEETS {
        let folded = measure(fleet).await;
        let words = format!(
            "{}: {} and {} hundredths, {} records of a batch, {} writes of an item",
            fleet.name, folded.write, folded.read, folded.records_of_a_batch, folded.hottest
        );
        assert!(folded.write <= fleet.limit, "{words}");
        // Each item of sums is written once per batch.
        assert!(folded.hottest <= 1, "{words}");
        // The owner of each agent and each item of sums is read once per batch, and the sums by agent twice.
        assert!(folded.read <= fleet.read_limit, "{words}");
    }
}
