//! The JSON of a settlement, for agents and users.

use purser_domain::{Purchase, Settlement};
use serde::Serialize;
use utoipa::ToSchema;

/// A settlement, as a receipt returns it (`docs/spec.md` §2.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Settlement)]
pub struct SettlementRow {
    /// The settlement's ID, which other responses contain as `settlement_id`.
    #[schema(value_type = Uuid)]
    pub id: String,
    /// The ID of the decision in the audit log.
    #[schema(value_type = Uuid)]
    pub transaction_id: String,
    /// The ID of the agent that pays.
    pub agent_id: String,
    /// The ID of the service that is paid.
    #[schema(value_type = Uuid)]
    pub service_id: String,
    /// The slug of the paid operation.
    pub operation_id: String,
    /// The network on which the payment is made.
    #[schema(value_type = String, example = "base")]
    pub network: &'static str,
    /// The symbol of the token that is paid, such as `USDC`.
    #[schema(value_type = String, example = "USDC")]
    pub token: &'static str,
    /// The amount of the payment, in micro-units.
    pub amount_units: u64,
    /// The payee's address.
    pub pay_to: String,
    /// The payment's status: `authorized`, `confirmed` or `expired`.
    #[schema(value_type = String, example = "confirmed")]
    pub receipt_status: &'static str,
    /// The hash of the confirmed transaction; null until the payment is confirmed.
    #[schema(required)]
    pub tx_hash: Option<String>,
    /// The time at which the payment was authorized and its amount was reserved.
    #[schema(format = DateTime)]
    pub authorized_at: String,
    /// The time at which the payment was made on chain; null until the payment is confirmed.
    #[schema(format = DateTime, required)]
    pub settled_at: Option<String>,
}

impl SettlementRow {
    /// Creates the view of a settlement and its purchase.
    pub fn new(settlement: &Settlement, purchase: &Purchase) -> Self {
        let terms = &settlement.terms;
        Self {
            id: terms.id.to_string(),
            transaction_id: terms.transaction.to_string(),
            agent_id: terms.agent.to_string(),
            service_id: purchase.service.to_string(),
            operation_id: purchase.operation.to_string(),
            network: terms.network.name(),
            token: terms.network.token_symbol(),
            amount_units: terms.amount.units(),
            pay_to: terms.pay_to.to_string(),
            receipt_status: settlement.state.state_name(),
            tx_hash: settlement.tx_hash().map(|hash| hash.to_string()),
            authorized_at: terms.authorized_at.to_string(),
            settled_at: settlement.settled_at().map(|at| at.to_string()),
        }
    }
}
