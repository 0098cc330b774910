//! Tests the time from which a payee may be paid, which `events` computes from the catalog's rows.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use aws_sdk_dynamodb::types::AttributeValue;
use purser_api::{Boot, Clock, Env};
use purser_domain::{
    Endpoint, NextPricing, Operation, OperationUuid, OperatorName, PayeeAge, Service, ServiceId, Timestamp,
};
use purser_store::UsageTable;
use purser_stream::Events;
use purser_testkit::{CATALOG, Emulator, EventBus, Proxy, ProxyConfig, Streams, USAGE, environment, sample};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time;

const TIME: time::Duration = time::Duration::from_secs(30);
const HOUR: u32 = 3_600;
const DAY: u32 = 24 * HOUR;

struct World {
    emulator: Emulator,
    /// The proxy between the function and the emulator.
    proxy: Proxy,
    streams: Streams,
    events: Events,
    usage: UsageTable,
    clock: Arc<AtomicI64>,
}

fn at(secs: u32) -> Timestamp {
    sample::start().after(sample::secs(secs))
}

impl World {
    /// Starts with a deployment's usual delays: a day, and an hour for changes that a second operator accepts.
    async fn start() -> Self {
        let (emulator, streams) = Emulator::with_streams().await;
        let bus = EventBus::new("purser");
        let clock = Arc::new(AtomicI64::new(at(0).micros()));
        let proxy = Proxy::start(emulator.url.clone(), ProxyConfig::default()).await;
        let variables = environment(&proxy.url, "http://127.0.0.1:9").chain([
            ("EVENTBRIDGE_ENDPOINT", bus.serve().await),
            ("EVENT_BUS", "purser".to_owned()),
            ("NETWORK", "base-sepolia".to_owned()),
        ]);
        let env: Env = variables.collect();
        let events = Events::boot(Boot::new(env, Clock::at_fixed_time(Arc::clone(&clock)))).unwrap();
        Self {
            usage: UsageTable::new(emulator.client.clone(), USAGE),
            emulator,
            proxy,
            streams,
            events,
            clock,
        }
    }

    /// Starts like [`World::start`], and runs the function once while the catalog is empty.
    async fn begun() -> Self {
        let world = Self::start().await;
        world.call(json!({})).await;
        world
    }

    async fn call(&self, event: Value) -> Value {
        self.events.handle_event(&event, TIME).await.unwrap()
    }

    fn set_clock(&self, secs: u32) {
        self.clock.store(at(secs).micros(), SeqCst);
    }

    /// Writes the service's row and passes the stream's records to the function. Returns the records.
    async fn write(&self, service: &Service) -> Vec<Value> {
        let put = self.emulator.catalog();
        put.put_service(service, &sample::audit()).await.unwrap();
        self.pass_on().await
    }

    async fn pass_on(&self) -> Vec<Value> {
        let records = self.streams.next_batches().concat();
        self.call(json!({"Records": records})).await;
        records
    }

    async fn age(&self, service: &Service, secs: u32) -> PayeeAge {
        let attested = self.usage.read_verified_service(service.id).await.unwrap();
        let attested = attested.map(|attested| attested.payee_age(&service.operations[0], at(secs)));
        attested.unwrap_or(PayeeAge::Unattested)
    }
}

fn shop(n: u128) -> Service {
    let mut service = sample::service(sample::service_id(n), &format!("shop-{n}"));
    service.operations[0].id = OperationUuid::from_uuid(sample::service_id(n).uuid());
    service.operations[0].endpoint = Endpoint::parse(&format!("https://shop-{n}.example/pay")).unwrap();
    service
}

/// Returns the next version of the service with a changed first operation.
fn edited(service: &Service, change: impl FnOnce(&mut Operation)) -> Service {
    let mut service = service.clone();
    service.version += 1;
    change(&mut service.operations[0]);
    service
}

fn pays(byte: u8) -> impl Fn(&mut Operation) {
    move |operation| operation.payment.as_mut().unwrap().pay_to = sample::wallet(byte)
}

