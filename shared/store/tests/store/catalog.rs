//! Tests the catalog, the catalog cache, and the throttle.

use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    Amount, Availability, CatalogPayment, Category, Endpoint, Network, Obstacle, Operation, OperationSlug,
    OperationUuid, ProbeRecord, Quote, Service, Timestamp, TrustStatus, Url,
};
use purser_store::{CatalogCache, ProbeSummary, StoreServiceResult};
use purser_testkit::{CATALOG, Emulator, sample};
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

fn operation(slug: &str, payment: Option<CatalogPayment>) -> Operation {
    Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(7)),
        slug: OperationSlug::parse(slug).unwrap(),
        availability: Availability::Unverified,
        label: "Weather \u{2600}".to_owned(),
        method: "GET".to_owned(),
        endpoint: Endpoint::parse("https://lab.example/weather?x=1").unwrap(),
        category: Category::Search,
        execution: "sync".to_owned(),
        price_model: "fixed".to_owned(),
        estimated_price: sample::units(10_000),
        max_price: payment.as_ref().map(|_| Amount::MAX),
        params: json!({ "city": { "type": "string", "weight": 0.5, "max": u64::MAX } }),
        fetches_target: Some(true),
        next: None,
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
async fn services_survive_storage_and_slugs_are_unique() {
    let table = Emulator::start().await.catalog();
    assert_eq!(table.read_version().await.unwrap(), 0);
    let (one, two) = (service(1, "one"), service(2, "two"));
    for service in [&one, &two] {
        assert_eq!(
            table.put_service(service, &sample::audit()).await.unwrap(),
            StoreServiceResult::Stored
        );
    }
    assert_eq!(table.read_catalog().await.unwrap().services(), [one.clone(), two]);

    let taken = Service {
        version: 2,
        slug: one.slug.clone(),
        ..service(2, "two")
    };
    assert_eq!(
        table.put_service(&taken, &sample::audit()).await.unwrap(),
        StoreServiceResult::SlugTaken { by: one.id }
    );
    assert_eq!(table.read_version().await.unwrap(), 2, "what was refused is no change");
    let renamed = Service {
        version: 2,
        name: "Renamed".to_owned(),
        curated: false,
        ..service(1, "uno")
    };
    assert_eq!(
        table.put_service(&renamed, &sample::audit()).await.unwrap(),
        StoreServiceResult::Stored
    );
    assert_eq!(
        table.put_service(&taken, &sample::audit()).await.unwrap(),
        StoreServiceResult::Stored,
        "a slug that was given up is free"
    );
    assert_eq!(table.read_version().await.unwrap(), 4);
    assert_eq!(table.read_catalog().await.unwrap().services(), [taken, renamed]);
}

#[tokio::test]
async fn concurrent_claims_of_a_slug_have_one_winner() {
    let table = Emulator::start().await.catalog();
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..8 {
        let table = table.clone();
        racing.spawn(async move {
            table
                .put_service(&service(n, "wanted"), &sample::audit())
                .await
                .unwrap()
        });
    }
    let listed = racing.join_all().await;
    assert_eq!(
        listed
            .iter()
            .filter(|listed| **listed == StoreServiceResult::Stored)
            .count(),
        1
    );
    assert_eq!(table.read_catalog().await.unwrap().services().len(), 1);
}

#[tokio::test]
async fn catalog_writes_require_the_current_version() {
    let table = Emulator::start().await.catalog();
    let edition = |version, name: &str| Service {
        version,
        name: name.to_owned(),
        ..service(1, "one")
    };
    let nothing = StoreServiceResult::Changed { version: 0 };
    assert_eq!(
        table.put_service(&edition(2, "early"), &sample::audit()).await.unwrap(),
        nothing
    );
    assert_eq!(
        table.put_service(&edition(1, "first"), &sample::audit()).await.unwrap(),
        StoreServiceResult::Stored
    );
    assert_eq!(
        table.put_service(&edition(1, "first"), &sample::audit()).await.unwrap(),
        StoreServiceResult::Stored,
        "the same write once more"
    );
    for (version, name) in [(1, "again"), (3, "ahead")] {
        let present = StoreServiceResult::Changed { version: 1 };
        assert_eq!(
            table
                .put_service(&edition(version, name), &sample::audit())
                .await
                .unwrap(),
            present
        );
    }
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (table, edition) = (table.clone(), edition(2, &n.to_string()));
        racing.spawn(async move { table.put_service(&edition, &sample::audit()).await.unwrap() });
    }
    let listed = racing.join_all().await;
    assert_eq!(
        listed
            .iter()
            .filter(|listed| **listed == StoreServiceResult::Stored)
            .count(),
        1
    );
    assert!(listed.iter().all(|listed| matches!(
        listed,
        StoreServiceResult::Stored | StoreServiceResult::Changed { version: 2 }
    )));
    assert_eq!(table.read_version().await.unwrap(), 2);
}

