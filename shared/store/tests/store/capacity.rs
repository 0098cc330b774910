//! Tests the read and write units of evictions and updates (`docs/data-model.toml`).

use crate::{ledger_with, request};
use purser_domain::{Address, Duration, Endpoint, OperationUuid, ProbeRecord, Quote, Service, ServiceId, Timestamp};
use purser_store::{CatalogCache, Ledger, ObjectStored, ProbeSummary};
use purser_testkit::{
    Emulator, Meter, Rng,
    authorize::{Answer, Request, authorize},
    sample,
};
use uuid::Uuid;

/// Creates a ledger with an agent that has these limits, and a meter of the units that are consumed from then on.
async fn metered_with(max_per_day: u64, require_approval_above: u64) -> (Meter, Ledger) {
    let (emulator, _) = ledger_with(max_per_day, require_approval_above).await;
    let (emulator, meter) = emulator.metered().await;
    (meter, emulator.ledger())
}

/// Returns the read units, write units and calls of one authorize request, with the result.
async fn cost(meter: &Meter, ledger: &Ledger, request: &Request, now: Timestamp) -> ((u32, u32, u32), Answer) {
    meter.take();
    let answer = authorize(ledger, request, now).await.unwrap();
    (meter.take().units(), answer)
}

#[tokio::test]
async fn a_payment_that_evicts_expired_payments_costs_the_documented_capacity() {
    let (meter, ledger) = metered_with(1_000, 100).await;
    let (start, tomorrow) = (sample::start(), sample::start().after(Duration::DAY));
    for key in ["a", "b"] {
        cost(&meter, &ledger, &request(10, key), start).await;
    }
    let (evicted, answer) = cost(&meter, &ledger, &request(10, "c"), tomorrow).await;
    assert!(matches!(answer, Answer::Allowed(_)), "{answer:?}");
    assert_eq!(evicted, (5, 13, 3), "allow that evicts two");
}

#[tokio::test]
async fn an_update_costs_the_documented_capacity() {
    let (meter, ledger) = metered_with(1_000, 1_000).await;
    authorize(&ledger, &request(10, "a"), sample::start()).await.unwrap();
    let agent = sample::agent_id(1);
    meter.take();
    let units = || meter.take().units();

    ledger
        .put_policy(agent, &sample::enabled(sample::service_id(2), 1, 1), &sample::audit())
        .await
        .unwrap();
    // The audit row takes two write units of each update.
    assert_eq!(units(), (1, 8, 2), "policy of a new service");
    let budget = sample::budget(1, 100, sample::secs(3_600));
    let agent = purser_domain::Agent {
        version: 2,
        ..sample::agent(1, vec![budget])
    };
    ledger.put_agent(&agent, &sample::audit()).await.unwrap();
    assert_eq!(units(), (2, 10, 5), "agent with a new budget, and two windows to fence");
    cost(&meter, &ledger, &request(10, "first"), sample::start()).await;
    let (budgeted, _) = cost(&meter, &ledger, &request(10, "b"), sample::start()).await;
    assert_eq!(budgeted, (6, 13, 4), "allow under a budget");
}

/// The catalog has services with one operation each. Only ids and addresses differ, as in practice.
#[tokio::test]
async fn the_catalog_object_is_cheaper_than_a_scan() {
    const SERVICES: u32 = 500;
    let (emulator, meter) = Emulator::start().await.metered().await;
    let table = emulator.catalog();
    let mut rng = Rng::from_seed(7);
    for n in 0..SERVICES {
        table.put_service(&listed(&mut rng, n), &sample::audit()).await.unwrap();
    }
    let load = async || {
        meter.take();
        let cache = CatalogCache::without_probe_results(table.clone());
        let edition = cache.current(sample::start()).await.unwrap();
        assert_eq!(edition.catalog.services().len(), 500);
        meter.take().units()
    };
    let by_scan = load().await;
    meter.take();
    assert_eq!(table.store_catalog_object().await.unwrap(), ObjectStored::Stored);
    let made = meter.take().units();
    let by_object = load().await;
    // A load reads the version, the head, and either 500 items or the chunk.
    assert_eq!(by_scan, (67, 0, 3), "by a scan");
    assert_eq!(by_object, (13, 0, 3), "by the object");
    assert_eq!(made, (68, 43, 6), "made");
    // The summary of all probe results takes half a read unit per 4 KB.
    let services = table.read_services().await.unwrap();
    let probed = services.iter().map(|service| {
        let paid = Quote::Paid(service.operations[0].payment.clone().unwrap());
        let seen = [(service.operations[0].id, Ok(paid))];
        (
            service,
            ProbeRecord::default().with_results(service, seen, sample::start()),
        )
    });
    let probed: Vec<_> = probed.collect();
    let seen = ProbeSummary::summarize(probed.iter().map(|(service, record)| (*service, record)));
    table.put_probe_summary(&seen).await.unwrap();
    meter.take();
    assert_eq!(table.read_probe_summary().await.unwrap(), seen);
    assert_eq!(meter.take().units(), (1, 0, 1), "with what probes have seen");
}

fn listed(rng: &mut Rng, n: u32) -> Service {
    let mut bytes = || {
        let mut bytes = [0; 16];
        rng.fill(&mut bytes);
        bytes
    };
    let id = ServiceId::from_uuid(Uuid::from_bytes(bytes()));
    let mut service = sample::service(id, &format!("lab-{n}"));
    let operation = &mut service.operations[0];
    operation.id = OperationUuid::from_uuid(Uuid::from_bytes(bytes()));
    operation.endpoint = Endpoint::parse(&format!("https://lab-{n}.example/weather")).unwrap();
    let (first, second) = (bytes(), bytes());
    let payee = [&first[..], &second[..4]].concat();
    operation.payment.as_mut().unwrap().pay_to = Address::from_slice(&payee);
    service
}
