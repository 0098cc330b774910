//! Compares the stored rows, the chain, the usage and the events at the end of a load test.

use crate::callers::Payment;
use crate::place::{OWNERS, Place};
use crate::report::Report;
use purser_domain::EventKind;
use purser_testkit::invariants;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time within which the last events must reach the webhook receiver that is up.
const DELIVERY: Duration = Duration::from_secs(60);

struct StoredSettlement {
    agent: String,
    units: u64,
    status: String,
}

/// Returns the violated invariants.
pub async fn check(place: &Place, payments: &[Payment], report: &Report) -> Vec<String> {
    let mut wrong = report.take_wrong();
    let world = &place.world;
    wrong.extend(invariants::violations(&world.stack.db, "LedgerTable").await);
    let stored = stored(place).await;
    for payment in payments {
        let status = stored
            .get(&payment.settlement)
            .map(|stored| (stored.status.as_str(), stored.units));
        let expected = (if payment.is_made { "confirmed" } else { "expired" }, payment.units);
        if status != Some(expected) {
            wrong.push(format!("{}: {status:?} instead of {expected:?}", payment.settlement));
        }
    }
    let known: BTreeSet<&str> = payments.iter().map(|payment| payment.settlement.as_str()).collect();
    let unknown = stored.iter().filter(|(id, _)| !known.contains(id.as_str()));
    for (id, stored) in unknown.filter(|(_, stored)| stored.status != "expired") {
        wrong.push(format!("{id}, whose caller has no answer, is {}", stored.status));
    }
    agents(place, payments, &stored, &mut wrong).await;
    events(place, &stored, &mut wrong).await;
    wrong
}

/// Checks that the confirmed sum of each agent is equal in the ledger, on the chain and in the usage, and within the
/// limit.
async fn agents(
    place: &Place,
    payments: &[Payment],
    stored: &BTreeMap<String, StoredSettlement>,
    wrong: &mut Vec<String>,
) {
    let mut used = BTreeMap::new();
    for user in OWNERS {
        let usage = place
            .world
            .person_gets(&place.world.person(user), "/usage?by=agent")
            .await
            .ok();
        for row in usage["rows"].as_array().expect("rows") {
            let agent = row["agent_id"].as_str().expect("an id").to_owned();
            used.insert(agent, row["confirmed_units"].as_u64().expect("a number"));
        }
    }
    for (number, payer) in place.payers.iter().enumerate() {
        let id = payer.agent.id.to_string();
        let of_agent = |stored: &&StoredSettlement| stored.agent == id && stored.status == "confirmed";
        let ledger: u64 = stored.values().filter(of_agent).map(|stored| stored.units).sum();
        let made = payments
            .iter()
            .filter(|payment| payment.payer == number && payment.is_made);
        let chain: u64 = made.map(|payment| payment.units).sum();
        let spent = place.node.spent(&payer.agent.wallet);
        let usage = used.get(&id).copied().unwrap_or_default();
        if [chain, spent, usage] != [ledger; 3] {
            wrong.push(format!(
                "{id}: ledger {ledger}, callers {chain}, chain {spent}, usage {usage}"
            ));
        }
    }
    // The run is shorter than the limit's period, so every payment that wasn't released counts.
    for payer in &place.payers {
        let id = payer.agent.id.to_string();
        let counts = |stored: &&StoredSettlement| stored.agent == id && stored.status != "expired";
        let units: u64 = stored.values().filter(counts).map(|stored| stored.units).sum();
        if payer.cap.is_some_and(|cap| units > cap) {
            wrong.push(format!("{id}: {units} micro-units within a day"));
        }
    }
}

/// Checks that each payment has one event of each type, and that the second owner's receiver got all of its events.
async fn events(place: &Place, stored: &BTreeMap<String, StoredSettlement>, wrong: &mut Vec<String>) {
    let waited = tokio::time::Instant::now() + DELIVERY;
    let missing = || {
        let received = place.received.lock().expect("not poisoned");
        let published = place.published.lock().expect("not poisoned");
        published
            .of_second_owner
            .keys()
            .filter(|id| !received.contains_key(*id))
            .count()
    };
    while missing() > 0 && tokio::time::Instant::now() < waited {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    match missing() {
        0 => {}
        count => wrong.push(format!(
            "{count} events did not reach the webhook whose program is alive"
        )),
    }
    let published = place.published.lock().expect("not poisoned");
    let of = |kind: EventKind| published.settlements.get(kind.name()).cloned().unwrap_or_default();
    let (authorized, confirmed) = (of(EventKind::PaymentAuthorized), of(EventKind::PaymentConfirmed));
    for (id, stored) in stored {
        if !authorized.contains_key(id) || confirmed.contains_key(id) != (stored.status == "confirmed") {
            wrong.push(format!("{id} is {}, and its events are others", stored.status));
        }
    }
    if authorized.len() != stored.len() {
        wrong.push(format!("{} events of {} settlements", authorized.len(), stored.len()));
    }
}

/// Returns the settlements of the run's agents, by id.
async fn stored(place: &Place) -> BTreeMap<String, StoredSettlement> {
    let agents: BTreeSet<String> = place.payers.iter().map(|payer| payer.agent.id.to_string()).collect();
    let mut found = BTreeMap::new();
    for item in place.world.scan("LedgerTable").await {
        let text = |name: &str| {
            item.get(name)
                .and_then(|value| value.as_s().ok())
                .cloned()
                .unwrap_or_default()
        };
        let (pk, sk) = (text("pk"), text("sk"));
        let Some(agent) = pk.strip_prefix("S#").filter(|agent| agents.contains(*agent)) else {
            continue;
        };
        let units = item["amt"].as_n().expect("a number").parse().expect("a number");
        let (agent, status) = (agent.to_owned(), text("rs"));
        found.insert(sk, StoredSettlement { agent, units, status });
    }
    found
}
