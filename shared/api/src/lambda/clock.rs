//! The clock of handlers. No other code reads the system clock.

use purser_domain::Timestamp;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// A source of the current time. Clones share a shift or a fixed time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Shifted(Arc<AtomicI64>),
    Still(Arc<AtomicI64>),
}

impl Clock {
    /// Creates a clock with the system's time.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// Creates a clock that adds these microseconds to the system's time, for the local stack.
    pub const fn with_shift(micros: Arc<AtomicI64>) -> Self {
        Self(Source::Shifted(micros))
    }

    /// Creates a clock that returns this time, in microseconds since the Unix epoch, for tests.
    pub const fn at_fixed_time(micros: Arc<AtomicI64>) -> Self {
        Self(Source::Still(micros))
    }

    /// Returns the current time, which is never before the Unix epoch.
    pub fn now(&self) -> Timestamp {
        let micros = match &self.0 {
            Source::System => system_micros(),
            Source::Shifted(micros) => system_micros().saturating_add(micros.load(Ordering::SeqCst)),
            Source::Still(micros) => micros.load(Ordering::SeqCst),
        };
        let (first, last) = (Timestamp::EPOCH.micros(), Timestamp::MAX.micros());
        Timestamp::from_micros(micros.clamp(first, last)).unwrap_or(Timestamp::EPOCH)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn system_micros() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_clock_only_moves_when_set() {
        let hand = Arc::new(AtomicI64::new(7));
        let (clock, clone) = (
            Clock::at_fixed_time(Arc::clone(&hand)),
            Clock::at_fixed_time(Arc::clone(&hand)).clone(),
        );
        assert_eq!((clock.now().micros(), clone.now().micros()), (7, 7));
        for (hand_at, expected) in [(9, 9), (-1, 0), (i64::MAX, Timestamp::MAX.micros())] {
            hand.store(hand_at, Ordering::SeqCst);
            assert_eq!(clone.now().micros(), expected);
        }
    }

    #[test]
    fn a_shifted_clock_runs_ahead_of_the_system() {
        let ahead = 86_400_000_000;
        let before = Clock::system().now().micros();
        let shifted = Clock::with_shift(Arc::new(AtomicI64::new(ahead))).now().micros();
        let after = Clock::system().now().micros();
        assert!((before..=after).contains(&(shifted - ahead)));
        assert_eq!(
            Clock::with_shift(Arc::new(AtomicI64::new(i64::MIN))).now(),
            Timestamp::EPOCH
        );
    }
}
