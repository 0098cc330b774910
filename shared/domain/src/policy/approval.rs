//! A request to a person (`docs/spec.md` §2.8, §3.3).
//!
//! ```text
//! pending ──approve──▶ approved ──retry──▶ executed (once)
//!    │                    ├──withdraw──▶ rejected
//!    ├──reject──▶ rejected└──time──▶ expired
//!    └──time──▶ expired
//! ```
//! Expiry is computed from the time, not written: a stored `pending` or `approved` reads as expired from `expires_at`
//! on.
//!
//! A request for a raise is an approval, too, of the payment that was refused. Approving it grants the raise; no payment
//! uses it, so it stays approved until the raise ends.

use crate::{
    Address, AgentId, Amount, ApprovalId, AskingRule, CallDescription, Fingerprint, Intent, KeyId, OperationSlug,
    RaiseRequest, ServiceId, SettlementId, Timestamp, TransactionId, catalog::service::named,
};

/// One request to a person, bound to exactly one payment request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The approval's id.
    pub id: ApprovalId,
    /// The requesting agent.
    pub agent: AgentId,
    /// The `sub` of the person who owns the agent and decides on the approval.
    pub owner: String,
    /// The key of the request.
    pub key: KeyId,
    /// The decision that escalated to this approval, or the refusal after which the agent asks for a raise.
    pub transaction: TransactionId,
    /// The hash of the request.
    pub fingerprint: Fingerprint,
    /// The service.
    pub service: ServiceId,
    /// The operation.
    pub operation: OperationSlug,
    /// The amount.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// The call, as the agent describes it.
    pub call: CallDescription,
    /// The policy's threshold at the time of the request.
    pub threshold: Amount,
    /// The rule that requires the approval, if the threshold does not.
    pub rule: Option<AskingRule>,
    /// The raise that the agent asks for, if this is a request for one.
    pub raise: Option<RaiseRequest>,
    /// The time of the request.
    pub created_at: Timestamp,
    /// The time at which it expires.
    pub expires_at: Timestamp,
    /// The decision.
    pub resolution: Resolution,
}

impl Approval {
    /// The fingerprint of an agent's request for a raise after this refusal. There is at most one such request, and it is
    /// the fingerprint of no payment.
    pub fn fingerprint_of_raise(refused: TransactionId) -> Fingerprint {
        Fingerprint::of_text(&format!("raise {refused}"))
    }

    /// Whether the approval is for this request, at these terms.
    pub fn is_for(&self, intent: &Intent) -> bool {
        self.fingerprint == intent.fingerprint
            && self.amount == intent.offer.amount()
            && self.pay_to == intent.offer.pay_to()
    }
}

/// A person's decision and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// No decision yet.
    Pending,
    /// Approved.
    Approved(ApprovalResolution),
    /// Rejected.
    Rejected(ApprovalResolution),
    /// Approved, and used by a payment: the approval can't be used again.
    Executed {
        /// The approving decision.
        ruling: ApprovalResolution,
        /// The settlement of the payment that used it.
        settlement: SettlementId,
    },
}

/// A person's decision on an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalResolution {
    /// The time of the decision.
    pub at: Timestamp,
    /// The `sub` of the person who decided.
    pub by: String,
    /// Their note for themselves and the agent: at most [`NOTE_MAX`] characters.
    pub note: Option<String>,
}

/// The maximum length of a note on an approval, in characters.
pub const NOTE_MAX: usize = 500;

named! {
    /// The status of an approval at an instant.
    ApprovalStatus {
        /// Waiting for a person.
        Pending = "pending",
        /// Approved: a retry with the approval is allowed.
        Approved = "approved",
        /// Rejected by a person.
        Rejected = "rejected",
        /// The approval was not given, or not used, in time.
        Expired = "expired",
        /// Used by a payment.
        Executed = "executed",
    }
}

