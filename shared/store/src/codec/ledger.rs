//! The client of the ledger table and of the decisions table. Each operation has a separate file.

use crate::{
    codec::backoff::{THROTTLING_PAUSES, throttling_pause},
    codec::fault::{Fault, store_error},
    codec::item::{Item, Row},
    codec::key::Key,
    codec::known_sets::KnownDefaultServices,
    codec::table::get_item,
};
use aws_sdk_dynamodb::{
    Client,
    types::{
        KeysAndAttributes,
        builders::{PutBuilder, UpdateBuilder},
    },
};
use purser_domain::{Error, Result};
use std::{collections::HashMap, sync::Arc};

/// A client of the ledger and decisions tables.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(crate) db: Client,
    pub(crate) table: Arc<str>,
    /// The name of the decisions table; `None` for a function that does not use decisions.
    decisions: Option<Arc<str>>,
    pub(crate) sets: KnownDefaultServices,
}

/// The result of an update that requires a certain version of the stored item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// The change is stored, by this attempt or an earlier attempt.
    Stored,
    /// The item has another version or does not exist. Nothing was written.
    Conflict,
}

const READING: &str = "reading the ledger";

/// Reads items of a table by their distinct keys. Returns the items in any order.
pub(crate) async fn get_all_items(
    db: &Client,
    table: &str,
    mut keys: Vec<Item>,
    consistent: bool,
    operation: &'static str,
) -> Result<Vec<Item>> {
    /// The maximum number of keys in one `BatchGetItem` (API reference).
    const BATCH: usize = 100;
    let mut found = Vec::with_capacity(keys.len());
    let mut pauses = 0_u32;
    while !keys.is_empty() {
        let rest = keys.split_off(keys.len().min(BATCH));
        let requested = keys.len();
        let batch = KeysAndAttributes::builder()
            .set_keys(Some(keys))
            .consistent_read(consistent);
        let batch = batch.build().map_err(|error| Error::internal(operation, error))?;
        let request = HashMap::from([(table.to_owned(), batch)]);
        let response = db.batch_get_item().set_request_items(Some(request)).send().await;
        let response = response.map_err(store_error(operation))?;
        found.extend(response.responses.into_iter().flat_map(HashMap::into_values).flatten());
        // If keys exceed the table's throughput, DynamoDB returns them as unprocessed instead of throttling the call.
        let left = response.unprocessed_keys.into_iter().flat_map(HashMap::into_values);
        keys = left.flat_map(|left| left.keys).collect();
        // Only consecutive rounds without progress count towards `THROTTLING_PAUSES`.
        if keys.len() < requested {
            pauses = 0;
        }
        if !keys.is_empty() {
            if pauses >= THROTTLING_PAUSES {
                return Err(Error::temporarily_unavailable(
                    operation,
                    Fault::new("some keys remain unprocessed"),
                ));
            }
            pauses = pauses.saturating_add(1);
            tokio::time::sleep(throttling_pause()).await;
        }
        keys.extend(rest);
    }
    Ok(found)
}

impl Ledger {
    /// Creates a client of the ledger table `ledger` and the decisions table `decisions`.
    pub fn new(db: Client, ledger: impl Into<Arc<str>>, decisions: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: ledger.into(),
            decisions: Some(decisions.into()),
            sets: KnownDefaultServices::default(),
        }
    }

    /// Creates a client for a function that does not use decisions. Methods that add or read a decision fail.
    pub fn without_decisions_table(db: Client, ledger: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: ledger.into(),
            decisions: None,
            sets: KnownDefaultServices::default(),
        }
    }

    pub(crate) fn decisions_table(&self) -> Result<&str> {
        let words = "the ledger was created without the decisions table";
        self.decisions
            .as_deref()
            .ok_or_else(|| Error::internal("finding the decisions table", Fault::new(words)))
    }

    pub(crate) fn item_row<'a>(&'a self, item: &'a Item) -> Row<'a> {
        Row::new(&self.table, item)
    }

    /// Reads one item, strongly consistent.
    pub(crate) async fn get_item(&self, key: &Key) -> Result<Option<Item>> {
        get_item(&self.db, &self.table, key, READING).await
    }

    /// Reads several items, strongly consistent. The keys must be distinct. Returns the items in any order.
    pub(crate) async fn get_items(&self, keys: &[Key]) -> Result<Vec<Item>> {
        let keys = keys.iter().map(Key::attributes).collect();
        get_all_items(&self.db, &self.table, keys, true, READING).await
    }

    pub(crate) fn put_item(&self, item: Item) -> PutBuilder {
        PutBuilder::default().table_name(&*self.table).set_item(Some(item))
    }

    pub(crate) fn put_new_item(&self, item: Item) -> PutBuilder {
        self.put_item(item).condition_expression("attribute_not_exists(pk)")
    }

    pub(crate) fn update_item(&self, key: &Key) -> UpdateBuilder {
        UpdateBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(key.attributes()))
    }
}
