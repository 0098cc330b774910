//! Counting a payment costs a small part of the payment itself.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod counting;

use counting::{FLEETS, measure};

#[tokio::test]
async fn counting_a_payment_costs_two_write_units_at_most_where_an_agent_pays_each_second() {
    for fleet in &FLEETS {
        let counted = measure(fleet).await;
        let words = format!(
            "{}: {} and {} hundredths, {} records of a batch",
            fleet.name, counted.write, counted.read, counted.records_of_a_batch
        );
        assert!(counted.write <= fleet.limit, "{words}");
        // Each agent's owner is read once for a batch.
        assert!(counted.read <= 200, "{words}");
    }
}
