//! Checks the stored form of each row: `items.json` contains sample rows, and `reading.txt` the results of reading each
//! sample with one attribute missing or changed.

use crate::{
    audit::{entry::write_record, log::read_record},
    catalog::table::{CatalogTable, write_service},
    codec::{
        attribute::Item,
        item::{Draft, Row},
        ledger::Ledger,
    },
    notices::{pace::write_pace, settings::ended_channel_item},
    payments::{
        decision::{read_decision, write_reverted_confirmation},
        idempotency::IdempotencyRecord,
        payout::{WithdrawalKey, write_withdrawal_record},
        settlement::write_settlement,
    },
    people::{
        agent::write_agent,
        approval::write_approval,
        freezes::write_freeze,
        handover::write_ownership_offer,
        oauth::{write_device_request, write_grant, write_grant_code},
        policy::write_policy,
        session::write_session,
        template::{write_template_limits, write_templates},
    },
    reconcile::wallet_levels::write_wallet_level,
    stream::{change::decode_dynamodb_json, row_hash::attribute_json},
    usage::{attested::write_verified_service, journal::StoredEntry, shadows::write_shadow, table::UsageTable},
    webhooks::{
        delivery::write_delivery,
        failed_calls::{read_failed_calls, write_failed_calls},
        pause::write_pause,
        record::write_webhook,
        table::WebhooksTable,
    },
};
use aws_sdk_dynamodb::{
    Client, Config,
    config::BehaviorVersion,
    types::AttributeValue::{self, L, M, N, S},
};
use purser_domain::{
    AgentId, LoggedDecision, NoticeChannel, NotificationSettings, Result, Timestamp, UserId, WebhookId,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt::{Debug, Write as _},
    sync::LazyLock,
};

const AGENT: &str = "a0000000-0000-4000-8000-000000000001";
const WEBHOOK: &str = "70000000-0000-4000-8000-000000000001";
const PERSON: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The stores of the tables. The tests only convert rows, and read and write no table.
struct Tables {
    ledger: Ledger,
    catalog: CatalogTable,
    usage: UsageTable,
    webhooks: WebhooksTable,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let db = Client::from_conf(Config::builder().behavior_version(BehaviorVersion::latest()).build());
    Tables {
        ledger: Ledger::new(db.clone(), "ledger", "decisions"),
        catalog: CatalogTable::new(db.clone(), "catalog"),
        usage: UsageTable::new(db.clone(), "usage"),
        webhooks: WebhooksTable::new(db, "webhooks"),
    }
});

/// Reads an item and writes the value again, or prints the value if another function writes this kind of item.
fn read_and_write(row: &str, item: &Item) -> Result<Value> {
    let Tables {
        ledger,
        catalog,
        usage,
        webhooks,
    } = &*TABLES;
    let agent = AgentId::parse(AGENT).unwrap();
    let person = UserId::parse(PERSON).unwrap();
    let webhook = WebhookId::parse(WEBHOOK).unwrap();
    let now = Timestamp::from_secs(1_795_223_340).unwrap();
    let written = match row {
        "agent" => write_agent(&ledger.read_agent_item(item)?),
        "policy" => write_policy(agent, &ledger.read_policy(item)?),
        "reason of a freeze" => write_freeze(&ledger.read_freeze_item(item)?),
        "offer of an ownership transfer" => write_ownership_offer(&ledger.read_ownership_offer_item(item)?),
        "approval" => write_approval(&ledger.read_listed_approval(item)?),
        "idempotency key, read" => return print(IdempotencyRecord::read_record(ledger.item_row(item))),
        "settlement" => write_settlement(&ledger.read_settlement_item(item)?.terms),
        "settlement, read" => return print(ledger.read_settlement_item(item)),
        "claim of a transaction, read" => return print(ledger.read_claim_item(item, 9)),
        "withdrawal address" => write_withdrawal_record(agent, &ledger.read_withdrawal_item(item)?),
        "idempotency key of a withdrawal, read" => return print(ledger.item_row(item).read::<WithdrawalKey>()),
        "wallet level" => {
            let (agent, level) = ledger.read_wallet_level_item(item)?;
            write_wallet_level(agent, &level)
        }
        "session" => write_session(&ledger.item_row(item).read()?),
        "authorization code" => write_grant_code(&ledger.item_row(item).read()?),
        "device request" => write_device_request(&ledger.item_row(item).read()?),
        "grant" => write_grant(&ledger.item_row(item).read()?),
        "list of a user's policy templates" => write_templates(&person, &ledger.read_template_list_item(item)?),
        "version of a policy template" => write_template_limits(&person, 7, &ledger.read_template_limits_item(item)?),
        "block, read" => return print(read_decision(Row::new("decisions", item))),
        "reversed confirmation" => match read_decision(Row::new("decisions", item))? {
            LoggedDecision::ConfirmationReverted(reverted) => write_reverted_confirmation(&reverted),
            other => panic!("{other:?}"),
        },
        "act of a user" | "act of an operator" | "act of reconcile" => {
            write_record(&read_record(Row::new("audit", item), item)?)
        }
        "service" => write_service(&catalog.read_service(item)?),
        "head of the catalog's object" => catalog.read_head(item)?.write(),
        "probe results, read" => return print(catalog.read_probe_record_item(item)),
        "webhook" => write_webhook(&webhooks.item_row(item).read()?),
        "delivery" => write_delivery(&webhooks.item_row(item).read()?, now),
        "failed calls" => write_failed_calls(webhook, &read_failed_calls(webhooks.item_row(item))?.unwrap(), now),
        "pause" => write_pause(&webhooks.item_row(item).read()?),
        "settings" => return print(webhooks.item_row(item).read::<NotificationSettings>()),
        "ended channel" => ended_channel_item(&person, NoticeChannel::Mail, &webhooks.item_row(item).read()?),
        "send slots" => write_pace(&person, NoticeChannel::Mail, &webhooks.item_row(item).read()?, now),
        "verified payees" => write_verified_service(&usage.read_verified_service_item(item)?),
        "shadow policy" => write_shadow(&usage.read_shadow_item(item)?),
        "entry" => {
            let stored: StoredEntry = usage.read_history_entry(item)?;
            let row = Draft::with_partition_key(format!("J#{person}")).with("sk", &stored.entry.place.to_string());
            row.with_fields(&stored).into_item()
        }
        other => panic!("no row {other}"),
    };
    Ok(attribute_json(&M(written)))
}

