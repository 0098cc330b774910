//! Releases the amount of a payment that can never be made.
//!
//! Invariant: one transaction expires the settlement, deletes the counted payments and subtracts their amounts from the
//! totals, so an amount is released once. If a counted payment was already evicted, the total no longer contains the
//! amount and is not changed. The condition includes the time from which the payment counts, because this time changes
//! if the payment is released, confirmed late and reverted after it was read.
//!
//! A rule that is newer than the payment may have counted the payment in the backfill. The transaction therefore also
//! changes the windows of the agent's present rules, so that the write of a concurrent backfill fails. The version of
//! the agent's record in the day window excludes rules that are added after the agent was read.

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
    payments::window::{AGENT_VERSION_CHECK, add_to_sum},
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use purser_domain::{
    Agent, Amount, CallDigest, CheckName, Error, Result, Settlement, UnusableAuthorization, WindowScope,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Settlement,
    /// The deletion of the counted payment from this window.
    Entry(WindowScope),
    /// The update of this window's totals.
    Totals(WindowScope),
    /// A write to the window of a rule that did not count the payment when it was authorized.
    LaterRule,
}

const RELEASING: &str = "releasing a hold";
const SUBTRACT: &str = "SET #total = #total - :amount, ver = ver + :one";
const TOTAL_CHECK: &str = "#total >= :amount";

impl Ledger {
    /// Releases the amount of a held settlement. Takes 7 write units for a purchase, plus 4 per budget that counted the
    /// payment, or 3 write units for a withdrawal.
    pub async fn release_hold(
        &self,
        settlement: &Settlement,
        unusable_authorization: &UnusableAuthorization,
    ) -> Result<TransitionResult> {
        let terms = &settlement.terms;
        if unusable_authorization.settlement_id() != terms.id {
            let words = Fault::new("the evidence belongs to another settlement");
            return Err(Error::internal(RELEASING, words));
        }
        let mut counted_in = terms.window_amounts();
        let mut backoff = Backoff::new();
        loop {
            let transaction = self.release_transaction(settlement, &counted_in).await?;
            let TransactionOutcome::Refused(rejection) = transaction.send_until_outcome(&self.db, &mut backoff).await?
            else {
                return Ok(TransitionResult::Done(
                    settlement.clone().expire(unusable_authorization),
                ));
            };
            if let Some(item) = rejection.existing_item(Role::Settlement) {
                return Ok(TransitionResult::Superseded(self.read_settlement_item(item)?));
            }
            let day = terms.window_amounts().first().map(|(day, _)| *day);
            let day_totals = day.and_then(|day| rejection.existing_item(Role::Totals(day)));
            let is_day_counted = counted_in.iter().any(|(scope, _)| Some(*scope) == day);
            let is_outdated = match day_totals {
                Some(totals) => !is_day_counted || self.can_subtract_from_total(totals, terms.amount)?,
                None => rejection.has_failed(Role::LaterRule),
            };
            if is_outdated {
                // The call was authorized again, or the agent's rules or a rule's window changed after they were read.
                backoff.wait_for_retry().await?;
                continue;
            }
            let before = counted_in.len();
            counted_in.retain(|(scope, _)| !rejection.has_failed(Role::Entry(*scope)));
            if rejection.has_failed(Role::Settlement) || counted_in.len() == before {
                let words =
                    Fault::new("the settlement does not exist, or a total is less than the payments in the window");
                return Err(Error::internal(RELEASING, words));
            }
        }
    }

