//! The reservation: one transaction in which a payment comes to be, or does not.
//!
//! It holds the decision to everything that it was made on: the agent's record, the policy and the rules by their stamps
//! on the windows, the room by `total`, the window's past by `hz`, the key by its absence, the approval by its state. What fails says why, and the
//! order of precedence is written down in [`Ledger::reserve`]. Whatever happens in between, afterwards the settlement, its
//! key's row and its entries all exist, or none does.

use crate::{
    codec::attribute::{Attribute as _, text},
    codec::backoff::Backoff,
    codec::item::Draft,
    codec::key::Key,
    codec::ledger::Ledger,
    codec::transact::{FailedConditions, Known, MOST_ACTIONS, Transaction},
    payments::idempotency::{ALLOW, ESCALATE, IdempotencyRecord},
    payments::settlement::write_settlement,
};
use aws_sdk_dynamodb::types::builders::{PutBuilder, UpdateBuilder};
use purser_domain::{ApprovalId, Fingerprint, Grant, Resolution, Result, SettlementId, Terms};

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The payment is reserved, under the terms that were given.
    Done,
    /// The idempotency key is bound already. The caller compares the fingerprint.
    IdempotencyRecord(IdempotencyRecord),
    /// The approval was used already.
    ApprovalUsed {
        /// What it authorized.
        settlement: SettlementId,
    },
    /// Something that the decision rests on has changed, or may have: take a snapshot and decide again, with
    /// [`purser_domain::Eviction::Needed`].
    Raced,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// The approval that is used up.
    Approval,
    /// The idempotency key.
    Key,
    /// Everything else: that its condition failed means that the decision is out of date.
    Basis,
}

impl Ledger {
    /// Reserves a granted payment: 9 write units, 2 more for each evicted entry and for an approval, and 4 for each budget.
    ///
    /// Of several conditions that failed, the first of these answers: the approval was used, the key is bound, anything
    /// else. A transaction that only met others is sent again after a pause, and after four pauses the caller takes a
    /// fresh look; `backoff` counts over all of that and ends it with an error, leaving nothing behind.
    pub async fn reserve(
        &self,
        grant: &Grant<'_>,
        terms: &Terms,
        fingerprint: &Fingerprint,
        backoff: &mut Backoff,
    ) -> Result<Reserved> {
        let transaction = self.reservation(grant, terms, fingerprint)?;
        if transaction.len() > MOST_ACTIONS {
            // Many budgets, each with much that rolled out: clear them first, and the next attempt is small.
            for charge in grant.charges() {
                // Whether it came to pass is seen at the next read.
                let _evicted = self.evict(charge.scope, charge.evict).await?;
            }
            backoff.wait().await?;
            return Ok(Reserved::Raced);
        }
        match transaction.send_while_fresh(&self.db, backoff).await? {
            Some(Known::Committed) => Ok(Reserved::Done),
            Some(Known::Refused(refusal)) => {
                let reserved = self.refused(&refusal, grant.approval(), terms.id)?;
                if reserved == Reserved::Raced {
                    backoff.wait().await?;
                }
                Ok(reserved)
            }
            None => Ok(Reserved::Raced),
        }
    }

    fn reservation(&self, grant: &Grant<'_>, terms: &Terms, fingerprint: &Fingerprint) -> Result<Transaction<Role>> {
        let mut transaction = Transaction::new();
        for charge in grant.charges() {
            self.charge(&mut transaction, Role::Basis, &charge, grant.agent_version(), terms)?;
        }
        transaction.put(Role::Basis, self.put_new(write_settlement(terms)))?;
        transaction.put(Role::Key, self.bind_key(grant, terms, fingerprint))?;
        if let Some(approval) = grant.approval() {
            transaction.update(Role::Approval, self.use_up(approval, terms, fingerprint))?;
        }
        Ok(transaction)
    }

    /// Binds the key to the settlement. An approved retry may take over a key that waits for its approval.
    ///
    /// The call's description is kept here and not with the settlement, which is written again and has no room for it.
    fn bind_key(&self, grant: &Grant<'_>, terms: &Terms, fingerprint: &Fingerprint) -> PutBuilder {
        let row = Draft::of(&Key::idempotency(terms.agent, &terms.idempotency_key))
            .with_value("kind", text(ALLOW))
            .with("rh", fingerprint)
            .with("sid", &terms.id)
            .with("txid", &terms.transaction)
            .with("t", &terms.authorized_at)
            .with("vb", &terms.valid_before)
            .with("oi", &terms.offer_index)
            .with("call", &grant.call())
            .into_item();
        match grant.approval() {
            None => self.put_new(row),
            Some(_) => self
                .put(row)
                .condition_expression("attribute_not_exists(pk) OR (kind = :escalate AND rh = :fingerprint)")
                .expression_attribute_values(":escalate", text(ESCALATE))
                .expression_attribute_values(":fingerprint", fingerprint.write()),
        }
    }

    /// Uses an approval up. It must be approved, for this very request, and in time.
    fn use_up(&self, approval: ApprovalId, terms: &Terms, fingerprint: &Fingerprint) -> UpdateBuilder {
        self.update(&Key::approval(approval))
            .update_expression("SET st = :executed, sid = :settlement")
            .condition_expression("st = :approved AND rh = :fingerprint AND ends > :now")
            .expression_attribute_values(":executed", text(crate::people::approval::EXECUTED))
            .expression_attribute_values(":approved", text(crate::people::approval::APPROVED))
            .expression_attribute_values(":settlement", terms.id.write())
            .expression_attribute_values(":fingerprint", fingerprint.write())
            .expression_attribute_values(":now", terms.authorized_at.write())
    }

    fn refused(
        &self,
        refusal: &FailedConditions<Role>,
        approval: Option<ApprovalId>,
        ours: SettlementId,
    ) -> Result<Reserved> {
        if let Some((item, id)) = refusal.met(Role::Approval).zip(approval)
            && let Resolution::Executed { settlement, .. } = self.read_approval(id, item)?.resolution
        {
            return Ok(if settlement == ours {
                Reserved::Done
            } else {
                Reserved::ApprovalUsed { settlement }
            });
        }
        let record = refusal
            .met(Role::Key)
            .map(|item| IdempotencyRecord::read(self.row(item)))
            .transpose()?;
        Ok(match record {
            Some(IdempotencyRecord::Allowed { payment, .. }) if payment.settlement == ours => Reserved::Done,
            Some(record) => Reserved::IdempotencyRecord(record),
            None => Reserved::Raced,
        })
    }
}
