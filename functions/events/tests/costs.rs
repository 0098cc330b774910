//! Counting a payment costs a small part of the payment itself.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod counting;

use counting::{FLEETS, measure};

/// Each fleet has a limit of write units per payment; reads and the writes of one row are limited, too.
#[tokio::test]
async fn payment_counting_stays_within_capacity_limits() {
    for fleet in &FLEETS {
        let counted = measure(fleet).await;
        let words = format!(
            "{}: {} and {} hundredths, {} records of a batch, {} writes of a row",
            fleet.name, counted.write, counted.read, counted.records_of_a_batch, counted.hottest
        );
        assert!(counted.write <= fleet.limit, "{words}");
        // One write for each part of the agents, because the rows of a part fill a transaction. An owner with 1,000
        // payments a second has one batch a second, so 32 of the 1,000 units that a partition takes.
        assert!(counted.hottest <= 16, "{words}");
        // The owner of each agent is read once per batch.
        assert!(counted.read <= 200, "{words}");
    }
}
