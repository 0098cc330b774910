//! The catalog table: services, claimed slugs, probe records, the catalog version, and copies of the services
//! (`object.rs`) and probe results (`sightings.rs`).
//!
//! Invariants:
//! - A slug belongs to one service.
//! - A change of a service is conditional on the service's version, and increments the catalog version in the same
//!   transaction. Services that are read after a catalog version are therefore at least as new as that version.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::fault::{Fault, store_error},
    codec::fields::fields,
    codec::item::{Draft, Item, Row},
    codec::key::catalog as key,
    codec::map::{read_probe, write_probe},
    transact::{Transaction, TransactionOutcome, update_with_conflict_retry},
};
use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeValue,
        builders::{DeleteBuilder, PutBuilder, UpdateBuilder},
    },
};
use purser_domain::{Catalog, Error, ListingHistory, ProbeRecord, Result, Service, ServiceId, ServiceSlug, Timestamp};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A client of the catalog table.
#[derive(Clone, Debug)]
pub struct CatalogTable {
    pub(crate) db: Client,
    pub(crate) table: Arc<str>,
}

/// The result of a conditional write of a service to the catalog table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreServiceResult {
    /// The service was written, and now has the written version.
    Stored,
    /// Another service has the slug. Nothing was written.
    SlugTaken {
        /// The service that has the slug.
        by: ServiceId,
    },
    /// The service was changed meanwhile. Nothing was written.
    Changed {
        /// The stored version of the service; zero if the service is not stored.
        version: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Service,
    Slug,
    OldSlug,
    Version,
    Probes,
    Audit,
}

pub(crate) const READING: &str = "reading the catalog";

impl CatalogTable {
    /// Creates a client of the catalog table with the name `table`.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }

    /// Reads the catalog version, which every change of a service increments.
    pub async fn read_version(&self) -> Result<u64> {
        match self.get_item(key::VERSION.to_owned()).await? {
            None => Ok(0),
            Some(item) => Row::new(&self.table, &item).get("n"),
        }
    }

    /// Reads all services, strongly consistent.
    pub async fn read_catalog(&self) -> Result<Catalog> {
        self.read_services().await.map(Catalog::new)
    }

    /// Reads all services, unsorted, strongly consistent.
    pub async fn read_services(&self) -> Result<Vec<Service>> {
        let items = self.scan_prefixes(&[key::SERVICES]).await?;
        items.iter().map(|item| self.read_service(item)).collect()
    }

    /// Reads all services with their probe records, strongly consistent, sorted by slug.
    pub async fn read_probed_services(&self) -> Result<Vec<(Service, ProbeRecord)>> {
        let items = self.scan_prefixes(&[key::SERVICES, key::PROBES]).await?;
        let mut services = Vec::new();
        let mut records = HashMap::new();
        for item in &items {
            match partition_key(item).strip_prefix(key::PROBES) {
                Some(id) => {
                    records.insert(id, self.read_probe_record_item(item)?);
                }
                None => services.push(self.read_service(item)?),
            }
        }
        services.sort_by(|a, b| a.slug.cmp(&b.slug));
        let with_record = |service: Service| {
            let record = records.remove(service.id.to_string().as_str()).unwrap_or_default();
            (service, record)
        };
        Ok(services.into_iter().map(with_record).collect())
    }

    /// Reads one service, strongly consistent.
    pub async fn read_service_by_id(&self, id: ServiceId) -> Result<Option<Service>> {
        let item = self.get_item(key::service_key(id)).await?;
        item.map(|item| self.read_service(&item)).transpose()
    }

    /// Reads the probe record of a service, strongly consistent; empty if the service was never probed.
    pub async fn read_probe_record(&self, id: ServiceId) -> Result<ProbeRecord> {
        let item = self.get_item(key::probes_key(id)).await?;
        let record = item.map(|item| self.read_probe_record_item(&item)).transpose()?;
        Ok(record.unwrap_or_default())
    }

