//! The throttle: one counter per scope and minute. If the counter can't be written, the call continues, because the
//! protected tables report their own failures (`docs/decisions.md` §9).

use crate::{
    codec::attribute::Attribute as _, codec::client::client_without_throttling_retries, codec::item::Draft, codec::key,
    codec::key::ThrottleKind, transact::was_applied,
};
use aws_sdk_dynamodb::Client;
use purser_domain::{ErrorKind, Result, Timestamp};
use std::{
    collections::HashSet,
    fmt,
    num::NonZeroU64,
    sync::{Arc, Mutex, PoisonError},
};

/// Limits the requests per minute of each scope, for example of a source address.
#[derive(Clone, Debug)]
pub struct Throttle {
    db: Client,
    table: Arc<str>,
    kind: ThrottleKind,
    limit_per_minute: u32,
    refused: Arc<Mutex<ThrottledScopes>>,
}

/// The lifetime of a counter in seconds: longer than a minute, because some instances' clocks may be behind.
pub(crate) const RETENTION_SECS: u64 = 3_600;
pub(crate) const SECONDS_PER_MINUTE: NonZeroU64 = NonZeroU64::new(60).unwrap();
/// The maximum number of scopes with rejected requests that an instance caches.
const MAX_CACHED: usize = 10_000;

fn minute_number(now: Timestamp) -> u64 {
    now.secs() / SECONDS_PER_MINUTE
}

/// Returns the error 429. `retry_after` is the number of seconds until the next period of `span_secs` seconds.
pub(crate) fn too_many_requests_error(now: Timestamp, span_secs: NonZeroU64) -> ErrorKind {
    // The remainder is below the period, so the result is at least one second.
    let retry_after = span_secs.get().saturating_sub(now.secs() % span_secs);
    ErrorKind::TooManyRequests { retry_after }
}

/// The scopes whose requests the instance has rejected in one minute.
#[derive(Debug, Default)]
struct ThrottledScopes {
    minute: u64,
    scopes: HashSet<String>,
}

impl ThrottledScopes {
    /// Returns the scopes that the instance has rejected in `minute`. Removes the scopes of any other minute.
    fn scopes_in_minute(&mut self, minute: u64) -> &mut HashSet<String> {
        if self.minute != minute {
            *self = Self {
                minute,
                scopes: HashSet::new(),
            };
        }
        &mut self.scopes
    }

    fn contains(&mut self, scope: &str, now: Timestamp) -> bool {
        self.scopes_in_minute(minute_number(now)).contains(scope)
    }

    fn add(&mut self, scope: String, now: Timestamp) {
        let scopes = self.scopes_in_minute(minute_number(now));
        if scopes.len() < MAX_CACHED {
            scopes.insert(scope);
        }
    }
}

impl Throttle {
    /// Creates the throttle with counters in this table. Each scope may send `limit_per_minute` requests.
    pub fn new(db: &Client, table: impl Into<Arc<str>>, limit_per_minute: u32) -> Self {
        Self {
            db: client_without_throttling_retries(db),
            table: table.into(),
            kind: ThrottleKind::Api,
            limit_per_minute,
            refused: Arc::default(),
        }
    }

    /// Creates the throttle of the function `mcp`. The counters are separate from the counters of the API.
    pub fn for_mcp(db: &Client, table: impl Into<Arc<str>>, limit_per_minute: u32) -> Self {
        Self {
            kind: ThrottleKind::Mcp,
            ..Self::new(db, table, limit_per_minute)
        }
    }

    /// Creates the throttle of the function `oauth`. The counters are separate from the counters of the API.
    pub fn for_oauth(db: &Client, table: impl Into<Arc<str>>, limit_per_minute: u32) -> Self {
        Self {
            kind: ThrottleKind::OAuth,
            ..Self::new(db, table, limit_per_minute)
        }
    }

    /// Runs `work` while a request is counted for a scope. Returns 429 if the scope has used up the minute's requests.
    /// `work` must not write, because the request may still be rejected.
    pub async fn run_limited_by<T>(
        &self,
        scope: impl fmt::Display,
        now: Timestamp,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let scope = scope.to_string();
        if self.lock_throttled_scopes().contains(&scope, now) {
            return Err(too_many_requests_error(now, SECONDS_PER_MINUTE).into());
        }
        // Boxed, because `tokio::join!` copies the memory of finished futures, and the SDK's futures take kilobytes.
        run_while_checking_limit(Box::pin(self.try_count_request(scope, now)), now, Box::pin(work)).await
    }

