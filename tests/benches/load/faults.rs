//! Injects the faults of each phase.

use crate::phase::{Phase, Plan};
use crate::place::{OWNERS, Place};
use purser_testkit::{Fate, Moment, Rng};
use reqwest::Method;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// One call out of this number kills the called process.
const KILLS: u64 = 1_000;
/// One database call out of this number is throttled, one is rejected, and one loses its response.
const DATABASE: u64 = 300;
/// The time between two policy updates, and between two key rotations.
const EDITS: Duration = Duration::from_millis(50);
const ROTATIONS: Duration = Duration::from_millis(500);

/// Injects the faults of each phase until the run ends.
pub async fn follow(place: Arc<Place>, plan: Plan) {
    for (phase, length) in plan.phases() {
        println!("load     {phase:?} for {} s", length.as_secs());
        let until = Instant::now() + length;
        for (index, process) in place.environments.iter().enumerate() {
            process.spare();
            let seed = u64::try_from(index).expect("few") + 1;
            if phase.kills() {
                let mut rng = Rng::from_seed(seed);
                process.kill_where(move |_, _| rng.below(KILLS) == 0);
            }
            if phase.disturbs_the_database() {
                let mut rng = Rng::from_seed(seed << 8);
                let killer = process.killer();
                process.db.follow(move |step| match (step.moment, rng.below(DATABASE)) {
                    (Moment::Arrived, 0) if step.call.starts_with("Transact") => {
                        Fate::throttled_transaction(step.request, "ThrottlingError")
                    }
                    (Moment::Arrived, 0) => Fate::throttled("ProvisionedThroughputExceededException"),
                    (Moment::Arrived, 1) | (Moment::CarriedOut, 0) => Fate::server_error(),
                    (Moment::CarriedOut, 1) => Fate::HangUp,
                    (_, 2) if phase.kills() => {
                        killer.kill();
                        Fate::Silence
                    }
                    _ => Fate::PassOn,
                });
            }
        }
        place
            .node
            .set_limit(if phase == Phase::NodeDown { 0 } else { u32::MAX });
        if phase.edits() {
            tokio::join!(edit(&place, until), rotate(&place, until));
        }
        tokio::time::sleep_until(until).await;
    }
}

/// Updates the limits of the agents without a cap, always to more than the agents spend.
async fn edit(place: &Place, until: Instant) {
    let mut rng = Rng::from_seed(7);
    let unlimited: Vec<_> = place.payers.iter().filter(|payer| payer.cap.is_none()).collect();
    while Instant::now() < until {
        let payer = unlimited[usize::try_from(rng.below(1_000)).expect("few") % unlimited.len()];
        let person = place.world.person(OWNERS[payer.owner]);
        let limit = json!({"max_per_day_units": 1_000_000_000_000_u64 + rng.below(1_000)});
        let path = payer.agent.path("/services/lab-search");
        place
            .world
            .person_edits(&person, Method::PATCH, &path, &limit)
            .await
            .ok();
        sleep(EDITS).await;
    }
}

/// Rotates the API keys of agents. The old key becomes invalid at once.
async fn rotate(place: &Place, until: Instant) {
    let mut rng = Rng::from_seed(11);
    while Instant::now() < until {
        let payer = &place.payers[usize::try_from(rng.below(1_000)).expect("few") % place.payers.len()];
        let person = place.world.person(OWNERS[payer.owner]);
        let old = payer.key();
        let id = purser_tests::key_id_of(&old);
        let path = payer.agent.path(&format!("/keys/{id}/rotate"));
        let made = place
            .world
            .person_edits(&person, Method::POST, &path, &json!({"overlap_seconds": 0}))
            .await;
        let key = made.created()["key"].as_str().expect("a key").to_owned();
        *payer.key.write().expect("not poisoned") = key;
        sleep(ROTATIONS).await;
    }
}