    /// Stores a service and claims the slug. The service's version must be the stored version plus one.
    pub async fn put_service(&self, service: &Service, audit: &AuditEntry) -> Result<StoreServiceResult> {
        let mut backoff = Backoff::new();
        loop {
            let stored = self.read_service_by_id(service.id).await?;
            let present = stored.as_ref().map_or(0, |stored| stored.version);
            if present.saturating_add(1) != service.version {
                // An earlier attempt may have stored the service, if the response to that attempt was lost.
                return Ok(if stored.as_ref() == Some(service) {
                    StoreServiceResult::Stored
                } else {
                    StoreServiceResult::Changed { version: present }
                });
            }
            let mut transaction = self.service_transaction(service, stored.map(|stored| stored.slug).as_ref())?;
            transaction.add_audit_rows(Role::Audit, audit)?;
            let TransactionOutcome::Refused(rejection) = transaction.send_until_outcome(&self.db, &mut backoff).await?
            else {
                return Ok(StoreServiceResult::Stored);
            };
            if !rejection.has_failed(Role::Service)
                && let Some(item) = rejection.existing_item(Role::Slug)
            {
                return Ok(StoreServiceResult::SlugTaken {
                    by: Row::new(&self.table, item).get("id")?,
                });
            }
            if !rejection.has_failed(Role::Service) && !rejection.has_failed(Role::OldSlug) {
                return Err(unknown_condition_error());
            }
            backoff.wait_for_retry().await?;
        }
    }

