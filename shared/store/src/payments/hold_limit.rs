//! Limits the number of one agent's holds, so that reconcile can resolve all holds in time.
//!
//! A hold is open until its payment is confirmed or can no longer be made, which takes at most as long as the longest
//! authorization is valid. The limit therefore counts all payments within a period of this duration, regardless of
//! their outcome, so that the end of a hold needs no write. Periods have fixed boundaries, so an interval across a
//! boundary may contain twice the maximum. Each instance may exceed the maximum by a chunk. `people/chunked_counter.rs`
//! implements the counters.

use crate::people::chunked_counter::ChunkedCounter;
use aws_sdk_dynamodb::Client;
use purser_domain::{AgentId, Duration, Result, Timestamp};
use std::{num::NonZeroU64, sync::Arc};

/// The limit on the number of an agent's payments per period, with one counter per agent. A period is as long as the
/// longest authorization is valid.
#[derive(Clone, Debug)]
pub struct HoldLimit(ChunkedCounter<AgentId, ()>);

impl HoldLimit {
    /// Creates the limit with counters in the throttle table. An agent may make `max_holds` payments per period. The period
    /// is as long as the longest authorization is valid.
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
