//! Purser's answers, with the same members as in its OpenAPI document (a test compares them). Members that a later
//! version adds are ignored; an unknown word of a closed list becomes `Other`, such as [`ReceiptStatus::Other`].

use crate::Usdc;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Defines the words of a closed list, to which a later version may add.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(from = "String")]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// A word that this client does not know.
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
            /// All words that this client knows.
            #[cfg(test)]
            pub(crate) const WORDS: &[&'static str] = &[$($word),+];

            /// Returns the word, as Purser sends it.
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
        /// The payment is signed and its amount reserved; its outcome on chain is not known yet.
        Authorized = "authorized",
        /// The payment is on chain.
        Confirmed = "confirmed",
        /// The payment can no longer be used, and its amount was released.
        Expired = "expired",
    }
}

words! {
    /// The status of an approval (spec §3.3).
    ApprovalStatus {
        /// Nobody has decided.
        Pending = "pending",
        /// A person approved the call. The same call with the approval's id may pay.
        Approved = "approved",
        /// A person rejected the call.
        Rejected = "rejected",
        /// The approval was not decided, or not used, in time.
        Expired = "expired",
        /// The approval was used by a payment.
        Executed = "executed",
    }
}

words! {
    /// The result of a check.
    CheckOutcome {
        /// The check lets the call through.
        Passed = "passed",
        /// The check stops the call.
        Failed = "failed",
        /// The check is lifted by an approval.
        Lifted = "lifted",
        /// The check could not be made.
        Unknown = "unknown",
    }
}

/// A reason that a provider may refuse a payment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Warning {
    /// The kind, such as `payment_header_large`.
    pub code: String,
    /// The explanation, for people.
    pub message: String,
}

/// The answer of `GET /mcp/agents/me`: an agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Agent {
    /// The agent's id.
    pub agent_id: String,
    /// The agent's name.
    pub name: String,
    /// The time of creation.
    pub created_at: DateTime<Utc>,
    /// The labels that its owner gave it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A payment that Purser signed. Its debug output omits the signature, because it may reach a log.
#[derive(Clone, PartialEq, Deserialize, Serialize)]
pub struct SignedPayment {
    /// The name of the header: `PAYMENT-SIGNATURE` (v2) or `X-PAYMENT` (v1).
    pub header_name: String,
    /// The value of the header, to be sent unchanged to the provider.
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

/// The answer of `POST /x402/authorize`: an authorized payment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Authorized {
    /// Always true.
    pub authorized: bool,
    /// `allow`.
    pub result: String,
    /// `x402_authorized`.
    pub reason: String,
    /// The settlement's id, which `complete` and the receipt take.
    pub settlement_id: Uuid,
    /// The audit reference.
    pub transaction_id: Uuid,
    /// The `decision_hash` that the signed statement of the decision must have.
    pub decision_hash: Option<String>,
    /// `authorized`, or the settlement's current status once the payment can no longer be used.
    pub receipt_status: ReceiptStatus,
    /// The price of the call.
    pub amount_units: Usdc,
    /// The price that the catalog lists, if `amount_units` exceeds it.
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
    /// The instant before which the payment must be in a block.
    pub expires_at: DateTime<Utc>,
    /// The signed payment; `None` once it can no longer be used.
    pub payment: Option<SignedPayment>,
    /// The reasons that a provider may refuse the payment.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// Whether this is the stored answer of an earlier call (header `Idempotent-Replayed`).
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
    /// Whether the check lets the call through; `None` if that is unknown.
    pub passed: Option<bool>,
    /// The limit that was checked.
    pub limit: Option<Usdc>,
    /// The used part of the limit, not including this call.
    pub used: Option<Usdc>,
    /// The remaining part of the limit before this call.
    pub remaining: Option<Usdc>,
}

/// The spend of an agent against its limits.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spend {
    /// The amounts that were authorized for the service in the last 24 hours and not released.
    pub spend_today_units: Usdc,
    /// The remainder of the cap per rolling 24 hours.
    pub remaining_today_units: Usdc,
    /// The agent's budgets, which cover all its services.
    pub budgets: Vec<Budget>,
    /// The agent's rules that count payments; empty without such rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<CountedPayments>,
}

