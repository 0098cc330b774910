//! Dispatches changes by the kind of row, which the row's key determines.

use crate::{
    catalog::table::{CatalogTable, partition},
    codec::{
        item::Item,
        key::{self, catalog::SERVICES},
        ledger::Ledger,
    },
    stream::{change::Change, fact::Fact, payments::facts_of_decision},
};
use purser_domain::{Result, ServiceId};

impl Change {
    /// Returns the service whose catalog row changed.
    pub fn service(&self) -> Option<ServiceId> {
        let image = self.new.as_ref().or(self.old.as_ref())?;
        ServiceId::parse(partition(image).strip_prefix(SERVICES)?)
    }
}

impl Ledger {
    /// Returns the change events of a change of the ledger or decisions table. Fails if the row can't be read.
    pub fn facts_of(&self, change: &Change) -> Result<Vec<Fact>> {
        if change.is_none() {
            return Ok(Vec::new());
        }
        if self.decisions_table().is_ok_and(|decisions| decisions == change.table) {
            return facts_of_decision(change);
        }
        let Some(image) = change.new.as_ref().or(change.old.as_ref()) else {
            return Ok(Vec::new());
        };
        match prefix(image) {
            "S" => self.facts_of_settlement(change),
            "AP" => self.facts_of_approval(change),
            "A" => self.facts_of_agent(change),
            "P" => self.facts_of_policy(change),
            "PO" => self.facts_of_payout_address(change),
            "FREEZES" => self.facts_of_freeze(change),
            "LEVEL" => self.facts_of_wallet_level(change),
            // Windows, keys, claims, requests, sessions and counters. Their events are derived from other rows.
            _ => Ok(Vec::new()),
        }
    }

    /// Whether this is the name of the ledger or decisions table.
    pub fn has_table(&self, name: &str) -> bool {
        *self.table == *name || self.decisions_table().is_ok_and(|decisions| decisions == name)
    }
}

impl CatalogTable {
    /// Returns the change events of a change of the catalog table. Fails if the row can't be read.
    pub fn facts_of(&self, change: &Change) -> Result<Vec<Fact>> {
        let image = change.new.as_ref().or(change.old.as_ref());
        if change.is_none() || !image.is_some_and(|image| partition(image).starts_with(SERVICES)) {
            return Ok(Vec::new());
        }
        self.facts_of_service(change)
    }

    /// Whether this is the name of the catalog table.
    pub fn has_table(&self, name: &str) -> bool {
        *self.table == *name
    }
}

/// Returns the part of the partition key before the first `#`.
fn prefix(image: &Item) -> &str {
    key::partition_key(image).split('#').next().unwrap_or_default()
}
