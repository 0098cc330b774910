//! Tests the consent to OAuth clients, and attacks on the consent page.

use crate::laws::HOSTILE;
use crate::support::browser::{Browser, ORIGIN, Seen};
use crate::support::{OAUTH_SECRET, World};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, header};
use axum::response::Redirect;
use axum::routing::get;
use purser_api::{AllowedHosts, UntrustedHttpClient};
use purser_domain::{
    AccessToken, Agent, AgentId, ClientId, ClientMetadata, ClientName, DeviceCode, DeviceRequest, DeviceState,
    Fingerprint, GrantCode, GrantRecord, KeyId, NewGrantCode, OAuthKey, PkceChallenge, RedirectUri, RefreshToken,
    SecretDigest, UserCode,
};
use purser_testkit::sample::service_id;
use purser_testkit::{Fate, Moment, serve};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tower::ServiceExt as _;
use url::{Url, form_urlencoded};

const CALLBACK: &str = "https://claude.example/api/mcp/auth_callback";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

fn oauth_key() -> OAuthKey {
    OAuthKey::from_secret(OAUTH_SECRET).unwrap()
}

/// Registers a client and returns the id.
fn register(world: &World, name: &str, uris: &[&str]) -> ClientId {
    let document = json!({"client_name": name, "redirect_uris": uris});
    let client = ClientMetadata::from_document(document.as_object().unwrap()).unwrap();
    oauth_key().register_client(&client, world.now()).unwrap()
}

/// Returns the URL of a request. An empty value in `changes` removes the parameter.
fn request(client: &str, changes: &[(&str, &str)]) -> String {
    let mut parameters = BTreeMap::from([
        ("client_id", client),
        ("redirect_uri", CALLBACK),
        ("response_type", "code"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("state", "a b&c"),
        ("resource", "http://127.0.0.1:3000/mcp"),
        ("scope", "read pay"),
    ]);
    parameters.extend(changes.iter().copied());
    parameters.retain(|_, value| !value.is_empty());
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish();
    format!("/dashboard/connect?{query}")
}

/// The fields of a form that allows everything to this agent.
fn allow(agent: &str) -> Vec<(&str, &str)> {
    vec![
        ("agent", agent),
        ("name", "helper"),
        ("may", "read"),
        ("may", "pay"),
        ("per_day", "10"),
        ("services", ""),
        ("expires_days", "30"),
        ("decision", "allow"),
    ]
}

fn with<'a>(mut fields: Vec<(&'a str, &'a str)>, name: &str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    for field in fields.iter_mut().filter(|field| field.0 == name) {
        field.1 = value;
    }
    fields
}

/// Returns the parameters that the client receives.
#[track_caller]
fn received(seen: &Seen, uri: &str) -> BTreeMap<String, String> {
    let url = Url::parse(seen.leads()).unwrap();
    assert!(url.as_str().starts_with(&format!("{uri}?")), "{url}");
    url.query_pairs().into_owned().collect()
}

async fn keys(world: &World, agent: &str) -> Vec<Value> {
    let list = world.get("ann", &format!("/agents/{agent}/keys")).await.ok();
    list["keys"].as_array().unwrap().clone()
}

