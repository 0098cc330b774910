//! Tests automatic freezes: unusual spending disables a service and then freezes an agent, and the owner is notified.

use super::{Household, KIM};
use purser_local::{Options, Streaming};
use purser_tests::{World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};

/// The agent spends in minutes at one service what it usually spends in days, without reaching a cap.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_a_hundred_times_the_usual_spending_disables_the_service() {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    let mut home = Household::in_world(World::still_with(options).await).await;
    let brake = json!({"kind": "anomaly_brake", "times": 10, "at_least_units": dollars(5)});
    home.edit(Method::POST, "/rules", brake.clone()).await.created();
    let second = home.edit(Method::POST, "/rules", brake).await;
    let second = second.refused(400, "invalid_request");
    assert_eq!(second["details"][0]["path"], "/kind", "{second}");
    let hook = json!({"url": "https://hooks.example.invalid/", "kinds": ["purser.policy.changed.v1"]});
    let hook = home
        .world
        .person_edits(&home.kim, Method::POST, "/webhooks", &hook)
        .await
        .created();
    let pays = async |home: &Household, units| {
        home.world.pass(1);
        let answer = home
            .world
            .authorize(&home.agent, &body_of(home.world.offer(units)))
            .await;
        assert_eq!(home.world.stack.publish_changes().await, 0);
        answer
    };
    for _ in 0..3 {
        pays(&home, dollars(1) / 20).await.ok();
        home.world.pass(86_400);
    }
    for _ in 0..5 {
        pays(&home, dollars(1)).await.ok();
    }
    pays(&home, dollars(1)).await.refused(403, "service_not_enabled");

    home.kim = home.world.person(&KIM);
    let (world, kim) = (&home.world, &home.kim);
    let path = format!("/webhooks/{}", hook["webhook_id"].as_str().unwrap());
    let is_disabled = |delivery: &Value| delivery["kind"] == "purser.policy.changed.v1";
    world.delivery_where(kim, &path, is_disabled).await;
    let log = world.person_gets(kim, "/audit-log?kind=service_disabled").await.ok();
    assert_eq!(log["count"], 1, "{log}");
    let row = &log["entries"][0];
    assert_eq!(
        (&row["person_id"], &row["operator"]),
        (&Value::Null, &Value::Null),
        "{row}"
    );
    assert_eq!(row["after"], json!({"enabled": false}), "{row}");
    let reason = row["edit_reason"].as_str().unwrap();
    assert!(
        reason.starts_with("anomaly brake: $5.00 within an hour on ") && reason.contains("at most $0.05 an hour"),
        "{reason}"
    );

    // Enabling the service needs a recent sign-in, and then the rule freezes the agent at the same amount.
    home.set_policy(json!({"enabled": true})).await;
    for _ in 0..4 {
        pays(&home, dollars(1)).await.ok();
    }
    assert_eq!(home.read("").await["status"], "active");
    pays(&home, dollars(1)).await.ok();
    let refused = pays(&home, dollars(1)).await.refused(403, "policy_blocked");
    assert_eq!(refused["decision"]["reason"], "agent_frozen");
    let log = "/audit-log?kind=agent_frozen";
    let log = home.world.person_gets(&home.kim, log).await.ok();
    assert_eq!(log["count"], 1, "{log}");
    assert_eq!(home.read("/services/lab-search").await["enabled"], true);

    // After the unfreeze, the limit on unusual spending is the same as in any other hour.
    home.kim = home.world.person(&KIM);
    home.set_status("active").await;
    for _ in 0..4 {
        pays(&home, dollars(1)).await.ok();
    }
    assert_eq!(home.read("").await["status"], "active");
    pays(&home, dollars(1)).await.ok();
    pays(&home, dollars(1)).await.refused(403, "policy_blocked");
}
