//! Purser's error responses as types (docs/errors.md).

use crate::Usdc;
use crate::answer::{Check, words};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

words! {
    /// The field `error` of an error response to an agent's call.
    Slug {
        /// The body, a field or a parameter is invalid.
        InvalidRequest = "invalid_request",
        /// The agent key is unknown, revoked or expired.
        InvalidAgentKey = "invalid_agent_key",
        /// The `Authorization` header does not have the expected format.
        InvalidAuthorizationHeader = "invalid_authorization_header",
        /// The agent key lacks a permission.
        KeyNotAllowed = "key_not_allowed",
        /// The balance of the agent's wallet is lower than the price.
        InsufficientUsdcBalance = "insufficient_usdc_balance",
        /// The price exceeds the cap per call.
        AmountExceedsPerCallLimit = "amount_exceeds_per_call_limit",
        /// The call would exceed the cap per rolling 24 hours.
        DailySpendLimitExceeded = "daily_spend_limit_exceeded",
        /// The price exceeds the request's `max_payment_units`.
        AmountExceedsMax = "amount_exceeds_max",
        /// A user has to approve the call.
        ApprovalRequired = "approval_required",
        /// The service is not enabled for the agent.
        ServiceNotEnabled = "service_not_enabled",
        /// The operation is not enabled for the agent.
        OperationNotEnabledForAgent = "operation_not_enabled_for_agent",
        /// The host of the target URL is not on the allowlist.
        DomainNotAllowed = "domain_not_allowed",
        /// A rule, a freeze or an unusable approval blocks the call.
        PolicyBlocked = "policy_blocked",
        /// The catalog has no service with this slug or id, or no operation with this URL.
        ServiceNotFound = "service_not_found",
        /// The route or the object does not exist.
        NotFound = "not_found",
        /// The idempotency key was used for a different request.
        IdempotencyKeyReusedForDifferentRequest = "idempotency_key_reused_for_different_request",
        /// A payment has already used the approval.
        IdempotentReplay = "idempotent_replay",
        /// The transaction has already confirmed another settlement.
        SettlementTransactionAlreadyUsed = "settlement_transaction_already_used",
        /// The body is too long.
        RequestTooLarge = "request_too_large",
        /// The request does not contain the provider's settlement header.
        ProviderProofRequired = "provider_proof_required",
        /// The settlement header does not contain a transaction hash.
        SettlementTransactionHashRequired = "settlement_transaction_hash_required",
        /// The payment was not found on chain, or not yet.
        OnchainSettlementNotVerified = "onchain_settlement_not_verified",
        /// The agent makes too many calls or has too many open payments.
        TooManyRequests = "too_many_requests",
        /// Purser cannot decide now, for example because of concurrent calls.
        TemporarilyUnavailable = "temporarily_unavailable",
        /// Purser failed because of an internal error.
        InternalError = "internal_error",
    }
}

/// A validation error of an invalid request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Problem {
    /// The position of the error: a JSON Pointer into the body, or `/<name>` for a query parameter.
    pub path: String,
    /// The requirement that the value does not meet.
    pub message: String,
}

/// The fields that only some errors have (docs/errors.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// The target-domain allowlist.
    pub allowed_domains: Option<Vec<String>>,
    /// The balance of the agent's wallet, in decimal USDC.
    pub balance_usdc: Option<String>,
    /// `SERVICE_NOT_ENABLED`. Only the error `service_not_enabled` has this field.
    pub code: Option<String>,
    /// The enabled operations. `None` also if all operations of the service are enabled.
    pub enabled_operations: Option<Vec<String>>,
    /// The host of the target URL, in the form that was compared with the allowlist.
    pub hostname: Option<String>,
    /// The maximum length of a body, in bytes.
    pub limit_bytes: Option<u64>,
    /// The request's `max_payment_units`.
    pub max_payment_units: Option<Usdc>,
    /// The cap per call.
    pub max_per_call_units: Option<Usdc>,
    /// The cap per rolling 24 hours.
    pub max_per_day_units: Option<Usdc>,
    /// The permission that the key lacks: `read`, `pay`, `service`, `network` or `run`.
    pub missing: Option<String>,
    /// The operation's slug from the request.
    pub operation_id: Option<String>,
    /// The price above which a user has to approve a call.
    pub require_approval_above_units: Option<Usdc>,
    /// The price of the call, in decimal USDC.
    pub required_usdc: Option<String>,
    /// Whether the same request may succeed later.
    pub retryable: Option<bool>,
    /// The amount above which a rule requires an approval.
    pub rule_above_units: Option<Usdc>,
    /// The id of the rule that requires an approval.
    pub rule_id: Option<String>,
    /// The service that the call belongs to.
    pub service_id: Option<String>,
    /// The spend that counts against the cap per rolling 24 hours.
    pub spend_today: Option<Usdc>,
    /// The address of the agent's wallet.
    pub wallet_address: Option<String>,
}

