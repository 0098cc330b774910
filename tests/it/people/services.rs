//! Tests an agent's services and rules, and the remaining amounts of caps.

use super::{Household, NOTHING};
use purser_tests::{World, body_of, dollars, fresh_key, operation_entry, paths, payment_entry, service_entry};
use reqwest::Method;
use serde_json::{Value, json};

/// Creates a curated service that did not exist when the agent was created.
async fn newcomer(home: &Household) -> String {
    let operation = |slug: &str, path: &str| {
        let mut operation = operation_entry(slug, &format!("https://newcomer.example{path}"));
        operation["payment"] = payment_entry(1_000, &home.world.stack.providers.pay_to);
        operation
    };
    let operations = [operation("news.read", "/read"), operation("news.list", "/list")];
    let (id, _) = home.world.enter(&service_entry("newcomer", &operations)).await;
    home.world.pass(6);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn enabled_services_use_defaults_for_omitted_fields() {
    let home = Household::in_world(World::still().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let id = newcomer(&home).await;
    let mut body = body_of(world.offer(1_000));
    body["service_id"] = json!("newcomer");
    body["original_request"]["url"] = json!("https://newcomer.example/read");
    world.authorize(agent, &body).await.refused(403, "service_not_enabled");
    world
        .person_gets(&home.kim, &agent.path("/services/newcomer"))
        .await
        .refused(404, "not_found");
    home.edit(Method::PATCH, "/services/newcomer", json!({"enabled": true}))
        .await
        .refused(404, "not_found");

    let enable = async |body: Value, if_match: Option<&str>| {
        let request = world
            .persons_request(&home.kim, Method::POST, &agent.path("/services"))
            .json(&body);
        World::send(match if_match {
            Some(version) => request.header("if-match", version),
            None => request,
        })
        .await
    };
    let made = enable(json!({"service_id": "newcomer", "max_per_day_units": dollars(3)}), None).await;
    assert_eq!(made.etag(), "\"1\"");
    let made = made.created();
    let expected = json!({
        "agent_id": agent.id.to_string(),
        "service_id": id,
        "slug": "newcomer",
        "name": "Newcomer",
        "category": "data",
        "trust_status": "listed",
        "enabled": true,
        "version": 1,
        "policy": {
            "max_per_call_units": 1_000_000,
            "max_per_day_units": dollars(3),
            "require_approval_above_units": 10_000_000,
            "enabled_operations": null,
            "allowed_domains": ["*"],
        },
        "permissive": false,
        "spend_today_units": 0,
        "remaining_today_units": dollars(3),
        "unpayable_operations": [],
        "payment_changes": [],
    });
    assert_eq!(made, expected);
    for reference in ["newcomer", &id] {
        assert_eq!(home.read(&format!("/services/{reference}")).await, expected);
    }
    world.authorize(agent, &body).await.ok();
    let seen = world
        .get(agent, &format!("/mcp/agents/{}/services", agent.id))
        .await
        .ok();
    let seen = seen["services"].as_array().unwrap();
    let seen = seen.iter().find(|service| service["slug"] == "newcomer").unwrap();
    assert_eq!((&seen["policy"], &seen["enabled"]), (&expected["policy"], &json!(true)));
    assert_eq!(seen["version"], expected["version"]);

    for stale in ["\"0\"", "\"2\""] {
        let told = enable(json!({"service_id": id}), Some(stale)).await;
        assert_eq!(told.refused(412, "version_conflict")["version"], 1);
    }
    let same = json!({"service_id": "newcomer", "max_per_day_units": dollars(3), "max_per_call_units": null});
    let mut unchanged = expected.clone();
    unchanged["spend_today_units"] = json!(1_000);
    unchanged["remaining_today_units"] = json!(dollars(3) - 1_000);
    assert_eq!(enable(same, None).await.ok(), unchanged);
    let scoped = json!({
        "service_id": id,
        "enabled_operations": ["news.read"],
        "allowed_domains": ["example.com", "*.example.org"],
    });
    let anew = enable(scoped, Some("\"1\"")).await.ok();
    let policy = json!({
        "max_per_call_units": 1_000_000,
        "max_per_day_units": 50_000_000,
        "require_approval_above_units": 10_000_000,
        "enabled_operations": ["news.read"],
        "allowed_domains": ["example.com", "*.example.org"],
    });
    assert_eq!((&anew["policy"], &anew["version"]), (&policy, &json!(2)));
    assert_eq!(anew["spend_today_units"], 1_000, "what was spent is not forgotten");
    // A returned policy can be sent unchanged.
    let as_read = enable(json!({"service_id": id, "policy": policy}), Some("\"2\""))
        .await
        .ok();
    assert_eq!((&as_read["policy"], &as_read["version"]), (&policy, &json!(2)));
    for (policy, beside, problem) in [
        (json!({"max_per_day_units": 1}), json!(1), "/max_per_call_units"),
        (json!({"allowed_domains": null}), Value::Null, "/policy/allowed_domains"),
        (
            json!({"allowed_domains": ["**.example.org"]}),
            Value::Null,
            "/policy/allowed_domains/0",
        ),
        (
            json!({"enabled_operations": ["no.such"]}),
            Value::Null,
            "/policy/enabled_operations/0",
        ),
        (json!({"version": 2}), Value::Null, "/policy/version"),
    ] {
        let mut body = json!({"service_id": id, "policy": policy});
        if !beside.is_null() {
            body["max_per_call_units"] = beside;
        }
        assert_eq!(paths(enable(body, None).await, problem), [problem]);
    }
    // Without a version check, a disabled service is also replaced.
    home.edit(Method::DELETE, "/services/newcomer", json!({})).await.ok();
    let defaults = json!({
        "max_per_call_units": 1_000_000,
        "max_per_day_units": 50_000_000,
        "require_approval_above_units": 10_000_000,
        "enabled_operations": null,
        "allowed_domains": ["*"],
    });
    let reset = enable(json!({"service_id": id}), None).await.ok();
    assert_eq!(
        (&reset["policy"], &reset["version"], &reset["enabled"]),
        (&defaults, &json!(4), &json!(true))
    );
    // A default service's policy, which is not stored, is also replaced without a version check.
    let tightened = enable(json!({"service_id": "lab-search", "max_per_day_units": 7}), None)
        .await
        .ok();
    assert_eq!(
        (
            &tightened["policy"]["max_per_day_units"],
            &tightened["policy"]["max_per_call_units"]
        ),
        (&json!(7), &json!(1_000_000))
    );
    assert_eq!(
        (&tightened["version"], &tightened["permissive"]),
        (&json!(2), &json!(false))
    );
    enable(json!({"service_id": "no-such-service"}), None)
        .await
        .refused(404, "service_not_found");
    enable(json!({"service_id": "sundown-feeds"}), None)
        .await
        .refused(404, "service_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_updates_change_only_the_given_fields() {
    let home = Household::in_world(World::start().await).await;
    let before = home.read("/services/lab-search").await;
    let rows = [
        ("max_per_call_units", json!(0)),
        ("max_per_day_units", json!(9_007_199_254_740_991_u64)),
        ("require_approval_above_units", json!(7)),
        ("enabled_operations", json!(["web.search"])),
        ("enabled_operations", json!([])),
        ("enabled_operations", Value::Null),
        ("allowed_domains", json!(["a.example", "*.b.example"])),
        ("allowed_domains", json!([])),
    ];
    let mut expected = before;
    for (version, (name, value)) in (2..).zip(rows) {
        expected["policy"][name] = value.clone();
        expected["version"] = json!(version);
        expected["permissive"] = json!(false);
        expected["remaining_today_units"] = expected["policy"]["max_per_day_units"].clone();
        assert_eq!(home.set_policy(json!({name: value})).await, expected, "{name}");
    }
    let rows = home.world.rows().await;
    let policy = expected["policy"].clone();
    assert_eq!(home.set_policy(policy.clone()).await, expected);
    assert_eq!(home.set_policy(json!({"policy": policy})).await, expected);
    assert_eq!(home.world.rows().await.changes_since(&rows), NOTHING);
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_services_block_payments_and_keep_their_policy() {
    let home = Household::in_world(World::start().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let policy = home.set_policy(json!({"max_per_call_units": dollars(2)})).await["policy"].clone();
    let body = body_of(world.offer(dollars(1)));
    world.authorize(agent, &body).await.ok();

    let disabled = home.edit(Method::DELETE, "/services/lab-search", json!({})).await.ok();
    assert_eq!((&disabled["enabled"], &disabled["policy"]), (&json!(false), &policy));
    let before = world.footprint().await;
    let another = body_of(world.offer(dollars(1)));
    let refused = world
        .authorize(agent, &another)
        .await
        .refused(403, "service_not_enabled");
    assert_eq!(
        (&refused["code"], &refused["service_id"]),
        (&json!("SERVICE_NOT_ENABLED"), &json!("lab-search"))
    );
    assert_eq!(world.check(agent, &another).await.ok()["reason"], "service_not_enabled");
    assert_eq!(world.footprint().await, before);
    assert!(
        home.read("/services").await["services"]
            .as_array()
            .unwrap()
            .contains(&disabled)
    );

    let enabled = home
        .edit(Method::PATCH, "/services/lab-search", json!({"enabled": true}))
        .await
        .ok();
    assert_eq!(
        (&enabled["policy"], &enabled["spend_today_units"]),
        (&policy, &json!(dollars(1)))
    );
    world.authorize(agent, &another).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn remaining_amounts_are_exact_and_recover_over_time() {
    let mut home = Household::in_world(World::still().await).await;
    home.set_policy(json!({"max_per_day_units": dollars(10)})).await;
    let budget = json!({"kind": "budget_limit", "limit_units": dollars(8), "window_seconds": 3_600});
    let rule = home.edit(Method::POST, "/rules", budget).await.created();
    assert_eq!(
        (&rule["used_units"], &rule["remaining_units"]),
        (&json!(0), &json!(dollars(8)))
    );
    let room = async |home: &Household| {
        let service = home.read("/services/lab-search").await;
        let all = home.read("/services").await;
        assert!(all["services"].as_array().unwrap().contains(&service));
        let rules = home.read("/rules").await;
        let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
        (
            (
                number(&service, "spend_today_units"),
                number(&service, "remaining_today_units"),
            ),
            (
                number(&rules["rules"][0], "used_units"),
                number(&rules["rules"][0], "remaining_units"),
            ),
        )
    };
    let pay = async |home: &Household, units: u64| {
        home.world
            .authorize(&home.agent, &body_of(home.world.offer(units)))
            .await
    };
    pay(&home, 1_234_567).await.ok();
    assert_eq!(room(&home).await, ((1_234_567, 8_765_433), (1_234_567, 6_765_433)));
    // The budget's hour has ended, but not the day.
    home.world.pass(3_600);
    assert_eq!(room(&home).await, ((1_234_567, 8_765_433), (0, dollars(8))));
    pay(&home, 8_000_001).await.refused(403, "policy_blocked");
    pay(&home, dollars(8)).await.ok();
    assert_eq!(room(&home).await, ((9_234_567, 765_433), (dollars(8), 0)));
    home.pass_a_day();
    assert_eq!(
        room(&home).await,
        ((0, dollars(10)), (0, dollars(8))),
        "a day after the last"
    );
    pay(&home, dollars(2)).await.ok();
    let lower = home.set_policy(json!({"max_per_day_units": dollars(1)})).await;
    assert_eq!(
        (&lower["spend_today_units"], &lower["remaining_today_units"]),
        (&json!(dollars(2)), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_added_changed_and_removed() {
    let home = Household::in_world(World::start().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let wallet = &world.stack.providers.pay_to;
    let bodies = [
        json!({"kind": "category_block", "categories": ["finance", "ai"]}),
        json!({"kind": "vendor_allowlist", "services": ["lab-search"], "wallets": [wallet]}),
        json!({"kind": "approval_required", "services": null, "categories": ["data"], "above_units": 5}),
    ];
    let mut told = Vec::new();
    for (version, body) in (3..).zip(&bodies) {
        let made = home.edit(Method::POST, "/rules", body.clone()).await;
        assert_eq!(made.etag(), format!("\"{version}\""));
        let made = made.created();
        let mut expected = body.clone();
        expected["agent_id"] = json!(agent.id.to_string());
        expected["version"] = json!(version);
        expected["rule_id"] = made["rule_id"].clone();
        expected["rule_version"] = json!(1);
        assert_eq!(made, expected);
        let mut rule = made;
        for name in ["agent_id", "version"] {
            rule.as_object_mut().unwrap().remove(name);
        }
        told.push(rule);
    }
    let listed = async || home.read("/rules").await["rules"].as_array().unwrap().clone();
    assert_eq!(listed().await, told);
    let below = |rule: &Value| format!("/rules/{}", rule["rule_id"].as_str().unwrap());

    let narrower = json!({"kind": "category_block", "categories": ["search"]});
    let changed = home.edit(Method::PUT, &below(&told[0]), narrower).await.ok();
    assert_eq!(
        (&changed["rule_version"], &changed["rule_id"]),
        (&json!(2), &told[0]["rule_id"])
    );
    let body = body_of(world.offer(1_000));
    world.authorize(agent, &body).await.refused(403, "policy_blocked");
    let before = world.rows().await;
    let other = home.edit(Method::PUT, &below(&told[0]), bodies[2].clone()).await;
    assert_eq!(paths(other, "another kind"), ["/kind"]);
    let unknown = [format!("/rules/{}", fresh_key()), "/rules/x".to_owned()];
    for below in &unknown {
        home.edit(Method::PUT, below, json!({"nonsense": 1}))
            .await
            .refused(404, "not_found");
        home.edit(Method::DELETE, below, json!({}))
            .await
            .refused(404, "not_found");
    }
    assert_eq!(world.rows().await.changes_since(&before), NOTHING);

    let removed = home.edit(Method::DELETE, &below(&told[0]), json!({})).await.ok();
    let expected = json!({"agent_id": agent.id.to_string(), "version": 7, "rule_id": told[0]["rule_id"]});
    assert_eq!(removed, expected);
    assert_eq!(listed().await, told[1..]);
    world.authorize(agent, &body).await.ok();
    home.edit(Method::DELETE, &below(&told[0]), json!({}))
        .await
        .refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_count_once_in_each_of_ten_budgets() {
    let home = Household::in_world(World::start().await).await;
    let add = async |rule: Value| home.edit(Method::POST, "/rules", rule).await;
    let budget = json!({"kind": "budget_limit", "limit_units": dollars(1_000), "window_seconds": 2_678_400});
    for _ in 0..10 {
        add(budget.clone()).await.created();
    }
    assert_eq!(paths(add(budget).await, "an eleventh budget"), [""]);
    home.world
        .authorize(&home.agent, &body_of(home.world.offer(1_000)))
        .await
        .ok();
    let rules = home.read("/rules").await["rules"].as_array().unwrap().clone();
    assert!(rules.len() == 10 && rules.iter().all(|rule| rule["used_units"] == 1_000));
}

/// Services that already have limits keep these limits.
#[tokio::test(flavor = "multi_thread")]
async fn one_request_sets_the_limits_of_all_services_without_limits() {
    let home = Household::in_world(World::still().await).await;
    home.set_policy(json!({"max_per_day_units": dollars(3)})).await;
    let limits = json!({"max_per_day_units": dollars(12)});
    let wrong = home
        .edit(Method::PATCH, "/services", json!({"max_per_day_units": -1}))
        .await;
    assert_eq!((wrong.status, wrong.slug()), (400, "invalid_request"));
    let before = home.read("/services").await;
    let limited = home.edit(Method::PATCH, "/services", limits.clone()).await.ok();
    assert_eq!(
        limited["count"].as_u64().unwrap(),
        before["count"].as_u64().unwrap() - 1
    );
    let after = home.read("/services").await;
    for service in after["services"].as_array().unwrap() {
        let policy = &service["policy"];
        let expected = if service["slug"] == "lab-search" {
            json!(dollars(3))
        } else {
            limits["max_per_day_units"].clone()
        };
        assert_eq!(
            (&policy["max_per_day_units"], &service["permissive"]),
            (&expected, &json!(false)),
            "{service}"
        );
    }
    let again = home.edit(Method::PATCH, "/services", limits).await.ok();
    assert_eq!(again["count"], 0);
}
