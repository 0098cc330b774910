//! Requests for a user's approval of a payment or a limit increase (`docs/spec.md` §2.8, §3.3).
//!
//! ```text
//! pending ──approve──▶ approved ──retry──▶ executed (once)
//!    │                    ├──withdraw──▶ rejected
//!    ├──reject──▶ rejected└──time──▶ expired
//!    └──time──▶ expired
//! ```
//!
//! Expiry is never written: from `expires_at` on, a stored `pending` or `approved` request counts as expired.

use crate::{
    Address, AgentId, Amount, ApprovalException, ApprovalId, AskingLimit, CallDescription, Fingerprint, GivenApproval,
    Intent, KeyId, LimitIncreaseRequest, OperationSlug, RAISE_PAUSE, RuleKind, ServiceId, ServiceSlug, SettlementId,
    TemporaryCaps, Timestamp, TransactionId, ValidationError, catalog::service::named,
};

/// An approval request to a user, bound to exactly one payment request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The id, which is derived from the payment request ([`ApprovalId::derive`]).
    pub id: ApprovalId,
    /// The agent that requested the approval.
    pub agent: AgentId,
    /// The id of the user who owns the agent and decides the request.
    pub owner: String,
    /// The id of the agent key that sent the request.
    pub key: KeyId,
    /// The decision that required this approval, or the denial that led to the request for a limit increase.
    pub transaction: TransactionId,
    /// The fingerprint of the payment request that needs the approval.
    pub fingerprint: Fingerprint,
    /// The service that the agent wants to pay.
    pub service: ServiceId,
    /// The operation that the agent wants to call.
    pub operation: OperationSlug,
    /// The amount of the payment, in micro-USDC.
    pub amount: Amount,
    /// The address that the payment pays.
    pub pay_to: Address,
    /// The provider call, as the agent described it.
    pub call: CallDescription,
    /// The policy's approval threshold at the time of the request.
    pub threshold: Amount,
    /// The limits that the payment exceeded and that the approval waives. Empty for a request for a limit increase.
    pub asking: Vec<AskingLimit>,
    /// The requested limit increase, if this is a request for a limit increase.
    pub raise: Option<LimitIncreaseRequest>,
    /// The limit increase that the owner granted: at most what the agent requested.
    pub granted: Option<TemporaryCaps>,
    /// The time at which the agent requested the approval.
    pub created_at: Timestamp,
    /// The time from which a pending request or an unused approval counts as expired.
    pub expires_at: Timestamp,
    /// The state of the request, with the user's decision if there is one.
    pub resolution: Resolution,
}

impl Approval {
    /// Returns the fingerprint of requests for limit increases for this service. No payment request has this
    /// fingerprint.
    pub fn limit_increase_fingerprint(service: ServiceId) -> Fingerprint {
        Fingerprint::for_text(&format!("raise {service}"))
    }

    /// Returns whether this request is used instead of a new request for a limit increase to the same user:
    /// while this request is pending, and for [`RAISE_PAUSE`] after a rejection.
    pub fn is_used_instead_of(&self, new_request: &LimitIncreaseRequest, now: Timestamp) -> bool {
        let is_same_user = self
            .raise
            .as_ref()
            .is_some_and(|increase| increase.asked_of == new_request.asked_of);
        is_same_user
            && match &self.resolution {
                Resolution::Pending => self.status(now).is_open(),
                Resolution::Rejected(resolution) => now < resolution.at.after(RAISE_PAUSE),
                Resolution::Approved(_) | Resolution::Executed { .. } => false,
            }
    }

    /// Returns the granted limit increase, or the requested increase while it is not granted.
    pub fn temporary_caps(&self) -> Option<TemporaryCaps> {
        let requested = self.raise.as_ref().map(LimitIncreaseRequest::temporary_caps)?;
        Some(self.granted.unwrap_or(requested))
    }

