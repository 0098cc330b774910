//! An agent's withdrawal address, and the reservation of a withdrawal to this address.
//!
//! Invariants: only `payments` writes the address and its delay, by its own clock. A withdrawal is reserved in one
//! transaction with the record that its decision used, so it goes to the stored address after the delay, and only one
//! of two concurrent withdrawals is reserved. The transaction is conditional on the agent's owner, so nothing is
//! reserved for an earlier owner after an ownership transfer. A withdrawal's idempotency key is bound permanently. No
//! withdrawal is reserved while the latest withdrawal is open; a revert can reopen an earlier one
//! (`revert_confirmation.rs`).
//!
//! The record names the latest withdrawal, which is open while its settlement is authorized. The record therefore need
//! not change when the withdrawal ends on chain.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::{Attribute as _, Item, text},
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::Draft,
    codec::key::{self, Key},
    codec::ledger::{EditResult, Ledger},
    payments::settlement::{AUTHORIZED, write_settlement},
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::ConditionCheck;
use purser_domain::{
    Agent, AgentId, Fingerprint, Freezes, PayoutAddress, PayoutGrant, PayoutRecord, Result, SettlementId, Terms,
};

/// The record of a withdrawal's idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayoutKey {
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The reserved settlement.
    pub settlement: SettlementId,
}

/// The inputs of a decision on a withdrawal, strongly consistent.
#[derive(Clone, Debug)]
pub struct PayoutInputs {
    /// The agent; `None` if the agent does not exist.
    pub agent: Option<Agent>,
    /// The record of the agent's withdrawal address.
    pub record: PayoutRecord,
    /// The operators' freezes.
    pub freezes: Freezes,
    /// The record of the idempotency key, if the key was used.
    pub key: Option<PayoutKey>,
}

/// The result of reserving a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayoutReserved {
    /// The withdrawal is reserved with the given terms.
    Done,
    /// An input of the decision has changed, or may have changed. The caller reads and decides again.
    Raced,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Agent,
    Record,
    /// The record of the idempotency key.
    Key,
    Settlement,
    /// The settlement of the latest withdrawal.
    Latest,
    Audit,
}

impl Ledger {
    /// Reads the agent's withdrawal address and latest withdrawal. Takes one read unit.
    pub async fn payout_record(&self, agent: AgentId) -> Result<PayoutRecord> {
        let item = self.get(&Key::payout_record(agent)).await?;
        item.map_or_else(|| Ok(PayoutRecord::default()), |item| self.read_payout_record(&item))
    }

    /// Reads the agent, its withdrawal address, the operators' freezes and the record of this idempotency key. Takes
    /// four read units in one round trip.
    pub async fn payout_inputs(&self, agent: AgentId, used: &Fingerprint) -> Result<PayoutInputs> {
        let keys = [
            Key::agent(agent),
            Key::payout_record(agent),
            Key::freezes(key::freezes_copy(agent)),
            Key::payout_key(agent, used),
        ];
        let items = self.get_all(&keys).await?;
        let [record, address, freezes, used] = keys.map(|key| items.iter().find(|item| key.is_of(item)));
        Ok(PayoutInputs {
            agent: record.map(|item| self.read_agent(item)).transpose()?,
            record: address.map_or_else(|| Ok(PayoutRecord::default()), |item| self.read_payout_record(item))?,
            freezes: self.read_freezes(freezes)?,
            key: used.map(|item| self.row(item).read()).transpose()?,
        })
    }

    /// Replaces the record with its next version. Takes 4 write units.
    pub async fn put_payout_record(
        &self,
        agent: AgentId,
        next: &PayoutRecord,
        audit: &AuditEntry,
    ) -> Result<EditResult> {
        let mut transaction = Transaction::new();
        let put = self
            .put(write_payout_record(agent, next))
            .condition_expression("ver = :before OR (:before = :zero AND attribute_not_exists(pk))")
            .expression_attribute_values(":before", next.version.saturating_sub(1).write())
            .expression_attribute_values(":zero", 0_u64.write());
        transaction.put(Role::Record, put)?;
        transaction.audit(Role::Audit, audit)?;
        match transaction.send_until_known(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(EditResult::Stored),
            TransactionOutcome::Refused(refusal) => {
                let existing = refusal.existing(Role::Record).map(|item| self.read_payout_record(item));
                Ok(if existing.transpose()?.as_ref() == Some(next) {
                    EditResult::Stored
                } else {
                    EditResult::Conflict
                })
            }
        }
    }

