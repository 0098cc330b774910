//! Tests backtests, which evaluate proposed limits over the decisions of many agents in the background.

use super::{Household, LEE};
use purser_local::{Options, Streaming};
use purser_tests::{World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_backtest_runs_over_all_agents_and_its_result_is_stored() {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    let home = Household::in_world(World::still_with(options).await).await;
    let world = &home.world;
    let other = world.agent_of(&home.kim, "another").await;
    for agent in [&home.agent, &other] {
        for amount in [4, 3] {
            world.pass(60);
            world
                .authorize(agent, &body_of(world.offer(dollars(amount))))
                .await
                .ok();
        }
    }
    assert_eq!(world.stack.publish_changes().await, 0);
    assert_eq!(world.stack.aggregate_history().await, 0);
    let post = async |path: &str, body: &Value| world.person_edits(&home.kim, Method::POST, path, body).await;
    let body = json!({
        "agents": {"kind": "all"},
        "policies": [{"service_id": "lab-search", "max_per_day_units": dollars(5)}],
    });

    let estimate = post("/backtests?estimate=true", &body).await.ok();
    assert_eq!(
        (&estimate["agents"], &estimate["estimated_decisions"]),
        (&json!(2), &json!(4))
    );
    assert!(estimate["estimated_read_units"].as_u64().unwrap() > 0);
    assert_eq!(world.person_gets(&home.kim, "/backtests").await.ok()["count"], 0);

    world.pass(1);
    let started = post("/backtests", &body).await;
    assert_eq!((started.status, &started.body["status"]), (202, &json!("running")));
    let path = format!("/backtests/{}", started.body["backtest_id"].as_str().unwrap());
    let read = async || world.person_gets(&home.kim, &path).await.ok();
    assert_eq!(read().await["agents_done"], 0);
    let log = world.person_gets(&home.kim, "/audit-log?kind=backtest_started").await;
    let [entry] = log.ok()["entries"].as_array().unwrap().clone().try_into().unwrap();
    assert_eq!(entry["object_id"], started.body["backtest_id"]);
    assert_eq!(entry["after"]["from"], started.body["from"]);
    let named = entry["after"]["agents/1"].as_array().unwrap();
    assert_eq!(named.len(), 2, "{entry}");
    for _ in 0..2 {
        world.stack.events.run_backtests(MINUTE).await.unwrap();
        let done = read().await;
        let seen = [
            "status",
            "agents",
            "agents_done",
            "agents_left_out",
            "decisions",
            "untested",
        ]
        .map(|name| &done[name]);
        let expected = [json!("done"), json!(2), json!(2), json!(0), json!(4), json!(0)];
        assert_eq!(seen, expected.each_ref(), "{done}");
        assert_eq!(done["authorized_units"], dollars(14));
        let flips = &done["if_declined"]["flips"];
        assert_eq!(
            (&flips[0]["count"], &flips[0]["amount_units"]),
            (&json!(2), &json!(dollars(6))),
            "{done}"
        );
        assert_eq!(done["if_declined"]["saved_units"], dollars(6));
    }
    assert_eq!(
        world.person_gets(&home.kim, "/backtests").await.ok()["backtests"][0],
        read().await
    );

    let same = json!({"agents": {"kind": "ids", "ids": [home.agent.id.to_string()]}, "rules": [], "frozen": false});
    let same = post("/backtests", &same).await.body;
    world.stack.events.run_backtests(MINUTE).await.unwrap();
    let path = format!("/backtests/{}", same["backtest_id"].as_str().unwrap());
    let same = world.person_gets(&home.kim, &path).await.ok();
    assert_eq!(
        (&same["decisions"], &same["if_declined"]["flips"]),
        (&json!(2), &json!([]))
    );
    let lee = world.person(&LEE);
    let theirs = json!({"agents": {"kind": "ids", "ids": [other.id.to_string()]}});
    let refused = world.person_edits(&lee, Method::POST, "/backtests", &theirs).await;
    refused.refused(404, "not_found");
    world.person_gets(&lee, &path).await.refused(404, "not_found");
    let unknown = json!({"agents": {"kind": "all"}, "policies": [{"service_id": "nowhere"}]});
    post("/backtests", &unknown).await.refused(404, "service_not_found");
    let nobody = post(
        "/backtests",
        &json!({"agents": {"kind": "label", "label": "team=nobody"}}),
    )
    .await;
    assert_eq!((nobody.status, &nobody.body["status"]), (202, &json!("done")));
    for wrong in [
        json!({"agents": {"kind": "all"}, "days": 32}),
        json!({"agents": {"kind": "ids", "ids": []}}),
        json!({"agents": {"kind": "all"}, "rules": [{"kind": "vendor_allowlist", "services": ["nowhere"]}]}),
    ] {
        let refused = post("/backtests", &wrong).await;
        assert_eq!((refused.status, refused.slug()), (400, "invalid_request"), "{wrong}");
    }
}

/// After an ownership transfer, previews and backtests ignore the previous owner's decisions.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_cannot_backtest_a_previous_owners_decisions() {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    let home = Household::in_world(World::with(options).await).await;
    let (world, lee) = (&home.world, home.world.person(&LEE));
    let pays = async |amount| {
        let body = body_of(world.offer(dollars(amount)));
        world.authorize(&home.agent, &body).await.ok()
    };
    pays(4).await;
    pays(3).await;
    assert_eq!(world.stack.publish_changes().await, 0);
    home.hand_over_to(&lee).await;
    let accepted = world.now().secs();

    let budget = json!({"kind": "budget_limit", "limit_units": dollars(1), "window_seconds": 7 * 86_400});
    let preview = async || {
        let path = home.agent.path("/rules?preview=true");
        world.person_edits(&lee, Method::POST, &path, &budget).await.ok()
    };
    let test = async || {
        let body = json!({"agents": {"kind": "all"}, "rules": [budget]});
        let started = world.person_edits(&lee, Method::POST, "/backtests", &body).await.body;
        world.stack.events.run_backtests(MINUTE).await.unwrap();
        let path = format!("/backtests/{}", started["backtest_id"].as_str().unwrap());
        let done = world.person_gets(&lee, &path).await.ok();
        assert_eq!((&done["status"], &done["agents_left_out"]), (&json!("done"), &json!(0)));
        done
    };
    let flips = |result: &Value| {
        let sums = ["decisions", "untested", "authorized_units"].map(|name| result[name].as_u64().unwrap());
        let flips = result["if_declined"]["flips"].as_array().unwrap().iter();
        let flips = flips.map(|flip| (flip["count"].clone(), flip["example"]["transaction_id"].clone()));
        (sums, flips.collect::<Vec<_>>())
    };
    for result in [preview().await, test().await] {
        assert_eq!(flips(&result), ([0, 0, 0], vec![]), "{result}");
    }
    assert_eq!(world.stack.publish_changes().await, 0);
    // Acceptances are stored in whole seconds.
    while world.now().secs() <= accepted {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The first payment fits into the budget only if earlier payments don't count.
    pays(1).await;
    let own = pays(2).await["transaction_id"].clone();
    assert_eq!(world.stack.publish_changes().await, 0);
    for result in [preview().await, test().await] {
        assert_eq!(
            flips(&result),
            ([2, 0, dollars(3)], vec![(json!(1), own.clone())]),
            "{result}"
        );
    }
}