/// An error response of Purser. Fields that the response does not have are `None` or empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The kind of error.
    pub slug: Slug,
    /// The error message, written for humans.
    pub message: String,
    /// The id of the request. Operators can search Purser's logs for this id.
    pub request_id: Option<String>,
    /// The transaction id of the block or the escalation, which identifies the decision in the audit log.
    pub transaction_id: Option<Uuid>,
    /// The `decision_hash` that the signed statement of the decision must contain.
    pub decision_hash: Option<String>,
    /// The approval to wait for, or the approval that was already used.
    pub approval_id: Option<Uuid>,
    /// The settlement that was authorized earlier.
    pub settlement_id: Option<Uuid>,
    /// The price of the call.
    pub amount: Option<Usdc>,
    /// The earliest time at which the same call fits the limits.
    pub retry_at: Option<DateTime<Utc>>,
    /// How long to wait before repeating the request.
    pub retry_after: Option<Duration>,
    /// The reason for the decision, or for the failed verification on chain.
    pub reason: Option<String>,
    /// The results of all checks.
    pub checks: Vec<Check>,
    /// The validation errors of an invalid request.
    pub details: Vec<Problem>,
    /// The fields that only some errors have.
    pub context: Context,
    /// The complete body, including fields that this version of the client does not know.
    pub body: Map<String, Value>,
}

impl Refusal {
    /// Parses the body of an error response. The slug is derived from the status if the API gateway sent the body.
    pub fn read(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let body: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
        let decision = body.get("decision").and_then(Value::as_object);
        let of = |name: &str| body.get(name).or_else(|| decision?.get(name));
        let text = |name: &str| of(name).and_then(Value::as_str).map(str::to_owned);
        let id = |name: &str| text(name)?.parse().ok();
        let list = |value: Option<&Value>| value.cloned().unwrap_or(Value::Null);
        Self {
            status,
            slug: Slug::from(text("error").unwrap_or_else(|| advice_for_status(status).to_owned())),
            // OAuth's routes respond with the fields of RFC 6749.
            message: text("message")
                .or_else(|| text("error_description"))
                .unwrap_or_else(|| format!("the answer was HTTP {status}")),
            request_id: text("request_id"),
            transaction_id: id("transaction_id"),
            decision_hash: text("decision_hash"),
            approval_id: id("approval_id"),
            settlement_id: id("settlement_id"),
            amount: body.get("amount_units").and_then(Value::as_u64).map(Usdc::from_units),
            retry_at: text("retry_at").and_then(|at| at.parse().ok()),
            retry_after: body
                .get("retry_after")
                .and_then(Value::as_u64)
                .map(Duration::from_secs)
                .or(retry_after),
            reason: text("reason"),
            checks: serde_json::from_value(list(decision.and_then(|decision| decision.get("checks"))))
                .unwrap_or_default(),
            details: serde_json::from_value(list(body.get("details"))).unwrap_or_default(),
            context: serde_json::from_value(Value::Object(body.clone())).unwrap_or_default(),
            body,
        }
    }

