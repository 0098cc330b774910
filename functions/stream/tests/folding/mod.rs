//! Measures the write units of the decision history per payment, for fleets that make 100 payments a second.

#![allow(clippy::indexing_slicing, reason = "a JSON value has null for what it lacks")]

use purser_api::{Boot, Clock, Env};
use purser_domain::{Agent, AgentId, Amount, Day, HistoryEntry, SettlementId, UserId};
use purser_store::{Claim, Filter, HistoryPart, PageRequest, UsageTable};
use purser_stream::History;
use purser_testkit::{
    Emulator, Proxy, ProxyConfig, Rng, USAGE, Units,
    authorize::{Answer, Request, authorize},
    environment, journal_event, sample,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, atomic::AtomicI64};
use uuid::Uuid;

/// The size of a fleet, and the limits on the cost of aggregating a payment.
pub(crate) struct Fleet {
    pub(crate) name: &'static str,
    agents: u64,
    owners: u64,
    payments: u64,
    /// The maximum write units per payment, in hundredths.
    pub(crate) limit: u64,
    /// The maximum read units per payment, in hundredths.
    pub(crate) read_limit: u64,
}

/// The measured fleets. The agents pay in turn. The limits are slightly above the measured values.
pub(crate) const FLEETS: [Fleet; 5] = [
    fleet("10 agents of one owner", (10, 1, 1_000), (210, 20)),
    fleet("100 agents of one owner", (100, 1, 1_000), (220, 60)),
    fleet("100 agents of 100 owners", (100, 100, 1_000), (300, 180)),
    // One second of an owner whose agents make 1,000 payments a second.
    fleet("1,000 agents of one owner", (1_000, 1, 1_000), (230, 240)),
    // Each payment is the only payment of the agent and owner in the batch.
    fleet("500 agents of 500 owners", (500, 500, 500), (400, 410)),
];

const fn fleet(
    name: &'static str,
    (agents, owners, payments): (u64, u64, u64),
    (limit, read_limit): (u64, u64),
) -> Fleet {
    Fleet {
        name,
        agents,
        owners,
        payments,
        limit,
        read_limit,
    }
}

pub(crate) struct Folded {
    /// The average number of records per batch.
    pub(crate) records_of_a_batch: u64,
    /// The write units per payment, in hundredths.
    pub(crate) write: u64,
    /// The read units per payment, in hundredths.
    pub(crate) read: u64,
    /// The maximum number of writes to one item of sums per batch.
    pub(crate) hottest: usize,
}

/// The maximum number of records per batch, and Lambda's limit for the size of an event in bytes.
const MAX_RECORDS: usize = 1_000;
const MAX_BYTES: usize = 6_000_000;
const SHARD: &str = "shardId-00000001";

