//! JSON API for an agent's wallet.

use crate::agents::owned::OwnedAgent;
use crate::state::People;
use axum::Json;
use axum::extract::State;
use purser_api::Failure;
use purser_domain::Amount;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The address and the balance of an agent's wallet.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentWallet)]
pub(crate) struct WalletView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    wallet_address: String,
    #[schema(value_type = String, example = "base")]
    network: &'static str,
    #[schema(value_type = String, example = "USDC")]
    token: &'static str,
    /// The address of the token's contract.
    token_address: String,
    /// The balance in micro-USDC; null while the chain can't be reached.
    #[schema(required)]
    balance_units: Option<u64>,
    /// The balance in USDC; null while the chain can't be reached.
    #[schema(required, example = "12.5")]
    balance_usdc: Option<String>,
    /// Why the balance is null: `rpc_unavailable`. Null if the balance is known.
    #[schema(value_type = Option<String>, required, example = json!(null))]
    balance_reason: Option<&'static str>,
}

/// Read the address and the balance of an agent's wallet.
#[utoipa::path(
    get, path = "/agents/{agentId}/wallet", operation_id = "read_wallet",
    responses((status = 200, body = WalletView, description = "The wallet's address and balance."))
)]
pub(crate) async fn read_wallet(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
) -> Result<Json<WalletView>, Failure> {
    let balance = people.read_wallet_balance(&owned).await;
    let (agent, network) = (owned.agent(), people.network);
    Ok(Json(WalletView {
        agent_id: agent.id.to_string(),
        wallet_address: agent.wallet.address.to_string(),
        network: network.name(),
        token: network.token_symbol(),
        token_address: network.token().address.to_string(),
        balance_units: balance.map(Amount::units),
        balance_usdc: balance.map(Amount::to_usdc),
        balance_reason: balance.is_none().then_some("rpc_unavailable"),
    }))
}
