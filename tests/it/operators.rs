//! Tests operators' catalog updates over HTTP, their effect on paying agents, and the probe, which only observes.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use purser_domain::TrustStatus;
use purser_local::{DEMO_OWNER, Options};
use purser_store::ObjectStored;
use purser_testkit::{Fate, Moment};
use purser_tests::{
    Answer, OfferedTerms, TestAgent, World, body_of, fresh_key, offer_v1, offer_v2, operation_entry, paths,
    payment_entry, service_entry, together,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NOTHING: [String; 0] = [];

/// A payee that differs from the catalog's.
pub(crate) const STRANGER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";

/// The time, in seconds, after which every function has loaded a changed catalog.
pub(crate) const SEEN_AFTER: u32 = 6;

pub(crate) fn at(id: &str) -> String {
    format!("/internal/services/{id}")
}

/// Returns an operation whose payee is the local providers' wallet.
fn paid_operation(world: &World, slug: &str, units: u64) -> Value {
    let mut operation = operation_entry(slug, &format!("https://newcomer.example/{slug}"));
    operation["estimated_price_units"] = json!(units);
    operation["payment"] = payment_entry(units, &world.stack.providers.pay_to);
    operation
}

/// Writes a service. `if_match` is the expected version.
async fn put(world: &World, id: &str, if_match: Option<&str>, entry: &Value) -> Answer {
    let request = world.operators_request(Method::PUT, &at(id)).json(entry);
    World::send(match if_match {
        Some(version) => request.header("if-match", version),
        None => request,
    })
    .await
}

/// Returns the service with this slug from the public routes; `None` if there is none.
async fn public(world: &World, slug: &str) -> Option<Value> {
    let list = world
        .call(Method::GET, &format!("/services?slug={slug}"), None, None)
        .await
        .ok();
    assert!(list["count"].as_u64().unwrap() <= 1, "{list}");
    list["services"].get(0).cloned()
}

/// Returns an authorize body for a service.
fn buying(world: &World, slug: &str, units: u64) -> Value {
    let mut body = body_of(world.offer(units));
    body["service_id"] = json!(slug);
    body["original_request"] = json!({"method": "GET", "url": "https://newcomer.example/news.read"});
    body
}

/// An omitted payment, trust status or `curated` keeps its value.
#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_service_is_replaced_as_a_whole() {
    let world = World::still().await;
    let id = fresh_key();
    let entry = service_entry("newcomer", &[paid_operation(&world, "news.read", 1_000)]);
    World::send(world.operators_request(Method::GET, &at(&id)))
        .await
        .refused(404, "not_found");
    let made = put(&world, &id, None, &entry).await;
    assert_eq!(made.etag(), "\"1\"");
    let made = made.created();
    let mut expected = entry.clone();
    for (name, value) in [
        ("id", json!(id)),
        ("version", json!(1)),
        ("operation_count", json!(1)),
        ("paid_operation_count", json!(1)),
        ("free_operation_count", json!(0)),
        ("min_price_units", json!(1_000)),
        ("probe_requested_at", Value::Null),
        ("changed", json!(false)),
    ] {
        expected[name] = value;
    }
    for (name, value) in [
        ("availability", json!("unverified")),
        ("fetches_target", json!(false)),
        ("unpayable_reason", Value::Null),
        ("probe", Value::Null),
        ("change", Value::Null),
        ("next", Value::Null),
        ("paid_from", Value::Null),
    ] {
        expected["operations"][0][name] = value;
    }
    assert_eq!(made, expected);
    assert_eq!(world.operator_gets(&at(&id)).await.ok(), expected);

    // Writing the same service again changes no row.
    let before = world.rows_of("CatalogTable").await;
    assert_eq!(put(&world, &id, Some("\"1\""), &entry).await.ok(), expected);
    assert_eq!(world.rows_of("CatalogTable").await.changes_since(&before), NOTHING);

    // All other omitted fields are removed.
    let mut next = service_entry(
        "newcomer",
        &[entry["operations"][0].clone(), paid_operation(&world, "news.list", 7)],
    );
    for name in ["logo_url", "trust_status", "curated"] {
        next.as_object_mut().unwrap().remove(name);
    }
    next["description"] = json!("Changed.");
    for name in ["params", "payment", "max_price_units"] {
        next["operations"][0].as_object_mut().unwrap().remove(name);
    }
    let replaced = put(&world, &id, Some("\"1\""), &next).await;
    assert_eq!(replaced.etag(), "\"2\"");
    let replaced = replaced.ok();
    assert_eq!(
        (&replaced["description"], &replaced["operation_count"]),
        (&json!("Changed."), &json!(2))
    );
    assert_eq!(
        (&replaced["curated"], &replaced["trust_status"]),
        (&json!(true), &json!("listed"))
    );
    let operations = &replaced["operations"];
    assert_eq!(
        (&operations[0]["params"], &operations[0]["payment"]),
        (&json!({}), &entry["operations"][0]["payment"])
    );
    assert_eq!(replaced["min_price_units"], 7);
    next["operations"][0]["payment"] = Value::Null;
    let unpinned = put(&world, &id, Some("*"), &next).await.ok();
    assert_eq!(
        (&unpinned["operations"][0]["payment"], &unpinned["version"]),
        (&Value::Null, &json!(3))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn catalog_updates_require_a_matching_version() {
    let world = World::start().await;
    let entry = service_entry("newcomer", &[]);
    let (id, _) = world.enter(&entry).await;
    let mut changed = entry.clone();
    changed["name"] = json!("Other");
    let writes = [
        (at(&id), changed),
        (
            format!("{}/trust-status", at(&id)),
            json!({"trust_status": "platform_verified"}),
        ),
        (format!("{}/curated", at(&id)), json!({"curated": false})),
    ];
    for (version, (path, body)) in (1..).zip(&writes) {
        let before = world.rows_of("CatalogTable").await;
        let send = async |if_match: Option<&str>| {
            let request = world.operators_request(Method::PUT, path).json(body);
            World::send(match if_match {
                Some(version) => request.header("if-match", version),
                None => request,
            })
            .await
        };
        send(None).await.refused(428, "version_required");
        for stale in [version - 1, version + 1] {
            let told = send(Some(&format!("\"{stale}\"")))
                .await
                .refused(412, "version_conflict");
            assert_eq!(told["version"], version, "{path}");
        }
        assert_eq!(paths(send(Some("1")).await, path), ["/If-Match"]);
        assert_eq!(world.rows_of("CatalogTable").await.changes_since(&before), NOTHING);
        let done = send(Some(&format!("\"{version}\""))).await;
        assert_eq!(done.etag(), format!("\"{}\"", version + 1));
        assert_eq!(done.ok()["version"], version + 1);
    }
    // The version "0" creates a service.
    let unknown = fresh_key();
    for if_match in ["\"1\"", "*"] {
        let told = put(&world, &unknown, Some(if_match), &service_entry("other", &[])).await;
        let told = told.refused(412, "version_conflict");
        assert_eq!(
            (&told["version"], &told["message"]),
            (
                &json!(0),
                &json!("nothing is stored here yet; to create it, send `If-Match: \"0\"`")
            )
        );
    }
    let first = put(&world, &fresh_key(), Some("\"0\""), &service_entry("other", &[])).await;
    assert_eq!(first.created()["version"], 1);
    for (method, path, body) in [
        (
            Method::PUT,
            format!("{}/trust-status", at(&unknown)),
            json!({"trust_status": "listed"}),
        ),
        (
            Method::PUT,
            format!("{}/curated", at(&unknown)),
            json!({"curated": true}),
        ),
        (Method::POST, format!("{}/probe", at(&unknown)), json!({})),
        (Method::GET, at(&unknown), json!({})),
        (Method::GET, at("lab-search"), json!({})),
        (
            Method::PUT,
            format!("{}/curated", at("lab-search")),
            json!({"curated": true}),
        ),
        (Method::POST, format!("{}/probe", at("x")), json!({})),
    ] {
        world
            .operator_edits(method, &path, &body)
            .await
            .refused(404, "not_found");
    }

    const RACERS: usize = 12;
    let edits = (0..RACERS).map(|n| {
        let mut entry = entry.clone();
        entry["name"] = json!(format!("name {n}"));
        let request = world
            .operators_request(Method::PUT, &at(&id))
            .header("if-match", "\"4\"");
        World::send(request.json(&entry))
    });
    let answers = together(edits.collect()).await;
    let (won, lost): (Vec<Answer>, Vec<Answer>) = answers.into_iter().partition(|answer| answer.status == 200);
    assert_eq!(won.len(), 1);
    for answer in lost {
        assert_eq!(answer.refused(412, "version_conflict")["version"], 5);
    }
    assert_eq!(world.operator_gets(&at(&id)).await.ok(), won[0].body);

    let path = format!("{}/trust-status", at(&id));
    let edits = TrustStatus::ALL.iter().map(|status| {
        let request = world.operators_request(Method::PUT, &path).header("if-match", "*");
        World::send(request.json(&json!({"trust_status": status.name()})))
    });
    for answer in together(edits.collect()).await {
        answer.ok();
    }
}

/// The update succeeds if the catalog object can't be stored. The object is stored later, when operators list services.
#[tokio::test(flavor = "multi_thread")]
async fn catalog_updates_succeed_without_the_catalog_object() {
    let world = World::metered().await;
    let proxy = world.proxy.as_ref().unwrap();
    proxy.follow(|step| {
        let is_object = step.moment == Moment::Arrived && step.call == "PutItem CatalogTable";
        if is_object { Fate::server_error() } else { Fate::PassOn }
    });
    let (id, made) = world.enter(&service_entry("newcomer", &[])).await;
    assert_eq!(world.operator_gets(&at(&id)).await.ok(), made);
    world.pass(SEEN_AFTER);
    let shown = world.call(Method::GET, &format!("/services/{id}"), None, None).await;
    assert_eq!(shown.ok()["slug"], "newcomer", "readers scan the table");
    proxy.behave();
    world.operator_gets("/internal/services").await.ok();
    let stored = world.stack.catalog.store_catalog_object().await.unwrap();
    assert_eq!(stored, ObjectStored::Present);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slug_belongs_to_one_service() {
    let world = World::start().await;
    let search = world.service("lab-search").await.id.to_string();
    let before = world.rows_of("CatalogTable").await;
    let told = put(&world, &fresh_key(), None, &service_entry("lab-search", &[]))
        .await
        .refused(409, "slug_taken");
    assert_eq!(told["service_id"], search);
    let (first, made) = world.enter(&service_entry("first", &[])).await;
    let (second, _) = world.enter(&service_entry("second", &[])).await;
    let told = put(&world, &second, Some("*"), &service_entry("first", &[]))
        .await
        .refused(409, "slug_taken");
    assert_eq!(told["service_id"], first);
    assert_eq!(world.operator_gets(&at(&first)).await.ok(), made);
    // Each update wrote a row, a claim and the catalog's version. Then the object was stored.
    let mut changed = world.rows_of("CatalogTable").await.changes_since(&before);
    changed.retain(|row| !["[\"OBJECT", "[\"CHUNK#"].iter().any(|object| row.starts_with(object)));
    assert_eq!(changed.len(), 5);

    // Another service can get the previous slug of a renamed service.
    put(&world, &first, Some("*"), &service_entry("renamed", &[]))
        .await
        .ok();
    put(&world, &second, Some("*"), &service_entry("first", &[])).await.ok();
    world.enter(&service_entry("second", &[])).await;

    const RACERS: usize = 8;
    let ids: Vec<String> = (0..RACERS).map(|_| fresh_key()).collect();
    let claims = ids.iter().map(|id| {
        let request = world.operators_request(Method::PUT, &at(id));
        World::send(request.json(&service_entry("wanted", &[])))
    });
    let answers = together(claims.collect()).await;
    let won: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(won.len(), 1);
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        let told = answer.clone().refused(409, "slug_taken");
        assert_eq!(told["service_id"], won[0].body["id"]);
    }
    let all = world.operator_gets("/internal/services").await.ok();
    let slugs: Vec<&str> = all["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["slug"].as_str().unwrap())
        .collect();
    assert!(slugs.is_sorted());
    assert_eq!(slugs.iter().collect::<BTreeSet<_>>().len(), slugs.len());
    assert_eq!(
        slugs
            .iter()
            .filter(|slug| ["wanted", "first", "second", "renamed"].contains(slug))
            .count(),
        4
    );
}

/// For agents, disabled and uncurated services do not exist.
#[tokio::test(flavor = "multi_thread")]
async fn disabled_or_uncurated_services_are_hidden_from_agents() {
    let world = World::still().await;
    let owner = world.person(&DEMO_OWNER);
    let demo = world.demo();
    let mut entry = service_entry("newcomer", &[paid_operation(&world, "news.read", 1_000)]);
    entry["curated"] = json!(false);
    let (id, _) = world.enter(&entry).await;
    world.pass(SEEN_AFTER);

    let services = demo.path("/services");
    let enabling = json!({"service_id": "newcomer"});
    let absent = async |what: &str| {
        let before = (world.rows().await, world.decisions(&demo).await);
        let body = buying(&world, "newcomer", 1_000);
        world.authorize(&demo, &body).await.refused(404, "service_not_found");
        world.check(&demo, &body).await.refused(404, "service_not_found");
        let mut by_id = body.clone();
        by_id["service_id"] = json!(id);
        world.authorize(&demo, &by_id).await.refused(404, "service_not_found");
        // The service is not found by the called URL either.
        let mut by_address = body;
        by_address.as_object_mut().unwrap().remove("service_id");
        by_address["original_request"] = json!({"method": "GET", "url": "https://newcomer.example/news.read"});
        world
            .authorize(&demo, &by_address)
            .await
            .refused(404, "service_not_found");
        world
            .person_edits(&owner, Method::POST, &services, &enabling)
            .await
            .refused(404, "service_not_found");
        assert_eq!(world.rows().await.changes_since(&before.0), NOTHING, "{what}");
        assert_eq!(world.decisions(&demo).await, before.1, "{what}");
    };
    absent("not curated").await;
    let agent = world.agent_of(&owner, "made meanwhile").await;
    world
        .person_gets(&owner, &agent.path("/services/newcomer"))
        .await
        .refused(404, "not_found");

    let set = async |below: &str, body: Value| {
        let set = world
            .operator_edits(Method::PUT, &format!("{}/{below}", at(&id)), &body)
            .await
            .ok();
        world.pass(SEEN_AFTER);
        set
    };
    assert_eq!(set("curated", json!({"curated": true})).await["curated"], true);
    world
        .person_edits(&owner, Method::POST, &services, &enabling)
        .await
        .created();
    world.authorize(&demo, &buying(&world, "newcomer", 1_000)).await.ok();
    assert_eq!(public(&world, "newcomer").await.unwrap()["trust_status"], "listed");

    let policy = format!("{services}/newcomer");
    let tight = json!({"max_per_call_units": 1_500, "enabled": false});
    for (below, out, back) in [
        (
            "trust-status",
            json!({"trust_status": "disabled"}),
            json!({"trust_status": "platform_verified"}),
        ),
        ("curated", json!({"curated": false}), json!({"curated": true})),
    ] {
        set(below, out).await;
        absent(below).await;
        // The owner can read and tighten the policy for the service, but not enable the service.
        world.person_edits(&owner, Method::PATCH, &policy, &tight).await.ok();
        let on = world
            .person_edits(&owner, Method::PATCH, &policy, &json!({"enabled": true}))
            .await;
        on.refused(404, "service_not_found");
        if below == "trust-status" {
            let named = public(&world, "newcomer")
                .await
                .expect("it is shown to whoever names it");
            assert_eq!(named["trust_status"], "disabled");
        }
        set(below, back).await;
        world
            .authorize(&demo, &buying(&world, "newcomer", 1_000))
            .await
            .refused(403, "service_not_enabled");
        world
            .person_edits(&owner, Method::PATCH, &policy, &json!({"enabled": true}))
            .await
            .ok();
        world.authorize(&demo, &buying(&world, "newcomer", 1_000)).await.ok();
        world
            .authorize(&demo, &buying(&world, "newcomer", 1_501))
            .await
            .refused(402, "amount_exceeds_per_call_limit");
    }
    assert_eq!(
        public(&world, "newcomer").await.unwrap()["trust_status"],
        "platform_verified"
    );
}

/// A local provider whose responses a test sets.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    /// The payment requirements in the provider's response, or the status of its response.
    wants: Arc<Mutex<Value>>,
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let wants = Arc::new(Mutex::new(json!(500)));
        let (answering, listener) = (
            Arc::clone(&wants),
            tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let address = listener.local_addr().unwrap();
        let answer = move || async move { asking(&answering.lock().unwrap()) };
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        Self {
            address,
            url: format!("http://{address}"),
            wants,
        }
    }

    pub(crate) fn wants(&self, what: Value) {
        *self.wants.lock().unwrap() = what;
    }

    /// Starts a stack with a stopped clock, whose probe may call only this provider.
    async fn world(&self) -> World {
        let allowed = ("PROBE_ALLOWED_HOSTS".to_owned(), self.address.to_string());
        let world = World::still_with(Options {
            environment: [allowed].into(),
            ..Options::default()
        })
        .await;
        disable_all(&world).await;
        world
    }
}

/// Disables every service, so that no probe calls its provider.
pub(crate) async fn disable_all(world: &World) {
    let seeded = world.operator_gets("/internal/services").await.ok();
    for service in seeded["services"].as_array().unwrap() {
        let path = format!("{}/trust-status", at(service["id"].as_str().unwrap()));
        let disabled = json!({"trust_status": "disabled"});
        world.operator_edits(Method::PUT, &path, &disabled).await.ok();
    }
}

fn asking(wanted: &Value) -> Response {
    match wanted
        .as_u64()
        .map(|status| StatusCode::from_u16(status.try_into().unwrap()).unwrap())
    {
        Some(status) => status.into_response(),
        None => (StatusCode::PAYMENT_REQUIRED, Json(wanted.clone())).into_response(),
    }
}

pub(crate) fn offer(units: u64, pay_to: &str) -> Value {
    offer_v1(&OfferedTerms {
        units,
        pay_to: pay_to.to_owned(),
        timeout: 60,
    })
}

/// Probes a service, and returns it as operators see it.
async fn probed(world: &World, id: &str) -> Value {
    let asked = world
        .operator_edits(Method::POST, &format!("{}/probe", at(id)), &json!({}))
        .await;
    assert_eq!(asked.status, 202, "{}", asked.body);
    assert_eq!(asked.body["probe_requested_at"], world.now().to_string());
    world.pass(1);
    let report = world.stack.probe.run_probes(Duration::from_mins(1)).await.unwrap();
    assert_eq!(report.dropped, 0);
    world.pass(SEEN_AFTER);
    world.operator_gets(&at(id)).await.ok()
}

/// Authorizes a payment for the operation, to this payee.
pub(crate) async fn pays(world: &World, agent: &TestAgent, units: u64, pay_to: &str, url: &str) -> Answer {
    let requirement = offer_v2(&OfferedTerms {
        units,
        pay_to: pay_to.to_owned(),
        timeout: 60,
    });
    let mut body = body_of(requirement);
    body["service_id"] = json!("newcomer");
    body["original_request"] = json!({"method": "GET", "url": url});
    world.authorize(agent, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn probed_payments_apply_only_after_an_operator_sets_them() {
    let provider = Provider::start().await;
    let world = provider.world().await;
    let owner = world.person(&DEMO_OWNER);
    let payee = world.stack.providers.pay_to.clone();
    let url = format!("{}/news", provider.url);
    // No agent may pay the service yet, so a set price takes effect immediately.
    let mut entry = service_entry("newcomer", &[operation_entry("news.read", &url)]);
    entry["curated"] = json!(false);
    let (id, _) = world.enter(&entry).await;
    let pin = async |payment: &Value| {
        let operation = entry["operations"][0]["id"].as_str().unwrap();
        let path = format!("{}/operations/{operation}/pin", at(&id));
        world
            .operator_edits(Method::POST, &path, &json!({"payment": payment}))
            .await
    };

    // The provider returned no payment requirements.
    let told = probed(&world, &id).await;
    let operation = &told["operations"][0];
    assert_eq!(
        (&operation["availability"], &operation["payment"]),
        (&json!("unverified"), &Value::Null)
    );
    assert_eq!(
        (&operation["probe"]["reason"], &told["trust_status"]),
        (&json!("status_500"), &json!("listed"))
    );

    // An operator sets the observed price and payee in the catalog.
    provider.wants(offer(1_000, &payee));
    let pinned = payment_entry(1_000, &payee);
    assert_eq!(paths(pin(&pinned).await, "unseen"), ["/payment"]);
    let told = probed(&world, &id).await;
    let operation = &told["operations"][0];
    assert_eq!(
        (
            &operation["availability"],
            &operation["payment"],
            &operation["probe"]["last_answer"]["payment"]
        ),
        (&json!("paid_x402"), &Value::Null, &pinned)
    );
    assert_eq!(
        (&told["trust_status"], &told["changed"], &told["version"]),
        (&json!("probe_passed"), &json!(true), &json!(1))
    );
    for other in [payment_entry(1_001, &payee), payment_entry(1_000, STRANGER)] {
        assert_eq!(paths(pin(&other).await, "another"), ["/payment"]);
    }
    let told = pin(&pinned).await.ok();
    let operation = &told["operations"][0];
    assert_eq!(
        (&operation["payment"], &operation["change"], &operation["next"]),
        (&pinned, &Value::Null, &Value::Null)
    );
    let path = format!("{}/curated", at(&id));
    world
        .operator_edits(Method::PUT, &path, &json!({"curated": true}))
        .await
        .ok();
    world.pass(SEEN_AFTER);
    let agent = world.agent_of(&owner, "reader").await;
    assert_eq!(
        public(&world, "newcomer").await.unwrap()["trust_status"],
        "probe_passed"
    );
    pays(&world, &agent, 1_000, &payee, &url).await.ok();
    let stranger = pays(&world, &agent, 1_000, STRANGER, &url)
        .await
        .refused(403, "policy_blocked");
    assert_eq!(stranger["decision"]["reason"], "catalog_payee:pay_to_not_in_catalog");

    // Another payee or price is shown to operators, and not signed.
    let changed = async || world.operator_gets("/internal/services?changed=true").await.ok();
    let quiet = json!({"services": [], "count": 0});
    assert_eq!(changed().await, quiet);
    for (units, pay_to) in [(1_000, STRANGER), (2_000, STRANGER)] {
        provider.wants(offer(units, pay_to));
        let told = probed(&world, &id).await;
        let operation = &told["operations"][0];
        let seen = payment_entry(units, pay_to);
        assert_eq!(
            (&operation["payment"], &operation["change"]["payment"]),
            (&pinned, &seen)
        );
        assert_eq!(
            (&told["changed"], &told["trust_status"]),
            (&json!(true), &json!("probe_passed"))
        );
        let list = changed().await;
        let item = &list["services"][0];
        let change = json!({
            "id": operation["id"],
            "operation_id": "news.read",
            "pinned": pinned,
            "seen": seen,
            "since": operation["probe"]["at"],
        });
        assert_eq!(
            (&list["count"], &item["id"], &item["changes"]),
            (&json!(1), &json!(id), &json!([change]))
        );
        let before = world.footprint().await;
        let refused = pays(&world, &agent, units, pay_to, &url)
            .await
            .refused(403, "policy_blocked");
        assert_eq!(refused["decision"]["reason"], "catalog_payee:pay_to_not_in_catalog");
        assert_eq!(world.footprint().await, before);
    }
    // If the provider is down, the observed change stays.
    provider.wants(json!(503));
    let told = probed(&world, &id).await;
    assert_eq!(
        (&told["changed"], &told["operations"][0]["probe"]["reason"]),
        (&json!(true), &json!("status_503"))
    );
    assert_eq!(
        told["operations"][0]["change"]["payment"],
        payment_entry(2_000, STRANGER)
    );
    let unchanged = world.operator_gets("/internal/services?changed=false").await.ok();
    assert!(
        unchanged["services"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["id"] != id)
    );

    // Agents pay the service now, so an accepted price takes effect after the delay.
    let told = pin(&payment_entry(2_000, STRANGER)).await.ok();
    let operation = &told["operations"][0];
    assert_eq!(
        (&operation["payment"], &operation["next"]["payment"]),
        (&pinned, &payment_entry(2_000, STRANGER))
    );
    pays(&world, &agent, 1_000, &payee, &url).await.ok();
    world.pass(86_400);
    assert_eq!(changed().await, quiet);
    pays(&world, &agent, 2_000, STRANGER, &url).await.ok();
    pays(&world, &agent, 2_000, &payee, &url)
        .await
        .refused(403, "policy_blocked");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_run_when_due_or_when_requested() {
    let provider = Provider::start().await;
    let world = provider.world().await;
    provider.wants(offer(1_000, STRANGER));
    let url = format!("{}/news", provider.url);
    let (id, _) = world
        .enter(&service_entry("newcomer", &[operation_entry("news.read", &url)]))
        .await;
    let run = async || world.stack.probe.run_probes(Duration::from_mins(1)).await.unwrap();
    assert_eq!(run().await.operations, 1, "what was never seen is due");
    let first = world.operator_gets(&at(&id)).await.ok()["operations"][0]["probe"]["at"].clone();
    assert_eq!(first, world.now().to_string());
    assert_eq!(run().await.operations, 0, "and then not so soon again");
    world.pass(60);
    let path = format!("{}/probe", at(&id));
    let asked = World::send(world.operators_request(Method::POST, &path)).await;
    assert_eq!(
        (asked.status, asked.etag()),
        (202, "\"1\""),
        "neither a body nor a version is needed"
    );
    assert_eq!(run().await.operations, 1);
    assert_eq!(run().await.operations, 0, "once");
    let told = world.operator_gets(&at(&id)).await.ok();
    assert_eq!(told["operations"][0]["probe"]["at"], world.now().to_string());
    // The probe repeats after six hours.
    world.pass(21_599);
    assert_eq!(run().await.operations, 0);
    world.pass(1);
    assert_eq!(run().await.operations, 1);
    // A disabled service is not probed.
    world
        .operator_edits(
            Method::PUT,
            &format!("{}/trust-status", at(&id)),
            &json!({"trust_status": "disabled"}),
        )
        .await
        .ok();
    World::send(world.operators_request(Method::POST, &path)).await;
    world.pass(1);
    assert_eq!(run().await.operations, 0);
}

/// The probe calls no private address, such as that of this provider.
#[tokio::test(flavor = "multi_thread")]
async fn probes_call_only_public_addresses_by_default() {
    let provider = Provider::start().await;
    provider.wants(offer(1_000, STRANGER));
    let world = World::start().await;
    disable_all(&world).await;
    let port = provider.address.port();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "2130706433",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
    ];
    let operations: Vec<Value> = (0..)
        .zip(hosts)
        .map(|(n, host)| operation_entry(&format!("news.n{n}"), &format!("http://{host}:{port}/news")))
        .collect();
    let (id, _) = world.enter(&service_entry("newcomer", &operations)).await;
    world.stack.probe.run_probes(Duration::from_mins(1)).await.unwrap();
    let told = world.operator_gets(&at(&id)).await.ok();
    for operation in told["operations"].as_array().unwrap() {
        let seen = (
            &operation["availability"],
            &operation["probe"]["reason"],
            &operation["payment"],
        );
        let blocked = (&json!("unverified"), &json!("blocked_address"), &Value::Null);
        assert_eq!(seen, blocked, "{}", operation["endpoint"]);
    }
    assert_eq!(told["trust_status"], "listed");
}

/// `functions/internal/src/entry.rs` tests the parsing of fields.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_operator_requests_report_all_validation_errors() {
    let world = World::start().await;
    let (id, _) = world.enter(&service_entry("newcomer", &[])).await;
    let before = world.rows_of("CatalogTable").await;
    let mut entry = service_entry("!", &[paid_operation(&world, "news.read", 1_000), json!("x")]);
    entry["version"] = json!(1);
    entry["operations"][0]["availability"] = json!("paid_x402");
    entry["operations"][0]["payment"]["pay_to"] = json!("0x1");
    let entry_problems = [
        "/operations/0/availability",
        "/operations/0/payment/pay_to",
        "/operations/1",
        "/slug",
        "/version",
    ];
    let wrong_status = json!({"trust_status": "Disabled", "curated": true, "reason": "x"});
    let wrong_curation = json!({"curated": "true", "trust_status": "listed"});
    for (path, body, expected) in [
        (at(&id), &entry, &entry_problems[..]),
        (at(&fresh_key()), &entry, &entry_problems),
        (at("lab-search"), &service_entry("newcomer", &[]), &["/serviceId"]),
        (
            format!("{}/trust-status", at(&id)),
            &wrong_status,
            &["/curated", "/reason", "/trust_status"],
        ),
        (
            format!("{}/curated", at(&id)),
            &wrong_curation,
            &["/curated", "/trust_status"],
        ),
        (at(&id), &json!([]), &[""]),
    ] {
        let answer = world.operator_edits(Method::PUT, &path, body).await;
        assert_eq!(paths(answer, &body.to_string()), expected, "{path}");
    }
    for query in ["changed=yes", "changed=true&changed=true"] {
        let answer = world.operator_gets(&format!("/internal/services?{query}")).await;
        assert_eq!(paths(answer, query), ["/changed"]);
    }
    assert_eq!(world.rows_of("CatalogTable").await.changes_since(&before), NOTHING);
}
