//! The catalog, its cache, and the throttle.

use crate::support::{
    emulator::{CATALOG, Emulator},
    sample,
};
use purser_domain::{
    Amount, Availability, CatalogPayment, Category, Network, Operation, OperationSlug, OperationUuid, Service,
    Timestamp, Url,
};
use purser_store::{CatalogCache, Listed};
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

fn operation(slug: &str, payment: Option<CatalogPayment>) -> Operation {
    Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(7)),
        slug: OperationSlug::parse(slug).unwrap(),
        availability: Availability::PaidX402,
        label: "Weather \u{2600}".to_owned(),
        method: "GET".to_owned(),
        endpoint: Url::parse("https://lab.example/weather?x=1").unwrap(),
        category: Category::Search,
        execution: "sync".to_owned(),
        price_model: "fixed".to_owned(),
        estimated_price: sample::units(10_000),
        max_price: payment.as_ref().map(|_| Amount::MAX),
        params: json!({ "city": { "type": "string", "weight": 0.5, "max": u64::MAX } }),
        payment,
    }
}

fn service(n: u128, slug: &str) -> Service {
    let payment = CatalogPayment {
        scheme: "exact".to_owned(),
        network: Network::Base,
        amount: sample::units(10_000),
        pay_to: sample::wallet(3),
    };
    Service {
        logo_url: Some(Url::parse("https://lab.example/logo.svg").unwrap()),
        operations: vec![
            operation("weather.current", Some(payment)),
            operation("weather.free", None),
        ],
        ..sample::service(sample::service_id(n), slug)
    }
}

#[tokio::test]
async fn services_return_and_slugs_belong_to_one() {
    let table = Emulator::start().await.catalog();
    assert_eq!(table.version().await.unwrap(), 0);
    let (one, two) = (service(1, "one"), service(2, "two"));
    for service in [&one, &two] {
        assert_eq!(table.put(service).await.unwrap(), Listed::Stored);
    }
    assert_eq!(table.load().await.unwrap().services(), [one.clone(), two]);

    let taken = Service {
        slug: one.slug.clone(),
        ..service(2, "two")
    };
    assert_eq!(table.put(&taken).await.unwrap(), Listed::SlugTaken { by: one.id });
    assert_eq!(table.version().await.unwrap(), 2, "what was refused is no change");
    let renamed = Service {
        name: "Renamed".to_owned(),
        ..service(1, "uno")
    };
    assert_eq!(table.put(&renamed).await.unwrap(), Listed::Stored);
    assert_eq!(
        table.put(&taken).await.unwrap(),
        Listed::Stored,
        "a slug that was given up is free"
    );
    assert_eq!(table.version().await.unwrap(), 4);
    assert_eq!(table.load().await.unwrap().services(), [taken, renamed]);
}

#[tokio::test]
async fn a_slug_that_many_want_goes_to_one() {
    let table = Emulator::start().await.catalog();
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..8 {
        let table = table.clone();
        racing.spawn(async move { table.put(&service(n, "wanted")).await.unwrap() });
    }
    let listed = racing.join_all().await;
    assert_eq!(listed.iter().filter(|listed| **listed == Listed::Stored).count(), 1);
    assert_eq!(table.load().await.unwrap().services().len(), 1);
}

fn after(secs: u32) -> Timestamp {
    sample::start().after(sample::secs(secs))
}

#[tokio::test]
async fn the_catalog_is_loaded_once_and_then_asked_for_its_version() {
    let emulator = Emulator::start().await;
    let table = emulator.catalog();
    table.put(&service(1, "one")).await.unwrap();
    let cache = CatalogCache::new(table.clone());
    emulator.meter.take();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let cache = cache.clone();
        asking.spawn(async move { cache.current(after(0)).await.unwrap() });
    }
    let editions = asking.join_all().await;
    assert_eq!(emulator.meter.take().calls, 2, "one version and one scan for all");
    assert!(editions.iter().all(|edition| Arc::ptr_eq(edition, &editions[0])));

    table.put(&service(2, "two")).await.unwrap();
    emulator.meter.take();
    assert_eq!(cache.current(after(4)).await.unwrap().version, 1);
    assert_eq!(emulator.meter.take().calls, 0, "fresh enough");
    let second = cache.current(after(5)).await.unwrap();
    assert_eq!((second.version, second.catalog.services().len()), (2, 2));
    assert_eq!(emulator.meter.take().calls, 2);
    assert!(Arc::ptr_eq(&cache.current(after(10)).await.unwrap(), &second));
    assert_eq!(emulator.meter.take().calls, 1, "the version alone");
}

#[tokio::test]
async fn a_catalog_that_can_not_be_read_is_served_for_a_minute() {
    let emulator = Emulator::start().await;
    let cache = CatalogCache::new(emulator.catalog());
    let first = cache.current(after(0)).await.unwrap();
    emulator.client.delete_table().table_name(CATALOG).send().await.unwrap();
    for secs in [5, 9, 12, 65] {
        assert!(
            Arc::ptr_eq(&cache.current(after(secs)).await.unwrap(), &first),
            "{secs}"
        );
    }
    assert!(cache.current(after(66)).await.is_err());
    assert!(CatalogCache::new(emulator.catalog()).current(after(0)).await.is_err());
}

#[tokio::test]
async fn a_scope_is_let_through_as_often_as_its_minute_allows() {
    let throttle = Emulator::start().await.throttle(7);
    // The tests begin at a full minute.
    let at = |secs| after(secs);
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let throttle = throttle.clone();
        racing.spawn(async move { throttle.hit("a", at(50)).await.unwrap() });
    }
    let hits = racing.join_all().await;
    assert_eq!(hits.iter().filter(|hit| hit.is_none()).count(), 7);
    assert!(hits.contains(&Some(10)));
    assert_eq!(throttle.hit("b", at(50)).await.unwrap(), None, "another scope");
    assert_eq!(throttle.hit("a", at(60)).await.unwrap(), None, "another minute");
}
