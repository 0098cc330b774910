//! A node between reconcile and the chain, which can be down, behind, or wrong; and a reconcile function that uses it.

use purser_api::Boot;
use purser_local::Reconcile;
use purser_testkit::{Fate, Moment, Proxy};
use purser_tests::{World, node_front};
use serde_json::{Value, json};

/// The node's behaviour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// It passes everything on.
    Honest,
    /// It answers 503.
    Down,
    /// It has not seen the newest so many blocks.
    Behind(u64),
    /// It serves another chain.
    Elsewhere,
    /// It answers contract calls with nonsense.
    Nonsense,
    /// Its receipts have other amounts than the chain's.
    Forging,
}

/// A running node.
pub struct Node(Proxy);

impl Node {
    /// A node in front of the world's chain, and a reconcile function configured as the stack's, except that it uses
    /// this node.
    pub async fn between(world: &World) -> (Self, Reconcile) {
        let [node, secrets] = node_front(world).await;
        let mut environment = world.stack.environment.clone();
        environment.insert("SECRETS_ENDPOINT".to_owned(), secrets.url);
        // As the stack's own signs (`infra/local/src/iam_recorder.rs`).
        environment.insert("AWS_ACCESS_KEY_ID".to_owned(), "ReconcileFunction".to_owned());
        let boot = Boot::new(environment.into_iter().collect(), world.stack.clock.clone());
        (Self(node), Reconcile::boot(boot).await.unwrap())
    }

    pub fn set(&self, manner: Manner) {
        self.0.follow(move |step| match (manner, step.moment, step.call) {
            (Manner::Down, Moment::Arrived, _) => Fate::Answer(503, Value::from("")),
            (Manner::Behind(blocks), Moment::CarriedOut, "eth_blockNumber") => Fate::Edit(Box::new(move |answer| {
                let text = answer["result"].as_str().unwrap().trim_start_matches("0x");
                let head = u64::from_str_radix(text, 16).unwrap();
                answer["result"] = json!(format!("{:#x}", head - blocks));
            })),
            (Manner::Elsewhere, Moment::CarriedOut, "eth_chainId") => Fate::result(json!("0x2105")),
            (Manner::Nonsense, Moment::CarriedOut, "eth_call") => Fate::result(json!("0x")),
            (Manner::Forging, Moment::CarriedOut, "eth_getTransactionReceipt") => Fate::Edit(Box::new(|answer| {
                for log in answer["result"]["logs"].as_array_mut().unwrap() {
                    log["data"] = json!(format!("0x{:064x}", 1));
                }
            })),
            _ => Fate::PassOn,
        });
    }
}
