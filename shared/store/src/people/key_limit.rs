//! Limits an agent key's requests across all source addresses. Only calls with a verified key are counted, so a caller
//! without the key's secret can't use up the limit.

use crate::people::{chunked_counter::ChunkedCounter, throttle::SECONDS_PER_MINUTE};
use aws_sdk_dynamodb::Client;
use purser_domain::{Agent, AgentId, AgentKey, KeyId, PresentedKey, Result, Timestamp};
use std::sync::Arc;

/// Limits the requests of each agent key per minute.
#[derive(Clone, Debug)]
pub struct KeyLimit(ChunkedCounter<(AgentId, KeyId), AgentKey>);

impl KeyLimit {
    /// Creates the limit with counters in this table: `limit_per_minute` requests per key.
    pub fn new(db: Client, table: impl Into<Arc<str>>, limit_per_minute: u32) -> Self {
        Self(ChunkedCounter::new(
            db,
            table.into(),
            limit_per_minute,
            SECONDS_PER_MINUTE,
        ))
    }

    /// Returns 429 if the key has reached this minute's limit.
    pub(crate) fn check_limit(&self, presented_key: &PresentedKey, now: Timestamp) -> Result<()> {
        // Only callers with the key's secret get 429. Authentication rejects all other callers.
        let is_its_secret = |key: &AgentKey| presented_key.matches_key(key, now);
        self.0
            .check_limit((presented_key.agent, presented_key.key), now, is_its_secret)
    }

    pub(crate) fn count_call(&self, agent: &Agent, key: KeyId, now: Timestamp) {
        let scope = || format!("key {}#{key}", agent.id);
        self.0
            .count_call((agent.id, key), now, scope, || agent.find_key(key).cloned());
    }
}
