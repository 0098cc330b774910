//! Pays [x402](https://www.x402.org) providers through Purser, which judges each payment against the agent's spend
//! policy and signs exactly what it allowed.
//!
//! [`Payer`] does the whole flow for one request: it calls the provider, has the payment authorized when the provider
//! asks for one, repeats the call with it, and completes the receipt.
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
//! [`Purser`] is the typed client of the API below it.
//!
//! Always true: the agent key goes to Purser alone and into no error; a payment header goes to the address that asked
//! for the payment alone; a call is paid at most once under one idempotency key, whatever crashes.

mod agent_key;
mod answer;
mod api;
mod approval;
#[cfg(test)]
mod contract;
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
    Agent, Approval, ApprovalStatus, Authorized, Budget, Check, CheckOutcome, Completed, Decision, DescribedCall,
    EnabledService, EnabledServices, NextPayment, Operation, OperationPayment, Preflight, ReceiptStatus, ServiceDetail,
    ServiceItem, ServicePolicy, Services, Settlement, SettlementItem, Settlements, SignedPayment, Spend, SpendPolicy,
};
pub use api::{ApiError, Call, CatalogFilter, EnvironmentError, Purser, PurserUrlError};
pub use approval::{PendingApproval, Waited};
pub use idempotency_key::{IdempotencyKey, IdempotencyKeyError};
pub use paid_body::AnswerBrokeOff;
pub use pay_error::{AlreadyPaid, PayError, ProviderAnswer};
pub use payer::{Paid, Payer};
pub use payment::{PaymentMade, ReceiptState};
pub use refusal::{Context, Problem, Refusal, Slug};
pub use request::Request;
pub use terms::{PaymentTerms, TermsError};
pub use usdc::{Usdc, UsdcError};
