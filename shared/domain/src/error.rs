//! The common error type: every way in which a request can fail, and the content of the answer to its caller.
//!
//! An [`Error`] has two parts. The [`ErrorKind`] is for the caller: the slug and the context fields of `docs/spec.md`
//! §7, and nothing else. The [`Cause`] is for the log: the attempted operation and its failure. The cause can't reach
//! the caller, because the answer is written from the kind alone. HTTP status codes are in `shared/api`.
//!
//! Refusals by a policy are not failures: they are values ([`Refusal`]) that become an error only when they are
//! returned to the caller.

use crate::{
    ApprovalId, ApprovalStatus, KeyLack, NoTransaction, PayoutRefusal, Problem, Refusal, ServiceId, SettlementId,
    UnpaidRefusal,
};
use std::fmt;

/// The result of an operation that can fail.
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
    /// The body or query is malformed; contains every problem.
    InvalidRequest(Vec<Problem>),
    /// A required field is missing: `<field>_required`.
    FieldRequired {
        /// The first missing field, in the order in which the body is documented.
        field: &'static str,
        /// Every problem of the body, including this one; empty if only the decision requires the field.
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
    /// The session is missing, malformed, expired or unknown; the answer does not say which.
    InvalidSession,
    /// The operator's token is missing or invalid; the answer does not say which.
    InvalidInternalToken,
    /// The issuer's token is valid, but the person lacks the claim that entitles to access.
    NotEntitled {
        /// The claim's name.
        claim: String,
    },
    /// The person's sign-in is too old for this request.
    RecentSignInRequired {
        /// The maximum age of a sign-in, in seconds.
        max_age_seconds: u64,
    },
    /// The operator who made a change tried to accept it.
    SecondOperatorRequired,
    /// A form was sent from another site.
    CrossSiteRequest,
    /// The policy refuses the payment or escalates it.
    Refused(Box<Refusal>),
    /// The policy refuses a call without a payment.
    UnpaidRefused(Box<UnpaidRefusal>),
    /// The service is not in the catalog, or disabled.
    ServiceNotFound,
    /// An unknown route, an unknown id, or another person's object.
    NotFound,
    /// The idempotency key was used with another request.
    IdempotencyKeyReused {
        /// The settlement of the key's first use, if there is one.
        settlement: Option<SettlementId>,
    },
    /// The approval was already used.
    IdempotentReplay {
        /// The approval.
        approval: ApprovalId,
        /// The settlement that it authorized.
        settlement: SettlementId,
    },
    /// The transaction already confirmed another settlement.
    SettlementTransactionAlreadyUsed,
    /// The approval has expired or was already decided.
    ApprovalNotPending {
        /// The approval.
        approval: ApprovalId,
        /// Its status.
        status: ApprovalStatus,
    },
    /// Another service has the slug.
    SlugTaken {
        /// The service that has the slug.
        service: ServiceId,
    },
    /// The payout is refused.
    PayoutRefused(PayoutRefusal),
    /// The maximum number of agents, or of owners, is already frozen.
    TooManyFreezes {
        /// The limit.
        limit: usize,
    },
    /// The write's version is not the current one.
    VersionConflict {
        /// The current version.
        version: u64,
    },
    /// The write has no version.
    VersionRequired,
    /// The body is over the limit.
    RequestTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The request to complete a payment has no provider's proof.
    ProviderProofRequired,
    /// The proof contains no transaction.
    SettlementTransactionHashRequired(NoTransaction),
    /// The chain finally shows that the payment was not made as authorized, or too many proofs failed.
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
    /// The chain can't be read, so the payment can't be verified.
    ChainUnavailable {
        /// The delay before a retry, in whole seconds.
        retry_after: u64,
    },
    /// The request was throttled by address, key or person, or the agent has the maximum number of open payments.
    TooManyRequests {
        /// The time until the next request is accepted, in whole seconds.
        retry_after: u64,
    },
    /// The service is overloaded. The request can be repeated safely.
    TemporarilyUnavailable {
        /// The delay before a retry, in whole seconds.
        retry_after: u64,
    },
    /// A fault of the service.
    Internal,
}

/// The part of an error for the log: the attempted operation, and the underlying error.
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
    /// A fault of the service during the operation `doing`, which only the log contains.
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

    /// A field is missing that only this kind of request requires.
    pub fn field_required(field: &'static str) -> Self {
        let problems = Vec::new();
        ErrorKind::FieldRequired { field, problems }.into()
    }

    /// The chain can't be read; `source` is the reason for the log.
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

    /// The service is overloaded during the operation `doing`: there is too much work, the same work is done
    /// concurrently, or the database throttles. `source` is the reason for the log.
    pub fn temporarily_unavailable(
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        /// By then the call has waited for a second or more.
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

    /// The error with this delay before a retry, if the service is overloaded; any other error unchanged.
    #[must_use]
    pub fn retry_after(mut self, secs: u64) -> Self {
        if let ErrorKind::TemporarilyUnavailable { retry_after } = &mut self.kind {
            *retry_after = secs;
        }
        self
    }

    /// The part for the caller.
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The part for the log, if there is one.
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
    /// The `error` slug of the answer.
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
            // RFC 6749 §4.1.2.1 uses this code for a server that is temporarily unable to answer.
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
