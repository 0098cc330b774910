//! Releases the amount of a payment that can never be made.
//!
//! Invariant: one transaction expires the settlement, deletes its counted payments and subtracts their amounts from the
//! totals. An amount is therefore released once, even by concurrent releases. The condition includes the time at which
//! the payment is counted, because this time changes if the payment is released, confirmed late and reverted after it
//! was read. If a counted payment was already evicted, the total no longer contains its amount, and that window is not
//! changed. The call that duplicate guards compare is removed together with the payment in the day window, unless the
//! call was authorized again meanwhile.
//!
//! Not in this file: the proof that the payment can never be made (only the domain creates an
//! [`UnusableAuthorization`]).

use crate::{
    codec::attribute::{Attribute as _, encode_text},
    codec::backoff::Backoff,
    codec::fault::Fault,
    codec::item::Item,
    codec::key::Key,
    codec::ledger::Ledger,
    payments::recent,
    payments::settle::TransitionResult,
    payments::settlement::{AUTHORIZED, EXPIRED},
    payments::window::add_to_sum,
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{Amount, CheckName, Error, Result, Settlement, UnusableAuthorization, WindowScope};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Settlement,
    /// The payment in this window.
    Entry(WindowScope),
    /// The totals of this window.
    Totals(WindowScope),
}

const RELEASING: &str = "releasing a hold";

impl Ledger {
    /// Releases the amount of a held settlement. Takes 7 write units for a purchase, plus 4 per budget that counted the
    /// payment. Takes 3 write units for a withdrawal, because no window counts withdrawals. If a duplicate guard
    /// checked the payment, the totals of the day window are also read.
    pub async fn release_hold(
        &self,
        settlement: &Settlement,
        unusable_authorization: &UnusableAuthorization,
    ) -> Result<TransitionResult> {
        let terms = &settlement.terms;
        if unusable_authorization.settlement_id() != terms.id {
            let words = Fault::new("the evidence is of another settlement");
            return Err(Error::internal(RELEASING, words));
        }
        let mut counted_in = terms.window_amounts();
        let mut backoff = Backoff::new();
        loop {
            let transaction = self.release_transaction(settlement, &counted_in).await?;
            let TransactionOutcome::Refused(rejection) = transaction.send_until_known(&self.db, &mut backoff).await?
            else {
                return Ok(TransitionResult::Done(
                    settlement.clone().expire(unusable_authorization),
                ));
            };
            if let Some(item) = rejection.existing_item(Role::Settlement) {
                return Ok(TransitionResult::Superseded(self.read_settlement_item(item)?));
            }
            if let Some((day, _)) = terms.window_amounts().first()
                && let Some(item) = rejection.existing_item(Role::Totals(*day))
                && self.has_sufficient_total(item, terms.amount)?
            {
                // The same call was authorized again between the read of the totals and this write. The next attempt
                // therefore keeps the call in the list of recent payments.
                backoff.wait_for_retry().await?;
                continue;
            }
            let before = counted_in.len();
            counted_in.retain(|(scope, _)| !rejection.has_failed(Role::Entry(*scope)));
            if rejection.has_failed(Role::Settlement) || counted_in.len() == before {
                let words = Fault::new("there is no such settlement, or a total is less than its entries");
                return Err(Error::internal(RELEASING, words));
            }
        }
    }

    fn has_sufficient_total(&self, totals: &Item, amount: Amount) -> Result<bool> {
        Ok(self
            .item_row(totals)
            .get_optional::<Amount>("total")?
            .unwrap_or(Amount::ZERO)
            >= amount)
    }

    async fn release_transaction(
        &self,
        settlement: &Settlement,
        counted_in: &[(WindowScope, Amount)],
    ) -> Result<Transaction<Role>> {
        let terms = &settlement.terms;
        // `ct` is absent in some rows if it equals the time of the authorization.
        let same_entries = if settlement.counted_at == terms.authorized_at {
            "attribute_not_exists(ct) OR ct = :counted"
        } else {
            "ct = :counted"
        };
        let update = self
            .update_item(&Key::settlement(terms.agent, terms.id))
            .update_expression("SET rs = :expired REMOVE hp, hs")
            .condition_expression(format!("rs = :authorized AND ({same_entries})"))
            .expression_attribute_values(":expired", encode_text(EXPIRED))
            .expression_attribute_values(":authorized", encode_text(AUTHORIZED))
            .expression_attribute_values(":counted", settlement.counted_at.write());
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Settlement, update)?;
        for (scope, amount) in counted_in {
            let entry = Key::counted_payment(*scope, settlement.counted_at, terms.id);
            transaction.add_delete_of_existing(Role::Entry(*scope), &self.table, entry.attributes())?;
            let update = self
                .update_item(&Key::window(*scope))
                .expression_attribute_names("#total", "total")
                .expression_attribute_values(":amount", add_to_sum(0, *amount).write())
                .expression_attribute_values(":one", 1_u32.write());
            let (set, condition) = ("SET #total = #total - :amount, ver = ver + :one", "#total >= :amount");
            let call = match scope {
                WindowScope::Day { .. } if terms.was_checked(CheckName::Duplicate) => {
                    let totals = self.get_item(&Key::window(*scope)).await?;
                    totals.and_then(|totals| recent::find_call_attribute_name(&totals, terms.authorized_at))
                }
                WindowScope::Day { .. } | WindowScope::Budget { .. } => None,
            };
            let update = match call {
                Some(call) => recent::remove_call(update, call, terms.authorized_at, set, condition),
                None => update.update_expression(set).condition_expression(condition),
            };
            transaction.add_update(Role::Totals(*scope), update)?;
        }
        Ok(transaction)
    }
}
