//! The exit codes and the errors of commands.

use crate::credentials::CredentialError;
use crate::journal::JournalError;
use crate::payment::{as_json, warn_if_not_final};
use purser_client::{ApiError, PayError, PaymentMade, Refusal, Slug};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// An exit code. The codes are part of the interface (see `--help`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The policy blocks the call. Nothing was paid.
    Blocked = 3,
    /// A user has to approve the call. Nothing was paid.
    ApprovalRequired = 4,
    /// A payment was sent, and the provider's response is an error or was lost.
    AfterPayment = 5,
    /// A verification failed or verified nothing essential, or a log is not consistent with a stored checkpoint.
    NotVerified = 6,
    /// The document or the trust file can't be read, or a decision can't be replayed.
    Unreadable = 7,
    /// `--dry-run` found differences, or the new evaluation of `replay` differs from the decision.
    Different = 8,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Blocked => 3,
            Exit::ApprovalRequired => 4,
            Exit::AfterPayment => 5,
            Exit::NotVerified => 6,
            Exit::Unreadable => 7,
            Exit::Different => 8,
        })
    }
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Pay(#[from] PayError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("{0}")]
    Words(String),
    /// All validation errors of the input, each as `position: error`.
    #[error("{what}")]
    Problems { what: String, problems: Vec<String> },
    /// The document or the trust file of a verification can't be read.
    #[error("{0}")]
    Unreadable(String),
    #[error("the request can't be signed")]
    Signature,
    #[error("the provider answered HTTP {status} to the paid call (settlement {})", .payment.settlement_id)]
    ProviderStatus { status: u16, payment: Box<PaymentMade> },
    /// The response to the paid call was not received completely or could not be written.
    #[error("{failure} (settlement {})", .payment.settlement_id)]
    AnswerLost {
        failure: Box<Failure>,
        payment: Box<PaymentMade>,
    },
    #[error("{what} can't be written: {source}")]
    Output { what: String, source: std::io::Error },
}

impl Failure {
    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Pay(PayError::ApprovalRequired(_)) => Exit::ApprovalRequired,
            Self::Pay(PayError::AboveListed { .. }) => Exit::Blocked,
            Self::Pay(error) if error.payment().is_some() => Exit::AfterPayment,
            Self::ProviderStatus { .. } | Self::AnswerLost { .. } => Exit::AfterPayment,
            Self::Unreadable(_) => Exit::Unreadable,
            _ => match self.refusal() {
                Some(rejection) if is_block(rejection) => Exit::Blocked,
                _ => Exit::Failed,
            },
        }
    }

    /// Returns Purser's error response, if any.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Pay(PayError::Refused { refusal: rejection } | PayError::Purser(ApiError::Refused(rejection)))
            | Self::Api(ApiError::Refused(rejection)) => Some(rejection),
            Self::Pay(PayError::ApprovalRequired(pending)) => Some(pending.refusal()),
            _ => None,
        }
    }

    /// Returns the payment, if a payment was signed.
    fn payment(&self) -> Option<&PaymentMade> {
        match self {
            Self::Pay(error) => error.payment(),
            Self::ProviderStatus { payment, .. } | Self::AnswerLost { payment, .. } => Some(payment),
            _ => None,
        }
    }

    /// Returns advice for the caller, if the error has any.
    fn what_to_do(&self) -> Option<&'static str> {
        match self {
            Self::Pay(error) => Some(error.what_to_do()),
            Self::ProviderStatus { .. } | Self::AnswerLost { .. } => {
                Some("Run the same command again: it sends the same payment, and nothing is paid twice.")
            }
            Self::Api(ApiError::Refused(rejection)) if rejection.slug.as_str() == "invalid_internal_token" => {
                Some("Check PURSER_OPERATOR_TOKEN, or store one with `purser login --operator`.")
            }
            Self::Api(ApiError::Refused(rejection)) if rejection.slug == Slug::InvalidAgentKey => {
                Some("Check PURSER_KEY, or store one with `purser login`.")
            }
            Self::Api(ApiError::Refused(rejection)) => match rejection.slug.as_str() {
                "invalid_grant" | "access_denied" | "expired_token" => Some("Run `purser login` again."),
                "invalid_session" | "recent_sign_in_required" => {
                    Some("Sign in again, put the new ID token into PURSER_SESSION_TOKEN, and repeat the command.")
                }
                "version_conflict" => Some("It was changed after it was read: repeat the command."),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the lines below the message: a warning about the payment, advice, and all validation errors.
    pub(crate) fn lines(&self) -> Vec<String> {
        if let Self::Problems { problems: errors, .. } = self {
            return errors.clone();
        }
        let warning = self.payment().and_then(warn_if_not_final);
        let advice = self.what_to_do().map(str::to_owned);
        // The message of a rejected payment already contains the advice.
        let advice = advice.filter(|_| !matches!(self, Self::Pay(PayError::Refused { .. })));
        let Some(rejection) = self.refusal() else {
            return warning.into_iter().chain(advice).collect();
        };
        let at = rejection
            .retry_at
            .map(|at| format!("retry_at: {}", at.format("%Y-%m-%dT%H:%M:%SZ")));
        let errors = rejection.details.iter();
        let errors = errors.map(|error| format!("{}: {}", error.path, error.message));
        advice.into_iter().chain(at).chain(errors).collect()
    }

    /// Returns the error as JSON, with the body of Purser's error response, if any.
    pub(crate) fn as_json(&self) -> Value {
        let mut body = match (self.refusal(), self) {
            (Some(rejection), _) => rejection.body.clone(),
            (None, Self::Problems { problems: errors, .. }) => members(json!({"error": "invalid", "problems": errors})),
            (None, Self::ProviderStatus { status, .. }) => {
                members(json!({"error": "provider_status", "status": status}))
            }
            (None, Self::AnswerLost { .. }) => members(json!({"error": "answer_lost"})),
            (None, Self::Unreadable(_)) => members(json!({"error": "unreadable"})),
            (None, Self::Pay(error)) => members(json!({"error": slug(error)})),
            (None, _) => members(json!({"error": "failed"})),
        };
        if let Some(payment) = self.payment() {
            body.extend(members(as_json(payment)));
        }
        if let Some(warning) = self.payment().and_then(warn_if_not_final) {
            body.insert("warning".to_owned(), warning.into());
        }
        if let Some(advice) = self.what_to_do() {
            body.insert("what_to_do".to_owned(), advice.into());
        }
        body.entry("message").or_insert_with(|| self.to_string().into());
        body.into()
    }
}

fn members(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Returns the slug of an error that Purser did not return.
const fn slug(error: &PayError) -> &'static str {
    match error {
        PayError::PaymentUnanswered { .. } => "payment_unanswered",
        PayError::PaymentNotAccepted { .. } => "payment_not_accepted",
        PayError::PaymentRedirected { .. } => "payment_redirected",
        PayError::AlreadyPaid(_) => "already_paid",
        PayError::AboveListed { .. } => "above_listed",
        PayError::PaymentLapsed { .. } => "payment_lapsed",
        _ => "failed",
    }
}

/// Returns whether the policy blocks the call. Returns false for errors that the caller can fix.
fn is_block(rejection: &Refusal) -> bool {
    let is_about_the_caller = rejection.slug == Slug::KeyNotAllowed
        || matches!(rejection.slug.as_str(), "not_entitled" | "recent_sign_in_required");
    matches!(rejection.status, 402 | 403) && !is_about_the_caller
}
