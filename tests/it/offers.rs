//! Tests payment requirements as providers write them. `shared/domain/src/x402` tests the parsing.

use base64::Engine as _;
use purser_domain::{AgentStatus, DomainPattern, SpendPolicy};
use purser_local::NETWORK;
use purser_store::ApprovalDecision;
use purser_tests::{Answer, OfferedTerms, TestAgent, World, body_of, fresh_key, offer_v1, offer_v2, units};
use reqwest::Method;
use serde_json::{Value, json};

const REUSED: &str = "idempotency_key_reused_for_different_request";
const STRANGER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";

/// Returns 402 responses that differ only in fields that have no effect.
fn variations(world: &World, units: u64) -> Vec<(&'static str, Value)> {
    let offered = |units| OfferedTerms {
        units,
        pay_to: world.stack.providers.pay_to.clone(),
        timeout: 300,
    };
    let plain = world.offer(units);
    let changed = |pointer: &str, value: Value| {
        let mut changed = plain.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[name] = value;
        changed
    };
    let beside = |at: usize, entry: Value| {
        let mut changed = plain.clone();
        changed["accepts"].as_array_mut().unwrap().insert(at, entry);
        changed
    };
    let entry = |units| offer_v2(&offered(units))["accepts"][0].clone();
    let strangers = |units| {
        let mut entry = entry(units);
        entry["payTo"] = STRANGER.into();
        entry
    };
    vec![
        (
            "a nonce",
            changed(
                "/extensions",
                json!({"sign-in-with-x": {"info": {"nonce": fresh_key()}}}),
            ),
        ),
        (
            "another nonce",
            changed(
                "/extensions",
                json!({"sign-in-with-x": {"info": {"nonce": fresh_key()}}}),
            ),
        ),
        ("an error text", changed("/error", json!("payment expired at 12:07:31"))),
        (
            "a resource",
            changed(
                "/resource",
                json!({"url": "https://provider.example/x?r=7", "description": "now"}),
            ),
        ),
        ("no resource", changed("/resource", Value::Null)),
        ("PHP", changed("/extensions", json!([]))),
        (
            "a date in the entry",
            changed("/accepts/0/description", json!("2026-11-25")),
        ),
        (
            "more in `extra`",
            changed("/accepts/0/extra/requestId", json!(fresh_key())),
        ),
        ("another timeout", changed("/accepts/0/maxTimeoutSeconds", json!(30))),
        (
            "lower case",
            changed("/accepts/0/payTo", json!(offered(1).pay_to.to_lowercase())),
        ),
        ("a dearer entry before it", beside(0, entry(units + 1))),
        ("a cheaper entry after it", beside(1, entry(units - 1))),
        ("a cheaper entry of somebody else", beside(0, strangers(units - 1))),
        ("an equal entry of somebody else", beside(0, strangers(units))),
        (
            "another scheme",
            beside(0, json!({"scheme": "upto", "network": NETWORK.caip2()})),
        ),
        ("the other version", offer_v1(&offered(units))),
    ]
}

fn with(body: &Value, requirement: &Value) -> Value {
    let mut body = body.clone();
    body["payment_requirement"] = requirement.clone();
    body
}

fn signed(answer: &Value) -> &Value {
    &answer["payment"]["payload"]["payload"]["authorization"]
}

/// Asserts that the response repeats the first payment, in a header for this 402 response.
fn is_again(first: &Value, again: &Answer, requirement: &Value, why: &str) {
    assert_eq!(again.status, 200, "{why}: {}", again.body);
    assert_eq!(again.headers["idempotent-replayed"], "true", "{why}");
    assert_eq!(again.body["settlement_id"], first["settlement_id"], "{why}");
    assert_eq!(signed(&again.body), signed(first), "{why}");
    echoes(&again.body, requirement, why);
}

