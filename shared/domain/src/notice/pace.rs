//! The rate limit of a notification channel. A flush sends a channel's pending events in one message. Messages are at
//! least five minutes apart, and pauses increase after failures.

use crate::{AfterCall, CallResult, Duration, Fingerprint, RETRY_PAUSES, Timestamp, next_step_after_call};

/// The rate limit of one notification channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationPace {
    /// The version, which each write increments. A flush may send only after the conditional write of the next version
    /// succeeded.
    pub version: u64,
    /// The time from which the next message may be sent on the channel.
    pub next_at: Timestamp,
    /// The number of consecutive failed attempts to send a message.
    pub failed: u32,
    /// The [`crate::NotificationSettings::destination_fingerprint`]. `failed` does not count failures at another
    /// destination.
    pub place: Option<Fingerprint>,
    /// The id of the queue message that starts the next flush. Any other queue message for the channel can be deleted.
    pub waker: Option<String>,
}

/// The rate limit of a channel that has not sent a message. A message may be sent immediately.
impl Default for NotificationPace {
    fn default() -> Self {
        Self {
            version: 0,
            next_at: Timestamp::EPOCH,
            failed: 0,
            place: None,
            waker: None,
        }
    }
}

impl NotificationPace {
    /// How long the first event of a burst waits for further events.
    pub const COLLECTION_DELAY: Duration = Duration::from_secs_u32(10);
    /// The minimum time between two messages.
    pub const MIN_INTERVAL: Duration = Duration::from_secs_u32(5 * 60);
    /// How long a flush reserves the channel: longer than a run of the Lambda function. The queue message for the next
    /// flush has the same delay, so that the message id is stored as `waker` before the message arrives.
    pub const TURN: Duration = Duration::from_secs_u32(60);
    /// The maximum pause after a failure. Approval requests become useless after a longer pause.
    const MAX_PAUSE: Duration = Duration::from_secs_u32(30 * 60);

    /// Sets the channel's destination. A new destination resets the pause, the failures and the queue message.
    #[must_use]
    pub fn with_destination(self, destination: Fingerprint) -> Self {
        if self.place == Some(destination) {
            return self;
        }
        Self {
            version: self.version,
            place: Some(destination),
            ..Self::default()
        }
    }

    /// Returns the time until the next message may be sent; `None` if it may be sent now.
    pub fn time_until_next(&self, now: Timestamp) -> Option<Duration> {
        (now < self.next_at).then(|| self.next_at.since(now))
    }

    /// Reserves the channel for a flush. If the flush is interrupted, message `message_id` starts another flush.
    #[must_use]
    pub fn reserve_send_slot(self, message_id: &str, now: Timestamp) -> Self {
        let taken = self.with_next_time(now.after(Self::TURN));
        Self {
            waker: Some(message_id.to_owned()),
            ..taken
        }
    }

    /// Forgets the queue message that started the flush, because there are no pending events.
    #[must_use]
    pub fn without_wake_up(self) -> Self {
        let next_at = self.next_at;
        Self {
            waker: None,
            ..self.with_next_time(next_at)
        }
    }

    /// Records that a message was sent. The next message must wait for [`Self::MIN_INTERVAL`].
    #[must_use]
    pub fn record_sent_message(self, now: Timestamp) -> Self {
        Self {
            failed: 0,
            ..self.with_next_time(now.after(Self::MIN_INTERVAL))
        }
    }

    /// Ends a flush without a message, because the channel has no destination.
    #[must_use]
    pub fn release_send_slot(self, now: Timestamp) -> Self {
        Self {
            failed: 0,
            waker: None,
            ..self.with_next_time(now)
        }
    }

    /// Records a failed message. The pauses are those of webhooks ([`RETRY_PAUSES`]), at most half an hour.
    #[must_use]
    pub fn after_failure(self, now: Timestamp, result: CallResult, retry_after: Option<Duration>, jitter: u8) -> Self {
        let failed = self.failed.saturating_add(1);
        let max = u32::try_from(RETRY_PAUSES.len()).unwrap_or(u32::MAX);
        let pause = match next_step_after_call(result, failed.min(max), retry_after, jitter) {
            AfterCall::Again(pause) => pause.min(Self::MAX_PAUSE),
            AfterCall::Delivered | AfterCall::GivenUp { .. } => Self::MIN_INTERVAL,
        };
        Self {
            failed,
            ..self.with_next_time(now.after(pause))
        }
    }

    fn with_next_time(self, next_at: Timestamp) -> Self {
        Self {
            version: self.version.saturating_add(1),
            next_at,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    #[test]
    fn messages_on_one_channel_are_minutes_apart() {
        let new = NotificationPace::default();
        assert_eq!(new.time_until_next(at(1_000)), None);
        let taken = new.reserve_send_slot("m1", at(1_000));
        assert_eq!(taken.time_until_next(at(1_001)), Some(Duration::from_secs_u32(59)));
        // The flush that reserved the channel was interrupted.
        assert_eq!(taken.time_until_next(at(1_060)), None);
        let sent = taken.record_sent_message(at(1_001));
        assert_eq!(
            (sent.version, sent.time_until_next(at(1_300))),
            (2, Some(Duration::from_secs_u32(1)))
        );
        assert_eq!(sent.time_until_next(at(1_301)), None);
    }

    #[test]
    fn pauses_after_failed_messages_grow_until_a_success() {
        let mut pace = NotificationPace::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pace = pace.after_failure(at(0), CallResult::Status(500), None, 0);
            pauses.push(pace.next_at.secs());
        }
        assert_eq!(pauses, [5, 300, 1_800, 1_800, 1_800, 1_800, 1_800, 1_800, 1_800]);
        assert_eq!(
            (
                pace.clone().record_sent_message(at(0)).failed,
                pace.release_send_slot(at(0)).failed
            ),
            (0, 0)
        );
    }

    #[test]
    fn a_wake_up_stays_scheduled_until_its_message_returns() {
        let taken = NotificationPace::default().reserve_send_slot("m1", at(1_000));
        let failed = taken.clone().after_failure(at(1_001), CallResult::Timeout, None, 0);
        let sent = taken.clone().record_sent_message(at(1_001));
        assert_eq!([&failed, &sent].map(|pace| pace.waker.as_deref()), [Some("m1"); 2]);
        let returned = sent.clone().without_wake_up();
        assert_eq!(
            (returned.version, returned.next_at, returned.waker),
            (sent.version + 1, sent.next_at, None)
        );
        assert_eq!(taken.release_send_slot(at(1_001)).waker, None);
    }

    #[test]
    fn failures_at_a_former_destination_do_not_delay_notifications_to_a_new_one() {
        let [here, there] = ["here", "there"].map(Fingerprint::for_text);
        let mut pace = NotificationPace::default()
            .with_destination(here)
            .reserve_send_slot("m1", at(1_000));
        for _ in 0..5 {
            pace = pace.after_failure(at(1_000), CallResult::Timeout, None, 0);
        }
        assert_eq!(pace.clone().with_destination(here), pace);
        let moved = pace.clone().with_destination(there);
        assert_eq!(
            (moved.time_until_next(at(1_000)), moved.failed, moved.waker.as_deref()),
            (None, 0, None)
        );
        assert_eq!(moved.version, pace.version);
    }
}
