//! Tests the versions of policies and rules, and restoring a version.

use super::{Household, LEE};
use purser_local::{Options, Streaming};
use purser_tests::{World, dollars};
use reqwest::Method;
use serde_json::{Value, json};

/// A changed field: its name, the old value, and the new value.
type Change<'a> = (&'a str, &'a Value, &'a Value);

/// Returns the versions with their changed fields.
fn changed(list: &Value) -> Vec<(u64, Vec<Change<'_>>)> {
    let versions = list["versions"].as_array().unwrap().iter();
    let versions = versions.map(|version| {
        let changes = version["changes"].as_array().unwrap().iter();
        let changes = changes.map(|change| (change["member"].as_str().unwrap(), &change["before"], &change["after"]));
        (version["version"].as_u64().unwrap(), changes.collect())
    });
    versions.collect()
}

/// Restoring a version is an update with the usual checks. A new owner does not see earlier versions.
#[tokio::test(flavor = "multi_thread")]
async fn earlier_versions_of_limits_can_be_restored() {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    let home = Household::in_world(World::still_with(options).await).await;
    let world = &home.world;
    let per_call = |units: u64| json!({"max_per_call_units": units});
    home.set_policy(per_call(dollars(5))).await;
    home.set_policy(per_call(dollars(7))).await;
    assert_eq!(world.stack.publish_changes().await, 0);
    let policies = "/services/lab-search/versions";
    let first_page = home.read(&format!("{policies}?limit=2")).await;
    let (five, seven) = (json!(dollars(5)), json!(dollars(7)));
    let page = changed(&first_page);
    assert_eq!(page[0], (3, vec![("max_per_call_units", &five, &seven)]));
    assert_eq!((page.len(), page[1].0, page[1].1.len()), (2, 2, 1));
    assert!(first_page["versions"][0]["changed_at"].is_string(), "{first_page}");
    let cursor = first_page["next_cursor"].as_str().unwrap();
    let rest = home.read(&format!("{policies}?cursor={cursor}")).await;
    assert_eq!(
        (rest["versions"][0]["version"].clone(), rest["next_cursor"].clone()),
        (json!(1), Value::Null)
    );

    // The version is unknown, belongs to another user, or is outdated.
    let restore = |version: u64| home.agent.path(&format!("{policies}/{version}/restore"));
    let none = json!({});
    let unknown = world.person_edits(&home.kim, Method::POST, &restore(9), &none).await;
    assert_eq!((unknown.status, unknown.slug()), (404, "not_found"));
    let lee = world.person(&LEE);
    let theirs = world.person_edits(&lee, Method::POST, &restore(2), &none).await;
    assert_eq!((theirs.status, theirs.slug()), (404, "not_found"));
    let stale = world
        .person_edits_version(&home.kim, Method::POST, &restore(2), "\"2\"", &none)
        .await;
    assert_eq!((stale.status, stale.slug()), (412, "version_conflict"));
    let current = world
        .person_edits_version(&home.kim, Method::POST, &restore(2), "\"3\"", &none)
        .await;
    let restored = current.ok();
    assert_eq!(
        (&restored["version"], &restored["policy"]["max_per_call_units"]),
        (&json!(4), &five)
    );
    // The current version is listed before its time is stored.
    let newest = home.read(&format!("{policies}?limit=1")).await;
    assert_eq!(
        (&newest["versions"][0]["version"], &newest["versions"][0]["changed_at"]),
        (&json!(4), &Value::Null)
    );

    let categories = |categories: &[&str]| json!({"kind": "category_block", "categories": categories});
    let added = home
        .edit(Method::POST, "/rules", categories(&["finance"]))
        .await
        .created();
    let rule = added["rule_id"].as_str().unwrap();
    let at = format!("/rules/{rule}");
    home.edit(Method::PUT, &at, categories(&["finance", "ai"])).await.ok();
    assert_eq!(world.stack.publish_changes().await, 0);
    let versions = home.read("/versions").await;
    let with_rule = &versions["versions"][1];
    assert_eq!(
        with_rule["rules"][format!("rules/{rule}")]["categories"],
        json!(["finance"])
    );
    let restore = format!("/versions/{}/rules/{rule}/restore", with_rule["version"]);
    let replaced = home.edit(Method::POST, &restore, json!({})).await.ok();
    assert_eq!(replaced["rule_id"], rule);
    assert_eq!(home.read("/rules").await["rules"][0]["categories"], json!(["finance"]));
    home.edit(Method::DELETE, &at, json!({})).await.ok();
    let again = home.edit(Method::POST, &restore, json!({})).await.ok();
    assert_ne!(again["rule_id"], rule);
    assert_eq!(home.read("/rules").await["rules"][0]["categories"], json!(["finance"]));
    assert_eq!(world.stack.publish_changes().await, 0);

    // A comparison of two versions says which one allows more.
    let compared = home.read(&format!("{policies}?compared_with=3&limit=2&cursor=3")).await;
    let two = &compared["versions"][0];
    assert_eq!(changed(&compared)[0], (2, vec![("max_per_call_units", &seven, &five)]));
    assert_eq!((&two["widens"], &two["narrows"]), (&json!(false), &json!(true)));
    let removed = home.read("/versions").await["versions"][1]["version"].as_u64().unwrap();
    let path = format!("/versions?compared_with={removed}&limit=1");
    let rules = home.read(&path).await;
    let now = &rules["versions"][0];
    assert_eq!(
        (&now["widens"], &now["narrows"]),
        (&json!(false), &json!(true)),
        "{rules}"
    );
    let unknown = home.agent.path(&format!("{policies}?compared_with=9"));
    let unknown = world.person_gets(&home.kim, &unknown).await;
    unknown.refused(404, "not_found");

    home.hand_over_to(&lee).await;
    assert_eq!(world.stack.publish_changes().await, 0);
    let seen = world.person_gets(&lee, &home.agent.path(policies)).await.ok();
    let numbers: Vec<&Value> = seen["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["version"])
        .collect();
    assert_eq!(numbers, [&json!(4)], "{seen}");
    let seen = world.person_gets(&lee, &home.agent.path("/versions")).await.ok();
    assert_eq!(seen["count"], 1, "{seen}");
}

/// An invalid reason is rejected before anything is written.
#[tokio::test(flavor = "multi_thread")]
async fn versions_record_the_user_and_reason_of_their_update() {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    let home = Household::in_world(World::still_with(options).await).await;
    let world = &home.world;
    let service = "/services/lab-search";
    let edit = async |reason: &str, units: u64| {
        let path = format!("{service}?edit_reason={reason}");
        home.edit(Method::PATCH, &path, json!({"max_per_call_units": units}))
            .await
    };
    edit("%20d%C3%A9bit%20too%20high%20", 5).await.ok();
    edit("", 6).await.ok();
    let refused = edit("two%0Alines", 7).await;
    assert_eq!(purser_tests::paths(refused, "a reason of two lines"), ["/edit_reason"]);
    let longest = "x".repeat(201);
    let refused = edit(&longest, 7).await;
    assert_eq!(purser_tests::paths(refused, "a long reason"), ["/edit_reason"]);
    let rule = json!({"kind": "category_block", "categories": ["finance"]});
    home.edit(Method::POST, "/rules?edit_reason=no+banks", rule)
        .await
        .created();
    assert_eq!(world.stack.publish_changes().await, 0);

    let person = world.person_gets(&home.kim, "/sessions").await.ok()["person"].clone();
    let entries = world.person_gets(&home.kim, "/audit-log").await.ok();
    let entries = entries["entries"].as_array().unwrap();
    let versions = home.read(&format!("{service}/versions")).await;
    let rules = home.read("/versions").await;
    let rows = [
        (&versions["versions"][1], json!("débit too high"), "policy_edited"),
        (&versions["versions"][0], Value::Null, "policy_edited"),
        (&rules["versions"][0], json!("no banks"), "rule_added"),
    ];
    for (version, reason, kind) in rows {
        assert_eq!(
            (&version["edit_reason"], &version["edited_by"]),
            (&reason, &person),
            "{version}"
        );
        let entry = entries.iter().find(|entry| entry["audit_id"] == version["audit_id"]);
        let entry = entry.unwrap();
        assert_eq!((&entry["edit_reason"], &entry["kind"]), (&reason, &json!(kind)));
    }
}
