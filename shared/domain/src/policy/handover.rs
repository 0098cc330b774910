//! Ownership transfer: an operator offers the ownership of an agent to a user, and the user accepts the offer.

use crate::{AgentId, Duration, OperatorName, OperatorReason, Timestamp, UserId};

/// An operator's offer of an agent to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipOffer {
    /// The agent that the operator offers.
    pub agent: AgentId,
    /// The user to whom the agent is offered.
    pub to: UserId,
    /// The reason, which is shown to the new owner.
    pub reason: OperatorReason,
    /// The operator who offered the agent.
    pub by: OperatorName,
    /// The time at which the operator made the offer.
    pub at: Timestamp,
    /// The time from which the offer can't be accepted. Equal to `at` until a second operator confirms the offer.
    pub ends_at: Timestamp,
}

impl OwnershipOffer {
    /// The duration for which an offer can be accepted.
    pub const VALIDITY: Duration = Duration::from_secs_u32(7 * 86_400);

    /// Returns whether a second operator must confirm the offer first.
    pub fn awaits_second_operator(&self) -> bool {
        self.ends_at == self.at
    }

    /// Returns whether the user may accept the offer at `now`.
    pub fn is_open_to(&self, user: &UserId, now: Timestamp) -> bool {
        self.to == *user && now < self.ends_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_transfer_offer_is_open_to_one_user_until_it_expires() {
        let [ann, bob] = ["ann", "bob"].map(|name| UserId::derive("issuer", name));
        let at = Timestamp::EPOCH;
        let ends_at = at.after(OwnershipOffer::VALIDITY);
        assert_eq!(OwnershipOffer::VALIDITY.secs(), 7 * 86_400);
        let offer = OwnershipOffer {
            agent: AgentId::from_uuid(Uuid::nil()),
            to: ann.clone(),
            reason: OperatorReason::parse("left").unwrap(),
            by: OperatorName::parse("op").unwrap(),
            at,
            ends_at,
        };
        let last = Timestamp::from_micros(ends_at.micros() - 1).unwrap();
        for (person, now, is_open) in [
            (&ann, at, true),
            (&ann, last, true),
            (&ann, ends_at, false),
            (&bob, at, false),
        ] {
            assert_eq!(offer.is_open_to(person, now), is_open, "{person:?} {now}");
        }
        assert!(!offer.awaits_second_operator());
        assert!(OwnershipOffer { ends_at: at, ..offer }.awaits_second_operator());
    }
}