async fn audit(world: &World, kind: &str) -> Vec<Value> {
    let log = world.get("ann", &format!("/audit-log?kind={kind}")).await.ok();
    log["entries"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_consent_gives_a_client_a_limited_grant_of_one_agent() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let client = register(&world, "Claude", &[CALLBACK]);
    let address = request(client.as_str(), &[]);
    let mut ann = world.browser("ann").await;
    let page = ann.get(&address).await;
    page.is(200, "claude.example");
    page.is(200, "Purser has not verified the name");
    let fields = with(allow(&agent), "services", "lab");
    let seen = ann.post(&address, &address, &fields).await;
    let told = received(&seen, CALLBACK);
    assert_eq!((&*told["state"], &*told["iss"]), ("a b&c", ORIGIN));

    let listed = keys(&world, &agent).await;
    let [grant] = &*listed else { panic!("{listed:?}") };
    assert_eq!(
        (&grant["client_name"], &grant["redirect_host"]),
        (&json!("Claude"), &json!("claude.example"))
    );
    assert_eq!(grant["services"], json!([service_id(1).to_string()]));
    let end = world.now().after(purser_domain::Duration::from_secs_u32(30 * 86_400));
    assert_eq!(grant["expires_at"], end.to_string());
    let id = KeyId::parse(grant["key_id"].as_str().unwrap()).unwrap();

    let code = world
        .ledger
        .read_grant_code(&SecretDigest::from_secret(&told["code"]))
        .await;
    let code = code.unwrap().unwrap();
    assert_eq!((code.agent.to_string(), code.grant), (agent.clone(), id));
    assert_eq!(
        (code.client, code.redirect_uri.as_str()),
        (client.fingerprint(), CALLBACK)
    );

    let listed = rules(&world, &agent).await;
    let [budget] = &*listed else { panic!("{listed:?}") };
    assert_eq!(
        (
            &budget["kind"],
            &budget["limit_units"],
            &budget["window_seconds"],
            &budget["keys"]
        ),
        (
            &json!("budget_limit"),
            &json!(10_000_000),
            &json!(86_400),
            &json!([grant["key_id"]])
        )
    );

    let rows = audit(&world, "grant_created").await;
    assert_eq!((rows.len(), &rows[0]["object_id"]), (1, &grant["key_id"]));
    assert!(rows[0].to_string().contains("Claude"), "{}", rows[0]);
    ann.get(&format!("/dashboard/agents/{agent}"))
        .await
        .is(200, "An application that calls itself");
    ann.get("/dashboard/audit-log").await.is(200, "Allow an application");

    let rotate = format!("/agents/{agent}/keys/{id}/rotate");
    let rotated = world.edit("ann", "POST", &rotate, json!({"overlap_seconds": 0})).await;
    assert_eq!(rotated.status, 400);
    assert!(rotated.body.to_string().contains("is a grant"), "{}", rotated.body);
    world
        .edit("ann", "DELETE", &format!("/agents/{agent}/keys/{id}"), json!({}))
        .await
        .ok();
    // The budget of the grant ends with the grant.
    assert_eq!(rules(&world, &agent).await, [Value::Null; 0]);
    let rows = audit(&world, "key_revoked").await;
    let rule = format!("rules/{}", budget["rule_id"].as_str().unwrap());
    assert!(rows[0]["before"].get(&rule).is_some(), "{}", rows[0]);
}

async fn rules(world: &World, agent: &str) -> Vec<Value> {
    let list = world.get("ann", &format!("/agents/{agent}/rules")).await.ok();
    list["rules"].as_array().unwrap().clone()
}

#[tokio::test]
async fn grants_that_expired_unused_do_not_count_toward_grant_and_budget_limits() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let mut ann = world.browser("ann").await;
    let address = request(register(&world, "Claude", &[CALLBACK]).as_str(), &[]);
    let (id, used) = new_grant(&world, &mut ann, &agent).await;
    let end = world.now().after(GrantRecord::MAX_LIFETIME);
    let record = GrantRecord::new(id, used, Fingerprint::for_text("x"), world.now(), end);
    let code = GrantCode {
        digest: NewGrantCode::from_random([1; 32]).digest,
        agent: id,
        grant: used,
        client: Fingerprint::for_text("x"),
        redirect_uri: RedirectUri::parse(CALLBACK).unwrap(),
        challenge: PkceChallenge::parse(CHALLENGE).unwrap(),
        expires_at: world.now().after(GrantCode::LIFETIME),
        used_at: None,
    };
    world.ledger.add_grant_code(&code).await.unwrap();
    assert!(
        world
            .ledger
            .redeem_grant_code(&code, &record, world.now())
            .await
            .unwrap()
    );
    for _ in 1..Agent::MAX_GRANTS {
        new_grant(&world, &mut ann, &agent).await;
    }
    let full = ann.post(&address, &address, &allow(&agent)).await;
    full.is(400, "an agent has at most 10 grants that work; revoke one first");
    // The nine codes have expired unused.
    world.advance(600);
    let mut ann = world.browser("ann").await;
    received(&ann.post(&address, &address, &allow(&agent)).await, CALLBACK);
    let listed = keys(&world, &agent).await;
    let active: Vec<_> = listed.iter().filter(|key| key["status"] == "active").collect();
    assert_eq!((active.len(), &active[1]["key_id"]), (2, &json!(used.to_string())));
    assert_eq!(rules(&world, &agent).await.len(), 2);
    // The refresh token of a used grant has expired.
    world.advance(31 * 86_400);
    let mut ann = world.browser("ann").await;
    received(&ann.post(&address, &address, &allow(&agent)).await, CALLBACK);
    assert_eq!(rules(&world, &agent).await.len(), 1);
}

