//! Why Purser answered no: every error of its vocabulary, typed (docs/errors.md).

use crate::Usdc;
use crate::answer::{Check, words};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

words! {
    /// The `error` of an answer, for agents' calls.
    Slug {
        /// A body, member or parameter is wrong.
        InvalidRequest = "invalid_request",
        /// The agent key is unknown, revoked or expired.
        InvalidAgentKey = "invalid_agent_key",
        /// The header has another form.
        InvalidAuthorizationHeader = "invalid_authorization_header",
        /// The key may not do this.
        KeyNotAllowed = "key_not_allowed",
        /// The wallet can't cover the price.
        InsufficientUsdcBalance = "insufficient_usdc_balance",
        /// The price is above the cap per call.
        AmountExceedsPerCallLimit = "amount_exceeds_per_call_limit",
        /// The last 24 hours would exceed the cap.
        DailySpendLimitExceeded = "daily_spend_limit_exceeded",
        /// The price is above the request's own ceiling.
        AmountExceedsMax = "amount_exceeds_max",
        /// A person has to decide.
        ApprovalRequired = "approval_required",
        /// The service is not enabled.
        ServiceNotEnabled = "service_not_enabled",
        /// The operation is not enabled.
        OperationNotEnabledForAgent = "operation_not_enabled_for_agent",
        /// The target's host is not allowed.
        DomainNotAllowed = "domain_not_allowed",
        /// A rule, a freeze or an unusable approval.
        PolicyBlocked = "policy_blocked",
        /// No such service, or no operation of one at this address.
        ServiceNotFound = "service_not_found",
        /// No such route or object.
        NotFound = "not_found",
        /// The key belongs to another request.
        IdempotencyKeyReusedForDifferentRequest = "idempotency_key_reused_for_different_request",
        /// The approval was used.
        IdempotentReplay = "idempotent_replay",
        /// The transaction confirmed another settlement.
        SettlementTransactionAlreadyUsed = "settlement_transaction_already_used",
        /// The body is too long.
        RequestTooLarge = "request_too_large",
        /// No settlement header was given.
        ProviderProofRequired = "provider_proof_required",
        /// The settlement header names no transaction.
        SettlementTransactionHashRequired = "settlement_transaction_hash_required",
        /// The chain does not show the payment, or not yet.
        OnchainSettlementNotVerified = "onchain_settlement_not_verified",
        /// Too many calls, or too many open payments.
        TooManyRequests = "too_many_requests",
        /// Other calls stay in the way.
        TemporarilyUnavailable = "temporarily_unavailable",
        /// Purser's fault.
        InternalError = "internal_error",
    }
}

/// One problem of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Problem {
    /// JSON Pointer into the body, or `/<name>` of a query parameter.
    pub path: String,
    /// What would be right.
    pub message: String,
}

/// The members that only some errors have (docs/errors.md says which).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// The target-domain allowlist.
    pub allowed_domains: Option<Vec<String>>,
    /// What the wallet holds, in USDC.
    pub balance_usdc: Option<String>,
    /// `SERVICE_NOT_ENABLED`, on that error alone.
    pub code: Option<String>,
    /// The operations in scope; `None` for all that the catalog knows, too.
    pub enabled_operations: Option<Vec<String>>,
    /// The target's host, as it was compared.
    pub hostname: Option<String>,
    /// The longest body that is read.
    pub limit_bytes: Option<u64>,
    /// The request's own ceiling.
    pub max_payment_units: Option<Usdc>,
    /// The cap per call.
    pub max_per_call_units: Option<Usdc>,
    /// The cap per rolling 24 hours.
    pub max_per_day_units: Option<Usdc>,
    /// What the key lacks: `read`, `pay`, `service` or `network`.
    pub missing: Option<String>,
    /// The operation, as it was named.
    pub operation_id: Option<String>,
    /// The threshold above which a person decides.
    pub require_approval_above_units: Option<Usdc>,
    /// What the call costs, in USDC.
    pub required_usdc: Option<String>,
    /// Whether the same request may succeed later.
    pub retryable: Option<bool>,
    /// The amount above which a rule asks for a person.
    pub rule_above_units: Option<Usdc>,
    /// That rule.
    pub rule_id: Option<String>,
    /// The service.
    pub service_id: Option<String>,
    /// What counts in the last 24 hours.
    pub spend_today: Option<Usdc>,
    /// The agent's wallet.
    pub wallet_address: Option<String>,
}

