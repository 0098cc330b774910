//! Controls the local chain with calls that only a development node supports.

use alloy::primitives::{Address, U256};
use alloy::sol;
use alloy::sol_types::SolCall as _;
use purser_domain::Network;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The network that the local chain imitates.
pub const NETWORK: Network = Network::BaseSepolia;

sol! {
    /// The test token's `mint`, which anyone may call.
    function mint(address to, uint256 value);
}

/// A failed call of the local chain.
#[derive(Debug, thiserror::Error)]
pub enum DevChainError {
    /// The node did not respond.
    #[error("the local chain does not answer: {0}")]
    Unreachable(#[from] reqwest::Error),
    /// The node returned an error.
    #[error("the local chain refused {method}: {error}")]
    Refused {
        /// The called method.
        method: &'static str,
        /// The JSON-RPC error.
        error: Value,
    },
}

/// A client for Anvil's JSON-RPC interface.
#[derive(Clone, Debug)]
pub struct DevChain {
    client: reqwest::Client,
    rpc_url: String,
    /// Held while a transaction is sent, because the node gives concurrent transactions from one account the same
    /// nonce.
    sending: Arc<Mutex<()>>,
}

impl DevChain {
    /// Creates a client for the node at this URL.
    pub fn new(rpc_url: String) -> Self {
        Self {
            client: reqwest::Client::new(),
            rpc_url,
            sending: Arc::default(),
        }
    }

    /// Makes a JSON-RPC call.
    pub async fn call(&self, method: &'static str, params: Value) -> Result<Value, DevChainError> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let reply: Value = self
            .client
            .post(&self.rpc_url)
            .json(&request)
            .send()
            .await?
            .json()
            .await?;
        match reply.get("error") {
            Some(error) => Err(DevChainError::Refused {
                method,
                error: error.clone(),
            }),
            None => Ok(reply.get("result").cloned().unwrap_or(Value::Null)),
        }
    }

    /// Waits until the node responds, for at most ten seconds.
    pub(crate) async fn ready(&self) -> Result<(), DevChainError> {
        for _ in 0..100 {
            if self.call("eth_chainId", json!([])).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.call("eth_chainId", json!([])).await.map(|_| ())
    }

    /// Moves the chain's clock and mines a block with the new time.
    pub async fn advance(&self, seconds: u64) -> Result<(), DevChainError> {
        self.call("evm_increaseTime", json!([seconds])).await?;
        self.call("evm_mine", json!([])).await.map(|_| ())
    }

    /// Stops interval mining. After that, only transactions and calls mine a block.
    pub async fn stand_still(&self) -> Result<(), DevChainError> {
        self.call("evm_setIntervalMining", json!([0])).await?;
        self.call("evm_setAutomine", json!([true])).await.map(|_| ())
    }

    /// Sets the time of the next block, in seconds; it must be later than the newest block's.
    pub async fn next_block_at(&self, seconds: u64) -> Result<(), DevChainError> {
        self.call("evm_setNextBlockTimestamp", json!([seconds]))
            .await
            .map(|_| ())
    }

    /// Mines a block with this timestamp, in seconds.
    pub async fn mine_at(&self, seconds: u64) -> Result<(), DevChainError> {
        self.next_block_at(seconds).await?;
        self.mine(1).await
    }

    /// Mines `blocks` blocks.
    pub async fn mine(&self, blocks: u64) -> Result<(), DevChainError> {
        self.call("anvil_mine", json!([blocks])).await.map(|_| ())
    }

    /// Takes a snapshot of the chain's state. A snapshot can be reverted to once.
    pub async fn snapshot(&self) -> Result<Value, DevChainError> {
        self.call("evm_snapshot", json!([])).await
    }

    /// Reverts the chain to a snapshot, as in a reorganization: later blocks are removed.
    pub async fn revert(&self, snapshot: &Value) -> Result<(), DevChainError> {
        self.call("evm_revert", json!([snapshot])).await.map(|_| ())
    }

    /// Mints `units` of the test token to a wallet.
    pub async fn mint(&self, token: Address, wallet: Address, units: u64) -> Result<(), DevChainError> {
        let call = mintCall {
            to: wallet,
            value: U256::from(units),
        };
        self.send(token, call.abi_encode()).await.map(|_| ())
    }

    /// Sends a transaction from the node's first account, which is unlocked, and waits until the transaction is mined.
    /// Returns the transaction's hash.
    pub async fn send(&self, to: Address, data: Vec<u8>) -> Result<String, DevChainError> {
        let accounts = self.call("eth_accounts", json!([])).await?;
        let data = alloy::hex::encode_prefixed(data);
        let transaction = json!({"from": accounts.get(0), "to": to.to_string(), "data": data, "gas": "0x1c9c380"});
        let hash = {
            let _turn = self.sending.lock().await;
            self.call("eth_sendTransaction", json!([transaction])).await?
        };
        // The node mines in the background. Mining takes milliseconds, or up to a second in a test that stopped mining.
        for _ in 0..200 {
            if !self.call("eth_getTransactionReceipt", json!([hash])).await?.is_null() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(hash.as_str().unwrap_or_default().to_owned())
    }
}
