//! A cache for a single value, such as the catalog, that fetches a stale value again.
//!
//! Only one request at a time fetches. While fetches fail, the last value is returned, up to the age
//! [`RefreshPolicy::longest`].

#![cfg_attr(
    test,
    expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")
)]

use purser_domain::{Duration, Error, Result, Timestamp};
use std::{
    future::Future,
    sync::{PoisonError, RwLock},
};
use tokio::sync::Mutex;

/// How long a value is fresh, how long it may be returned, and how often it may be fetched.
#[derive(Clone, Copy, Debug)]
pub struct RefreshPolicy {
    /// The age below which a value is returned without a fetch.
    pub fresh: Duration,
    /// The maximum age of a value that is returned while fetches fail; `None` for no limit.
    pub longest: Option<Duration>,
    /// The minimum time between two fetches while the cache has a value that may be returned.
    pub every: Duration,
    /// The minimum time between two fetches while the cache has no value that may be returned.
    pub every_at_first: Duration,
}

/// A cached value that is fetched again when it is stale.
#[derive(Debug)]
pub struct RefreshingCache<T> {
    /// What a fetch does, for error messages, such as `reading the key of asserted addresses`.
    fetching: &'static str,
    ages: RefreshPolicy,
    /// Reports a failed fetch whose caller gets the last value instead of the error.
    tell: fn(&Error),
    held: RwLock<CachedValue<T>>,
    /// Held during a fetch, so that only one request at a time fetches.
    asking: Mutex<()>,
}

#[derive(Clone, Debug)]
struct CachedValue<T> {
    /// The cached value, and the time of the fetch.
    value: Option<(T, Timestamp)>,
    /// The time of the last fetch, even if the fetch failed.
    requested_at: Option<Timestamp>,
}

impl<T: Clone> RefreshingCache<T> {
    /// Creates an empty cache. `operation` names the fetch in error messages.
    pub const fn new(operation: &'static str, ages: RefreshPolicy, report_error: fn(&Error)) -> Self {
        let held = CachedValue {
            value: None,
            requested_at: None,
        };
        Self {
            fetching: operation,
            ages,
            tell: report_error,
            held: RwLock::new(held),
            asking: Mutex::const_new(()),
        }
    }

    /// Sets the value, as if it had been fetched at `now`.
    pub fn store(&self, value: T, now: Timestamp) {
        self.replace_cached(CachedValue {
            value: Some((value, now)),
            requested_at: Some(now),
        });
    }

    /// Returns the value, regardless of age.
    pub fn latest_value(&self) -> Option<T> {
        self.lock().value.map(|(value, _)| value)
    }

    /// Returns the value if it is fresh.
    pub fn fresh_value(&self, now: Timestamp) -> Option<T> {
        let fresh = self.lock().value.filter(|(_, at)| now.since(*at) < self.ages.fresh);
        fresh.map(|(value, _)| value)
    }

    /// Returns the value if it is fresh. Otherwise fetches the value, and returns the last value if the fetch fails.
    pub async fn get_or_fetch<F: Future<Output = Result<T>>>(
        &self,
        now: Timestamp,
        fetch: impl FnOnce() -> F,
    ) -> Result<T> {
        if let Some(value) = self.fresh_value(now) {
            return Ok(value);
        }
        let held = self.lock();
        match self.value_within_max_age(&held, now) {
            Some(value) if self.was_fetched_recently(&held, now) => Ok(value),
            _ => self.fetch_newest(now, fetch).await,
        }
    }

    /// Fetches the value even if the last value is fresh. Returns the last value after a failed fetch, or if the last
    /// fetch was too recent.
    pub async fn fetch_newest<F: Future<Output = Result<T>>>(
        &self,
        now: Timestamp,
        fetch: impl FnOnce() -> F,
    ) -> Result<T> {
        let _asking = self.asking.lock().await;
        let held = self.lock();
        let usable = self.value_within_max_age(&held, now);
        // Another request may have fetched the value while this request waited for the lock.
        if self.was_fetched_recently(&held, now) {
            return usable.ok_or_else(|| Error::internal(self.fetching, "the last attempt failed a moment ago"));
        }
        // Boxed, because the future is large and the future's type is nested too deeply for the compiler.
        match Box::pin(fetch()).await {
            Ok(value) => {
                self.store(value.clone(), now);
                Ok(value)
            }
            Err(error) => {
                self.replace_cached(CachedValue {
                    requested_at: Some(now),
                    ..held
                });
                let Some(value) = usable else { return Err(error) };
                (self.tell)(&error);
                Ok(value)
            }
        }
    }