named! {
    /// A change of an approval that is stated. Its name is the statement's `change`.
    ApprovalChange {
        /// The owner approved.
        Approved = "approval",
        /// The owner rejected.
        Rejected = "rejection",
        /// The owner withdrew an approval that no payment had used.
        Withdrawn = "approval_withdrawal",
        /// The approval was not given, or not used, in time.
        Expired = "approval_expiry",
    }
}

impl ApprovalStatus {
    /// Whether the approval can still lead to a payment. While it can, an identical request uses this approval and
    /// creates no other.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Approved)
    }
}

impl Approval {
    /// The approval's status at `now`. A request for a raise can be decided by the person who was asked alone: for
    /// another owner of the agent, it has expired.
    pub fn status(&self, now: Timestamp) -> ApprovalStatus {
        let is_theirs = self.raise.as_ref().is_none_or(|raise| raise.asked_of == self.owner);
        let in_time = now < self.expires_at && is_theirs;
        match &self.resolution {
            Resolution::Pending if in_time => ApprovalStatus::Pending,
            Resolution::Approved(_) if in_time => ApprovalStatus::Approved,
            Resolution::Pending | Resolution::Approved(_) => ApprovalStatus::Expired,
            Resolution::Rejected(_) => ApprovalStatus::Rejected,
            Resolution::Executed { .. } => ApprovalStatus::Executed,
        }
    }

    /// Whether the approval was changed so at this time, as far as the row shows. A row does not distinguish a rejection
    /// from a withdrawal, and a withdrawal replaces the time of the approval.
    pub fn was_changed(&self, change: ApprovalChange, at: Timestamp) -> bool {
        match (change, &self.resolution) {
            (ApprovalChange::Approved, Resolution::Approved(ruling) | Resolution::Executed { ruling, .. })
            | (ApprovalChange::Rejected | ApprovalChange::Withdrawn, Resolution::Rejected(ruling)) => ruling.at == at,
            (ApprovalChange::Approved, Resolution::Rejected(ruling)) => at <= ruling.at,
            (ApprovalChange::Expired, Resolution::Pending | Resolution::Approved(_)) => self.expires_at == at,
            _ => false,
        }
    }

    /// A person's decision, if there is one.
    pub const fn ruling(&self) -> Option<&ApprovalResolution> {
        match &self.resolution {
            Resolution::Pending => None,
            Resolution::Approved(ruling) | Resolution::Rejected(ruling) | Resolution::Executed { ruling, .. } => {
                Some(ruling)
            }
        }
    }

    /// The approval as the agent's present owner sees it: an approval that was no longer open when the ownership was
    /// transferred stays with the earlier owner, and so does the earlier owner's note.
    pub fn seen_by(mut self, owner: &str, now: Timestamp) -> Option<Self> {
        if self.owner != owner && !self.status(now).is_open() {
            return None;
        }
        match &mut self.resolution {
            Resolution::Approved(ruling) | Resolution::Rejected(ruling) | Resolution::Executed { ruling, .. }
                if ruling.by != owner =>
            {
                ruling.note = None;
            }
            Resolution::Pending | Resolution::Approved(_) | Resolution::Rejected(_) | Resolution::Executed { .. } => {}
        }
        Some(self)
    }

    /// The time of a person's decision.
    pub fn resolved_at(&self) -> Option<Timestamp> {
        self.ruling().map(|ruling| ruling.at)
    }

