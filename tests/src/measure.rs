//! Measures a request's calls to the database and the node.

use crate::World;
use purser_testkit::{Call, Units};

/// The cost of one request.
#[derive(Clone, Debug)]
pub struct RequestCost {
    /// The consumed database capacity.
    pub units: Units,
    /// The calls to the database and to the node, grouped by [`in_rounds`].
    pub rounds: Vec<Vec<Call>>,
}

impl RequestCost {
    /// Returns the names of the calls in each round, sorted within the round.
    pub fn sequence(&self) -> Vec<Vec<&str>> {
        let rounds = self.rounds.iter().map(|round| {
            let mut names: Vec<&str> = round.iter().map(|call| call.operation.as_str()).collect();
            names.sort_unstable();
            names
        });
        rounds.collect()
    }
}

/// Sends a request, and returns its cost including background calls. The world must be metered, and no other request
/// may run.
pub async fn measure<T>(world: &World, request: impl Future<Output = T>) -> (RequestCost, T) {
    let metered = "a metered world";
    let database = world.proxy.as_ref().expect(metered);
    let node = world.node_proxy.as_ref().expect(metered);
    world.stack.aggregate_history().await;
    database.calls().take();
    node.calls().take();
    let answer = request.await;
    // The node also answers a read that the caller has canceled.
    node.quiet().await;
    database.quiet().await;
    let mut seen = database.calls().take();
    let units = Units::sum(&seen);
    seen.extend(node.calls().take());
    (
        RequestCost {
            units,
            rounds: in_rounds(seen),
        },
        answer,
    )
}

/// Groups the calls into rounds. A call that was sent after all earlier calls had ended begins a new round.
pub fn in_rounds(mut calls: Vec<Call>) -> Vec<Vec<Call>> {
    calls.sort_by_key(|call| call.started);
    let mut rounds: Vec<Vec<Call>> = Vec::new();
    let mut round_ends = None;
    for call in calls {
        let ended = call.ended;
        match rounds.last_mut() {
            Some(round) if round_ends >= Some(call.started) => round.push(call),
            _ => rounds.push(vec![call]),
        }
        round_ends = round_ends.max(Some(ended));
    }
    rounds
}
