//! A client that pays [x402](https://www.x402.org) providers through Purser, which checks each payment against the
//! agent's spend policy and signs exactly what it allowed.
//!
//! [`Payer`] calls the provider, lets Purser authorize the payment if one is required, repeats the call with the
//! payment, and completes the settlement.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use purser_client::{Payer, Purser, Usdc};
//!
//! let payer = Payer::new(Purser::from_env()?, "report-2026-11-23", "0.05".parse::<Usdc>()?)?;
//! let paid = payer.get("https://provider.example/weather?city=Oslo").await?;
//! println!("{}", paid.response.text().await?);
//! # Ok(()) }
//! ```
//!
//! [`Purser`] is the typed client of Purser's API.
//!
//! # Guarantees
//!
//! - The client sends the agent key to Purser only, and no error contains the agent key.
//! - The client sends a payment header only to the URL whose response required the payment.
//! - The client pays at most once for one idempotency key, even after a crash.

mod agent_key;
mod answer;
mod api;
mod approval;
mod charset;
#[cfg(test)]
mod contract;
mod http_client;
mod idempotency_key;
mod ordinals;
mod paid_body;
mod pay_error;
mod payer;
mod payment;
mod refusal;
mod request;
mod terms;
mod usdc;

pub use agent_key::{AgentKey, AgentKeyError};
pub use answer::{
    Agent, AgentDecisionStatement, AgentRule, Approval, ApprovalStatus, Authorized, Budget, Check, CheckOutcome,
    Completed, CountedPayments, Decision, DescribedCall, EnabledService, EnabledServices, NextPayment, Operation,
    OperationPayment, Preflight, Raise, ReceiptStatus, ServiceDetail, ServiceItem, ServicePolicy, Services, Settlement,
    SettlementItem, SettlementStatements, Settlements, SignedPayment, SignedStatement, Spend, SpendPolicy, UnpaidCheck,
    Warning,
};
pub use api::{ApiError, Call, CatalogFilter, EnvironmentError, KeyFuture, Purser, PurserUrlError, RaiseRequest};
pub use approval::{PendingApproval, WaitResult};
pub use charset::decode_text;
pub use http_client::http_client;
pub use idempotency_key::{IdempotencyKey, IdempotencyKeyError};
pub use paid_body::AnswerBrokeOff;
pub use pay_error::{AlreadyPaid, PayError, ProviderAnswer};
pub use payer::{Paid, Payer};
pub use payment::{PaymentMade, ProviderObjects, ReceiptState};
pub use refusal::{Context, Problem, Refusal, Slug};
pub use request::Request;
pub use terms::{PaymentTerms, TermsError};
pub use usdc::{Usdc, UsdcError};
