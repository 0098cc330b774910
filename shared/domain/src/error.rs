//! The one error vocabulary: every way a request can fail, and what is returned to its caller.
//!
//! An [`Error`] has two audiences. [`ErrorKind`] is for the caller: the slug and the context fields of `docs/spec.md`
//! §7, and nothing else. The [`Cause`] is for the log: what we were doing and why it failed. The second can't reach the
//! first, because the envelope is written from the kind alone. Status numbers are in `shared/api`.
//!
//! Refusals under a policy are not failures: they are values ([`Refusal`]) that only become an error when they are
//! answered.

use crate::{ApprovalId, ApprovalStatus, KeyLack, PayoutRefusal, Problem, Refusal, ServiceId, SettlementId};
use std::fmt;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed request.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    cause: Option<Cause>,
}

/// What is returned to the caller. One variant per slug of `docs/spec.md` §7.
#[derive(Debug)]
pub enum ErrorKind {
    /// The body or query is malformed, with every problem.
    InvalidRequest(Vec<Problem>),
    /// A required field is missing: `<field>_required`.
    FieldRequired {
        /// The first one that is missing, in the order in which the body is documented.
        field: &'static str,
        /// Every problem of the body, this included; empty where only the decision found the field missing.
        problems: Vec<Problem>,
    },
    /// The key is missing, malformed, unknown, revoked or expired; the answer does not say which.
    InvalidAgentKey,
    /// The key is valid, and not for this call.
    KeyNotAllowed {
        /// What it lacks.
        missing: KeyLack,
    },
    /// The header is not of the form `Bearer <public>:<secret>`.
    InvalidAuthorizationHeader,
    /// The session is missing, malformed, expired or not ours; the answer does not say which.
    InvalidSession,
    /// The operator's token is missing or wrong; the answer does not say which.
    InvalidInternalToken,
    /// The issuer vouches for the person, and they lack the claim that entitles.
    NotEntitled {
        /// The claim's name.
        claim: String,
    },
    /// The person's sign-in is too long ago for what they ask.
    RecentSignInRequired {
        /// How long ago it may be.
        max_age_seconds: u64,
    },
    /// An operator accepts a change of their own.
    SecondOperatorRequired,
    /// A form of our pages was sent from another site.
    CrossSiteRequest,
    /// The policy refuses or escalates.
    Refused(Box<Refusal>),
    /// The service is not in the catalog, or disabled.
    ServiceNotFound,
    /// Unknown route, unknown id, or somebody else's.
    NotFound,
    /// The idempotency key was used with another request.
    IdempotencyKeyReused {
        /// What the first use authorized, if it got that far.
        settlement: Option<SettlementId>,
    },
    /// The approval was already used.
    IdempotentReplay {
        /// The approval.
        approval: ApprovalId,
        /// What it authorized.
        settlement: SettlementId,
    },
    /// The transaction already finalized another settlement.
    SettlementTransactionAlreadyUsed,
    /// A person decides too late, or again.
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
    /// Nothing is paid out.
    PayoutRefused(PayoutRefusal),
    /// As many agents, or owners, are frozen by operators as may be.
    TooManyFreezes {
        /// How many may.
        limit: usize,
    },
    /// The write names another version than the present one.
    VersionConflict {
        /// The present one.
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
    /// The proof names no transaction.
    SettlementTransactionHashRequired,
    /// The chain shows, finally, that the payment was not made as authorized; or it is not looked for any more.
    SettlementNotVerified {
        /// Why, in snake case.
        reason: &'static str,
    },
    /// The chain does not show the payment yet, and still may.
    SettlementNotYetVerified {
        /// Why, in snake case.
        reason: &'static str,
        /// Whole seconds until a retry makes sense.
        retry_after: u64,
    },
    /// The chain can't be asked whether it shows the payment.
    ChainUnavailable {
        /// Whole seconds until a retry makes sense.
        retry_after: u64,
    },
    /// A throttle, by address, key or person; or the cap on an agent's open payments.
    TooManyRequests {
        /// Whole seconds until the next request is accepted.
        retry_after: u64,
    },
    /// It takes too long right now. Nothing was done that a repetition of the request would do again.
    TemporarilyUnavailable {
        /// Whole seconds until a retry makes sense.
        retry_after: u64,
    },
    /// Anything that is our fault.
    Internal,
}

/// What is logged: what we were doing, and the error underneath.
#[derive(Debug)]
pub struct Cause {
    doing: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Cause {
    /// The error underneath.
    pub fn source(&self) -> &(dyn std::error::Error + 'static) {
        &*self.source
    }
}

impl Error {
    /// Something of ours failed while `doing` something; the caller is told no more than that.
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

    /// `doing` something takes too long right now: there is too much of it, others do the same, or the database is
    /// throttled. `source` is logged as the reason.
    pub fn temporarily_unavailable(
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        /// The call itself has waited for a second or more.
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

    /// What is returned to the caller.
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// What is logged besides the kind, if anything.
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
            Self::SettlementTransactionHashRequired => "settlement_transaction_hash_required".to_owned(),
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

/// For the log: the slug, what we were doing, and the chain of errors underneath.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.slug())?;
        let Some(cause) = &self.cause else { return Ok(()) };
        write!(f, " while {}: {}", cause.doing, Causes(cause.source.as_ref()))
    }
}

impl std::error::Error for Error {}

/// For the log: an error, and the chain of errors underneath.
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