/// Aggregates the fleet's payments in full batches of 1,000 records.
pub(crate) async fn measure(fleet: &Fleet) -> Folded {
    let (emulator, streams) = Emulator::with_streams().await;
    let proxy = Proxy::start(emulator.url.clone(), ProxyConfig::default()).await;
    let now = sample::start().after(sample::secs(60));
    let env: Env = environment(&proxy.url, "http://127.0.0.1:9").collect();
    let clock = Clock::at_fixed_time(Arc::new(AtomicI64::new(now.micros())));
    let history = History::boot(Boot::new(env, clock)).unwrap();

    let ledger = emulator.ledger();
    // Random agent ids are used, because the sums are stored compressed.
    let mut rng = Rng::from_seed(42);
    let ids: Vec<AgentId> = (0..fleet.agents)
        .map(|_| AgentId::from_uuid(Uuid::from_u64_pair(rng.draw(), rng.draw())))
        .collect();
    for (id, n) in ids.iter().zip(0..) {
        let agent = Agent {
            id: *id,
            name: format!("Buyer {n}"),
            owner: owner(n % fleet.owners).to_string(),
            ..sample::agent(1, Vec::new())
        };
        ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    }
    // The payment that is copied for all other payments.
    let (agent, service) = (ids[0], sample::service_id(1));
    let enabled = sample::enabled(service, 1_000, 100);
    ledger.put_policy(agent, &enabled, &sample::audit()).await.unwrap();
    let request = Request::new(agent, service, 10, "key");
    let Answer::Allowed(id) = authorize(&ledger, &request, sample::start()).await.unwrap() else {
        panic!("it is allowed");
    };
    let settlement = ledger.read_settlement_by_id(agent, id).await.unwrap().unwrap();
    let transfer = sample::transfer(&settlement, sample::tx_hash(1));
    let confirmed = ledger.confirm_settlement(&settlement, &transfer, Claim::Transaction, now);
    confirmed.await.unwrap();
    let records: Vec<Value> = std::iter::from_fn(|| Some(streams.next_batches()).filter(|batches| !batches.is_empty()))
        .flatten()
        .flatten()
        .filter(|record| record["dynamodb"]["NewImage"]["sk"]["S"] == id.to_string())
        .filter(|record| record["dynamodb"]["NewImage"]["rs"].is_object())
        .collect();
    assert_eq!(records.len(), 2);

    let mut batches: Vec<Vec<Value>> = vec![Vec::new()];
    let mut bytes = 0;
    for n in 0..fleet.payments {
        let agent = ids[usize::try_from(n % fleet.agents).unwrap()];
        let id = SettlementId::new_at(sample::start(), n.to_be_bytes());
        for (index, record) in records.iter().enumerate() {
            let record = copy(record, agent, id, 2 * n + u64::try_from(index).unwrap() + 1);
            let size = record.to_string().len();
            if bytes + size > MAX_BYTES || batches.last().unwrap().len() == MAX_RECORDS {
                batches.push(Vec::new());
                bytes = 0;
            }
            bytes += size;
            batches.last_mut().unwrap().push(record);
        }
    }
    proxy.calls().take();
    for batch in &batches {
        let event = journal_event(batch, SHARD);
        let answer = history.handle_event(&event).await.unwrap();
        assert!(answer["state"].is_object());
    }
    let calls = proxy.calls().take();
    let units = Units::sum(&calls);
    let mut writes: HashMap<String, usize> = HashMap::new();
    for call in &calls {
        let item = &call.request["Item"];
        if item["pk"]["S"].as_str().is_some_and(|pk| pk.starts_with("O#")) {
            *writes.entry(format!("{} {}", item["pk"], item["sk"])).or_default() += 1;
        }
    }

    // Missing payments would also lower the cost, so the history and the sums must have all payments.
    let usage = UsageTable::new(emulator.client.clone(), USAGE);
    let day = Day::containing(sample::start());
    let (mut sum, mut entries) = (Amount::ZERO, 0);
    // To save time, only every tenth of more than 100 owners is checked.
    let tenth = if fleet.owners > 100 { 10 } else { 1 };
    let checked = fleet.payments / tenth;
    for n in (0..fleet.owners).step_by(usize::try_from(tenth).unwrap()) {
        for (_, sums) in usage.read_daily_sums(&owner(n), day, day).await.unwrap() {
            assert_eq!(sums.total.authorized, sums.total.confirmed);
            sum = sum.plus(sums.total.confirmed).unwrap();
        }
        let mut before = None;
        loop {
            let none = None::<fn(&HistoryEntry) -> Filter>;
            let slice = PageRequest { before, limit: 99 };
            let page = usage
                .read_history_page(&owner(n), HistoryPart::All, slice, none)
                .await
                .unwrap();
            entries += u64::try_from(page.items.len()).unwrap();
            before = page.next;
            if before.is_none() {
                break;
            }
        }
    }
    assert_eq!((sum.units(), entries), (checked * 10, checked));
    Folded {
        records_of_a_batch: 2 * fleet.payments / u64::try_from(batches.len()).unwrap(),
        // Capacity units are counted in tenths, so a factor of 10 gives hundredths.
        write: units.write * 10 / fleet.payments,
        read: units.read * 10 / fleet.payments,
        hottest: writes.into_values().max().unwrap().div_ceil(batches.len()),
    }
}

fn owner(n: u64) -> UserId {
    UserId::derive("https://issuer.example", &format!("owner {n}"))
}

fn copy(record: &Value, agent: AgentId, id: SettlementId, place: u64) -> Value {
    let mut record = record.clone();
    let stream = &mut record["dynamodb"];
    stream["SequenceNumber"] = json!(format!(
        "{:027}",
        4_421_584_500_000_000_000_000_000 + u128::from(place) * 982_451_653
    ));
    for image in ["Keys", "OldImage", "NewImage"] {
        if stream[image].is_object() {
            stream[image]["pk"] = json!({"S": format!("S#{agent}")});
            stream[image]["sk"] = json!({"S": id.to_string()});
        }
    }
    record
}