#[tokio::test]
async fn the_budget_of_an_expired_grant_does_not_count_toward_the_budget_limit() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let mut ann = world.browser("ann").await;
    let address = request(register(&world, "Claude", &[CALLBACK]).as_str(), &[]);
    let fields = with(allow(&agent), "expires_days", "1");
    received(&ann.post(&address, &address, &fields).await, CALLBACK);
    let path = format!("/agents/{agent}/rules");
    let budget = json!({"kind": "budget_limit", "limit_units": 5_000_000, "window_seconds": 86_400});
    for _ in 1..Agent::MAX_BUDGETS {
        world.edit("ann", "POST", &path, budget.clone()).await.created();
    }
    let message = "an agent has at most 10 budgets";
    let full = ann.post(&address, &address, &allow(&agent)).await;
    full.is(400, message);
    let rejected = world.edit("ann", "POST", &path, budget.clone()).await;
    assert!(rejected.body.to_string().contains(message), "{}", rejected.body);
    world.advance(86_400);
    world.edit("ann", "POST", &path, budget).await.created();
    let listed = rules(&world, &agent).await;
    assert_eq!(listed.len(), Agent::MAX_BUDGETS);
    assert!(listed.iter().all(|rule| rule["keys"].is_null()), "{listed:?}");
}

/// The response shows the added budget. The next update removes the budget.
#[tokio::test]
async fn a_budget_of_an_ended_grant_stays_until_the_next_update() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let mut ann = world.browser("ann").await;
    let address = request(register(&world, "Claude", &[CALLBACK]).as_str(), &[]);
    let fields = with(allow(&agent), "expires_days", "1");
    received(&ann.post(&address, &address, &fields).await, CALLBACK);
    world.advance(86_400);
    let grant = keys(&world, &agent).await.remove(0)["key_id"].clone();
    let path = format!("/agents/{agent}/rules");
    let mut budget = json!({"kind": "budget_limit", "limit_units": 7, "window_seconds": 86_400, "keys": [grant]});
    let added = world.edit("ann", "POST", &path, budget.clone()).await.created();
    assert_eq!(
        (&added["limit_units"], rules(&world, &agent).await.len()),
        (&json!(7), 1)
    );
    budget["limit_units"] = json!(6);
    let id = added["rule_id"].as_str().unwrap();
    let replaced = world.edit("ann", "PUT", &format!("{path}/{id}"), budget).await.ok();
    assert_eq!(
        (&replaced["limit_units"], rules(&world, &agent).await.len()),
        (&json!(6), 1)
    );
    let block = json!({"kind": "category_block", "categories": ["ai"]});
    world.edit("ann", "POST", &path, block).await.created();
    assert_eq!(rules(&world, &agent).await.len(), 1);
}

/// The budget of an ended grant limits nothing, so the removal of the budget does not widen. If a template's rules do not
/// widen, they are stored before the policies that widen.
#[tokio::test]
async fn a_template_updates_rules_before_policies_although_the_agent_has_an_ended_grant() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let mut ann = world.browser("ann").await;
    let address = request(register(&world, "Claude", &[CALLBACK]).as_str(), &[]);
    let fields = with(allow(&agent), "expires_days", "1");
    received(&ann.post(&address, &address, &fields).await, CALLBACK);
    let template = "/policy-templates/narrow";
    let terms = |units: u64, rules: Value| json!({"services": {"lab": {"max_per_call_units": units}}, "rules": rules});
    let narrow = Some(terms(5, Value::Null));
    world.call("ann", "PUT", template, None, narrow).await.created();
    let follow = json!({"act": "follow", "template": "narrow", "agents": {"kind": "ids", "ids": [agent]}});
    world.call("ann", "POST", "/agents/bulk", None, Some(follow)).await.ok();
    assert_eq!(rules(&world, &agent).await.len(), 1);
    world.advance(86_400);
    let block = json!([{"kind": "category_block", "categories": ["ai"]}]);
    world.edit("ann", "PUT", template, terms(6, block)).await.ok();
    world.catch_up().await;
    let mut writes = 0;
    world.proxy.follow(move |step| {
        writes += u32::from(step.moment == Moment::Arrived && step.call.starts_with("TransactWriteItems"));
        match writes {
            0 | 1 => Fate::PassOn,
            _ => Fate::Answer(
                400,
                json!({"__type": "com.amazonaws.dynamodb.v20120810#AccessDeniedException"}),
            ),
        }
    });
    let apply = format!("{template}/apply");
    world.call("ann", "POST", &apply, None, Some(json!({}))).await;
    world.proxy.behave();
    let listed = rules(&world, &agent).await;
    assert!(listed.iter().any(|rule| rule["kind"] == "category_block"), "{listed:?}");
    let path = format!("/agents/{agent}/services/lab");
    assert_eq!(world.get("ann", &path).await.ok()["policy"]["max_per_call_units"], 5);
}

