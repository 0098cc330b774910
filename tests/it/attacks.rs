//! Tests that check and authorize reject attempts of a malicious agent or provider to get an unauthorized payment.
//!
//! `races.rs` tests races, and `isolation.rs` the ownership of objects.

use purser_domain::{AgentStatus, DomainPattern, SpendPolicy};
use purser_local::Options;
use purser_tests::{
    Answer, Footprint, OfferedTerms, TestAgent, World, as_repeated, authorizing, body_of, dollars, offer_v2,
    payment_entry, together, units,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const STRANGER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
/// The payee of another service in the catalog.
const OTHER_PAYEE: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
/// The catalog's price and maximum price of a call, in micro-USDC.
const PRICE: u64 = 10_000;

fn entry(n: u8, slug: &str, endpoint: &str, payment: Value) -> Value {
    json!({
        "id": format!("00000000-0000-4000-8000-0000000000{n:02}"),
        "operation_id": slug,
        "label": "Exactly",
        "method": "GET",
        "endpoint": endpoint,
        "category": "data",
        "execution": "sync",
        "price_model": "fixed",
        "estimated_price_units": dollars(1),
        "max_price_units": null,
        "params": {},
        "payment": payment,
    })
}

/// Starts a stack whose catalog has operations with a maximum price.
async fn strict() -> World {
    let paid = || payment_entry(PRICE, "{pay_to}");
    let mut unbounded = entry(5, "exact.metered", "https://exact.example/v1/metered", paid());
    unbounded["price_model"] = json!("metered");
    let mut elsewhere = entry(6, "exact.mainnet", "https://exact.example/v1/mainnet", paid());
    elsewhere["payment"]["network"] = json!("base");
    World::still_with(Options {
        operations: vec![
            (
                "lab-weather",
                entry(1, "exact.weather", "https://exact.example/v1/weather", paid()),
            ),
            (
                "lab-weather",
                entry(2, "exact.city", "https://exact.example/v1/cities/{city}", paid()),
            ),
            (
                "lab-weather",
                entry(3, "exact.free", "https://exact.example/v1/free", Value::Null),
            ),
            (
                "lab-reports",
                entry(
                    4,
                    "other.report",
                    "https://other.example/report",
                    payment_entry(PRICE, OTHER_PAYEE),
                ),
            ),
            ("lab-weather", unbounded),
            ("lab-weather", elsewhere),
        ],
        ..Options::default()
    })
    .await
}

/// Creates an agent whose payments only the catalog limits.
async fn unlimited(world: &World) -> TestAgent {
    let agent = world.poor_agent(vec![]).await;
    for service in ["lab-weather", "lab-search", "lab-reports", "lab-scrape"] {
        world.enable(&agent, service, SpendPolicy::permissive()).await;
    }
    world.fund(&agent, dollars(10_000)).await;
    agent
}

/// Returns a valid request for a call to this URL.
fn calling(world: &World, method: &str, url: &str) -> Value {
    let mut body = body_of(world.offer(PRICE));
    let members = body.as_object_mut().unwrap();
    members.remove("service_id");
    members.insert("original_request".to_owned(), json!({"method": method, "url": url}));
    body
}

const WEATHER: &str = "https://exact.example/v1/weather";

/// Returns the status, and the reason of the denial or else the error slug.
fn said(answer: &Answer) -> (u16, String) {
    let reason = answer.body["decision"]["reason"].as_str().unwrap_or(answer.slug());
    (answer.status, reason.to_owned())
}

/// Asserts that check and authorize reject the body in this way, and that neither writes anything.
async fn refused(world: &World, agent: &TestAgent, attack: &str, body: &Value, (status, reason): (u16, &str)) {
    let before = world.footprint().await;
    let foreseen = world.check(agent, body).await;
    if foreseen.status == 200 {
        let told = (
            foreseen.body["would_authorize"].clone(),
            foreseen.body["reason"].clone(),
        );
        assert_eq!(told, (json!(false), json!(reason)), "{attack}");
    } else {
        assert_eq!(said(&foreseen), (status, reason.to_owned()), "{attack}");
    }
    let answer = world.authorize(agent, body).await;
    assert_eq!(said(&answer), (status, reason.to_owned()), "{attack}: {}", answer.body);
    assert_eq!(answer.body.get("payment"), None, "{attack}");
    assert_eq!(world.footprint().await, before, "{attack} reserves nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_require_a_catalog_operation_payee_and_price() {
    const NO_OPERATION: (u16, &str) = (403, "operation_not_enabled_for_agent");
    const UNKNOWN: (u16, &str) = (404, "service_not_found");
    const CONTRADICTION: (u16, &str) = (400, "invalid_request");
    const PAYEE: (u16, &str) = (403, "catalog_payee:pay_to_not_in_catalog");
    const TOO_DEAR: (u16, &str) = (403, "catalog_price:price_above_catalog_maximum");
    let world = strict().await;
    let agent = unlimited(&world).await;
    let honest = || calling(&world, "GET", WEATHER);
    let with = |member: &str, value: Value| {
        let mut body = honest();
        body[member] = value;
        body
    };
    let offered = |units: u64, pay_to: &str| {
        let offer = OfferedTerms {
            units,
            pay_to: pay_to.to_owned(),
            timeout: 300,
        };
        with("payment_requirement", offer_v2(&offer))
    };
    let asking = |units| with("payment_requirement", world.offer(units));
    let calls = |method, url| calling(&world, method, url);
    // The provider offers two payments. The cheaper one goes to a stranger, and the evaluation chooses it.
    let mut two = world.offer(PRICE);
    let stranger = offer_v2(&OfferedTerms {
        units: PRICE - 1,
        pay_to: STRANGER.to_owned(),
        timeout: 300,
    });
    two["accepts"]
        .as_array_mut()
        .unwrap()
        .push(stranger["accepts"][0].clone());
    let two = with("payment_requirement", two);

    let rows: Vec<(&str, Value, (u16, &str))> = vec![
        ("the payee is swapped in the offer", offered(PRICE, STRANGER), PAYEE),
        ("the payee is another service's", offered(PRICE, OTHER_PAYEE), PAYEE),
        ("the cheaper entry pays a stranger", two, PAYEE),
        ("the price is a percent higher", asking(PRICE * 101 / 100), TOO_DEAR),
        ("the price is ten times the catalog's", asking(PRICE * 10), TOO_DEAR),
        (
            "the price is what the catalog estimates and nobody pinned",
            asking(dollars(1)),
            TOO_DEAR,
        ),
        ("the method is swapped", calls("POST", WEATHER), NO_OPERATION),
        (
            "the path is extended",
            calls("GET", "https://exact.example/v1/weather/premium"),
            NO_OPERATION,
        ),
        (
            "the path is shortened",
            calls("GET", "https://exact.example/v1"),
            NO_OPERATION,
        ),
        (
            "a parameter holds a slash",
            calls("GET", "https://exact.example/v1/cities/..%2fadmin"),
            NO_OPERATION,
        ),
        (
            "a parameter is empty",
            calls("GET", "https://exact.example/v1/cities/"),
            NO_OPERATION,
        ),
        (
            "another port",
            calls("GET", "https://exact.example:8443/v1/weather"),
            NO_OPERATION,
        ),
        (
            "without TLS",
            calls("GET", "http://exact.example/v1/weather"),
            NO_OPERATION,
        ),
        (
            "a look-alike that ends otherwise",
            calls("GET", "https://exact.example.evil.test/v1/weather"),
            UNKNOWN,
        ),
        (
            "a look-alike that begins otherwise",
            calls("GET", "https://not-exact.example/v1/weather"),
            UNKNOWN,
        ),
        (
            "a look-alike in another alphabet",
            calls("GET", "https://ex\u{430}ct.example/v1/weather"),
            UNKNOWN,
        ),
        (
            "the host stands in the user's place",
            calls("GET", "https://exact.example@evil.test/v1/weather"),
            UNKNOWN,
        ),
        (
            "a call that the catalog lists as free",
            calls("GET", "https://exact.example/v1/free"),
            (403, "catalog_payment:operation_has_no_payment"),
        ),
        (
            "a metered price without a maximum",
            calls("GET", "https://exact.example/v1/metered"),
            (403, "catalog_payment:operation_has_no_maximum_price"),
        ),
        (
            "an operation that is paid on another network",
            calls("GET", "https://exact.example/v1/mainnet"),
            (403, "catalog_payment:operation_is_paid_on_another_network"),
        ),
        (
            "another service of the same payee is named",
            with("service_id", json!("lab-search")),
            CONTRADICTION,
        ),
        (
            "another operation is named",
            with("operation_id", json!("exact.city")),
            CONTRADICTION,
        ),
        (
            "an operation is named that nobody has",
            with("operation_id", json!("exact.anything")),
            CONTRADICTION,
        ),
    ];
    for (attack, body, expected) in &rows {
        refused(&world, &agent, attack, body, *expected).await;
    }
    // The price rises by one percent each time, and must not become the reference price.
    let mut price = PRICE;
    for _ in 0..5 {
        price += price.div_ceil(100);
        refused(&world, &agent, "the price ratchets", &asking(price), TOO_DEAR).await;
    }

    // The payment counts for the service of the called operation, not for the service in the request.
    let paid = world.authorize(&agent, &honest()).await.ok();
    let receipt = format!("/x402/settlements/{}", paid["settlement_id"].as_str().unwrap());
    let receipt = world.get(&agent, &receipt).await.ok();
    let service = world.service("lab-weather").await.id.to_string();
    assert_eq!(
        (&receipt["service_id"], &receipt["operation_id"]),
        (&json!(service), &json!("exact.weather"))
    );
    let city = world
        .authorize(&agent, &calls("GET", "https://exact.example/v1/cities/lisbon?day=2"))
        .await
        .ok();
    let city = world
        .get(
            &agent,
            &format!("/x402/settlements/{}", city["settlement_id"].as_str().unwrap()),
        )
        .await
        .ok();
    assert_eq!(city["operation_id"], "exact.city");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_scopes_and_allowlists_apply_to_the_actual_call() {
    let world = strict().await;
    let agent = unlimited(&world).await;
    let scrape = world.service("lab-scrape").await;
    let endpoint = scrape.operations[0].endpoint.as_str().to_owned();
    let policy = SpendPolicy {
        allowed_domains: vec![DomainPattern::parse("example.com").unwrap()],
        ..SpendPolicy::permissive()
    };
    world.enable(&agent, "lab-scrape", policy).await;
    let fetching = |query: &str, target: Option<&str>| {
        let mut body = calling(&world, "GET", &format!("{endpoint}{query}"));
        if let Some(target) = target {
            body["metadata"] = json!({"target_url": target, "task": "reading"});
        }
        body
    };
    let good = Some("https://example.com/page");
    let rows: [(&str, Value, (u16, &str)); 5] = [
        ("no target", fetching("", None), (400, "target_url_required")),
        (
            "another target",
            fetching("", Some("https://evil.test/")),
            (403, "domain_not_allowed"),
        ),
        (
            "a look-alike",
            fetching("", Some("https://example.com.evil.test/")),
            (403, "domain_not_allowed"),
        ),
        (
            "another target in the query",
            fetching("?url=https%3A%2F%2Fevil.test%2F", good),
            (403, "domain_not_allowed"),
        ),
        (
            "one without a scheme",
            fetching("?url=www.evil.test", good),
            (403, "domain_not_allowed"),
        ),
    ];
    for (attack, body, expected) in &rows {
        refused(&world, &agent, attack, body, *expected).await;
    }
    world
        .authorize(&agent, &fetching("?url=https://example.com/page", good))
        .await
        .ok();
    let mut misspelled = fetching("", good);
    misspelled["metadata"] = json!({"targetUrl": "https://example.com/"});
    let body = world
        .authorize(&agent, &misspelled)
        .await
        .refused(400, "invalid_request");
    assert_eq!(body["details"][0]["path"], "/metadata/targetUrl");
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_cannot_redirect_or_share_a_payment() {
    let world = strict().await;
    let (agent, other) = (unlimited(&world).await, unlimited(&world).await);
    let body = calling(&world, "GET", WEATHER);
    let paid = world.authorize(&agent, &body).await.ok();
    let settlement = paid["settlement_id"].as_str().unwrap();
    let before = world.footprint().await;

    let mut redirected = body.clone();
    redirected["payment_requirement"]["accepts"][0]["payTo"] = json!(STRANGER);
    let conflict = "idempotency_key_reused_for_different_request";
    let told = world.authorize(&agent, &redirected).await.refused(409, conflict);
    assert_eq!(told["settlement_id"], settlement);
    let again = world.authorize(&agent, &body).await.ok();
    assert_eq!(
        as_repeated(&again),
        as_repeated(&paid),
        "the same payment, to the same payee"
    );
    world.edit(&agent, |agent| agent.status = AgentStatus::Frozen).await;
    let frozen = world.authorize(&agent, &body).await;
    assert_eq!(
        said(&frozen),
        (403, "agent_frozen".to_owned()),
        "no bytes for a frozen agent"
    );
    assert_eq!(frozen.body.get("payment"), None);
    world.edit(&agent, |agent| agent.status = AgentStatus::Active).await;
    let again = world.authorize(&agent, &body).await.ok();
    assert_eq!(as_repeated(&again), as_repeated(&paid));

    let hash = world.settle(&paid).await;
    let proof = json!({"payment_response_header": {}, "tx_hash": hash});
    for path in [
        format!("/x402/settlements/{settlement}/complete"),
        format!("/x402/settlements/{settlement}"),
    ] {
        let method = if path.ends_with("complete") {
            Method::POST
        } else {
            Method::GET
        };
        let sent = (method == Method::POST).then_some(&proof);
        let answer = world.call(method, &path, Some(&other.key), sent).await;
        assert!(matches!(answer.status, 404 | 422), "{}", answer.body);
    }
    assert_eq!(world.footprint().await, before);
}

/// The cap allows twenty of the payments.
#[tokio::test(flavor = "multi_thread")]
async fn payment_bursts_cannot_exceed_the_cap() {
    let world = strict().await;
    let agent = unlimited(&world).await;
    let policy = SpendPolicy {
        max_per_day: units(20 * PRICE),
        ..SpendPolicy::permissive()
    };
    world.enable(&agent, "lab-weather", policy).await;
    let bodies: Vec<Value> = (0..200).map(|_| calling(&world, "GET", WEATHER)).collect();
    let calls = bodies.iter().map(|body| authorizing(&world, &agent, body.clone()));
    let answers = together(calls.collect()).await;
    let mut counts = BTreeMap::new();
    for answer in &answers {
        let count: &mut usize = counts.entry((answer.status, answer.slug().to_owned())).or_default();
        *count += 1;
    }
    let allowed = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(allowed <= 20, "{counts:?}");
    // A slow database may make calls fail with a retryable error (docs/errors.md §2).
    let expected = [
        (200, ""),
        (402, "daily_spend_limit_exceeded"),
        (500, "internal_error"),
        (503, "temporarily_unavailable"),
    ];
    let is_expected = |(status, slug): &(u16, String)| expected.contains(&(*status, slug.as_str()));
    assert!(counts.keys().all(is_expected), "{counts:?}");
    for body in &bodies {
        world.authorize(&agent, body).await;
    }
    let Footprint { settlements, total, .. } = world.footprint().await;
    assert_eq!((settlements, total), (20, 20 * PRICE));
}
