//! A delivery: one event for one webhook, and the results of the calls.

use crate::{
    AfterCall, CallResult, DeliveryId, Duration, Event, EventData, EventError, EventId, EventKind, EventSource,
    EventSubject, Timestamp, UserId, WebhookId,
};
use std::fmt::Display;

crate::named! {
    /// Whether a delivery waits for a call, or how the delivery ended.
    DeliveryState {
        /// The delivery waits for the next call.
        Waiting = "waiting",
        /// The endpoint accepted the event.
        Delivered = "delivered",
        /// The delivery failed, and the webhook is not called for it again.
        Failed = "failed",
    }
}

/// The latest call in a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The time at which the webhook was called.
    pub at: Timestamp,
    /// How long the call took.
    pub took: Duration,
    /// The HTTP status of the receiver's response, or the reason why there was no response.
    pub result: CallResult,
}

/// A delivery of one event to one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The delivery's id. The same event and webhook always have the same id.
    pub id: DeliveryId,
    /// The webhook that receives the event.
    pub webhook: WebhookId,
    /// The event's id, which every call sends as `webhook-id`.
    pub event_id: EventId,
    /// The kind of the event.
    pub kind: EventKind,
    /// The event as JSON, which is the body of each call.
    pub event: String,
    /// Whether the delivery waits, succeeded or failed.
    pub state: DeliveryState,
    /// The number of calls since the event, or since the latest request to send the event again.
    pub attempts: u32,
    /// The latest call; `None` before the first call.
    pub last: Option<Attempt>,
    /// The time of the next call, while the delivery waits.
    pub next_at: Option<Timestamp>,
    /// The latest request to send the event again.
    pub request: Option<DeliveryId>,
    /// The version of the delivery's row, which each write increments.
    pub version: u64,
}

/// The action for a queue message about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Call the webhook now.
    Now,
    /// Call the webhook when this duration is over.
    In(Duration),
    /// Do nothing, because the delivery has ended.
    Over,
}

impl Delivery {
    /// The maximum number of a user's deliveries that wait for a retry, including deliveries to removed webhooks.
    pub const MAX_WAITING: u32 = 1_000;

    /// Creates a delivery before the first call.
    pub fn new(webhook: WebhookId, event: &Event) -> Self {
        Self {
            id: DeliveryId::derive(webhook, event.id(), event.time()),
            webhook,
            event_id: event.id(),
            kind: event.kind(),
            event: event.to_json().to_string(),
            state: DeliveryState::Waiting,
            attempts: 0,
            last: None,
            next_at: None,
            request: None,
            version: 0,
        }
    }

    /// Returns the delivery after a queue message. A new request to send the event again (`request`) restarts the
    /// delivery. A repeated message changes nothing.
    #[must_use]
    pub fn with_redelivery_request(self, request: Option<DeliveryId>) -> Self {
        let is_new = request.is_some_and(|request| self.request.is_none_or(|last| last < request));
        if !is_new {
            return self;
        }
        Self {
            state: DeliveryState::Waiting,
            attempts: 0,
            next_at: None,
            request,
            ..self
        }
    }

    /// Returns what to do with the delivery at `now`.
    pub fn next_call_due(&self, now: Timestamp) -> Due {
        match (self.state, self.next_at) {
            (DeliveryState::Delivered | DeliveryState::Failed, _) => Due::Over,
            (DeliveryState::Waiting, Some(next_at)) if now < next_at => Due::In(next_at.since(now)),
            (DeliveryState::Waiting, _) => Due::Now,
        }
    }

    /// Reserves the next call for this worker. No other worker makes the call before `until`.
    #[must_use]
    pub fn claim_until(self, until: Timestamp) -> Self {
        Self {
            next_at: Some(until),
            version: self.version.saturating_add(1),
            ..self
        }
    }

    /// Marks the delivery as failed without a call.
    #[must_use]
    pub fn mark_failed(self) -> Self {
        Self {
            state: DeliveryState::Failed,
            next_at: None,
            version: self.version.saturating_add(1),
            ..self
        }
    }

    /// Marks the delivery as failed, because too many of the user's deliveries already wait for a retry.
    #[must_use]
    pub fn mark_failed_without_retry(self) -> Self {
        Self {
            state: DeliveryState::Failed,
            next_at: None,
            ..self
        }
    }

    /// Records a call and returns the next step. `retry_after` is the pause from `Retry-After`.
    pub fn record_attempt(self, call: Attempt, retry_after: Option<Duration>, jitter: u8) -> (Self, AfterCall) {
        let attempts = self.attempts.saturating_add(1);
        let after = crate::next_step_after_call(call.result, attempts, retry_after, jitter);
        let (state, next_at) = match after {
            AfterCall::Delivered => (DeliveryState::Delivered, None),
            AfterCall::GivenUp { .. } => (DeliveryState::Failed, None),
            AfterCall::Again(pause) => (DeliveryState::Waiting, Some(call.at.after(call.took).after(pause))),
        };
        let called = Self {
            state,
            attempts,
            last: Some(call),
            next_at,
            version: self.version.saturating_add(1),
            ..self
        };
        (called, after)
    }
}

