//! Tests of the users' commands for policies in a file.

use crate::home::{Home, SESSION};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method as Verb, request::Parts};
use axum::response::Response;
use purser_local::DEMO_STRANGER;
use purser_tests::{Person, World};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The path of a policy template in the documentation.
const SAFE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies/safe.yaml");

/// Creates a home with the user's session token in the environment.
fn home_of(world: &World, person: &Person) -> Home {
    Home::without_key(world).with(SESSION, &person.token)
}

/// Creates an agent with labels, and returns the agent's id.
async fn agent(world: &World, person: &Person, name: &str, labels: &Value) -> String {
    let body = json!({"name": name});
    let made = world.person_edits(person, Method::POST, "/agents", &body).await;
    let id = made.created()["agent_id"].as_str().unwrap().to_owned();
    let (path, body) = (format!("/agents/{id}"), json!({"labels": labels}));
    world.person_edits(person, Method::PATCH, &path, &body).await.ok();
    id
}

async fn policy(world: &World, person: &Person, agent: &str, service: &str) -> Value {
    let path = format!("/agents/{agent}/services/{service}");
    world.person_gets(person, &path).await.ok()["policy"].clone()
}

/// Returns the kinds of the agent's rules, and the limits of budget rules.
async fn rules(world: &World, person: &Person, agent: &str) -> Vec<(String, Value)> {
    let rules = world.person_gets(person, &format!("/agents/{agent}/rules")).await.ok();
    let rules = rules["rules"].as_array().unwrap().iter();
    rules
        .map(|rule| (rule["kind"].as_str().unwrap().to_owned(), rule["limit_units"].clone()))
        .collect()
}

fn budget(units: u64) -> (String, Value) {
    ("budget_limit".to_owned(), json!(units))
}