#[tokio::test]
async fn a_user_can_deny_a_client_or_create_an_agent_with_safe_limits() {
    let world = World::start().await;
    let client = register(&world, "Claude", &[CALLBACK]);
    let address = request(client.as_str(), &[("scope", "read")]);
    let mut ann = world.browser("ann").await;
    let denied = ann.post(&address, &address, &[("decision", "deny")]).await;
    let told = received(&denied, CALLBACK);
    assert_eq!(
        (&*told["error"], &*told["state"], &*told["iss"]),
        ("access_denied", "a b&c", ORIGIN)
    );
    let agents = async || {
        world.get("ann", "/agents").await.ok()["agents"]
            .as_array()
            .unwrap()
            .clone()
    };
    assert!(agents().await.is_empty());

    let read = |agent| {
        let mut fields = allow(agent);
        fields.retain(|field| *field != ("may", "pay"));
        fields
    };
    received(&ann.post(&address, &address, &read("new")).await, CALLBACK);
    let agents = agents().await;
    assert_eq!((agents.len(), &agents[0]["name"]), (1, &json!("helper")));
    let rules = world
        .get(
            "ann",
            &format!("/agents/{}/rules", agents[0]["agent_id"].as_str().unwrap()),
        )
        .await
        .ok();
    let kinds: Vec<_> = rules["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["kind"])
        .collect();
    assert!(kinds.contains(&&json!("new_payee")), "{kinds:?}");
    assert!(
        rules["rules"]
            .as_array()
            .unwrap()
            .iter()
            .all(|rule| rule["keys"].is_null()),
        "{rules}"
    );
}

#[tokio::test]
async fn consents_for_other_users_agents_or_excessive_access_are_rejected() {
    let world = World::start().await;
    let (agent, foreign) = (world.agent("ann").await, world.agent("bob").await);
    let client = register(&world, "Claude", &[CALLBACK]);
    let mut ann = world.browser("ann").await;
    let all = request(client.as_str(), &[]);
    let read = request(client.as_str(), &[("scope", "read")]);
    let rows = [
        (&all, with(allow(&agent), "agent", &foreign), "Agent: choose one."),
        (&all, with(allow(&agent), "agent", ""), "Agent: choose one."),
        (&read, allow(&agent), "did not ask for this"),
        (&all, with(allow(&agent), "expires_days", "91"), "from 1 to 90"),
        (&all, with(allow(&agent), "expires_days", "0"), "from 1 to 90"),
        (&all, with(allow(&agent), "per_day", ""), "enter an amount"),
        (
            &all,
            with(allow(&agent), "services", "nothing"),
            "is no service of the catalog",
        ),
    ];
    for (address, fields, text) in rows {
        ann.post(address, address, &fields).await.is(400, text);
    }
    let world = &world;
    assert!(keys(world, &agent).await.is_empty());
    let foreign = world.get("bob", &format!("/agents/{foreign}/keys")).await.ok();
    assert_eq!(foreign["count"], 0);
}

#[tokio::test]
async fn invalid_clients_and_redirect_uris_are_never_redirected() {
    let world = World::start().await;
    let client = register(&world, "Claude", &[CALLBACK, "http://127.0.0.1/cb"]);
    let client = client.as_str();
    let mut forged = client.to_owned();
    forged.replace_range(10..11, if client.as_bytes()[10] == b'A' { "B" } else { "A" });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let local = format!("https://{}/client.json", listener.local_addr().unwrap());
    let mut rows = vec![(client.to_owned(), String::new()), (String::new(), CALLBACK.to_owned())];
    // Clients' documents are only read from public addresses (SSRF).
    for id in [
        "purser-cli",
        "unknown",
        &forged,
        &local,
        "https://localhost/client.json",
        "https://[::1]/client.json",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/client.json",
        "https://[::ffff:127.0.0.1]/client.json",
        "http://claude.example/client.json",
    ] {
        rows.push((id.to_owned(), CALLBACK.to_owned()));
    }
    for uri in [
        "https://evil.example/",
        "https://claude.example/api/mcp/auth_callback/",
        "https://claude.example/api/mcp/auth_callback?x=1",
        "https://claude.example/api/mcp/../mcp/auth_callback",
        "https://claude.example@evil.example/api/mcp/auth_callback",
        "https://claude.example.evil.example/api/mcp/auth_callback",
        "https://CLAUDE.example/api/mcp/auth_callback",
        "http://claude.example/api/mcp/auth_callback",
        "http://127.0.0.1:7/other",
        "javascript:alert(1)",
        "//evil.example",
    ] {
        rows.push((client.to_owned(), uri.to_owned()));
    }
    let mut ann = world.browser("ann").await;
    for (client, uri) in rows {
        let address = request(&client, &[("redirect_uri", &uri)]);
        let seen = ann.get(&address).await;
        assert_eq!(
            (seen.status, seen.headers.get(header::LOCATION)),
            (400, None),
            "{address}"
        );
        assert!(!seen.html.contains("evil.example"), "{}", seen.html);
    }
    assert!(listener.accept().is_err(), "the client's document was requested");
    let again = format!("{}&redirect_uri=https%3A%2F%2Fevil.example%2F", request(client, &[]));
    assert_eq!(ann.get(&again).await.status, 400);
    // On a loopback address, a client may use any port.
    ann.get(&request(client, &[("redirect_uri", "http://127.0.0.1:5/cb")]))
        .await
        .is(200, "program on the computer");
}

/// The setting of allowed hosts permits the test's own address.
#[tokio::test]
async fn oversized_or_redirected_client_metadata_documents_are_rejected() {
    let document =
        |url: String| json!({"client_id": url, "client_name": "Claude", "redirect_uris": [CALLBACK]}).to_string();
    let own = move |headers: HeaderMap| async move {
        document(format!("http://{}/own", headers[header::HOST].to_str().unwrap()))
    };
    let padded = document("x".to_owned()) + &" ".repeat(5 * 1024);
    let routes = Router::new()
        .route("/own", get(own))
        .route("/other", get(own))
        .route("/long", get(|| async { padded }))
        .route("/moved", get(|| async { Redirect::temporary("/own") }))
        .route("/list", get(|| async { "[]" }))
        .route("/slow", get(std::future::pending::<()>));
    let base = serve(routes).await;
    let host = base.strip_prefix("http://").unwrap();
    let read = async |path: &str, hosts: &str, timeout| {
        let client = UntrustedHttpClient::new("Purser", AllowedHosts::parse(hosts).unwrap(), timeout).unwrap();
        let url = Url::parse(&format!("{base}{path}")).unwrap();
        let document = client.get_object(&url, 5 * 1024).await?;
        ClientMetadata::from_url_document(&url, &document).ok()
    };
    let patient = Duration::from_mins(1);
    let client = read("/own", host, patient).await.unwrap();
    assert_eq!(client.name, ClientName::parse("Claude").unwrap());
    for path in ["/other", "/long", "/moved", "/list", "/unknown"] {
        assert_eq!(read(path, host, patient).await, None, "{path}");
    }
    assert_eq!(read("/slow", host, Duration::from_millis(100)).await, None);
    assert_eq!(read("/own", "", patient).await, None);
}

#[tokio::test]
async fn invalid_authorization_requests_are_sent_back_to_the_client() {
    let world = World::start().await;
    let client = register(&world, "Claude", &[CALLBACK]);
    let mut ann = world.browser("ann").await;
    let long = "x".repeat(513);
    for (name, value, error) in [
        ("response_type", "token", "unsupported_response_type"),
        ("response_type", "", "unsupported_response_type"),
        ("response_mode", "fragment", "invalid_request"),
        ("code_challenge", "", "invalid_request"),
        ("code_challenge", "short", "invalid_request"),
        ("code_challenge_method", "plain", "invalid_request"),
        ("code_challenge_method", "", "invalid_request"),
        ("resource", "https://other.example/mcp", "invalid_target"),
        ("resource", "http://127.0.0.1:3000.evil.example/mcp", "invalid_target"),
        ("scope", "admin", "invalid_scope"),
        ("state", &long, "invalid_request"),
    ] {
        let seen = ann.get(&request(client.as_str(), &[(name, value)])).await;
        let told = received(&seen, CALLBACK);
        assert_eq!((&*told["error"], &*told["iss"]), (error, ORIGIN), "{name}={value}");
        assert_eq!(
            told.get("state").map(String::as_str),
            (name != "state").then_some("a b&c")
        );
    }
    let twice = format!("{}&scope=read", request(client.as_str(), &[]));
    assert_eq!(received(&ann.get(&twice).await, CALLBACK)["error"], "invalid_request");
    for (name, value) in [("resource", ""), ("resource", ORIGIN), ("scope", ""), ("state", "")] {
        ann.get(&request(client.as_str(), &[(name, value)]))
            .await
            .is(200, "Allow access");
    }
    // RFC 8707 §2 allows several resources, and all must be this deployment.
    let repeated = |resource: &str| format!("{}&resource=&resource={resource}", request(client.as_str(), &[]));
    ann.get(&repeated(&format!("{ORIGIN}/mcp/")))
        .await
        .is(200, "Allow access");
    let other = received(&ann.get(&repeated("https://other.example/mcp")).await, CALLBACK);
    assert_eq!(other["error"], "invalid_target");
}

/// The client chooses its name. The page shows the host that gets the code.
#[tokio::test]
async fn the_consent_page_shows_the_redirect_host_of_a_client_with_anothers_name() {
    let world = World::start().await;
    let evil = "https://evil.example/cb";
    let mut ann = world.browser("ann").await;
    for name in ["Claude", &HOSTILE.chars().take(20).collect::<String>()] {
        let client = register(&world, name, &[evil]);
        let page = ann.get(&request(client.as_str(), &[("redirect_uri", evil)])).await;
        page.is(200, "<code>evil.example</code>");
        page.is(200, "Purser has not verified the name");
    }
}

#[tokio::test]
async fn a_consent_needs_the_users_own_form_in_an_unframed_page() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let client = register(&world, "Claude", &[CALLBACK]);
    let address = request(client.as_str(), &[]);
    let mut ann = world.browser("ann").await;
    let page = ann.get(&address).await;
    let policy = page.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(
        policy.contains("form-action 'self' https://claude.example;"),
        "{policy}"
    );
    assert_eq!(page.headers[header::X_FRAME_OPTIONS], "DENY");
    assert_eq!(page.headers["cross-origin-opener-policy"], "unsafe-none");

    let token = page.input("form_token");
    let body = |token: &str| {
        let fields = allow(&agent).into_iter().chain([("form_token", token)]);
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish()
    };
    let ours = [("origin", ORIGIN), ("sec-fetch-site", "same-origin")];
    let others_token = world.browser("bob").await.get(&address).await.input("form_token");
    let rows: [(&[(&str, &str)], String); 5] = [
        (&[], body(&token)),
        (&[("origin", "https://evil.example")], body(&token)),
        (&[("origin", ORIGIN), ("sec-fetch-site", "cross-site")], body(&token)),
        (&ours, body("x")),
        (&ours, body(&others_token)),
    ];
    for (headers, body) in rows {
        ann.send(Method::POST, &address, headers, body)
            .await
            .is(403, "Nothing was changed");
    }
    assert!(keys(&world, &agent).await.is_empty());
    received(&ann.send(Method::POST, &address, &ours, body(&token)).await, CALLBACK);
}

