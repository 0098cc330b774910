//! Compares the decision history at the end of a run with the rows of settlements and decisions. The expected history
//! is computed without the code under test.

use crate::stored::StoredState;
use crate::tables::{Item, Key, Rows, bytes, number, text};
use dynoxide::types::AttributeValue;
use miniz_oxide::inflate::decompress_to_vec_zlib;
use purser_domain::{Day, Timestamp};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The attributes that an entry of the decision history copies from its row. [`entry_of`] has the exceptions.
const COPIED: [&str; 22] = [
    "t", "kid", "svc", "op", "amt", "payto", "reason", "pver", "apid", "error", "rule", "host", "ms", "net", "wallet",
    "vb", "rs", "txh", "blk", "settled", "result", "sid",
];

/// The suffix of the partition key of rows that map a transaction to an entry.
const TRANSACTIONS: &str = "#T";

/// Returns the hash of the transaction that confirmed a settlement.
fn hash_of(row: &Item) -> String {
    match row.get("txh") {
        Some(AttributeValue::S(hash)) => hash.clone(),
        _ => {
            let digits = bytes(row, "txh").iter().map(|byte| format!("{byte:02x}"));
            format!("0x{}", digits.collect::<String>())
        }
    }
}

/// Usage sums by name. Sums of zero are left out.
type Sums = BTreeMap<&'static str, u64>;

/// An agent's sums of a day: by service, by error, and by hour. A withdrawal has an empty service.
#[derive(Default)]
struct OfAgent {
    services: BTreeMap<String, Sums>,
    reasons: BTreeMap<String, u64>,
    hours: BTreeMap<String, u64>,
}

/// Returns the expected attributes of a row's entry, without the key and the sequence number.
fn entry_of(stored: &StoredState, key: &Key, row: &Item) -> BTreeMap<String, AttributeValue> {
    let (_, agent) = key.0.split_once('#').expect("an agent");
    let mut entry: BTreeMap<String, AttributeValue> = COPIED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), row.get(*name)?.clone())))
        .collect();
    let mut set = |name: &str, value: &str| entry.insert(name.to_owned(), AttributeValue::S(value.to_owned()));
    set("agent", agent);
    set("name", text(then(stored, key, row), "name"));
    if key.0.starts_with("S#") {
        let is_payout = text(row, "kind") == "payout";
        set("txid", text(row, "txid"));
        set("result", if is_payout { "payout" } else { "allow" });
        set("reason", if is_payout { "paid_out" } else { "x402_authorized" });
    } else {
        set("txid", &key.1);
        if text(row, "result") == "take_back" {
            set("reason", "confirmation_vanished");
        }
    }
    // Only a confirmed settlement, and one whose confirmation was reverted, has a transaction.
    if text(row, "rs") != "confirmed" {
        for name in ["txh", "blk", "settled"] {
            entry.remove(name);
        }
    }
    entry
}

/// Returns the record with the agent's owner and name at the time of a row's decision.
fn then<'a>(stored: &'a StoredState, key: &Key, row: &Item) -> &'a Item {
    let (_, agent) = key.0.split_once('#').expect("an agent");
    let agent = stored.agent(agent).expect("its agent");
    let transfers = number(row, "ot");
    let former = match agent.get("former") {
        Some(AttributeValue::L(former)) => former.get(usize::try_from(transfers).expect("a number")),
        _ => None,
    };
    match former {
        Some(AttributeValue::M(former)) => former,
        _ => agent,
    }
}

/// Returns the owner of a row's agent at the time of the row's decision.
fn owner_of<'a>(stored: &'a StoredState, key: &Key, row: &Item) -> &'a str {
    text(then(stored, key, row), "owner")
}

/// Returns the rows of settlements and decisions.
fn rows(stored: &StoredState) -> impl Iterator<Item = (&Key, &Item)> {
    let decisions = stored.decisions.iter().map(|(key, row)| (key, &**row));
    stored.all("S#", "").chain(decisions)
}