/// Creates the event for a user's test request of `endpoint`. The same request always creates the same event.
pub fn test_event(
    source: EventSource,
    user: &UserId,
    endpoint: impl Display,
    request_id: DeliveryId,
) -> Result<Event, EventError> {
    let kind = EventKind::WebhookTest;
    Event::new(
        EventId::derive(kind, &[&endpoint, user, &request_id]),
        source,
        kind,
        request_id.requested_at(),
        EventSubject::Person(user.clone()),
        Some(user.clone()),
        EventData::new().text("endpoint_id", endpoint),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn delivery() -> Delivery {
        let kind = EventKind::WebhookTest;
        let person = UserId::derive("https://issuer.example", "ann");
        let event = Event::new(
            EventId::derive(kind, &[&1]),
            EventSource::for_stack("stack").unwrap(),
            kind,
            at(1_000),
            EventSubject::Person(person.clone()),
            Some(person),
            EventData::new().text("endpoint_id", "x"),
        );
        Delivery::new(WebhookId::from_uuid(Uuid::nil()), &event.unwrap())
    }

    #[test]
    fn repeated_test_requests_create_the_same_event() {
        let person = UserId::derive("https://issuer.example", "ann");
        let source = EventSource::for_stack("stack").unwrap();
        let test = |endpoint, request| test_event(source.clone(), &person, endpoint, request).unwrap();
        assert_eq!(test("a", request(2)), test("a", request(2)));
        assert_eq!(test("a", request(2)).time(), at(2));
        for other in [test("b", request(2)), test("a", request(3))] {
            assert_ne!(other.id(), test("a", request(2)).id());
        }
    }

    #[test]
    fn a_delivery_claimed_by_a_worker_is_due_again_when_the_claim_ends() {
        let (waiting, _) = called(delivery(), 1_000, CallResult::Timeout);
        let claimed = waiting.clone().claim_until(at(1_066));
        assert_eq!((claimed.version, claimed.attempts), (waiting.version + 1, 1));
        assert_eq!(claimed.next_call_due(at(1_006)), Due::In(Duration::from_secs_u32(60)));
        assert_eq!(claimed.next_call_due(at(1_066)), Due::Now);
    }

    fn called(delivery: Delivery, secs: u64, result: CallResult) -> (Delivery, AfterCall) {
        let call = Attempt {
            at: at(secs),
            took: Duration::from_secs_u32(1),
            result,
        };
        delivery.record_attempt(call, None, 0)
    }

    fn request(n: u64) -> DeliveryId {
        DeliveryId::new_at(at(n), [0; 8])
    }

    #[test]
    fn an_event_has_one_delivery_per_webhook() {
        assert_eq!(delivery().id, delivery().id);
        let other = DeliveryId::derive(WebhookId::from_uuid(Uuid::max()), delivery().event_id, at(1_000));
        assert_ne!(other, delivery().id);
    }

    #[test]
    fn a_failed_delivery_waits_before_its_retry() {
        assert_eq!(delivery().next_call_due(at(1_000)), Due::Now);
        let (waiting, after) = called(delivery(), 1_000, CallResult::Timeout);
        assert_eq!(after, AfterCall::Again(Duration::from_secs_u32(5)));
        assert_eq!((waiting.state, waiting.attempts), (DeliveryState::Waiting, 1));
        // The next call is five seconds after the end of the previous call.
        assert_eq!(waiting.next_call_due(at(1_002)), Due::In(Duration::from_secs_u32(4)));
        assert_eq!(waiting.next_call_due(at(1_006)), Due::Now);
        let (delivered, _) = called(waiting, 1_006, CallResult::Status(204));
        assert_eq!((delivered.state, delivered.attempts), (DeliveryState::Delivered, 2));
        assert_eq!(delivered.next_call_due(Timestamp::MAX), Due::Over);
    }

    #[test]
    fn a_delivery_fails_after_eight_attempts_or_status_410() {
        let mut delivery = delivery();
        for _ in 0..7 {
            delivery = called(delivery, 1_000, CallResult::Status(500)).0;
            assert_eq!(delivery.state, DeliveryState::Waiting);
        }
        let (failed, _) = called(delivery, 1_000, CallResult::Status(500));
        assert_eq!((failed.state, failed.attempts), (DeliveryState::Failed, 8));
        let (gone, after) = called(self::delivery(), 1_000, CallResult::Status(410));
        assert_eq!(
            (gone.state, after),
            (DeliveryState::Failed, AfterCall::GivenUp { gone: true })
        );
    }

    #[test]
    fn only_a_newer_redelivery_request_repeats_a_delivery() {
        let (delivered, _) = called(delivery(), 1_000, CallResult::Status(200));
        assert_eq!(
            delivered.clone().with_redelivery_request(None).next_call_due(at(2_000)),
            Due::Over
        );
        let again = delivered.with_redelivery_request(Some(request(2)));
        assert_eq!((again.next_call_due(at(2_000)), again.attempts), (Due::Now, 0));
        let (delivered, _) = called(again, 2_000, CallResult::Status(200));
        for repeated in [request(1), request(2)] {
            assert_eq!(
                delivered
                    .clone()
                    .with_redelivery_request(Some(repeated))
                    .next_call_due(at(3_000)),
                Due::Over
            );
        }
        assert_eq!(
            delivered
                .with_redelivery_request(Some(request(3)))
                .next_call_due(at(3_000)),
            Due::Now
        );
    }
}
