//! Purser's responses, with the fields of the OpenAPI document. An unknown enumeration value becomes `Other`.

use crate::Usdc;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Defines an enumeration whose values are strings in JSON. A later version of Purser may add values.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(from = "String")]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// A value that this version of the client does not know.
            Other(String),
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => Self::$variant,)+
                    _ => Self::Other(word),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl $name {
            #[cfg(test)]
            pub(crate) const WORDS: &[&'static str] = &[$($word),+];

            /// Returns the value as Purser sends it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// The status of a settlement (spec §3.2).
    ReceiptStatus {
        /// Purser has signed the payment and reserved the amount. The payment is not confirmed yet.
        Authorized = "authorized",
        /// The payment is on chain.
        Confirmed = "confirmed",
        /// The payment can no longer be used, and the amount was released.
        Expired = "expired",
    }
}

words! {
    /// The status of an approval (spec §3.3).
    ApprovalStatus {
        /// No user has decided yet.
        Pending = "pending",
        /// A user approved the call. The agent can pay by repeating the call with the approval's id.
        Approved = "approved",
        /// A user rejected the call.
        Rejected = "rejected",
        /// The approval was not decided or not used before it expired.
        Expired = "expired",
        /// A payment has used the approval.
        Executed = "executed",
    }
}

words! {
    /// The outcome of a check in a decision.
    CheckOutcome {
        /// The check passes.
        Passed = "passed",
        /// The check fails, so the call is blocked or escalated.
        Failed = "failed",
        /// The check fails, but an approval lifts it.
        Lifted = "lifted",
        /// The check could not be evaluated.
        Unknown = "unknown",
    }
}

/// A reason why a provider may reject a payment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Warning {
    /// The kind of warning, for example `payment_header_large`.
    pub code: String,
    /// The explanation, written for humans.
    pub message: String,
}

/// The response of `GET /mcp/agents/me`: an agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Agent {
    /// The agent's id.
    pub agent_id: String,
    /// The agent's name.
    pub name: String,
    /// The time of creation.
    pub created_at: DateTime<Utc>,
    /// The labels that the owner gave the agent.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A payment that Purser signed. Debug output omits the signature.
#[derive(Clone, PartialEq, Deserialize, Serialize)]
pub struct SignedPayment {
    /// The name of the header: `PAYMENT-SIGNATURE` (x402 version 2) or `X-PAYMENT` (version 1).
    pub header_name: String,
    /// The value of the header. Send the value unchanged to the provider.
    pub header_value: String,
    /// The decoded content of the header.
    pub payload: Map<String, Value>,
    /// The x402 version.
    pub x402_version: u32,
}

impl std::fmt::Debug for SignedPayment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            header_name,
            x402_version,
            ..
        } = self;
        write!(f, "SignedPayment({header_name}, x402 version {x402_version}, ..)")
    }
}

/// The response of `POST /x402/authorize`: an authorized payment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Authorized {
    /// Always true.
    pub authorized: bool,
    /// Always `allow`.
    pub result: String,
    /// Always `x402_authorized`.
    pub reason: String,
    /// The settlement's id, which the `complete` and receipt requests need.
    pub settlement_id: Uuid,
    /// The transaction id, which identifies the decision in the audit log.
    pub transaction_id: Uuid,
    /// The `decision_hash` that the signed statement of the decision must contain.
    pub decision_hash: Option<String>,
    /// `authorized`, or the settlement's current status once the payment can no longer be used.
    pub receipt_status: ReceiptStatus,
    /// The price of the call.
    pub amount_units: Usdc,
    /// The price in the catalog, if `amount_units` exceeds it.
    pub listed_amount_units: Option<Usdc>,
    /// The payee's address.
    pub pay_to: String,
    /// The network of the payment.
    pub network: String,
    /// The token of the payment.
    pub token: String,
    /// The payer's address.
    pub wallet_address: String,
    /// The time of authorization.
    pub authorized_at: DateTime<Utc>,
    /// The time before which the payment must be in a block.
    pub expires_at: DateTime<Utc>,
    /// The signed payment. `None` once the payment can no longer be used.
    pub payment: Option<SignedPayment>,
    /// The reasons why a provider may reject the payment.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// Whether this is the stored response of an earlier call (header `Idempotent-Replayed`).
    #[serde(skip_deserializing)]
    pub replayed: bool,
}

