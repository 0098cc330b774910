//! The table of webhooks and notifications, and the code that all operations on the table share.

use crate::{
    codec::fault::store_error,
    codec::item::{Item, Row},
    codec::key::Key,
};
use aws_sdk_dynamodb::{
    Client,
    types::builders::{DeleteBuilder, PutBuilder},
};
use purser_domain::Result;
use std::sync::Arc;

/// A client of the table of webhooks and notifications.
#[derive(Clone, Debug)]
pub struct WebhooksTable {
    pub(crate) db: Client,
    pub(crate) table: Arc<str>,
}

impl WebhooksTable {
    /// Creates a client for this table.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }

    pub(crate) fn item_row<'a>(&'a self, item: &'a Item) -> Row<'a> {
        Row::new(&self.table, item)
    }

    /// Reads one item, strongly consistent.
    pub(crate) async fn get_item(&self, key: &Key, operation: &'static str) -> Result<Option<Item>> {
        let get = self
            .db
            .get_item()
            .table_name(&*self.table)
            .set_key(Some(key.attributes()))
            .consistent_read(true);
        Ok(get.send().await.map_err(store_error(operation))?.item)
    }

    pub(crate) fn item_deletion(&self, key: &Key) -> DeleteBuilder {
        DeleteBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(key.attributes()))
    }

    pub(crate) fn put_item(&self, item: Item) -> PutBuilder {
        PutBuilder::default().table_name(&*self.table).set_item(Some(item))
    }
}
