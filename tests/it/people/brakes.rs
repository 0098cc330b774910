//! Tests automatic freezes: unusual spending freezes an agent, and its owner is notified.

use super::{Household, KIM};
use purser_local::{Options, Streaming};
use purser_tests::{World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};

/// The agent spends in minutes what it usually spends in days, without reaching a cap.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_a_hundred_times_the_usual_spending_freezes_the_agent() {
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
    let hook = json!({"url": "https://hooks.example.invalid/", "kinds": ["purser.agent.frozen.v1"]});
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
    let refused = pays(&home, dollars(1)).await.refused(403, "policy_blocked");
    assert_eq!(refused["decision"]["reason"], "agent_frozen");

    home.kim = home.world.person(&KIM);
    let (world, kim) = (&home.world, &home.kim);
    let path = format!("/webhooks/{}", hook["webhook_id"].as_str().unwrap());
    let is_frozen = |delivery: &Value| delivery["kind"] == "purser.agent.frozen.v1";
    world.delivery_where(kim, &path, is_frozen).await;
    let log = world.person_gets(kim, "/audit-log?kind=agent_frozen").await.ok();
    assert_eq!(log["count"], 1, "{log}");
    let row = &log["entries"][0];
    assert_eq!(
        (&row["person_id"], &row["operator"]),
        (&Value::Null, &Value::Null),
        "{row}"
    );
    assert_eq!(row["after"], json!({"status": "frozen"}), "{row}");
    let reason = row["edit_reason"].as_str().unwrap();
    assert!(
        reason.starts_with("anomaly brake: $5.00 within an hour on ") && reason.contains("at most $0.05 an hour"),
        "{reason}"
    );

    // After the unfreeze, the limit on unusual spending is the same as in any other hour.
    home.set_status("active").await;
    for _ in 0..4 {
        pays(&home, dollars(1)).await.ok();
    }
    assert_eq!(home.read("").await["status"], "active");
    pays(&home, dollars(1)).await.ok();
    pays(&home, dollars(1)).await.refused(403, "policy_blocked");
}
