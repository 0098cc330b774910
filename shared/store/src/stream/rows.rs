//! Which row a change is of, by its key.

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
    /// The service whose row of the catalog it is of.
    pub fn service(&self) -> Option<ServiceId> {
        let image = self.new.as_ref().or(self.old.as_ref())?;
        ServiceId::parse(partition(image).strip_prefix(SERVICES)?)
    }
}

impl Ledger {
    /// What a change of the ledger, or of the decisions, tells. An error means that the row can't be read.
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
            // Windows, keys, claims, marks, sessions and counters: what they tell, another row tells.
            _ => Ok(Vec::new()),
        }
    }

    /// Whether this is one of its tables.
    pub fn has_table(&self, name: &str) -> bool {
        *self.table == *name || self.decisions_table().is_ok_and(|decisions| decisions == name)
    }
}

impl CatalogTable {
    /// What a change of the catalog tells. An error means that the row can't be read.
    pub fn facts_of(&self, change: &Change) -> Result<Vec<Fact>> {
        let image = change.new.as_ref().or(change.old.as_ref());
        if change.is_none() || !image.is_some_and(|image| partition(image).starts_with(SERVICES)) {
            return Ok(Vec::new());
        }
        self.facts_of_service(change)
    }

    /// Whether this is its table.
    pub fn has_table(&self, name: &str) -> bool {
        *self.table == *name
    }
}

/// What is before the first `#` of a partition's name.
fn prefix(image: &Item) -> &str {
    key::partition_key(image).split('#').next().unwrap_or_default()
}