    /// Stores the results of a probe run. Returns `false` if another run has changed the probe record meanwhile.
    pub async fn put_probe_record_if_unchanged(&self, id: ServiceId, record: &ProbeRecord) -> Result<bool> {
        let probes = record.operations.iter();
        let probes = probes
            .map(|(operation, probe)| write_probe(*operation, probe))
            .collect();
        // The update does not write `requested`, because a new probe may be requested during the run.
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(Draft::with_partition_key(key::probes_key(id)).into_item()))
            .update_expression("SET ver = :new, probes = :probes")
            .condition_expression("ver = :read OR (attribute_not_exists(ver) AND :read = :none)")
            .expression_attribute_values(":new", record.version.write())
            .expression_attribute_values(":read", record.version.saturating_sub(1).write())
            .expression_attribute_values(":none", 0_u64.write())
            .expression_attribute_values(":probes", AttributeValue::L(probes));
        if update_with_conflict_retry(&update, "recording probe results").await? {
            return Ok(true);
        }
        // An earlier attempt may have stored the probe record, if the response to that attempt was lost.
        let existing = self.read_probe_record(id).await?;
        Ok((existing.version, &existing.operations) == (record.version, &record.operations))
    }

    /// Requests a probe of a service, and writes the audit row.
    pub async fn request_probe(&self, id: ServiceId, at: Timestamp, audit: &AuditEntry) -> Result<()> {
        let update = UpdateBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(Draft::with_partition_key(key::probes_key(id)).into_item()))
            .update_expression("SET requested = :at")
            .expression_attribute_values(":at", at.write());
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Probes, update)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        // If the audit row exists already, an earlier attempt has committed, and the response to that attempt was lost.
        transaction
            .send_until_outcome(&self.db, &mut Backoff::new())
            .await
            .map(|_| ())
    }

    fn service_transaction(&self, service: &Service, old_slug: Option<&ServiceSlug>) -> Result<Transaction<Role>> {
        let mut transaction = Transaction::new();
        transaction.add_put(Role::Service, self.put_next_version(service))?;
        let claim = Draft::with_partition_key(key::slug_key(&service.slug))
            .with("id", &service.id)
            .into_item();
        let claim = PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(claim))
            .condition_expression("attribute_not_exists(pk) OR id = :id")
            .expression_attribute_values(":id", service.id.write());
        transaction.add_put(Role::Slug, claim)?;
        if let Some(old) = old_slug.filter(|old| **old != service.slug) {
            let give_up = DeleteBuilder::default()
                .table_name(&*self.table)
                .set_key(Some(Draft::with_partition_key(key::slug_key(old)).into_item()))
                .condition_expression("id = :id")
                .expression_attribute_values(":id", service.id.write());
            transaction.add_delete(Role::OldSlug, give_up)?;
        }
        transaction.add_update(Role::Version, self.version_increment_update())?;
        Ok(transaction)
    }

    /// Creates a put of a service, on the condition that the previous version is stored.
    fn put_next_version(&self, service: &Service) -> PutBuilder {
        let put = PutBuilder::default()
            .table_name(&*self.table)
            .set_item(Some(write_service(service)));
        match service.version.saturating_sub(1) {
            0 => put.condition_expression("attribute_not_exists(pk)"),
            old => put
                .condition_expression("ver = :old")
                .expression_attribute_values(":old", old.write()),
        }
    }

    fn version_increment_update(&self) -> UpdateBuilder {
        UpdateBuilder::default()
            .table_name(&*self.table)
            .set_key(Some(Draft::with_partition_key(key::VERSION.to_owned()).into_item()))
            .update_expression("ADD n :one")
            .expression_attribute_values(":one", 1_u32.write())
    }

    pub(crate) async fn scan_prefixes(&self, prefixes: &[&str]) -> Result<Vec<Item>> {
        let scan = self.db.scan().table_name(&*self.table).consistent_read(true);
        // The SDK's paginator over items would pass each item through the async runtime, so this loop reads pages.
        let mut pages = scan.into_paginator().send();
        let mut items = Vec::new();
        while let Some(page) = pages.next().await {
            let found = page.map_err(store_error(READING))?.items.into_iter().flatten();
            items.extend(found.filter(|item| prefixes.iter().any(|prefix| partition_key(item).starts_with(prefix))));
        }
        Ok(items)
    }

    pub(crate) async fn get_item(&self, pk: String) -> Result<Option<Item>> {
        let key = Draft::with_partition_key(pk).into_item();
        let get = self
            .db
            .get_item()
            .table_name(&*self.table)
            .set_key(Some(key))
            .consistent_read(true);
        Ok(get.send().await.map_err(store_error(READING))?.item)
    }

    pub(crate) fn read_service(&self, item: &Item) -> Result<Service> {
        Row::new(&self.table, item).read()
    }

    pub(crate) fn read_probe_record_item(&self, item: &Item) -> Result<ProbeRecord> {
        let row = Row::new(&self.table, item);
        let operations = match item.get("probes") {
            // A probe was requested, but the service was never probed.
            None => Some(BTreeMap::default()),
            Some(AttributeValue::L(probes)) => probes.iter().map(read_probe).collect(),
            Some(_) => None,
        };
        Ok(ProbeRecord {
            version: row.get_optional("ver")?.unwrap_or(0),
            requested_at: row.get_optional("requested")?,
            operations: operations.ok_or_else(|| row.corrupt_error("probes"))?,
        })
    }
}

fn unknown_condition_error() -> Error {
    Error::internal("writing the catalog", Fault::new("an unknown condition failed"))
}

fields! {
    Service {
        id: pk(key::parse_service),
        version: "ver",
        slug: "slug",
        name: "name",
        description: "description",
        website: "website",
        logo_url: "logo_url" optional,
        category: "category",
        source: "source",
        trust_status: "trust_status",
        curated: "curated",
        operations: "operations",
        history: part,
    }

    ListingHistory { was_open: "was_open" or_default, removed_at: "removed_at" optional }
}

pub(crate) fn write_service(service: &Service) -> Item {
    Draft::with_partition_key(key::service_key(service.id))
        .with_fields(service)
        .into_item()
}

pub(crate) fn partition_key(item: &Item) -> &str {
    item.get("pk")
        .and_then(|value| value.as_s().ok())
        .map_or("", String::as_str)
}
