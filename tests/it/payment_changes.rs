//! Tests when a changed payee or a raised price takes effect (`shared/domain/src/catalog/pricing.rs`).

use purser_domain::Timestamp;
use purser_local::{DEMO_OWNER, Options, Streaming};
use purser_tests::{
    Answer, OfferedTerms, TestAgent, World, body_of, fresh_key, offer_v2, operation_entry, paths, payment_entry,
    service_entry,
};
use reqwest::Method;
use serde_json::{Value, json};

/// A payee that differs from the catalog's.
const STRANGER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
/// The time, in seconds, after which every function has loaded a changed catalog.
const SEEN_AFTER: u32 = 6;
const DAY: u32 = 86_400;
const URL: &str = "https://newcomer.example/news";

/// A world with two operators.
struct Office {
    world: World,
    bob: String,
}

impl Office {
    async fn open() -> Self {
        Self::with(World::still().await)
    }

    fn with(world: World) -> Self {
        let bob = "b".repeat(64);
        let ada = world.stack.internal_token.clone();
        world.stack.set_operators(&[("ada", &ada), ("bob", &bob)]);
        // The function reads the operators' secret again within a minute.
        world.pass(61);
        Self { world, bob }
    }

    fn payee(&self) -> String {
        self.world.stack.providers.pay_to.clone()
    }

    /// Returns an operation at [`URL`] for a thousand micro-USDC.
    fn operation(&self) -> Value {
        paid(operation_entry("news.read", URL), 1_000, &self.payee())
    }

    /// Writes a service as Ada, and waits until functions have loaded the catalog.
    async fn write(&self, id: &str, entry: &Value) -> Value {
        let request = self.world.operators_request(Method::PUT, &at(id));
        let request = match self.world.operator_gets(&at(id)).await.status {
            404 => request,
            _ => request.header("if-match", "*"),
        };
        let answer = World::send(request.json(entry)).await;
        assert!([200, 201].contains(&answer.status), "{}", answer.body);
        self.world.pass(SEEN_AFTER);
        answer.body
    }

    /// Sets whether the service is curated, as Ada.
    async fn curate(&self, id: &str, curated: bool) -> Value {
        let path = format!("{}/curated", at(id));
        let set = self
            .world
            .operator_edits(Method::PUT, &path, &json!({"curated": curated}))
            .await;
        self.world.pass(SEEN_AFTER);
        set.ok()
    }

    async fn accept(&self, token: &str, id: &str, operation: &Value, version: &str) -> Answer {
        let path = format!("{}/operations/{}/accept-change", at(id), operation.as_str().unwrap());
        let request = self.world.http.post(format!("{}{path}", self.world.stack.base_url));
        let request = request.header("x-internal-token", token).header("if-match", version);
        World::send(request).await
    }

    /// Creates an agent, which gets all curated services.
    async fn agent(&self) -> TestAgent {
        let owner = self.world.person(&DEMO_OWNER);
        self.world.agent_of(&owner, "reader").await
    }

    /// Authorizes a payment for a call, without naming a service.
    async fn pays(&self, agent: &TestAgent, units: u64, pay_to: &str) -> Answer {
        self.pays_at(agent, units, pay_to, URL).await
    }

    async fn pays_at(&self, agent: &TestAgent, units: u64, pay_to: &str, url: &str) -> Answer {
        let mut body = body_of(offer_v2(&OfferedTerms {
            units,
            pay_to: pay_to.to_owned(),
            timeout: 60,
        }));
        body.as_object_mut().unwrap().remove("service_id");
        body["original_request"] = json!({"method": "GET", "url": url});
        self.world.authorize(agent, &body).await
    }

    async fn public(&self, id: &str) -> Value {
        let shown = self
            .world
            .call(Method::GET, &format!("/services/{id}"), None, None)
            .await;
        shown.ok()["operations"][0].clone()
    }
}

fn at(id: &str) -> String {
    format!("/internal/services/{id}")
}

fn paid(mut operation: Value, units: u64, pay_to: &str) -> Value {
    operation["payment"] = payment_entry(units, pay_to);
    operation
}

fn time(value: &Value) -> Timestamp {
    Timestamp::parse(value.as_str().unwrap()).unwrap()
}

fn refused(answer: Answer) -> String {
    let told = answer.refused(403, "policy_blocked");
    told["decision"]["reason"].as_str().unwrap().to_owned()
}