    /// Reserves a withdrawal. Takes 11 write units, and 2 more if the agent had a withdrawal before. A transaction that
    /// only conflicted with others is sent again after a pause; after four pauses the caller must read again.
    pub async fn reserve_payout(
        &self,
        grant: &PayoutGrant,
        terms: &Terms,
        fingerprint: &Fingerprint,
        audit: &AuditEntry,
        backoff: &mut Backoff,
    ) -> Result<PayoutReserved> {
        let mut transaction = Transaction::new();
        let update = self
            .update(&Key::payout_record(terms.agent))
            .update_expression("SET #latest = :settlement, ver = ver + :one")
            .condition_expression("ver = :seen AND addr = :to AND good <= :at")
            .expression_attribute_names("#latest", "last")
            .expression_attribute_values(":settlement", terms.id.write())
            .expression_attribute_values(":one", 1_u32.write())
            .expression_attribute_values(":seen", grant.record().version.write())
            .expression_attribute_values(":to", grant.to().write())
            .expression_attribute_values(":at", grant.at().write());
        transaction.update(Role::Record, update)?;
        transaction.put(Role::Settlement, self.put_new(write_settlement(terms)))?;
        let key = Draft::new(&Key::payout_key(terms.agent, &terms.idempotency_key)).with_fields(&PayoutKey {
            fingerprint: *fingerprint,
            settlement: terms.id,
        });
        transaction.put(Role::Key, self.put_new(key.into_item()))?;
        let owned = ConditionCheck::builder()
            .table_name(&*self.table)
            .set_key(Some(Key::agent(terms.agent).attributes()))
            .condition_expression("#owner = :owner")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":owner", text(grant.owner().as_str()));
        transaction.check(Role::Agent, owned)?;
        if let Some(latest) = grant.record().latest {
            // A reorganization may have reopened the latest withdrawal since it was read.
            let check = ConditionCheck::builder()
                .table_name(&*self.table)
                .set_key(Some(Key::settlement(terms.agent, latest).attributes()))
                .condition_expression("rs <> :authorized")
                .expression_attribute_values(":authorized", text(AUTHORIZED));
            transaction.check(Role::Latest, check)?;
        }
        transaction.audit(Role::Audit, audit)?;
        match transaction.send_while_fresh(&self.db, backoff).await? {
            Some(TransactionOutcome::Committed) => Ok(PayoutReserved::Done),
            Some(TransactionOutcome::Refused(refusal)) => {
                let used = refusal.existing(Role::Key).map(|item| self.row(item).read());
                // An attempt whose response was lost wrote the record.
                if used
                    .transpose()?
                    .is_some_and(|used: PayoutKey| used.settlement == terms.id)
                {
                    return Ok(PayoutReserved::Done);
                }
                backoff.wait().await?;
                Ok(PayoutReserved::Raced)
            }
            None => Ok(PayoutReserved::Raced),
        }
    }

    /// Decodes the record of a withdrawal address.
    pub(crate) fn read_payout_record(&self, item: &Item) -> Result<PayoutRecord> {
        self.row(item).read()
    }
}

fields! {
    PayoutRecord { address: part_if("addr"), removed: "gone" optional, latest: "last" optional, version: "ver" }

    PayoutAddress {
        address: "addr",
        named_at: "t",
        good_from: "good",
        named_by: "by",
        replaced: "prev" optional,
    }

    PayoutKey { fingerprint: "rh", settlement: "sid" }
}

pub(crate) fn write_payout_record(agent: AgentId, record: &PayoutRecord) -> Item {
    Draft::new(&Key::payout_record(agent)).with_fields(record).into_item()
}
