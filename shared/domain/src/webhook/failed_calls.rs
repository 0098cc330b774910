//! The failed calls of a webhook since its last successful call, and their consequences: a notice to its owner, and
//! later the end of its calls.

use crate::{
    Attempt, CallResult, Duration, Event, EventData, EventId, EventKind, EventProblem, EventSource, EventSubject,
    PersonId, RETRY_PAUSES, Timestamp, WebhookId, catalog::service::named,
};

named! {
    /// The consequence of a webhook's failed calls.
    FailureStage {
        /// None yet.
        New = "new",
        /// The owner is notified.
        Notified = "notified",
        /// The owner is notified, and the webhook is not called until an update.
        Disabled = "disabled",
    }
}

/// The failed calls of one version of a webhook since its last successful call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCalls {
    /// The version of the webhook. An update starts again without failed calls.
    pub version: u64,
    /// The time of the first one.
    pub since: Timestamp,
    /// The number of them; concurrent ones may count as one.
    pub count: u64,
    /// The result of the last one.
    pub last: CallResult,
    /// The consequence.
    pub stage: FailureStage,
    /// The time at which that stage was reached.
    pub reached_at: Timestamp,
    /// The stage that the owner was last notified of.
    pub notified: FailureStage,
}

impl FailedCalls {
    /// The owner is notified once calls have failed for this long.
    pub const NOTIFIED_AFTER: Duration = Duration::from_secs_u32(12 * 3_600);
    /// The webhook is disabled once calls have failed for this long, and a delivery has had its last call. A receiver
    /// that is down for a moment, after days without events, is therefore not disabled.
    pub const DISABLED_AFTER: Duration = Duration::from_secs_u32(5 * 86_400);

    /// The failed calls with another one, which was the `attempt`-th of its delivery.
    pub fn with(old: Option<Self>, version: u64, call: Attempt, attempt: u32) -> Self {
        let old = old.filter(|old| old.version == version);
        let since = old.as_ref().map_or(call.at, |old| old.since);
        let lasted = call.at.since(since);
        let is_last = usize::try_from(attempt).is_ok_and(|attempt| attempt > RETRY_PAUSES.len());
        let stage = if call.result.is_gone() || is_last && lasted >= Self::DISABLED_AFTER {
            FailureStage::Disabled
        } else if lasted >= Self::NOTIFIED_AFTER {
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

    /// The event of the stage, for the owner. Repetitions have the same id and time.
    pub fn event(&self, source: EventSource, person: &PersonId, webhook: WebhookId) -> Result<Event, EventProblem> {
        let kind = EventKind::WebhookFailing;
        Event::new(
            EventId::of(kind, &[&webhook, &self.since, &self.stage.name()]),
            source,
            kind,
            self.reached_at,
            EventSubject::Person(person.clone()),
            Some(person.clone()),
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
        FailedCalls::with(old, 1, call, attempt)
    }

    /// The times of calls in hours, the number of each in its delivery, and the stage after it.
    #[test]
    fn failing_webhooks_are_notified_of_and_then_disabled() {
        use FailureStage::{Disabled, New, Notified};
        let rows: [&[(u64, u32, FailureStage)]; 4] = [
            &[(0, 1, New), (11, 6, New), (12, 7, Notified), (24, 8, Notified)],
            // The last call of a delivery, after five days.
            &[
                (0, 1, New),
                (119, 8, Notified),
                (120, 1, Notified),
                (121, 8, Disabled),
                (122, 1, Disabled),
            ],
            // A moment's failure after a week without events.
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
    fn a_410_response_disables_at_once_and_another_version_starts_again() {
        let gone = failed(None, 5, CallResult::Status(410), 1);
        assert_eq!((gone.stage, gone.reached_at), (FailureStage::Disabled, gone.since));
        let other = FailedCalls { version: 2, ..gone };
        let again = failed(Some(other), HOUR, CallResult::Status(500), 1);
        assert_eq!((again.stage, again.count, again.version), (FailureStage::New, 1, 1));
    }

    #[test]
    fn repeated_events_of_a_stage_are_the_same_event() {
        let person = PersonId::of("https://issuer.example", "ann");
        let webhook = WebhookId::from_uuid(uuid::Uuid::nil());
        let event = |calls: &FailedCalls| calls.event(EventSource::default(), &person, webhook).unwrap();
        let first = failed(None, 0, CallResult::Timeout, 1);
        let notified = failed(Some(first), 13 * HOUR, CallResult::Timeout, 7);
        let later = failed(Some(notified.clone()), 14 * HOUR, CallResult::Timeout, 1);
        let disabled = failed(Some(later.clone()), 200 * HOUR, CallResult::Timeout, 8);
        let key = |calls| (event(calls).id(), event(calls).time());
        assert_eq!(key(&notified), key(&later));
        assert_ne!(key(&notified).0, key(&disabled).0);
    }
}
