//! Limits the number of one agent's holds, so that no agent creates more holds than reconcile can resolve in time.
//!
//! A hold is open until its payment is confirmed or can no longer be made, which takes at most as long as the longest
//! authorization is valid. Therefore all payments within a span of this duration are counted, regardless of their
//! outcome, and the end of a hold needs no write. Spans are fixed, so an interval of the same duration that crosses a
//! boundary may contain twice the maximum, and each instance may exceed the maximum by a chunk.
//! `people/chunked_counter.rs` implements the counters.

use crate::people::chunked_counter::ChunkedCounter;
use aws_sdk_dynamodb::Client;
use purser_domain::{AgentId, Duration, Result, Timestamp};
use std::{num::NonZeroU64, sync::Arc};

/// The maximum number of an agent's payments within one span.
#[derive(Clone, Debug)]
pub struct HoldLimit(ChunkedCounter<AgentId, ()>);

impl HoldLimit {
    /// Creates the limit with counters in the throttle table: at most `most` payments per agent within a span as long
    /// as the longest authorization.
    pub fn new(db: Client, table: impl Into<Arc<str>>, most: u32, longest: Duration) -> Self {
        let span = NonZeroU64::new(longest.secs()).unwrap_or(NonZeroU64::MIN);
        Self(ChunkedCounter::new(db, table.into(), most, span))
    }

    /// Returns 429 until the span ends if the agent has reached the limit.
    pub fn check_limit(&self, agent: AgentId, now: Timestamp) -> Result<()> {
        self.0.check_limit(agent, now, |()| true)
    }

    /// Counts a reserved payment.
    pub fn count_hold(&self, agent: AgentId, now: Timestamp) {
        self.0.count_call(agent, now, || format!("holds {agent}"), || Some(()));
    }
}