const NOT_ITS_PAYEE: &str = "catalog_payee:pay_to_not_in_catalog";
const NOT_YET: &str = "catalog_payee:pay_to_not_yet_accepted";

#[tokio::test(flavor = "multi_thread")]
async fn payee_changes_apply_only_after_their_delay() {
    let office = Office::open().await;
    let (world, payee) = (&office.world, office.payee());
    let owner = world.person(&DEMO_OWNER);
    let operation = office.operation();
    let id = fresh_key();
    office
        .write(&id, &service_entry("newcomer", std::slice::from_ref(&operation)))
        .await;
    let agent = office.agent().await;

    let asked_at = world.now();
    let changed = paid(operation.clone(), 2_000, STRANGER);
    let told = office.write(&id, &service_entry("newcomer", &[changed])).await;
    let from = asked_at.after(purser_domain::Duration::from_secs_u32(DAY));
    let next = json!({
        "from": from.to_string(),
        "by": "ada",
        "price_model": "fixed",
        "max_price_units": null,
        "payment": payment_entry(2_000, STRANGER),
    });
    let shown = &told["operations"][0];
    assert_eq!((&shown["payment"], &shown["next"]), (&operation["payment"], &next));

    // The pending change is public.
    let mut coming = next.clone();
    coming.as_object_mut().unwrap().remove("by");
    let seen = office.public(&id).await;
    assert_eq!((&seen["payment"], &seen["next"]), (&operation["payment"], &coming));
    let record = world.person_gets(&owner, &agent.path("/services/newcomer")).await.ok();
    let change = json!({
        "operation_id": "news.read",
        "from": from.to_string(),
        "pay_to": STRANGER,
        "amount_units": 2_000,
        "max_price_units": 2_000,
    });
    assert_eq!(record["payment_changes"], json!([change]));

    let min_price = async || {
        let list = world.call(Method::GET, "/services?limit=500", None, None).await.ok();
        let services = list["services"].as_array().unwrap().clone();
        let listed = services.into_iter().find(|listed| listed["id"] == id.as_str());
        listed.unwrap()["min_price_units"].as_u64().unwrap()
    };
    for now in [world.now(), from.before(purser_domain::Duration::from_secs_u32(1))] {
        world.set_clock(now);
        office.pays(&agent, 1_000, &payee).await.ok();
        for units in [1_000, 2_000] {
            let told = office
                .pays(&agent, units, STRANGER)
                .await
                .refused(403, "policy_blocked");
            assert_eq!(told["decision"]["reason"], NOT_YET);
            assert_eq!(
                (time(&told["retry_at"]), time(&told["decision"]["retry_at"])),
                (from, from)
            );
        }
        // A denial that time does not change has no retry time.
        for (units, payee, reason) in [
            (2_001, STRANGER, NOT_ITS_PAYEE),
            (1_000, "0x90F79bf6EB2c4f870365E785982E1f101E93b906", NOT_ITS_PAYEE),
            (2_000, payee.as_str(), "catalog_price:price_above_catalog_maximum"),
        ] {
            let told = office.pays(&agent, units, payee).await.refused(403, "policy_blocked");
            assert_eq!(
                (&told["decision"]["reason"], told.get("retry_at")),
                (&json!(reason), None)
            );
        }
        assert_eq!(min_price().await, 1_000);
    }
    // The change takes effect without a further write.
    let before = world.rows_of("CatalogTable").await;
    world.set_clock(from);
    office.pays(&agent, 2_000, STRANGER).await.ok();
    assert_eq!(refused(office.pays(&agent, 1_000, &payee).await), NOT_ITS_PAYEE);
    assert_eq!(min_price().await, 2_000);
    let seen = office.public(&id).await;
    assert_eq!(
        (&seen["payment"], &seen["next"]),
        (&payment_entry(2_000, STRANGER), &Value::Null)
    );
    let shown = world.operator_gets(&at(&id)).await.ok()["operations"][0].clone();
    assert_eq!(
        (&shown["payment"], &shown["next"]),
        (&payment_entry(2_000, STRANGER), &Value::Null)
    );
    assert_eq!(world.rows_of("CatalogTable").await.changes_since(&before), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn price_increases_are_delayed_but_decreases_apply_immediately() {
    let office = Office::open().await;
    let payee = office.payee();
    let operation = office.operation();
    let id = fresh_key();
    office
        .write(&id, &service_entry("newcomer", std::slice::from_ref(&operation)))
        .await;
    let agent = office.agent().await;
    let dearer = |units: u64| paid(operation.clone(), units, &payee);
    let up_to = |most: u64| {
        let mut operation = operation.clone();
        operation["max_price_units"] = json!(most);
        operation
    };
    let per_token = || {
        let mut operation = up_to(9_000);
        operation["price_model"] = json!("per_token");
        operation
    };
    // A change, the maximum price after the change, and whether the change is delayed.
    let rows = [
        (dearer(1_001), 1_000, true),
        (up_to(1_001), 1_000, true),
        (per_token(), 1_000, true),
        (up_to(1_000), 1_000, false),
        (dearer(900), 900, false),
        (dearer(1_000), 900, true),
        (up_to(800), 800, false),
    ];
    for (written, most, waits) in rows {
        let told = office
            .write(&id, &service_entry("newcomer", std::slice::from_ref(&written)))
            .await;
        assert_eq!(!told["operations"][0]["next"].is_null(), waits, "{written}");
        office.pays(&agent, most, &payee).await.ok();
        let dear = refused(office.pays(&agent, most + 1, &payee).await);
        let never = "catalog_price:price_above_catalog_maximum";
        assert_eq!(dear, if waits { NOT_YET } else { never }, "{written}");
    }
    let mut unpaid = operation.clone();
    unpaid["payment"] = Value::Null;
    let told = office.write(&id, &service_entry("newcomer", &[unpaid])).await;
    assert_eq!(told["operations"][0]["next"], Value::Null);
    let reason = refused(office.pays(&agent, 800, &payee).await);
    assert_eq!(reason, "catalog_payment:operation_has_no_payment");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_operator_can_accept_a_delayed_price_change() {
    let office = Office::open().await;
    let operation = office.operation();
    let id = fresh_key();
    office
        .write(&id, &service_entry("newcomer", std::slice::from_ref(&operation)))
        .await;
    let agent = office.agent().await;
    let of = &operation["id"];
    let ada = office.world.stack.internal_token.clone();
    let (ada, bob) = (ada.as_str(), office.bob.as_str());
    office.accept(bob, &id, of, "\"1\"").await.refused(404, "not_found");

    let changed = paid(operation.clone(), 1_000, STRANGER);
    office.write(&id, &service_entry("newcomer", &[changed])).await;
    let before = office.world.rows_of("CatalogTable").await;
    office
        .accept(ada, &id, of, "\"2\"")
        .await
        .refused(403, "second_operator_required");
    let any = office.accept(bob, &id, of, "*").await;
    assert_eq!(paths(any, "*"), ["/If-Match"]);
    let told = office.accept(bob, &id, of, "\"1\"").await;
    assert_eq!(told.refused(412, "version_conflict")["version"], 2);
    office
        .accept(bob, &id, &json!(fresh_key()), "\"2\"")
        .await
        .refused(404, "not_found");
    office
        .accept(bob, &fresh_key(), of, "\"2\"")
        .await
        .refused(404, "not_found");
    assert_eq!(
        office.world.rows_of("CatalogTable").await.changes_since(&before),
        [""; 0]
    );
    assert_eq!(refused(office.pays(&agent, 1_000, STRANGER).await), NOT_YET);

    let accepted = office.accept(bob, &id, of, "\"2\"").await.ok();
    let shown = &accepted["operations"][0];
    assert_eq!(
        (&shown["payment"], &shown["next"]),
        (&payment_entry(1_000, STRANGER), &Value::Null)
    );
    office.world.pass(SEEN_AFTER);
    office.pays(&agent, 1_000, STRANGER).await.ok();
    office.accept(bob, &id, of, "\"3\"").await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_payees_are_paid_after_the_configured_delay() {
    let delay = ("ACCEPTED_PAYEE_DELAY_SECONDS".to_owned(), "3600".to_owned());
    let world = World::still_with(Options {
        environment: [delay].into(),
        ..Options::default()
    });
    let office = Office::with(world.await);
    let (world, payee) = (&office.world, office.payee());
    let operation = office.operation();
    let id = fresh_key();
    let paid_from = |told: &Value| told["operations"][0]["paid_from"].clone();
    let told = office
        .write(&id, &service_entry("newcomer", std::slice::from_ref(&operation)))
        .await;
    assert_eq!(paid_from(&told), Value::Null, "what opens is paid at once");
    let agent = office.agent().await;
    let changed = paid(operation.clone(), 1_000, STRANGER);
    let told = office.write(&id, &service_entry("newcomer", &[changed])).await;
    assert_eq!(paid_from(&told), Value::Null, "the present payee is paid as before");

    let accepted = office.accept(&office.bob, &id, &operation["id"], "\"2\"").await.ok();
    let from = world.now().after(purser_domain::Duration::from_secs_u32(3_600));
    assert_eq!(paid_from(&accepted), from.to_string());
    world.pass(SEEN_AFTER);
    assert_eq!(paid_from(&world.operator_gets(&at(&id)).await.ok()), from.to_string());
    for pay_to in [STRANGER, payee.as_str()] {
        office.pays(&agent, 1_000, pay_to).await.refused(403, "policy_blocked");
    }
    world.set_clock(from);
    assert_eq!(paid_from(&world.operator_gets(&at(&id)).await.ok()), Value::Null);
    office.pays(&agent, 1_000, STRANGER).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_the_original_service_reverts_a_delayed_change() {
    let office = Office::open().await;
    let payee = office.payee();
    let operation = office.operation();
    let id = fresh_key();
    let original = service_entry("newcomer", std::slice::from_ref(&operation));
    office.write(&id, &original).await;
    let changed = service_entry("newcomer", &[paid(operation.clone(), 1_000, STRANGER)]);
    let next = async |entry: &Value| office.write(&id, entry).await["operations"][0]["next"].clone();
    let waiting = next(&changed).await;
    // The same change, or an update without a payment, keeps the time of the change.
    let mut silent = changed.clone();
    silent["operations"][0].as_object_mut().unwrap().remove("payment");
    silent["name"] = json!("Other");
    for again in [&changed, &silent] {
        assert_eq!(next(again).await, waiting);
    }
    assert_eq!(office.curate(&id, true).await["operations"][0]["next"], waiting);
    // Another change starts the delay again.
    let dearer = service_entry("newcomer", &[paid(operation, 1_001, STRANGER)]);
    assert!(time(&next(&dearer).await["from"]) > time(&waiting["from"]));
    assert_eq!(next(&original).await, Value::Null);
    let agent = office.agent().await;
    office.world.pass(2 * DAY);
    office.pays(&agent, 1_000, &payee).await.ok();
    assert_eq!(refused(office.pays(&agent, 1_000, STRANGER).await), NOT_ITS_PAYEE);
}

/// Each sequence of updates ends with another payee, which gets no payment within a day of the last update.
#[tokio::test(flavor = "multi_thread")]
async fn no_sequence_of_updates_shortens_the_payee_delay() {
    let office = Office::open().await;
    let other = || paid(operation_entry("news.other", URL), 1_000, STRANGER);
    let list = |slug: &str, operations: &[Value]| service_entry(slug, operations);
    for sequence in 0..11 {
        let (id, operation) = (fresh_key(), office.operation());
        let slug = format!("newcomer-{sequence}");
        let lists = |operations: &[Value]| list(&slug, operations);
        let changed = || paid(operation.clone(), 1_000, STRANGER);
        let mut unpaid = operation.clone();
        unpaid["payment"] = Value::Null;
        office.write(&id, &lists(std::slice::from_ref(&operation))).await;
        let edits: Vec<(String, Value)> = match sequence {
            // The operation is changed (0), replaced (1), or loses its payment first (2). Or a second operation is
            // added (3).
            0 => vec![(id.clone(), lists(&[changed()]))],
            1 => vec![(id.clone(), lists(&[])), (id.clone(), lists(&[changed()]))],
            2 => vec![(id.clone(), lists(&[unpaid])), (id.clone(), lists(&[changed()]))],
            3 => vec![(id.clone(), lists(&[operation.clone(), other()]))],
            // The operation has another id (4), a path parameter (5), or another spelling of the URL (6).
            4 => vec![(id.clone(), lists(&[other()]))],
            5 | 6 => {
                let endpoint = if sequence == 5 {
                    "https://newcomer.example/{page}"
                } else {
                    "https://newcomer.example/news/?x"
                };
                let moved = paid(operation_entry("news.any", endpoint), 1_000, STRANGER);
                vec![(id.clone(), lists(&[moved]))]
            }
            // The service and the operation are renamed.
            7 => {
                let mut renamed = changed();
                renamed["operation_id"] = json!("news.renamed");
                vec![(id.clone(), list("renamed", &[renamed]))]
            }
            // The service becomes uncurated, is changed, and becomes curated again.
            8 => {
                let mut closed = lists(&[changed()]);
                closed["curated"] = json!(false);
                vec![(id.clone(), closed), (id.clone(), lists(&[changed()]))]
            }
            // A second service lists the call, in addition to the first or instead of it.
            9 => vec![(fresh_key(), list("another", &[other()]))],
            _ => vec![(id.clone(), lists(&[])), (fresh_key(), list("aftermath", &[other()]))],
        };
        let last = edits.last().unwrap().0.clone();
        for (of, mut entry) in edits {
            entry["trust_status"] = json!("listed");
            office.write(&of, &entry).await;
        }
        let agent = office.agent().await;
        for wait in [0, DAY - 3 * SEEN_AFTER] {
            office.world.pass(wait);
            let answer = office.pays(&agent, 1_000, STRANGER).await;
            assert!((400..500).contains(&answer.status), "{sequence}: {}", answer.body);
        }
        // After the delay, the payee gets payments, which proves that the change was pending.
        let shown = office.world.operator_gets(&at(&last)).await.ok();
        let operations = shown["operations"].as_array().unwrap();
        let waits = |one: &&Value| one["next"]["payment"]["pay_to"] == STRANGER;
        assert_eq!(operations.iter().filter(waits).count(), 1, "{sequence}: {shown}");
        // Removes the operations, because the next sequence uses the same URL.
        for of in [&id, &last] {
            office.write(of, &list(&format!("gone-{of}"), &[])).await;
        }
        office.world.pass(2 * DAY);
    }
}

/// No agent can have enabled such a service.
#[tokio::test(flavor = "multi_thread")]
async fn changes_to_uncurated_services_apply_immediately() {
    let office = Office::open().await;
    let operation = office.operation();
    let id = fresh_key();
    let mut entry = service_entry("newcomer", std::slice::from_ref(&operation));
    entry["curated"] = json!(false);
    office.write(&id, &entry).await;
    entry["operations"][0] = paid(operation, 5_000, STRANGER);
    let told = office.write(&id, &entry).await;
    assert_eq!(told["operations"][0]["next"], Value::Null);
    let told = office.curate(&id, true).await;
    assert_eq!(told["operations"][0]["next"], Value::Null);
    let agent = office.agent().await;
    office.pays(&agent, 5_000, STRANGER).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_network_may_disable_the_payee_delay() {
    let delay = ("PAYMENT_CHANGE_DELAY_SECONDS".to_owned(), "0".to_owned());
    let world = World::still_with(Options {
        environment: [delay].into(),
        ..Options::default()
    });
    let office = Office::with(world.await);
    let operation = office.operation();
    let id = fresh_key();
    office
        .write(&id, &service_entry("newcomer", std::slice::from_ref(&operation)))
        .await;
    let agent = office.agent().await;
    let changed = paid(operation, 1_000, STRANGER);
    let told = office.write(&id, &service_entry("newcomer", &[changed])).await;
    assert_eq!(told["operations"][0]["next"], Value::Null);
    office.pays(&agent, 1_000, STRANGER).await.ok();
}

/// One event is published for the request of the change, and one when it takes effect.
#[tokio::test(flavor = "multi_thread")]
async fn delayed_changes_publish_events_when_effective() {
    let world = World::still_with(Options {
        streams: Streaming::On,
        ..Options::default()
    });
    let office = Office::with(world.await);
    let stack = &office.world.stack;
    let told = |kind: &str| {
        let of_kind = |entry: &purser_testkit::Entry| entry.detail_type == kind;
        stack.bus.taken().iter().filter(|entry| of_kind(entry)).count()
    };
    let operation = office.operation();
    let id = fresh_key();
    office
        .write(&id, &service_entry("newcomer", std::slice::from_ref(&operation)))
        .await;
    let changed = paid(operation, 1_000, STRANGER);
    office.write(&id, &service_entry("newcomer", &[changed])).await;
    stack.publish_changes().await;
    assert_eq!(told("purser.service.change_delayed.v1"), 1);
    for (passed, count) in [(DAY / 2, 0), (DAY, 1)] {
        office.world.pass(passed);
        stack
            .events
            .publish_due_events(std::time::Duration::from_secs(30))
            .await
            .unwrap();
        assert_eq!(told("purser.service.payee_changed.v1"), count, "{passed}");
    }
}
