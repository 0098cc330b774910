//! What a command ends with.

use crate::credentials::CredentialError;
use crate::journal::JournalError;
use purser_client::{ApiError, PayError, Refusal, Slug};
use serde_json::{Value, json};
use std::process::ExitCode;

/// An exit code. Codes are part of the interface: see `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// It failed, and nothing was paid.
    Failed = 1,
    /// The policy blocks it.
    Blocked = 3,
    /// A person has to approve it.
    ApprovalRequired = 4,
    /// A payment was sent, and the provider's answer is an error or was lost.
    AfterPayment = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Blocked => 3,
            Exit::ApprovalRequired => 4,
            Exit::AfterPayment => 5,
        })
    }
}

/// Why a command did not do what it was asked to.
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
    /// What is wrong with what was given, all of it, as `place: problem`.
    #[error("{what}")]
    Problems { what: String, problems: Vec<String> },
    #[error("the request can't be signed")]
    Signature,
    #[error("the provider answered HTTP {0}")]
    ProviderStatus(u16),
    #[error("{what} can't be written: {source}")]
    Output { what: String, source: std::io::Error },
}

impl Failure {
    /// Its exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Pay(PayError::ApprovalRequired(_)) => Exit::ApprovalRequired,
            Self::Pay(error) if error.payment().is_some() => Exit::AfterPayment,
            Self::ProviderStatus(_) => Exit::AfterPayment,
            _ => match self.refusal() {
                Some(refusal) if is_block(refusal) => Exit::Blocked,
                _ => Exit::Failed,
            },
        }
    }

    /// What Purser answered, if it answered no.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Pay(PayError::Refused { refusal } | PayError::Purser(ApiError::Refused(refusal)))
            | Self::Api(ApiError::Refused(refusal)) => Some(refusal),
            Self::Pay(PayError::ApprovalRequired(pending)) => Some(pending.refusal()),
            _ => None,
        }
    }

    /// What else there is to say to people: when it fits, and every problem.
    pub(crate) fn lines(&self) -> Vec<String> {
        if let Self::Problems { problems, .. } = self {
            return problems.clone();
        }
        let Some(refusal) = self.refusal() else {
            return vec![];
        };
        let at = refusal
            .retry_at
            .map(|at| format!("retry_at: {}", at.format("%Y-%m-%dT%H:%M:%SZ")));
        let problems = refusal.details.iter();
        let problems = problems.map(|problem| format!("{}: {}", problem.path, problem.message));
        at.into_iter().chain(problems).collect()
    }

    /// The same for programs: Purser's own body where there is one.
    pub(crate) fn as_json(&self) -> Value {
        let mut body = match (self.refusal(), self) {
            (Some(refusal), _) => Value::Object(refusal.body.clone()),
            (None, Self::Pay(error)) => match error.payment() {
                Some(payment) => json!({
                    "error": after_payment(error),
                    "settlement_id": payment.settlement_id,
                    "transaction_id": payment.transaction_id,
                    "amount_units": payment.amount,
                    "pay_to": payment.pay_to,
                }),
                None => json!({"error": "failed"}),
            },
            (None, Self::Problems { problems, .. }) => json!({"error": "invalid", "problems": problems}),
            (None, Self::ProviderStatus(status)) => json!({"error": "provider_status", "status": status}),
            (None, _) => json!({"error": "failed"}),
        };
        if let (Self::Pay(error), Value::Object(members)) = (self, &mut body) {
            members.insert("what_to_do".to_owned(), error.what_to_do().into());
        }
        if body.get("message").is_none()
            && let Value::Object(members) = &mut body
        {
            members.insert("message".to_owned(), self.to_string().into());
        }
        body
    }
}

/// What went wrong after a payment was signed, for programs.
const fn after_payment(error: &PayError) -> &'static str {
    match error {
        PayError::PaymentUnanswered { .. } => "payment_unanswered",
        PayError::PaymentNotAccepted { .. } => "payment_not_accepted",
        PayError::PaymentRedirected { .. } => "payment_redirected",
        PayError::AlreadyPaid(_) => "already_paid",
        PayError::PaymentLapsed { .. } => "payment_lapsed",
        _ => "failed",
    }
}

/// Whether the policy said no, and not something that can be repaired by the caller.
fn is_block(refusal: &Refusal) -> bool {
    matches!(refusal.status, 402 | 403) && refusal.slug != Slug::KeyNotAllowed
}
