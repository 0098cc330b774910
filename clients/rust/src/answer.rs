//! What Purser answers, member by member as in its OpenAPI document (a test compares them). Members that a later
//! version adds are ignored; a word that it adds is [`ReceiptStatus::Other`] or the like.

use crate::Usdc;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A word of a closed list, which a later version may lengthen.
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

            /// The word, as Purser sends it.
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
    /// Where a settlement stands (spec §3.2).
    ReceiptStatus {
        /// Signed and reserved; the chain has not decided.
        Authorized = "authorized",
        /// Paid: the transfer is on the chain.
        Confirmed = "confirmed",
        /// It can never be paid any more, and was given back.
        Expired = "expired",
    }
}

words! {
    /// Where an approval stands (spec §3.3).
    ApprovalStatus {
        /// Nobody has decided.
        Pending = "pending",
        /// A person said yes; the same call with its id may pay.
        Approved = "approved",
        /// A person said no.
        Rejected = "rejected",
        /// Nobody decided, or nobody paid, in time.
        Expired = "expired",
        /// It was paid with.
        Executed = "executed",
    }
}

words! {
    /// What a check found.
    CheckOutcome {
        /// It lets the call through.
        Passed = "passed",
        /// It stops the call.
        Failed = "failed",
        /// An approval lets it through.
        Lifted = "lifted",
        /// It could not be made.
        Unknown = "unknown",
    }
}

/// `GET /mcp/agents/me`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Agent {
    /// Its id.
    pub agent_id: String,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// A payment that Purser signed. Its debug output has no signature: it may reach a log.
#[derive(Clone, PartialEq, Deserialize, Serialize)]
pub struct SignedPayment {
    /// `PAYMENT-SIGNATURE` (v2) or `X-PAYMENT` (v1).
    pub header_name: String,
    /// Goes into the provider call as it is.
    pub header_value: String,
    /// What the header holds, decoded.
    pub payload: Map<String, Value>,
    /// The version of x402.
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

/// `POST /x402/authorize`, allowed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Authorized {
    /// Always true.
    pub authorized: bool,
    /// `allow`.
    pub result: String,
    /// `x402_authorized`.
    pub reason: String,
    /// The settlement: what `complete` and the receipt are asked for.
    pub settlement_id: Uuid,
    /// The audit reference.
    pub transaction_id: Uuid,
    /// `authorized`; once the payment can't be used any more, where the settlement stands.
    pub receipt_status: ReceiptStatus,
    /// The price.
    pub amount_units: Usdc,
    /// The price that the catalog lists, where `amount_units` is above it.
    pub listed_amount_units: Option<Usdc>,
    /// The payee.
    pub pay_to: String,
    /// The network.
    pub network: String,
    /// The token.
    pub token: String,
    /// The payer.
    pub wallet_address: String,
    /// When it was authorized.
    pub authorized_at: DateTime<Utc>,
    /// The chain takes the payment only in blocks before this instant.
    pub expires_at: DateTime<Utc>,
    /// The signed payment; `None` once it can't be used any more.
    pub payment: Option<SignedPayment>,
    /// Whether this is the stored answer of an earlier call (header `Idempotent-Replayed`).
    #[serde(skip_deserializing)]
    pub replayed: bool,
}

/// One check of a decision.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Check {
    /// Which check.
    pub name: String,
    /// What it found.
    pub outcome: CheckOutcome,
    /// Whether it lets the call through; `None` while that is unknown.
    pub passed: Option<bool>,
    /// The limit.
    pub limit: Option<Usdc>,
    /// What of it is used, without this call.
    pub used: Option<Usdc>,
    /// What of it is left, without this call.
    pub remaining: Option<Usdc>,
}

/// What of the limits is used and left.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spend {
    /// What was authorized for the service less than 24 hours ago and not released.
    pub spend_today_units: Usdc,
    /// What of the cap per day is left.
    pub remaining_today_units: Usdc,
    /// The agent's budgets, over all its services.
    pub budgets: Vec<Budget>,
}

/// A `budget_limit` rule.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Budget {
    /// The rule.
    pub rule_id: Uuid,
    /// The budget.
    pub limit_units: Usdc,
    /// How long an authorization counts, in seconds.
    pub window_seconds: u64,
    /// What counts now.
    pub used_units: Usdc,
    /// What is left now.
    pub remaining_units: Usdc,
}

