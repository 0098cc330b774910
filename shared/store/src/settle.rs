//! The confirmation: what the chain has shown is written down once, and the transaction that showed it is spent.
//!
//! Always true: a settlement is confirmed exactly when its transaction's row names it, so one transaction confirms one
//! settlement. The window is not touched: the entry counts until its time is over, paid or not.

use crate::{
    attribute::{Attribute as _, text},
    fault::Fault,
    item::Draft,
    key::Key,
    ledger::Ledger,
    patience::Patience,
    settlement::{AUTHORIZED, CONFIRMED},
    transact::Transaction,
};
use purser_domain::{Error, Result, Settlement, SettlementId, Timestamp, Transfer};

/// What became of a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// The settlement is confirmed with this transfer.
    Done(Settlement),
    /// It was confirmed before; as it is stored.
    Already(Settlement),
    /// Its spend was given back before; as it is stored. Nothing was written.
    Expired(Settlement),
    /// The transaction confirmed another settlement. Nothing was written.
    TransactionUsed {
        /// That one.
        by: SettlementId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Settlement,
    Transaction,
}

impl Ledger {
    /// Confirms a settlement with the transfer that was seen on chain: 5 write units.
    ///
    /// Of several conditions that failed, the first of these answers: the transaction confirmed another settlement, the
    /// settlement's own state.
    pub async fn confirm(&self, settlement: &Settlement, transfer: &Transfer, now: Timestamp) -> Result<Confirmed> {
        let (agent, id, hash) = (settlement.terms.agent, settlement.id(), transfer.tx_hash());
        let update = self
            .update(&Key::settlement(agent, id))
            .update_expression("SET rs = :confirmed, txh = :hash, settled = :now REMOVE hp, hs")
            .condition_expression("rs = :authorized")
            .expression_attribute_values(":confirmed", text(CONFIRMED))
            .expression_attribute_values(":authorized", text(AUTHORIZED))
            .expression_attribute_values(":hash", hash.write())
            .expression_attribute_values(":now", now.write());
        let claim = Draft::of(&Key::used_transaction(settlement.terms.network, hash))
            .with("sid", &id)
            .with("agent", &agent);
        let mut transaction = Transaction::new();
        transaction.update(Role::Settlement, update)?;
        transaction.put(Role::Transaction, self.put_new(claim.into_item()))?;

        let Err(refusal) = transaction.settle(&self.db, &mut Patience::new()).await? else {
            return Ok(Confirmed::Done(settlement.clone().confirmed(transfer, now)));
        };
        if let Some(item) = refusal.met(Role::Transaction) {
            let by = self.row(item).get("sid")?;
            if by != id {
                return Ok(Confirmed::TransactionUsed { by });
            }
        }
        let Some(item) = refusal.met(Role::Settlement) else {
            return Err(Error::internal(
                "confirming a settlement",
                Fault::new("there is no such settlement"),
            ));
        };
        let stored = self.read_settlement(agent, item)?;
        Ok(match stored.state {
            purser_domain::SettlementState::Expired => Confirmed::Expired(stored),
            purser_domain::SettlementState::Authorized | purser_domain::SettlementState::Confirmed { .. } => {
                Confirmed::Already(stored)
            }
        })
    }
}
