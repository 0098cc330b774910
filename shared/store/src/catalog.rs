//! The catalog table: one item per service, one row per slug that claims it, and one row that counts the versions.
//!
//! Always true: a slug belongs to one service; every change of a service moves the version in the same transaction, so
//! whoever saw the version before the services has at least that version of them.

use crate::{
    attribute::Attribute as _,
    fault::{Fault, failed},
    item::{Draft, Item, Row},
    key::catalog as key,
    patience::Patience,
    transact::Transaction,
};
use aws_sdk_dynamodb::{
    Client,
    types::builders::{DeleteBuilder, PutBuilder, UpdateBuilder},
};
use purser_domain::{Catalog, Error, Result, Service, ServiceId, ServiceSlug};
use std::sync::Arc;

/// The table of services.
#[derive(Clone, Debug)]
pub struct CatalogTable {
    db: Client,
    table: Arc<str>,
}

/// What became of a service's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// It is stored.
    Stored,
    /// Another service has its slug; nothing was written.
    SlugTaken {
        /// That service.
        by: ServiceId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Service,
    Slug,
    OldSlug,
    Version,
}

const READING: &str = "reading the catalog";

impl CatalogTable {
    /// The services in this table.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }

    /// The number of changes so far; equal numbers mean equal catalogs.
    pub async fn version(&self) -> Result<u64> {
        match self.get(key::VERSION.to_owned()).await? {
            None => Ok(0),
            Some(item) => Row::new(&self.table, &item).get("n"),
        }
    }

    /// Every service, as of now.
    pub async fn load(&self) -> Result<Catalog> {
        let scan = self.db.scan().table_name(&*self.table).consistent_read(true);
        let items: Result<Vec<Item>, _> = scan.into_paginator().items().send().collect().await;
        let items = items.map_err(failed(READING))?;
        let services = items.iter().filter(|item| partition(item).starts_with(key::SERVICES));
        services
            .map(|item| self.read_service(item))
            .collect::<Result<_>>()
            .map(Catalog::new)
    }

    /// Stores a service, new or changed, and claims its slug.
    pub async fn put(&self, service: &Service) -> Result<Listed> {
        let mut patience = Patience::new();
        loop {
            let stored = self.get(key::service(service.id)).await?;
            let old_slug = stored
                .as_ref()
                .map(|item| Row::new(&self.table, item).get("slug"))
                .transpose()?;
            let transaction = self.entry(service, old_slug.as_ref())?;
            let Err(refusal) = transaction.settle(&self.db, &mut patience).await? else {
                return Ok(Listed::Stored);
            };
            if let Some(item) = refusal.met(Role::Slug) {
                return Ok(Listed::SlugTaken {
                    by: Row::new(&self.table, item).get("id")?,
                });
            }
            if !refusal.names(Role::Service) && !refusal.names(Role::OldSlug) {
                return Err(Error::internal(
                    "writing the catalog",
                    Fault::new("an unknown condition failed"),
                ));
            }
            // Somebody gave the service another slug in between.
            patience.pause().await?;
        }
    }

    fn entry(&self, service: &Service, old_slug: Option<&ServiceSlug>) -> Result<Transaction<Role>> {
        let mut transaction = Transaction::new();
        let put = PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(write_service(service)));
        let put = match old_slug {
            None => put.condition_expression("attribute_not_exists(pk)"),
            Some(old) => put
                .condition_expression("slug = :old")
                .expression_attribute_values(":old", old.write()),
        };
        transaction.put(Role::Service, put)?;
        let claim = Draft::of_partition(key::slug(&service.slug))
            .with("id", &service.id)
            .into_item();
        let claim = PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(claim))
            .condition_expression("attribute_not_exists(pk) OR id = :id")
            .expression_attribute_values(":id", service.id.write());
        transaction.put(Role::Slug, claim)?;
        if let Some(old) = old_slug.filter(|old| **old != service.slug) {
            let give_up = DeleteBuilder::default()
                .table_name(&*self.table)
                .set_key(Some(Draft::of_partition(key::slug(old)).into_item()))
                .condition_expression("id = :id")
                .expression_attribute_values(":id", service.id.write());
            transaction.delete(Role::OldSlug, give_up)?;
        }
        let count = UpdateBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(Draft::of_partition(key::VERSION.to_owned()).into_item()))
            .update_expression("ADD n :one")
            .expression_attribute_values(":one", 1_u32.write());
        transaction.update(Role::Version, count)?;
        Ok(transaction)
    }

    async fn get(&self, pk: String) -> Result<Option<Item>> {
        let key = Draft::of_partition(pk).into_item();
        let get = self
            .db
            .get_item()
            .table_name(&*self.table)
            .set_key(Some(key))
            .consistent_read(true);
        Ok(get.send().await.map_err(failed(READING))?.item)
    }

    fn read_service(&self, item: &Item) -> Result<Service> {
        let row = Row::new(&self.table, item);
        let id = partition(item).strip_prefix(key::SERVICES).and_then(ServiceId::parse);
        Ok(Service {
            id: id.ok_or_else(|| row.corrupt("pk"))?,
            slug: row.get("slug")?,
            name: row.get("name")?,
            description: row.get("description")?,
            website: row.get("website")?,
            logo_url: row.get_optional("logo_url")?,
            category: row.get("category")?,
            source: row.get("source")?,
            trust_status: row.get("trust_status")?,
            operations: row.get("operations")?,
        })
    }
}

fn write_service(service: &Service) -> Item {
    Draft::of_partition(key::service(service.id))
        .with("slug", &service.slug)
        .with("name", &service.name)
        .with("description", &service.description)
        .with("website", &service.website)
        .with_optional("logo_url", service.logo_url.as_ref())
        .with("category", &service.category)
        .with("source", &service.source)
        .with("trust_status", &service.trust_status)
        .with("operations", &service.operations)
        .into_item()
}

fn partition(item: &Item) -> &str {
    item.get("pk")
        .and_then(|value| value.as_s().ok())
        .map_or("", String::as_str)
}
