//! Tests the calls of a probe run and the stored results, with an emulated DynamoDB and providers on loopback.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use axum::{Router, extract::Path, extract::State, http::StatusCode, response::IntoResponse as _, response::Response};
use purser_api::{Boot, Clock};
use purser_domain::{
    Address, Amount, Availability, CatalogPayment, Endpoint, Network, Obstacle, Operation, OperationSlug,
    OperationUuid, ProbeRecord, Quote, Service, ServiceId, Timestamp, TrustStatus,
};
use purser_probe::{Probe, Report};
use purser_store::{CatalogTable, ProbeSummary, StoreServiceResult};
use purser_testkit::{CATALOG, Emulator, Fate, Moment, Proxy, ProxyConfig, sample, serve};
use serde_json::json;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use uuid::Uuid;

const NETWORK: Network = Network::BaseSepolia;
const PAYEE: Address = Address::repeat_byte(1);
/// The test clock starts at 2026-11-21T01:09:00Z.
const START: i64 = 1_795_223_340_000_000;
const MINUTE: Duration = Duration::from_mins(1);
const NOTHING: Report = Report {
    services: 0,
    operations: 0,
    dropped: 0,
};

#[derive(Default)]
struct Provider {
    calls: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    /// The catalog update that is made during the first call of `/paid`.
    edit: Mutex<Option<(CatalogTable, Service)>>,
}

async fn answer(State(provider): State<Arc<Provider>>, Path(page): Path<String>) -> Response {
    provider.calls.fetch_add(1, Ordering::SeqCst);
    let at_once = provider.at_once.fetch_add(1, Ordering::SeqCst) + 1;
    provider.most_at_once.fetch_max(at_once, Ordering::SeqCst);
    let edit = provider.edit.lock().unwrap().take();
    if let Some((table, service)) = edit {
        assert_eq!(
            table.put_service(&service, &sample::audit()).await.unwrap(),
            StoreServiceResult::Stored
        );
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    provider.at_once.fetch_sub(1, Ordering::SeqCst);
    match page.as_str() {
        "free" => "weather".into_response(),
        "broken" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        _ => {
            let token = NETWORK.token();
            let entry = json!({
                "scheme": "exact", "network": NETWORK.name(), "maxAmountRequired": "10000",
                "asset": token.address.to_string(), "payTo": PAYEE.to_string(), "maxTimeoutSeconds": 60,
            });
            let requirement = json!({"x402Version": 1, "error": "pay", "accepts": [entry]});
            (StatusCode::PAYMENT_REQUIRED, requirement.to_string()).into_response()
        }
    }
}

#[derive(Clone)]
struct World {
    dynamodb: String,
    table: CatalogTable,
    provider: Arc<Provider>,
    authority: String,
    micros: Arc<AtomicI64>,
}

impl World {
    async fn start() -> Self {
        let emulator = Emulator::start().await;
        let provider = Arc::new(Provider::default());
        let routes = Router::new()
            .route("/{page}", axum::routing::any(answer))
            .with_state(provider.clone());
        let url = serve(routes).await;
        Self {
            table: emulator.catalog(),
            dynamodb: emulator.url,
            provider,
            authority: url.trim_start_matches("http://").to_owned(),
            micros: Arc::new(AtomicI64::new(START)),
        }
    }

    fn boot(&self, environment: &[(&str, &str)]) -> Result<Probe, String> {
        let aws = [
            ("AWS_REGION", "eu-west-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("DYNAMODB_ENDPOINT", &self.dynamodb),
        ];
        let env = aws.iter().chain(environment).copied().collect();
        let boot = Boot::new(env, Clock::at_fixed_time(self.micros.clone()));
        Probe::boot(boot).map_err(|error| error.to_string())
    }

    fn probe(&self) -> Probe {
        let allowed = format!("lab.example:443, {}", self.authority);
        self.boot(&[
            ("CATALOG_TABLE", CATALOG),
            ("NETWORK", NETWORK.name()),
            ("PROBE_ALLOWED_HOSTS", &allowed),
        ])
        .unwrap()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst)).unwrap()
    }

    fn calls(&self) -> usize {
        self.provider.calls.swap(0, Ordering::SeqCst)
    }

    /// Stores a service that has an operation at each of these paths.
    async fn list(&self, n: u128, pages: &[&str]) -> Service {
        let operations = (0..).zip(pages).map(|(index, page)| Operation {
            id: OperationUuid::from_uuid(Uuid::from_u128(n * 1_000 + index)),
            slug: OperationSlug::parse(&format!("lab.n{index}")).unwrap(),
            availability: Availability::Unverified,
            endpoint: Endpoint::parse(&format!("http://{}/{page}", self.authority)).unwrap(),
            max_price: None,
            payment: None,
            ..sample::operation()
        });
        let service = Service {
            operations: operations.collect(),
            ..sample::service(ServiceId::from_uuid(Uuid::from_u128(n)), &format!("lab-{n}"))
        };
        self.put(&service).await;
        service
    }

    async fn put(&self, service: &Service) {
        assert_eq!(
            self.table.put_service(service, &sample::audit()).await.unwrap(),
            StoreServiceResult::Stored
        );
    }

    async fn entry(&self, n: u128) -> (Service, ProbeRecord) {
        let id = ServiceId::from_uuid(Uuid::from_u128(n));
        let service = self.table.read_service_by_id(id).await.unwrap().unwrap();
        (service, self.table.read_probe_record(id).await.unwrap())
    }
}

