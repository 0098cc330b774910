//! JSON API for one settlement: an authorized payment or withdrawal, with the result.

use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{Failure, SessionToken, errors};
use purser_domain::{
    Agent, AgentId, DecisionResult, ErrorKind, HistoryEntry, LoggedDecision, Settlement, SettlementId, SettlementState,
};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

/// A settlement of one of the user's agents.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnSettlement)]
pub(crate) struct SettlementView {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    /// The id of the decision that authorized the settlement.
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    /// `purchase`, or `payout` for a withdrawal to your withdrawal address. For a withdrawal, fields that only a
    /// purchase has are null.
    #[schema(value_type = String, example = "purchase")]
    kind: &'static str,
    /// The paying agent.
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's labels. In a list, the labels at the settlement's last change.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    labels: Value,
    #[schema(value_type = Option<uuid::Uuid>, required)]
    service_id: Option<String>,
    /// The operation's slug.
    #[schema(required)]
    operation_id: Option<String>,
    /// The name of the chain, such as `base`.
    #[schema(value_type = String, example = "base")]
    network: &'static str,
    #[schema(value_type = String, example = "USDC")]
    token: &'static str,
    amount_units: u64,
    /// The payee's address.
    pay_to: String,
    /// The settlement's state: `authorized`, `confirmed` or `expired`.
    #[schema(value_type = String, example = "confirmed")]
    receipt_status: &'static str,
    /// The transaction on the chain. Null until the settlement is confirmed.
    #[schema(required)]
    tx_hash: Option<String>,
    #[schema(format = DateTime)]
    authorized_at: String,
    /// The time of the confirmed transfer. Null until the settlement is confirmed.
    #[schema(format = DateTime, required)]
    settled_at: Option<String>,
    /// The agent key that authorized the payment.
    #[schema(required, example = "00c0ffee00c0ffee")]
    key_id: Option<String>,
    /// The address of the paying wallet.
    wallet_address: String,
    /// The end of the payment's validity: the chain accepts the payment only in blocks before this time.
    #[schema(format = DateTime)]
    expires_at: String,
    /// The approval that the payment used. Null if there is none.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    approval_id: Option<String>,
    /// The version of the applied policy.
    #[schema(required)]
    policy_version: Option<u64>,
}

impl SettlementView {
    /// Builds the view of a decision in the decision history. Returns `None` if the decision has no settlement.
    pub(crate) fn from_entry(entry: &HistoryEntry) -> Option<Self> {
        let payment = entry.payment.as_ref()?;
        let (tx_hash, settled_at) = match &payment.state {
            SettlementState::Confirmed {
                tx_hash, settled_at, ..
            } => (Some(tx_hash), Some(settled_at)),
            SettlementState::Authorized | SettlementState::Expired => (None, None),
        };
        Some(Self {
            id: entry.settlement_id()?.to_string(),
            transaction_id: entry.transaction.to_string(),
            kind: match entry.result {
                DecisionResult::Payout => "payout",
                _ => "purchase",
            },
            agent_id: entry.agent.to_string(),
            labels: entry.labels.to_json(),
            service_id: entry.service.map(|id| id.to_string()),
            operation_id: entry.operation.as_ref().map(ToString::to_string),
            network: payment.network.name(),
            token: payment.network.token_symbol(),
            amount_units: entry.amount.units(),
            pay_to: entry.pay_to.to_string(),
            receipt_status: payment.state.state_name(),
            tx_hash: tx_hash.map(ToString::to_string),
            authorized_at: entry.at.to_string(),
            settled_at: settled_at.map(ToString::to_string),
            key_id: entry.key.map(|id| id.to_string()),
            wallet_address: payment.wallet.to_string(),
            expires_at: payment.valid_before.to_string(),
            approval_id: entry.approval.map(|id| id.to_string()),
            policy_version: entry.policy_version,
        })
    }

    pub(crate) fn from_settlement(settlement: Settlement, agent: &Agent) -> purser_domain::Result<Self> {
        let entry = HistoryEntry::new(&LoggedDecision::from_settlement(settlement), &agent.name, &agent.labels);
        Self::from_entry(&entry).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

/// Read one settlement.
#[utoipa::path(
    get, path = "/agents/{agentId}/settlements/{settlementId}", operation_id = "read_settlement",
    params(
        ("agentId" = String, Path, description = "The ID of an agent that you owned when the payment was authorized."),
        ("settlementId" = String, Path, description = "The settlement's ID."),
    ),
    responses((status = 200, body = SettlementView, description = "The settlement."), errors::NotFound)
)]
pub(crate) async fn read_settlement(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path((agent, settlement)): Path<(String, String)>,
) -> Result<Json<SettlementView>, Failure> {
    let read = async |user: &Caller| {
        let (agent, id) = (
            require_id(AgentId::parse(&agent))?,
            require_id(SettlementId::parse(&settlement))?,
        );
        people.read_own_settlement(user, agent, id).await
    };
    let (_, (agent, settlement)) = people
        .authenticate_user_while_reading(token.into_token()?, false, read)
        .await?;
    let entry = HistoryEntry::new(&LoggedDecision::from_settlement(settlement), &agent.name, &agent.labels);
    Ok(Json(SettlementView::from_entry(&entry).ok_or(ErrorKind::NotFound)?))
}
