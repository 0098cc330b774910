//! The one error vocabulary: every way a request can fail, and what is returned to its caller.
//!
//! An [`Error`] has two audiences. [`ErrorKind`] is for the caller: the slug and the context fields of `docs/spec.md`
//! §7, and nothing else. The [`Cause`] is for the log: the attempted operation and its failure. The cause can't reach
//! the caller, because the envelope is written from the kind alone. Status numbers are in `shared/api`.
//!
//! Refusals by a policy are not failures: they are values ([`Refusal`]) that become an error only when they are
//! answered.

use crate::{
    ApprovalId, ApprovalStatus, KeyLack, NoTransaction, PayoutRefusal, Problem, Refusal, ServiceId, SettlementId,
    UnpaidRefusal,
};
use std::fmt;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed request.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    cause: Option<Cause>,
}

/// The part of an error that its caller sees. One variant per slug of `docs/spec.md` §7.
#[derive(Debug)]
pub enum ErrorKind {
    /// The body or query is malformed, with every problem.
    InvalidRequest(Vec<Problem>),
    /// A required field is missing: `<field>_required`.
    FieldRequired {
        /// The first one that is missing, in the order in which the body is documented.
        field: &'static str,
        /// Every problem of the body, including this one; empty if only the decision found the field missing.
        problems: Vec<Problem>,
    },
    /// The key is missing, malformed, unknown, revoked or expired; the answer does not say which.
    InvalidAgentKey,
    /// The key is valid, but not for this call.
    KeyNotAllowed {
        /// The missing permission.
        missing: KeyLack,
    },
    /// The header is not of the form `Bearer <public>:<secret>`.
    InvalidAuthorizationHeader,
    /// The session is missing, malformed, expired or not ours; the answer does not say which.
    InvalidSession,
    /// The operator's token is missing or wrong; the answer does not say which.
    InvalidInternalToken,
    /// The issuer vouches for the person, who lacks the entitling claim.
    NotEntitled {
        /// The claim's name.
        claim: String,
    },
    /// The person's sign-in is too old for this request.
    RecentSignInRequired {
        /// The longest age of a sign-in.
        max_age_seconds: u64,
    },
    /// An operator accepts their own change.
    SecondOperatorRequired,
    /// A form was sent from another site.
    CrossSiteRequest,
    /// The policy refuses or escalates.
    Refused(Box<Refusal>),
    /// The policy refuses a call without a payment.
    UnpaidRefused(Box<UnpaidRefusal>),
    /// The service is not in the catalog, or disabled.
    ServiceNotFound,
    /// Unknown route, unknown id, or another person's object.
    NotFound,
    /// The idempotency key was used with another request.
    IdempotencyKeyReused {
        /// The settlement of the first use, if there is one.
        settlement: Option<SettlementId>,
    },
    /// The approval was already used.
    IdempotentReplay {
        /// The approval.
        approval: ApprovalId,
        /// The settlement that it authorized.
        settlement: SettlementId,
    },
    /// The transaction already finalized another settlement.
    SettlementTransactionAlreadyUsed,
    /// The decision comes too late, or for the second time.
    ApprovalNotPending {
        /// The approval.
        approval: ApprovalId,
        /// Its status.
        status: ApprovalStatus,
    },
    /// Another service has the slug.
    SlugTaken {
        /// That service.
        service: ServiceId,
    },
    /// The payout is refused.
    PayoutRefused(PayoutRefusal),
    /// Operators have frozen as many agents, or owners, as they may.
    TooManyFreezes {
        /// The limit.
        limit: usize,
    },
    /// The write names another version than the present one.
    VersionConflict {
        /// The present version.
        version: u64,
    },
    /// The write does not name a version.
    VersionRequired,
    /// The body is over the limit.
    RequestTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// Complete was called without the provider's proof.
    ProviderProofRequired,
    /// The proof gives no transaction.
    SettlementTransactionHashRequired(NoTransaction),
    /// The chain shows finally that the payment was not made as authorized, or it is no longer looked for.
    SettlementNotVerified {
        /// The reason, in snake case.
        reason: &'static str,
    },
    /// The chain does not show the payment yet, but may later.
    SettlementNotYetVerified {
        /// The reason, in snake case.
        reason: &'static str,
        /// The delay before a retry, in whole seconds.
        retry_after: u64,
    },
    /// The chain can't be asked whether it shows the payment.
    ChainUnavailable {
        /// The delay before a retry, in whole seconds.
        retry_after: u64,
    },
    /// A throttle by address, key or person, or the limit of an agent's open payments.
    TooManyRequests {
        /// The time until the next request is accepted, in whole seconds.
        retry_after: u64,
    },
    /// The service is overloaded. A repetition of the request does nothing twice.
    TemporarilyUnavailable {
        /// The delay before a retry, in whole seconds.
        retry_after: u64,
    },
    /// A fault of the service.
    Internal,
}

/// The logged part: the attempted operation, and the underlying error.
#[derive(Debug)]
pub struct Cause {
    doing: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Cause {
    /// The underlying error.
    pub fn source(&self) -> &(dyn std::error::Error + 'static) {
        &*self.source
    }
}

impl Error {
    /// A fault of the service while `doing` something; the caller learns no more.
    pub fn internal(doing: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            kind: ErrorKind::Internal,
            cause: Some(Cause {
                doing,
                source: source.into(),
            }),
        }
    }

