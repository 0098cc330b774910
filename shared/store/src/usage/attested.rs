//! The verified payees of each service (`shared/domain/src/catalog/attested.rs`), in the usage table. Only `events`
//! writes them.
//!
//! Invariant: a service's row only replaces the version from which it was computed, so concurrent runs of `events`
//! can't overwrite each other's results.

use crate::{
    codec::{
        attribute::{Attribute as _, Item},
        fault::store_error,
        fields::fields,
        item::{Draft, Row},
        key::{Key, attested},
    },
    transact::was_made,
    usage::table::UsageTable,
};
use purser_domain::{AttestedService, Result, ServiceId, Timestamp};

const READING: &str = "reading attested payees";
const WRITING: &str = "writing attested payees";

impl UsageTable {
    /// Reads the verified payees of a service, strongly consistent; `None` if the service was never open.
    pub async fn find_attested(&self, service: ServiceId) -> Result<Option<AttestedService>> {
        let get = self.db.get_item().table_name(&*self.table).consistent_read(true);
        let get = get.set_key(Some(Key::attested_service(service).attributes()));
        let item = get.send().await.map_err(store_error(READING))?.item;
        item.map(|item| self.read_attested(&item)).transpose()
    }

    /// Reads the verified payees of all services, strongly consistent.
    pub async fn all_attested(&self) -> Result<Vec<AttestedService>> {
        let mut services = Vec::new();
        for shard in 0..attested::SHARDS {
            let query = self
                .db
                .query()
                .table_name(&*self.table)
                .key_condition_expression("pk = :pk")
                .expression_attribute_values(":pk", attested::partition(shard).write())
                .consistent_read(true);
            let mut pages = query.into_paginator().send();
            while let Some(page) = pages.next().await {
                for item in page.map_err(store_error(READING))?.items() {
                    services.push(self.read_attested(item)?);
                }
            }
        }
        Ok(services)
    }

    /// Replaces the previous version of a service's verified payees. Returns `false` if another version is stored.
    pub async fn put_attested(&self, service: &AttestedService) -> Result<bool> {
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(write_attested(service)));
        let put = match service.version.saturating_sub(1) {
            0 => put.condition_expression("attribute_not_exists(pk)"),
            old => put
                .condition_expression("ver = :old")
                .expression_attribute_values(":old", old.write()),
        };
        was_made(put.send().await, WRITING)
    }

    /// Reads the time at which the payees of the whole catalog were first verified; `None` before that.
    pub async fn read_attested_since(&self) -> Result<Option<Timestamp>> {
        let get = self.db.get_item().table_name(&*self.table).consistent_read(true);
        let get = get.set_key(Some(Key::attestation_start().attributes()));
        let item = get.send().await.map_err(store_error(READING))?.item;
        item.map(|item| Row::new(&self.table, &item).get("t")).transpose()
    }

    /// Records that the payees of the whole catalog are verified.
    pub async fn set_attested_since(&self, at: Timestamp) -> Result<()> {
        let row = Draft::new(&Key::attestation_start()).with("t", &at);
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()))
            .condition_expression("attribute_not_exists(pk)");
        was_made(put.send().await, WRITING).map(|_| ())
    }

    pub(crate) fn read_attested(&self, item: &Item) -> Result<AttestedService> {
        Row::new(&self.table, item).read()
    }
}

fields! {
    AttestedService {
        service: sk(ServiceId::parse),
        version: "ver",
        calls: "calls",
        former: "former" or_default,
        left_at: "left" optional,
    }
}

pub(crate) fn write_attested(service: &AttestedService) -> Item {
    Draft::new(&Key::attested_service(service.service))
        .with_fields(service)
        .into_item()
}
