//! The measured operations of an agent.

use crate::bare::RecordedCalls;
use crate::function::Function;
use crate::place::Place;
use crate::timing::Turn;
use alloy::primitives::keccak256;
use purser_tests::{TestAgent, dollars, fresh_key, judged_policy};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An operation: a request builder, and the recorded calls.
pub struct Operation {
    pub name: &'static str,
    /// The maximum ratio to the time of the bare calls; `None` if the operation has no limit.
    pub limit: Option<f64>,
    turn: Box<MakeTurn>,
}

/// Builds an agent's request and the bare calls for the same request.
type MakeTurn = dyn Fn(&Place, &TestAgent) -> Turn;

/// The maximum ratio to the time of the bare calls.
const LIMIT: f64 = 1.15;
/// The maximum ratio for a replay. A replay makes the fewest calls, so our code has a larger share of the time.
const REPLAY_LIMIT: f64 = 1.2;

impl Operation {
    fn new(name: &'static str, limit: Option<f64>, turn: impl Fn(&Place, &TestAgent) -> Turn + 'static) -> Self {
        let turn = Box::new(turn);
        Self { name, limit, turn }
    }

    pub fn turns(&self, place: &Place, agent: &TestAgent, count: usize) -> Vec<Turn> {
        (0..count).map(|_| (self.turn)(place, agent)).collect()
    }
}

/// Returns 64 random hexadecimal digits.
fn fresh_hash() -> String {
    format!("{}{}", fresh_key(), fresh_key()).replace('-', "")
}

/// Returns the recorded calls, rewritten for another agent.
fn of_agent(recorded: &RecordedCalls, first: &str, agent: &TestAgent, exchanged: &[(&str, &str)]) -> RecordedCalls {
    let id = agent.id.to_string();
    let mut exchanged = exchanged.to_vec();
    exchanged.push((first, &id));
    recorded.with(&exchanged)
}

/// Returns all operations except complete, which needs an authorized payment first.
pub async fn operations(place: &Place, function: &Function) -> Vec<Operation> {
    vec![
        allow(place, function).await,
        replay(place, function).await,
        block(place, function).await,
        escalate(place, function).await,
        check(place, function).await,
        receipt(place, function).await,
        list(place, function).await,
    ]
}

pub async fn allow(place: &Place, function: &Function) -> Operation {
    let event = place.authorize(&place.agents[0], &place.allowed_body());
    let (recorded, _) = place.record(function, &event, 200).await;
    let first = place.agents[0].id.to_string();
    let (settlement, key) = (recorded.sort_key("S#"), recorded.sort_key("I#"));
    Operation::new("authorize: allow", Some(LIMIT), move |place, agent| {
        let exchanged = [(settlement.as_str(), fresh_key()), (key.as_str(), fresh_hash())];
        let exchanged = exchanged.each_ref().map(|(from, to)| (*from, to.as_str()));
        Turn {
            event: place.authorize(agent, &place.allowed_body()),
            status: 200,
            floor: of_agent(&recorded, &first, agent, &exchanged)
                .bare()
                .and_sign(keccak256(fresh_key())),
        }
    })
}

pub async fn replay(place: &Place, function: &Function) -> Operation {
    let body = place.allowed_body();
    for agent in &place.agents {
        function.call(&place.authorize(agent, &body)).await.expect(200);
    }
    let (recorded, _) = place
        .record(function, &place.authorize(&place.agents[0], &body), 200)
        .await;
    let recorded = recorded.without_node();
    let first = place.agents[0].id.to_string();
    Operation::new("authorize: replay", Some(REPLAY_LIMIT), move |place, agent| Turn {
        event: place.authorize(agent, &body),
        status: 200,
        floor: of_agent(&recorded, &first, agent, &[])
            .bare()
            .and_sign(keccak256(fresh_key())),
    })
}

async fn block(place: &Place, function: &Function) -> Operation {
    let body = |place: &Place| purser_tests::body_of(place.world.offer(dollars(101)));
    let event = place.authorize(&place.agents[0], &body(place));
    let (recorded, _) = place.record(function, &event, 402).await;
    let recorded = recorded.without_node();
    let first = place.agents[0].id.to_string();
    let decision = recorded.sort_key("A#");
    Operation::new("authorize: block", Some(LIMIT), move |place, agent| Turn {
        event: place.authorize(agent, &body(place)),
        status: 402,
        floor: of_agent(&recorded, &first, agent, &[(&decision, &fresh_key())]).bare(),
    })
}