/// Neither a second run nor a run with the exported policies finds a difference.
#[tokio::test(flavor = "multi_thread")]
async fn the_safe_template_is_applied_once_and_exported_unchanged() {
    let world = World::start().await;
    let person = world.person(&DEMO_STRANGER);
    let home = home_of(&world, &person);
    let first = agent(&world, &person, "first", &json!({"team": "research"})).await;
    let second = agent(&world, &person, "second", &json!({})).await;
    let apply = async |more: &[&str]| {
        home.run(&[&["--json", "policy", "apply", "-f", SAFE], more].concat())
            .await
    };
    let before = world.rows_of("LedgerTable").await;

    let shown = apply(&["--dry-run"]).await;
    assert_eq!(shown.code, 8, "{shown:?}");
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    let services = world
        .person_gets(&person, &format!("/agents/{first}/services"))
        .await
        .ok();
    let services = services["count"].as_u64().unwrap();
    assert!(services > 1);
    // Each agent has one update per service, two budgets, and four other rules.
    let differences = 2 * (services + 6);
    assert_eq!(
        (&shown["differences"], &shown["written"]),
        (&json!(differences), &json!(0))
    );
    let edit = &shown["agents"][0]["edits"][0];
    assert_eq!(
        (&edit["by"], &edit["may_widen"], &edit["written"]),
        (&json!("safe"), &json!(false), &json!(false))
    );
    assert_eq!(edit["preview"]["preview"], true, "{edit}");
    let lines = home.run(&["policy", "apply", "-f", SAFE, "--dry-run"]).await;
    for line in [
        "lab-search max_per_call_units: 10000000000000 -> 1000000\n",
        &first,
        "rule budget_limit: null -> {",
        "0 decisions of the last 7 days would have another result",
    ] {
        assert!(lines.err.contains(line), "{line}: {lines:?}");
    }
    // The lower of the two new budgets makes the other budget redundant.
    let covered = "version: 1\npolicies:\n- {name: a, agents: {all: true}, rules: [\
                   {kind: budget_limit, limit_units: 9, window_seconds: 172800}, \
                   {kind: budget_limit, limit_units: 5, window_seconds: 172800}]}\n";
    std::fs::write(home.folder().join("covered.yaml"), covered).unwrap();
    let shown = home.run(&["policy", "apply", "-f", "covered.yaml", "--dry-run"]).await;
    let finding = "  is_covered_by: {\"kind\":\"budget_limit\",\"limit_units\":9,";
    assert!(shown.err.contains(finding), "{shown:?}");
    let unasked = apply(&[]).await;
    assert!(
        unasked.code == 1 && unasked.err.contains("--yes"),
        "nobody can be asked: {unasked:?}"
    );
    assert_eq!(world.rows_of("LedgerTable").await.changes_since(&before), [""; 0]);

    let written = apply(&["--yes", "--reason", "a safe start"]).await.json();
    let log = world.person_gets(&person, "/audit-log").await.ok();
    assert_eq!(log["entries"][0]["edit_reason"], "a safe start");
    assert_eq!(
        (&written["differences"], &written["written"]),
        (&json!(differences), &json!(differences))
    );
    for id in [&first, &second] {
        let expected = json!({
            "max_per_call_units": 1_000_000, "max_per_day_units": 10_000_000, "require_approval_above_units": 2_000_000,
            "enabled_operations": null, "allowed_domains": ["*"],
        });
        assert_eq!(policy(&world, &person, id, "lab-search").await, expected);
        let found = rules(&world, &person, id).await;
        assert_eq!(found[..2], [budget(20_000_000), budget(200_000_000)]);
        let kinds: Vec<&str> = found[2..].iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(
            kinds,
            ["count_limit", "duplicate_guard", "new_payee", "price_above_usual"]
        );
    }
    assert_eq!(apply(&["--dry-run"]).await.json()["differences"], 0, "it is so now");

    // The two agents have the same limits, so the export has one policy for both.
    for (file, options) in [
        ("now.yaml", vec!["policy", "export"]),
        ("now.json", vec!["--json", "policy", "export"]),
    ] {
        let exported = home.run(&options).await.done();
        assert_eq!(exported.matches(&first).count(), 1, "{exported}");
        assert_eq!(
            exported.matches("max_per_call_units").count(),
            usize::try_from(services).unwrap()
        );
        std::fs::write(home.folder().join(file), exported).unwrap();
        let same = home
            .run(&["--json", "policy", "apply", "-f", file, "--dry-run"])
            .await
            .json();
        assert_eq!(
            (&same["differences"], &same["notes"]),
            (&json!(0), &json!([])),
            "{file}"
        );
    }
    let one = home
        .run(&["--json", "policy", "export", "--agent", "second"])
        .await
        .json();
    assert_eq!(one["policies"][0]["agents"], json!({"ids": [second]}));
    let unknown = home.run(&["policy", "export", "--agent", "third"]).await;
    assert!(unknown.code == 1 && unknown.err.contains("third"), "{unknown:?}");
}