#[tokio::test]
async fn sign_in_preserves_an_oauth_authorization_request_of_maximum_length() {
    let world = World::start().await;
    let uris = ["https://a.example/1", "https://b.example/2"].map(|uri| format!("{uri}{}", "x".repeat(290)));
    let client = register(&world, &"x".repeat(60), &uris.each_ref().map(String::as_str));
    assert!(client.as_str().len() > 950, "{}", client.as_str().len());
    let address = request(
        client.as_str(),
        &[("redirect_uri", &uris[0]), ("state", &"s".repeat(512))],
    );
    let mut browser = world.stranger();
    let first = browser.get(&address).await.leads().to_owned();
    assert!(first.starts_with("/dashboard/sign-in?next="), "{first}");
    let back = browser
        .sign_in("ann", &first.replacen("sign-in", "sign-in/start", 1))
        .await;
    assert_eq!(back.leads(), address);
    browser.get(&address).await.is(200, "a.example");
    // The user must sign in again before the form is shown.
    world.advance(700);
    let again = browser.get(&address).await;
    assert!(again.leads().contains("notice=sign_in_again"), "{}", again.leads());
}

async fn add_device(world: &World, seed: u8) -> UserCode {
    let (code, _) = DeviceCode::from_random([seed; 8], [seed; 32]);
    let request = DeviceRequest {
        user_code: code.user_code.clone(),
        digest: code.digest,
        client: Fingerprint::for_text("purser-cli"),
        client_name: ClientName::parse("Purser command line").unwrap(),
        expires_at: world.now().after(DeviceRequest::LIFETIME),
        polled_at: None,
        state: DeviceState::Pending,
    };
    assert!(world.ledger.add_device_request(&request).await.unwrap());
    code.user_code
}

