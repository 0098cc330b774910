//! Detects development nodes, for settings that must never be used with real money.

use crate::{Chain, ChainError};
use serde_json::json;

impl Chain {
    /// Returns whether every endpoint is Anvil or Hardhat, according to `web3_clientVersion`. The owner of such a chain
    /// can rewrite the history.
    pub async fn is_development_node(&self) -> Result<bool, ChainError> {
        for endpoint in self.rpc.clients_per_endpoint() {
            let version: String = endpoint.call("web3_clientVersion", json!([])).await?;
            let version = version.to_ascii_lowercase();
            if !["anvil/", "hardhatnetwork/"]
                .iter()
                .any(|prefix| version.starts_with(prefix))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
