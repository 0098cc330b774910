//! Change events of wallets with a low balance.

use crate::{
    codec::{attribute::Item, ledger::Ledger},
    stream::{change::Change, fact::ChangeEvent},
};
use purser_domain::{EventData, EventId, EventKind, Result};

impl Ledger {
    /// Returns the change event if a wallet's balance has become low.
    pub(crate) fn wallet_level_change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        let read = |image: &Item| self.read_wallet_level_item(image);
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
        Ok(vec![ChangeEvent::for_agent(agent, kind, id, level.at, data)])
    }
}