/// Unit tests cover the kinds of rules and the precedence of keys and policies.
#[tokio::test(flavor = "multi_thread")]
async fn policy_files_are_applied_up_to_the_first_rejection() {
    let world = World::still().await;
    let person = world.person(&DEMO_STRANGER);
    let home = home_of(&world, &person);
    let id = agent(&world, &person, "buyer", &json!({"team": "research"})).await;
    let other = agent(&world, &person, "other", &json!({})).await;
    for service in ["lab-weather", "lab-scrape"] {
        let path = format!("/agents/{id}/services/{service}");
        world
            .person_edits(&person, Method::PATCH, &path, &json!({"max_per_day_units": 5}))
            .await
            .ok();
    }
    let file = home.folder().join("policies.yaml");
    let apply = async |home: &Home, more: &[&str]| {
        home.run(&[&["--json", "policy", "apply", "-f", "policies.yaml"], more].concat())
            .await
    };
    let text = "
version: 1
policies:
  - name: everyone
    agents: {labels: {team: research}}
    services:
      '*': {max_per_call_units: 7}
      lab-nowhere: {max_per_call_units: 7}
    rules: [{kind: budget_limit, limit_units: 3, window_seconds: 3600}]
  - name: buyer
    agents: {names: [buyer]}
    services: {lab-search: {max_per_call_units: 6}}
    rules:
      - {kind: approval_required, services: [lab-search]}
      - {kind: budget_limit, limit_units: 4, window_seconds: 3600}
  - {name: nobody, agents: {labels: {team: none}}}
";
    std::fs::write(&file, text).unwrap();
    let written = apply(&home, &["--yes"]).await.json();
    let overrides = json!([{"by": "buyer", "of": "everyone", "at": ["lab-search", "rules"], "agents": 1}]);
    assert_eq!(written["overrides"], overrides);
    let notes = [
        "everyone: lab-nowhere names no service of its agents",
        "nobody: no agent follows this policy",
    ];
    assert_eq!(written["notes"], json!(notes));
    assert_eq!(
        policy(&world, &person, &id, "lab-search").await["max_per_call_units"],
        6
    );
    assert_eq!(
        policy(&world, &person, &id, "lab-weather").await["max_per_call_units"],
        7
    );
    assert_ne!(
        policy(&world, &person, &other, "lab-weather").await["max_per_call_units"],
        7
    );
    let asks = ("approval_required".to_owned(), Value::Null);
    assert_eq!(rules(&world, &person, &id).await, [asks.clone(), budget(4)]);

    // The sign-in is more than ten minutes old, so widening updates are rejected.
    world.pass(601);
    let text = text
        .replace(
            "'*': {max_per_call_units: 7}",
            "lab-scrape: {max_per_day_units: 4}\n      lab-weather: {max_per_day_units: 9}",
        )
        .replace("limit_units: 4", "limit_units: 2");
    std::fs::write(&file, &text).unwrap();
    let refused = apply(&home, &["--yes"]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    let told = refused.error_json()["problems"].to_string();
    for problem in [
        &format!("written: buyer ({id}): lab-scrape"),
        &format!("refused: buyer ({id}): lab-weather: "),
        "recent_sign_in_required",
        "PURSER_SESSION_TOKEN",
        &format!("not written: buyer ({id}): rule budget_limit"),
    ] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    let answer: Value = serde_json::from_str(&refused.out).unwrap();
    let edits = answer["agents"][0]["edits"].as_array().unwrap();
    let of = |name: &str| edits.iter().map(|edit| edit[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("written"), [json!(true), json!(false), json!(false)]);
    assert_eq!(of("may_widen"), [json!(false), json!(true), json!(false)]);
    assert_eq!(edits[1]["error"]["error"], "recent_sign_in_required");
    assert_eq!(policy(&world, &person, &id, "lab-scrape").await["max_per_day_units"], 4);
    assert_eq!(
        policy(&world, &person, &id, "lab-weather").await["max_per_day_units"],
        5
    );
    assert_eq!(rules(&world, &person, &id).await, [asks.clone(), budget(4)]);

    // After a new sign-in, the same command writes the remaining updates.
    let again = home_of(&world, &world.person(&DEMO_STRANGER));
    std::fs::write(again.folder().join("policies.yaml"), &text).unwrap();
    let rest = apply(&again, &["--yes"]).await.json();
    assert_eq!((&rest["differences"], &rest["written"]), (&json!(2), &json!(2)));
    assert_eq!(
        policy(&world, &person, &id, "lab-weather").await["max_per_day_units"],
        9
    );
    assert_eq!(rules(&world, &person, &id).await, [asks, budget(2)]);
}

/// An agent's safe starting limits equal the template in the documentation.
#[tokio::test(flavor = "multi_thread")]
async fn the_safe_starting_limits_equal_the_safe_template() {
    let world = World::start().await;
    let person = world.person(&DEMO_STRANGER);
    let body = json!({"name": "buyer", "limits": "safe"});
    let made = world.person_edits(&person, Method::POST, "/agents", &body).await;
    made.created();
    let home = home_of(&world, &person);
    let shown = home.run(&["--json", "policy", "apply", "-f", SAFE, "--dry-run"]).await;
    assert_eq!(shown.json()["differences"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_policy_file_changes_nothing() {
    let world = World::start().await;
    let person = world.person(&DEMO_STRANGER);
    let home = home_of(&world, &person);
    let id = agent(&world, &person, "buyer", &json!({})).await;
    let apply = ["--json", "policy", "apply", "-f", "policies.yaml"];
    let before = world.rows_of("LedgerTable").await;
    let rows = [
        (
            "agents: {all: true}, services: {'*': {max_per_dya_units: 1}}",
            "max_per_dya_units is no member",
        ),
        (
            "agents: {names: [buyer, nobody]}, rules: []",
            "there is no agent nobody",
        ),
        ("agents: {all: true}, rule: []", "/policies/0/rule: is no member"),
        // The preview rejects this rule, so the valid update before it is not written either.
        (
            "agents: {all: true}, services: {lab-search: {max_per_call_units: 1}}, \
             rules: [{kind: count_limit, count: 0, window_seconds: 3600}]",
            "rule count_limit",
        ),
    ];
    for (policy, problem) in rows {
        let text = format!("version: 1\npolicies:\n- {{name: a, {policy}}}\n");
        std::fs::write(home.folder().join("policies.yaml"), text).unwrap();
        for last in ["--yes", "--dry-run"] {
            let refused = home.run(&[&apply[..], &[last]].concat()).await;
            assert_eq!(refused.code, 1, "{refused:?}");
            assert!(
                refused.error_json()["problems"].to_string().contains(problem),
                "{problem}: {refused:?}"
            );
        }
    }
    assert_eq!(world.rows_of("LedgerTable").await.changes_since(&before), [""; 0]);

    // The command runs without a session token, with an invalid token, and with an agent key.
    let (path, body) = (format!("/agents/{id}/keys"), json!({}));
    let key = world.person_edits(&person, Method::POST, &path, &body).await.created();
    let key = key["key"].as_str().unwrap().to_owned();
    let rows = [
        (None, SESSION),
        (Some("two words"), "8,192 characters"),
        (Some("a.b.c"), "invalid_session"),
        (Some(key.as_str()), "invalid_session"),
    ];
    for (token, problem) in rows {
        let home = Home::without_key(&world);
        let home = match token {
            Some(token) => home.with(SESSION, token),
            None => home,
        };
        let refused = home.run(&["policy", "export"]).await;
        assert!(
            refused.code == 1 && refused.err.contains(problem),
            "{problem}: {refused:?}"
        );
    }
}

/// Forwards requests to Purser. Before the first PATCH request, the user updates the same service.
async fn interposed(world: &Arc<World>, person: &Person, id: &str) -> String {
    let (world, person, path) = (
        world.clone(),
        person.clone(),
        format!("/agents/{id}/services/lab-search"),
    );
    let is_done = Arc::new(AtomicBool::new(false));
    let relay = move |parts: Parts, body: Bytes| {
        let (world, person, path, is_done) = (world.clone(), person.clone(), path.clone(), is_done.clone());
        async move {
            if parts.method == Verb::PATCH && !is_done.swap(true, SeqCst) {
                let body = json!({"max_per_call_units": 1});
                world.person_edits(&person, Method::PATCH, &path, &body).await.ok();
            }
            let mut headers = parts.headers;
            headers.remove("host");
            let url = format!("{}{}", world.stack.base_url, parts.uri);
            let answer = world.http.request(parts.method, url).headers(headers).body(body);
            let answer = answer.send().await.unwrap();
            let response = Response::builder().status(answer.status());
            response.body(Body::from(answer.bytes().await.unwrap())).unwrap()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(relay)).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_policy_update_is_not_overwritten() {
    let world = Arc::new(World::start().await);
    let person = world.person(&DEMO_STRANGER);
    let id = agent(&world, &person, "buyer", &json!({})).await;
    let home = Home::at(&interposed(&world, &person, &id).await).with(SESSION, &person.token);
    let text = "{\"version\": 1, \"policies\": [{\"name\": \"a\", \"agents\": {\"all\": true},
        \"services\": {\"lab-search\": {\"max_per_call_units\": 3}}}]}";
    std::fs::write(home.folder().join("policies.json"), text).unwrap();
    let apply = ["policy", "apply", "-f", "policies.json", "--yes"];
    let refused = home.run(&apply).await;
    assert!(
        refused.code == 1 && refused.err.contains("version_conflict") && refused.err.contains("repeat the command"),
        "{refused:?}"
    );
    assert_eq!(
        policy(&world, &person, &id, "lab-search").await["max_per_call_units"],
        1
    );
    home.run(&apply).await.done();
    assert_eq!(
        policy(&world, &person, &id, "lab-search").await["max_per_call_units"],
        3
    );
}