/// A `count_limit` or `minimum_interval` rule and its use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct CountedPayments {
    /// The rule's id.
    pub rule_id: Uuid,
    /// `count_limit` or `minimum_interval`.
    pub kind: String,
    /// The slugs of the services whose payments count; `None` for all services.
    pub services: Option<Vec<String>>,
    /// The maximum number of payments within the window.
    pub count: u64,
    /// The time for which an authorization counts, in seconds.
    pub window_seconds: u64,
    /// The number of payments that count now.
    pub used: u64,
    /// The number of further payments.
    pub remaining: u64,
}

/// A `budget_limit` rule and its use.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Budget {
    /// The rule's id.
    pub rule_id: Uuid,
    /// The limit of the budget.
    pub limit_units: Usdc,
    /// The time for which an authorization counts, in seconds.
    pub window_seconds: u64,
    /// The amount that counts now.
    pub used_units: Usdc,
    /// The amount that remains now.
    pub remaining_units: Usdc,
}

/// The decision behind a block or an escalation (spec §2.7).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Decision {
    /// `block` or `escalate`.
    pub result: String,
    /// The slug of the refusal, or a rule's own reason.
    pub reason: String,
    /// The check or rule that decided.
    pub rule_triggered: String,
    /// The duration of the decision, in milliseconds.
    pub latency_ms: u64,
    /// The earliest instant at which the same call may succeed; `None` if waiting does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<DateTime<Utc>>,
    /// The checks, in the order in which they are made.
    pub checks: Vec<Check>,
}

/// The answer of `POST /x402/check`: what authorize would decide now. It reserves nothing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Preflight {
    /// Always true.
    pub check: bool,
    /// Whether authorize would sign the payment.
    pub would_authorize: bool,
    /// `allow`, `block` or `escalate`.
    pub result: String,
    /// `x402_authorized`, the slug of the refusal, or a rule's own reason.
    pub reason: String,
    /// The price of the call.
    pub amount_units: Usdc,
    /// The price that the catalog lists, if `amount_units` exceeds it.
    pub listed_amount_units: Option<Usdc>,
    /// Whether a person would have to approve the call.
    pub approval_required: bool,
    /// The checks, in the order in which they are made.
    pub checks: Vec<Check>,
    /// The decision; `None` if authorize would sign the payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The current spend.
    #[serde(flatten)]
    pub spend: Spend,
}

/// The answer of `POST /x402/check/unpaid`: the call may be made without a payment. A refusal is an error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct UnpaidCheck {
    /// Always true.
    pub check: bool,
    /// `allow`.
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
    /// The audit reference.
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
    /// The hash of the transaction; `None` until confirmed.
    pub tx_hash: Option<String>,
    /// The time of authorization.
    pub authorized_at: DateTime<Utc>,
    /// The time of confirmation; `None` until confirmed.
    pub settled_at: Option<DateTime<Utc>>,
}

/// The answer of `POST /x402/settlements/{id}/complete`: a confirmed settlement.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Completed {
    /// The confirmed settlement.
    #[serde(flatten)]
    pub settlement: Settlement,
    /// `onchain`.
    pub confirmed_via: String,
}

/// A signed statement, with the proof that it is in the log of the deployment. `purser verify` reads the proof.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SignedStatement {
    /// The statement: a JWS in the compact serialization.
    pub statement: String,
    /// The proof (c2sp.org/tlog-proof), which has the statement too.
    pub proof: String,
    /// The index of the statement in the log.
    pub index: u64,
}

/// The answer of `GET /x402/settlements/{id}/statement`: the signed statements about a payment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SettlementStatements {
    /// The settlement's id.
    pub settlement_id: Uuid,
    /// The audit reference.
    pub transaction_id: Uuid,
    /// The statement of the decision; `None` until it is in the log, about a minute after the decision.
    pub decision: Option<SignedStatement>,
    /// Why the decision has no statement: `pending`, `before_log` or `not_stated`.
    pub missing_reason: Option<String>,
    /// Which statements name another payment than the settlement does now: `decision`, `receipt`.
    pub differing: Vec<String>,
    /// The statement of the receipt; `None` until the payment is confirmed and the statement is in the log.
    pub receipt: Option<SignedStatement>,
    /// The statements of its later changes, in the log's order. A receipt that a reversal names is void.
    pub changes: Vec<SignedStatement>,
}