    /// The body or query is malformed.
    pub fn invalid(problems: Vec<Problem>) -> Self {
        ErrorKind::InvalidRequest(problems).into()
    }

    /// A field is missing that only this request needs.
    pub fn field_required(field: &'static str) -> Self {
        let problems = Vec::new();
        ErrorKind::FieldRequired { field, problems }.into()
    }

    /// The chain can't be asked; `source` is logged as the reason.
    pub fn chain_unavailable(retry_after: u64, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause = Cause {
            doing: "verifying a settlement on chain",
            source: source.into(),
        };
        Self {
            kind: ErrorKind::ChainUnavailable { retry_after },
            cause: Some(cause),
        }
    }

    /// The service is overloaded while `doing` something: there is too much work, others do the same, or the database
    /// throttles. `source` is logged as the reason.
    pub fn temporarily_unavailable(
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        /// The call has already waited for a second or more.
        const RETRY_AFTER: u64 = 1;
        Self {
            kind: ErrorKind::TemporarilyUnavailable {
                retry_after: RETRY_AFTER,
            },
            cause: Some(Cause {
                doing,
                source: source.into(),
            }),
        }
    }

    /// The same error with this delay before a retry, if the service is overloaded; any other unchanged.
    #[must_use]
    pub fn retry_after(mut self, secs: u64) -> Self {
        if let ErrorKind::TemporarilyUnavailable { retry_after } = &mut self.kind {
            *retry_after = secs;
        }
        self
    }

    /// The part that the caller sees.
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The logged part, if there is any.
    pub const fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, cause: None }
    }
}

impl From<PayoutRefusal> for Error {
    fn from(refusal: PayoutRefusal) -> Self {
        ErrorKind::PayoutRefused(refusal).into()
    }
}

impl ErrorKind {
    /// The `error` slug of the envelope.
    pub fn slug(&self) -> String {
        match self {
            Self::FieldRequired { field, .. } => format!("{field}_required"),
            Self::InvalidRequest(_) => "invalid_request".to_owned(),
            Self::InvalidAgentKey => "invalid_agent_key".to_owned(),
            Self::KeyNotAllowed { .. } => "key_not_allowed".to_owned(),
            Self::InvalidAuthorizationHeader => "invalid_authorization_header".to_owned(),
            Self::InvalidSession => "invalid_session".to_owned(),
            Self::InvalidInternalToken => "invalid_internal_token".to_owned(),
            Self::NotEntitled { .. } => "not_entitled".to_owned(),
            Self::RecentSignInRequired { .. } => "recent_sign_in_required".to_owned(),
            Self::SecondOperatorRequired => "second_operator_required".to_owned(),
            Self::CrossSiteRequest => "cross_site_request".to_owned(),
            Self::Refused(refusal) => refusal.reason.slug().to_owned(),
            Self::UnpaidRefused(refusal) => refusal.reason.slug().to_owned(),
            Self::ServiceNotFound => "service_not_found".to_owned(),
            Self::NotFound => "not_found".to_owned(),
            Self::IdempotencyKeyReused { .. } => "idempotency_key_reused_for_different_request".to_owned(),
            Self::IdempotentReplay { .. } => "idempotent_replay".to_owned(),
            Self::SettlementTransactionAlreadyUsed => "settlement_transaction_already_used".to_owned(),
            Self::ApprovalNotPending { .. } => "approval_not_pending".to_owned(),
            Self::SlugTaken { .. } => "slug_taken".to_owned(),
            Self::PayoutRefused(_) => "payout_refused".to_owned(),
            Self::TooManyFreezes { .. } => "too_many_freezes".to_owned(),
            Self::VersionConflict { .. } => "version_conflict".to_owned(),
            Self::VersionRequired => "version_required".to_owned(),
            Self::RequestTooLarge { .. } => "request_too_large".to_owned(),
            Self::ProviderProofRequired => "provider_proof_required".to_owned(),
            Self::SettlementTransactionHashRequired(_) => "settlement_transaction_hash_required".to_owned(),
            Self::SettlementNotVerified { .. }
            | Self::SettlementNotYetVerified { .. }
            | Self::ChainUnavailable { .. } => "onchain_settlement_not_verified".to_owned(),
            Self::TooManyRequests { .. } => "too_many_requests".to_owned(),
            // The word of RFC 6749 §4.1.2.1 for a server that is temporarily unable to answer.
            Self::TemporarilyUnavailable { .. } => "temporarily_unavailable".to_owned(),
            Self::Internal => "internal_error".to_owned(),
        }
    }
}

/// For the log: the slug, the attempted operation, and the chain of underlying errors.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.slug())?;
        let Some(cause) = &self.cause else { return Ok(()) };
        write!(f, " while {}: {}", cause.doing, Causes(cause.source.as_ref()))
    }
}

impl std::error::Error for Error {}

/// For the log: an error, and the chain of underlying errors.
pub struct Causes<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        for cause in std::iter::successors(self.0.source(), |cause| cause.source()) {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}
