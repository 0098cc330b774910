//! Connects this crate to the in-memory chain of `purser-testkit`, for tests.

use crate::{Authorization, Chain, ChainError, Exchange, Finality, HttpNode, Node, rpc::tests::http};
use futures_util::future::BoxFuture;
use purser_domain::{AUTHORIZATION_CANCELED, AUTHORIZATION_USED, Duration};
pub(crate) use purser_testkit::chain::*;
use purser_testkit::{Reply, ScriptedNode};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the authorization of a payment, made at the time of `authorized_block` and valid for a minute.
pub(crate) fn authorization(payment_number: u64, authorized_block: u64) -> Authorization {
    let authorized_at = time_of(authorized_block);
    Authorization {
        expected: payment(payment_number),
        authorized_at,
        valid_before: authorized_at.after(Duration::from_secs_u32(60)),
    }
}

/// Returns the number of blocks that an `eth_getLogs` call searches.
pub(crate) fn searched_block_count(params: &Value) -> u64 {
    match &params[0]["blockHash"] {
        Value::Null => number(&params[0]["toBlock"]) - number(&params[0]["fromBlock"]) + 1,
        _ => 1,
    }
}

/// Returns whether an `eth_getLogs` call searches for used authorizations instead of transfers.
pub(crate) fn is_authorization_log_search(params: &Value) -> bool {
    params[0]["topics"][0] == json!([AUTHORIZATION_USED, AUTHORIZATION_CANCELED])
}

/// Returns a response above the size limit.
pub(crate) fn oversized_rpc_response() -> Reply {
    Reply::Body(" ".repeat(16 * 1024 * 1024 + 1))
}

/// Returns all recorded calls except calls for the chain id.
pub(crate) fn recorded_calls(node: &ScriptedNode) -> Vec<(String, Value)> {
    let mut calls = node.calls();
    calls.retain(|(method, _)| method != "eth_chainId");
    calls
}

/// Returns a chain that is read through the node at this URL.
pub(crate) fn chain_for_node_url(url: &str) -> Chain {
    let node = HttpNode::new(http(), url, crate::NODE_TIMEOUT).unwrap();
    chain_for_node(Arc::new(node))
}

/// Returns a chain that is read without a network. The node responds to each call after `pause_before_response`.
pub(crate) fn chain_for_in_memory_node(
    chain: ScriptedChain,
    pause_before_response: impl Fn(&str) -> BoxFuture<'static, ()> + Send + Sync + 'static,
) -> Chain {
    let pause = Box::new(pause_before_response);
    chain_for_node(Arc::new(InMemory { chain, pause }))
}

fn chain_for_node(node: Arc<dyn Node>) -> Chain {
    let finality = Finality {
        confirmations: CONFIRMATIONS,
    };
    Chain::from_node(NETWORK, node, finality)
}

type Pause = dyn Fn(&str) -> BoxFuture<'static, ()> + Send + Sync;

struct InMemory {
    chain: ScriptedChain,
    pause: Box<Pause>,
}

impl Node for InMemory {
    fn send_rpc_request<'a>(&'a self, method: &'static str, request: &'a Value) -> Exchange<'a> {
        Box::pin(async move {
            (self.pause)(method).await;
            let result = self.chain.answer(method, &request["params"]);
            let reply = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
            Ok::<_, ChainError>(reply.to_string().into())
        })
    }
}
