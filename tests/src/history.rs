//! Long histories, written directly into the tables: an agent with many payments and many services, without the calls
//! that would create them.

use crate::{TestAgent, World, fresh_key};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use purser_domain::{SettlementId, Timestamp};
use purser_store::CatalogTable;
use std::collections::HashMap;

type Item = HashMap<String, AttributeValue>;

/// The maximum number of items in one `BatchWriteItem` (API reference).
const BATCH: usize = 25;

impl World {
    /// Adds `count` settlements to the window of the agent's only service, each a copy of its latest one with its key
    /// and its entry. All of them count, and none can be evicted.
    pub async fn add_settlements(&self, agent: &TestAgent, count: usize) {
        let settlement = newest(&self.rows_with(&format!("S#{}", agent.id)).await, "");
        let key = newest(&self.rows_with(&format!("I#{}", agent.id)).await, "");
        let window = format!("L#{}#{}", agent.id, text(&settlement, "svc"));
        let entry = newest(&self.rows_with(&window).await, "E#");
        let first = first_of_history(self.now()).micros();
        let mut items = Vec::with_capacity(BATCH);
        for n in 0..count {
            // Older than everything that follows, so that an eviction would find them first.
            let at = Timestamp::from_micros(first + i64::try_from(n).expect("few")).expect("a time");
            let id = SettlementId::at(at, purser_api::random().expect("chance"));
            let with = |row: &Item, sk: String| {
                let mut row = row.clone();
                row.insert("sk".to_owned(), AttributeValue::S(sk));
                row
            };
            let mut settlement = with(&settlement, id.to_string());
            settlement.insert("t".to_owned(), AttributeValue::N(at.micros().to_string()));
            let place = [
                ("hp", format!("{:02x}", id.uuid().as_u128() & 0xff)),
                ("hs", format!("{:012}", at.secs() + 300)),
            ];
            settlement.extend(place.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))));
            let mut key = with(
                &key,
                format!("{}{}", fresh_key().replace('-', ""), fresh_key().replace('-', "")),
            );
            key.insert("sid".to_owned(), AttributeValue::S(id.to_string()));
            items.extend([settlement, key, with(&entry, format!("E#{:016}#{id}", at.micros()))]);
            if items.len() + 3 > BATCH {
                self.write_rows("LedgerTable", std::mem::take(&mut items)).await;
            }
        }
        self.write_rows("LedgerTable", items).await;
        self.add_to_total(&window, &entry, count).await;
    }

    /// Gives the agent's owner `agents` more agents with the same policies, each with `settlements` copies of the
    /// agent's latest settlement.
    pub async fn add_fleet(&self, agent: &TestAgent, agents: usize, settlements: usize) {
        let record = newest(&self.rows_with(&format!("A#{}", agent.id)).await, "#");
        let policies = self.rows_with(&format!("P#{}", agent.id)).await;
        let settlement = newest(&self.rows_with(&format!("S#{}", agent.id)).await, "");
        let first = first_of_history(self.now()).micros();
        let with = |row: &Item, values: &[(&str, String)]| {
            let mut row = row.clone();
            let values = values.iter().cloned();
            row.extend(values.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))));
            row
        };
        let mut items = Vec::with_capacity(BATCH);
        for n in 0..agents {
            let id = fresh_key();
            let created = first + i64::try_from(n).expect("few");
            let mut copy = with(
                &record,
                &[
                    ("pk", format!("A#{id}")),
                    ("name", format!("another {n}")),
                    ("os", format!("A#{created:016}#{id}")),
                ],
            );
            copy.insert("created".to_owned(), AttributeValue::N(created.to_string()));
            items.push(copy);
            items.extend(policies.iter().map(|row| with(row, &[("pk", format!("P#{id}"))])));
            for n in 0..settlements {
                let at = Timestamp::from_micros(first + i64::try_from(n).expect("few")).expect("a time");
                let settled = SettlementId::at(at, purser_api::random().expect("chance"));
                let mut copy = with(
                    &settlement,
                    &[
                        ("pk", format!("S#{id}")),
                        ("sk", settled.to_string()),
                        ("hp", format!("{:02x}", settled.uuid().as_u128() & 0xff)),
                        ("hs", format!("{:012}", at.secs() + 300)),
                    ],
                );
                copy.insert("t".to_owned(), AttributeValue::N(at.micros().to_string()));
                items.push(copy);
            }
            while items.len() >= BATCH {
                let rest = items.split_off(BATCH);
                self.write_rows("LedgerTable", std::mem::replace(&mut items, rest))
                    .await;
            }
        }
        self.write_rows("LedgerTable", items).await;
    }

    /// Adds `count` entries to the window of the agent's only service, each a copy of its latest one, with times from
    /// [`first_of_history`] on.
    pub async fn add_entries(&self, agent: &TestAgent, count: usize) {
        let settlement = newest(&self.rows_with(&format!("S#{}", agent.id)).await, "");
        let window = format!("L#{}#{}", agent.id, text(&settlement, "svc"));
        let entry = newest(&self.rows_with(&window).await, "E#");
        let first = first_of_history(self.now()).micros();
        let entries = (0..count).map(|n| {
            let at = Timestamp::from_micros(first + i64::try_from(n).expect("few")).expect("a time");
            let id = SettlementId::at(at, purser_api::random().expect("chance"));
            let mut entry = entry.clone();
            entry.insert(
                "sk".to_owned(),
                AttributeValue::S(format!("E#{:016}#{id}", at.micros())),
            );
            entry
        });
        let entries: Vec<Item> = entries.collect();
        for entries in entries.chunks(BATCH) {
            self.write_rows("LedgerTable", entries.to_vec()).await;
        }
        self.add_to_total(&window, &entry, count).await;
    }

    /// Adds `count` times the amount of `entry` to a window's total.
    async fn add_to_total(&self, window: &str, entry: &Item, count: usize) {
        let amount: u64 = number(entry, "amt");
        let sum = amount * u64::try_from(count).expect("few");
        let update = self.stack.db.update_item().table_name("LedgerTable");
        let update = update
            .key("pk", AttributeValue::S(window.to_owned()))
            .key("sk", AttributeValue::S("#W".to_owned()))
            .update_expression("ADD #total :sum")
            .expression_attribute_names("#total", "total")
            .expression_attribute_values(":sum", AttributeValue::N(sum.to_string()));
        update.send().await.expect("the window's total");
    }

    /// Enables `count` more services, which are not in the catalog, with the agent's policy for `slug`.
    pub async fn add_services(&self, agent: &TestAgent, slug: &str, count: usize) {
        let service = self.service(slug).await.id;
        let policies = AttributeValue::S(format!("P#{}", agent.id));
        let policy = newest(&self.rows_with(&format!("P#{}", agent.id)).await, &service.to_string());
        let totals = newest(&self.rows_with(&format!("L#{}#{service}", agent.id)).await, "#W");
        let mut items = Vec::with_capacity(BATCH);
        for _ in 0..count {
            let id = fresh_key();
            let partition = AttributeValue::S(format!("L#{}#{id}", agent.id));
            let mut policy = policy.clone();
            policy.insert("pk".to_owned(), policies.clone());
            policy.insert("sk".to_owned(), AttributeValue::S(id.clone()));
            policy.insert("svc".to_owned(), AttributeValue::S(id.clone()));
            let mut totals = totals.clone();
            totals.insert("pk".to_owned(), partition);
            totals.insert("total".to_owned(), AttributeValue::N("0".to_owned()));
            items.extend([policy, totals]);
            if items.len() + 2 > BATCH {
                self.write_rows("LedgerTable", std::mem::take(&mut items)).await;
            }
        }
        self.write_rows("LedgerTable", items).await;
    }

    /// Fills `table`, which has the catalog's schema, with the whole catalog and `count` copies of a service, each with
    /// its own slug, URL and ids. Increments the version and stores the catalog object.
    pub async fn fill_catalog(&self, table: &str, slug: &str, count: usize) {
        let everything = self.scan("CatalogTable").await;
        let pattern = everything.iter().find(|item| {
            let is_service = text(item, "pk").starts_with("SVC#");
            is_service && text(item, "slug") == slug
        });
        let pattern = pattern.expect("a seeded service").clone();
        for items in everything.chunks(BATCH) {
            self.write_rows(table, items.to_vec()).await;
        }
        let mut items = Vec::with_capacity(BATCH);
        for n in 0..count {
            let mut copy = pattern.clone();
            copy.insert("pk".to_owned(), AttributeValue::S(format!("SVC#{}", fresh_key())));
            copy.insert("slug".to_owned(), AttributeValue::S(format!("copy-{n:05}")));
            let Some(AttributeValue::L(operations)) = copy.get_mut("operations") else {
                panic!("a service has operations");
            };
            for (m, operation) in operations.iter_mut().enumerate() {
                let AttributeValue::M(operation) = operation else {
                    panic!("an operation is a map");
                };
                let endpoint = format!("https://copy-{n:05}.example/{m}");
                operation.insert("id".to_owned(), AttributeValue::S(fresh_key()));
                operation.insert("endpoint".to_owned(), AttributeValue::S(endpoint));
            }
            items.push(copy);
            if items.len() == BATCH {
                self.write_rows(table, std::mem::take(&mut items)).await;
            }
        }
        self.write_rows(table, items).await;
        let version = AttributeValue::S("VERSION".to_owned());
        let count = self.stack.db.update_item().table_name(table).key("pk", version);
        let one = AttributeValue::N("1".to_owned());
        let count = count
            .update_expression("ADD n :one")
            .expression_attribute_values(":one", one);
        count.send().await.expect("a version");
        let catalog = CatalogTable::new(self.stack.db.clone(), table);
        catalog.store_object().await.expect("an object");
    }

    /// Reads every row of a partition of the ledger.
    async fn rows_with(&self, pk: &str) -> Vec<Item> {
        let query = self.stack.db.query().table_name("LedgerTable");
        let query = query
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", AttributeValue::S(pk.to_owned()))
            .consistent_read(true);
        let items = query.into_paginator().items().send().collect::<Result<_, _>>();
        items.await.expect("a partition")
    }

    async fn write_rows(&self, table: &str, items: Vec<Item>) {
        if items.is_empty() {
            return;
        }
        let put = |item| {
            let put = PutRequest::builder().set_item(Some(item)).build().expect("an item");
            WriteRequest::builder().put_request(put).build()
        };
        let puts = items.into_iter().map(put).collect();
        let write = self.stack.db.batch_write_item().request_items(table, puts);
        write.send().await.expect("rows");
    }
}

/// The time of the first settlement of [`World::add_settlements`]; each of the others is a microsecond later.
pub fn first_of_history(now: Timestamp) -> Timestamp {
    Timestamp::from_micros(now.micros() - 3_600_000_000).expect("a time")
}

/// The last row whose sort key starts with `prefix`.
fn newest(rows: &[Item], prefix: &str) -> Item {
    let found = rows.iter().rev().find(|row| text(row, "sk").starts_with(prefix));
    found.unwrap_or_else(|| panic!("a row {prefix}")).clone()
}

fn text<'a>(row: &'a Item, name: &str) -> &'a str {
    row.get(name)
        .and_then(|value| value.as_s().ok())
        .map_or("", String::as_str)
}

fn number(row: &Item, name: &str) -> u64 {
    let text = row.get(name).and_then(|value| value.as_n().ok()).expect("a number");
    text.parse().expect("a whole number")
}