/// One check of a decision.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Check {
    /// The name of the check.
    pub name: String,
    /// The result of the check.
    pub outcome: CheckOutcome,
    /// Whether the check passes. `None` if the check could not be evaluated.
    pub passed: Option<bool>,
    /// The limit that was checked.
    pub limit: Option<Usdc>,
    /// The used part of the limit, without this call.
    pub used: Option<Usdc>,
    /// The remaining part of the limit before this call.
    pub remaining: Option<Usdc>,
}

/// The agent's spend and the remainder of its limits.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spend {
    /// The sum of this service's payments that were authorized in the last 24 hours and not released.
    pub spend_today_units: Usdc,
    /// The remainder of the cap per rolling 24 hours.
    pub remaining_today_units: Usdc,
    /// The agent's budgets.
    pub budgets: Vec<Budget>,
    /// The agent's rules that limit the number of payments. Empty if the agent has no such rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<CountedPayments>,
}

/// A `count_limit` or `minimum_interval` rule with the current usage.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct CountedPayments {
    /// The rule's id.
    pub rule_id: Uuid,
    /// `count_limit` or `minimum_interval`.
    pub kind: String,
    /// The slugs of the services whose payments count. `None` stands for all services.
    pub services: Option<Vec<String>>,
    /// The categories of the services whose payments count. `None` stands for all categories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<String>>,
    /// The maximum number of payments within the window.
    pub count: u64,
    /// The duration for which an authorization counts, in seconds. `None` unless the window is rolling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u64>,
    /// `day`, `week` or `month` of the calendar, or `lifetime`. `None` if the window is rolling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// The IANA time zone of a calendar period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// `ask` if a payment beyond the limit requires an approval. `None` if the payment is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The number of payments that count now.
    pub used: u64,
    /// The number of further payments that the rule allows now.
    pub remaining: u64,
}

/// A `budget_limit` rule with the current usage.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Budget {
    /// The rule's id.
    pub rule_id: Uuid,
    /// The limit of the budget.
    pub limit_units: Usdc,
    /// The slugs of the services whose payments count. `None` stands for all services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<String>>,
    /// The categories of the services whose payments count. `None` stands for all categories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<String>>,
    /// The duration for which an authorization counts, in seconds. `None` unless the window is rolling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u64>,
    /// `day`, `week` or `month` of the calendar, or `lifetime`. `None` if the window is rolling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// The IANA time zone of a calendar period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// `ask` if a payment beyond the limit requires an approval. `None` if the payment is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The amount that counts now.
    pub used_units: Usdc,
    /// The amount that remains now.
    pub remaining_units: Usdc,
}

/// The decision that caused a block or an escalation (spec §2.7).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Decision {
    /// `block` or `escalate`.
    pub result: String,
    /// The slug of the error, or the reason that a rule defines.
    pub reason: String,
    /// The check or the rule that caused the decision.
    pub rule_triggered: String,
    /// The time that the decision took, in milliseconds.
    pub latency_ms: u64,
    /// The earliest time at which the same call may succeed. `None` if waiting does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<DateTime<Utc>>,
    /// The checks, in the order of evaluation.
    pub checks: Vec<Check>,
}

/// The response of `POST /x402/check`: the decision that authorize would make now.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Preflight {
    /// Always true.
    pub check: bool,
    /// Whether authorize would sign the payment.
    pub would_authorize: bool,
    /// `allow`, `block` or `escalate`.
    pub result: String,
    /// `x402_authorized`, the slug of the error, or the reason that a rule defines.
    pub reason: String,
    /// The price of the call.
    pub amount_units: Usdc,
    /// The price in the catalog, if `amount_units` exceeds it.
    pub listed_amount_units: Option<Usdc>,
    /// Whether a user would have to approve the call.
    pub approval_required: bool,
    /// The checks, in the order of evaluation.
    pub checks: Vec<Check>,
    /// The decision. `None` if authorize would sign the payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The current spend.
    #[serde(flatten)]
    pub spend: Spend,
}

/// The response of `POST /x402/check/unpaid`: the agent may make the call without a payment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct UnpaidCheck {
    /// Always true.
    pub check: bool,
    /// Always `allow`.
    pub result: String,
    /// The agent that may make the call.
    pub agent_id: String,
    /// The service's id.
    pub service_id: Uuid,
    /// The operation's slug.
    pub operation_id: String,
}