    /// The settlement of the payment that used the approval.
    pub const fn settlement(&self) -> Option<SettlementId> {
        match self.resolution {
            Resolution::Executed { settlement, .. } => Some(settlement),
            Resolution::Pending | Resolution::Approved(_) | Resolution::Rejected(_) => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Duration, Metadata, Offer, ProviderRequest, RaisedCaps, Url};
    use uuid::Uuid;

    /// A pending approval of an amount of zero.
    pub(crate) fn approval() -> Approval {
        let agent = AgentId::from_uuid(Uuid::nil());
        let fingerprint = Fingerprint::of_text("x");
        Approval {
            id: ApprovalId::of(agent, &fingerprint, 0),
            agent,
            owner: "o".to_owned(),
            key: KeyId(1),
            transaction: TransactionId::from_uuid(Uuid::nil()),
            fingerprint,
            service: ServiceId::from_uuid(Uuid::nil()),
            operation: OperationSlug::parse("a.b").unwrap(),
            amount: Amount::ZERO,
            pay_to: Address::ZERO,
            call: CallDescription {
                request: ProviderRequest {
                    method: "GET".to_owned(),
                    url: Url::parse("https://a.example/").unwrap(),
                    body_hash: None,
                },
                target_url: None,
                metadata: Metadata::default(),
                catalog_price: None,
            },
            threshold: Amount::ZERO,
            rule: None,
            raise: None,
            created_at: Timestamp::EPOCH,
            expires_at: Timestamp::EPOCH.after(Duration::DAY),
            resolution: Resolution::Pending,
        }
    }

    #[test]
    fn a_request_for_a_raise_expires_with_the_person_who_was_asked() {
        let raise = |asked_of: &str| RaiseRequest {
            caps: RaisedCaps::default(),
            until: Timestamp::EPOCH.after(Duration::DAY),
            reason: "more pages".to_owned(),
            asked_of: asked_of.to_owned(),
        };
        for (asked_of, status) in [("o", ApprovalStatus::Pending), ("other", ApprovalStatus::Expired)] {
            let approval = Approval {
                raise: Some(raise(asked_of)),
                ..approval()
            };
            assert_eq!(approval.status(Timestamp::EPOCH), status);
        }
    }

    #[test]
    fn expiry_only_affects_pending_and_approved_approvals() {
        let created = Timestamp::EPOCH;
        let expires = created.after(Duration::DAY);
        let ruling = ApprovalResolution {
            at: created,
            by: "o".to_owned(),
            note: None,
        };
        let last = Timestamp::from_micros(expires.micros() - 1).unwrap();
        let settlement = SettlementId::from_uuid(Uuid::nil());
        let rows = [
            (Resolution::Pending, ApprovalStatus::Pending, ApprovalStatus::Expired),
            (
                Resolution::Approved(ruling.clone()),
                ApprovalStatus::Approved,
                ApprovalStatus::Expired,
            ),
            (
                Resolution::Rejected(ruling.clone()),
                ApprovalStatus::Rejected,
                ApprovalStatus::Rejected,
            ),
            (
                Resolution::Executed { ruling, settlement },
                ApprovalStatus::Executed,
                ApprovalStatus::Executed,
            ),
        ];
        for (resolution, before, after) in rows {
            let approval = Approval {
                created_at: created,
                expires_at: expires,
                resolution,
                ..approval()
            };
            assert_eq!(
                (approval.status(last), approval.status(expires)),
                (before, after),
                "{approval:?}"
            );
            let is_pending = approval.resolution == Resolution::Pending;
            assert_eq!(approval.resolved_at(), (!is_pending).then_some(created));
            let is_executed = before == ApprovalStatus::Executed;
            assert_eq!(approval.settlement(), is_executed.then_some(settlement));
            assert_eq!((before.is_open(), after.is_open()), (before != after, false));
        }
    }

    #[test]
    fn an_approval_is_for_one_request_at_its_terms() {
        let intent = |text: &str, units, payee| Intent {
            offer: Offer::recorded(Amount::from_units(units).unwrap(), Address::repeat_byte(payee)),
            max_payment: Amount::MAX,
            request: approval().call.request,
            service: None,
            operation: None,
            target: None,
            metadata: Metadata::default(),
            fingerprint: Fingerprint::of_text(text),
        };
        assert!(approval().is_for(&intent("x", 0, 0)));
        for other in [intent("y", 0, 0), intent("x", 1, 0), intent("x", 0, 1)] {
            assert!(!approval().is_for(&other), "{other:?}");
        }
    }
}