async fn device_state(world: &World, code: &UserCode) -> DeviceState {
    world.ledger.read_device_request(code).await.unwrap().unwrap().state
}

#[tokio::test]
async fn a_user_allows_or_denies_a_device_by_its_code() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let [allowed, denied, late] = [
        add_device(&world, 1).await,
        add_device(&world, 2).await,
        add_device(&world, 3).await,
    ];
    let mut ann = world.browser("ann").await;
    ann.get("/dashboard/device").await.is(200, "Enter the code");
    let page = |code: &UserCode| format!("/dashboard/device?user_code={}", code.as_str());
    let address = format!("/dashboard/device?user_code={}", allowed.to_string().to_lowercase());
    ann.get(&address).await.is(200, &allowed.to_string());
    let seen = ann.post(&address, &page(&allowed), &allow(&agent)).await;
    assert_eq!(seen.leads(), "/dashboard/device?notice=device_allowed");
    let grant = keys(&world, &agent).await.remove(0);
    assert_eq!(grant["redirect_host"], "device");
    let expected = DeviceState::Approved {
        agent: AgentId::parse(&agent).unwrap(),
        grant: KeyId::parse(grant["key_id"].as_str().unwrap()).unwrap(),
    };
    assert_eq!(device_state(&world, &allowed).await, expected);
    // A code is decided once.
    let again = ann.post("/dashboard/device", &page(&allowed), &allow(&agent)).await;
    assert!(!again.html.contains("Allow access"));
    assert_eq!(again.leads(), "/dashboard/device?notice=device_code_unknown");

    let seen = ann.post(&page(&denied), &page(&denied), &[("decision", "deny")]).await;
    assert_eq!(seen.leads(), "/dashboard/device?notice=device_denied");
    assert_eq!(device_state(&world, &denied).await, DeviceState::Denied);
    world.advance(700);
    let mut ann = world.browser("ann").await;
    ann.get(&page(&late)).await.is(200, "has expired");
    assert_eq!(keys(&world, &agent).await.len(), 1);
}

