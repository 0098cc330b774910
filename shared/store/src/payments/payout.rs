//! An agent's withdrawal address, and the reservation of a withdrawal to this address.
//!
//! Invariants:
//! - Only the function `payments` writes the address and the delay, by the function's own clock.
//! - A withdrawal is reserved on the condition that the record and the agent's owner are unchanged since the decision.
//! - A withdrawal's idempotency key is bound permanently.
//! - No withdrawal is reserved while the latest withdrawal is open. A revert can reopen an earlier withdrawal
//!   (`revert_confirmation.rs`).

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::{Attribute as _, Item, encode_text},
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::Draft,
    codec::key::{self, Key},
    codec::ledger::{Ledger, UpdateResult},
    payments::settlement::{AUTHORIZED, write_settlement},
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::ConditionCheck;
use purser_domain::{
    Agent, AgentId, Fingerprint, Freezes, Result, SettlementId, SettlementTerms, WithdrawalAddress, WithdrawalGrant,
    WithdrawalRecord,
};

/// The record of a withdrawal's idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithdrawalKey {
    /// The fingerprint of the request that first used the key.
    pub fingerprint: Fingerprint,
    /// The reserved settlement.
    pub settlement: SettlementId,
}

/// The inputs of a decision on a withdrawal, read strongly consistent.
#[derive(Clone, Debug)]
pub struct StoredWithdrawalInputs {
    /// The agent; `None` if the agent does not exist.
    pub agent: Option<Agent>,
    /// The record of the agent's withdrawal address.
    pub record: WithdrawalRecord,
    /// The operators' freezes.
    pub freezes: Freezes,
    /// The record of the idempotency key, if the key was used.
    pub key: Option<WithdrawalKey>,
}

