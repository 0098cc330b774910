//! The write units of counting usage, for each payment of a fleet at 100 payments a second.

#![allow(clippy::indexing_slicing, reason = "a JSON value has null for what it lacks")]

use purser_api::{Boot, Clock, Env};
use purser_domain::{Agent, AgentId, Amount, Day, PersonId, SettlementId};
use purser_events::Events;
use purser_store::{Claim, UsageTable};
use purser_testkit::{
    Emulator, Proxy, ProxyConfig, USAGE, Units,
    authorize::{Answer, Request, authorize},
    counting, environment, sample,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, atomic::AtomicI64};
use std::time::Duration;

/// The agents and owners of the payments, and the limit on the cost of counting one payment.
pub(crate) struct Fleet {
    pub(crate) name: &'static str,
    agents: u64,
    owners: u64,
    /// The maximum write units per payment, in hundredths.
    pub(crate) limit: u64,
}

/// The fleets that are measured. Each agent pays in turn.
pub(crate) const FLEETS: [Fleet; 5] = [
    fleet("10 agents of one owner", 10, 1, 10),
    fleet("100 agents of one owner", 100, 1, 50),
    fleet("100 agents of 100 owners", 100, 100, 60),
    // One second of an owner with 1,000 payments a second: each payment is the only one in its agent's row.
    fleet("1,000 agents of one owner", 1_000, 1, 220),
    // Each payment is the only one in its two rows, that of the owner's day and that of its agent. A row in a
    // transaction costs two units.
    fleet("1,000 agents of 1,000 owners", 1_000, 1_000, 430),
];

const fn fleet(name: &'static str, agents: u64, owners: u64, limit: u64) -> Fleet {
    Fleet {
        name,
        agents,
        owners,
        limit,
    }
}

/// The measured units.
pub(crate) struct Counted {
    /// The average number of records in a batch.
    pub(crate) records_of_a_batch: u64,
    /// The write units per payment, in hundredths.
    pub(crate) write: u64,
    /// The read units per payment, in hundredths.
    pub(crate) read: u64,
    /// The most writes of one row of sums in a batch.
    pub(crate) hottest: usize,
}

/// The number of payments. Each is authorized and confirmed at once, which makes two records.
const PAYMENTS: u64 = 2_000;
/// The mapping's `BatchSize`, and Lambda's size limit of an event.
const MOST_RECORDS: usize = 2_000;
const MOST_BYTES: usize = 6_000_000;
const SHARD: &str = "shardId-00000001";

/// Counts the fleet's payments in full batches, as at 100 payments a second: 2,000 records in ten seconds.
pub(crate) async fn measure(fleet: &Fleet) -> Counted {
    let (emulator, streams) = Emulator::with_streams().await;
    let proxy = Proxy::start(emulator.url.clone(), ProxyConfig::default()).await;
    let now = sample::start().after(sample::secs(60));
    let variables = environment(&proxy.url, "http://127.0.0.1:9").chain([
        ("EVENT_BUS", "none".to_owned()),
        ("STACK", "test".to_owned()),
        ("NETWORK", "base-sepolia".to_owned()),
    ]);
    let env: Env = variables.collect();
    let clock = Clock::still(Arc::new(AtomicI64::new(now.micros())));
    let events = Events::boot(Boot::new(env, clock)).unwrap();

    let ledger = emulator.ledger();
    for n in 0..fleet.agents {
        let agent = Agent {
            id: sample::agent_id(u128::from(n) + 1),
            owner: owner(n % fleet.owners).to_string(),
            ..sample::agent(1, Vec::new())
        };
        ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    }
    // One payment, which is copied to make all others.
    let (agent, service) = (sample::agent_id(1), sample::service_id(1));
    let enabled = sample::enabled(service, 1_000, 100);
    ledger.put_policy(agent, &enabled, &sample::audit()).await.unwrap();
    let request = Request::new(agent, service, 10, "key");
    let Answer::Allowed(id) = authorize(&ledger, &request, sample::start()).await.unwrap() else {
        panic!("it is allowed");
    };
    let settlement = ledger.settlement(agent, id).await.unwrap().unwrap();
    let transfer = sample::transfer(&settlement, sample::tx_hash(1));
    let confirmed = ledger.confirm(&settlement, &transfer, Claim::Transaction, now);
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
    for n in 0..PAYMENTS {
        let agent = sample::agent_id(u128::from(n % fleet.agents) + 1);
        let id = SettlementId::at(sample::start(), n.to_be_bytes());
        for (index, record) in records.iter().enumerate() {
            let record = copy(record, agent, id, 2 * n + u64::try_from(index).unwrap() + 1);
            let size = record.to_string().len();
            if bytes + size > MOST_BYTES || batches.last().unwrap().len() == MOST_RECORDS {
                batches.push(Vec::new());
                bytes = 0;
            }
            bytes += size;
            batches.last_mut().unwrap().push(record);
        }
    }
    proxy.calls().take();
    for batch in &batches {
        let event = counting(batch, SHARD);
        let answer = events.call(&event, Duration::from_secs(55)).await.unwrap();
        assert!(answer["state"].is_object());
    }
    let calls = proxy.calls().take();
    let units = Units::of(&calls);
    let mut writes: HashMap<String, usize> = HashMap::new();
    for call in &calls {
        for action in call.request["TransactItems"].as_array().into_iter().flatten() {
            let key = &action["Update"]["Key"];
            if key["pk"]["S"].as_str().is_some_and(|pk| pk.starts_with("O#")) {
                *writes.entry(key.to_string()).or_default() += 1;
            }
        }
    }

    // All payments were counted, so the cost is not low because of omissions.
    let usage = UsageTable::new(emulator.client.clone(), USAGE);
    let day = Day::of(sample::start());
    let mut sum = Amount::ZERO;
    for n in 0..fleet.owners {
        for (_, sums, _) in usage.by_day(&owner(n), day, day).await.unwrap() {
            assert_eq!(sums.authorized, sums.confirmed);
            sum = sum.plus(sums.confirmed).unwrap();
        }
    }
    assert_eq!(sum.units(), PAYMENTS * 10);
    Counted {
        records_of_a_batch: 2 * PAYMENTS / u64::try_from(batches.len()).unwrap(),
        // The units are in tenths.
        write: units.write * 10 / PAYMENTS,
        read: units.read * 10 / PAYMENTS,
        hottest: writes.into_values().max().unwrap().div_ceil(batches.len()),
    }
}

fn owner(n: u64) -> PersonId {
    PersonId::of("https://issuer.example", &format!("owner {n}"))
}

fn copy(record: &Value, agent: AgentId, id: SettlementId, place: u64) -> Value {
    let mut record = record.clone();
    let stream = &mut record["dynamodb"];
    stream["SequenceNumber"] = json!(format!("{place:021}"));
    for image in ["Keys", "OldImage", "NewImage"] {
        if stream[image].is_object() {
            stream[image]["pk"] = json!({"S": format!("S#{agent}")});
            stream[image]["sk"] = json!({"S": id.to_string()});
        }
    }
    record
}