fn asks(units: u64) -> Quote {
    Quote::Paid(CatalogPayment {
        scheme: "exact".to_owned(),
        network: Network::Base,
        amount: sample::units(units),
        pay_to: sample::wallet(3),
    })
}

/// A service with two operations: `weather.current`, which has a payment, and `weather.free`.
fn probed_service(n: u128, slug: &str) -> Service {
    let mut service = service(n, slug);
    for (operation, id) in service.operations.iter_mut().zip(7..) {
        operation.id = OperationUuid::from_uuid(Uuid::from_u128(id));
    }
    service
}

#[tokio::test]
async fn probe_results_survive_storage_without_a_new_catalog_version() {
    let table = Emulator::start().await.catalog();
    let entry = probed_service(1, "one");
    let [paid, free] = [entry.operations[0].id, entry.operations[1].id];
    table.put_service(&entry, &sample::audit()).await.unwrap();
    table
        .put_service(&service(2, "another"), &sample::audit())
        .await
        .unwrap();
    assert_eq!(table.read_probe_record(entry.id).await.unwrap(), ProbeRecord::default());

    let seen = [(paid, Ok(asks(11_000))), (free, Ok(Quote::Free))];
    let first = ProbeRecord::default().with_results(&entry, seen, after(1));
    assert!(table.put_probe_record_if_unchanged(entry.id, &first).await.unwrap());
    assert_eq!(table.read_probe_record(entry.id).await.unwrap(), first);
    assert!(
        table.put_probe_record_if_unchanged(entry.id, &first).await.unwrap(),
        "its own row"
    );
    let raced = ProbeRecord::default().with_results(&entry, [(free, Err(Obstacle::Timeout))], after(1));
    assert!(
        !table.put_probe_record_if_unchanged(entry.id, &raced).await.unwrap(),
        "another run was faster"
    );

    let seen = [(paid, Err(Obstacle::Status(503))), (free, Err(Obstacle::Timeout))];
    let second = first.with_results(&entry, seen, after(3));
    assert!(table.put_probe_record_if_unchanged(entry.id, &second).await.unwrap());
    assert_eq!(
        second.changed_payment(&entry.operations[0], after(3)).unwrap().since,
        after(1)
    );
    table.request_probe(entry.id, after(4), &sample::audit()).await.unwrap();
    let second = ProbeRecord {
        requested_at: Some(after(4)),
        ..second
    };
    let other = (service(2, "another"), ProbeRecord::default());
    assert_eq!(
        table.read_probed_services().await.unwrap(),
        [other, (entry.clone(), second)]
    );
    assert_eq!(table.read_service_by_id(entry.id).await.unwrap(), Some(entry));
    assert_eq!(table.read_version().await.unwrap(), 2);
}

/// The cache for decisions ignores probe results.
#[tokio::test]
async fn cached_probe_results_survive_a_damaged_summary() {
    let emulator = Emulator::start().await;
    let table = emulator.catalog();
    let entry = Service {
        trust_status: TrustStatus::Listed,
        ..probed_service(1, "one")
    };
    table.put_service(&entry, &sample::audit()).await.unwrap();
    let (cache, deciding) = (
        CatalogCache::new(table.clone()),
        CatalogCache::without_probe_results(table.clone()),
    );
    let labels = async |cache: &CatalogCache, secs| {
        let edition = cache.current(after(secs)).await.unwrap();
        let service = edition.catalog.find_by_id(entry.id).unwrap();
        let of_each = service.operations.iter().map(|operation| operation.availability.name());
        (service.trust_status.name(), of_each.collect::<Vec<_>>().join(" "))
    };
    let unseen = ("listed", "unverified unverified".to_owned());
    assert_eq!(labels(&cache, 0).await, unseen);
    let [paid, free] = [entry.operations[0].id, entry.operations[1].id];
    let seen = [(paid, Ok(asks(11_000))), (free, Ok(Quote::Free))];
    let record = ProbeRecord::default().with_results(&entry, seen, after(1));
    table
        .put_probe_summary(&ProbeSummary::summarize([(&entry, &record)]))
        .await
        .unwrap();
    let all = ("probe_passed", "paid_x402 free_verified".to_owned());
    assert_eq!(labels(&cache, 5).await, all);
    assert_eq!(labels(&deciding, 5).await, unseen);
    // While the summary is damaged, the previous summary is shown.
    let item =
        [("pk", "SIGHTINGS"), ("paid", "x")].map(|(name, text)| (name.to_owned(), AttributeValue::S(text.to_owned())));
    let put = emulator.client.put_item().table_name(CATALOG);
    put.set_item(Some(item.into())).send().await.unwrap();
    assert_eq!(labels(&cache, 10).await, all);
    // After an operation's method has changed, the operation counts as never probed.
    let mut moved = entry.clone();
    moved.version = 2;
    moved.operations[1].method = "POST".to_owned();
    table.put_service(&moved, &sample::audit()).await.unwrap();
    table
        .put_probe_summary(&ProbeSummary::summarize([(&moved, &record)]))
        .await
        .unwrap();
    assert_eq!(labels(&cache, 15).await, ("listed", "paid_x402 unverified".to_owned()));
}