fn will_pay(byte: u8, from: Timestamp) -> impl Fn(&mut Operation) {
    move |operation| {
        let mut payment = operation.payment.clone().unwrap();
        payment.pay_to = sample::wallet(byte);
        operation.next = Some(NextPricing {
            price_model: operation.price_model.clone(),
            max_price: operation.max_price,
            payment,
            from,
            by: OperatorName::parse("op").unwrap(),
        });
    }
}

/// Repeated and reordered stream records do not change when the payee may be paid.
#[tokio::test]
async fn a_payee_change_without_delay_still_waits_for_one_day() {
    let world = World::begun().await;
    let first = shop(1);
    let mut records = world.write(&first).await;
    assert_eq!(world.age(&first, 0).await, PayeeAge::Old, "nobody has it enabled");
    world.set_clock(10);
    let second = edited(&first, pays(0xe1));
    records.extend(world.write(&second).await);
    assert_eq!(world.age(&second, 10).await, PayeeAge::Young(at(10 + DAY)));
    let cheaper = edited(&second, |operation| operation.max_price = Some(sample::units(7)));
    records.extend(world.write(&cheaper).await);
    assert_eq!(
        world.age(&cheaper, 10).await,
        PayeeAge::Young(at(10 + DAY)),
        "a lower price has the same time"
    );
    world.set_clock(HOUR);
    let backwards: Vec<Value> = records.iter().rev().cloned().collect();
    for again in [
        records.clone(),
        backwards,
        records[..1].to_vec(),
        [records.clone(), records].concat(),
    ] {
        world.call(json!({"Records": again})).await;
        assert_eq!(world.age(&cheaper, HOUR).await, PayeeAge::Young(at(10 + DAY)));
    }
    assert_eq!(world.age(&cheaper, 10 + DAY).await, PayeeAge::Old);
}

/// A lower price takes effect without delay.
#[tokio::test]
async fn higher_prices_and_moved_endpoints_are_delayed() {
    let world = World::begun().await;
    let mut first = shop(1);
    first.operations[0].max_price = Some(sample::units(10));
    world.write(&first).await;
    let lower = edited(&first, |operation| operation.max_price = Some(sample::units(9)));
    world.write(&lower).await;
    assert_eq!(world.age(&lower, 0).await, PayeeAge::Old);
    let raised = edited(&lower, |operation| operation.max_price = Some(sample::units(10)));
    world.write(&raised).await;
    assert_eq!(world.age(&raised, 0).await, PayeeAge::Young(at(DAY)));
    let moved = edited(&raised, |operation| {
        operation.endpoint = Endpoint::parse("https://b.example/").unwrap();
    });
    world.write(&moved).await;
    assert_eq!(world.age(&moved, 0).await, PayeeAge::Young(at(DAY)));
}

#[tokio::test]
async fn a_payee_that_is_removed_and_added_again_is_delayed_again() {
    let world = World::begun().await;
    let first = shop(1);
    world.write(&first).await;
    let removed = edited(&first, |operation| operation.payment = None);
    world.write(&removed).await;
    world.set_clock(5);
    let added = edited(&removed, |operation| {
        operation.payment.clone_from(&first.operations[0].payment);
    });
    world.write(&added).await;
    assert_eq!(world.age(&added, 5).await, PayeeAge::Young(at(5 + DAY)));
}

/// A delayed payee waits until the time in the catalog, or longer if the delay requires it.
#[tokio::test]
async fn a_delayed_payee_that_an_operator_accepts_early_waits_for_one_hour() {
    let world = World::begun().await;
    let first = shop(1);
    world.write(&first).await;
    // The record is processed two seconds after the update.
    world.set_clock(2);
    let waits = edited(&first, will_pay(0xe1, at(DAY)));
    world.write(&waits).await;
    assert_eq!(world.age(&waits, DAY - 1).await, PayeeAge::Old, "the present payee");
    assert_eq!(world.age(&waits, DAY).await, PayeeAge::Old, "the next payee");
    world.set_clock(100);
    let accepted = edited(&waits, |operation| *operation = operation.at_time(at(DAY)));
    world.write(&accepted).await;
    assert_eq!(world.age(&accepted, 100).await, PayeeAge::Young(at(100 + HOUR)));
    // A time in the catalog that is earlier than the delay allows has no effect.
    world.set_clock(200);
    let hurried = edited(&accepted, will_pay(0xe2, at(201)));
    world.write(&hurried).await;
    assert_eq!(world.age(&hurried, 201).await, PayeeAge::Young(at(200 + DAY)));
}