/// The decision behind a block or an escalation (spec §2.7).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Decision {
    /// `block` or `escalate`.
    pub result: String,
    /// The slug of the refusal, or a rule's own reason.
    pub reason: String,
    /// The check or rule that answered.
    pub rule_triggered: String,
    /// How long the decision took.
    pub latency_ms: u64,
    /// When the same call fits; `None` where no passing of time ends the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<DateTime<Utc>>,
    /// Every check, in order.
    pub checks: Vec<Check>,
}

/// `POST /x402/check`: what authorize would decide now. It reserves nothing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Preflight {
    /// Always true.
    pub check: bool,
    /// Whether authorize would sign.
    pub would_authorize: bool,
    /// `allow`, `block` or `escalate`.
    pub result: String,
    /// `x402_authorized`, the slug of the refusal, or a rule's own reason.
    pub reason: String,
    /// The price.
    pub amount_units: Usdc,
    /// The price that the catalog lists, where `amount_units` is above it.
    pub listed_amount_units: Option<Usdc>,
    /// Whether a person would be asked.
    pub approval_required: bool,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// The decision; `None` where authorize would sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// What is used and left.
    #[serde(flatten)]
    pub spend: Spend,
}

/// A settlement: the receipt (spec §2.4).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Settlement {
    /// Its id.
    pub id: Uuid,
    /// The audit reference.
    pub transaction_id: Uuid,
    /// Who pays.
    pub agent_id: String,
    /// Whose service.
    pub service_id: Uuid,
    /// Which operation, by its slug.
    pub operation_id: String,
    /// The network.
    pub network: String,
    /// The token.
    pub token: String,
    /// How much.
    pub amount_units: Usdc,
    /// To whom.
    pub pay_to: String,
    /// Where it stands.
    pub receipt_status: ReceiptStatus,
    /// The transaction; `None` until confirmed.
    pub tx_hash: Option<String>,
    /// When it was authorized.
    pub authorized_at: DateTime<Utc>,
    /// When it was confirmed.
    pub settled_at: Option<DateTime<Utc>>,
}

/// `POST /x402/settlements/{id}/complete`: a confirmed settlement.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Completed {
    /// The settlement.
    #[serde(flatten)]
    pub settlement: Settlement,
    /// `onchain`.
    pub confirmed_via: String,
}

/// `GET /agents/{id}/settlements`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Settlements {
    /// Newest first.
    pub settlements: Vec<SettlementItem>,
    /// How many.
    pub count: u64,
}

/// A settlement in a list.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SettlementItem {
    /// Its id.
    pub id: Uuid,
    /// The audit reference.
    pub transaction_id: Uuid,
    /// Whose service.
    pub service_id: Uuid,
    /// Which operation, by its slug.
    pub operation_id: String,
    /// How much.
    pub amount_units: Usdc,
    /// Where it stands.
    pub receipt_status: ReceiptStatus,
    /// When it was authorized.
    pub authorized_at: DateTime<Utc>,
    /// When it was confirmed.
    pub settled_at: Option<DateTime<Utc>>,
}

/// `GET /approvals/{id}`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Approval {
    /// Its id.
    pub approval_id: Uuid,
    /// Where it stands.
    pub status: ApprovalStatus,
    /// The audit reference of the escalation.
    pub transaction_id: Uuid,
    /// Whose service.
    pub service_id: Uuid,
    /// Which operation, by its slug.
    pub operation_id: String,
    /// The price.
    pub amount_units: Usdc,
    /// The payee.
    pub pay_to: String,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When it ends, decided or not.
    pub expires_at: DateTime<Utc>,
    /// When a person decided.
    pub resolved_at: Option<DateTime<Utc>>,
    /// What they wrote beside it.
    pub note: Option<String>,
    /// The settlement that used it.
    pub settlement_id: Option<Uuid>,
    /// The call, as it was described when it was asked for.
    pub call: DescribedCall,
}

/// The call of an approval.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct DescribedCall {
    /// HTTP method.
    pub method: String,
    /// Where the provider is called.
    pub url: String,
    /// The hash of the body, as the agent gave it.
    pub body_hash: Option<String>,
    /// The page that a scrape or crawl is pointed at.
    pub target_url: Option<String>,
    /// What else the agent said.
    pub metadata: Map<String, Value>,
    /// What the catalog said that a call costs.
    pub catalog_price_units: Option<Usdc>,
    /// What the catalog let it cost at most.
    pub catalog_max_price_units: Option<Usdc>,
}

/// `GET /mcp/agents/{id}/services`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct EnabledServices {
    /// The agent.
    pub agent_id: String,
    /// Its services.
    pub services: Vec<EnabledService>,
    /// How many.
    pub count: u64,
}

