//! The common error type.
//!
//! An [`Error`] has an [`ErrorKind`] for the caller (`docs/spec.md` §7) and a [`Cause`] for the log. The response is
//! built from the kind alone, so the cause can't reach the caller. A denial by a policy is not an error but a value
//! ([`Refusal`]).

use crate::{
    ApprovalId, ApprovalStatus, KeyLack, NoTransaction, Refusal, ServiceId, SettlementId, UnpaidDenial,
    ValidationError, WithdrawalRejection,
};
use std::fmt;

/// The result of an operation that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed request: the error for the caller, and the cause for the log.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    cause: Option<Cause>,
}

/// The part of an error that the caller sees. One variant per slug of `docs/spec.md` §7.
#[derive(Debug)]
pub enum ErrorKind {
    /// The body or query is malformed. Contains every validation error.
    InvalidRequest(Vec<ValidationError>),
    /// A required field is missing. The response's slug is `<field>_required`.
    FieldRequired {
        /// The first missing field, in the order in which the body is documented.
        field: &'static str,
        /// Every validation error of the body. Empty if the error is from [`Error::field_required`].
        problems: Vec<ValidationError>,
    },
    /// The key is missing, malformed, unknown, revoked or expired. The response does not tell these cases apart.
    InvalidAgentKey,
    /// The key is valid, but does not permit this call.
    KeyNotAllowed {
        /// The permission that the key lacks.
        missing: KeyLack,
    },
    /// The header is not of the form `Bearer <public>:<secret>`.
    InvalidAuthorizationHeader,
    /// The session is missing, malformed, expired or unknown. The response does not tell these cases apart.
    InvalidSession,
    /// The operator's token is missing or invalid. The response does not tell these cases apart.
    InvalidInternalToken,
    /// The issuer's token is valid, but lacks the claim that grants access.
    NotEntitled {
        /// The name of the claim that the issuer's token lacks.
        claim: String,
    },
    /// The user signed in too long ago for this request.
    RecentSignInRequired {
        /// The maximum age of a sign-in, in seconds.
        max_age_seconds: u64,
    },
    /// The operator who requested a change also tried to accept the change.
    SecondOperatorRequired,
    /// A form was sent from a page of another site.
    CrossSiteRequest,
    /// The policy denies or escalates the payment.
    Refused(Box<Refusal>),
    /// The policy denies a call without a payment.
    UnpaidRefused(Box<UnpaidDenial>),
    /// The service is not in the catalog or is disabled.
    ServiceNotFound,
    /// The route or the id is unknown, or the object belongs to another user.
    NotFound,
    /// The idempotency key was already used with a different request.
    IdempotencyKeyReused {
        /// The settlement of the first request with this idempotency key, if that request has a settlement.
        settlement: Option<SettlementId>,
    },
    /// The approval in the request was already used for an earlier payment, so no second payment is made.
    IdempotentReplay {
        /// The id of the approval that was already used.
        approval: ApprovalId,
        /// The settlement that used the approval.
        settlement: SettlementId,
    },
    /// The transaction already confirmed another settlement.
    SettlementTransactionAlreadyUsed,
    /// The approval request has expired or was already decided.
    ApprovalNotPending {
        /// The id of the approval that is not pending.
        approval: ApprovalId,
        /// The current status of the approval request.
        status: ApprovalStatus,
    },
    /// Another service already has the slug.
    SlugTaken {
        /// The id of the service that already has the slug.
        service: ServiceId,
    },
    /// The withdrawal is rejected.
    PayoutRefused(WithdrawalRejection),
    /// The maximum number of frozen agents or owners is reached.
    TooManyFreezes {
        /// The maximum number of frozen agents or owners.
        limit: usize,
    },
    /// The expected version in the request is not the current version.
    VersionConflict {
        /// The current version of the object that the request would change.
        version: u64,
    },
    /// The write request contains no expected version.
    VersionRequired,
    /// The body is longer than the limit.
    RequestTooLarge {
        /// The maximum size of the body, in bytes.
        limit: usize,
    },
    /// The request to complete a payment lacks the provider's proof.
    ProviderProofRequired,
    /// The provider's proof contains no transaction hash.
    SettlementTransactionHashRequired(NoTransaction),
    /// A final block shows that the payment was not made as authorized, or too many proofs failed.
    SettlementNotVerified {
        /// Why the payment is not verified, in snake case.
        reason: &'static str,
    },
    /// The chain does not show the payment yet, but may show it later.
    SettlementNotYetVerified {
        /// Why the chain does not show the payment yet, in snake case.
        reason: &'static str,
        /// The delay before a retry, in whole seconds.
        retry_after: u64,
    },
    /// The chain can't be read, so the payment can't be verified.
    ChainUnavailable {
        /// The delay before a retry, in whole seconds.
        retry_after: u64,
    },
    /// A rate limit is exceeded, or the agent has the maximum number of open payments.
    TooManyRequests {
        /// The time until the next request is accepted, in whole seconds.
        retry_after: u64,
    },
    /// The service is overloaded. The request can be repeated safely.
    TemporarilyUnavailable {
        /// The delay before a retry, in whole seconds.
        retry_after: u64,
    },
    /// An internal error of Purser.
    Internal,
}

