//! Rules: of four kinds, each edit at the agent's version.

use crate::support::World;
use purser_testkit::{authorize::Answer as Told, sample::OWNER};
use serde_json::{Value, json};

#[tokio::test]
async fn rules_are_added_replaced_by_their_like_and_removed() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}/rules");
    let call = async |method: &str, path: &str, version: Option<&str>, body: Value| {
        world.call(OWNER, method, path, version, Some(body)).await
    };
    let block = json!({"kind": "category_block", "categories": ["finance"]});
    call("POST", &path, None, block.clone())
        .await
        .refused(428, "version_required");
    let added = call("POST", &path, Some("\"1\""), block.clone()).await;
    assert_eq!(added.version(), 2);
    let added = added.created();
    assert_eq!(
        (&added["kind"], &added["rule_version"]),
        (&json!("category_block"), &json!(1))
    );
    call("POST", &path, Some("\"1\""), block)
        .await
        .refused(412, "version_conflict");
    let rule = format!("{path}/{}", added["rule_id"].as_str().unwrap());
    let replaced = call(
        "PUT",
        &rule,
        Some("\"2\""),
        json!({"kind": "category_block", "categories": ["ai", "data"]}),
    )
    .await;
    assert_eq!(replaced.version(), 3);
    let replaced = replaced.ok();
    assert_eq!(
        (&replaced["categories"], &replaced["rule_version"]),
        (&json!(["ai", "data"]), &json!(2))
    );
    let other = call("PUT", &rule, Some("*"), json!({"kind": "approval_required"})).await;
    assert_eq!(other.problems(), ["/kind"]);
    let wallet = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
    for (body, expected) in [
        (
            json!({"kind": "vendor_allowlist", "wallets": [wallet.to_lowercase()], "services": ["shed"]}),
            json!({"kind": "vendor_allowlist", "wallets": [wallet], "services": ["shed"]}),
        ),
        (
            json!({"kind": "approval_required", "above_units": 5}),
            json!({"kind": "approval_required", "above_units": 5, "services": null, "categories": null}),
        ),
    ] {
        let rule = call("POST", &path, Some("*"), body).await.created();
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&rule[name], value, "{name}");
        }
    }
    let unknown = json!({"kind": "approval_required", "services": ["nowhere"], "above": 1});
    assert_eq!(
        call("POST", &path, Some("*"), unknown).await.problems(),
        ["/above", "/services/0"]
    );
    let list = world.get(OWNER, &path).await;
    assert_eq!(list.version(), 5);
    assert_eq!(list.ok()["count"], 3);
    let removed = world.call(OWNER, "DELETE", &rule, Some("\"5\""), None).await;
    assert_eq!(removed.version(), 6);
    for method in ["PUT", "DELETE"] {
        for missing in [&rule, &format!("{path}/x")] {
            call(method, missing, None, json!({})).await.refused(404, "not_found");
        }
    }
}

#[tokio::test]
async fn a_budget_tells_what_is_used_and_left_and_is_kept_to() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}/rules");
    let budget = |units: u64| json!({"kind": "budget_limit", "limit_units": units, "window_seconds": 3_600});
    let rule = world.edit(OWNER, "POST", &path, budget(100)).await.created();
    assert!(matches!(world.pay(&id, 60, "a").await, Told::Allowed(_)));
    assert!(matches!(world.pay(&id, 60, "b").await, Told::Full { .. }));
    let listed = world.get(OWNER, &path).await.ok()["rules"][0].clone();
    assert_eq!(
        (&listed["used_units"], &listed["remaining_units"]),
        (&json!(60), &json!(40))
    );
    let path = format!("{path}/{}", rule["rule_id"].as_str().unwrap());
    let tighter = world.edit(OWNER, "PUT", &path, budget(50)).await.ok();
    assert_eq!(
        (&tighter["used_units"], &tighter["remaining_units"]),
        (&json!(60), &json!(0))
    );
    world.advance(3_600);
    let listed = world.get(OWNER, &format!("/agents/{id}/rules")).await.ok()["rules"][0].clone();
    assert_eq!(
        (&listed["used_units"], &listed["remaining_units"]),
        (&json!(0), &json!(50))
    );
}
