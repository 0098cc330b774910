//! Tests that every route of the OpenAPI document rejects every other kind of credential.

use purser_domain::Duration;
use purser_local::{DEMO_OWNER, DEMO_STRANGER, Issuer};
use purser_tests::{Answer, World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The route's first security scheme in the OpenAPI document; `None` if the route is public.
    pub(crate) scheme: Option<String>,
    /// Whether the route accepts both an owner's session and an agent's API key.
    pub(crate) takes_both: bool,
    /// The route's OpenAPI operation object.
    pub(crate) operation: Value,
}

impl Route {
    pub(crate) fn names(&self) -> Vec<&str> {
        let parts = self.path.split('/');
        parts
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .collect()
    }

    pub(crate) fn takes(&self, name: &str) -> bool {
        let mut parameters = self.operation["parameters"].as_array().into_iter().flatten();
        parameters.any(|parameter| parameter["in"] == "query" && parameter["name"] == name)
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let document: Value = serde_json::from_str(&purser_local::openapi().unwrap()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut routes = Vec::new();
    // `mcp.rs`, `functions/oauth/tests` and `functions/dashboard/tests/api/connect.rs` test the routes of MCP and
    // OAuth.
    let is_tested_here = |path: &str| path != "/mcp" && !path.starts_with("/oauth/");
    for (path, methods) in paths.iter().filter(|(path, _)| is_tested_here(path)) {
        for (method, operation) in methods.as_object().unwrap() {
            let scheme = operation["security"][0].as_object().map(|schemes| {
                assert_eq!(schemes.len(), 1, "{method} {path}");
                schemes.keys().next().unwrap().clone()
            });
            let schemes = operation["security"].as_array().map_or(&[][..], Vec::as_slice);
            let takes_both = schemes.len() == 2;
            assert!(
                schemes.len() < 2 || (takes_both && schemes[1]["session"].is_array()),
                "{method} {path}"
            );
            routes.push(Route {
                takes_both,
                method: method.to_ascii_uppercase().parse().unwrap(),
                path: path.clone(),
                scheme,
                operation: operation.clone(),
            });
        }
    }
    assert!(
        routes.len() > 40,
        "only {} routes: is this test still looking?",
        routes.len()
    );
    routes
}

/// `people::statements` tests this route, because a world without a statement log has no statements.
pub(crate) const STATED_LATER: &str = "/x402/decisions/{transactionId}/statement";

/// Returns a world, and a value for each path parameter that names an existing object of the demo owner.
pub(crate) async fn world_with_everything() -> (World, BTreeMap<&'static str, String>) {
    let world = World::start().await;
    let owner = world.person(&DEMO_OWNER);
    world.browser_session(&DEMO_OWNER).await;
    let demo = world.demo();
    let agent = format!("/agents/{}", demo.id);
    let tight = json!({"max_per_call_units": dollars(100), "require_approval_above_units": dollars(5)});
    world
        .person_edits(&owner, Method::PATCH, &format!("{agent}/services/lab-search"), &tight)
        .await
        .ok();
    let paid = world.authorize(&demo, &body_of(world.offer(dollars(1)))).await.ok();
    let asked = world
        .authorize(&demo, &body_of(world.offer(dollars(6))))
        .await
        .refused(402, "approval_required");
    let rule = json!({"kind": "category_block", "categories": ["finance"]});
    let rule = world
        .person_edits(&owner, Method::POST, &format!("{agent}/rules"), &rule)
        .await;
    assert_eq!(rule.status, 201, "{}", rule.body);
    let keys = world.person_gets(&owner, &format!("{agent}/keys")).await.ok();
    let sessions = world.person_gets(&owner, "/sessions").await.ok();
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value} is a text")).to_owned();
    let (webhook, delivery) = world.webhook_of(&owner).await;
    let limits = json!({"services": {"lab-search": {"max_per_day_units": dollars(999)}}});
    let made = world.persons_request(&owner, Method::PUT, "/policy-templates/research");
    World::send(made.json(&limits)).await.created();
    let names = [
        ("backtestId", world.backtest_of(&owner).await),
        ("webhookId", webhook),
        ("deliveryId", delivery),
        ("agentId", demo.id.to_string()),
        ("keyId", text(&keys["keys"][0]["key_id"])),
        ("person", text(&sessions["person"])),
        (
            "operationId",
            world.service("lab-search").await.operations[0].id.to_string(),
        ),
        ("serviceId", "lab-search".to_owned()),
        ("version", "1".to_owned()),
        ("ruleId", text(&rule.body["rule_id"])),
        ("approvalId", text(&asked["approval_id"])),
        ("id", text(&asked["approval_id"])),
        ("transactionId", text(&asked["transaction_id"])),
        ("sessionId", world.newest_session(&owner).await),
        ("settlementId", text(&paid["settlement_id"])),
        ("templateName", "research".to_owned()),
    ];
    (world, names.into())
}

fn filled(path: &str, names: &BTreeMap<&str, String>) -> String {
    let mut filled = path.to_owned();
    for (name, value) in names {
        filled = filled.replace(&format!("{{{name}}}"), value);
    }
    assert!(
        !filled.contains('{'),
        "{path} has a parameter that this test does not know"
    );
    filled
}

/// Calls a route with these headers. A route that takes a body gets an empty object.
async fn call(world: &World, route: &Route, path: &str, headers: &[(&str, String)]) -> Answer {
    // The routes without an agent in the path read the decision history, so the history must be complete.
    assert_eq!(world.stack.aggregate_history().await, 0);
    let mut request = world
        .http
        .request(route.method.clone(), format!("{}{path}", world.stack.base_url));
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    if matches!(route.method, Method::POST | Method::PUT | Method::PATCH) {
        request = request.json(&json!({}));
    }
    World::send(request).await
}

/// Returns the header with the credential of the caller for whom the route is.
fn credential(world: &World, route: &Route) -> (&'static str, String) {
    let bearer = |token: &str| ("authorization", format!("Bearer {token}"));
    match route.scheme.as_deref() {
        Some("agentKey") => bearer(&world.demo().key),
        Some("session") => bearer(&world.stack.issuer.token(&DEMO_OWNER)),
        Some(_) => ("x-internal-token", world.stack.internal_token.clone()),
        None => ("accept", "*/*".to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_without_a_body_reject_requests_with_a_body() {
    let (world, names) = world_with_everything().await;
    let before = world.rows().await;
    let without_body = routes()
        .into_iter()
        .filter(|route| route.operation.get("requestBody").is_none());
    let mut count = 0;
    for route in without_body {
        let (name, value) = credential(&world, &route);
        let url = format!("{}{}", world.stack.base_url, filled(&route.path, &names));
        for (body, problem) in [
            (r#"{"owner": "x", "amount_units": 1}"#, "/owner"),
            (r#"{"a": {}}"#, "/a"),
            ("[]", ""),
            ("null", ""),
            ("\"x\"", ""),
            ("owner=x", ""),
        ] {
            let request = world.http.request(route.method.clone(), &url).header(name, &value);
            let answer = World::send(request.header("if-match", "*").body(body)).await;
            let problems = answer.refused(400, "invalid_request")["details"].clone();
            let problems = problems.as_array().unwrap();
            let found = problems.iter().any(|found| found["path"] == problem);
            assert!(found, "{} {url} {body}: {problems:?}", route.method);
            count += 1;
        }
        assert!(
            route.operation["responses"].get("400").is_some(),
            "{} {url}",
            route.method
        );
    }
    assert!(count > 400, "only {count} calls: is this test still looking?");
    assert_eq!(world.rows().await.changes_since(&before), Vec::<String>::new());
}

/// An update with `?preview=true` must not be carried out if the route has no preview.
#[tokio::test(flavor = "multi_thread")]
async fn routes_reject_unknown_query_parameters() {
    let (world, names) = world_with_everything().await;
    let before = world.rows().await;
    let mut count = 0;
    for route in routes() {
        let parameters = route.operation["parameters"].as_array().cloned().unwrap_or_default();
        let known = |name: &str| {
            parameters
                .iter()
                .any(|known| known["in"] == "query" && known["name"] == name)
        };
        let credential = credential(&world, &route);
        for name in ["preview", "edit_reason", "limit", "cursor", "Limit", "x"] {
            if known(name) {
                continue;
            }
            let path = format!("{}?{name}=true&{name}=1", filled(&route.path, &names));
            let answer = call(
                &world,
                &route,
                &path,
                &[credential.clone(), ("if-match", "*".to_owned())],
            )
            .await;
            let problems = answer.refused(400, "invalid_request")["details"].clone();
            let problem = json!([{"path": format!("/{name}"), "message": "is not a parameter of this route"}]);
            assert_eq!(problems, problem, "{} {path}", route.method);
            count += 1;
        }
    }
    assert!(count > 500, "only {count} calls: is this test still looking?");
    assert_eq!(world.rows().await.changes_since(&before), Vec::<String>::new());
}

/// Returns invalid session tokens, each with the reason.
fn bad_tokens(world: &World) -> Vec<(&'static str, String)> {
    let issuer = &world.stack.issuer;
    let hour = Duration::from_secs_u32(3_600);
    let changed = |name: &str, value: Value| {
        let mut claims = issuer.claims(&DEMO_OWNER, hour);
        claims[name] = value;
        issuer.sign(&claims)
    };
    let good = issuer.token(&DEMO_OWNER);
    let [header, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else {
        panic!("{good}")
    };
    let stranger = Issuer::new(issuer.url(), &world.stack.base_url, world.stack.clock.clone());
    let now = world.now().secs();
    // The JOSE header `{"alg":"none","typ":"JWT"}` of an unsigned token.
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    vec![
        ("expired", changed("exp", json!(now - 3_600))),
        ("not yet valid", changed("nbf", json!(now + 3_600))),
        ("without an end", changed("exp", Value::Null)),
        ("wrong issuer", changed("iss", json!("https://issuer.example"))),
        ("wrong audience", changed("aud", json!("somebody-else"))),
        ("wrongly signed", stranger.token(&DEMO_OWNER)),
        ("alg none", format!("{none}.{payload}.")),
        ("alg none with a signature", format!("{none}.{payload}.{signature}")),
        ("signature of another text", format!("{header}.{payload}A.{signature}")),
        ("an access token", changed("token_use", json!("access"))),
        ("no token at all", "x".to_owned()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_rejects_credentials_of_another_kind() {
    let (world, names) = world_with_everything().await;
    let bearer = |token: &str| vec![("authorization", format!("Bearer {token}"))];
    let agent_key = bearer(&world.demo().key);
    let session = bearer(&world.stack.issuer.token(&DEMO_OWNER));
    let stranger = bearer(&world.stack.issuer.token(&DEMO_STRANGER));
    let internal = vec![("x-internal-token", world.stack.internal_token.clone())];
    let tokens = bad_tokens(&world);
    let before = world.rows().await;

    for route in routes() {
        let path = filled(&route.path, &names);
        let expect = async |why: &str, headers: &[(&str, String)], status: u16, slug: &str| {
            let answer = call(&world, &route, &path, headers).await;
            let seen = (answer.status, answer.slug());
            assert_eq!(seen, (status, slug), "{} {path}, {why}: {}", route.method, answer.body);
        };
        match route.scheme.as_deref() {
            None => {
                let answer = call(&world, &route, &path, &[]).await;
                assert_eq!(answer.status, 200, "{} {path}", route.method);
            }
            Some("agentKey") => {
                expect("nothing", &[], 401, "invalid_agent_key").await;
                expect("the internal token", &internal, 401, "invalid_agent_key").await;
                let wrong_key = bearer(&format!("{}0", world.demo().key));
                expect("another key", &wrong_key, 401, "invalid_agent_key").await;
                if !route.takes_both {
                    expect("a session", &session, 401, "invalid_authorization_header").await;
                    continue;
                }
                let answer = call(&world, &route, &path, &session).await;
                assert_eq!(answer.status, 200, "{path}: {}", answer.body);
                expect("somebody else", &stranger, 404, "not_found").await;
                for (why, token) in &tokens {
                    // A token without two dots counts as an API key.
                    let is_a_session = token.split('.').count() == 3;
                    let slug = ["invalid_authorization_header", "invalid_session"][usize::from(is_a_session)];
                    expect(why, &bearer(token), 401, slug).await;
                }
                let with_colon = bearer(&format!("{}:x", world.stack.issuer.token(&DEMO_OWNER)));
                expect("a session with a colon", &with_colon, 401, "invalid_agent_key").await;
            }
            Some("session") => {
                expect("nothing", &[], 401, "invalid_session").await;
                expect("an agent key", &agent_key, 401, "invalid_session").await;
                expect("the internal token", &internal, 401, "invalid_session").await;
                for (why, token) in &tokens {
                    expect(why, &bearer(token), 401, "invalid_session").await;
                }
                if route.method == Method::PUT && route.path == "/policy-templates/{templateName}" {
                    // Any signed-in user may call this route.
                    continue;
                }
                if [
                    "{agentId}",
                    "{backtestId}",
                    "{templateName}",
                    "{transactionId}",
                    "{webhookId}",
                ]
                .iter()
                .any(|name| route.path.contains(name))
                {
                    expect("somebody else", &stranger, 404, "not_found").await;
                } else if route.method == Method::GET {
                    let answer = call(&world, &route, &path, &stranger).await.ok();
                    if route.path == "/notices" {
                        assert_eq!(
                            (&answer["version"], &answer["slack"]),
                            (&Value::from(0), &Value::Null),
                            "{answer}"
                        );
                        continue;
                    }
                    assert_eq!(answer["count"], 0, "{path}: {answer}");
                }
            }
            Some("internalToken") => {
                expect("nothing", &[], 401, "invalid_internal_token").await;
                expect("an agent key", &agent_key, 401, "invalid_internal_token").await;
                expect("a session", &session, 401, "invalid_internal_token").await;
                let wrong = [("x-internal-token", "x".repeat(64))];
                expect("another token", &wrong, 401, "invalid_internal_token").await;
            }
            Some(other) => panic!("{} {path}: nobody knows the scheme {other}", route.method),
        }
    }
    assert_eq!(world.rows().await.changes_since(&before), Vec::<String>::new());
}

/// Calls every read route with the right credential, which proves that the path parameters above are valid.
#[tokio::test(flavor = "multi_thread")]
async fn every_read_route_accepts_its_own_kind_of_credentials() {
    let (world, names) = world_with_everything().await;
    let demo = world.demo();
    let session = world.stack.issuer.token(&DEMO_OWNER);
    let owner = world.person(&DEMO_OWNER);
    let shadow = json!({"rules": []});
    let path = demo.path("/shadow");
    world.person_edits(&owner, Method::PUT, &path, &shadow).await.ok();
    for route in routes().iter().filter(|route| route.method == Method::GET) {
        let path = filled(&route.path, &names);
        let headers: Vec<(&str, String)> = match route.scheme.as_deref() {
            None => Vec::new(),
            Some("agentKey") => vec![("authorization", format!("Bearer {}", demo.key))],
            Some("session") => vec![("authorization", format!("Bearer {session}"))],
            Some(_) => vec![("x-internal-token", world.stack.internal_token.clone())],
        };
        let path = if route.path.starts_with("/internal/") {
            path.replace("lab-search", &world.service("lab-search").await.id.to_string())
        } else {
            path
        };
        let answer = call(&world, route, &path, &headers).await;
        if route.path == STATED_LATER {
            answer.refused(404, "not_found");
        } else {
            answer.ok();
        }
    }
}

/// The issuer publishes two keys and has withdrawn a third.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_survive_issuer_key_rotation() {
    let world = World::still().await;
    let before = world.person(&DEMO_OWNER);
    world.person_gets(&before, "/agents").await.ok();
    world.stack.issuer.rotate_key();
    let after = world.person(&DEMO_OWNER);
    // For a token with an unknown key, a function reads the issuer's keys at most every 30 seconds.
    world.set_clock(world.now().after(Duration::from_secs_u32(31)));
    world.person_gets(&after, "/agents").await.ok();
    world.person_gets(&before, "/agents").await.ok();
}

/// A removed operator's token stops working within a minute.
#[tokio::test(flavor = "multi_thread")]
async fn removed_operators_lose_access() {
    let world = World::still().await;
    let ask = async |token: &str| {
        let request = world.http.get(format!("{}/internal/services", world.stack.base_url));
        World::send(request.header("x-internal-token", token)).await
    };
    let first = world.stack.internal_token.clone();
    ask(&first).await.ok();
    let second = "s".repeat(64);
    let later = async || world.set_clock(world.now().after(Duration::from_secs_u32(61)));
    world.stack.set_operators(&[("ada", &first), ("bob", &second)]);
    later().await;
    ask(&second).await.ok();
    ask(&first).await.ok();
    world.stack.set_operators(&[("bob", &second)]);
    later().await;
    ask(&second).await.ok();
    ask(&first).await.refused(401, "invalid_internal_token");
}