/// Asserts that the payment header repeats the fields of this 402 response.
fn echoes(answer: &Value, requirement: &Value, why: &str) {
    let payload = &answer["payment"]["payload"];
    assert_eq!(payload["x402Version"], requirement["x402Version"], "{why}");
    if requirement["x402Version"] == 2 {
        let entries = requirement["accepts"].as_array().unwrap();
        let accepted = &payload["accepted"];
        assert!(entries.contains(accepted), "{why}: {accepted}");
        assert_eq!(accepted["amount"], signed(answer)["value"], "{why}");
        for name in ["resource", "extensions"] {
            assert_eq!(payload[name], requirement[name], "{why}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_requirements_with_equal_terms_are_one_request() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let mut body = body_of(world.offer(5_000));
    body["original_request"]["body_hash"] = json!("sha256:1");
    body["metadata"] = json!({"task": "reading"});
    let first = world.authorize(&agent, &body).await.ok();
    for (why, requirement) in variations(&world, 5_000) {
        let again = world.authorize(&agent, &with(&body, &requirement)).await;
        is_again(&first, &again, &requirement, why);
    }
    // For an idempotency key and for a preflight's `replay_key`, all variations are the same request.
    let preflight = fresh_key();
    for (why, requirement) in variations(&world, 5_000) {
        let mut anew = with(&body, &requirement);
        anew["replay_key"] = json!(preflight);
        let told = world.post(&agent, "/x402/check", &anew).await;
        assert_eq!(told.status, 200, "{why}: {}", told.body);
        anew["idempotency_key"] = json!(fresh_key());
        let paid = world.authorize(&agent, &anew).await;
        if !why.contains("somebody else") {
            echoes(&paid.ok(), &requirement, why);
        }
    }

    // Another value of an evaluated or signed field makes another request.
    let other = |pointer: &str, value: Value| {
        let mut body = body.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[name] = value;
        body
    };
    let others = [
        other("/payment_requirement/accepts/0/amount", json!("5001")),
        other("/payment_requirement/accepts/0/amount", json!("4999")),
        other("/payment_requirement/accepts/0/payTo", json!(STRANGER)),
        other("/original_request/method", json!("POST")),
        other("/original_request/url", json!("https://provider.example/x?page=2")),
        other("/original_request/body_hash", json!("sha256:2")),
        other("/original_request/body_hash", Value::Null),
        other("/max_payment_units", json!(5_000)),
        other("/service_id", json!("lab-reports")),
        other("/service_id", Value::Null),
        other("/operation_id", json!("anything.at-all")),
        other("/metadata/task", json!("writing")),
        other("/metadata", Value::Null),
    ];
    for other in &others {
        let told = world.authorize(&agent, other).await.refused(409, REUSED);
        assert_eq!(told["settlement_id"], first["settlement_id"], "{other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_purchases_accept_fresh_payment_requirements() {
    let world = World::still().await;
    let mut policy = SpendPolicy::permissive();
    policy.require_approval_above = units(1_000);
    let agent = world.agent(policy, vec![]).await;
    for (why, requirement) in variations(&world, 5_000) {
        let mut body = body_of(world.offer(5_000));
        let asked = world.authorize(&agent, &body).await.refused(402, "approval_required");
        let id = asked["approval_id"].as_str().unwrap().to_owned();
        // A request with any variation uses the approval, with the same or with another idempotency key.
        let fresh = with(&body, &requirement);
        let waiting = world.authorize(&agent, &fresh).await.refused(402, "approval_required");
        assert_eq!(waiting["approval_id"], asked["approval_id"], "{why}");
        world.resolve(&id, ApprovalDecision::Approve).await;
        body["approval_id"] = json!(id);

        let mut dearer = with(&body, &world.offer(5_001));
        dearer["idempotency_key"] = json!(fresh_key());
        let refused = world.authorize(&agent, &dearer).await.refused(403, "policy_blocked");
        assert_eq!(refused["decision"]["reason"], "approval_request_mismatch", "{why}");

        let mut fresh = with(&body, &requirement);
        fresh["replay_key"] = json!(fresh_key());
        let foreseen = world.post(&agent, "/x402/check", &fresh).await.ok();
        assert_eq!(
            (&foreseen["result"], &foreseen["amount_units"]),
            (&json!("allow"), &json!(5_000)),
            "{why}"
        );
        let paid = world.authorize(&agent, &fresh).await.ok();
        assert_eq!(paid["amount_units"], 5_000, "{why}");
        echoes(&paid, &requirement, why);
        fresh["approval_id"] = Value::Null;
        is_again(&paid, &world.authorize(&agent, &fresh).await, &requirement, why);
    }
}

/// Sends a body. Returns the status, whether the response is a replay, and its text.
async fn post_text(world: &World, agent: &TestAgent, path: &str, body: String) -> (u16, bool, String) {
    let request = world.http.post(format!("{}{path}", world.stack.base_url));
    let answer = request.bearer_auth(&agent.key).body(body).send().await.unwrap();
    let is_replay = answer.headers().contains_key("idempotent-replayed");
    (answer.status().as_u16(), is_replay, answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_json_in_payment_requirements_is_echoed_unaltered() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let edges = r#"{"a":"\ud800 \udc00","\udfff":18446744073709551617,"n":[1e999,-0.0,1.10,12345678901234567890.5]}"#;
    let mut body = body_of(world.offer(5_000));
    body["payment_requirement"]["extensions"] = json!("EDGES");
    body["payment_requirement"]["accepts"][0]["description"] = json!("LONE");
    let text = body.to_string().replace("\"EDGES\"", edges).replace("LONE", "\\ud83d");
    let (status, _, answer) = post_text(&world, &agent, "/x402/authorize", text.clone()).await;
    assert_eq!(status, 200, "{answer}");
    let (_, header) = answer.split_once("\"header_value\":\"").unwrap();
    let (header, _) = header.split_once('"').unwrap();
    let header = base64::prelude::BASE64_STANDARD.decode(header).unwrap();
    let header = String::from_utf8(header).unwrap();
    assert!(header.contains(&format!("\"extensions\":{edges}")), "{header}");
    assert!(header.contains(r#""description":"\ud83d""#), "{header}");
    // These fields are not evaluated, so other numbers in them make no other request.
    let again = text.replace("617", "618").replace("1e999", "2e999");
    let (status, is_replay, again) = post_text(&world, &agent, "/x402/authorize", again).await;
    assert!(status == 200 && is_replay, "{again}");
    for judged in [
        text.replace("\"5000\"", "\"5000\\ud800\""),
        text.replace("\"service_id\":\"lab-search\"", "\"service_id\":\"lab-search\\ud800\""),
        text.replace("\"max_payment_units\":", "\"max_payment_units\":1e999,\"x\":"),
    ] {
        assert_ne!(judged, text);
        let (status, _, refused) = post_text(&world, &agent, "/x402/authorize", judged).await;
        assert!(status == 400 && refused.contains("invalid_request"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_too_large_payment_header_returns_a_warning() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    for (bytes, warned) in [(1_000, false), (20_000, true)] {
        let mut body = body_of(world.offer(5_000));
        body["payment_requirement"]["extensions"] = json!({"long": "x".repeat(bytes)});
        let first = world.authorize(&agent, &body).await.ok();
        let again = world.authorize(&agent, &body).await.ok();
        for answer in [first, again] {
            let codes: Vec<&str> = answer["warnings"]
                .as_array()
                .map(|warnings| {
                    warnings
                        .iter()
                        .map(|warning| warning["code"].as_str().unwrap())
                        .collect()
                })
                .unwrap_or_default();
            let expected: &[&str] = if warned { &["payment_header_large"] } else { &[] };
            assert_eq!(codes, expected, "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payment_responses_confirm_in_every_encoding() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let pay = async || {
        let paid = world.authorize(&agent, &body_of(world.offer(5_000))).await.ok();
        let hash = world.settle(&paid).await;
        (paid["settlement_id"].as_str().unwrap().to_owned(), hash)
    };
    let network = "eip155:8453";
    for form in ["unpadded", "url", "blank", "txHash"] {
        let (settlement, hash) = pay().await;
        let name = if form == "txHash" { "txHash" } else { "transaction" };
        let response = json!({"success": true, name: hash, "network": network, "d": "\u{fe}\u{ff}??>"}).to_string();
        let header = match form {
            "unpadded" => base64::prelude::BASE64_STANDARD_NO_PAD.encode(response),
            "url" => base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(response),
            _ => format!("\n {}\t", base64::prelude::BASE64_STANDARD.encode(response)),
        };
        let proof = json!({"payment_response_header": {"X-Payment-Response": header}});
        let confirmed = world.complete(&agent, &settlement, &proof).await;
        assert_eq!(confirmed.ok()["receipt_status"], "confirmed", "{form}");
    }
    let (settlement, hash) = pay().await;
    const SLUG: &str = "settlement_transaction_hash_required";
    let fee = json!({"success": true, "details": {"fee_tx_hash": hash, "transaction": hash}}).to_string();
    for (header, said) in [
        ("%%%".to_owned(), "can't be decoded"),
        (base64::prelude::BASE64_STANDARD.encode("[]"), "can't be decoded"),
        (base64::prelude::BASE64_STANDARD.encode(fee), "names no transaction"),
        ("{}".to_owned(), "names no transaction"),
    ] {
        let told = world
            .complete(&agent, &settlement, &json!({"payment_response_header": header}))
            .await
            .refused(422, SLUG);
        assert!(told["message"].as_str().unwrap().contains(said), "{told}");
    }
}

/// The provider fetches the page in the called URL, whatever target the agent declares.
#[tokio::test(flavor = "multi_thread")]
async fn the_declared_target_url_must_match_the_call() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let scrape = world.service("lab-scrape").await;
    let endpoint = scrape.operations[0].endpoint.as_str().to_owned();
    let policy = SpendPolicy {
        allowed_domains: ["example.com", "example.org"]
            .map(|text| DomainPattern::parse(text).unwrap())
            .to_vec(),
        ..SpendPolicy::permissive()
    };
    world.enable(&agent, "lab-scrape", policy).await;
    let fetch = async |query: &str| {
        let mut body = body_of(world.offer(5_000));
        body["service_id"] = Value::Null;
        body["original_request"]["url"] = json!(format!("{endpoint}{query}"));
        body["metadata"] = json!({"target_url": "https://example.com/page"});
        world.authorize(&agent, &body).await
    };
    for query in [
        "",
        "?q=www.evil.test",
        "?url=https://example.com/x",
        "?url=EXAMPLE.com.",
        "?URL=//example.com",
    ] {
        assert_eq!(fetch(query).await.status, 200, "{query}");
    }
    for (query, host) in [
        ("?url=www.evil.test", "www.evil.test"),
        ("?url=evil.test:8080/x", "evil.test"),
        ("?url=//evil.test", "evil.test"),
        ("?url=https%3Aevil.test", "evil.test"),
        ("?url=u:p@evil.test", "evil.test"),
        ("?url=https://example.com/&url=evil.test", "evil.test"),
        ("?Url%5B%5D=evil.test", "evil.test"),
        ("?url=ftp://evil.test", "ftp://evil.test"),
        ("?url=example.org", "example.org"),
        ("?url=a.example.com", "a.example.com"),
    ] {
        let told = fetch(query).await.refused(403, "domain_not_allowed");
        assert_eq!(told["hostname"], host, "{query}");
    }
    // Only an allowlist of domains restricts the target.
    world.enable(&agent, "lab-scrape", SpendPolicy::permissive()).await;
    fetch("?url=www.evil.test").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_methods_are_rejected_with_the_listed_operation() {
    let world = World::still().await;
    let agent = world.demo();
    let mut body = body_of(world.offer(5_000));
    body["service_id"] = Value::Null;
    let weather = format!("{}/weather", world.stack.providers.provider_url);
    body["original_request"] = json!({"method": "POST", "url": weather});
    for operation in [Value::Null, json!("weather.current")] {
        body["operation_id"] = operation;
        let told = world
            .authorize(&agent, &body)
            .await
            .refused(403, "operation_not_enabled_for_agent");
        let message = told["message"].as_str().unwrap();
        assert!(message.contains(&format!("GET {weather}")), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_agents_get_no_payment_for_fresh_requirements() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let body = body_of(world.offer(5_000));
    world.authorize(&agent, &body).await.ok();
    world.edit(&agent, |agent| agent.status = AgentStatus::Frozen).await;
    for (why, requirement) in variations(&world, 5_000) {
        let answer = world.authorize(&agent, &with(&body, &requirement)).await;
        assert_eq!(answer.refused(403, "policy_blocked").get("payment"), None, "{why}");
    }
    assert_eq!(
        world
            .call(Method::GET, "/mcp/agents/me", Some(&agent.key), None)
            .await
            .status,
        200
    );
}
