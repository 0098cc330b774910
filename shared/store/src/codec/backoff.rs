//! How long an operation tries against contention.
//!
//! DynamoDB cancels a transaction that meets another one on the same item, and its SDK doesn't send a cancelled one again
//! (developer guide, "Transaction conflict handling"). Waiting is ours, then, and so is giving up.

use crate::codec::fault::Fault;
use purser_domain::{Error, Result};
use std::time::Duration;

/// The attempts of one operation. Make one per request and pass it along.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The longest first pause. Measured against DynamoDB's conflict rule: 1 to 2 ms send 1.3 to 1.6 times the
    /// transactions, 16 to 32 ms raise the 99th percentile 1.5 to 2 times; 4 to 8 ms lie between.
    const BASE_MICROS: u64 = 6_000;
    /// The pause grows up to 2^5 times the base, 192 ms.
    const DOUBLINGS: u32 = 5;
    /// Eighty pauses are 7.3 s on average, (6 + 12 + 24 + 48 + 96)/2 + 75 × 192/2 ms: half of the time that a function has.
    const ATTEMPTS: u32 = 80;

    /// An operation that has not tried yet.
    pub const fn new() -> Self {
        Self { attempts: 0 }
    }

    /// Waits for a random time, longer on average after each attempt (full jitter); an error when it is time to give up.
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

    /// Whether a transaction that only met others is worth building anew: every fourth time, since the state it was built
    /// on is getting old.
    pub(crate) const fn wants_a_fresh_look(&self) -> bool {
        self.attempts > 0 && self.attempts.is_multiple_of(4)
    }
}

/// What it cost is told once, when the operation is over.
impl Drop for Backoff {
    fn drop(&mut self) {
        if self.attempts > 0 {
            tracing::info!(attempts = self.attempts, "store.contended");
        }
    }
}

/// A random number from zero to `most`. Nobody gains by foreseeing it, so it comes from the thread's generator that the
/// SDK draws its own pauses from: the simulation seeds that, and meets the same pauses again.
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
}