/// The part of an error for the log: the attempted operation, and the underlying error.
#[derive(Debug)]
pub struct Cause {
    operation: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Cause {
    /// Returns the error that made the operation fail.
    pub fn source(&self) -> &(dyn std::error::Error + 'static) {
        &*self.source
    }
}

impl Error {
    /// Creates an internal error of the attempted `operation`. Only the log contains the operation and the source.
    pub fn internal(operation: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            kind: ErrorKind::Internal,
            cause: Some(Cause {
                operation,
                source: source.into(),
            }),
        }
    }

    /// Creates the error for a malformed body or query.
    pub fn invalid(errors: Vec<ValidationError>) -> Self {
        ErrorKind::InvalidRequest(errors).into()
    }

    /// Creates the error for a field that is optional in the schema but needed for the called operation.
    pub fn field_required(field: &'static str) -> Self {
        let errors = Vec::new();
        ErrorKind::FieldRequired {
            field,
            problems: errors,
        }
        .into()
    }

    /// Creates the error for an RPC node that does not respond or serves another chain. `retry_after` is in seconds.
    pub fn chain_unavailable(retry_after: u64, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause = Cause {
            operation: "verifying a settlement on chain",
            source: source.into(),
        };
        Self {
            kind: ErrorKind::ChainUnavailable { retry_after },
            cause: Some(cause),
        }
    }

    /// Creates the error for an overload, a concurrent request or a throttled database. Only the log contains
    /// `operation` and `source`.
    pub fn temporarily_unavailable(
        operation: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        /// The delay before a retry, in seconds. It is short, because the failed call already waited for a second or
        /// more.
        const RETRY_AFTER: u64 = 1;
        Self {
            kind: ErrorKind::TemporarilyUnavailable {
                retry_after: RETRY_AFTER,
            },
            cause: Some(Cause {
                operation,
                source: source.into(),
            }),
        }
    }

    /// Sets an overload's delay before a retry, in seconds. Other errors are unchanged.
    #[must_use]
    pub fn with_retry_after(mut self, secs: u64) -> Self {
        if let ErrorKind::TemporarilyUnavailable { retry_after } = &mut self.kind {
            *retry_after = secs;
        }
        self
    }

    /// Returns the part of the error that the caller sees.
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Returns the part of the error that appears only in the log, if there is one.
    pub const fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, cause: None }
    }
}

impl From<WithdrawalRejection> for Error {
    fn from(rejection: WithdrawalRejection) -> Self {
        ErrorKind::PayoutRefused(rejection).into()
    }
}

impl ErrorKind {
    /// Returns the `error` slug of the response.
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
            Self::Refused(rejection) => rejection.reason.slug().to_owned(),
            Self::UnpaidRefused(rejection) => rejection.reason.slug().to_owned(),
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
            // The code of RFC 6749 §4.1.2.1 for an overloaded server.
            Self::TemporarilyUnavailable { .. } => "temporarily_unavailable".to_owned(),
            Self::Internal => "internal_error".to_owned(),
        }
    }
}

/// Writes the slug, the attempted operation and the causes, for the log.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.slug())?;
        let Some(cause) = &self.cause else { return Ok(()) };
        write!(f, " while {}: {}", cause.operation, Causes(cause.source.as_ref()))
    }
}

impl std::error::Error for Error {}

/// Writes an error and the chain of sources, for the log.
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
