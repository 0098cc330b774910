//! The confirmation: stores the transfer that was found on chain, and claims its transaction hash.
//!
//! Always true: a settlement is confirmed exactly when its transaction's claim names it, so one transaction confirms
//! one settlement. Confirming a held settlement does not change its window: the entry counts until it rolls out. A
//! spend that had been given back is counted again from now on, even above the caps: the money is spent.
//!
//! A confirmed settlement stays in the index, under its block, until its watch ends (`holds.rs`).

use crate::{
    codec::attribute::{Attribute as _, text},
    codec::backoff::Backoff,
    codec::fault::Fault,
    codec::item::Draft,
    codec::key::{self, Key, hold::IndexKey},
    codec::ledger::Ledger,
    codec::transact::{Known, Transaction},
    payments::settlement::{AUTHORIZED, CONFIRMED, EXPIRED},
    payments::window::{add, write_entry},
};
use aws_sdk_dynamodb::types::builders::{PutBuilder, UpdateBuilder};
use purser_domain::{
    Agent, AgentId, Duration, Error, Network, Result, Settlement, SettlementId, SettlementState, Terms, Timestamp,
    Transfer, TxHash, WindowScope,
};

/// The result of a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// The settlement is confirmed with this transfer.
    Done(Settlement),
    /// It was confirmed before; the stored state.
    Already(Settlement),
    /// The transaction confirmed another settlement. Nothing was written.
    TransactionUsed {
        /// The other settlement.
        by: SettlementId,
    },
}

/// The result of another transition of a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is done; the stored state.
    Done(Settlement),
    /// The settlement was already in another state, perhaps by an earlier attempt of this transition; the stored state.
    /// Nothing was written.
    Superseded(Settlement),
}

/// The settlement in an agent's request, and the claim on the transaction that may prove it; both strongly consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    /// The settlement, if it belongs to the agent.
    pub settlement: Option<Settlement>,
    /// The settlement that the transaction has confirmed; it may be another agent's.
    pub claimed_by: Option<SettlementId>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Settlement,
    Transaction,
    /// A window in which the settlement is counted again.
    Window,
}

const CONFIRMING: &str = "confirming a settlement";

impl Ledger {
    /// An agent, one of its settlements, and the settlement that a transaction has confirmed, each if it exists: one
    /// round trip, one read unit each.
    ///
    /// The reads are not a snapshot. A concurrent confirmation or claim is detected by the conditions of
    /// [`Ledger::confirm`].
    pub async fn presented(
        &self,
        agent: AgentId,
        settlement: Option<SettlementId>,
        transaction: Option<(Network, TxHash)>,
    ) -> Result<(Option<Agent>, Presented)> {
        let settlement = settlement.map(|id| Key::settlement(agent, id));
        let claim = transaction.map(|(network, hash)| Key::used_transaction(network, hash));
        let agent_key = Key::agent(agent);
        let keys: Vec<Key> = [Some(agent_key.clone()), settlement.clone(), claim.clone()]
            .into_iter()
            .flatten()
            .collect();
        let items = self.get_all(&keys).await?;
        let item_of = |key: &Key| items.iter().find(|item| key.is_of(item));
        let record = item_of(&agent_key)
            .map(|item| self.read_agent(agent, item))
            .transpose()?;
        let presented = Presented {
            settlement: settlement
                .and_then(|key| item_of(&key))
                .map(|item| self.read_settlement(agent, item))
                .transpose()?,
            claimed_by: claim
                .and_then(|key| item_of(&key))
                .map(|item| self.row(item).get("sid"))
                .transpose()?,
        };
        Ok((record, presented))
    }

    /// Confirms a settlement with the transfer that was found on chain: 6 write units; 4 more for each window where its
    /// spend had been given back.
    ///
    /// If several conditions failed, the first of these determines the result: the transaction confirmed another
    /// settlement, the settlement's own state.
    pub async fn confirm(&self, settlement: &Settlement, transfer: &Transfer, now: Timestamp) -> Result<Confirmed> {
        let (agent, id) = (settlement.terms.agent, settlement.id());
        let mut settlement = settlement.clone();
        let mut backoff = Backoff::new();
        loop {
            let mut transaction = Transaction::new();
            let (update, counted_at) = match settlement.state {
                SettlementState::Authorized | SettlementState::Confirmed { .. } => {
                    (self.confirmation(&settlement, transfer, now), settlement.counted_at)
                }
                SettlementState::Expired => {
                    let at = self.count_anew(&mut transaction, &settlement.terms, now).await?;
                    (self.late_confirmation(&settlement, transfer, now, at), at)
                }
            };
            transaction.update(Role::Settlement, update)?;
            transaction.put(Role::Transaction, self.claim(&settlement, transfer))?;

            let Known::Refused(refusal) = transaction.send_until_known(&self.db, &mut backoff).await? else {
                let confirmed = settlement.confirmed(transfer, now);
                return Ok(Confirmed::Done(Settlement {
                    counted_at,
                    ..confirmed
                }));
            };
            if let Some(item) = refusal.met(Role::Transaction) {
                let by = self.row(item).get("sid")?;
                if by != id {
                    return Ok(Confirmed::TransactionUsed { by });
                }
            }
            match refusal.met(Role::Settlement) {
                Some(item) => {
                    settlement = self.read_settlement(agent, item)?;
                    if settlement.tx_hash().is_some() {
                        return Ok(Confirmed::Already(settlement));
                    }
                }
                // A window was cleared beyond the chosen time: choose a later one.
                None if refusal.names(Role::Window) && !refusal.names(Role::Settlement) => {}
                None => return Err(Error::internal(CONFIRMING, Fault::new("there is no such settlement"))),
            }
            backoff.wait().await?;
        }
    }