    fn value_within_max_age(&self, cached: &CachedValue<T>, now: Timestamp) -> Option<T> {
        let is_usable = |at: Timestamp| self.ages.longest.is_none_or(|longest| now.since(at) <= longest);
        let (value, at) = cached.value.as_ref()?;
        is_usable(*at).then(|| value.clone())
    }

    /// Returns whether the last fetch was too recent for another fetch to start.
    fn was_fetched_recently(&self, cached: &CachedValue<T>, now: Timestamp) -> bool {
        let every = match self.value_within_max_age(cached, now) {
            Some(_) => self.ages.every,
            None => self.ages.every_at_first,
        };
        cached.requested_at.is_some_and(|asked_at| now.since(asked_at) < every)
    }

    fn lock(&self) -> CachedValue<T> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace_cached(&self, cached: CachedValue<T>) {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = cached;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static TOLD: AtomicU32 = AtomicU32::new(0);

    const AGES: RefreshPolicy = RefreshPolicy {
        fresh: Duration::from_secs_u32(100),
        longest: Some(Duration::from_secs_u32(200)),
        every: Duration::from_secs_u32(30),
        every_at_first: Duration::from_secs_u32(5),
    };

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(1_000_000 + secs).unwrap()
    }

    #[tokio::test]
    async fn stale_cached_values_are_refreshed_or_briefly_served() {
        let kept = RefreshingCache::new("fetching", AGES, |_| {
            TOLD.fetch_add(1, Ordering::Relaxed);
        });
        // Each row: the time in seconds, the result of the fetch, the returned value, and whether a fetch was made.
        let rows: [(u64, Option<u32>, Option<u32>, bool); 11] = [
            (0, None, None, true),
            (4, Some(1), None, false),
            (5, Some(1), Some(1), true),
            (104, Some(2), Some(1), false),
            (105, None, Some(1), true),
            (134, Some(2), Some(1), false),
            (135, Some(2), Some(2), true),
            (335, None, Some(2), true),
            // The value is too old, and the last fetch is too recent.
            (336, None, None, false),
            (340, None, None, true),
            (345, Some(3), Some(3), true),
        ];
        for (secs, brings, served, fetched) in rows {
            let mut asked = false;
            let fetch = || {
                asked = true;
                async move { brings.ok_or_else(|| Error::internal("fetching", "no")) }
            };
            assert_eq!(kept.get_or_fetch(at(secs), fetch).await.ok(), served, "{secs}");
            assert_eq!(asked, fetched, "{secs}");
        }
        assert_eq!(
            TOLD.load(Ordering::Relaxed),
            2,
            "of those that were served all the same"
        );
        // `fetch_newest` ignores that the value is fresh, but fetches at most once per `every`.
        assert_eq!(kept.fetch_newest(at(374), || async { Ok(4) }).await.unwrap(), 3);
        assert_eq!(kept.fetch_newest(at(375), || async { Ok(4) }).await.unwrap(), 4);
        assert_eq!(
            (
                kept.fresh_value(at(474)),
                kept.fresh_value(at(475)),
                kept.latest_value()
            ),
            (Some(4), None, Some(4))
        );
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_fetch_of_a_cached_value() {
        let kept = RefreshingCache::new("fetching", AGES, |_| ());
        let fetched = AtomicU32::new(0);
        let ask = || {
            kept.get_or_fetch(at(0), || async {
                tokio::task::yield_now().await;
                Ok(fetched.fetch_add(1, Ordering::Relaxed))
            })
        };
        let (first, second, third) = tokio::join!(ask(), ask(), ask());
        assert_eq!([first, second, third].map(Result::unwrap), [0; 3]);
    }
}