#[tokio::test]
async fn a_user_can_try_only_few_device_codes_per_minute() {
    let world = World::start().await;
    let code = add_device(&world, 9).await;
    let mut eve = world.browser("eve").await;
    for _ in 0..10 {
        eve.get("/dashboard/device?user_code=BBBB-BBBB")
            .await
            .is(200, "unknown");
    }
    let address = format!("/dashboard/device?user_code={code}");
    eve.get(&address).await.is(429, "Too many requests");
    // Other users, and other pages of the same user, are not affected.
    world.browser("ann").await.get(&address).await.is(200, "Allow access");
    eve.get("/dashboard/agents").await.is(200, "Agents");
}

async fn revoke(world: &World, token: &str) {
    let response = send_revocation(world, token).await;
    assert_eq!(response.status(), 200, "{token}");
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    assert_eq!(response.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
}

async fn send_revocation(world: &World, token: &str) -> axum::response::Response {
    let body = format!("token={token}&client_id=x");
    let request = Request::post("/oauth/revoke")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(body));
    world.router.clone().oneshot(request.unwrap()).await.unwrap()
}

async fn new_grant(world: &World, ann: &mut Browser<'_>, agent: &str) -> (AgentId, KeyId) {
    let client = register(world, "Claude", &[CALLBACK]);
    let address = request(client.as_str(), &[]);
    received(&ann.post(&address, &address, &allow(agent)).await, CALLBACK);
    let newest = keys(world, agent).await.remove(0);
    (
        AgentId::parse(agent).unwrap(),
        KeyId::parse(newest["key_id"].as_str().unwrap()).unwrap(),
    )
}

