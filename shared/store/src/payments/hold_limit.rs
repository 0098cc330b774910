//! Limits the number of one agent's holds (reserved payments whose outcome is open), so that the function `reconcile`
//! can resolve all holds in time. The limit counts the payments of a period that is as long as the longest
//! authorization is valid. Periods have fixed boundaries, so an interval across a boundary may contain twice the
//! maximum. Each instance may exceed the maximum by a chunk (`people/chunked_counter.rs`).

use crate::people::chunked_counter::ChunkedCounter;
use aws_sdk_dynamodb::Client;
use purser_domain::{AgentId, Duration, Result, Timestamp};
use std::{num::NonZeroU64, sync::Arc};

/// The limit on the number of an agent's payments per period.
#[derive(Clone, Debug)]
pub struct HoldLimit(ChunkedCounter<AgentId, ()>);

impl HoldLimit {
    /// Creates the limit: an agent may make `max_holds` payments per period of `max_duration`.
    pub fn new(db: Client, table: impl Into<Arc<str>>, max_holds: u32, max_duration: Duration) -> Self {
        let span = NonZeroU64::new(max_duration.secs()).unwrap_or(NonZeroU64::MIN);
        Self(ChunkedCounter::new(db, table.into(), max_holds, span))
    }

    /// Returns 429 until the period ends if the agent has reached the limit.
    pub fn check_limit(&self, agent: AgentId, now: Timestamp) -> Result<()> {
        self.0.check_limit(agent, now, |()| true)
    }

    /// Counts a reserved payment.
    pub fn count_hold(&self, agent: AgentId, now: Timestamp) {
        self.0.count_call(agent, now, || format!("holds {agent}"), || Some(()));
    }
}