/// Returns the differences between the decision history and the rows.
pub(crate) fn differences(stored: &StoredState, usage: &Rows) -> Vec<String> {
    let mut expected: BTreeMap<Key, BTreeMap<String, AttributeValue>> = BTreeMap::new();
    for (key, row) in rows(stored) {
        let entry = entry_of(stored, key, row);
        let all = format!("J#{}", owner_of(stored, key, row));
        if !key.0.starts_with("S#") {
            expected.insert((format!("{all}#R"), key.1.clone()), entry.clone());
        }
        expected.insert((all, key.1.clone()), entry);
    }
    let names: BTreeSet<&str> = COPIED.into_iter().chain(["agent", "name", "txid"]).collect();
    let found: BTreeMap<Key, BTreeMap<String, AttributeValue>> = usage
        .iter()
        .filter(|((pk, _), _)| pk.starts_with("J#") && !pk.ends_with(TRANSACTIONS))
        .map(|(key, row)| {
            let known = row.iter().filter(|(name, _)| names.contains(name.as_str()));
            (
                key.clone(),
                known.map(|(name, value)| (name.clone(), value.clone())).collect(),
            )
        })
        .collect();
    let keys: BTreeSet<&Key> = expected.keys().chain(found.keys()).collect();
    let confirmed = stored.all("S#", "").filter(|(_, row)| text(row, "rs") == "confirmed");
    let unfound = confirmed.filter(|(key, row)| {
        let key = (
            format!("J#{}{TRANSACTIONS}", owner_of(stored, key, row)),
            format!("{}#{}", hash_of(row), key.1),
        );
        !usage.contains_key(&key)
    });
    let unfound: Vec<String> = unfound
        .map(|(key, _)| format!("the transaction of {key:?} does not lead to it"))
        .collect();
    let mut differences: Vec<String> = keys
        .into_iter()
        .filter(|key| expected.get(*key) != found.get(*key))
        .map(|key| {
            let (is, should) = (found.get(key), expected.get(key));
            format!("the entry {key:?} is {is:?}, and its row says {should:?}")
        })
        .collect();
    differences.extend(unfound);
    let (expected, found) = (sums_of(stored), stored_sums(usage));
    let keys: BTreeSet<&Key> = expected.keys().chain(found.keys()).collect();
    differences.extend(
        keys.into_iter()
            .filter(|key| expected.get(*key) != found.get(*key))
            .map(|key| {
                let (is, should) = (found.get(key), expected.get(key));
                format!("the sums {key:?} are {is:?}, and the rows make {should:?}")
            }),
    );
    differences
}