/// A new payee of a reopened service is delayed, even if the service's row was deleted in the meantime.
#[tokio::test]
async fn the_new_payee_of_a_reopened_service_is_delayed() {
    let world = World::begun().await;
    let first = shop(1);
    world.write(&first).await;
    // The updated row claims that the service was never open.
    let mut closed = edited(&first, |_| {});
    closed.curated = false;
    world.write(&closed).await;
    let mut opened = edited(&closed, pays(0xe1));
    opened.curated = true;
    world.write(&opened).await;
    assert_eq!(world.age(&opened, 0).await, PayeeAge::Young(at(DAY)));
    // The row is deleted and written again.
    let key = AttributeValue::S(format!("SVC#{}", first.id));
    let delete = world.emulator.client.delete_item().table_name(CATALOG).key("pk", key);
    delete.send().await.unwrap();
    world.pass_on().await;
    world.set_clock(7);
    let mut again = shop(1);
    pays(0xe2)(&mut again.operations[0]);
    again.slug = purser_domain::ServiceSlug::parse("other").unwrap();
    world.write(&again).await;
    assert_eq!(world.age(&again, 7).await, PayeeAge::Young(at(7 + DAY)));
}

/// The delay applies even after the other services removed the endpoint, unless the payee is the same.
#[tokio::test]
async fn a_new_service_with_another_services_endpoint_has_a_delayed_payee() {
    let world = World::begun().await;
    let first = shop(1);
    world.write(&first).await;
    let rival = |n: u128, pay_to: u8| {
        let mut rival = shop(n);
        rival.operations[0].endpoint = Endpoint::parse("https://shop-1.example/{page}").unwrap();
        pays(pay_to)(&mut rival.operations[0]);
        rival
    };
    let same_payee = {
        let mut rival = rival(2, 0);
        rival.operations[0].payment.clone_from(&first.operations[0].payment);
        rival
    };
    world.write(&same_payee).await;
    assert_eq!(world.age(&same_payee, 0).await, PayeeAge::Old);
    let other = rival(3, 0xe1);
    world.write(&other).await;
    assert_eq!(world.age(&other, 0).await, PayeeAge::Young(at(DAY)));
    // After every service removed the endpoint, no catalog row contains it.
    for service in [&first, &same_payee, &other] {
        let mut empty = edited(service, |_| {});
        empty.operations.clear();
        world.write(&empty).await;
    }
    let late = rival(4, 0xe1);
    world.write(&late).await;
    assert_eq!(world.age(&late, 0).await, PayeeAge::Young(at(DAY)));
    world.set_clock(2 * DAY);
    let unrelated = shop(5);
    world.write(&unrelated).await;
    assert_eq!(world.age(&unrelated, 2 * DAY).await, PayeeAge::Old);
}

/// After the first run, an operator can request a verification of all payees, with or without the delays.
#[tokio::test]
async fn only_the_first_verification_run_verifies_existing_payees_without_delay() {
    let world = World::start().await;
    let first = shop(1);
    world
        .emulator
        .catalog()
        .put_service(&first, &sample::audit())
        .await
        .unwrap();
    let drafted = Service {
        curated: false,
        ..shop(2)
    };
    world
        .emulator
        .catalog()
        .put_service(&drafted, &sample::audit())
        .await
        .unwrap();
    world.call(json!({})).await;
    assert_eq!(world.age(&first, 0).await, PayeeAge::Old);
    assert_eq!(world.age(&drafted, 0).await, PayeeAge::Unattested);

    // The stream records of this update are lost.
    let changed = edited(&first, pays(0xe1));
    world
        .emulator
        .catalog()
        .put_service(&changed, &sample::audit())
        .await
        .unwrap();
    world.call(json!({})).await;
    assert_eq!(world.age(&changed, 0).await, PayeeAge::Unattested);
    let answer = world.call(json!({"attest_catalog": "by_rule"})).await;
    assert_eq!(answer, json!({"services": 2}));
    assert_eq!(world.age(&changed, 0).await, PayeeAge::Young(at(DAY)));
    world.call(json!({"attest_catalog": "at_once"})).await;
    assert_eq!(world.age(&changed, 0).await, PayeeAge::Old);
    let unknown = world.events.handle_event(&json!({"attest_catalog": true}), TIME).await;
    assert!(unknown.is_err());
}