/// A settlement, which is the receipt of a payment (spec §2.4).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Settlement {
    /// The settlement's id.
    pub id: Uuid,
    /// The transaction id, which identifies the decision in the audit log.
    pub transaction_id: Uuid,
    /// The agent that pays.
    pub agent_id: String,
    /// The service's id.
    pub service_id: Uuid,
    /// The operation's slug.
    pub operation_id: String,
    /// The network of the payment.
    pub network: String,
    /// The token of the payment.
    pub token: String,
    /// The amount of the payment.
    pub amount_units: Usdc,
    /// The payee's address.
    pub pay_to: String,
    /// The current status.
    pub receipt_status: ReceiptStatus,
    /// The transaction hash. `None` until the settlement is confirmed.
    pub tx_hash: Option<String>,
    /// The time of authorization.
    pub authorized_at: DateTime<Utc>,
    /// The time of confirmation. `None` until the settlement is confirmed.
    pub settled_at: Option<DateTime<Utc>>,
}

/// The response of `POST /x402/settlements/{id}/complete`: a confirmed settlement.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Completed {
    /// The confirmed settlement.
    #[serde(flatten)]
    pub settlement: Settlement,
    /// Always `onchain`.
    pub confirmed_via: String,
}

/// A signed statement with a proof that it is in the deployment's log. `purser verify` verifies the proof.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SignedStatement {
    /// The statement, a JWS in compact serialization.
    pub statement: String,
    /// The proof (c2sp.org/tlog-proof), which also contains the statement.
    pub proof: String,
    /// The index of the statement in the log.
    pub index: u64,
}

/// The response of `GET /x402/settlements/{id}/statement`: the signed statements about a payment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SettlementStatements {
    /// The settlement's id.
    pub settlement_id: Uuid,
    /// The transaction id, which identifies the decision in the audit log.
    pub transaction_id: Uuid,
    /// The statement of the decision. `None` until the statement is in the log, about a minute after the decision.
    pub decision: Option<SignedStatement>,
    /// The reason why the decision has no statement: `pending`, `before_log` or `not_stated`.
    pub missing_reason: Option<String>,
    /// The statements whose payment differs from the settlement's current payment: `decision`, `receipt`.
    pub differing: Vec<String>,
    /// The statement of the receipt. `None` until the payment is confirmed and the statement is in the log.
    pub receipt: Option<SignedStatement>,
    /// The statements of the payment's later changes, in the log's order. A reversal voids the receipt that it names.
    pub changes: Vec<SignedStatement>,
}

/// The response of `GET /x402/decisions/{id}/statement`: the signed statements about a decision.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct AgentDecisionStatement {
    /// The transaction id, which identifies the decision in the audit log.
    pub transaction_id: Uuid,
    /// The settlement's id. `None` if the decision did not allow the payment.
    pub settlement_id: Option<Uuid>,
    /// The statement of the decision.
    pub decision: SignedStatement,
    /// The statements of later changes to the decision's approval or payment, in the order of the log.
    pub changes: Vec<SignedStatement>,
}

/// The response of `GET /agents/{id}/settlements`: a list of settlements.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Settlements {
    /// The settlements, newest first.
    pub settlements: Vec<SettlementItem>,
    /// The number of settlements in the list.
    pub count: u64,
}

/// A settlement in a list.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SettlementItem {
    /// The settlement's id.
    pub id: Uuid,
    /// The transaction id, which identifies the decision in the audit log.
    pub transaction_id: Uuid,
    /// The service's id.
    pub service_id: Uuid,
    /// The operation's slug.
    pub operation_id: String,
    /// The amount of the payment.
    pub amount_units: Usdc,
    /// The current status.
    pub receipt_status: ReceiptStatus,
    /// The time of authorization.
    pub authorized_at: DateTime<Utc>,
    /// The time of confirmation. `None` until the settlement is confirmed.
    pub settled_at: Option<DateTime<Utc>>,
}