    /// Returns one sentence with advice for the caller (docs/errors.md).
    pub fn what_to_do(&self) -> &'static str {
        match &self.slug {
            Slug::ApprovalRequired => "Wait until a person decides, then repeat the same call with the approval.",
            Slug::DailySpendLimitExceeded | Slug::PolicyBlocked if self.retry_at.is_some() => {
                "Repeat the call at `retry_at`."
            }
            Slug::DailySpendLimitExceeded | Slug::AmountExceedsPerCallLimit => {
                "Buy less at once, or ask the agent's owner for a higher cap."
            }
            Slug::AmountExceedsMax => "Raise the ceiling of this call, if it is worth its price.",
            Slug::InsufficientUsdcBalance => "Have the wallet funded.",
            Slug::PolicyBlocked => advice_for_block(self.reason.as_deref().unwrap_or_default()),
            Slug::ServiceNotEnabled | Slug::OperationNotEnabledForAgent | Slug::DomainNotAllowed => {
                "Ask the agent's owner to allow it, or call something that is allowed."
            }
            Slug::ServiceNotFound => "Call an operation of the catalog by its method and address.",
            Slug::KeyNotAllowed => "Use a key that may do this, or ask the agent's owner.",
            Slug::InvalidAgentKey | Slug::InvalidAuthorizationHeader => "Check the agent key.",
            Slug::IdempotencyKeyReusedForDifferentRequest => "Send the first request unchanged, or take a new key.",
            Slug::IdempotentReplay => "It was paid. Read the receipt.",
            Slug::TooManyRequests | Slug::TemporarilyUnavailable => {
                "Repeat the same request after `retry_after`, under the same key."
            }
            Slug::OnchainSettlementNotVerified if self.is_temporary() => {
                "Ask again after `retry_after`. Don't pay again."
            }
            Slug::OnchainSettlementNotVerified
            | Slug::SettlementTransactionAlreadyUsed
            | Slug::ProviderProofRequired
            | Slug::SettlementTransactionHashRequired => {
                "Don't pay again: the payment may have been taken. Its receipt says whether it was."
            }
            Slug::InternalError => "Repeat the same request under the same key: nothing is paid twice.",
            Slug::InvalidRequest if self.is_about_the_terms() => {
                "Don't pay: the provider's payment terms are wrong, as `details` says."
            }
            Slug::InvalidRequest | Slug::RequestTooLarge | Slug::NotFound | Slug::Other(_) => {
                "Correct the request as the message and `details` say."
            }
        }
    }

    /// Returns whether every validation error is in the provider's payment requirements.
    fn is_about_the_terms(&self) -> bool {
        let is_of_terms = |error: &Problem| error.path.starts_with("/payment_requirement");
        !self.details.is_empty() && self.details.iter().all(is_of_terms)
    }

    /// Returns whether the same request with the same key may succeed later.
    pub const fn is_temporary(&self) -> bool {
        match self.context.retryable {
            Some(is_retryable) => is_retryable,
            None => matches!(self.status, 429 | 500 | 502 | 503 | 504),
        }
    }
}

/// Returns the advice for a blocked call with this reason (docs/errors.md).
fn advice_for_block(reason: &str) -> &'static str {
    match reason.split(':').next().unwrap_or_default() {
        "agent_frozen" => "Stop: the owner or an operator froze this agent.",
        "category_block" => "Buy in another category.",
        "vendor_allowlist" => "Buy from a vendor that the owner's rule allows.",
        "catalog_payee" | "catalog_price" | "catalog_payment" => {
            "Don't pay: payee or price are not those that the catalog lists."
        }
        "schedule" | "count_limit" | "minimum_interval" => "Wait until `retry_at`.",
        "duplicate_guard" => "Don't pay again: this call was just paid. Use that payment, or wait until `retry_at`.",
        "price_above_usual" => "Don't pay: the price is further above the usual one than the owner allows.",
        "approval_rejected" => "Stop: a person said no.",
        "approval_expired" => "Ask again: the next identical call asks a person anew.",
        "approval_request_mismatch" => "Repeat the approved request unchanged.",
        "too_many_open_approvals" => "Wait until a person has decided one of the agent's open approvals.",
        _ => "Don't pay: a rule of the owner forbids it.",
    }
}

/// Returns the advice for an error response of the API gateway, which has no slug.
const fn advice_for_status(status: u16) -> &'static str {
    match status {
        429 => "too_many_requests",
        502..=504 => "temporarily_unavailable",
        500 => "internal_error",
        404 => "not_found",
        413 => "request_too_large",
        _ => "invalid_request",
    }
}

/// Writes `message (slug)`.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.slug.as_str())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(status: u16, body: &Value) -> Refusal {
        Refusal::read(status, None, body.to_string().as_bytes())
    }

    /// Without a field `retryable`, an error with status 503 is temporary and an error with status 422 is not.
    #[test]
    fn the_retryable_field_overrides_the_http_status() {
        let slug = "onchain_settlement_not_verified";
        for (status, retryable, is_temporary) in [
            (422, json!(true), true),
            (503, json!(true), true),
            (422, json!(false), false),
            (503, json!(false), false),
            (422, Value::Null, false),
            (503, Value::Null, true),
        ] {
            let refusal = refusal(status, &json!({"error": slug, "message": "", "retryable": retryable}));
            assert_eq!(refusal.is_temporary(), is_temporary, "{status} {retryable}");
            assert_eq!(refusal.what_to_do().contains("retry_after"), is_temporary, "{status}");
            assert!(refusal.what_to_do().contains("Don't pay again"), "{status}");
        }
    }

    #[test]
    fn provider_errors_are_not_attributed_to_the_caller() {
        let at = |paths: &[&str]| {
            let details: Vec<Value> = paths.iter().map(|path| json!({"path": path, "message": ""})).collect();
            let body = json!({"error": "invalid_request", "message": "", "details": details});
            refusal(400, &body).what_to_do()
        };
        assert!(at(&["/payment_requirement/accepts"]).contains("provider's payment terms"));
        for paths in [&["/payment_requirement", "/max_payment_units"][..], &["/metadata"], &[]] {
            assert!(at(paths).starts_with("Correct the request"), "{paths:?}");
        }
    }
}
