//! Kills reconcile at each step of its outflow search: each outflow is reported once.

use super::{policy, process};
use purser_testkit::Moment;
use purser_tests::{Process, World, body_of, dollars};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A step: the name of a call, its number among the calls of this name, and the moment.
type IndexKey = (String, u32, Moment);

/// Runs reconcile, or kills it at a step. Returns the reached steps.
async fn run(reconcile: &Process, kill_at: Option<&IndexKey>) -> Vec<IndexKey> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (places, kill_at) = (Arc::clone(&seen), kill_at.cloned());
    let mut calls: BTreeMap<(String, Moment), u32> = BTreeMap::new();
    reconcile.quiet().await;
    reconcile.kill_where(move |call, moment| {
        let times = calls.entry((call.to_owned(), moment)).or_default();
        *times += 1;
        let place = (call.to_owned(), *times, moment);
        let here = kill_at.as_ref() == Some(&place);
        places.lock().unwrap().push(place);
        here
    });
    if let Some(run) = reconcile.invoke(json!({"detail-type": "Scheduled Event"})).await {
        assert_eq!(run, Ok(Value::Null), "a run that did what it could");
    }
    reconcile.spare();
    seen.lock().unwrap().clone()
}

/// Returns the number of reported outflows, and the last searched block.
async fn told(world: &World) -> (usize, u64) {
    let rows = world.scan("AuditTable").await;
    let found = rows.iter().filter(|row| row["pk"].as_s().unwrap() == "OUTFLOWS");
    let places = world.scan("LedgerTable").await;
    let place = places.iter().find(|row| row["sk"].as_s().unwrap() == "OUTFLOWS#0#1");
    let place = place.map_or(0, |row| row["blk"].as_n().unwrap().parse().unwrap());
    (found.count(), place)
}

#[tokio::test(flavor = "multi_thread")]
async fn outflows_are_reported_once_despite_kills() {
    let world = World::still().await;
    world.stack.chain.stand_still().await.unwrap();
    let agent = world.agent(policy(dollars(1_000)), vec![]).await;
    let reconcile = process(&world, "reconcile", &[("WATCH_CONFIRMATIONS", "1")]).await;
    run(&reconcile, None).await;
    // The wallet also has an authorized payment, which is no outflow.
    let happen = async || {
        let paid = world.authorize(&agent, &body_of(world.offer(1_000))).await.ok();
        world.settle(&paid).await;
        crate::outflows::steal(&world, &agent.wallet, 7).await;
    };
    happen().await;
    let places = run(&reconcile, None).await;
    let (mut thefts, mut before) = told(&world).await;
    assert_eq!(thefts, 1);
    for step in ["eth_getLogs", "TransactWriteItems", "PutItem LedgerTable"] {
        assert!(
            places.iter().any(|(call, ..)| call.starts_with(step)),
            "{step}: {places:?}"
        );
    }
    // The first five calls of the search read the progress and the wallets.
    let search = places
        .iter()
        .position(|(call, ..)| call.starts_with("eth_getLogs"))
        .unwrap();
    let places = &places[search.saturating_sub(15)..];
    for place in places {
        happen().await;
        thefts += 1;
        reconcile.stop().await;
        run(&reconcile, Some(place)).await;
        let (found, killed_at) = told(&world).await;
        assert!(
            found == thefts || killed_at == before,
            "passed over, killed at {place:?}"
        );
        run(&reconcile, None).await;
        let (found, after) = told(&world).await;
        assert_eq!(found, thefts, "killed at {place:?}");
        assert!(after > before, "killed at {place:?}");
        before = after;
    }
    let kills = reconcile.killer().kills();
    assert!(
        usize::try_from(kills).unwrap() > places.len() / 2,
        "{kills} kills at {} places",
        places.len()
    );
}