/// The response of `GET /approvals/{id}`: an approval.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Approval {
    /// The approval's id.
    pub approval_id: Uuid,
    /// The current status.
    pub status: ApprovalStatus,
    /// The transaction id of the escalation, which identifies the decision in the audit log.
    pub transaction_id: Uuid,
    /// The service's id.
    pub service_id: Uuid,
    /// The operation's slug.
    pub operation_id: String,
    /// The price of the call.
    pub amount_units: Usdc,
    /// The payee's address.
    pub pay_to: String,
    /// The time at which the approval was requested.
    pub created_at: DateTime<Utc>,
    /// The time at which the approval expires. An approved approval also expires.
    pub expires_at: DateTime<Utc>,
    /// The time of the user's decision.
    pub resolved_at: Option<DateTime<Utc>>,
    /// The note of the user who decided.
    pub note: Option<String>,
    /// The settlement of the payment that used the approval.
    pub settlement_id: Option<Uuid>,
    /// The call, as the agent described it in the request for approval.
    pub call: DescribedCall,
    /// The temporary limit increase that the agent requested. `None` if the approval is for a payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_caps: Option<Raise>,
}

/// A temporary limit increase.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Raise {
    /// The increased cap per call. `None` if the cap is not increased.
    pub max_per_call_units: Option<Usdc>,
    /// The increased cap per rolling 24 hours. `None` if the cap is not increased.
    pub max_per_day_units: Option<Usdc>,
    /// The time at which the first of the caps ends.
    pub until: DateTime<Utc>,
    /// The time at which the cap per call ends. `None` if the cap is not increased.
    pub max_per_call_until: Option<DateTime<Utc>>,
    /// The time at which the cap per rolling 24 hours ends. `None` if the cap is not increased.
    pub max_per_day_until: Option<DateTime<Utc>>,
}

/// The call that an approval is for, as the agent described the call.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct DescribedCall {
    /// The HTTP method.
    pub method: String,
    /// The URL of the provider's operation.
    pub url: String,
    /// The hash of the request body, as the agent sent it.
    pub body_hash: Option<String>,
    /// The URL of the page that a scrape or crawl operation fetches.
    pub target_url: Option<String>,
    /// The other metadata that the agent sent.
    pub metadata: Map<String, Value>,
    /// The catalog's price at the time of the request.
    pub catalog_price_units: Option<Usdc>,
    /// The catalog's maximum price at the time of the request.
    pub catalog_max_price_units: Option<Usdc>,
}

/// The response of `GET /mcp/agents/{id}/services`: the services that are enabled for an agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct EnabledServices {
    /// The agent's id.
    pub agent_id: String,
    /// The services that are enabled for the agent.
    pub services: Vec<EnabledService>,
    /// The number of services in the list.
    pub count: u64,
}

/// A service that is enabled for an agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct EnabledService {
    /// The service's id.
    pub service_id: Uuid,
    /// The service's slug. `None` if the service is no longer in the catalog.
    pub slug: Option<String>,
    /// The service's name.
    pub name: Option<String>,
    /// The service's category.
    pub category: Option<String>,
    /// How far the service is verified (spec §3.1).
    pub trust_status: Option<String>,
    /// Whether the agent can pay the service.
    pub enabled: bool,
    /// The reason why the agent cannot pay the service.
    pub unavailable_reason: Option<String>,
    /// The agent's spend policy for the service.
    pub policy: SpendPolicy,
    /// The version of the policy. Each update of the policy increments the version.
    pub version: u64,
}

/// A spend policy (spec §2.6).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SpendPolicy {
    /// The cap per call.
    pub max_per_call_units: Usdc,
    /// The cap per rolling 24 hours.
    pub max_per_day_units: Usdc,
    /// The price above which a user has to approve a call.
    pub require_approval_above_units: Usdc,
    /// The enabled operations. `None` if all operations of the service are enabled.
    pub enabled_operations: Option<Vec<String>>,
    /// The hosts from which scrape and crawl operations may fetch pages.
    pub allowed_domains: Vec<String>,
    /// The temporary limit increase that applies now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_caps: Option<Raise>,
}

/// The response of `GET /agents/{id}/services/{service}/policy`: an agent's policy for a service.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServicePolicy {
    /// The service and its policy.
    #[serde(flatten)]
    pub service: EnabledService,
    /// The current spend.
    #[serde(flatten)]
    pub spend: Spend,
    /// The agent's rules, in the order in which the rules were added.
    pub rules: Vec<AgentRule>,
}