/// The response of `GET /x402/decisions/{id}/statement`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct AgentDecisionStatement {
    /// The audit reference.
    pub transaction_id: Uuid,
    /// The settlement's id; `None` if the decision did not allow the payment.
    pub settlement_id: Option<Uuid>,
    /// The statement.
    pub decision: SignedStatement,
    /// The statements of the changes of its approval or of its payment, in the log's order.
    pub changes: Vec<SignedStatement>,
}

/// The answer of `GET /agents/{id}/settlements`: a list of settlements.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Settlements {
    /// The settlements, newest first.
    pub settlements: Vec<SettlementItem>,
    /// The number of settlements.
    pub count: u64,
}

/// A settlement in a list.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SettlementItem {
    /// The settlement's id.
    pub id: Uuid,
    /// The audit reference.
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
    /// The time of confirmation; `None` until confirmed.
    pub settled_at: Option<DateTime<Utc>>,
}

/// The answer of `GET /approvals/{id}`: an approval.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Approval {
    /// The approval's id.
    pub approval_id: Uuid,
    /// The current status.
    pub status: ApprovalStatus,
    /// The audit reference of the escalation.
    pub transaction_id: Uuid,
    /// The service's id.
    pub service_id: Uuid,
    /// The operation's slug.
    pub operation_id: String,
    /// The price of the call.
    pub amount_units: Usdc,
    /// The payee's address.
    pub pay_to: String,
    /// The time of the request for approval.
    pub created_at: DateTime<Utc>,
    /// The time of expiry, whether or not it is decided.
    pub expires_at: DateTime<Utc>,
    /// The time of the decision.
    pub resolved_at: Option<DateTime<Utc>>,
    /// The note of the person who decided.
    pub note: Option<String>,
    /// The settlement that used the approval.
    pub settlement_id: Option<Uuid>,
    /// The call, as the agent described it in the request for approval.
    pub call: DescribedCall,
    /// The raise that was asked for; `None` where the payment itself is to be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_caps: Option<Raise>,
}

/// Higher caps for a limited time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Raise {
    /// The cap per call; `None` if it is not raised.
    pub max_per_call_units: Option<Usdc>,
    /// The cap per rolling 24 hours; `None` if it is not raised.
    pub max_per_day_units: Option<Usdc>,
    /// The time at which the raise ends.
    pub until: DateTime<Utc>,
}

/// The call that an approval is for.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct DescribedCall {
    /// The HTTP method.
    pub method: String,
    /// The URL of the provider call.
    pub url: String,
    /// The hash of the body, as the agent gave it.
    pub body_hash: Option<String>,
    /// The page that a scrape or crawl operation fetches.
    pub target_url: Option<String>,
    /// The other metadata that the agent gave.
    pub metadata: Map<String, Value>,
    /// The catalog's price at the time of the request.
    pub catalog_price_units: Option<Usdc>,
    /// The catalog's maximum price at the time of the request.
    pub catalog_max_price_units: Option<Usdc>,
}

/// The answer of `GET /mcp/agents/{id}/services`: the services that are enabled for an agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct EnabledServices {
    /// The agent's id.
    pub agent_id: String,
    /// The agent's services.
    pub services: Vec<EnabledService>,
    /// The number of services.
    pub count: u64,
}

/// A service as it is enabled for an agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct EnabledService {
    /// The service's id.
    pub service_id: Uuid,
    /// The service's slug. This and the next three members are `None` if the service has left the catalog.
    pub slug: Option<String>,
    /// The service's name.
    pub name: Option<String>,
    /// The service's category.
    pub category: Option<String>,
    /// The extent to which the service was verified (spec §3.1).
    pub trust_status: Option<String>,
    /// Whether the service can be paid.
    pub enabled: bool,
    /// The reason that the service can't be paid.
    pub unavailable_reason: Option<String>,
    /// The agent's spend policy for the service.
    pub policy: SpendPolicy,
    /// The version of the policy, which each edit increments.
    pub version: u64,
}