    /// Returns the approval as an input of an evaluation.
    pub fn as_evaluation_input(&self) -> GivenApproval<'_> {
        GivenApproval {
            id: self.id,
            asking: &self.asking,
        }
    }

    /// Returns whether the approval can be granted together with an exception from future approvals. Only thresholds
    /// and `approval_required` rules allow exceptions.
    pub fn allows_exception(&self) -> bool {
        self.asking.iter().any(ApprovalException::can_waive)
    }

    /// Returns the rule that exempts payments with the same key, operation and payee, up to `max_amount`, from the
    /// limits that the approval waives. The errors have JSON Pointers into the request that approves.
    pub fn to_exception(
        &self,
        slug: ServiceSlug,
        max_amount: Amount,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<RuleKind, Vec<ValidationError>> {
        let waived = || self.asking.iter().filter(|limit| ApprovalException::can_waive(limit));
        let exception = ApprovalException {
            services: Some(vec![slug]),
            operation: Some(self.operation.clone()),
            keys: Some(vec![self.key]),
            payee: self.pay_to,
            max_amount,
            until,
            waives_threshold: waived().any(|limit| limit.rule.is_none()),
            waived_rules: waived().filter_map(|limit| limit.rule).collect(),
        };
        let mut errors = exception.validation_errors(now);
        if !self.allows_exception() {
            let message = "must be absent, because neither the approval threshold nor a rule of the kind \
                `approval_required` requires this approval";
            errors = vec![ValidationError::at_path("", message)];
        } else if max_amount > self.amount {
            errors.push(ValidationError::at_path(
                "/max_amount_units",
                "must be at most the approved amount",
            ));
        }
        if errors.is_empty() {
            return Ok(RuleKind::ApprovalException(exception));
        }
        let errors = errors.into_iter();
        Err(errors
            .map(|error| ValidationError::at_path(format!("/always{}", error.path), error.message))
            .collect())
    }

    /// Returns whether the approval waives all these limits.
    pub fn waives(&self, asking_limits: &[AskingLimit]) -> bool {
        asking_limits.iter().all(|limit| limit.is_among(&self.asking))
    }

    /// Returns whether the approval is for this payment request, with the same amount and payee.
    pub fn covers_intent(&self, intent: &Intent) -> bool {
        self.fingerprint == intent.fingerprint
            && self.amount == intent.offer.amount()
            && self.pay_to == intent.offer.pay_to()
    }
}

/// The state of an approval request, with the user's decision and the settlement that used the approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The user has not decided yet.
    Pending,
    /// The user approved the request.
    Approved(ApprovalResolution),
    /// The user rejected the request or withdrew the approval.
    Rejected(ApprovalResolution),
    /// A payment used the approval, which can't be used again.
    Executed {
        /// The decision that approved the request.
        ruling: ApprovalResolution,
        /// The settlement of the payment that used the approval.
        settlement: SettlementId,
    },
}

/// A user's decision about an approval request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalResolution {
    /// The time of the decision.
    pub at: Timestamp,
    /// The id of the user who decided.
    pub by: String,
    /// The user's note, for the user and the agent: at most [`MAX_NOTE_CHARS`] characters.
    pub note: Option<String>,
}

/// The maximum length of a note on an approval, in characters.
pub const MAX_NOTE_CHARS: usize = 500;

named! {
    /// The status of an approval request at a given time.
    ApprovalStatus {
        /// The request waits for a user's decision.
        Pending = "pending",
        /// The request was approved, and a retry with the approval is allowed.
        Approved = "approved",
        /// A user rejected the request or withdrew the approval.
        Rejected = "rejected",
        /// The request was not decided in time, or the approval was not used in time.
        Expired = "expired",
        /// A payment used the approval.
        Executed = "executed",
    }
}

named! {
    /// A change of an approval request that a signed statement reports.
    ApprovalChange {
        /// The owner approved the request.
        Approved = "approval",
        /// The owner rejected the request.
        Rejected = "rejection",
        /// The owner withdrew an unused approval.
        Withdrawn = "approval_withdrawal",
        /// The request was not decided in time, or the approval was not used in time.
        Expired = "approval_expiry",
    }
}

impl ApprovalStatus {
    /// Returns whether the request can still lead to a payment. While the request is open, an identical
    /// payment request uses this approval request.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Approved)
    }
}

impl Approval {
    /// Returns the status at `now`. A limit increase counts as expired after an ownership transfer, because only the
    /// user who was asked can grant it.
    pub fn status(&self, now: Timestamp) -> ApprovalStatus {
        let is_theirs = self
            .raise
            .as_ref()
            .is_none_or(|increase| increase.asked_of == self.owner);
        let in_time = now < self.expires_at && is_theirs;
        match &self.resolution {
            Resolution::Pending if in_time => ApprovalStatus::Pending,
            Resolution::Approved(_) if in_time => ApprovalStatus::Approved,
            Resolution::Pending | Resolution::Approved(_) => ApprovalStatus::Expired,
            Resolution::Rejected(_) => ApprovalStatus::Rejected,
            Resolution::Executed { .. } => ApprovalStatus::Executed,
        }
    }

    /// Returns whether the stored request is consistent with `change` at the time `at`. A withdrawal of an
    /// approval is stored as a rejection, so a rejected request is consistent with any earlier approval.
    pub fn was_changed_at(&self, change: ApprovalChange, at: Timestamp) -> bool {
        match (change, &self.resolution) {
            (
                ApprovalChange::Approved,
                Resolution::Approved(resolution) | Resolution::Executed { ruling: resolution, .. },
            )
            | (ApprovalChange::Rejected | ApprovalChange::Withdrawn, Resolution::Rejected(resolution)) => {
                resolution.at == at
            }
            (ApprovalChange::Approved, Resolution::Rejected(resolution)) => at <= resolution.at,
            (ApprovalChange::Expired, Resolution::Pending | Resolution::Approved(_)) => self.expires_at == at,
            _ => false,
        }
    }

