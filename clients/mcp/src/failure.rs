//! The errors of the tools, as JSON text. Structured content would have to match the output schema.

use crate::answers::{CheckAnswer, format_time};
use crate::call_limit::{CallsOf, TooManyCalls};
use crate::text::{LONG, SHORT, clean_data};
use purser_client::{ApiError, IdempotencyKey, PayError, Refusal};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// A rejection or other error.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    /// Purser's slug (docs/errors.md), or a slug that this crate defines.
    error: String,
    message: String,
    what_to_do: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    paid: Option<WasPaid>,
    /// The ids, times and checks, with the same names as in Purser's API.
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
}

/// Whether something was paid although the call failed.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum WasPaid {
    /// This call paid nothing. An earlier call with the same key may have paid.
    NotByThisCall,
    /// A payment was sent. The receipt shows whether the provider took the payment.
    Maybe,
    /// An earlier call with the same key has paid.
    Before,
}

impl Failure {
    pub(crate) fn new(error: &str, message: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self {
            error: error.to_owned(),
            message: message.into(),
            what_to_do: what_to_do.into(),
            paid: None,
            more: serde_json::Map::new(),
        }
    }

    /// Creates the error for invalid arguments.
    pub(crate) fn invalid_arguments(message: impl Into<String>) -> Self {
        Self::new(
            "invalid_arguments",
            message,
            "Correct the arguments as the tool's input schema and the message say.",
        )
    }

    /// Creates the error for a missing agent key.
    pub(crate) fn no_key() -> Self {
        Self::new(
            "invalid_agent_key",
            "this tool needs the agent's key",
            "Have the header `Authorization: Bearer <agent key>` set in the configuration of this MCP server.",
        )
    }

    fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.more.insert(name.to_owned(), value);
        }
        self
    }

    fn with_payment(self, payment_state: WasPaid) -> Self {
        Self {
            paid: Some(payment_state),
            ..self
        }
    }

    /// Records in the error that this call paid nothing.
    pub(crate) fn before_payment(self) -> Self {
        self.with_payment(WasPaid::NotByThisCall)
    }

    /// Adds the idempotency key with which the agent can repeat the call.
    pub(crate) fn with_key(self, key: &IdempotencyKey) -> Self {
        self.with_detail("idempotency_key", key.as_str())
    }

    /// Converts an error of a purchase. `timeout` is the maximum duration of a call.
    pub(crate) fn from_pay_error(error: &PayError, key: &IdempotencyKey, timeout: Duration) -> Self {
        const SAME_AGAIN: &str = "Call again with the same arguments and this idempotency_key: the same payment is sent, \
                                  and nothing is paid twice. get_receipt tells whether it was taken.";
        let result = match error {
            PayError::Provider(error) if error.is_timeout() => Self::new(
                "provider_too_slow",
                format!(
                    "the provider did not answer in time; {} s are allowed in all",
                    timeout.as_secs()
                ),
                "Try again later with this idempotency_key. `purser mcp` on the agent's own machine waits longer.",
            )
            .before_payment(),
            PayError::Provider(_) => Self::new(
                "provider_unreachable",
                "the provider did not answer",
                "Try again later with this idempotency_key, or call another service.",
            )
            .before_payment(),
            PayError::Request(_) => {
                Self::invalid_arguments("the parameters make a request that can't be sent").before_payment()
            }
            PayError::Terms(error) => Self::new(
                "not_x402",
                error.to_string(),
                "Call another service: this one does not ask for its payment by x402.",
            )
            .before_payment(),
            PayError::Refused { refusal: rejection } => Self::from_refusal(rejection).before_payment(),
            PayError::ApprovalRequired(pending) => Self {
                what_to_do:
                    "Tell a person of this approval_id. Once get_approval says `approved`, call again with the same \
                             arguments, this idempotency_key and the approval_id."
                        .to_owned(),
                ..Self::from_refusal(pending.refusal())
            }
            .with_detail("approval_id", pending.approval_id().to_string())
            .before_payment(),
            PayError::Purser(error) => Self::from(error).before_payment(),
            PayError::PaymentUnanswered { source, .. } => {
                let (slug, reason) = if source.is_timeout() {
                    let reason = format!(
                        "it took longer than the {} s that are allowed in all",
                        timeout.as_secs()
                    );
                    ("provider_too_slow", reason)
                } else {
                    ("answer_lost", "the connection broke".to_owned())
                };
                let message = format!("the payment was sent, and the provider's answer did not come: {reason}");
                Self::new(slug, message, SAME_AGAIN).with_payment(WasPaid::Maybe)
            }
            PayError::PaymentNotAccepted { .. } => Self::new(
                "asked_again",
                "the provider asked for a payment again after it was paid; nothing more was paid",
                format!("Don't pay this provider again. {SAME_AGAIN}"),
            )
            .with_payment(WasPaid::Maybe),
            PayError::PaymentRedirected { .. } => Self::new(
                "redirected",
                "the provider redirected the paid call, which was not followed: a payment goes to nobody else",
                SAME_AGAIN,
            )
            .with_payment(WasPaid::Maybe),
            PayError::AlreadyPaid(paid) => Self::new(
                "already_paid",
                "this purchase was paid before, and its answer can't be had again",
                "Read the receipt. To buy it anew, take a new idempotency_key.",
            )
            .with_detail("receipt_status", clean_data(paid.receipt_status.as_str(), SHORT))
            .with_payment(WasPaid::Before),
            PayError::PaymentLapsed { receipt_status, .. } => Self::new(
                "payment_lapsed",
                "the payment under this key can't be used any more",
                error.what_to_do(),
            )
            .with_detail("receipt_status", clean_data(receipt_status.as_str(), SHORT))
            .with_payment(WasPaid::Maybe),
            other => Self::new("failed", clean_data(&other.to_string(), LONG), SAME_AGAIN).with_payment(WasPaid::Maybe),
        };
        let settlement = error.payment().map(|payment| payment.settlement_id.to_string());
        let result = match settlement {
            Some(settlement) => result.with_detail("settlement_id", settlement),
            None => result,
        };
        result.with_detail("idempotency_key", key.as_str())
    }

    fn from_refusal(rejection: &Refusal) -> Self {
        let texts = |value: &Option<String>| value.as_ref().map(|text| clean_data(text, LONG));
        let checks: Vec<Value> = rejection
            .checks
            .iter()
            .filter_map(|check| serde_json::to_value(CheckAnswer::from(check)).ok())
            .collect();
        let details: Vec<Value> = rejection
            .details
            .iter()
            .map(|error| json!({"path": clean_data(&error.path, SHORT), "message": clean_data(&error.message, LONG)}))
            .collect();
        Self::new(
            rejection.slug.as_str(),
            clean_data(&rejection.message, LONG),
            rejection.what_to_do(),
        )
        .with_detail("reason", texts(&rejection.reason))
        .with_detail("missing", texts(&rejection.context.missing))
        .with_detail("amount_usd", rejection.amount.map(|amount| amount.to_string()))
        .with_detail("retry_at", rejection.retry_at.map(format_time))
        .with_detail(
            "retry_after_seconds",
            rejection.retry_after.map(|after| after.as_secs()),
        )
        .with_detail("approval_id", rejection.approval_id.map(|id| id.to_string()))
        .with_detail("settlement_id", rejection.settlement_id.map(|id| id.to_string()))
        .with_detail("transaction_id", rejection.transaction_id.map(|id| id.to_string()))
        .with_detail("checks", first_values(checks))
        .with_detail("details", first_values(details))
        .with_detail("request_id", texts(&rejection.request_id))
    }

    /// Returns whether the caller's key lacks the permission to read or pay.
    pub(crate) fn lacks_permission(&self) -> bool {
        let missing = self.more.get("missing").and_then(Value::as_str);
        matches!(missing, Some("read" | "pay")) && matches!(self.paid, None | Some(WasPaid::NotByThisCall))
    }

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| self.error.clone())
    }
}

impl From<TooManyCalls> for Failure {
    fn from(error: TooManyCalls) -> Self {
        let message = match error.of {
            Some(CallsOf::Caller) => "this agent key has as many calls open as it may",
            Some(CallsOf::Provider) => "as many calls of this provider are open as may be",
            None => "the open calls can't be counted at the moment",
        };
        Self::new(
            "too_many_requests",
            message,
            "Wait for an open call to end, at most retry_after_seconds, and call again with the same arguments.",
        )
        .with_detail("retry_after_seconds", error.retry_after.as_secs())
        .before_payment()
    }
}

fn first_values(values: Vec<Value>) -> Value {
    if values.is_empty() { Value::Null } else { values.into() }
}

impl From<&ApiError> for Failure {
    fn from(error: &ApiError) -> Self {
        match error {
            ApiError::Refused(rejection) => Self::from_refusal(rejection),
            ApiError::Unreachable(_) => Self::new(
                "purser_unreachable",
                "Purser did not answer",
                "Call again with the same arguments; where a key was given or told, with the same idempotency_key.",
            ),
            other => Self::new(
                "failed",
                clean_data(&other.to_string(), LONG),
                "Tell the person who runs this agent: the configured address may not be Purser's.",
            ),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::from(&error)
    }
}
