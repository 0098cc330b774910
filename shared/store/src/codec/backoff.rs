//! Backoff after conflicts and throttling. The SDK does not retry a transaction that DynamoDB cancelled because of a
//! conflict (developer guide, "Transaction conflict handling").

use crate::codec::fault::Fault;
use purser_domain::{Error, Result};
use std::time::Duration;

/// Counts and delays the retries of a request, so that the number of attempts per request is limited.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The upper bound of the first pause, in microseconds. In measurements, 1 to 2 ms caused 1.3 to 1.6 times as many
    /// transactions, and 16 to 32 ms made the 99th percentile of the latency 1.5 to 2 times as long.
    const BASE_MICROS: u64 = 6_000;
    /// How often the maximum pause doubles: 2^5 times the base is 192 ms.
    const DOUBLINGS: u32 = 5;
    /// The maximum number of pauses. Eighty pauses take 7.3 s on average, half of a function's timeout.
    const ATTEMPTS: u32 = 80;

    /// Creates a backoff without any retries yet.
    pub const fn new() -> Self {
        Self { attempts: 0 }
    }

    /// Waits for a random time that grows on average with each attempt (full jitter). Fails after the last attempt.
    pub async fn wait_for_retry(&mut self) -> Result<()> {
        if self.attempts >= Self::ATTEMPTS {
            return Err(Error::temporarily_unavailable(
                "waiting for concurrent transactions",
                Fault::new("too many concurrent transactions on the same rows"),
            ));
        }
        let longest = Self::BASE_MICROS.saturating_mul(2_u64.saturating_pow(self.attempts.min(Self::DOUBLINGS)));
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts > Self::ATTEMPTS / 2 {
            tracing::warn!(attempts = self.attempts, "transactions conflict repeatedly");
        } else {
            tracing::debug!(attempts = self.attempts, "contention");
        }
        tokio::time::sleep(Duration::from_micros(random_up_to(longest))).await;
        Ok(())
    }

    /// Returns whether the next attempt should read the items again. True on every fourth attempt.
    pub(crate) const fn needs_fresh_read(&self) -> bool {
        self.attempts > 0 && self.attempts.is_multiple_of(4)
    }
}

/// Logs the number of retries at the end of the operation.
impl Drop for Backoff {
    fn drop(&mut self) {
        if self.attempts > 0 {
            tracing::info!(attempts = self.attempts, "store.contended");
        }
    }
}

/// The maximum number of retries of a throttled call. Their pauses take at most a second in total.
pub(crate) const THROTTLING_PAUSES: u32 = 2;

/// Returns a random pause of 100 to 500 ms. DynamoDB counts throughput by the second (developer guide, "Burst and
/// adaptive capacity"), so a shorter pause would often end within the same second.
pub(crate) fn throttling_pause() -> Duration {
    const MIN_MILLIS: u64 = 100;
    const SPREAD_MILLIS: u64 = 400;
    Duration::from_millis(MIN_MILLIS.saturating_add(random_up_to(SPREAD_MILLIS)))
}

/// Not for security purposes. A simulation seeds this generator, which the SDK's backoff uses too.
fn random_up_to(max: u64) -> u64 {
    fastrand::u64(..=max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_pause_stays_within_its_bound() {
        for most in [0, 1, 6_000, u64::MAX] {
            assert!((0..100).all(|_| random_up_to(most) <= most));
        }
    }

    #[test]
    fn throttling_pauses_vary_and_end_within_a_second() {
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
