//! What one request costs the database, as the proxy in front of it saw.

use crate::{Answer, World};
use purser_proxy::{Call, Units};

/// What one request cost.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which request.
    pub name: &'static str,
    /// Capacity, in tenths of a unit.
    pub units: Units,
    /// Calls of the database.
    pub calls: usize,
    /// Round trips one after another: calls that run side by side are one.
    pub rounds: usize,
}

/// Sends a request and tells what it cost. The world has to have a proxy, and nothing else may be going on.
pub async fn measure(world: &World, name: &'static str, request: impl Future<Output = Answer>) -> (Measured, Answer) {
    let calls = world.proxy.as_ref().expect("a proxied world").calls();
    calls.take();
    let answer = request.await;
    let mut seen = calls.take();
    seen.sort_by_key(|call| call.started);
    (
        Measured {
            name,
            units: Units::of(&seen),
            calls: seen.len(),
            rounds: rounds(&seen),
        },
        answer,
    )
}

/// How many calls had to wait for one another: a new round begins with a call that was sent after all earlier ones had
/// been answered.
fn rounds(calls: &[Call]) -> usize {
    let mut rounds = 0;
    let mut round_ends = None;
    for call in calls {
        if round_ends.is_none_or(|ends| call.started > ends) {
            rounds += 1;
        }
        round_ends = round_ends.max(Some(call.ended));
    }
    rounds
}