    fn can_subtract_from_total(&self, totals: &Item, amount: Amount) -> Result<bool> {
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
        // The attribute `ct` is absent in some rows whose payment counts from the authorization.
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
        // No window counts withdrawals, so the agent's rules are not needed.
        let agent = match terms.purchase() {
            Some(_) => self.read_agent_by_id(terms.agent).await?,
            None => None,
        };
        for (scope, amount) in terms.window_amounts() {
            let is_counted = counted_in.iter().any(|(counted, _)| *counted == scope);
            let is_day = scope.rule_id().is_none();
            if !is_counted && !is_day {
                continue;
            }
            let (mut update, mut condition) = if is_counted {
                let entry = Key::counted_payment(scope, settlement.counted_at, terms.id);
                transaction.add_delete_of_existing(Role::Entry(scope), &self.table, entry.attributes())?;
                (self.window_subtraction_update(scope, amount), TOTAL_CHECK.to_owned())
            } else {
                (self.update_item(&Key::window(scope)), "attribute_exists(pk)".to_owned())
            };
            let set = if is_counted { SUBTRACT } else { "SET ver = ver + :one" };
            update = update.expression_attribute_values(":one", 1_u32.write());
            let mut call = None;
            if is_day {
                let version = agent.as_ref().map_or(0, |agent| agent.version);
                update = update.expression_attribute_values(":agent", version.write());
                condition = format!("{condition} AND {AGENT_VERSION_CHECK}");
                if terms.was_checked(CheckName::Duplicate) || agent.as_ref().is_some_and(Agent::has_duplicate_guard) {
                    let totals = self.get_item(&Key::window(scope)).await?.unwrap_or_default();
                    let row = self.item_row(&totals);
                    let stored = recent::read_recent_payments(row, &totals)?;
                    let is_own = |call: &CallDigest| stored.calls.contains(&(*call, terms.authorized_at));
                    call = terms.purchase().map(|purchase| purchase.scope.call).filter(is_own);
                    if call.is_none()
                        && stored.coverage != agent.as_ref().and_then(Agent::recent_payment_rules_fingerprint)
                    {
                        // A concurrent backfill may add the call after this read, so the window's version is compared.
                        (update, condition) = add_version_condition(update, &condition, row.get_optional("ver")?);
                    }
                }
            }
            let update = match call {
                Some(call) => recent::add_call_removal_to_update(update, call, terms.authorized_at, set, &condition),
                None => update.update_expression(set).condition_expression(condition),
            };
            transaction.add_update(Role::Totals(scope), update)?;
        }
        if let Some(agent) = &agent {
            self.add_releases_for_rules_added_later(&mut transaction, settlement, agent, counted_in)
                .await?;
        }
        Ok(transaction)
    }

    /// Adds writes to the windows of the agent's present rules that are not in `counted_in`, because a backfill may
    /// have counted the payment. The next page of an incomplete backfill then fails.
    async fn add_releases_for_rules_added_later(
        &self,
        transaction: &mut Transaction<Role>,
        settlement: &Settlement,
        agent: &Agent,
        counted_in: &[(WindowScope, Amount)],
    ) -> Result<()> {
        for rule in agent.counting_rules() {
            let Some(scope) = rule.window_scope(agent.id, Some(settlement.terms.pay_to)) else {
                continue;
            };
            if counted_in.iter().any(|(counted, _)| *counted == scope) {
                continue;
            }
            let Some(totals) = self.get_item(&Key::window(scope)).await? else {
                if rule.is_per_payee() {
                    transaction.add_update(Role::LaterRule, self.empty_payee_window_update(scope))?;
                }
                continue;
            };
            let entry = Key::counted_payment(scope, settlement.counted_at, settlement.terms.id);
            let update = if self.get_item(&entry).await?.is_some() {
                transaction.add_delete_of_existing(Role::LaterRule, &self.table, entry.attributes())?;
                let update = self.window_subtraction_update(scope, rule.counted.payment_units(settlement.terms.amount));
                update.update_expression(SUBTRACT).condition_expression(TOTAL_CHECK)
            } else if self.is_backfilled(&totals, rule.period, &rule.coverage_fingerprint())? {
                continue;
            } else {
                // A backfill page that commits after this read may count the payment, so the window's version is
                // compared.
                let update = self.update_item(&Key::window(scope)).update_expression("ADD ver :one");
                let (update, condition) = add_version_condition(
                    update,
                    "attribute_exists(pk)",
                    self.item_row(&totals).get_optional("ver")?,
                );
                update.condition_expression(condition)
            };
            let update = update.expression_attribute_values(":one", 1_u32.write());
            transaction.add_update(Role::LaterRule, update)?;
        }
        Ok(())
    }

    /// Defines the names and values in [`SUBTRACT`] and [`TOTAL_CHECK`], except `:one`.
    fn window_subtraction_update(&self, scope: WindowScope, amount: Amount) -> UpdateBuilder {
        self.update_item(&Key::window(scope))
            .expression_attribute_names("#total", "total")
            .expression_attribute_values(":amount", add_to_sum(0, amount).write())
    }
}

/// Adds the condition that the window still has this version.
fn add_version_condition(update: UpdateBuilder, condition: &str, version: Option<u64>) -> (UpdateBuilder, String) {
    match version {
        Some(version) => {
            let update = update.expression_attribute_values(":ver", version.write());
            (update, format!("{condition} AND ver = :ver"))
        }
        None => (update, format!("{condition} AND attribute_not_exists(ver)")),
    }
}
