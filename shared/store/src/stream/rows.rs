//! Dispatches changes by the kind of row, which the row's key determines.

use crate::{
    catalog::table::{CatalogTable, partition_key},
    codec::{
        item::Item,
        key::{self, catalog::SERVICES},
        ledger::Ledger,
    },
    stream::{change::Change, fact::ChangeEvent, payments::decision_change_events},
};
use purser_domain::{Result, ServiceId};

impl Change {
    /// Returns the service whose catalog row changed.
    pub fn changed_service(&self) -> Option<ServiceId> {
        let image = self.new.as_ref().or(self.old.as_ref())?;
        ServiceId::parse(partition_key(image).strip_prefix(SERVICES)?)
    }
}

impl Ledger {
    /// Returns the change events of a changed row in the ledger or decisions table. Fails if the row can't be read.
    pub fn change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        if change.is_unchanged() {
            return Ok(Vec::new());
        }
        if self.decisions_table().is_ok_and(|decisions| decisions == change.table) {
            return decision_change_events(change);
        }
        let Some(image) = change.new.as_ref().or(change.old.as_ref()) else {
            return Ok(Vec::new());
        };
        match partition_key_prefix(image) {
            "S" => self.settlement_change_events(change),
            "AP" => self.approval_change_events(change),
            "A" => self.agent_change_events(change),
            "P" => self.policy_change_events(change),
            "PO" => self.withdrawal_address_change_events(change),
            "FREEZES" => self.freeze_change_events(change),
            "LEVEL" => self.wallet_level_change_events(change),
            // Windows, keys, claims, requests, sessions and counters have no events of their own.
            _ => Ok(Vec::new()),
        }
    }

    /// Returns whether `name` is the name of the ledger table or the decisions table.
    pub fn has_table(&self, name: &str) -> bool {
        *self.table == *name || self.decisions_table().is_ok_and(|decisions| decisions == name)
    }
}

impl CatalogTable {
    /// Returns the change events of a changed row in the catalog table. Fails if the row can't be read.
    pub fn change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        let image = change.new.as_ref().or(change.old.as_ref());
        if change.is_unchanged() || !image.is_some_and(|image| partition_key(image).starts_with(SERVICES)) {
            return Ok(Vec::new());
        }
        self.service_change_events(change)
    }

    /// Returns whether `name` is the name of the catalog table.
    pub fn has_table(&self, name: &str) -> bool {
        *self.table == *name
    }
}

/// Returns the part of the partition key before the first `#`.
fn partition_key_prefix(image: &Item) -> &str {
    key::partition_key_text(image).split('#').next().unwrap_or_default()
}