async fn escalate(place: &Place, function: &Function) -> Operation {
    /// An agent may have at most twenty open approvals, so the escalations use several agents.
    const ASKING: usize = 40;
    let mut asking = Vec::new();
    for _ in 0..ASKING {
        let agent = place.world.poor_agent(vec![]).await;
        place.world.enable(&agent, "lab-search", judged_policy()).await;
        asking.push(agent);
    }
    let asked = AtomicUsize::new(0);
    let body = |place: &Place| {
        let mut body = purser_tests::body_of(place.world.offer(dollars(30)));
        // An equal request would return the open approval.
        body["original_request"]["url"] = format!("https://provider.example/{}", fresh_key()).into();
        body
    };
    let event = place.authorize(&place.agents[0], &body(place));
    let (recorded, _) = place.record(function, &event, 402).await;
    let recorded = recorded.without_node();
    let first = place.agents[0].id.to_string();
    let (key, request_prefix, decision) = (
        recorded.sort_key("I#"),
        recorded.partition("AP#"),
        recorded.sort_key("A#"),
    );
    Operation::new("authorize: escalate", None, move |place, _| {
        let agent = &asking[asked.fetch_add(1, Ordering::Relaxed) % ASKING];
        let fresh_request_prefix = fresh_hash()[..request_prefix.len()].to_owned();
        let exchanged = [
            (key.as_str(), fresh_hash()),
            (request_prefix.as_str(), fresh_request_prefix),
            (decision.as_str(), fresh_key()),
        ];
        let exchanged = exchanged.each_ref().map(|(from, to)| (*from, to.as_str()));
        Turn {
            event: place.authorize(agent, &body(place)),
            status: 402,
            floor: of_agent(&recorded, &first, agent, &exchanged).bare(),
        }
    })
}

async fn check(place: &Place, function: &Function) -> Operation {
    let body = |place: &Place| {
        let mut body = place.allowed_body();
        let fields = body.as_object_mut().expect("an object");
        fields.remove("idempotency_key");
        fields.insert("replay_key".to_owned(), fresh_key().into());
        body
    };
    let event = place.post(&place.agents[0], "/x402/check", Some(&body(place)));
    let (recorded, _) = place.record(function, &event, 200).await;
    let first = place.agents[0].id.to_string();
    let row = recorded.partition("R#");
    let (_, key) = row.split_once('#').expect("the agent and the key");
    let key = key.to_owned();
    Operation::new("check", None, move |place, agent| Turn {
        event: place.post(agent, "/x402/check", Some(&body(place))),
        status: 200,
        floor: of_agent(&recorded, &first, agent, &[(&key, &fresh_hash())]).bare(),
    })
}

async fn receipt(place: &Place, function: &Function) -> Operation {
    let agent = &place.agents[0];
    let answered = function.call(&place.authorize(agent, &place.allowed_body())).await;
    let (_, allowed) = answered.read(200);
    let path = format!(
        "/x402/settlements/{}",
        allowed["settlement_id"].as_str().expect("an id")
    );
    let (recorded, _) = place.record(function, &place.get(agent, &path), 200).await;
    // Only the agent that paid can read the receipt.
    Operation::new("receipt", None, move |place, agent| Turn {
        event: place.get(agent, &path),
        status: 200,
        floor: recorded.bare(),
    })
}

async fn list(place: &Place, function: &Function) -> Operation {
    let agent = &place.agents[0];
    let event = place.get(agent, &agent.path("/settlements"));
    let (recorded, _) = place.record(function, &event, 200).await;
    let first = agent.id.to_string();
    Operation::new("list of 25 receipts", None, move |place, agent| Turn {
        event: place.get(agent, &agent.path("/settlements")),
        status: 200,
        floor: of_agent(&recorded, &first, agent, &[]).bare(),
    })
}

/// The operation complete. Each measured call needs a payment that was authorized and made beforehand.
pub struct Completing {
    recorded: RecordedCalls,
    agent: String,
    settlement: String,
    hash: String,
}

impl Completing {
    pub const NAME: &'static str = "complete";
    pub const LIMIT: f64 = LIMIT;

    pub async fn new(place: &Place, function: &Function) -> Self {
        let agent = &place.agents[0];
        let (settlement, hash) = authorized(place, function, agent).await;
        let (recorded, _) = place
            .record(function, &completion(place, agent, &settlement, &hash), 200)
            .await;
        Self {
            recorded,
            agent: agent.id.to_string(),
            settlement,
            hash,
        }
    }

    pub async fn turns(&self, place: &Place, function: &Function, agent: &TestAgent, count: usize) -> Vec<Turn> {
        let mut turns = Vec::with_capacity(count);
        for _ in 0..count {
            let (settlement, hash) = authorized(place, function, agent).await;
            let (of_floor, hash_of_floor) = authorized(place, function, agent).await;
            let exchanged = [
                (self.settlement.as_str(), of_floor.as_str()),
                (&self.hash, &hash_of_floor),
            ];
            turns.push(Turn {
                event: completion(place, agent, &settlement, &hash),
                status: 200,
                floor: of_agent(&self.recorded, &self.agent, agent, &exchanged).bare(),
            });
        }
        turns
    }
}

fn completion(place: &Place, agent: &TestAgent, settlement: &str, hash: &str) -> Vec<u8> {
    let proof: Value = json!({"payment_response_header": "e30=", "tx_hash": hash});
    place.post(agent, &format!("/x402/settlements/{settlement}/complete"), Some(&proof))
}

/// Authorizes and makes a payment. Returns the settlement's id and the transaction's hash.
async fn authorized(place: &Place, function: &Function, agent: &TestAgent) -> (String, String) {
    let event = place.authorize(agent, &place.allowed_body());
    let (_, allowed) = function.call(&event).await.read(200);
    let hash = place.node.carry_out(&allowed);
    let settlement = allowed["settlement_id"].as_str().expect("an id");
    (settlement.to_owned(), hash)
}