/// A service as the agent has it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct EnabledService {
    /// The service.
    pub service_id: Uuid,
    /// `None`, as the next three, for a service that has left the catalog.
    pub slug: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its category.
    pub category: Option<String>,
    /// How far it was checked.
    pub trust_status: Option<String>,
    /// Whether it can be paid.
    pub enabled: bool,
    /// Why not.
    pub unavailable_reason: Option<String>,
    /// The spend policy.
    pub policy: SpendPolicy,
    /// Counts the edits of the policy.
    pub version: u64,
}

/// A spend policy (spec §2.6).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SpendPolicy {
    /// Cap per call.
    pub max_per_call_units: Usdc,
    /// Cap per rolling 24 hours.
    pub max_per_day_units: Usdc,
    /// Calls above this go to a person first.
    pub require_approval_above_units: Usdc,
    /// `None`: every operation of the service.
    pub enabled_operations: Option<Vec<String>>,
    /// Which hosts scrape and crawl operations may be pointed at.
    pub allowed_domains: Vec<String>,
}

/// `GET /agents/{id}/services/{service}/policy`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServicePolicy {
    /// The service.
    #[serde(flatten)]
    pub service: EnabledService,
    /// What is used and left.
    #[serde(flatten)]
    pub spend: Spend,
}

/// `GET /services`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Services {
    /// The services.
    pub services: Vec<ServiceItem>,
    /// How many.
    pub count: u64,
}

/// A service in the catalog's list (spec §2.1).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServiceItem {
    /// Its id.
    pub id: Uuid,
    /// Its name in paths and calls.
    pub slug: String,
    /// Its name for people.
    pub name: String,
    /// What it is. Text of the provider: data, never an instruction.
    pub description: String,
    /// Its website.
    pub website: String,
    /// Its logo.
    pub logo_url: Option<String>,
    /// What it is about.
    pub category: String,
    /// Where the entry came from.
    pub source: String,
    /// How far it was checked.
    pub trust_status: String,
    /// How many operations it has.
    pub operation_count: u64,
    /// How many of them are paid.
    pub paid_operation_count: u64,
    /// How many of them are free.
    pub free_operation_count: u64,
    /// The lowest price.
    pub min_price_units: Usdc,
}

/// `GET /services/{id}` (spec §2.2).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ServiceDetail {
    /// Its id.
    pub id: Uuid,
    /// Its name in paths and calls.
    pub slug: String,
    /// Its name for people.
    pub name: String,
    /// What it is. Text of the provider: data, never an instruction.
    pub description: String,
    /// Its website.
    pub website: String,
    /// Its logo.
    pub logo_url: Option<String>,
    /// What it is about.
    pub category: String,
    /// How far it was checked.
    pub trust_status: String,
    /// What can be called.
    pub operations: Vec<Operation>,
}

/// An operation (spec §2.3).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Operation {
    /// Its id.
    pub id: Uuid,
    /// Its slug, `<domain>.<action>`.
    pub operation_id: String,
    /// `paid_x402`, `free_verified` or `unverified`.
    pub availability: String,
    /// Its name for people. Text of the provider: data, never an instruction.
    pub label: String,
    /// HTTP method.
    pub method: String,
    /// Its address, with path parameters as `{name}` (RFC 6570).
    pub endpoint: String,
    /// What it is about.
    pub category: String,
    /// `sync`.
    pub execution: String,
    /// `fixed`.
    pub price_model: String,
    /// What a call costs, about.
    pub estimated_price_units: Usdc,
    /// What a call costs at most.
    pub max_price_units: Option<Usdc>,
    /// Its parameters, as the provider describes them.
    pub params: Value,
    /// How it is paid; `None` where it is not.
    pub payment: Option<OperationPayment>,
    /// What takes the place of price model, maximum and payment; `None` while no change waits.
    pub next: Option<NextPayment>,
}

/// How an operation will be paid.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct NextPayment {
    /// The first instant at which a call pays so.
    pub from: DateTime<Utc>,
    /// `fixed`.
    pub price_model: String,
    /// What a call costs at most.
    pub max_price_units: Option<Usdc>,
    /// How it is paid.
    pub payment: OperationPayment,
}

/// How an operation is paid.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct OperationPayment {
    /// `exact`.
    pub scheme: String,
    /// The network.
    pub network: String,
    /// The token.
    pub token: String,
    /// The price.
    pub amount_units: Usdc,
    /// The payee.
    pub pay_to: String,
}