#[tokio::test]
async fn a_service_of_the_largest_size_fits_in_one_dynamodb_item() {
    let table = Emulator::start().await.catalog();
    let mut entry = service(1, "one");
    entry.operations = (0..200)
        .map(|n| Operation {
            id: OperationUuid::from_uuid(Uuid::from_u128(n)),
            ..operation(&format!("weather.n{n}"), None)
        })
        .collect();
    table.put_service(&entry, &sample::audit()).await.unwrap();
    let ids: Vec<OperationUuid> = entry.operations.iter().map(|operation| operation.id).collect();
    let seen = ids.into_iter().map(|id| (id, Ok(asks(9_007_199_254_740_991))));
    let record = ProbeRecord::default().with_results(&entry, seen, after(1));
    assert!(table.put_probe_record_if_unchanged(entry.id, &record).await.unwrap());
    assert_eq!(table.read_probed_services().await.unwrap(), [(entry, record)]);
}

fn after(secs: u32) -> Timestamp {
    sample::start().after(sample::secs(secs))
}

/// Concurrent readers share one load. Later only the version is read.
#[tokio::test]
async fn the_catalog_is_reloaded_only_when_changed() {
    let (emulator, meter) = Emulator::start().await.metered().await;
    let table = emulator.catalog();
    table.put_service(&service(1, "one"), &sample::audit()).await.unwrap();
    let cache = CatalogCache::without_probe_results(table.clone());
    meter.take();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let cache = cache.clone();
        asking.spawn(async move { cache.current(after(0)).await.unwrap() });
    }
    let editions = asking.join_all().await;
    assert_eq!(
        meter.take().calls,
        3,
        "one version, one look for an object, one scan for all"
    );
    assert!(editions.iter().all(|edition| Arc::ptr_eq(edition, &editions[0])));

    table.put_service(&service(2, "two"), &sample::audit()).await.unwrap();
    meter.take();
    assert_eq!(cache.current(after(4)).await.unwrap().version, 1);
    assert_eq!(meter.take().calls, 0, "fresh enough");
    let second = cache.current(after(5)).await.unwrap();
    assert_eq!((second.version, second.catalog.services().len()), (2, 2));
    assert_eq!(meter.take().calls, 3);
    assert!(Arc::ptr_eq(&cache.current(after(10)).await.unwrap(), &second));
    assert_eq!(meter.take().calls, 1, "the version alone");
}

#[tokio::test]
async fn the_cached_catalog_survives_a_minute_of_failures() {
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
async fn each_throttle_scope_is_limited_per_minute() {
    let throttle = Emulator::start().await.throttle(7);
    // The sample start time is at the beginning of a minute, so all of these calls are in one minute.
    let at = |secs| after(secs);
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let throttle = throttle.clone();
        racing.spawn(async move { throttle.run_limited_by("a", at(50), async { Ok(()) }).await.is_ok() });
    }
    let answers = racing.join_all().await;
    assert_eq!(answers.iter().filter(|passed| **passed).count(), 7);
    let passes = async |scope: &str, at| {
        let answer = throttle.run_limited_by(scope, at, async { Ok(()) }).await;
        answer.map_err(|error| error.kind().slug())
    };
    assert_eq!(passes("a", at(50)).await, Err("too_many_requests".to_owned()));
    assert_eq!(passes("b", at(50)).await, Ok(()), "another scope");
    assert_eq!(passes("a", at(60)).await, Ok(()), "another minute");
}