/// Returns the expected sums by key.
fn sums_of(stored: &StoredState) -> BTreeMap<Key, Value> {
    let mut days: BTreeMap<(&str, Day), BTreeMap<String, OfAgent>> = BTreeMap::new();
    for (key, row) in rows(stored) {
        let (_, agent) = key.0.split_once('#').expect("an agent");
        let micros = number(row, "t");
        let day = Day::containing(Timestamp::from_micros(micros).expect("an instant"));
        let of_day = days.entry((owner_of(stored, key, row), day)).or_default();
        let of_agent = of_day.entry(agent.to_owned()).or_default();
        let amount = number(row, "amt").unsigned_abs();
        let service = text(row, "svc");
        let sums: &[(&str, u64)] = match (text(row, "rs"), text(row, "result")) {
            _ if service.is_empty() => &[],
            ("confirmed", _) => &[("au", amount), ("cu", amount), ("an", 1)],
            ("expired", _) => &[("au", amount), ("ru", amount), ("an", 1)],
            ("authorized", _) => &[("au", amount), ("an", 1)],
            (_, "block") => &[("bn", 1)],
            (_, "escalate") => &[("en", 1)],
            (_, "take_back") => &[("tu", amount)],
            other => panic!("no decision: {other:?}"),
        };
        add(of_agent.services.entry(service.to_owned()).or_default(), sums);
        if !service.is_empty() && ["authorized", "confirmed"].contains(&text(row, "rs")) && amount > 0 {
            let hour = micros / 3_600_000_000;
            *of_agent.hours.entry(hour.to_string()).or_default() += amount;
        }
        if row.contains_key("error") {
            *of_agent.reasons.entry(text(row, "error").to_owned()).or_default() += 1;
        }
    }
    let mut found = BTreeMap::new();
    for ((owner, day), agents) in days {
        let pk = format!("O#{owner}");
        let mut items: BTreeMap<String, serde_json::Map<String, Value>> = BTreeMap::new();
        let (mut total, mut services, mut reasons) = (Sums::new(), BTreeMap::new(), BTreeMap::<String, u64>::new());
        let mut biggest = Vec::new();
        for (agent, of_agent) in &agents {
            let mut sum = Sums::new();
            for (service, sums) in &of_agent.services {
                let sums: Vec<(&'static str, u64)> = sums.iter().map(|(name, sum)| (*name, *sum)).collect();
                add(&mut sum, &sums);
                if !service.is_empty() {
                    add(services.entry(service.clone()).or_default(), &sums);
                }
            }
            for (reason, count) in &of_agent.reasons {
                *reasons.entry(reason.clone()).or_default() += count;
            }
            let all: Vec<(&'static str, u64)> = sum.iter().map(|(name, sum)| (*name, *sum)).collect();
            add(&mut total, &all);
            biggest.push((agent.clone(), sum));
            // The last digit of the agent's id determines the item that has the agent's sums.
            let digit = agent.chars().last().expect("a digit");
            let json = json!({"s": of_agent.services, "w": of_agent.reasons, "h": of_agent.hours});
            items
                .entry(format!("A#{day}#{digit}"))
                .or_default()
                .insert(agent.clone(), json);
        }
        biggest.retain(|(_, sums)| sums.contains_key("au"));
        biggest.sort_by_key(|(agent, sums)| (Reverse(sums["au"]), agent.clone()));
        biggest.truncate(10);
        for (sk, item) in items {
            found.insert((pk.clone(), sk), Value::Object(item));
        }
        let day_sums = json!({
            "total": total, "services": services, "reasons": reasons, "biggest": biggest, "agents": agents.len(),
        });
        found.insert((pk.clone(), format!("D#{day}")), day_sums);
    }
    found
}

fn add(sums: &mut Sums, more: &[(&'static str, u64)]) {
    for (name, more) in more.iter().filter(|(_, more)| *more > 0) {
        *sums.entry(name).or_default() += more;
    }
}

/// Returns the stored sums by key, in the format of [`sums_of`].
fn stored_sums(usage: &Rows) -> BTreeMap<Key, Value> {
    let of_owner = usage.iter().filter(|((pk, _), _)| pk.starts_with("O#"));
    let sums = of_owner.map(|(key, row)| {
        let packed = decompress_to_vec_zlib(bytes(row, "z")).expect("compressed sums");
        let mut sums: Value = serde_json::from_slice(&packed).expect("JSON");
        let keep = |sums: &mut Value, names: &[&str]| {
            sums.as_object_mut()
                .expect("an object")
                .retain(|name, _| names.contains(&name.as_str()));
        };
        if key.1.starts_with("A#") {
            for of_agent in sums.as_object_mut().expect("an object").values_mut() {
                keep(of_agent, &["s", "w", "h"]);
                let services = of_agent["s"].as_array().expect("pairs").iter();
                let services = services.map(|pair| (pair[0].as_str().unwrap_or_default().to_owned(), pair[1].clone()));
                of_agent["s"] = services.collect::<serde_json::Map<_, _>>().into();
                for name in ["w", "h"] {
                    let part = &mut of_agent[name];
                    if part.is_null() {
                        *part = json!({});
                    }
                }
            }
        } else {
            keep(&mut sums, &["total", "services", "reasons", "biggest", "agents"]);
            for agent in sums["biggest"].as_array_mut().expect("agents") {
                // The agent's name is not compared, because it depends on the entries of the decision history.
                *agent = json!([agent["agent"], agent["sums"]]);
            }
        }
        (key.clone(), sums)
    });
    sums.collect()
}