    /// Counts one request. Returns whether the request is allowed.
    async fn try_count_request(&self, scope: String, now: Timestamp) -> Result<bool> {
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(
                Draft::with_partition_key(key::throttle_key(self.kind, &scope, minute_number(now))).into_item(),
            ))
            .update_expression("ADD n :one SET #ttl = if_not_exists(#ttl, :ttl)")
            .condition_expression("attribute_not_exists(n) OR n < :limit")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":one", 1_u32.write())
            .expression_attribute_values(":limit", self.limit_per_minute.write())
            .expression_attribute_values(":ttl", now.secs().saturating_add(RETENTION_SECS).write());
        let counted = was_applied(update.send().await, "counting a request")?;
        if !counted {
            self.lock_throttled_scopes().add(scope, now);
        }
        Ok(counted)
    }

    fn lock_throttled_scopes(&self) -> std::sync::MutexGuard<'_, ThrottledScopes> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run_while_checking_limit<T>(
    count: impl Future<Output = Result<bool>>,
    now: Timestamp,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let (allowed, work) = tokio::join!(count, work);
    match allowed {
        Ok(true) => work,
        Ok(false) => Err(too_many_requests_error(now, SECONDS_PER_MINUTE).into()),
        Err(error) => {
            tracing::warn!(cause = %error, "throttle.unavailable");
            work
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::Error;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(second).unwrap()
    }

    #[tokio::test]
    async fn a_throttled_call_returns_429_despite_other_errors() {
        type Row = (Result<bool>, Result<u8>, Result<u8, &'static str>);
        let down = || Error::internal("counting", "down");
        let rows: [Row; 6] = [
            (Ok(true), Ok(1), Ok(1)),
            (Ok(true), Err(ErrorKind::NotFound.into()), Err("not_found")),
            (Ok(false), Ok(1), Err("too_many_requests")),
            (
                Ok(false),
                Err(ErrorKind::InvalidAgentKey.into()),
                Err("too_many_requests"),
            ),
            (Err(down()), Ok(1), Ok(1)),
            (Err(down()), Err(ErrorKind::NotFound.into()), Err("not_found")),
        ];
        for (count, work, expected) in rows {
            let answer = run_while_checking_limit(async { count }, at(0), async { work })
                .await
                .map_err(|error| error.kind().slug());
            assert_eq!(answer, expected.map_err(str::to_owned));
        }
    }

    #[test]
    fn retry_after_of_a_throttled_call_is_the_start_of_the_next_minute() {
        for (second, retry_after) in [(0, 60), (1, 59), (59, 1), (60, 60)] {
            let ErrorKind::TooManyRequests { retry_after: told } =
                too_many_requests_error(at(second), SECONDS_PER_MINUTE)
            else {
                panic!("another error");
            };
            assert_eq!(told, retry_after, "{second}");
        }
    }

    #[test]
    fn throttled_scopes_are_remembered_until_the_minute_ends() {
        let mut refused = ThrottledScopes::default();
        refused.add("a".to_owned(), at(30));
        for (scope, second, remembered) in [("a", 30, true), ("a", 59, true), ("b", 59, false), ("a", 60, false)] {
            assert_eq!(refused.contains(scope, at(second)), remembered, "{scope} {second}");
        }
        // The clock is set back to the previous minute, whose rejected scopes are no longer cached.
        assert!(!refused.contains("a", at(59)));
    }

    #[test]
    fn remembered_throttled_scopes_are_limited_in_number() {
        let mut refused = ThrottledScopes::default();
        for n in 0..=MAX_CACHED {
            refused.add(n.to_string(), at(0));
        }
        let remembered = |refused: &mut ThrottledScopes, n: usize| refused.contains(&n.to_string(), at(0));
        assert!(remembered(&mut refused, 0) && remembered(&mut refused, MAX_CACHED - 1));
        assert!(!remembered(&mut refused, MAX_CACHED));
    }

    #[tokio::test]
    async fn throttle_counting_runs_concurrently_with_the_request() {
        let (send, receive) = tokio::sync::oneshot::channel();
        let count = async {
            receive.await.unwrap();
            Ok(true)
        };
        let work = async {
            send.send(()).unwrap();
            Ok(())
        };
        run_while_checking_limit(count, at(0), work).await.unwrap();
    }
}