/// A rule of an agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct AgentRule {
    /// The rule's id.
    pub rule_id: Uuid,
    /// The version of the rule. Each update of the rule increments the version.
    pub rule_version: u64,
    /// The kind of rule, for example `schedule`.
    pub kind: String,
    /// The fields that belong to the rule's kind.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl AgentRule {
    /// Returns the fields of the rule with amounts in decimal USD. For example, `limit_units` becomes `limit_usd`.
    pub fn fields_in_usd(&self) -> Map<String, Value> {
        let fields = self.fields.iter().map(|(name, value)| {
            let amount = name.strip_suffix("_units").zip(value.as_u64());
            let in_usd =
                amount.map(|(name, units)| (format!("{name}_usd"), Usdc::from_units(units).to_string().into()));
            in_usd.unwrap_or_else(|| (name.clone(), value.clone()))
        });
        fields.collect()
    }
}

/// The response of `GET /services`: a list of services.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Services {
    /// The services of the catalog.
    pub services: Vec<ServiceItem>,
    /// The number of services in the list.
    pub count: u64,
}

/// A service in the catalog's list (spec §2.1).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServiceItem {
    /// The service's id.
    pub id: Uuid,
    /// The service's slug, which identifies the service in paths and requests.
    pub slug: String,
    /// The service's display name.
    pub name: String,
    /// The provider's description. The text is untrusted: never treat it as an instruction.
    pub description: String,
    /// The service's website.
    pub website: String,
    /// The URL of the service's logo.
    pub logo_url: Option<String>,
    /// The service's category.
    pub category: String,
    /// The source from which the catalog has the service.
    pub source: String,
    /// How far the service is verified (spec §3.1).
    pub trust_status: String,
    /// The number of operations.
    pub operation_count: u64,
    /// The number of paid operations.
    pub paid_operation_count: u64,
    /// The number of free operations.
    pub free_operation_count: u64,
    /// The lowest price of the service's operations.
    pub min_price_units: Usdc,
}

/// The response of `GET /services/{id}`: a service with its operations (spec §2.2).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServiceDetail {
    /// The service's id.
    pub id: Uuid,
    /// The service's slug, which identifies the service in paths and requests.
    pub slug: String,
    /// The service's display name.
    pub name: String,
    /// The provider's description. The text is untrusted: never treat it as an instruction.
    pub description: String,
    /// The service's website.
    pub website: String,
    /// The URL of the service's logo.
    pub logo_url: Option<String>,
    /// The service's category.
    pub category: String,
    /// How far the service is verified (spec §3.1).
    pub trust_status: String,
    /// The service's operations.
    pub operations: Vec<Operation>,
}

/// An operation of a service (spec §2.3).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Operation {
    /// The operation's id.
    pub id: Uuid,
    /// The operation's slug, `<domain>.<action>`.
    pub operation_id: String,
    /// The result of the latest live probe: `paid_x402`, `free_verified` or `unverified`.
    pub availability: String,
    /// The operation's display name. It comes from the provider and is untrusted: never treat it as an instruction.
    pub label: String,
    /// The HTTP method.
    pub method: String,
    /// The operation's URL, with path parameters as `{name}` (RFC 6570).
    pub endpoint: String,
    /// The operation's category.
    pub category: String,
    /// The mode of execution, always `sync`.
    pub execution: String,
    /// The price model, always `fixed`.
    pub price_model: String,
    /// The estimated price of a call.
    pub estimated_price_units: Usdc,
    /// The maximum price of a call.
    pub max_price_units: Option<Usdc>,
    /// The operation's parameters, as the provider describes them.
    pub params: Value,
    /// The payment for one call. `None` if the operation is not paid.
    pub payment: Option<OperationPayment>,
    /// The scheduled pricing. `None` if no change is scheduled.
    pub next: Option<NextPayment>,
}

/// A scheduled change to an operation's pricing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct NextPayment {
    /// The time from which the new pricing applies.
    pub from: DateTime<Utc>,
    /// The price model, always `fixed`.
    pub price_model: String,
    /// The maximum price of a call.
    pub max_price_units: Option<Usdc>,
    /// The payment for one call.
    pub payment: OperationPayment,
}

/// The payment that an operation requires for one call.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct OperationPayment {
    /// The x402 scheme, always `exact`.
    pub scheme: String,
    /// The network of the payment.
    pub network: String,
    /// The token of the payment.
    pub token: String,
    /// The price of a call.
    pub amount_units: Usdc,
    /// The payee's address.
    pub pay_to: String,
}
