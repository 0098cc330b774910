//! JSON API for one settlement: an authorized payment or withdrawal, with the result.

use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::state::PeopleState;
use axum::Json;
use axum::extract::Path;
use purser_api::{Reply, SessionToken, endpoint};
use purser_domain::{
    Agent, AgentId, ApprovalId, DecisionResult, ErrorKind, HistoryEntry, HistoryPayment, LoggedDecision, ServiceId,
    Settlement, SettlementId, SettlementState, Timestamp, TransactionId,
};
use serde_json::Value;

purser_api::views! {
    /// A settlement of one of the user's agents.
    pub(crate) struct SettlementView as OwnSettlement {
        /// Builds the view of a settlement in the decision history.
        fn new(entry: &HistoryEntry, id: SettlementId, payment: &HistoryPayment);
        let (tx_hash, settled_at) = match &payment.state {
            SettlementState::Confirmed {
                tx_hash, settled_at, ..
            } => (Some(tx_hash), Some(settled_at)),
            SettlementState::Authorized | SettlementState::Expired => (None, None),
        };

        id: SettlementId,
        /// The id of the decision that authorized the settlement.
        transaction_id: TransactionId = entry.transaction,
        /// `purchase`, or `payout` for a withdrawal to your withdrawal address. For a withdrawal, fields that only a
        /// purchase has are null.
        #[schema(value_type = String, example = "purchase")]
        kind: &'static str = match entry.result {
            DecisionResult::Payout => "payout",
            _ => "purchase",
        },
        /// The paying agent.
        agent_id: AgentId = entry.agent,
        /// The agent's labels. In a list, the labels at the settlement's last change.
        #[schema(value_type = std::collections::BTreeMap<String, String>)]
        labels: Value = entry.labels.to_json(),
        service_id: Option<ServiceId> = entry.service,
        /// The operation's slug.
        operation_id: Option<String> = entry.operation.as_ref().map(ToString::to_string),
        /// The name of the chain, such as `base`.
        #[schema(value_type = String, example = "base")]
        network: &'static str = payment.network.name(),
        #[schema(value_type = String, example = "USDC")]
        token: &'static str = payment.network.token_symbol(),
        amount_units: u64 = entry.amount.units(),
        /// The payee's address.
        pay_to: String = entry.pay_to.to_string(),
        /// The settlement's state: `authorized`, `confirmed` or `expired`.
        #[schema(value_type = String, example = "confirmed")]
        receipt_status: &'static str = payment.state.state_name(),
        /// The transaction on the chain. Null until the settlement is confirmed.
        tx_hash: Option<String> = tx_hash.map(ToString::to_string),
        authorized_at: Timestamp = entry.at,
        /// The time of the confirmed transfer. Null until the settlement is confirmed.
        settled_at: Option<Timestamp> = settled_at.copied(),
        /// The agent key that authorized the payment.
        #[schema(example = "00c0ffee00c0ffee")]
        key_id: Option<String> = entry.key.map(|id| id.to_string()),
        /// The address of the paying wallet.
        wallet_address: String = payment.wallet.to_string(),
        /// The end of the payment's validity: the chain accepts the payment only in blocks before this time.
        expires_at: Timestamp = payment.valid_before,
        /// The approval that the payment used. Null if there is none.
        approval_id: Option<ApprovalId> = entry.approval,
        /// The version of the applied policy.
        policy_version: Option<u64> = entry.policy_version,
    }
}

impl SettlementView {
    /// Returns `None` if the decision has no settlement.
    pub(crate) fn from_entry(entry: &HistoryEntry) -> Option<Self> {
        Some(Self::new(entry, entry.settlement_id()?, entry.payment.as_ref()?))
    }

    pub(crate) fn from_settlement(settlement: Settlement, agent: &Agent) -> purser_domain::Result<Self> {
        let entry = HistoryEntry::new(&LoggedDecision::from_settlement(settlement), &agent.name, &agent.labels);
        Self::from_entry(&entry).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

/// Read one settlement.
#[endpoint(
    get "/agents/{agentId}/settlements/{settlementId}",
    params(
        ("agentId" = String, Path, description = "The ID of an agent that you owned when the payment was authorized."),
        ("settlementId" = String, Path, description = "The settlement's ID."),
    ),
    returns = "The settlement.", errors(NotFound)
)]
pub(crate) async fn read_settlement(
    people: PeopleState,
    token: SessionToken,
    Path((agent, settlement)): Path<(String, String)>,
) -> Reply<Json<SettlementView>> {
    let read = async |user: &Caller| {
        let (agent, id) = (
            require_id(AgentId::parse(&agent))?,
            require_id(SettlementId::parse(&settlement))?,
        );
        people.read_own_settlement(user, agent, id).await
    };
    let (_, (agent, settlement)) = people
        .authenticate_user_and_read(token.into_token()?, false, read)
        .await?;
    let entry = HistoryEntry::new(&LoggedDecision::from_settlement(settlement), &agent.name, &agent.labels);
    Ok(Json(SettlementView::from_entry(&entry).ok_or(ErrorKind::NotFound)?))
}
