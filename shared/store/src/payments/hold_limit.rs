//! The cap on the holds of one agent: what one agent makes wait for the chain must not fill what reconcile ends in time.
//!
//! A hold is open until its payment is confirmed or can no longer be made, which takes as long as the longest
//! authorization. So payments of a span of that length are counted, however they end: at a hold's end nothing more has
//! to be written. Spans are fixed, so two that follow each other may have twice the cap in one span's length, and each
//! environment may add a chunk. How they are counted: `people/chunked_counter.rs`.

use crate::people::chunked_counter::ChunkedCounter;
use aws_sdk_dynamodb::Client;
use purser_domain::{AgentId, Duration, Result, Timestamp};
use std::{num::NonZeroU64, sync::Arc};

/// The cap on the payments that one agent is allowed while one of them can be open.
#[derive(Clone, Debug)]
pub struct HoldLimit(ChunkedCounter<AgentId, ()>);

impl HoldLimit {
    /// The counters in the throttle's table, each limited to `most` in a span as long as the longest authorization.
    pub fn new(db: Client, table: impl Into<Arc<str>>, most: u32, longest: Duration) -> Self {
        let span = NonZeroU64::new(longest.secs()).unwrap_or(NonZeroU64::MIN);
        Self(ChunkedCounter::new(db, table.into(), most, span))
    }

    /// 429 until the span ends, if the agent was allowed that many.
    pub fn check(&self, agent: AgentId, now: Timestamp) -> Result<()> {
        self.0.check(agent, now, |()| true)
    }

    /// Counts a payment that was reserved.
    pub fn count(&self, agent: AgentId, now: Timestamp) {
        self.0.count(agent, now, || format!("holds {agent}"), || Some(()));
    }
}
