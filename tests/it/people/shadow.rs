//! Tests shadow policies: limits that are evaluated without effect, and can be applied.

use super::{Household, LEE, NOTHING};
use purser_local::{Options, Streaming};
use purser_tests::{Answer, World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};

async fn home() -> Household {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    Household::in_world(World::still_with(options).await).await
}

impl Household {
    async fn attach(&self, body: Value) -> Answer {
        self.edit(Method::PUT, "/shadow", body).await
    }

    async fn has_none(&self) {
        let path = self.agent.path("/shadow");
        self.world.person_gets(&self.kim, &path).await.refused(404, "not_found");
    }

    async fn pays_dollars(&self, amount: u64) -> Value {
        self.world.pass(60);
        let body = body_of(self.world.offer(dollars(amount)));
        let paid = self.world.authorize(&self.agent, &body).await.ok();
        assert_eq!(self.world.stack.publish_changes().await, 0);
        paid
    }

    async fn promote(&self, version: &Value) -> Answer {
        let path = self.agent.path("/shadow/promote");
        let tag = format!("\"{version}\"");
        self.world
            .person_edits_version(&self.kim, Method::POST, &path, &tag, &json!({}))
            .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_policy_has_no_effect_until_it_is_promoted() {
    let home = home().await;
    let world = &home.world;
    home.has_none().await;
    home.pays_dollars(4).await;
    let count = json!({"kind": "count_limit", "count": 3, "window_seconds": 3_600});
    world.pass(1);
    let limits = json!({
        "rules": [count],
        "policies": [{"service_id": "lab-search", "max_per_call_units": dollars(2)}],
    });
    let attached = home.attach(limits.clone()).await.ok();
    let seen = ["decisions", "agreed", "edited", "partial"].map(|name| &attached[name]);
    assert_eq!(seen, [&json!(0), &json!(0), &json!(false), &json!(false)], "{attached}");
    assert_eq!(
        (&attached["widens"], &attached["narrows"]),
        (&json!(false), &json!(true))
    );
    let changes = attached["changes"].as_array().unwrap();
    assert!(
        changes
            .iter()
            .any(|change| change["member"] == "services/lab-search/max_per_call_units"),
        "{attached}"
    );

    home.pays_dollars(1).await;
    let dear = home.pays_dollars(3).await["transaction_id"].clone();
    home.pays_dollars(1).await;
    let third = home.pays_dollars(1).await["transaction_id"].clone();
    world.pass(1);
    let judged = home.read("/shadow").await;
    assert_eq!(
        (&judged["decisions"], &judged["agreed"]),
        (&json!(4), &json!(2)),
        "{judged}"
    );
    let declined = &judged["if_declined"];
    let flips = declined["flips"].as_array().unwrap();
    let examples: Vec<&Value> = flips.iter().map(|flip| &flip["example"]["transaction_id"]).collect();
    // The denied payment does not count for the proposed limit. The first payment counts, although it was made before
    // the attachment.
    assert_eq!(examples.len(), 2, "{judged}");
    assert!(examples.contains(&&dear) && examples.contains(&&third), "{judged}");
    assert_eq!(declined["saved_units"], dollars(4));
    assert_eq!(home.read("/rules").await["count"], 0);

    let stale = judged["version"].clone();
    home.set_policy(json!({"max_per_day_units": dollars(90)})).await;
    home.promote(&stale).await.refused(412, "version_conflict");
    let edited = home.read("/shadow").await;
    assert_eq!((&edited["edited"], &edited["decisions"]), (&json!(true), &json!(4)));
    assert_eq!(edited["agreed"], judged["agreed"]);

    let promoted = home.promote(&edited["version"]).await.ok();
    assert_eq!(promoted["rules_edited"], true, "{promoted}");
    assert_eq!(promoted["services_edited"].as_array().unwrap().len(), 1, "{promoted}");
    assert_eq!(home.read("/rules").await["rules"][0]["count"], 3);
    let policy = &home.read("/services/lab-search").await["policy"];
    let limits_now = ["max_per_call_units", "max_per_day_units"].map(|name| &policy[name]);
    assert_eq!(limits_now, [&json!(dollars(2)), &json!(dollars(90))]);
    home.has_none().await;
    home.promote(&edited["version"]).await.refused(404, "not_found");
    for kind in ["shadow_attached", "shadow_promoted", "rule_replaced", "policy_edited"] {
        let log = world
            .person_gets(&home.kim, &format!("/audit-log?kind={kind}"))
            .await
            .ok();
        assert_ne!(log["entries"], json!([]), "{kind}");
    }

    let again = home.attach(limits).await.ok();
    assert_eq!(
        (&again["changes"], &again["widens"]),
        (&json!([]), &json!(false)),
        "{again}"
    );
    let nothing = home.promote(&again["version"]).await.ok();
    assert_eq!(
        (&nothing["rules_edited"], &nothing["services_edited"]),
        (&json!(false), &json!(NOTHING))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn promoting_a_wider_shadow_policy_needs_a_recent_sign_in() {
    let home = home().await;
    home.set_policy(json!({"max_per_call_units": dollars(2), "max_per_day_units": dollars(20)}))
        .await;
    let limits = json!({
        "rules": [{"kind": "count_limit", "count": 2, "window_seconds": 3_600}],
        "policies": [{"service_id": "lab-search", "max_per_call_units": dollars(5)}],
    });
    let attached = home.attach(limits).await.ok();
    home.world.pass(11 * 60);
    home.promote(&attached["version"])
        .await
        .refused(403, "recent_sign_in_required");
    assert_eq!(home.read("/rules").await["count"], 0);
    let removed = home.edit(Method::DELETE, "/shadow", json!({})).await.ok();
    assert_eq!(removed["agent_id"], home.agent.id.to_string());
    home.edit(Method::DELETE, "/shadow", json!({}))
        .await
        .refused(404, "not_found");
    for wrong in [json!({"frozen": true}), json!({"rules": [{"kind": "nothing"}]})] {
        let refused = home.attach(wrong.clone()).await;
        assert_eq!((refused.status, refused.slug()), (400, "invalid_request"), "{wrong}");
    }
    let unknown = json!({"policies": [{"service_id": "nowhere"}]});
    home.attach(unknown).await.refused(404, "service_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ownership_transfer_removes_the_shadow_policy() {
    let home = home().await;
    let world = &home.world;
    home.attach(json!({"rules": []})).await.ok();
    let lee = world.person(&LEE);
    home.hand_over_to(&lee).await;
    assert_eq!(world.stack.publish_changes().await, 0);
    let path = home.agent.path("/shadow");
    world.person_gets(&lee, &path).await.refused(404, "not_found");
    world.pass(5);
    home.hand_over_to(&home.kim).await;
    assert_eq!(world.stack.publish_changes().await, 0);
    world.person_gets(&home.kim, &path).await.refused(404, "not_found");
}
