//! What one request costs the database and the node, as the proxies in front of them saw.

use crate::World;
use purser_testkit::{Call, Units};

/// What one request cost.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Capacity, in tenths of a unit.
    pub units: Units,
    /// The calls of the database and of the node, as [`in_rounds`] has them.
    pub rounds: Vec<Vec<Call>>,
}

impl Measured {
    /// The names of the calls, in rounds: within one, in the order of the alphabet, since they are made side by side.
    pub fn sequence(&self) -> Vec<Vec<&str>> {
        let rounds = self.rounds.iter().map(|round| {
            let mut names: Vec<&str> = round.iter().map(|call| call.operation.as_str()).collect();
            names.sort_unstable();
            names
        });
        rounds.collect()
    }
}

/// Sends a request and tells what it cost, also what nobody waited for. The world has to be a metered one, and nothing
/// else may be going on.
pub async fn measure<T>(world: &World, request: impl Future<Output = T>) -> (Measured, T) {
    let metered = "a metered world";
    let database = world.proxy.as_ref().expect(metered);
    let node = world.node_proxy.as_ref().expect(metered);
    database.calls().take();
    node.calls().take();
    let answer = request.await;
    // A balance that turned out not to be needed is given up by whoever asked, and is answered all the same.
    node.quiet().await;
    database.quiet().await;
    let mut seen = database.calls().take();
    let units = Units::of(&seen);
    seen.extend(node.calls().take());
    (
        Measured {
            units,
            rounds: in_rounds(seen),
        },
        answer,
    )
}

/// The calls by who had to wait for whom: a new round begins with a call that was sent after all earlier ones had been
/// answered, so calls that run side by side are one round.
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