#[tokio::test]
async fn revoking_an_oauth_token_ends_its_grant_and_no_other_grant() {
    let world = World::start().await;
    let agent = world.agent("ann").await;
    let mut ann = world.browser("ann").await;
    let oauth = oauth_key();
    let status = async |id: KeyId| {
        let listed = keys(&world, &agent).await;
        let key = listed.into_iter().find(|key| key["key_id"] == id.to_string());
        key.unwrap()["status"].as_str().unwrap().to_owned()
    };
    let (owner, first) = new_grant(&world, &mut ann, &agent).await;
    let (_, second) = new_grant(&world, &mut ann, &agent).await;
    let refresh = |grant, generation| {
        oauth.write_refresh_token(RefreshToken {
            agent: owner,
            grant,
            generation,
        })
    };
    let access = oauth.sign_access_token(owner, first, world.now().after(AccessToken::LIFETIME));
    let forged = OAuthKey::from_secret(&"x".repeat(32)).unwrap();
    // RFC 7009 §2.1: the token is required.
    for token in ["", "x&token=y"] {
        assert_eq!(send_revocation(&world, token).await.status(), 400, "{token}");
    }
    for token in [
        "pat_",
        &access.replace('_', ""),
        &forged.sign_access_token(owner, first, world.now()),
        &format!("{}x", refresh(first, 1)),
        &oauth.sign_access_token(owner, KeyId(7), world.now()),
    ] {
        revoke(&world, token).await;
    }
    assert_eq!(
        (status(first).await, status(second).await),
        ("active".into(), "active".into())
    );
    revoke(&world, &access).await;
    assert_eq!(
        (status(first).await, status(second).await),
        ("ended".into(), "active".into())
    );
    // A client can revoke a token that it has already used.
    revoke(&world, &refresh(second, 1)).await;
    revoke(&world, &refresh(second, 1)).await;
    assert_eq!(status(second).await, "ended");
    let rows = audit(&world, "grant_ended").await;
    // Neither the owner nor an operator acted.
    assert!(
        rows.iter()
            .all(|row| row["person_id"].is_null() && row["operator"].is_null()),
        "{rows:?}"
    );
    assert!(rows.iter().all(|row| row["edit_reason"].is_null()), "{rows:?}");
    // The two rows have the same time, so their order is undefined.
    let mut ended: Vec<&str> = rows.iter().filter_map(|row| row["object_id"].as_str()).collect();
    ended.sort_unstable();
    let mut expected = [first.to_string(), second.to_string()];
    expected.sort_unstable();
    assert_eq!(ended, expected);
    ann.get("/dashboard/audit-log")
        .await
        .is(200, "a token of the application");
    // The Lambda function `oauth` ends a grant whose code or token was used twice.
    let (_, third) = new_grant(&world, &mut ann, &agent).await;
    revoke(&world, &refresh(third, RefreshToken::REUSED)).await;
    assert_eq!(status(third).await, "ended");
    let rows = audit(&world, "grant_ended").await;
    let reasons: Vec<&str> = rows.iter().filter_map(|row| row["edit_reason"].as_str()).collect();
    assert!(
        matches!(&*reasons, [reason] if reason.contains("used twice")),
        "{rows:?}"
    );
}
