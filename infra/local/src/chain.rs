//! Controls the local chain by calls that only a development node supports.

use alloy::primitives::{Address, U256};
use alloy::sol;
use alloy::sol_types::SolCall as _;
use purser_domain::Network;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The network that the local chain simulates.
pub const NETWORK: Network = Network::BaseSepolia;

sol! {
    /// Anyone may call the test token's `mint`.
    function mint(address to, uint256 value);
}

/// The error of a call to the local chain.
#[derive(Debug, thiserror::Error)]
pub enum DevChainError {
    /// The node did not respond.
    #[error("the local chain does not answer: {0}")]
    Unreachable(#[from] reqwest::Error),
    /// The node returned an error.
    #[error("the local chain refused {method}: {error}")]
    Refused {
        /// The JSON-RPC method.
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
    /// Held while a transaction is sent, because the node gives concurrent transactions the same nonce.
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

    /// Waits up to ten seconds until the node responds.
    pub(crate) async fn ready(&self) -> Result<(), DevChainError> {
        for _ in 0..100 {
            if self.call("eth_chainId", json!([])).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.call("eth_chainId", json!([])).await.map(|_| ())
    }

    /// Advances the chain's clock, and mines a block with the new time.
    pub async fn advance(&self, seconds: u64) -> Result<(), DevChainError> {
        self.call("evm_increaseTime", json!([seconds])).await?;
        self.call("evm_mine", json!([])).await.map(|_| ())
    }

    /// Stops interval mining. From then on, only transactions and calls mine a block.
    pub async fn stand_still(&self) -> Result<(), DevChainError> {
        self.call("evm_setIntervalMining", json!([0])).await?;
        self.call("evm_setAutomine", json!([true])).await.map(|_| ())
    }

    /// Sets the time of the next block, in seconds since 1970. It must be later than that of the newest block.
    pub async fn next_block_at(&self, seconds: u64) -> Result<(), DevChainError> {
        self.call("evm_setNextBlockTimestamp", json!([seconds]))
            .await
            .map(|_| ())
    }

    /// Mines a block with this time, in seconds since 1970.
    pub async fn mine_at(&self, seconds: u64) -> Result<(), DevChainError> {
        self.next_block_at(seconds).await?;
        self.mine(1).await
    }

    /// Mines this number of blocks.
    pub async fn mine(&self, blocks: u64) -> Result<(), DevChainError> {
        self.call("anvil_mine", json!([blocks])).await.map(|_| ())
    }

    /// Takes a snapshot of the chain's state, to which the chain can be reverted once.
    pub async fn snapshot(&self) -> Result<Value, DevChainError> {
        self.call("evm_snapshot", json!([])).await
    }

    /// Removes all blocks after a snapshot, as a reorg does.
    pub async fn revert(&self, snapshot: &Value) -> Result<(), DevChainError> {
        self.call("evm_revert", json!([snapshot])).await.map(|_| ())
    }

    /// Mints `units` of the test token, in micro-USDC, to a wallet.
    pub async fn mint(&self, token: Address, wallet: Address, units: u64) -> Result<(), DevChainError> {
        let call = mintCall {
            to: wallet,
            value: U256::from(units),
        };
        self.send(token, call.abi_encode()).await.map(|_| ())
    }

    /// Sends a transaction from the node's first account, and waits until the transaction is mined. Returns the hash.
    pub async fn send(&self, to: Address, data: Vec<u8>) -> Result<String, DevChainError> {
        let accounts = self.call("eth_accounts", json!([])).await?;
        let data = alloy::hex::encode_prefixed(data);
        let transaction = json!({"from": accounts.get(0), "to": to.to_string(), "data": data, "gas": "0x1c9c380"});
        let hash = {
            let _turn = self.sending.lock().await;
            self.call("eth_sendTransaction", json!([transaction])).await?
        };
        // Mining takes milliseconds, or up to a second after `stand_still`.
        for _ in 0..200 {
            if !self.call("eth_getTransactionReceipt", json!([hash])).await?.is_null() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(hash.as_str().unwrap_or_default().to_owned())
    }
}