    /// The confirmation of a settlement whose spend is held.
    fn confirmation(&self, settlement: &Settlement, transfer: &Transfer, now: Timestamp) -> UpdateBuilder {
        self.confirming(settlement, transfer, now)
            .update_expression("SET rs = :confirmed, txh = :hash, blk = :block, settled = :now, hp = :hp, hs = :hs")
            .condition_expression("rs = :authorized")
            .expression_attribute_values(":authorized", text(AUTHORIZED))
    }

    /// The confirmation of a settlement whose spend was given back; it counts again from `counted_at`.
    fn late_confirmation(
        &self,
        settlement: &Settlement,
        transfer: &Transfer,
        now: Timestamp,
        counted_at: Timestamp,
    ) -> UpdateBuilder {
        self.confirming(settlement, transfer, now)
            .update_expression(
                "SET rs = :confirmed, txh = :hash, blk = :block, settled = :now, hp = :hp, hs = :hs, ct = :counted",
            )
            .condition_expression("rs = :expired")
            .expression_attribute_values(":expired", text(EXPIRED))
            .expression_attribute_values(":counted", counted_at.write())
    }

    fn confirming(&self, settlement: &Settlement, transfer: &Transfer, now: Timestamp) -> UpdateBuilder {
        let terms = &settlement.terms;
        let place = IndexKey::Watched(transfer.block_number()).text();
        self.update(&Key::settlement(terms.agent, terms.id))
            .expression_attribute_values(":confirmed", text(CONFIRMED))
            .expression_attribute_values(":hash", transfer.tx_hash().write())
            .expression_attribute_values(":block", transfer.block_number().write())
            .expression_attribute_values(":now", now.write())
            .expression_attribute_values(":hp", key::hold::partition(terms.id).write())
            .expression_attribute_values(":hs", place.write())
    }

    /// The claim on the transaction hash.
    fn claim(&self, settlement: &Settlement, transfer: &Transfer) -> PutBuilder {
        let terms = &settlement.terms;
        let claim = Draft::of(&Key::used_transaction(terms.network, transfer.tx_hash()))
            .with("sid", &terms.id)
            .with("agent", &terms.agent);
        self.put_new(claim.into_item())
    }

    /// Counts a payment in its windows as if it were authorized now, without checking the caps; returns the time at
    /// which it counts, to which no window has been cleared yet.
    ///
    /// A budget whose rule was removed limits nothing any more and is skipped.
    async fn count_anew(
        &self,
        transaction: &mut Transaction<Role>,
        terms: &Terms,
        now: Timestamp,
    ) -> Result<Timestamp> {
        let mut at = now;
        let mut windows = Vec::new();
        for (scope, length) in self.windows_of(terms).await? {
            let Some(item) = self.get(&Key::window(scope)).await? else {
                continue;
            };
            at = at.max(self.row(&item).get::<Timestamp>("hz")?.after(length));
            windows.push((scope, length));
        }
        for (scope, length) in windows {
            let update = self
                .update(&Key::window(scope))
                .update_expression("SET #total = #total + :amount, ver = ver + :one")
                .condition_expression("hz <= :horizon")
                .expression_attribute_names("#total", "total")
                .expression_attribute_values(":amount", add(0, terms.amount).write())
                .expression_attribute_values(":horizon", at.before(length).write())
                .expression_attribute_values(":one", 1_u32.write());
            transaction.update(Role::Window, update)?;
            let entry = write_entry(scope, at, terms.id, terms.amount);
            transaction.put(Role::Window, self.put_new(entry))?;
        }
        Ok(at)
    }

    /// The windows that a payment counts in, each with its current length.
    async fn windows_of(&self, terms: &Terms) -> Result<Vec<(WindowScope, Duration)>> {
        let (agent, service) = (terms.agent, terms.service);
        let mut windows = vec![(WindowScope::Day { agent, service }, Duration::DAY)];
        if terms.budgets.is_empty() {
            return Ok(windows);
        }
        if let Some(agent) = self.agent(agent).await? {
            let budgets = agent.budgets().filter(|budget| terms.budgets.contains(&budget.rule.id));
            windows.extend(budgets.map(|budget| (budget.scope(agent.id), budget.length)));
        }
        Ok(windows)
    }
}
