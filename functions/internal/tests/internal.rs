//! The internal group over an emulated DynamoDB: what operators can do, and what they are told.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request},
};
use http_body_util::BodyExt as _;
use purser_api::{Boot, Clock};
use purser_domain::{
    Availability, CatalogPayment, Network, Obstacle, Operation, Quote, Service, ServiceId, Sighting, Timestamp,
    TrustStatus, parse_address,
};
use purser_store::{CatalogTable, Listed};
use purser_testkit::{Emulator, SecretsManager, environment};
use serde_json::{Value, json};
use std::sync::{Arc, atomic::AtomicI64};
use tower::ServiceExt as _;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const LAB: &str = "86576a95-9c5c-55d2-a83c-39ed168ea1a2";
const OTHER: &str = "972f42af-4810-53eb-b164-93efd247c5be";
const PAYEE: &str = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
const STRANGER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
/// The still clock: 2026-11-21T01:09:00Z.
const NOW: i64 = 1_795_223_340_000_000;

/// The group, and the table that it writes.
struct Desk {
    router: Router,
    table: CatalogTable,
}

impl Desk {
    async fn open() -> Self {
        let emulator = Emulator::start().await;
        let secrets = SecretsManager::new([("arn", TOKEN)]).serve().await;
        let env = [("NETWORK", "base-sepolia"), ("INTERNAL_TOKEN_SECRET_ARN", "arn")];
        let env = env.map(|(name, value)| (name, value.to_owned()));
        let env = environment(&emulator.url, &secrets).chain(env).collect();
        let boot = Boot::new(env, Clock::still(Arc::new(AtomicI64::new(NOW))));
        Self {
            router: purser_internal::router(boot).await.unwrap(),
            table: emulator.catalog(),
        }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string())
        };
        let answer = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            headers,
            body: serde_json::from_slice(&bytes).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[("x-internal-token", TOKEN)], &Value::Null)
            .await
    }

    async fn put(&self, path: &str, if_match: Option<&str>, body: &Value) -> Answer {
        let mut headers = vec![("x-internal-token", TOKEN)];
        headers.extend(if_match.map(|version| ("if-match", version)));
        self.send("PUT", path, &headers, body).await
    }

    /// Records that every operation of the service was seen like that.
    async fn see(&self, seen: Sighting) {
        let id = ServiceId::parse(LAB).unwrap();
        let before = self.table.service(id).await.unwrap().unwrap();
        let record = self.table.probes(id).await.unwrap();
        let all = before.operations.iter().map(|operation| (operation.id, seen.clone()));
        let at = Timestamp::from_micros(NOW).unwrap();
        let (after, record) = before.probed(&record, all.collect::<Vec<_>>(), at);
        let listed = self.table.put_probed(&before, &after, &record).await.unwrap();
        assert_eq!(listed, Listed::Stored);
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    /// The status and the slug of a refusal.
    fn refusal(&self) -> (u16, &str) {
        (self.status, self.body["error"].as_str().unwrap_or_default())
    }

    /// The status and the version, which the `ETag` repeats.
    fn version(&self) -> (u16, u64) {
        let version = self.body["version"].as_u64().unwrap();
        assert_eq!(self.headers["etag"], format!("\"{version}\""));
        (self.status, version)
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/internal/services/{id}{rest}")
}

fn operation(n: u32, payment: Value) -> Value {
    let mut operation = json!({
        "id": format!("00000000-0000-0000-0000-{n:012}"),
        "operation_id": format!("weather.n{n}"),
        "label": "Weather",
        "method": "GET",
        "endpoint": format!("https://lab.example/{n}"),
        "category": "data",
        "execution": "sync",
        "price_model": "fixed",
        "estimated_price_units": 10_000 * n,
    });
    if !payment.is_null() {
        operation["payment"] = payment;
    }
    operation
}

fn payment(units: u64) -> Value {
    json!({"scheme": "exact", "network": "base-sepolia", "token": "USDC", "amount_units": units, "pay_to": PAYEE})
}

fn lab() -> Value {
    json!({
        "slug": "lab",
        "name": "Lab",
        "description": "A laboratory.",
        "website": "https://lab.example/",
        "category": "data",
        "source": "operator",
        "operations": [operation(1, payment(10_000)), operation(2, Value::Null)],
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut body = lab();
    body[name] = value;
    body
}

fn asks(units: u64, payee: &str) -> Quote {
    Quote::Paid(CatalogPayment {
        scheme: "exact".to_owned(),
        network: Network::BaseSepolia,
        amount: purser_domain::Amount::from_units(units).unwrap(),
        pay_to: parse_address(payee).unwrap(),
    })
}

#[tokio::test]
async fn nobody_gets_in_without_the_token() {
    let desk = Desk::open().await;
    desk.put(&path(LAB, ""), None, &lab()).await;
    let routes = [
        ("GET", "/internal/services".to_owned()),
        ("GET", path(LAB, "")),
        ("PUT", path(LAB, "")),
        ("PUT", path(LAB, "/trust-status")),
        ("PUT", path(LAB, "/curated")),
        ("POST", path(LAB, "/probe")),
        ("POST", format!("/internal/agents/{LAB}/settlements/{OTHER}/reconcile")),
    ];
    let wrong = "0123456789abcdef0123456789abcdeX";
    let bearer = format!("Bearer {TOKEN}");
    let callers: [&[(&str, &str)]; 5] = [
        &[],
        &[("x-internal-token", wrong)],
        &[("x-internal-token", "")],
        &[("authorization", &bearer)],
        &[("x-internal-token", TOKEN), ("x-internal-token", wrong)],
    ];
    for (method, path) in &routes {
        for caller in callers {
            // Neither the missing version nor the malformed body is looked at before the caller.
            let answer = desk.send(method, path, caller, &json!([])).await;
            assert_eq!(answer.refusal(), (401, "invalid_internal_token"), "{method} {path}");
        }
    }
    assert_eq!(desk.get(&path(LAB, "")).await.version(), (200, 1));
    let openapi = serde_json::to_value(purser_internal::openapi()).unwrap();
    let documented: usize = openapi["paths"]
        .as_object()
        .unwrap()
        .values()
        .map(|item| {
            item.as_object()
                .unwrap()
                .keys()
                .filter(|key| *key != "parameters")
                .count()
        })
        .sum();
    assert_eq!(documented, routes.len(), "a route is missing from this test");
}

#[tokio::test]
async fn a_service_is_created_read_and_replaced() {
    let desk = Desk::open().await;
    let created = desk.put(&path(LAB, ""), None, &lab()).await;
    assert_eq!(created.version(), (201, 1));
    let operations = [1, 2].map(|n| {
        json!({
            "id": format!("00000000-0000-0000-0000-{n:012}"),
            "operation_id": format!("weather.n{n}"),
            "availability": "unverified",
            "label": "Weather",
            "method": "GET",
            "endpoint": format!("https://lab.example/{n}"),
            "category": "data",
            "execution": "sync",
            "price_model": "fixed",
            "estimated_price_units": 10_000 * n,
            "max_price_units": null,
            "params": {},
            "fetches_target": false,
            "payment": if n == 1 { payment(10_000) } else { Value::Null },
            "unpayable_reason": if n == 1 { Value::Null } else { json!("operation_has_no_payment") },
            "probe": null,
            "change": null,
        })
    });
    assert_eq!(
        created.body,
        json!({
            "id": LAB,
            "version": 1,
            "slug": "lab",
            "name": "Lab",
            "description": "A laboratory.",
            "website": "https://lab.example/",
            "logo_url": null,
            "category": "data",
            "source": "operator",
            "trust_status": "listed",
            "curated": false,
            "operation_count": 2,
            "paid_operation_count": 1,
            "free_operation_count": 0,
            "min_price_units": 10_000,
            "probe_requested_at": null,
            "changed": false,
            "operations": operations,
        })
    );
    assert_eq!(desk.get(&path(LAB, "")).await.body, created.body);

    let fewer = with("operations", json!([operation(2, payment(5_000))]));
    let replaced = desk.put(&path(LAB, ""), Some("\"1\""), &fewer).await;
    assert_eq!(replaced.version(), (200, 2));
    assert_eq!(replaced.body["operation_count"], 1);
    assert_eq!(replaced.body["min_price_units"], 5_000);
    let again = desk.put(&path(LAB, ""), Some("*"), &fewer).await;
    assert_eq!(again.version(), (200, 2), "what is there already is not written");
    assert_eq!(again.body, replaced.body);
}

#[tokio::test]
async fn a_write_says_the_version_that_it_is_meant_for() {
    let desk = Desk::open().await;
    let service = path(LAB, "");
    for (if_match, expected) in [
        (Some("\"1\""), (412, "version_conflict")),
        (Some("*"), (412, "version_conflict")),
        (Some("1"), (400, "invalid_request")),
    ] {
        let answer = desk.put(&service, if_match, &lab()).await;
        assert_eq!(answer.refusal(), expected, "{if_match:?}");
    }
    assert_eq!(desk.put(&service, Some("\"0\""), &lab()).await.version(), (201, 1));
    let bodies = [
        ("", with("name", json!("Renamed"))),
        ("/trust-status", json!({"trust_status": "disabled"})),
        ("/curated", json!({"curated": true})),
    ];
    for (n, (rest, body)) in (1..).zip(bodies) {
        let path = path(LAB, rest);
        assert_eq!(desk.put(&path, None, &body).await.refusal(), (428, "version_required"));
        let stale = desk.put(&path, Some("\"9\""), &body).await;
        assert_eq!(stale.refusal(), (412, "version_conflict"));
        assert_eq!(stale.body["version"], n);
        let tag = format!("\"{n}\"");
        assert_eq!(desk.put(&path, Some(&tag), &body).await.version(), (200, n + 1));
        assert_eq!(desk.put(&path, Some("*"), &body).await.version(), (200, n + 1));
    }
    let now = desk.get(&service).await.body;
    assert_eq!(
        (&now["name"], &now["trust_status"], &now["curated"]),
        (&json!("Renamed"), &json!("disabled"), &json!(true))
    );
}

#[tokio::test]
async fn of_many_edits_at_once_of_one_version_one_is_made() {
    let desk = Arc::new(Desk::open().await);
    desk.put(&path(LAB, ""), None, &lab()).await;
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..8 {
        let desk = desk.clone();
        racing.spawn(async move {
            let body = with("name", json!(format!("Lab {n}")));
            desk.put(&path(LAB, ""), Some("\"1\""), &body).await.status
        });
    }
    let mut statuses = racing.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..8 {
        let desk = desk.clone();
        racing.spawn(async move {
            let body = json!({"trust_status": TrustStatus::ALL[n % 5].name()});
            desk.put(&path(LAB, "/trust-status"), Some("*"), &body).await.status
        });
    }
    assert_eq!(
        racing.join_all().await,
        [200; 8],
        "an edit of whatever is there finds its turn"
    );
}

#[tokio::test]
async fn a_slug_is_the_name_of_one_service() {
    let desk = Desk::open().await;
    desk.put(&path(LAB, ""), None, &lab()).await;
    let taken = desk.put(&path(OTHER, ""), None, &lab()).await;
    assert_eq!(taken.refusal(), (409, "slug_taken"));
    assert_eq!(taken.body["service_id"], LAB);
    assert_eq!(desk.get(&path(OTHER, "")).await.refusal(), (404, "not_found"));
    desk.put(&path(LAB, ""), Some("*"), &with("slug", json!("lab-two")))
        .await;
    assert_eq!(desk.put(&path(OTHER, ""), None, &lab()).await.version(), (201, 1));
}

#[tokio::test]
async fn what_is_not_there_is_not_found_and_what_is_wrong_is_named() {
    let desk = Desk::open().await;
    let trust = json!({"trust_status": "disabled"});
    for id in [LAB, "lab", "1"] {
        let answers = [
            desk.get(&path(id, "")).await,
            desk.put(&path(id, "/trust-status"), Some("*"), &trust).await,
            desk.put(&path(id, "/curated"), Some("*"), &json!({"curated": true}))
                .await,
            desk.send(
                "POST",
                &path(id, "/probe"),
                &[("x-internal-token", TOKEN)],
                &Value::Null,
            )
            .await,
        ];
        for answer in answers {
            assert_eq!(answer.refusal(), (404, "not_found"), "{id}");
        }
    }
    assert_eq!(
        desk.put(&path("lab", ""), None, &lab()).await.body["details"][0]["path"],
        "/serviceId"
    );

    desk.put(&path(LAB, ""), None, &lab()).await;
    let rows = [
        ("", json!([]), vec![""]),
        ("", with("slug", json!("")), vec!["/slug"]),
        ("", with("availability", json!("paid_x402")), vec!["/availability"]),
        ("/trust-status", json!({"trust_status": "good"}), vec!["/trust_status"]),
        (
            "/trust-status",
            json!({"trust_status": "listed", "curated": true}),
            vec!["/curated"],
        ),
        ("/curated", json!({"curated": "yes"}), vec!["/curated"]),
        ("/curated", json!({"Curated": true}), vec!["/Curated", "/curated"]),
    ];
    for (rest, body, expected) in rows {
        let answer = desk.put(&path(LAB, rest), Some("*"), &body).await;
        let slug = if body.get("Curated").is_some() {
            "curated_required"
        } else {
            "invalid_request"
        };
        assert_eq!(answer.refusal(), (400, slug));
        let details = answer.body["details"].as_array().unwrap();
        let paths: Vec<&str> = details.iter().map(|detail| detail["path"].as_str().unwrap()).collect();
        assert_eq!(paths, expected, "{rest} {body}");
    }
    let missing = desk.put(&path(LAB, "/trust-status"), Some("*"), &json!({})).await;
    assert_eq!(missing.refusal(), (400, "trust_status_required"));
    assert_eq!(
        desk.get(&path(LAB, "")).await.version(),
        (200, 1),
        "nothing was half written"
    );
    let wrong = desk.get("/internal/services?changed=yes").await;
    assert_eq!(wrong.refusal(), (400, "invalid_request"));
}

#[tokio::test]
async fn a_change_at_the_provider_waits_until_an_operator_accepts_it() {
    let desk = Desk::open().await;
    let one = with("operations", json!([operation(1, payment(10_000))]));
    desk.put(&path(LAB, ""), None, &one).await;
    desk.put(&path(OTHER, ""), None, &with("slug", json!("other"))).await;
    desk.see(Ok(asks(10_000, PAYEE))).await;
    let agreed = desk.get(&path(LAB, "")).await;
    assert_eq!(agreed.version(), (200, 2));
    assert_eq!(agreed.body["trust_status"], "probe_passed");
    assert_eq!(agreed.body["paid_operation_count"], 1);
    assert_eq!(agreed.body["changed"], false);

    desk.see(Ok(asks(12_000, STRANGER))).await;
    desk.see(Err(Obstacle::Status(500))).await;
    let changed = desk.get(&path(LAB, "")).await;
    let operation = &changed.body["operations"][0];
    let mut wanted = payment(12_000);
    wanted["pay_to"] = json!(STRANGER);
    let since = "2026-11-21T01:09:00.000000Z";
    assert_eq!(changed.body["changed"], true);
    assert_eq!(operation["payment"], payment(10_000), "what is pinned stays");
    assert_eq!(operation["change"], json!({"payment": wanted, "since": since}));
    assert_eq!(
        operation["probe"],
        json!({
            "at": since,
            "availability": "unverified",
            "reason": "status_500",
            "last_answer": {"payment": wanted, "since": since},
        })
    );

    let list = |query: &'static str| {
        let desk = &desk;
        async move {
            let list = desk.get(&format!("/internal/services{query}")).await.body;
            assert_eq!(list["count"], list["services"].as_array().unwrap().len());
            list["services"].clone()
        }
    };
    let slugs = |services: &Value| -> Vec<String> {
        let services = services.as_array().unwrap().iter();
        services
            .map(|service| service["slug"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(slugs(&list("").await), ["lab", "other"]);
    assert_eq!(slugs(&list("?changed=false").await), ["other"]);
    let waiting = list("?changed=true").await;
    assert_eq!(slugs(&waiting), ["lab"]);
    assert_eq!(
        waiting[0]["changes"],
        json!([{
            "id": "00000000-0000-0000-0000-000000000001",
            "operation_id": "weather.n1",
            "pinned": payment(10_000),
            "seen": wanted,
            "since": since,
        }])
    );
    assert_eq!(waiting[0]["probed_at"], since);

    let mut accepted = one.clone();
    accepted["operations"][0]["payment"] = wanted;
    let accepted = desk.put(&path(LAB, ""), Some("*"), &accepted).await;
    assert_eq!((accepted.status, &accepted.body["changed"]), (200, &json!(false)));
    assert!(list("?changed=true").await.as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_replacement_keeps_what_probes_saw() {
    let desk = Desk::open().await;
    let unpinned = with("operations", json!([operation(1, Value::Null)]));
    desk.put(&path(LAB, ""), None, &unpinned).await;
    desk.see(Ok(asks(10_000, PAYEE))).await;
    let again = desk.put(&path(LAB, ""), Some("*"), &unpinned).await;
    let operation = &again.body["operations"][0];
    assert_eq!(operation["availability"], "paid_x402");
    assert_eq!(operation["payment"], payment(10_000), "filled in at first sight");
    assert_eq!(again.body["trust_status"], "probe_passed");

    let mut moved = unpinned;
    moved["operations"][0]["endpoint"] = json!("https://elsewhere.example/");
    let moved = desk.put(&path(LAB, ""), Some("*"), &moved).await;
    let operation = &moved.body["operations"][0];
    assert_eq!(operation["availability"], "unverified");
    assert_eq!(
        (&operation["payment"], &operation["probe"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn a_probe_is_asked_for_and_the_entry_is_not_changed_by_it() {
    let desk = Desk::open().await;
    desk.put(&path(LAB, ""), None, &lab()).await;
    let asked = desk
        .send(
            "POST",
            &path(LAB, "/probe"),
            &[("x-internal-token", TOKEN)],
            &Value::Null,
        )
        .await;
    assert_eq!(asked.version(), (202, 1));
    assert_eq!(asked.body["probe_requested_at"], "2026-11-21T01:09:00.000000Z");
    let (service, record) = desk.table.load_probed().await.unwrap().remove(0);
    let due = |operation: &Operation| record.is_requested(operation);
    assert!(service.operations.iter().all(due));
    let unseen = |service: &Service| {
        service
            .operations
            .iter()
            .all(|o| o.availability == Availability::Unverified)
    };
    assert!(unseen(&service));
}