fn payment(units: u64) -> CatalogPayment {
    CatalogPayment {
        scheme: "exact".to_owned(),
        network: NETWORK,
        amount: Amount::from_units(units).unwrap(),
        pay_to: PAYEE,
    }
}

const fn recorded(services: usize, operations: usize) -> Report {
    Report {
        services,
        operations,
        dropped: 0,
    }
}

/// The first run records results without changing a service, and the next run makes no calls.
#[tokio::test]
async fn a_probe_run_calls_each_due_service_once() {
    let world = World::start().await;
    world.list(1, &["paid", "free"]).await;
    world.list(2, &["paid", "broken"]).await;
    world.list(3, &[]).await;
    let probe = world.probe();
    assert_eq!(probe.run_probes(MINUTE).await.unwrap(), recorded(2, 4));
    assert_eq!(world.calls(), 4);

    let (good, record) = world.entry(1).await;
    let [paid, free] = [&good.operations[0], &good.operations[1]];
    assert_eq!(
        (good.version, &good.trust_status, &paid.payment),
        (1, &TrustStatus::Listed, &None)
    );
    assert!(record.has_passed_all_probes(&good));
    assert_eq!(
        record.latest_probe(paid).unwrap().seen,
        Ok(Quote::Paid(payment(10_000)))
    );
    assert_eq!(record.latest_probe(free).unwrap().seen, Ok(Quote::Free));
    let (bad, record) = world.entry(2).await;
    assert!(!record.has_passed_all_probes(&bad));
    assert_eq!(
        record.latest_probe(&bad.operations[1]).unwrap().seen,
        Err(Obstacle::Status(500))
    );
    assert_eq!(world.table.read_version().await.unwrap(), 3, "no entry was written");

    assert_eq!(probe.run_probes(MINUTE).await.unwrap(), NOTHING);
    assert_eq!(world.calls(), 0);
}

/// The run succeeds even if the summary cannot be written.
#[tokio::test]
async fn the_next_probe_run_writes_a_summary_that_the_previous_run_could_not_write() {
    let world = World::start().await;
    world.list(1, &["paid", "free"]).await;
    let proxy = Proxy::start(world.dynamodb.clone(), ProxyConfig::default()).await;
    let behind = World {
        dynamodb: proxy.url.clone(),
        ..world.clone()
    };
    let probe = behind.probe();
    proxy.follow(|step| {
        let is_shown = step.moment == Moment::Arrived && step.request["Item"]["pk"]["S"] == "SIGHTINGS";
        if is_shown { Fate::server_error() } else { Fate::PassOn }
    });
    assert_eq!(
        probe.run_probes(MINUTE).await.unwrap(),
        recorded(1, 2),
        "no failure of the run"
    );
    assert_eq!(world.table.read_probe_summary().await.unwrap(), ProbeSummary::default());
    proxy.behave();
    let writes = async || {
        proxy.calls().take();
        assert_eq!(probe.run_probes(MINUTE).await.unwrap(), NOTHING);
        let calls = proxy.calls().take().into_iter();
        calls
            .filter(|call| call.operation != "GetItem" && call.operation != "Scan")
            .count()
    };
    assert_eq!(writes().await, 1);
    let (service, record) = world.entry(1).await;
    assert_eq!(
        world.table.read_probe_summary().await.unwrap(),
        ProbeSummary::summarize([(&service, &record)])
    );
    assert_eq!(writes().await, 0);
}

