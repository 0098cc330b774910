//! Services: enabled with column defaults, edited at a version, disabled and kept.

use crate::support::{World, service};
use purser_store::Listed;
use purser_testkit::sample::{OWNER, service_id};
use serde_json::json;

#[tokio::test]
async fn enabling_takes_column_defaults_whatever_was_there_and_is_held_to_the_version_that_is_named() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}/services");
    let enable = async |version: Option<&str>, body| world.call(OWNER, "POST", &path, version, Some(body)).await;
    // It came with the agent.
    let conflict = enable(Some("\"0\""), json!({"service_id": "lab"}))
        .await
        .refused(412, "version_conflict");
    assert_eq!(conflict["version"], 1);
    enable(Some("\"2\""), json!({"service_id": "lab"}))
        .await
        .refused(412, "version_conflict");
    let anew = enable(Some("\"1\""), json!({"service_id": "lab", "max_per_call_units": 7})).await;
    assert_eq!(anew.version(), 2);
    let anew = anew.ok();
    let defaults = json!({
        "max_per_call_units": 7, "max_per_day_units": 50_000_000, "require_approval_above_units": 10_000_000,
        "enabled_operations": null, "allowed_domains": ["*"],
    });
    assert_eq!((&anew["policy"], &anew["permissive"]), (&defaults, &json!(false)));
    let again = enable(None, json!({"service_id": "lab", "max_per_call_units": null})).await;
    assert_eq!(again.version(), 3);
    assert_eq!(again.ok()["policy"]["max_per_call_units"], 1_000_000);
    // One that joined the catalog later has no record yet.
    world.catalog.put(&service(4, "news", true)).await.unwrap();
    world.advance(6);
    let new = enable(
        None,
        json!({"service_id": "news", "enabled_operations": ["news.current"]}),
    )
    .await;
    assert_eq!(new.version(), 1);
    let new = new.created();
    assert_eq!(new["service_id"], service_id(4).to_string());
    assert_eq!(new["policy"]["max_per_call_units"], 1_000_000);
    assert_eq!(new["policy"]["enabled_operations"], json!(["news.current"]));
    for unknown in ["shed", "nowhere"] {
        enable(None, json!({"service_id": unknown}))
            .await
            .refused(404, "service_not_found");
    }
    enable(None, json!({})).await.refused(400, "service_id_required");
    assert_eq!(
        enable(
            Some("x"),
            json!({"service_id": "lab", "max_per_day_units": -1, "enabled_operations": ["a.b"]})
        )
        .await
        .problems(),
        ["/If-Match", "/enabled_operations/0", "/max_per_day_units"]
    );
}

#[tokio::test]
async fn an_edit_keeps_what_it_does_not_name_and_a_disabled_record_keeps_its_policy() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}/services/lab");
    let edit = async |version: Option<&str>, body| world.call(OWNER, "PATCH", &path, version, Some(body)).await;
    edit(None, json!({"enabled": false}))
        .await
        .refused(428, "version_required");
    let edited = edit(
        Some("\"1\""),
        json!({"max_per_day_units": 500, "allowed_domains": ["Example.com"]}),
    )
    .await;
    assert_eq!(edited.version(), 2);
    let edited = edited.ok();
    assert_eq!(edited["policy"]["max_per_call_units"], 10_000_000_000_000_u64);
    assert_eq!(edited["policy"]["allowed_domains"], json!(["example.com"]));
    assert_eq!(edited["remaining_today_units"], 500);
    edit(Some("\"1\""), json!({"max_per_day_units": 1}))
        .await
        .refused(412, "version_conflict");
    let disabled = world.call(OWNER, "DELETE", &path, Some("\"2\""), None).await;
    assert_eq!(disabled.version(), 3);
    let disabled = disabled.ok();
    assert_eq!(
        (&disabled["enabled"], &disabled["policy"]),
        (&json!(false), &edited["policy"])
    );
    // Again changes nothing.
    assert_eq!(world.call(OWNER, "DELETE", &path, Some("*"), None).await.version(), 3);
    let by_id = world
        .get(OWNER, &format!("/agents/{id}/services/{}", service_id(1)))
        .await;
    assert_eq!((by_id.version(), by_id.ok()), (3, disabled));
    let enabled = edit(Some("*"), json!({"enabled": true})).await.ok();
    assert_eq!(
        (&enabled["enabled"], &enabled["policy"]),
        (&json!(true), &edited["policy"])
    );
    for unknown in ["shed", "nowhere", "00000000-0000-4000-8000-000000000000"] {
        let path = format!("/agents/{id}/services/{unknown}");
        for method in ["GET", "PATCH", "DELETE"] {
            world
                .call(OWNER, method, &path, None, None)
                .await
                .refused(404, "not_found");
        }
    }
}

#[tokio::test]
async fn what_left_the_curated_set_can_be_tightened_and_not_enabled() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}/services/lab");
    let mut uncurated = world.catalog.service(service_id(1)).await.unwrap().unwrap();
    uncurated.curated = false;
    uncurated.version += 1;
    assert_eq!(world.catalog.put(&uncurated).await.unwrap(), Listed::Stored);
    world.advance(6);
    world
        .edit(OWNER, "PATCH", &path, json!({"max_per_day_units": 1}))
        .await
        .ok();
    world.call(OWNER, "DELETE", &path, Some("*"), None).await.ok();
    world
        .edit(OWNER, "PATCH", &path, json!({"enabled": true}))
        .await
        .refused(404, "service_not_found");
}

#[tokio::test]
async fn what_was_spent_counts_for_a_day() {
    let world = World::start().await;
    let id = world.agent(OWNER).await;
    let path = format!("/agents/{id}/services/lab");
    world
        .edit(OWNER, "PATCH", &path, json!({"max_per_day_units": 100}))
        .await
        .ok();
    for n in 0..12 {
        world.pay(&id, 5, &n.to_string()).await;
        world.advance(60);
    }
    let spent = async || {
        let service = world.get(OWNER, &path).await.ok();
        (
            service["spend_today_units"].as_u64().unwrap(),
            service["remaining_today_units"].as_u64().unwrap(),
        )
    };
    assert_eq!(spent().await, (60, 40));
    let list = world.get(OWNER, &format!("/agents/{id}/services")).await.ok();
    assert_eq!(list["services"][0]["spend_today_units"], 60);
    assert_eq!(list["services"][1]["spend_today_units"], 0);
    world.advance(86_400 - 3 * 60);
    assert_eq!(spent().await, (10, 90));
    world.advance(3 * 60);
    assert_eq!(spent().await, (0, 100));
}
