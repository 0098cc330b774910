//! Detects changed rows that may be signs of a compromised function. They come from the stream, so the function that
//! writes the rows can't hide them.

use crate::{
    codec::{attribute::Item, item::read_field, key, ledger::Ledger},
    payments::idempotency::ALLOW,
    stream::{change::Change, row_hash::has_changed_immutable_attribute},
};
use purser_domain::{Agent, AgentKey, Result};

purser_domain::named! {
    /// A change that raises an alarm.
    Sign {
        /// An agent has a new key, or an existing key has a new secret.
        Key = "key",
        /// The wallet in an agent's record was replaced.
        Wallet = "wallet",
        /// The owner in an agent's record was replaced.
        Owner = "owner",
        /// An agent's withdrawal address was set or replaced.
        PayoutAddress = "payout_address",
        /// An operator's freeze was added, changed or removed.
        Freeze = "freeze",
        /// An agent is offered to another owner.
        Handover = "handover",
        /// A decision was changed or removed, or a permanent attribute of a payment or of an approval was changed.
        Record = "record",
    }
}

impl Ledger {
    /// Returns the alarms for a changed row. Fails if the row can't be read.
    pub fn compromise_indicators(&self, change: &Change) -> Result<Vec<Sign>> {
        if change.is_unchanged() {
            return Ok(Vec::new());
        }
        if self.is_permanent_record_rewrite(change) {
            return Ok(vec![Sign::Record]);
        }
        if *change.table != *self.table {
            return Ok(Vec::new());
        }
        let Some(image) = change.new.as_ref().or(change.old.as_ref()) else {
            return Ok(Vec::new());
        };
        let is_written = change.new.is_some();
        Ok(
            match key::partition_key_text(image).split('#').next().unwrap_or_default() {
                "A" => self.agent_compromise_indicators(change)?,
                "PO" => self.withdrawal_compromise_indicators(change)?,
                "FREEZES" => vec![Sign::Freeze],
                "HANDOVER" if is_written => vec![Sign::Handover],
                _ => Vec::new(),
            },
        )
    }

    /// Returns whether a decision was changed or removed, or a payment, an approval or a payment's idempotency record
    /// was removed or had a permanent attribute changed. Compares rows without decoding, to include unreadable rows.
    fn is_permanent_record_rewrite(&self, change: &Change) -> bool {
        let Some(old) = &change.old else { return false };
        if self.decisions_table().is_ok_and(|decisions| decisions == change.table) {
            return key::partition_key_text(old).starts_with("A#");
        }
        let is_permanent = *change.table == *self.table
            && match key::partition_key_text(old).split('#').next() {
                Some("S" | "AP") => true,
                Some("I") => read_field::<String>(old, "kind").is_some_and(|kind| kind == ALLOW),
                _ => false,
            };
        is_permanent
            && change
                .new
                .as_ref()
                .is_none_or(|new| has_changed_immutable_attribute(old, new))
    }

    /// Returns the alarms for a change of an agent's record. A new agent raises no alarm, because it has no money yet.
    fn agent_compromise_indicators(&self, change: &Change) -> Result<Vec<Sign>> {
        let read = |image: &Item| self.read_agent_item(image);
        let (Some(old), Some(new)) = (&change.old, &change.new) else {
            return Ok(Vec::new());
        };
        let (old, new): (Agent, Agent) = (read(old)?, read(new)?);
        let is_known = |key: &AgentKey| {
            old.find_key(key.id)
                .is_some_and(|known| known.credential == key.credential)
        };
        let signs = [
            (Sign::Key, !new.keys.iter().all(is_known)),
            (Sign::Wallet, old.wallet != new.wallet),
            (Sign::Owner, old.owner != new.owner),
        ];
        Ok(signs
            .into_iter()
            .filter_map(|(sign, is_seen)| is_seen.then_some(sign))
            .collect())
    }

    fn withdrawal_compromise_indicators(&self, change: &Change) -> Result<Vec<Sign>> {
        let address = |image: Option<&Item>| -> Result<_> {
            // A row without `ver` is the idempotency record of a withdrawal, and contains no withdrawal address.
            let image = image.filter(|image| image.contains_key("ver"));
            let record = image.map(|image| self.read_withdrawal_item(image)).transpose()?;
            Ok(record.and_then(|record| record.address))
        };
        let (old, new) = (address(change.old.as_ref())?, address(change.new.as_ref())?);
        Ok(if new.is_some() && new != old {
            vec![Sign::PayoutAddress]
        } else {
            Vec::new()
        })
    }
}
