//! A webhook's failed calls since the last successful call. First the owner is notified, later the webhook is disabled.

use crate::{
    Attempt, CallResult, Duration, Event, EventData, EventError, EventId, EventKind, EventSource, EventSubject,
    RETRY_PAUSES, Timestamp, UserId, WebhookId, catalog::service::named,
};

named! {
    /// The consequence of a webhook's failed calls.
    FailureStage {
        /// The failed calls have had no consequence yet.
        New = "new",
        /// Calls have failed for [`FailedCalls::NOTIFICATION_DELAY`], so the webhook's owner is notified.
        Notified = "notified",
        /// The owner is notified, and the webhook is not called until the next update.
        Disabled = "disabled",
    }
}

/// The failed calls of one version of a webhook since the last successful call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCalls {
    /// The version of the webhook. An update restarts the count.
    pub version: u64,
    /// The time of the first failed call.
    pub since: Timestamp,
    /// The number of failed calls. Concurrent calls may count as one.
    pub count: u64,
    /// The result of the last failed call.
    pub last: CallResult,
    /// The consequence of the failed calls so far.
    pub stage: FailureStage,
    /// The time of the failed call that led to `stage`.
    pub reached_at: Timestamp,
    /// The last stage about which the owner was notified.
    pub notified: FailureStage,
}

impl FailedCalls {
    /// The time for which calls must have failed before the owner is notified.
    pub const NOTIFICATION_DELAY: Duration = Duration::from_secs_u32(12 * 3_600);
    /// How long calls must have failed before the webhook is disabled; a 410 response disables the webhook at
    /// once. The last retry of a delivery must also have failed, so that a short outage after days without
    /// events does not disable the webhook.
    pub const DISABLED_AFTER: Duration = Duration::from_secs_u32(5 * 86_400);

    /// Adds a failed call. `attempt` is the number of the call within the delivery.
    pub fn with_failed_call(old: Option<Self>, version: u64, call: Attempt, attempt: u32) -> Self {
        let old = old.filter(|old| old.version == version);
        let since = old.as_ref().map_or(call.at, |old| old.since);
        let lasted = call.at.since(since);
        let is_last = usize::try_from(attempt).is_ok_and(|attempt| attempt > RETRY_PAUSES.len());
        let stage = if call.result.is_endpoint_gone() || is_last && lasted >= Self::DISABLED_AFTER {
            FailureStage::Disabled
        } else if lasted >= Self::NOTIFICATION_DELAY {
            FailureStage::Notified
        } else {
            FailureStage::New
        };
        let reached = old
            .as_ref()
            .map_or((FailureStage::New, since), |old| (old.stage, old.reached_at));
        let (stage, reached_at) = if stage > reached.0 { (stage, call.at) } else { reached };
        Self {
            version,
            since,
            count: old.as_ref().map_or(0, |old| old.count).saturating_add(1),
            last: call.result,
            stage,
            reached_at,
            notified: old.map_or(FailureStage::New, |old| old.notified),
        }
    }

    /// Creates the event that notifies the owner of `stage`. A repeated event has the same id and time.
    pub fn failing_webhook_event(
        &self,
        source: EventSource,
        user: &UserId,
        webhook: WebhookId,
    ) -> Result<Event, EventError> {
        let kind = EventKind::WebhookFailing;
        Event::new(
            EventId::derive(kind, &[&webhook, &self.since, &self.stage.name()]),
            source,
            kind,
            self.reached_at,
            EventSubject::Person(user.clone()),
            Some(user.clone()),
            EventData::new()
                .text("webhook_id", webhook)
                .time("failing_since", self.since)
                .number("failed_calls", self.count)
                .text("last_result", self.last)
                .flag("disabled", self.stage == FailureStage::Disabled),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600;

    fn failed(old: Option<FailedCalls>, secs: u64, result: CallResult, attempt: u32) -> FailedCalls {
        let call = Attempt {
            at: Timestamp::from_secs(secs).unwrap(),
            took: Duration::from_secs_u32(1),
            result,
        };
        FailedCalls::with_failed_call(old, 1, call, attempt)
    }

    /// The time of a call in hours, the number of the call within the delivery, and the expected stage.
    #[test]
    fn failing_webhooks_are_reported_and_later_disabled() {
        use FailureStage::{Disabled, New, Notified};
        let rows: [&[(u64, u32, FailureStage)]; 4] = [
            &[(0, 1, New), (11, 6, New), (12, 7, Notified), (24, 8, Notified)],
            // The last call of a delivery fails after five days of failures.
            &[
                (0, 1, New),
                (119, 8, Notified),
                (120, 1, Notified),
                (121, 8, Disabled),
                (122, 1, Disabled),
            ],
            // A short outage follows a week without events.
            &[(0, 8, New), (168, 1, Notified), (169, 5, Notified)],
            &[(0, 8, New), (1, 8, New)],
        ];
        for row in rows {
            let mut calls = None;
            for (n, (hour, attempt, stage)) in row.iter().enumerate() {
                let next = failed(calls, hour * HOUR, CallResult::Timeout, *attempt);
                assert_eq!(
                    (next.stage, next.count),
                    (*stage, u64::try_from(n).unwrap() + 1),
                    "{row:?}, {hour}"
                );
                assert_eq!(next.since, Timestamp::EPOCH);
                calls = Some(next);
            }
        }
    }

    #[test]
    fn a_410_response_disables_a_webhook_version_at_once() {
        let gone = failed(None, 5, CallResult::Status(410), 1);
        assert_eq!((gone.stage, gone.reached_at), (FailureStage::Disabled, gone.since));
        let other = FailedCalls { version: 2, ..gone };
        let again = failed(Some(other), HOUR, CallResult::Status(500), 1);
        assert_eq!((again.stage, again.count, again.version), (FailureStage::New, 1, 1));
    }

    #[test]
    fn repeated_failure_events_have_the_same_id() {
        let person = UserId::derive("https://issuer.example", "ann");
        let webhook = WebhookId::from_uuid(uuid::Uuid::nil());
        let event = |calls: &FailedCalls| {
            calls
                .failing_webhook_event(EventSource::default(), &person, webhook)
                .unwrap()
        };
        let first = failed(None, 0, CallResult::Timeout, 1);
        let notified = failed(Some(first), 13 * HOUR, CallResult::Timeout, 7);
        let later = failed(Some(notified.clone()), 14 * HOUR, CallResult::Timeout, 1);
        let disabled = failed(Some(later.clone()), 200 * HOUR, CallResult::Timeout, 8);
        let key = |calls| (event(calls).id(), event(calls).time());
        assert_eq!(key(&notified), key(&later));
        assert_ne!(key(&notified).0, key(&disabled).0);
    }
}
