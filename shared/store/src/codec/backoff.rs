//! How long an operation retries under contention, and how long under throttling.
//!
//! DynamoDB cancels a transaction that conflicts with another one on an item, and the SDK doesn't retry a cancelled one
//! (developer guide, "Transaction conflict handling"). So the backoff and the limit on attempts are ours.
//!
//! A conflict passes within milliseconds, and to try again costs little. Throttling passes when a second's throughput
//! is there again, and each try adds to it: so its pauses are long and few, and then the caller is told to come back.

use crate::codec::fault::Fault;
use purser_domain::{Error, Result};
use std::time::Duration;

/// Counts the retries of one operation. Create one per request and pass it along.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The longest first pause. Measured under DynamoDB's conflict rule: 1 to 2 ms cause 1.3 to 1.6 times as many
    /// transactions, 16 to 32 ms raise the 99th percentile 1.5 to 2 times; 4 to 8 ms lie between.
    const BASE_MICROS: u64 = 6_000;
    /// The pause grows up to 2^5 times the base, 192 ms.
    const DOUBLINGS: u32 = 5;
    /// Eighty pauses take 7.3 s on average, (6 + 12 + 24 + 48 + 96)/2 + 75 × 192/2 ms: half of a function's timeout.
    const ATTEMPTS: u32 = 80;

    /// A backoff with no retries yet.
    pub const fn new() -> Self {
        Self { attempts: 0 }
    }

    /// Waits for a random time, longer on average after each attempt (full jitter); an error after the last attempt.
    pub async fn wait(&mut self) -> Result<()> {
        if self.attempts >= Self::ATTEMPTS {
            return Err(Error::temporarily_unavailable(
                "waiting for others to finish",
                Fault::new("too many others want the same rows"),
            ));
        }
        let longest = Self::BASE_MICROS.saturating_mul(2_u64.saturating_pow(self.attempts.min(Self::DOUBLINGS)));
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts > Self::ATTEMPTS / 2 {
            tracing::warn!(attempts = self.attempts, "contention lasts");
        } else {
            tracing::debug!(attempts = self.attempts, "contention");
        }
        tokio::time::sleep(Duration::from_micros(up_to(longest))).await;
        Ok(())
    }

    /// Whether to rebuild a transaction that only conflicted with others: every fourth time, since the state it was
    /// built on is getting old.
    pub(crate) const fn needs_fresh_read(&self) -> bool {
        self.attempts > 0 && self.attempts.is_multiple_of(4)
    }
}

/// The number of retries is logged once, when the operation is over.
impl Drop for Backoff {
    fn drop(&mut self) {
        if self.attempts > 0 {
            tracing::info!(attempts = self.attempts, "store.contended");
        }
    }
}

/// How often a throttled call is sent again: with [`throttling_pause`] it ends within a second of pauses.
pub(crate) const THROTTLING_PAUSES: u32 = 2;

/// The pause before a throttled call is sent again, between 100 and 500 ms at random. DynamoDB counts throughput by the
/// second (developer guide, "Burst and adaptive capacity"), so anything shorter meets the same second.
pub(crate) fn throttling_pause() -> Duration {
    const SHORTEST_MILLIS: u64 = 100;
    const SPREAD_MILLIS: u64 = 400;
    Duration::from_millis(SHORTEST_MILLIS.saturating_add(up_to(SPREAD_MILLIS)))
}

/// A random number from zero to `most`. It need not be unpredictable, so it comes from the thread's generator, which
/// the SDK uses for its own backoff too: the simulation seeds it and reproduces the same pauses.
fn up_to(most: u64) -> u64 {
    fastrand::u64(..=most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_pause_stays_within_its_bound() {
        for most in [0, 1, 6_000, u64::MAX] {
            assert!((0..100).all(|_| up_to(most) <= most));
        }
    }

    #[test]
    fn throttling_ends_within_a_second_and_its_pauses_spread() {
        let pauses: Vec<Duration> = (0..200).map(|_| throttling_pause()).collect();
        let (shortest, longest) = (*pauses.iter().min().unwrap(), *pauses.iter().max().unwrap());
        assert!(shortest >= Duration::from_millis(100));
        assert!(longest * THROTTLING_PAUSES <= Duration::from_secs(1));
        assert!(
            longest > shortest + Duration::from_millis(200),
            "callers come back at different times"
        );
    }
}