/// A compromised `internal` removes an endpoint, and later adds it to a service that no agent has enabled.
#[tokio::test]
async fn a_removed_endpoint_with_a_new_payee_is_paid_only_after_the_delay() {
    let world = World::begun().await;
    let (first, second) = (shop(1), shop(5));
    for service in [&first, &second] {
        world.write(service).await;
    }
    for service in [&first, &second] {
        let mut empty = edited(service, |_| {});
        empty.operations.clear();
        world.write(&empty).await;
        let key = AttributeValue::S(format!("SVC#{}", service.id));
        let delete = world.emulator.client.delete_item().table_name(CATALOG).key("pk", key);
        delete.send().await.unwrap();
    }
    world.pass_on().await;
    world.set_clock(30 * DAY);
    let with_call_of = |n: u128, former: &Service| {
        let mut rival = shop(n);
        rival.operations[0].endpoint = former.operations[0].endpoint.clone();
        rival.operations[0].payment.clone_from(&former.operations[0].payment);
        rival
    };
    let mut other = with_call_of(3, &first);
    pays(0xe1)(&mut other.operations[0]);
    world.write(&other).await;
    assert_eq!(world.age(&other, 30 * DAY).await, PayeeAge::Young(at(31 * DAY)));
    // When a service opens and the payee is delayed, the function raises an alarm.
    let attested = world.usage.read_verified_service(other.id).await.unwrap().unwrap();
    assert_eq!(attested.payees_changed_since(None).count(), 1);
    // An endpoint may move to another service together with the payee.
    let moved = with_call_of(2, &second);
    world.write(&moved).await;
    assert_eq!(world.age(&moved, 30 * DAY).await, PayeeAge::Old);
}

/// Each batch reads the services with verified payees at most once.
#[tokio::test]
async fn one_stream_batch_reads_each_service_with_verified_payees_once() {
    let world = World::begun().await;
    let reads = async |services: std::ops::Range<u128>| {
        for n in services {
            world
                .emulator
                .catalog()
                .put_service(&shop(n), &sample::audit())
                .await
                .unwrap();
        }
        world.proxy.calls().take();
        world.pass_on().await;
        let calls = world.proxy.calls().take();
        calls.iter().filter(|call| call.operation == "Query").count()
    };
    let one = reads(1..2).await;
    assert_eq!(one, 4, "a query for each partition");
    assert_eq!(reads(2..12).await, one);
    // The services that were verified earlier in the batch are also compared.
    let rivals = [20, 21].map(|n| {
        let mut rival = shop(n);
        rival.operations[0].endpoint = Endpoint::parse("https://rivals.example/pay").unwrap();
        pays(u8::try_from(n).unwrap())(&mut rival.operations[0]);
        rival
    });
    for rival in &rivals {
        world
            .emulator
            .catalog()
            .put_service(rival, &sample::audit())
            .await
            .unwrap();
    }
    world.pass_on().await;
    let mut ages = Vec::new();
    for rival in &rivals {
        ages.push(world.age(rival, 0).await);
    }
    assert!(ages.contains(&PayeeAge::Young(at(DAY))), "{ages:?}");
}

/// `payments` may read only the partitions of verified payees, which contain no usage data.
#[tokio::test]
async fn verified_payees_are_stored_in_separate_partitions() {
    let world = World::begun().await;
    for n in 0..8 {
        world.write(&shop(n)).await;
    }
    let attested = world.usage.read_all_verified_services().await.unwrap();
    let mut services: Vec<ServiceId> = attested.iter().map(|attested| attested.service).collect();
    services.sort_unstable();
    assert_eq!(services, (0..8).map(sample::service_id).collect::<Vec<_>>());
}
