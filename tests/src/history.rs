//! Writes long histories directly into the tables, because creating them by calls would take too long. The tables'
//! streams are off meanwhile, because the embedded database writes slowly to a long stream.

use crate::{TestAgent, World, fresh_key};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, StreamSpecification, WriteRequest};
use purser_domain::{Day, SettlementId, Timestamp, TransactionId, UserId};
use purser_store::{CatalogTable, UsageTable};
use std::collections::HashMap;

type Item = HashMap<String, AttributeValue>;

/// The maximum number of items in one `BatchWriteItem` (API reference).
const BATCH: usize = 25;

impl World {
    /// Adds `count` copies of the agent's latest settlement. All copies count in the window of the agent's only
    /// service.
    pub async fn add_settlements(&self, agent: &TestAgent, count: usize) {
        let settlement = newest(&self.rows_with(&format!("S#{}", agent.id)).await, "");
        let key = newest(&self.rows_with(&format!("I#{}", agent.id)).await, "");
        let window = format!("L#{}#{}", agent.id, text(&settlement, "svc"));
        let entry = newest(&self.rows_with(&window).await, "E#");
        let first = first_of_history(self.now()).micros();
        let stream = self.pause("LedgerTable").await;
        let mut items = Vec::with_capacity(BATCH);
        for n in 0..count {
            // The copies are older than all later payments, so an eviction reads the copies first.
            let at = Timestamp::from_micros(first + i64::try_from(n).expect("few")).expect("a time");
            let id = SettlementId::new_at(at, purser_api::random_bytes().expect("chance"));
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
        self.resume("LedgerTable", stream).await;
    }

    /// Gives the agent's owner `agents` more agents with the same policies. Each has `settlements` copies of the
    /// agent's latest settlement.
    pub async fn add_fleet(&self, agent: &TestAgent, agents: usize, settlements: usize) {
        let record = newest(&self.rows_with(&format!("A#{}", agent.id)).await, "#");
        let policies = self.rows_with(&format!("P#{}", agent.id)).await;
        let settlement = newest(&self.rows_with(&format!("S#{}", agent.id)).await, "");
        let first = first_of_history(self.now()).micros();
        self.stack.aggregate_history().await;
        let owner = UserId::parse(text(&record, "owner")).expect("a person");
        let listed = self.rows_of_partition("UsageTable", &format!("J#{owner}")).await;
        let entry = newest(&listed, text(&settlement, "sk"));
        let stream = self.pause("LedgerTable").await;
        let with = |row: &Item, values: &[(&str, String)]| {
            let mut row = row.clone();
            let values = values.iter().cloned();
            row.extend(values.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))));
            row
        };
        let (mut items, mut entries) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        for n in 0..agents {
            let (id, name) = (fresh_key(), format!("another {n}"));
            let created = first + i64::try_from(n).expect("few");
            let mut copy = with(
                &record,
                &[
                    ("pk", format!("A#{id}")),
                    ("name", name.clone()),
                    ("os", format!("A#{created:016}#{id}")),
                ],
            );
            copy.insert("created".to_owned(), AttributeValue::N(created.to_string()));
            items.push(copy);
            items.extend(policies.iter().map(|row| with(row, &[("pk", format!("P#{id}"))])));
            for n in 0..settlements {
                let at = Timestamp::from_micros(first + i64::try_from(n).expect("few")).expect("a time");
                let settled = SettlementId::new_at(at, purser_api::random_bytes().expect("chance"));
                let transaction = TransactionId::new_at(at, purser_api::random_bytes().expect("chance"));
                let mut copy = with(
                    &settlement,
                    &[
                        ("pk", format!("S#{id}")),
                        ("txid", transaction.to_string()),
                        ("sk", settled.to_string()),
                        ("hp", format!("{:02x}", settled.uuid().as_u128() & 0xff)),
                        ("hs", format!("{:012}", at.secs() + 300)),
                    ],
                );
                copy.insert("t".to_owned(), AttributeValue::N(at.micros().to_string()));
                items.push(copy);
                let place = [
                    ("sk", settled.to_string()),
                    ("txid", transaction.to_string()),
                    ("agent", id.clone()),
                    ("name", name.clone()),
                ];
                let mut listed = with(&entry, &place);
                listed.insert("t".to_owned(), AttributeValue::N(at.micros().to_string()));
                entries.push(listed);
            }
            for (table, items) in [("LedgerTable", &mut items), ("UsageTable", &mut entries)] {
                while items.len() >= BATCH {
                    let rest = items.split_off(BATCH);
                    self.write_rows(table, std::mem::replace(items, rest)).await;
                }
            }
        }
        self.write_rows("LedgerTable", items).await;
        self.write_rows("UsageTable", entries).await;
        self.resume("LedgerTable", stream).await;
        self.sum_days(&owner).await;
    }

    /// Computes an owner's usage sums of today and yesterday from the decision history.
    async fn sum_days(&self, owner: &UserId) {
        let agents = self
            .stack
            .ledger
            .read_owners_agents(owner.as_str())
            .await
            .expect("agents");
        let usage = UsageTable::new(self.stack.db.clone(), "UsageTable");
        let today = Day::containing(self.now());
        for day in [today.days_earlier(1), today] {
            // With this time, the rebuild includes every change. A rebuild can be repeated, and on a busy machine, a call
            // of the database can time out.
            while let Err(error) = usage
                .rebuild_day(&self.stack.ledger, owner, &agents, day, Timestamp::MAX)
                .await
            {
                assert!(error.to_string().contains("timed out"), "{error}");
            }
        }
    }

    /// Adds `count` counted payments to the window of the agent's only service. Their times begin at
    /// [`first_of_history`].
    pub async fn add_entries(&self, agent: &TestAgent, count: usize) {
        let settlement = newest(&self.rows_with(&format!("S#{}", agent.id)).await, "");
        let window = format!("L#{}#{}", agent.id, text(&settlement, "svc"));
        let entry = newest(&self.rows_with(&window).await, "E#");
        let first = first_of_history(self.now()).micros();
        let entries = (0..count).map(|n| {
            let at = Timestamp::from_micros(first + i64::try_from(n).expect("few")).expect("a time");
            let id = SettlementId::new_at(at, purser_api::random_bytes().expect("chance"));
            let mut entry = entry.clone();
            entry.insert(
                "sk".to_owned(),
                AttributeValue::S(format!("E#{:016}#{id}", at.micros())),
            );
            entry
        });
        let entries: Vec<Item> = entries.collect();
        let stream = self.pause("LedgerTable").await;
        for entries in entries.chunks(BATCH) {
            self.write_rows("LedgerTable", entries.to_vec()).await;
        }
        self.add_to_total(&window, &entry, count).await;
        self.resume("LedgerTable", stream).await;
    }

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

    /// Enables `count` more services, which the catalog does not contain, with the agent's policy for `slug`.
    pub async fn add_services(&self, agent: &TestAgent, slug: &str, count: usize) {
        let service = self.service(slug).await.id;
        let policies = AttributeValue::S(format!("P#{}", agent.id));
        let policy = newest(&self.rows_with(&format!("P#{}", agent.id)).await, &service.to_string());
        let totals = newest(&self.rows_with(&format!("L#{}#{service}", agent.id)).await, "#W");
        let stream = self.pause("LedgerTable").await;
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
        self.resume("LedgerTable", stream).await;
    }

    /// Fills `table` with the catalog and with `count` copies of the service `slug`, each with another slug, URL and
    /// id.
    pub async fn fill_catalog(&self, table: &str, slug: &str, count: usize) {
        let everything = self.scan("CatalogTable").await;
        let pattern = everything.iter().find(|item| {
            let is_service = text(item, "pk").starts_with("SVC#");
            is_service && text(item, "slug") == slug
        });
        let pattern = pattern.expect("a seeded service").clone();
        let stream = self.pause(table).await;
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
        self.resume(table, stream).await;
        let version = AttributeValue::S("VERSION".to_owned());
        let count = self.stack.db.update_item().table_name(table).key("pk", version);
        let one = AttributeValue::N("1".to_owned());
        let count = count
            .update_expression("ADD n :one")
            .expression_attribute_values(":one", one);
        count.send().await.expect("a version");
        let catalog = CatalogTable::new(self.stack.db.clone(), table);
        catalog.store_catalog_object().await.expect("an object");
    }

    async fn rows_with(&self, pk: &str) -> Vec<Item> {
        self.rows_of_partition("LedgerTable", pk).await
    }

    async fn rows_of_partition(&self, table: &str, pk: &str) -> Vec<Item> {
        let query = self.stack.db.query().table_name(table);
        let query = query
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", AttributeValue::S(pk.to_owned()))
            .consistent_read(true);
        let items = query.into_paginator().items().send().collect::<Result<_, _>>();
        items.await.expect("a partition")
    }

    /// Turns the table's stream off. Returns the specification with which [`World::resume`] turns it on again.
    async fn pause(&self, table: &str) -> Option<StreamSpecification> {
        let described = self.stack.db.describe_table().table_name(table).send().await;
        let stream = described.expect("a table").table.expect("a table").stream_specification;
        let stream = stream.filter(StreamSpecification::stream_enabled)?;
        let off = StreamSpecification::builder().stream_enabled(false).build();
        self.set_stream(table, off.expect("a specification")).await;
        Some(stream)
    }

    /// Turns the table's stream on. The stream still has its earlier records.
    async fn resume(&self, table: &str, stream: Option<StreamSpecification>) {
        if let Some(stream) = stream {
            self.set_stream(table, stream).await;
        }
    }

    async fn set_stream(&self, table: &str, stream: StreamSpecification) {
        let update = self.stack.db.update_table().table_name(table);
        update.stream_specification(stream).send().await.expect("a stream");
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

/// Returns the time of the first settlement of [`World::add_settlements`]. Consecutive settlements are one microsecond
/// apart.
pub fn first_of_history(now: Timestamp) -> Timestamp {
    Timestamp::from_micros(now.micros() - 3_600_000_000).expect("a time")
}

/// Returns the last row whose sort key starts with `prefix`.
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