    /// Returns the user's decision, if there is one.
    pub const fn users_decision(&self) -> Option<&ApprovalResolution> {
        match &self.resolution {
            Resolution::Pending => None,
            Resolution::Approved(resolution)
            | Resolution::Rejected(resolution)
            | Resolution::Executed { ruling: resolution, .. } => Some(resolution),
        }
    }

    /// Returns the request without an earlier owner's note. `None` if the request was closed under an earlier owner.
    pub fn for_current_owner(mut self, owner: &str, now: Timestamp) -> Option<Self> {
        if self.owner != owner && !self.status(now).is_open() {
            return None;
        }
        match &mut self.resolution {
            Resolution::Approved(resolution)
            | Resolution::Rejected(resolution)
            | Resolution::Executed { ruling: resolution, .. }
                if resolution.by != owner =>
            {
                resolution.note = None;
            }
            Resolution::Pending | Resolution::Approved(_) | Resolution::Rejected(_) | Resolution::Executed { .. } => {}
        }
        Some(self)
    }

    /// Returns the time of the user's decision.
    pub fn resolved_at(&self) -> Option<Timestamp> {
        self.users_decision().map(|resolution| resolution.at)
    }

    /// Returns the settlement of the payment that used the approval.
    pub const fn settlement_id(&self) -> Option<SettlementId> {
        match self.resolution {
            Resolution::Executed { settlement, .. } => Some(settlement),
            Resolution::Pending | Resolution::Approved(_) | Resolution::Rejected(_) => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Duration, IncreasedCaps, Metadata, Offer, ProviderRequest, Url};
    use uuid::Uuid;

    pub(crate) fn approval() -> Approval {
        let agent = AgentId::from_uuid(Uuid::nil());
        let fingerprint = Fingerprint::for_text("x");
        Approval {
            id: ApprovalId::derive(agent, &fingerprint, 0),
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
            asking: Vec::new(),
            raise: None,
            granted: None,
            created_at: Timestamp::EPOCH,
            expires_at: Timestamp::EPOCH.after(Duration::DAY),
            resolution: Resolution::Pending,
        }
    }

    #[test]
    fn a_limit_increase_request_expires_when_the_owner_changes() {
        let increase = |asked_of: &str| LimitIncreaseRequest {
            caps: IncreasedCaps::default(),
            until: Timestamp::EPOCH.after(Duration::DAY),
            reason: "more pages".to_owned(),
            asked_of: asked_of.to_owned(),
        };
        for (asked_of, status) in [("o", ApprovalStatus::Pending), ("other", ApprovalStatus::Expired)] {
            let approval = Approval {
                raise: Some(increase(asked_of)),
                ..approval()
            };
            assert_eq!(approval.status(Timestamp::EPOCH), status);
        }
    }

    #[test]
    fn only_pending_and_approved_approvals_expire() {
        let created = Timestamp::EPOCH;
        let expires = created.after(Duration::DAY);
        let approval_decision = ApprovalResolution {
            at: created,
            by: "o".to_owned(),
            note: None,
        };
        let last = Timestamp::from_micros(expires.micros() - 1).unwrap();
        let settlement = SettlementId::from_uuid(Uuid::nil());
        let rows = [
            (Resolution::Pending, ApprovalStatus::Pending, ApprovalStatus::Expired),
            (
                Resolution::Approved(approval_decision.clone()),
                ApprovalStatus::Approved,
                ApprovalStatus::Expired,
            ),
            (
                Resolution::Rejected(approval_decision.clone()),
                ApprovalStatus::Rejected,
                ApprovalStatus::Rejected,
            ),
            (
                Resolution::Executed {
                    ruling: approval_decision,
                    settlement,
                },
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
            assert_eq!(approval.settlement_id(), is_executed.then_some(settlement));
            assert_eq!((before.is_open(), after.is_open()), (before != after, false));
        }
    }

    #[test]
    fn an_approval_covers_one_request_with_its_payment_requirements() {
        let intent = |text: &str, units, payee| Intent {
            offer: Offer::from_recorded_price_and_payee(
                Amount::from_units(units).unwrap(),
                Address::repeat_byte(payee),
            ),
            max_payment: Amount::MAX,
            request: approval().call.request,
            service: None,
            operation: None,
            target: None,
            metadata: Metadata::default(),
            fingerprint: Fingerprint::for_text(text),
        };
        assert!(approval().covers_intent(&intent("x", 0, 0)));
        for other in [intent("y", 0, 0), intent("x", 1, 0), intent("x", 0, 1)] {
            assert!(!approval().covers_intent(&other), "{other:?}");
        }
    }
}