/// A refusal: the body of an error, with the members that its slug has.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// Which error.
    pub slug: Slug,
    /// The same for people.
    pub message: String,
    /// Names the answer in Purser's logs.
    pub request_id: Option<String>,
    /// The audit reference of a block or an escalation.
    pub transaction_id: Option<Uuid>,
    /// The approval to wait for, or that was used.
    pub approval_id: Option<Uuid>,
    /// What was authorized earlier.
    pub settlement_id: Option<Uuid>,
    /// The price.
    pub amount: Option<Usdc>,
    /// When the same call fits at the earliest.
    pub retry_at: Option<DateTime<Utc>>,
    /// How long to wait before the same request.
    pub retry_after: Option<Duration>,
    /// The decision's own reason, or the chain's.
    pub reason: Option<String>,
    /// What every check found.
    pub checks: Vec<Check>,
    /// Every problem of an invalid request.
    pub details: Vec<Problem>,
    /// The members that only some errors have.
    pub context: Context,
    /// The whole body, with members that a later version adds.
    pub body: Map<String, Value>,
}

impl Refusal {
    /// Reads the body of an error. One without `error` is the gateway's: it is told by its status.
    pub fn read(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let body: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
        let decision = body.get("decision").and_then(Value::as_object);
        let of = |name: &str| body.get(name).or_else(|| decision?.get(name));
        let text = |name: &str| of(name).and_then(Value::as_str).map(str::to_owned);
        let id = |name: &str| text(name)?.parse().ok();
        let list = |value: Option<&Value>| value.cloned().unwrap_or(Value::Null);
        Self {
            status,
            slug: Slug::from(text("error").unwrap_or_else(|| by_status(status).to_owned())),
            message: text("message").unwrap_or_else(|| format!("the answer was HTTP {status}")),
            request_id: text("request_id"),
            transaction_id: id("transaction_id"),
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

    /// What the caller can do, in a sentence (docs/errors.md).
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
            Slug::PolicyBlocked => of_block(self.reason.as_deref().unwrap_or_default()),
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

    /// Whether every problem is one of the payment terms, which are the provider's.
    fn is_about_the_terms(&self) -> bool {
        let is_of_terms = |problem: &Problem| problem.path.starts_with("/payment_requirement");
        !self.details.is_empty() && self.details.iter().all(is_of_terms)
    }

    /// Whether the same request under the same key may succeed later: `retryable` decides where the answer has it, else
    /// the status.
    pub const fn is_temporary(&self) -> bool {
        match self.context.retryable {
            Some(is_retryable) => is_retryable,
            None => matches!(self.status, 429 | 500 | 502 | 503 | 504),
        }
    }
}

/// What can be done about a block, by its reason (docs/errors.md).
fn of_block(reason: &str) -> &'static str {
    match reason.split(':').next().unwrap_or_default() {
        "agent_frozen" => "Stop: the owner or an operator froze this agent.",
        "category_block" => "Buy in another category.",
        "vendor_allowlist" => "Buy from a vendor that the owner's rule allows.",
        "catalog_payee" | "catalog_price" | "catalog_payment" => {
            "Don't pay: payee or price are not those that the catalog lists."
        }
        "approval_rejected" => "Stop: a person said no.",
        "approval_expired" => "Ask again: the next identical call asks a person anew.",
        "approval_request_mismatch" => "Repeat the approved request unchanged.",
        "too_many_open_approvals" => "Wait until a person has decided one of the agent's open approvals.",
        _ => "Don't pay: a rule of the owner forbids it.",
    }
}

/// What an answer without a body of ours is: the gateway's own.
const fn by_status(status: u16) -> &'static str {
    match status {
        429 => "too_many_requests",
        502..=504 => "temporarily_unavailable",
        500 => "internal_error",
        404 => "not_found",
        413 => "request_too_large",
        _ => "invalid_request",
    }
}

/// `message (slug)`.
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

    #[test]
    fn retryable_decides_whatever_the_status_and_else_the_status() {
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
    fn a_providers_fault_is_not_the_callers() {
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