/// The result of reserving a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveWithdrawalResult {
    /// The withdrawal is reserved.
    Done,
    /// An input of the decision may have changed. The caller must read the inputs and decide again.
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
    pub async fn read_withdrawal_record(&self, agent: AgentId) -> Result<WithdrawalRecord> {
        let item = self.get_item(&Key::withdrawal_record(agent)).await?;
        item.map_or_else(
            || Ok(WithdrawalRecord::default()),
            |item| self.read_withdrawal_item(&item),
        )
    }

    /// Reads the inputs of a decision on a withdrawal. Takes four read units in one round trip.
    pub async fn read_withdrawal_inputs(
        &self,
        agent: AgentId,
        idempotency_key: &Fingerprint,
    ) -> Result<StoredWithdrawalInputs> {
        let keys = [
            Key::agent(agent),
            Key::withdrawal_record(agent),
            Key::freezes(key::freeze_list_copy_index(agent)),
            Key::withdrawal_key(agent, idempotency_key),
        ];
        let items = self.get_items(&keys).await?;
        let [record, address, freezes, used] = keys.map(|key| items.iter().find(|item| key.is_key_of(item)));
        Ok(StoredWithdrawalInputs {
            agent: record.map(|item| self.read_agent_item(item)).transpose()?,
            record: address.map_or_else(
                || Ok(WithdrawalRecord::default()),
                |item| self.read_withdrawal_item(item),
            )?,
            freezes: self.read_freezes_item(freezes)?,
            key: used.map(|item| self.item_row(item).read()).transpose()?,
        })
    }

    /// Stores the next version of the agent's withdrawal record. Takes 4 write units.
    pub async fn put_withdrawal_record(
        &self,
        agent: AgentId,
        next: &WithdrawalRecord,
        audit: &AuditEntry,
    ) -> Result<UpdateResult> {
        let mut transaction = Transaction::new();
        let put = self
            .put_item(write_withdrawal_record(agent, next))
            .condition_expression("ver = :before OR (:before = :zero AND attribute_not_exists(pk))")
            .expression_attribute_values(":before", next.version.saturating_sub(1).write())
            .expression_attribute_values(":zero", 0_u64.write());
        transaction.add_put(Role::Record, put)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(UpdateResult::Stored),
            TransactionOutcome::Refused(rejection) => {
                let existing = rejection
                    .existing_item(Role::Record)
                    .map(|item| self.read_withdrawal_item(item));
                Ok(if existing.transpose()?.as_ref() == Some(next) {
                    UpdateResult::Stored
                } else {
                    UpdateResult::Conflict
                })
            }
        }
    }

    /// Reserves a withdrawal. Takes 11 write units, and 2 more if the agent had a withdrawal before.
    pub async fn reserve_withdrawal(
        &self,
        grant: &WithdrawalGrant,
        terms: &SettlementTerms,
        fingerprint: &Fingerprint,
        audit: &AuditEntry,
        backoff: &mut Backoff,
    ) -> Result<ReserveWithdrawalResult> {
        let mut transaction = Transaction::new();
        let update = self
            .update_item(&Key::withdrawal_record(terms.agent))
            .update_expression("SET #latest = :settlement, ver = ver + :one")
            .condition_expression("ver = :seen AND addr = :to AND good <= :at")
            .expression_attribute_names("#latest", "last")
            .expression_attribute_values(":settlement", terms.id.write())
            .expression_attribute_values(":one", 1_u32.write())
            .expression_attribute_values(":seen", grant.base_record().version.write())
            .expression_attribute_values(":to", grant.recipient().write())
            .expression_attribute_values(":at", grant.decided_at().write());
        transaction.add_update(Role::Record, update)?;
        transaction.add_put(Role::Settlement, self.put_new_item(write_settlement(terms)))?;
        let key = Draft::new(&Key::withdrawal_key(terms.agent, &terms.idempotency_key)).with_fields(&WithdrawalKey {
            fingerprint: *fingerprint,
            settlement: terms.id,
        });
        transaction.add_put(Role::Key, self.put_new_item(key.into_item()))?;
        let owned = ConditionCheck::builder()
            .table_name(&*self.table)
            .set_key(Some(Key::agent(terms.agent).attributes()))
            .condition_expression("#owner = :owner")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":owner", encode_text(grant.owner().as_str()));
        transaction.add_check(Role::Agent, owned)?;
        if let Some(latest) = grant.base_record().latest {
            // A reorganization may have reopened the latest withdrawal after it was read.
            let check = ConditionCheck::builder()
                .table_name(&*self.table)
                .set_key(Some(Key::settlement(terms.agent, latest).attributes()))
                .condition_expression("rs <> :authorized")
                .expression_attribute_values(":authorized", encode_text(AUTHORIZED));
            transaction.add_check(Role::Latest, check)?;
        }
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome_or_fresh_read(&self.db, backoff).await? {
            Some(TransactionOutcome::Committed) => Ok(ReserveWithdrawalResult::Done),
            Some(TransactionOutcome::Refused(rejection)) => {
                let used = rejection
                    .existing_item(Role::Key)
                    .map(|item| self.item_row(item).read());
                // If the stored record names this settlement, an earlier attempt has written the record, and the
                // response to that attempt was lost.
                if used
                    .transpose()?
                    .is_some_and(|used: WithdrawalKey| used.settlement == terms.id)
                {
                    return Ok(ReserveWithdrawalResult::Done);
                }
                backoff.wait_for_retry().await?;
                Ok(ReserveWithdrawalResult::Raced)
            }
            None => Ok(ReserveWithdrawalResult::Raced),
        }
    }

    pub(crate) fn read_withdrawal_item(&self, item: &Item) -> Result<WithdrawalRecord> {
        self.item_row(item).read()
    }
}

fields! {
    WithdrawalRecord { address: part_if("addr"), removed: "gone" optional, latest: "last" optional, version: "ver" }

    WithdrawalAddress {
        address: "addr",
        named_at: "t",
        good_from: "good",
        named_by: "by",
        replaced: "prev" optional,
    }

    WithdrawalKey { fingerprint: "rh", settlement: "sid" }
}

pub(crate) fn write_withdrawal_record(agent: AgentId, record: &WithdrawalRecord) -> Item {
    Draft::new(&Key::withdrawal_record(agent))
        .with_fields(record)
        .into_item()
}
