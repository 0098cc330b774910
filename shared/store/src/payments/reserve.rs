//! Reserves a payment in one transaction.
//!
//! The conditions of the transaction check every input of the decision:
//! - Each window has the evaluated version of the policy or rule (`pver`), and accepts the evaluated version of the
//!   agent's record (`aver`).
//! - The amount still fits into each window (`total`).
//! - No payment that still counts was evicted from a window (`hz`).
//! - The idempotency key was not used.
//! - The approval can still be used, if the payment needs an approval.

use crate::{
    codec::attribute::{Attribute as _, encode_text},
    codec::backoff::Backoff,
    codec::item::Draft,
    codec::key::Key,
    codec::ledger::Ledger,
    payments::idempotency::{ALLOW, ESCALATE, IdempotencyRecord},
    payments::settlement::write_settlement,
    transact::{FailedConditions, MAX_ACTIONS, Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::builders::{PutBuilder, UpdateBuilder};
use purser_domain::{ApprovalId, Fingerprint, Grant, RecentUpdate, Resolution, Result, SettlementId, SettlementTerms};

/// The result of reserving a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveResult {
    /// The payment is reserved.
    Done,
    /// The idempotency key was already used. Nothing was reserved, and the caller compares the fingerprint.
    IdempotencyRecord(IdempotencyRecord),
    /// The approval was already used. Nothing was reserved.
    ApprovalUsed {
        /// The settlement that used the approval.
        settlement: SettlementId,
    },
    /// An input may have changed. The caller must decide again, with [`purser_domain::Eviction::Needed`].
    Raced,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Approval,
    /// The record of the idempotency key.
    Key,
    /// An input of the decision other than the approval and the idempotency key.
    Basis,
}

impl Ledger {
    /// Reserves a granted payment. Takes 9 write units, 2 more per evicted payment, 2 more with an approval, and 4 more
    /// per counting rule. Recent payments may add 2 write units.
    ///
    /// A used approval takes precedence over a used idempotency key, and both over other failed conditions. If
    /// conflicts use up the attempts of `backoff`, an error is returned and nothing is reserved. After a lost response,
    /// an error leaves open whether the payment is reserved.
    pub async fn reserve_payment(
        &self,
        grant: &Grant<'_>,
        terms: &SettlementTerms,
        fingerprint: &Fingerprint,
        backoff: &mut Backoff,
    ) -> Result<ReserveResult> {
        let transaction = self.reservation_transaction(grant, terms, fingerprint)?;
        if transaction.len() > MAX_ACTIONS {
            // The expired payments of many budgets don't fit into one transaction. Each window is evicted separately,
            // and the caller decides again.
            for charge in grant.charges() {
                // The next read shows whether the eviction succeeded.
                let _evicted = self
                    .try_evict_entries(charge.scope, charge.period, charge.stamp, charge.evict, charge.cleared)
                    .await?;
            }
            backoff.wait_for_retry().await?;
            return Ok(ReserveResult::Raced);
        }
        match transaction.send_until_outcome_or_fresh_read(&self.db, backoff).await? {
            Some(TransactionOutcome::Committed) => Ok(ReserveResult::Done),
            Some(TransactionOutcome::Refused(rejection)) => {
                let reserved = self.classify_failed_reservation(&rejection, grant.approval_id(), terms.id)?;
                if reserved == ReserveResult::Raced {
                    backoff.wait_for_retry().await?;
                }
                Ok(reserved)
            }
            None => Ok(ReserveResult::Raced),
        }
    }

    fn reservation_transaction(
        &self,
        grant: &Grant<'_>,
        terms: &SettlementTerms,
        fingerprint: &Fingerprint,
    ) -> Result<Transaction<Role>> {
        let mut transaction = Transaction::new();
        let remembered = grant.recent_payments_update().and_then(RecentUpdate::keep_only_call);
        for charge in grant.charges() {
            // Only the totals of the day window contain recent calls.
            let remembered = remembered.as_ref().filter(|_| charge.scope.rule_id().is_none());
            let version = grant.agent_version();
            self.add_charge(&mut transaction, Role::Basis, &charge, version, terms, remembered)?;
        }
        transaction.add_put(Role::Basis, self.put_new_item(write_settlement(terms)))?;
        transaction.add_put(Role::Key, self.idempotency_record_put(grant, terms, fingerprint))?;
        if let Some(approval) = grant.approval_id() {
            transaction.add_update(Role::Approval, self.approval_use_update(approval, terms, fingerprint))?;
        }
        Ok(transaction)
    }

    /// Binds the idempotency key to the settlement. The record also contains the call's description, because later
    /// updates rewrite the settlement.
    fn idempotency_record_put(
        &self,
        grant: &Grant<'_>,
        terms: &SettlementTerms,
        fingerprint: &Fingerprint,
    ) -> PutBuilder {
        let row = Draft::new(&Key::idempotency(terms.agent, &terms.idempotency_key))
            .with_value("kind", encode_text(ALLOW))
            .with("rh", fingerprint)
            .with("sid", &terms.id)
            .with("txid", &terms.transaction)
            .with("t", &terms.authorized_at)
            .with("vb", &terms.valid_before)
            .with_optional("oi", terms.purchase().map(|purchase| &purchase.offer_index))
            .with("np", &terms.nonce_prefix)
            .with("call", &grant.call_description())
            .into_item();
        match grant.approval_id() {
            None => self.put_new_item(row),
            Some(_) => self
                .put_item(row)
                .condition_expression("attribute_not_exists(pk) OR (kind = :escalate AND rh = :fingerprint)")
                .expression_attribute_values(":escalate", encode_text(ESCALATE))
                .expression_attribute_values(":fingerprint", fingerprint.write()),
        }
    }

    /// Marks an approval as used. The approval must be granted for this request and must not have expired.
    fn approval_use_update(
        &self,
        approval: ApprovalId,
        terms: &SettlementTerms,
        fingerprint: &Fingerprint,
    ) -> UpdateBuilder {
        self.update_item(&Key::approval(approval))
            .update_expression("SET st = :executed, sid = :settlement")
            .condition_expression("st = :approved AND rh = :fingerprint AND ends > :now")
            .expression_attribute_values(":executed", encode_text(crate::people::approval::EXECUTED))
            .expression_attribute_values(":approved", encode_text(crate::people::approval::APPROVED))
            .expression_attribute_values(":settlement", terms.id.write())
            .expression_attribute_values(":fingerprint", fingerprint.write())
            .expression_attribute_values(":now", terms.authorized_at.write())
    }

    fn classify_failed_reservation(
        &self,
        failures: &FailedConditions<Role>,
        approval: Option<ApprovalId>,
        settlement_id: SettlementId,
    ) -> Result<ReserveResult> {
        if let Some((item, id)) = failures.existing_item(Role::Approval).zip(approval)
            && let Resolution::Executed { settlement, .. } = self.read_approval_item(id, item)?.resolution
        {
            return Ok(if settlement == settlement_id {
                ReserveResult::Done
            } else {
                ReserveResult::ApprovalUsed { settlement }
            });
        }
        let record = failures
            .existing_item(Role::Key)
            .map(|item| IdempotencyRecord::read_record(self.item_row(item)))
            .transpose()?;
        Ok(match record {
            Some(IdempotencyRecord::Allowed { payment, .. }) if payment.settlement == settlement_id => {
                ReserveResult::Done
            }
            Some(record) => ReserveResult::IdempotencyRecord(record),
            None => ReserveResult::Raced,
        })
    }
}
