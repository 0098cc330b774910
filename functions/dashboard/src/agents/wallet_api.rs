//! JSON API for an agent's wallet.

use crate::agents::owned::OwnedAgent;
use crate::state::PeopleState;
use axum::Json;
use purser_api::{Reply, endpoint};
use purser_domain::{Agent, AgentId, Amount, Network};

purser_api::views! {
    /// The address and the balance of an agent's wallet.
    pub(crate) struct WalletView as AgentWallet {
        fn new(agent: &Agent, network: Network, balance: Option<Amount>);

        agent_id: AgentId = agent.id,
        wallet_address: String = agent.wallet.address.to_string(),
        #[schema(value_type = String, example = "base")]
        network: &'static str = network.name(),
        #[schema(value_type = String, example = "USDC")]
        token: &'static str = network.token_symbol(),
        /// The address of the token's contract.
        token_address: String = network.token().address.to_string(),
        /// The balance in micro-USDC; null while the chain can't be reached.
        balance_units: Option<u64> = balance.map(Amount::units),
        /// The balance in USDC; null while the chain can't be reached.
        #[schema(example = "12.5")]
        balance_usdc: Option<String> = balance.map(Amount::to_usdc),
        /// Why the balance is null: `rpc_unavailable`. Null if the balance is known.
        #[schema(value_type = Option<String>, example = json!(null))]
        balance_reason: Option<&'static str> = balance.is_none().then_some("rpc_unavailable"),
    }
}

/// Read the address and the balance of an agent's wallet.
#[endpoint(get "/agents/{agentId}/wallet", returns = "The wallet's address and balance.")]
pub(crate) async fn read_wallet(people: PeopleState, owned: OwnedAgent) -> Reply<Json<WalletView>> {
    let balance = people.read_wallet_balance(&owned).await;
    Ok(Json(WalletView::new(owned.agent(), people.network, balance)))
}
