use crate::codec::{
    attribute::{Attribute as _, Item, encode_text},
    fault::store_error,
    key::Key,
};
use aws_sdk_dynamodb::{
    Client,
    operation::{
        put_item::builders::PutItemFluentBuilder,
        query::{QueryOutput, builders::QueryFluentBuilder},
        update_item::builders::UpdateItemFluentBuilder,
    },
};
use purser_domain::Result;
use uuid::Uuid;

pub(crate) async fn get_item(db: &Client, table: &str, key: &Key, operation: &'static str) -> Result<Option<Item>> {
    let get = db.get_item().table_name(table).set_key(Some(key.attributes()));
    let output = get.consistent_read(true).send().await;
    Ok(output.map_err(store_error(operation))?.item)
}

pub(crate) fn put_request(db: &Client, table: &str, item: Item) -> PutItemFluentBuilder {
    db.put_item().table_name(table).set_item(Some(item))
}

pub(crate) async fn put_item(db: &Client, table: &str, item: Item, operation: &'static str) -> Result<()> {
    let output = put_request(db, table, item).send().await;
    output.map(|_| ()).map_err(store_error(operation))
}

/// Requires `stored_version` of the item, or no stored item if `stored_version` is 0.
pub(crate) fn put_request_if_version(
    db: &Client,
    table: &str,
    item: Item,
    stored_version: u64,
) -> PutItemFluentBuilder {
    let put = put_request(db, table, item);
    match stored_version {
        0 => put.condition_expression("attribute_not_exists(pk)"),
        stored_version => put
            .condition_expression("ver = :previous")
            .expression_attribute_values(":previous", stored_version.write()),
    }
}

/// Creates an `UpdateItem` request without an update expression.
pub(crate) fn update_request(db: &Client, table: &str, key: &Key) -> UpdateItemFluentBuilder {
    db.update_item().table_name(table).set_key(Some(key.attributes()))
}

/// Deletes an item, if there is one.
pub(crate) async fn delete_item(db: &Client, table: &str, key: &Key, operation: &'static str) -> Result<()> {
    let delete = db.delete_item().table_name(table).set_key(Some(key.attributes()));
    delete.send().await.map(|_| ()).map_err(store_error(operation))
}

/// A query of a partition: by default eventually consistent, in the order of the sort keys.
pub(crate) struct Query(QueryFluentBuilder);

impl Query {
    pub(crate) fn new(db: &Client, table: &str, partition: impl AsRef<str>) -> Self {
        let query = db.query().table_name(table).key_condition_expression("pk = :pk");
        Self(query.expression_attribute_values(":pk", encode_text(partition.as_ref())))
    }

    /// Limits the query to an inclusive range of sort keys. DynamoDB rejects the query if `last` is before `first`.
    pub(crate) fn range(self, first: impl AsRef<str>, last: impl AsRef<str>) -> Self {
        let query = self
            .0
            .key_condition_expression("pk = :pk AND sk BETWEEN :first AND :last");
        Self(
            query
                .expression_attribute_values(":first", encode_text(first.as_ref()))
                .expression_attribute_values(":last", encode_text(last.as_ref())),
        )
    }

    pub(crate) fn prefix(self, prefix: impl AsRef<str>) -> Self {
        self.condition("begins_with(sk, :sk)", prefix)
    }

    pub(crate) fn before(self, key: impl AsRef<str>) -> Self {
        self.condition("sk < :sk", key)
    }

    /// Limits the query to sort keys up to and including `key`.
    pub(crate) fn until(self, key: impl AsRef<str>) -> Self {
        self.condition("sk <= :sk", key)
    }

    /// Limits the query to sort keys after `key`.
    pub(crate) fn after(self, key: impl AsRef<str>) -> Self {
        self.condition("sk > :sk", key)
    }

    fn condition(self, condition: &str, sort_key: impl AsRef<str>) -> Self {
        let query = self.0.key_condition_expression(format!("pk = :pk AND {condition}"));
        Self(query.expression_attribute_values(":sk", encode_text(sort_key.as_ref())))
    }

    /// Limits the query to the newest items before `before`. The sort keys must be `UUIDv7`s.
    pub(crate) fn newest_page(self, before: Option<Uuid>, limit: u32) -> Self {
        let query = match before {
            None => self,
            Some(before) => self.before(before.to_string()),
        };
        query.descending().limit(limit)
    }

    pub(crate) fn descending(self) -> Self {
        Self(self.0.scan_index_forward(false))
    }

    pub(crate) fn consistent(self) -> Self {
        self.consistent_if(true)
    }

    pub(crate) fn consistent_if(self, is_consistent: bool) -> Self {
        Self(self.0.consistent_read(is_consistent))
    }

    pub(crate) fn limit(self, limit: u32) -> Self {
        Self(self.0.limit(i32::try_from(limit).unwrap_or(i32::MAX)))
    }

    pub(crate) fn start_after(self, key: Option<Item>) -> Self {
        Self(self.0.set_exclusive_start_key(key))
    }

    /// Returns the SDK's request, for settings without a method here, such as a filter.
    pub(crate) fn into_request(self) -> QueryFluentBuilder {
        self.0
    }

    /// Reads one page: up to the limit, or up to 1 MB.
    pub(crate) async fn send(self, operation: &'static str) -> Result<QueryOutput> {
        self.0.send().await.map_err(store_error(operation))
    }

    pub(crate) async fn collect(self, operation: &'static str) -> Result<Vec<Item>> {
        let items: Result<Vec<Item>, _> = self.0.into_paginator().items().send().collect().await;
        items.map_err(store_error(operation))
    }
}