#[tokio::test]
async fn probe_results_for_a_changed_operation_are_discarded() {
    let world = World::start().await;
    let service = world.list(1, &["paid"]).await;
    let mut edited = Service { version: 2, ..service };
    edited.operations[0].method = "POST".to_owned();
    *world.provider.edit.lock().unwrap() = Some((world.table.clone(), edited.clone()));
    let probe = world.probe();
    assert_eq!(probe.run_probes(MINUTE).await.unwrap(), recorded(1, 1));
    let (entry, record) = world.entry(1).await;
    assert_eq!((&entry, record.latest_probe(&entry.operations[0])), (&edited, None));
    assert_eq!(
        probe.run_probes(MINUTE).await.unwrap(),
        recorded(1, 1),
        "it is due again"
    );
}

#[tokio::test]
async fn two_concurrent_probe_runs_store_the_result_of_one_run() {
    let world = World::start().await;
    for n in 1..=4 {
        world.list(n, &["paid", "free"]).await;
    }
    let later = World {
        micros: Arc::new(AtomicI64::new(START + 1)),
        ..world.clone()
    };
    let (one, other) = (world.probe(), later.probe());
    let (one, other) = tokio::join!(one.run_probes(MINUTE), other.run_probes(MINUTE));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.services + other.services, 4, "each service is recorded once");
    assert_eq!(one.dropped + other.dropped, 4);
    for n in 1..=4 {
        let (entry, record) = world.entry(n).await;
        assert_eq!((entry.version, record.version), (1, 1));
        assert!(record.has_passed_all_probes(&entry));
    }
}

/// Services with a requested probe come first. The next run probes the remaining services.
#[tokio::test]
async fn a_probe_run_makes_at_most_one_hundred_calls() {
    let world = World::start().await;
    world.list(1, &["paid"; 80]).await;
    world.list(2, &["free"; 80]).await;
    let asked_for = world.list(3, &["paid"]).await;
    world
        .table
        .request_probe(asked_for.id, world.now(), &sample::audit())
        .await
        .unwrap();
    let probe = world.probe();
    assert_eq!(probe.run_probes(MINUTE).await.unwrap(), recorded(3, 100));
    assert!(
        !world.entry(3).await.1.operations.is_empty(),
        "what was asked for comes first"
    );
    assert_eq!(world.calls(), 100);
    let at_once = world.provider.most_at_once.load(Ordering::SeqCst);
    assert!(
        (2..=12).contains(&at_once),
        "three services with four calls each: {at_once}"
    );
    assert_eq!(probe.run_probes(MINUTE).await.unwrap(), recorded(1, 61));
    assert_eq!(probe.run_probes(MINUTE).await.unwrap(), NOTHING);
    let (entry, record) = world.entry(2).await;
    assert!(record.has_passed_all_probes(&entry));
}

#[tokio::test]
async fn a_probe_run_without_enough_time_makes_no_calls() {
    let world = World::start().await;
    world.list(1, &["paid"]).await;
    assert_eq!(world.probe().run_probes(Duration::from_secs(1)).await.unwrap(), NOTHING);
    assert_eq!(world.calls(), 0);
}

#[tokio::test]
async fn an_invalid_probe_configuration_fails_at_startup() {
    let world = World::start().await;
    let error = world
        .boot(&[("PROBE_INTERVAL_SECONDS", "1"), ("PROBE_ALLOWED_HOSTS", "127.0.0.1")])
        .err()
        .unwrap();
    for name in [
        "CATALOG_TABLE",
        "NETWORK",
        "PROBE_INTERVAL_SECONDS",
        "PROBE_ALLOWED_HOSTS",
    ] {
        assert!(error.contains(name), "{error}");
    }
}
