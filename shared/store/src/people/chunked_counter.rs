//! Counters per period that all Lambda instances share, and update in chunks of a fiftieth of the limit. The number of
//! allowed calls is between limit and limit + instances × chunk, plus the calls that arrive while a chunk is being
//! stored. If a chunk can't be stored, no call is rejected, so no spending limit may depend on these counters.

use crate::{
    codec::attribute::Attribute as _,
    codec::fault::store_error,
    codec::item::{Draft, Row},
    codec::key::{self, ThrottleKind},
    people::throttle::{RETENTION_SECS, too_many_requests_error},
};
use aws_sdk_dynamodb::{Client, types::ReturnValue};
use purser_domain::{Result, Timestamp};
use std::{
    collections::HashMap,
    hash::Hash,
    num::NonZeroU64,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The number of chunks into which the limit is divided.
const CHUNKS: u32 = 50;
/// A full cache drops the counters below their limit, or all counters if every counter has reached the limit.
const MAX_CACHED: usize = 10_000;

/// Counters with the same limit, one per key `K`. A counter that has reached the limit has a record `R`.
#[derive(Debug)]
pub(crate) struct ChunkedCounter<K, R> {
    db: Client,
    table: Arc<str>,
    limit: u32,
    span_secs: NonZeroU64,
    counts: Arc<Mutex<Counts<K, R>>>,
}

/// An instance's counted calls in one period.
#[derive(Debug)]
struct Counts<K, R> {
    span: u64,
    of_keys: HashMap<K, Count<R>>,
}

#[derive(Debug)]
struct Count<R> {
    /// The number of calls that the stored counter does not contain yet.
    uncounted: u32,
    /// The record of a counter that has reached the limit.
    reached: Option<R>,
}

impl<K, R> Counts<K, R> {
    fn new(span: u64) -> Self {
        Self {
            span,
            of_keys: HashMap::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, R> Counts<K, R> {
    /// Returns the counts of the period `span`. Discards cached counts of another period.
    fn counts_in_span(&mut self, span: u64) -> &mut HashMap<K, Count<R>> {
        if self.span != span {
            *self = Self::new(span);
        }
        &mut self.of_keys
    }

    fn find_or_insert_count(&mut self, key: K, span: u64) -> &mut Count<R> {
        self.counts_in_span(span).entry(key).or_insert(Count {
            uncounted: 0,
            reached: None,
        })
    }

    /// Counts a call in memory. Returns `true` if the caller must add a full chunk of calls to the stored counter.
    fn count_call_and_check_full_chunk(&mut self, key: K, span: u64, chunk: u32) -> bool {
        let keys = self.counts_in_span(span);
        if keys.len() >= MAX_CACHED && !keys.contains_key(&key) {
            keys.retain(|_, count| count.reached.is_some());
            if keys.len() >= MAX_CACHED {
                keys.clear();
            }
        }
        let count = self.find_or_insert_count(key, span);
        count.uncounted = count.uncounted.saturating_add(1);
        let is_full = count.uncounted >= chunk;
        if is_full {
            count.uncounted = 0;
        }
        is_full
    }

    fn mark_limit_reached(&mut self, key: K, span: u64, record: R) {
        // A response that arrives after the chunk's period has ended has no effect.
        if self.span == span {
            self.find_or_insert_count(key, span).reached = Some(record);
        }
    }

    fn find_reached_limit_record(&mut self, key: K, span: u64) -> Option<&R> {
        self.counts_in_span(span).get(&key)?.reached.as_ref()
    }
}

impl<K: Copy + Eq + Hash + Send + 'static, R: Send + 'static> ChunkedCounter<K, R> {
    /// Creates counters in `table` that reject requests after `limit` requests in `span_secs` seconds.
    pub(crate) fn new(db: Client, table: Arc<str>, limit: u32, span_secs: NonZeroU64) -> Self {
        Self {
            db,
            table,
            limit,
            span_secs,
            counts: Arc::new(Mutex::new(Counts::new(0))),
        }
    }

    /// Returns 429 if the counter has reached the limit in this period and `matches_record` accepts the record.
    pub(crate) fn check_limit(&self, key: K, now: Timestamp, matches_record: impl FnOnce(&R) -> bool) -> Result<()> {
        if !self
            .lock_counts()
            .find_reached_limit_record(key, self.span_number(now))
            .is_some_and(matches_record)
        {
            return Ok(());
        }
        Err(too_many_requests_error(now, self.span_secs).into())
    }

    /// Counts one call. `scope` is the counter's name in the table. A full chunk is stored in the background.
    pub(crate) fn count_call(
        &self,
        key: K,
        now: Timestamp,
        scope: impl FnOnce() -> String,
        record: impl FnOnce() -> Option<R>,
    ) {
        let span = self.span_number(now);
        let chunk = self.limit.div_euclid(CHUNKS).max(1);
        if !self.lock_counts().count_call_and_check_full_chunk(key, span, chunk) {
            return;
        }
        let Some(record) = record() else { return };
        let (counter, scope) = (self.clone(), scope());
        tokio::spawn(async move {
            match counter.add_chunk_and_read_total(&scope, span, chunk, now).await {
                Ok(count) if count >= counter.limit => counter.lock_counts().mark_limit_reached(key, span, record),
                Ok(_) => {}
                Err(error) => tracing::warn!(cause = %error, "throttle.unavailable"),
            }
        });
    }

    /// Adds `chunk` calls to a stored counter. Returns the number of calls of all instances in this period.
    async fn add_chunk_and_read_total(&self, scope: &str, span: u64, chunk: u32, now: Timestamp) -> Result<u32> {
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(
                Draft::with_partition_key(key::throttle_key(ThrottleKind::Api, scope, span)).into_item(),
            ))
            .update_expression("ADD n :chunk SET #ttl = if_not_exists(#ttl, :ttl)")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":chunk", chunk.write())
            .expression_attribute_values(":ttl", now.secs().saturating_add(RETENTION_SECS).write())
            .return_values(ReturnValue::UpdatedNew);
        let response = update.send().await.map_err(store_error("adding to a shared counter"))?;
        Row::new(&self.table, &response.attributes.unwrap_or_default()).get("n")
    }

    fn span_number(&self, now: Timestamp) -> u64 {
        now.secs() / self.span_secs
    }

    fn lock_counts(&self) -> MutexGuard<'_, Counts<K, R>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A derived implementation would require `K: Clone` and `R: Clone`.
impl<K, R> Clone for ChunkedCounter<K, R> {
    fn clone(&self) -> Self {
        Self {
            db: self.db.clone(),
            table: Arc::clone(&self.table),
            limit: self.limit,
            span_secs: self.span_secs,
            counts: Arc::clone(&self.counts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_fill_counter_chunks_separately_for_each_key_and_period() {
        let mut counts = Counts::<char, ()>::new(0);
        let rows = [
            ('a', 0, false),
            ('b', 0, false),
            ('a', 0, false),
            ('a', 0, true),
            ('b', 0, false),
            ('a', 0, false),
            // A partial chunk is dropped at the end of the period.
            ('a', 1, false),
            ('b', 1, false),
            ('a', 1, false),
            ('a', 1, true),
        ];
        for (n, (key, span, is_full)) in rows.into_iter().enumerate() {
            assert_eq!(counts.count_call_and_check_full_chunk(key, span, 3), is_full, "{n}");
        }
        assert!(
            counts.count_call_and_check_full_chunk('a', 1, 1),
            "the smallest chunk is one"
        );
    }

    #[test]
    fn the_cache_keeps_counters_at_their_limit_and_drops_others() {
        let mut counts = Counts::new(0);
        counts.mark_limit_reached(0, 0, "record");
        for key in 1..=20_500 {
            counts.count_call_and_check_full_chunk(key, 0, 3);
            assert!(counts.of_keys.len() <= MAX_CACHED, "{key}");
        }
        assert_eq!(counts.find_reached_limit_record(0, 0), Some(&"record"));
        // All counters have reached their limit, so all are dropped.
        for key in 0..=10_000 {
            counts.count_call_and_check_full_chunk(key, 0, 3);
            counts.mark_limit_reached(key, 0, "record");
        }
        assert_eq!(counts.of_keys.len(), 1);
    }

    #[test]
    fn a_reached_limit_applies_only_to_its_time_span() {
        let mut counts = Counts::new(1);
        counts.mark_limit_reached('a', 1, "record");
        assert_eq!(counts.find_reached_limit_record('a', 1), Some(&"record"));
        assert_eq!(counts.find_reached_limit_record('b', 1), None);
        assert_eq!(counts.find_reached_limit_record('a', 2), None);
        // The response about a chunk of the previous period has no effect.
        counts.mark_limit_reached('a', 1, "record");
        assert_eq!(counts.find_reached_limit_record('a', 2), None);
    }
}
