//! The table of webhooks and notifications.

use crate::{
    codec::item::{Item, Row},
    codec::key::Key,
    codec::table::get_item,
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
    /// Creates a client of the webhooks table with the name `table`.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }

    pub(crate) fn item_row<'a>(&'a self, item: &'a Item) -> Row<'a> {
        Row::new(&self.table, item)
    }

    pub(crate) async fn get_item(&self, key: &Key, operation: &'static str) -> Result<Option<Item>> {
        get_item(&self.db, &self.table, key, operation).await
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
