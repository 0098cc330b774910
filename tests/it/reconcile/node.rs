//! A node between reconcile and the chain that can be down, behind or wrong.

use purser_api::Boot;
use purser_domain::TRANSFER;
use purser_local::Reconcile;
use purser_testkit::{Fate, Moment, Proxy};
use purser_tests::{World, node_fronts};
use serde_json::{Value, json};

/// What the node does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// The node forwards everything unchanged.
    Honest,
    /// The node responds with 503.
    Down,
    /// The node does not have this number of the newest blocks.
    Behind(u64),
    /// The node serves another chain.
    Elsewhere,
    /// The node returns a wrong result to contract calls.
    Nonsense,
    /// The node has no state of the contracts at any block.
    Forgetful,
    /// The node responds to this number of calls and rejects further calls.
    Scarce(u32),
    /// The node has no logs.
    Logless,
    /// The node's logs have wrong amounts.
    Forging,
    /// The node reports every nonce as used (`true`) or as unused.
    Claiming { used: bool },
    /// The blocks from `first` to `last` have more transfers than a log query returns, and with `receipts` also more
    /// than a receipt returns.
    Flooded { first: u64, last: u64, receipts: bool },
}

/// A running node.
pub struct Node(Proxy);

impl Node {
    /// Starts a node in front of the world's chain, and a reconcile function that uses the node.
    pub async fn between(world: &World) -> (Self, Reconcile) {
        let ([node], reconcile) = Self::endpoints(world).await;
        (node, reconcile)
    }

    /// Starts several nodes, and a reconcile function with these endpoints.
    pub async fn endpoints<const N: usize>(world: &World) -> ([Self; N], Reconcile) {
        let (nodes, secrets) = node_fronts(world).await;
        let mut environment = world.stack.environment.clone();
        environment.insert("SECRETS_ENDPOINT".to_owned(), secrets.url);
        // The recorder identifies the function by its access key id (`infra/local/src/iam_recorder.rs`).
        environment.insert("AWS_ACCESS_KEY_ID".to_owned(), "ReconcileFunction".to_owned());
        let boot = Boot::new(environment.into_iter().collect(), world.stack.clock.clone());
        (nodes.map(Self), Reconcile::boot(boot).await.unwrap())
    }

    pub fn set(&self, manner: Manner) {
        let mut asked = 0;
        self.0.follow(move |step| match (manner, step.moment, step.call) {
            (Manner::Scarce(calls), Moment::Arrived, _) => {
                asked += 1;
                if asked <= calls {
                    Fate::PassOn
                } else {
                    Fate::Answer(429, Value::from(""))
                }
            }
            (Manner::Forgetful, Moment::CarriedOut, "eth_call") if of_contract(step.request) => {
                Fate::Edit(Box::new(|answer| {
                    let error = json!({"code": -32_000, "message": "missing trie node"});
                    *answer = json!({"jsonrpc": "2.0", "id": answer["id"], "error": error});
                }))
            }
            (Manner::Down, Moment::Arrived, _) => Fate::Answer(503, Value::from("")),
            (Manner::Behind(blocks), Moment::CarriedOut, "eth_blockNumber") => Fate::Edit(Box::new(move |answer| {
                let text = answer["result"].as_str().unwrap().trim_start_matches("0x");
                let head = u64::from_str_radix(text, 16).unwrap();
                answer["result"] = json!(format!("{:#x}", head - blocks));
            })),
            (Manner::Elsewhere, Moment::CarriedOut, "eth_chainId") => Fate::result(json!("0x2105")),
            (Manner::Nonsense, Moment::CarriedOut, "eth_call") if of_contract(step.request) => {
                Fate::result(json!("0x"))
            }
            (Manner::Logless, Moment::CarriedOut, "eth_getLogs") => Fate::result(json!([])),
            (Manner::Forging, Moment::CarriedOut, "eth_getLogs") => Fate::Edit(Box::new(|answer| {
                for log in answer["result"].as_array_mut().unwrap() {
                    log["data"] = json!(format!("0x{:064x}", 1));
                }
            })),
            (Manner::Claiming { used }, Moment::CarriedOut, "eth_call") => {
                Fate::Edit(Box::new(move |answer| claim(answer, used)))
            }
            (Manner::Flooded { first, last, .. }, Moment::CarriedOut, "eth_getLogs") => {
                Fate::Edit(Box::new(move |answer| {
                    let transfer = json!(TRANSFER);
                    let is_flooded = |log: &Value| log["topics"][0] == transfer && is_within(log, first, last);
                    let logs = answer["result"].as_array();
                    if logs.is_some_and(|logs| logs.iter().any(is_flooded)) {
                        refuse(answer, "query returned more than 10000 results");
                    }
                }))
            }
            (
                Manner::Flooded {
                    first,
                    last,
                    receipts: true,
                },
                Moment::CarriedOut,
                "eth_getTransactionReceipt",
            ) => Fate::Edit(Box::new(move |answer| {
                if is_within(&answer["result"], first, last) {
                    refuse(answer, "response too large");
                }
            })),
            _ => Fate::PassOn,
        });
    }
}

/// Returns whether a log or receipt is in one of these blocks.
fn is_within(found: &Value, first: u64, last: u64) -> bool {
    let text = found["blockNumber"]
        .as_str()
        .unwrap_or_default()
        .trim_start_matches("0x");
    u64::from_str_radix(text, 16).is_ok_and(|number| (first..=last).contains(&number))
}

fn refuse(answer: &mut Value, message: &str) {
    let error = json!({"code": -32_005, "message": message});
    *answer = json!({"jsonrpc": "2.0", "id": answer["id"], "error": error});
}

/// Returns whether an `eth_call` calls a contract instead of code that is not deployed.
fn of_contract(request: &Value) -> bool {
    request["params"][0].get("to").is_some()
}

/// Replaces the result of a contract call, or of each call inside a multicall.
fn claim(answer: &mut Value, used: bool) {
    let words = |numbers: &[u8]| -> String { numbers.iter().map(|number| format!("{number:064x}")).collect() };
    let (was, is) = (u8::from(!used), u8::from(used));
    let result = answer["result"].as_str().unwrap();
    answer["result"] = if result == format!("0x{}", words(&[was])) {
        json!(format!("0x{}", words(&[is])))
    } else {
        // The text is the ABI encoding of bytes: offset (0x40), length (0x20), and the bytes.
        json!(result.replace(&words(&[0x40, 0x20, was]), &words(&[0x40, 0x20, is])))
    };
}
