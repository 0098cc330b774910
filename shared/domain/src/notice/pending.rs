//! Pending notifications: events that are not sent, not closed by a later event and not too old.

use crate::{DEFAULT_NOTICES, Duration, Event, EventKind, Timestamp};

/// The maximum age at which an event is sent.
const MAX_AGE: Duration = Duration::DAY;

/// The priority of an event, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NotificationRank {
    /// An approval request, which needs the user's decision.
    Question,
    /// An event of a kind in [`DEFAULT_NOTICES`].
    Usual,
    /// An event of a kind that the user added.
    Chosen,
}

impl NotificationRank {
    pub(crate) fn for_event(event: &Event) -> Self {
        match notified_kind(event) {
            EventKind::ApprovalAsked => Self::Question,
            kind if DEFAULT_NOTICES.contains(&kind) => Self::Usual,
            _ => Self::Chosen,
        }
    }
}

/// Returns the kind as which users are notified: a service that a rule disabled is like a frozen agent.
pub(crate) fn notified_kind(event: &Event) -> EventKind {
    match event.kind() {
        EventKind::PolicyChanged if event.data().find_text("reason").is_some() => EventKind::AgentFrozen,
        kind => kind,
    }
}

/// Returns the key of a pending event, whose order is priority and then age. An approval request's key contains the
/// approval id, so that a later event can close the request.
pub fn pending_event_key(event: &Event) -> String {
    let timed = |rank: char| format!("{rank}#{}#{}", event.time(), event.id());
    match NotificationRank::for_event(event) {
        NotificationRank::Question => approval_request_key(event).unwrap_or_else(|| timed('B')),
        NotificationRank::Usual => timed('B'),
        NotificationRank::Chosen => timed('E'),
    }
}

/// Returns the key of the approval request that an event closes. The closing event may arrive first.
pub fn closed_approval_request_key(event: &Event) -> Option<String> {
    let ends = matches!(
        event.kind(),
        EventKind::ApprovalDecided
            | EventKind::ApprovalWithdrawn
            | EventKind::ApprovalUsed
            | EventKind::ApprovalExpired
    );
    ends.then(|| approval_request_key(event)).flatten()
}

fn approval_request_key(event: &Event) -> Option<String> {
    event.data().find_text("approval_id").map(|id| format!("A#{id}"))
}

/// Returns whether an event should still be sent: the event is not too old, and the approval request has not expired.
pub fn is_worth_sending(event: &Event, now: Timestamp) -> bool {
    let is_over = event.kind() == EventKind::ApprovalAsked
        && event
            .data()
            .find_time("expires_at")
            .is_some_and(|expires_at| expires_at <= now);
    !is_over && now < event.time().after(MAX_AGE)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{AgentId, Amount, EventData, EventId, EventSource, EventSubject, UserId};
    use uuid::Uuid;

    /// Returns an event at second 1,000 about an approval that expires at second 5,000.
    pub(crate) fn of_approval(kind: EventKind, n: u128, add_data: impl FnOnce(EventData) -> EventData) -> Event {
        let id = Uuid::from_u128(n);
        let at = |secs| Timestamp::from_secs(secs).unwrap();
        let data = EventData::new()
            .text("approval_id", id)
            .text("transaction_id", id)
            .text("service_id", Uuid::from_u128(7))
            .text("operation_id", "weather.current")
            .text("key_id", "00000000000000aa")
            .amount("amount_units", Amount::from_units(12_500_000).unwrap())
            .text("pay_to", "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC")
            .time("expires_at", at(5_000));
        let owner = UserId::derive("https://issuer.example", "ann");
        let subject = EventSubject::Agent(AgentId::from_uuid(Uuid::from_u128(1)));
        let source = EventSource::for_stack("stack").unwrap();
        Event::new(
            EventId::derive(kind, &[&n]),
            source,
            kind,
            at(1_000),
            subject,
            Some(owner),
            add_data(data),
        )
        .unwrap()
    }

    #[test]
    fn an_approval_decision_closes_the_pending_notification() {
        let request = of_approval(EventKind::ApprovalAsked, 1, |data| data);
        let key = format!("A#{}", Uuid::from_u128(1));
        assert_eq!(pending_event_key(&request), key);
        assert_eq!(closed_approval_request_key(&request), None);
        let decided = of_approval(EventKind::ApprovalDecided, 1, |data| data.text("status", "approved"));
        let withdrawn = of_approval(EventKind::ApprovalWithdrawn, 1, |data| data);
        let used = of_approval(EventKind::ApprovalUsed, 1, |data| {
            data.text("settlement_id", Uuid::nil())
        });
        let expired = of_approval(EventKind::ApprovalExpired, 1, |data| data.text("was", "pending"));
        for end in [decided, withdrawn, used, expired] {
            assert_eq!(closed_approval_request_key(&end).as_ref(), Some(&key));
            let key = format!("E#{}#{}", end.time(), end.id());
            assert_eq!(pending_event_key(&end), key);
        }
    }

    #[test]
    fn pending_notifications_expire_after_a_day_or_the_deadline() {
        let at = |secs| Timestamp::from_secs(secs).unwrap();
        let request = of_approval(EventKind::ApprovalAsked, 1, |data| data);
        let used = of_approval(EventKind::ApprovalUsed, 1, |data| {
            data.text("settlement_id", Uuid::nil())
        });
        let rows = [
            (&request, 4_999, true),
            (&request, 5_000, false),
            (&used, 5_000, true),
            (&used, 1_000 + 86_399, true),
            (&used, 1_000 + 86_400, false),
        ];
        for (event, secs, worth) in rows {
            assert_eq!(is_worth_sending(event, at(secs)), worth, "{secs}");
        }
    }
}