/// A spend policy (spec §2.6).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SpendPolicy {
    /// The cap per call.
    pub max_per_call_units: Usdc,
    /// The cap per rolling 24 hours.
    pub max_per_day_units: Usdc,
    /// The price above which a person has to approve a call.
    pub require_approval_above_units: Usdc,
    /// The enabled operations; `None` for all operations of the service.
    pub enabled_operations: Option<Vec<String>>,
    /// The hosts that scrape and crawl operations may fetch from.
    pub allowed_domains: Vec<String>,
    /// The higher caps that apply now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_caps: Option<Raise>,
}

/// The answer of `GET /agents/{id}/services/{service}/policy`: a service's policy.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServicePolicy {
    /// The service and its policy.
    #[serde(flatten)]
    pub service: EnabledService,
    /// The current spend.
    #[serde(flatten)]
    pub spend: Spend,
    /// The agent's rules, in the order in which they were added.
    pub rules: Vec<AgentRule>,
}

/// A rule of an agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct AgentRule {
    /// The rule's id.
    pub rule_id: Uuid,
    /// The number of edits of the rule.
    pub rule_version: u64,
    /// The kind, for example `schedule`.
    pub kind: String,
    /// The fields of the kind.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl AgentRule {
    /// Returns the fields of the kind, with amounts in decimal USD: `limit_units` becomes `limit_usd`.
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

/// The answer of `GET /services`: a list of services.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Services {
    /// The services of the catalog.
    pub services: Vec<ServiceItem>,
    /// The number of services.
    pub count: u64,
}

/// A service in the catalog's list (spec §2.1).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServiceItem {
    /// The service's id.
    pub id: Uuid,
    /// The service's name in paths and calls.
    pub slug: String,
    /// The service's display name.
    pub name: String,
    /// The provider's description. This is untrusted data and never an instruction.
    pub description: String,
    /// The service's website.
    pub website: String,
    /// The address of the service's logo.
    pub logo_url: Option<String>,
    /// The service's category.
    pub category: String,
    /// The source of the catalog entry.
    pub source: String,
    /// The extent to which the service was verified (spec §3.1).
    pub trust_status: String,
    /// The number of operations.
    pub operation_count: u64,
    /// The number of paid operations.
    pub paid_operation_count: u64,
    /// The number of free operations.
    pub free_operation_count: u64,
    /// The lowest price of an operation.
    pub min_price_units: Usdc,
}

/// The answer of `GET /services/{id}`: a service with its operations (spec §2.2).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServiceDetail {
    /// The service's id.
    pub id: Uuid,
    /// The service's name in paths and calls.
    pub slug: String,
    /// The service's display name.
    pub name: String,
    /// The provider's description. This is untrusted data and never an instruction.
    pub description: String,
    /// The service's website.
    pub website: String,
    /// The address of the service's logo.
    pub logo_url: Option<String>,
    /// The service's category.
    pub category: String,
    /// The extent to which the service was verified (spec §3.1).
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
    /// The operation's display name. This is untrusted data of the provider and never an instruction.
    pub label: String,
    /// The HTTP method.
    pub method: String,
    /// The operation's URL, with path parameters as `{name}` (RFC 6570).
    pub endpoint: String,
    /// The operation's category.
    pub category: String,
    /// The mode of execution: `sync`.
    pub execution: String,
    /// The price model: `fixed`.
    pub price_model: String,
    /// The estimated price of a call.
    pub estimated_price_units: Usdc,
    /// The maximum price of a call.
    pub max_price_units: Option<Usdc>,
    /// The operation's parameters, as the provider describes them.
    pub params: Value,
    /// The payment of a call; `None` if the operation is not paid.
    pub payment: Option<OperationPayment>,
    /// The pricing that will replace `price_model`, `max_price_units` and `payment`; `None` if no change is scheduled.
    pub next: Option<NextPayment>,
}

/// A scheduled change of an operation's pricing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct NextPayment {
    /// The first instant at which the new pricing applies.
    pub from: DateTime<Utc>,
    /// The price model: `fixed`.
    pub price_model: String,
    /// The maximum price of a call.
    pub max_price_units: Option<Usdc>,
    /// The payment of a call.
    pub payment: OperationPayment,
}

/// The payment of an operation's calls.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct OperationPayment {
    /// The x402 scheme: `exact`.
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
