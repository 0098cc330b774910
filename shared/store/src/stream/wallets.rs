//! Change events of low wallets.

use crate::{
    codec::{attribute::Item, ledger::Ledger},
    stream::{change::Change, fact::Fact},
};
use purser_domain::{EventData, EventId, EventKind, Result};

impl Ledger {
    /// Returns the change event if a wallet's balance has become low. A balance that is no longer low is not an event.
    pub(crate) fn facts_of_wallet_level(&self, change: &Change) -> Result<Vec<Fact>> {
        let read = |image: &Item| self.read_wallet_level(image);
        let Some((agent, level)) = change.new.as_ref().map(read).transpose()? else {
            return Ok(Vec::new());
        };
        let before = change.old.as_ref().map(read).transpose()?;
        if !level.is_low || before.is_some_and(|(_, before)| before.is_low) {
            return Ok(Vec::new());
        }
        let kind = EventKind::WalletLow;
        let data = EventData::new()
            .amount("balance_units", level.balance)
            .amount("below_units", level.below)
            .text("network", level.network.name());
        let id = EventId::derive(kind, &[&agent, &level.network.name(), &level.block]);
        Ok(vec![Fact::of_agent(agent, kind, id, level.at, data)])
    }
}