fn print(value: Result<impl Debug>) -> Result<Value> {
    Ok(format!("{:?}", value?).into())
}

/// The samples: the name of the row, and the item.
fn samples() -> Vec<(String, Item)> {
    let samples: Vec<Value> = serde_json::from_str(include_str!("items.json")).unwrap();
    let samples = samples.into_iter();
    samples
        .map(|sample| {
            (
                sample["row"].as_str().unwrap().to_owned(),
                decode_dynamodb_json(&sample["item"]).unwrap(),
            )
        })
        .collect()
}

#[test]
fn every_kind_of_database_row_is_unchanged_after_reading_and_writing() {
    let differences: Vec<String> = samples()
        .iter()
        .filter_map(|(row, item)| match read_and_write(row, item) {
            Err(error) => Some(format!("{row}: {error:?}")),
            Ok(Value::String(_)) => None,
            Ok(written) => (written != attribute_json(&M(item.clone()))).then(|| format!("{row}: {written}")),
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn rows_with_missing_or_wrong_attributes_are_rejected() {
    let mut text = String::new();
    for (row, item) in samples() {
        writeln!(text, "{row}").unwrap();
        let mut results = BTreeMap::new();
        let mut names: Vec<&String> = item.keys().collect();
        names.sort();
        for name in names {
            describe(&mut results, &row, &item, &mut vec![name.clone()], &item[name]);
        }
        for (result, paths) in results {
            writeln!(text, "  {result}: {}", paths.join(" ")).unwrap();
        }
    }
    if text != include_str!("reading.txt") {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/reading.txt");
        std::fs::write(path, &text).unwrap();
        panic!("tests/rows/reading.txt differs from {path}");
    }
}

/// Adds the results of reading the item with the value at this path missing or changed.
fn describe(
    results: &mut BTreeMap<String, Vec<String>>,
    row: &str,
    item: &Item,
    path: &mut Vec<String>,
    value: &AttributeValue,
) {
    let top = path[0].clone();
    let whole = read_and_write(row, item).unwrap();
    let read = |other: Option<AttributeValue>| match read_and_write(row, &replaced(item, path, other)) {
        Ok(read) if read == whole => "ignored",
        Ok(_) => "accepted",
        Err(error) => {
            let (key, error) = (item["pk"].as_s().unwrap(), format!("{error:?}"));
            let is_named = path[0].len() <= 2 || error.contains(key) && error.contains("table: ");
            let is_named = is_named && error.contains(&format!("attribute: \"{top}\""));
            if is_named {
                "rejected"
            } else {
                "rejected by another name"
            }
        }
    };
    let others = match value {
        S(_) => vec![json!({"S": ""}), json!({"S": "?"}), json!({"N": "1"})],
        N(_) => vec![
            json!({"N": "-1"}),
            json!({"N": "9223372036854775808"}),
            json!({"S": "1"}),
        ],
        L(_) | M(_) => vec![json!({"L": []}), json!({"M": {}})],
        _ => vec![
            json!({"B": ""}),
            json!({"SS": ["?"]}),
            json!({"BS": [""]}),
            json!({"BOOL": false}),
        ],
    };
    let is_element = path.len() > 1 && path.last().is_some_and(|name| name.parse::<usize>().is_ok());
    let missing = if is_element { "not tried" } else { read(None) };
    let mut result = format!("without {missing}");
    for other in others.into_iter().chain([json!({"NULL": true})]) {
        let read = read(Some(
            decode_dynamodb_json(&json!({"x": other})).unwrap().remove("x").unwrap(),
        ));
        if read != "rejected" {
            write!(result, ", {other} {read}").unwrap();
        }
    }
    results.entry(result).or_default().push(path.join("."));
    let inner: Vec<(String, AttributeValue)> = match value {
        M(map) => map.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        L(list) => list
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    let inner: BTreeMap<String, AttributeValue> = inner.into_iter().collect();
    for (name, value) in inner {
        path.push(name);
        describe(results, row, item, path, &value);
        path.pop();
    }
}

/// Returns a copy of the item with the value at this path replaced or removed.
fn replaced(item: &Item, path: &[String], other: Option<AttributeValue>) -> Item {
    fn replace(value: &mut AttributeValue, path: &[String], other: Option<AttributeValue>) {
        match (value, path, other) {
            (M(map), [name], None) => drop(map.remove(name)),
            (M(map), [name], Some(other)) => drop(map.insert(name.clone(), other)),
            (L(list), [index], Some(other)) => list[index.parse::<usize>().unwrap()] = other,
            (M(map), [name, rest @ ..], other) => replace(map.get_mut(name).unwrap(), rest, other),
            (L(list), [index, rest @ ..], other) => replace(&mut list[index.parse::<usize>().unwrap()], rest, other),
            (value, path, _) => panic!("{value:?} {path:?}"),
        }
    }
    let mut whole = M(item.clone());
    replace(&mut whole, path, other);
    let M(item) = whole else { panic!() };
    item
}
