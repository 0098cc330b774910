//! The routes on which an agent reads about itself.

use purser_domain::{
    BudgetLimit, Duration, EnabledService, LimitAction, MIN_BUDGET_WINDOW, OperationSlug, Rule, RuleId, RuleKind,
    RuleWindow, ServiceId, SpendPolicy, Timestamp,
};
use purser_store::UpdateResult;
use purser_tests::{TestAgent, World, body_of, dollars, operation_entry, service_entry, units};
use reqwest::Method;
use serde_json::{Value, json};

/// The time, in seconds, after which a function checks whether its cached catalog is current.
const DUE: u32 = 6;

fn just_before(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.micros() - 1).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_can_read_their_services_and_policies() {
    let world = World::start().await;
    let policy = SpendPolicy {
        enabled_operations: Some(vec![OperationSlug::parse("web.search").unwrap()]),
        ..SpendPolicy::spec_defaults()
    };
    let agent = world.agent(policy, vec![]).await;

    let me = world.get(&agent, "/mcp/agents/me").await.ok();
    let created_at = me["created_at"].clone();
    assert_eq!(
        me,
        json!({"agent_id": agent.id.to_string(), "name": "test agent", "created_at": created_at, "labels": {}})
    );

    world.enable(&agent, "lab-reports", SpendPolicy::permissive()).await;
    world
        .put_policy(&agent, "lab-weather", false, SpendPolicy::spec_defaults())
        .await;
    let services = world
        .get(&agent, &format!("/mcp/agents/{}/services", agent.id))
        .await
        .ok();
    let listed: Vec<&str> = services["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["slug"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ["lab-reports", "lab-search"], "what is disabled is not listed");
    assert_eq!(
        (&services["count"], &services["agent_id"]),
        (&json!(2), &json!(agent.id.to_string()))
    );

    let path = |service: &str| format!("/agents/{}/services/{service}/policy", agent.id);
    let by_slug = world.get(&agent, &path("lab-search")).await.ok();
    let mut record = by_slug.clone();
    for name in ["rules", "spend_today_units", "remaining_today_units", "budgets"] {
        record.as_object_mut().unwrap().remove(name).unwrap();
    }
    assert_eq!(record, services["services"][1], "the same record");
    assert_eq!(
        (&record["enabled"], &record["unavailable_reason"]),
        (&json!(true), &Value::Null)
    );
    let expected = json!({
        "max_per_call_units": 1_000_000, "max_per_day_units": 50_000_000, "require_approval_above_units": 10_000_000,
        "enabled_operations": ["web.search"], "allowed_domains": ["*"],
    });
    assert_eq!(by_slug["policy"], expected, "the column defaults of the contract");
    let by_id = world
        .get(&agent, &path(by_slug["service_id"].as_str().unwrap()))
        .await
        .ok();
    assert_eq!(by_slug, by_id);
    let disabled = world.get(&agent, &path("lab-weather")).await.ok();
    assert_eq!(
        (&disabled["enabled"], &disabled["unavailable_reason"]),
        (&json!(false), &json!("disabled_for_agent")),
        "a disabled record can be read"
    );
    world.get(&agent, &path("lab-scrape")).await.refused(404, "not_found");
    world.get(&agent, &path("no-such")).await.refused(404, "not_found");
}

/// Returns the used and the remaining amounts for `lab-search`. Asserts that a preflight returns the same amounts.
async fn left(world: &World, agent: &TestAgent) -> Value {
    let policy = world.get(agent, &agent.path("/services/lab-search/policy")).await.ok();
    let check = world.check(agent, &body_of(world.offer(1))).await.ok();
    let [told, foretold] = [&policy, &check]
        .map(|answer| ["spend_today_units", "remaining_today_units", "budgets"].map(|name| answer[name].clone()));
    assert_eq!(told, foretold, "{policy} {check}");
    json!(told)
}

/// An amount stops counting at the instant at which its window ends.
#[tokio::test(flavor = "multi_thread")]
async fn agents_can_read_their_exact_remaining_limits() {
    let world = World::still().await;
    let [hour, other] = [(); 2].map(|()| RuleId::from_uuid(uuid::Uuid::new_v4()));
    let budget = |id, limit, window: Duration, action| {
        let kind = RuleKind::BudgetLimit(BudgetLimit {
            limit: units(limit),
            window: RuleWindow {
                action,
                ..window.into()
            },
        });
        Rule { id, version: 1, kind }
    };
    let policy = SpendPolicy {
        max_per_day: units(dollars(30)),
        ..SpendPolicy::spec_defaults()
    };
    let agent = world.agent(policy.clone(), vec![]).await;
    world.enable(&agent, "lab-reports", policy.clone()).await;
    world
        .edit(&agent, |agent| {
            agent
                .rules
                .push(budget(hour, dollars(20), MIN_BUDGET_WINDOW, LimitAction::Block));
            agent
                .rules
                .push(budget(other, dollars(40), Duration::DAY, LimitAction::Ask));
        })
        .await;
    let told = |spend: u64, in_hour: u64, in_day: u64| {
        let budget = |id: RuleId, limit: u64, seconds: u64, used: u64| {
            json!({
                "rule_id": id.to_string(), "limit_units": dollars(limit), "window_seconds": seconds,
                "used_units": dollars(used), "remaining_units": dollars(limit) - dollars(used),
            })
        };
        let mut asking = budget(other, 40, 86_400, in_day);
        asking["action"] = json!("ask");
        json!([
            dollars(spend),
            dollars(30 - spend),
            [budget(hour, 20, 3_600, in_hour), asking],
        ])
    };
    assert_eq!(left(&world, &agent).await, told(0, 0, 0));

    // A decision reads at most 10 payments of a window in one call, so 12 payments need two calls.
    let start = world.now();
    for _ in 0..12 {
        world.authorize(&agent, &body_of(world.offer(dollars(1)))).await.ok();
    }
    let mut elsewhere = body_of(world.offer(dollars(1)));
    elsewhere["service_id"] = "lab-reports".into();
    world.authorize(&agent, &elsewhere).await.ok();
    assert_eq!(left(&world, &agent).await, told(12, 13, 13));

    world.put_policy(&agent, "lab-search", false, policy.clone()).await;
    assert_eq!(left(&world, &agent).await, told(12, 13, 13));
    world.put_policy(&agent, "lab-search", true, policy).await;

    // A payment stops counting at the exact end of its window.
    for (until, at_last, afterwards) in [
        (start.after(MIN_BUDGET_WINDOW), told(12, 13, 13), told(12, 0, 13)),
        (start.after(Duration::DAY), told(12, 0, 13), told(0, 0, 0)),
    ] {
        world.set_clock(just_before(until));
        assert_eq!(left(&world, &agent).await, at_last);
        world.set_clock(until);
        assert_eq!(left(&world, &agent).await, afterwards);
    }

    world.authorize(&agent, &body_of(world.offer(dollars(1)))).await.ok();
    let lower = SpendPolicy {
        max_per_day: units(1),
        ..SpendPolicy::spec_defaults()
    };
    world.enable(&agent, "lab-search", lower).await;
    let Value::Array(now) = left(&world, &agent).await else {
        panic!()
    };
    assert_eq!(now[..2], [json!(dollars(1)), json!(0)]);

    let mut never = body_of(world.offer(1));
    never["service_id"] = "lab-weather".into();
    let check = world.check(&agent, &never).await.ok();
    assert_eq!(
        (
            &check["reason"],
            &check["spend_today_units"],
            &check["remaining_today_units"]
        ),
        (&json!("service_not_enabled"), &json!(0), &json!(0))
    );
    assert_eq!(check["budgets"], now[2], "budgets are the agent's");
}

#[tokio::test(flavor = "multi_thread")]
async fn unpayable_services_are_listed_with_a_reason() {
    let world = World::still().await;
    let agent = world.poor_agent(vec![]).await;
    let entry = service_entry("news", &[operation_entry("news.read", "https://news.example/x")]);
    let (id, _) = world.enter(&entry).await;
    world.pass(DUE);
    world.enable(&agent, "news", SpendPolicy::permissive()).await;
    let gone = EnabledService {
        service: ServiceId::from_uuid(uuid::Uuid::new_v4()),
        version: 1,
        enabled: true,
        policy: SpendPolicy::permissive(),
    };
    let stored = world
        .stack
        .ledger
        .put_policy(agent.id, &gone, &purser_testkit::sample::audit())
        .await
        .unwrap();
    assert_eq!(stored, UpdateResult::Stored);

    let list = format!("/mcp/agents/{}/services", agent.id);
    let told = async |service: &str| {
        let services = world.get(&agent, &list).await.ok();
        let services = services["services"].as_array().unwrap();
        let listed = services.iter().find(|listed| listed["service_id"] == service);
        let policy = world
            .get(&agent, &agent.path(&format!("/services/{service}/policy")))
            .await
            .ok();
        let [policy, listed] =
            [Some(&policy), listed].map(|told| told.map(|told| json!([told["enabled"], told["unavailable_reason"]])));
        (policy.unwrap(), listed)
    };
    let authorized = async |service: &str| {
        let mut body = body_of(world.offer(1));
        body["service_id"] = service.into();
        body["original_request"]["url"] = json!("https://news.example/x");
        let answer = world.authorize(&agent, &body).await;
        (answer.status, answer.slug().to_owned())
    };
    let set = async |below: &str, body: Value| {
        let path = format!("/internal/services/{id}/{below}");
        world.operator_edits(Method::PUT, &path, &body).await.ok();
        world.pass(DUE);
    };
    let not_found = || (404, "service_not_found".to_owned());
    let unavailable = |reason: &str| (json!([false, reason]), Some(json!([false, reason])));

    let id_of_gone = gone.service.to_string();
    assert_eq!(told(&id_of_gone).await, unavailable("not_in_catalog"));
    assert_eq!(authorized(&id_of_gone).await, not_found());

    let usable = (json!([true, null]), Some(json!([true, null])));
    assert_eq!(told(&id).await, usable);
    assert_ne!(authorized(&id).await, not_found());
    set("curated", json!({"curated": false})).await;
    assert_eq!(told(&id).await, unavailable("not_curated"));
    assert_eq!(authorized(&id).await, not_found());
    set("trust-status", json!({"trust_status": "disabled"})).await;
    assert_eq!(told(&id).await, unavailable("disabled_in_catalog"));
    set("curated", json!({"curated": true})).await;
    assert_eq!(told(&id).await, unavailable("disabled_in_catalog"));
    assert_eq!(authorized(&id).await, not_found());

    // `disabled_for_agent` is shown only for services that the catalog allows.
    world.put_policy(&agent, "news", false, SpendPolicy::permissive()).await;
    assert_eq!(told(&id).await, (json!([false, "disabled_in_catalog"]), None));
    set("trust-status", json!({"trust_status": "listed"})).await;
    assert_eq!(told(&id).await, (json!([false, "disabled_for_agent"]), None));
    assert_eq!(authorized(&id).await, (403, "service_not_enabled".to_owned()));
    world.enable(&agent, "news", SpendPolicy::permissive()).await;
    assert_eq!(told(&id).await, usable);
}
