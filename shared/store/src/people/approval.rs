//! Approvals: one row each. Every transition is conditional on the previous state and on the time.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::{Attribute as _, encode_text},
    codec::backoff::Backoff,
    codec::item::{Draft, Item, Row},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    stream::row_hash::RowHash,
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use purser_domain::{Approval, ApprovalId, ApprovalResolution, Resolution, Result, TemporaryCaps, Timestamp};

/// A user's decision on an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// A retry with the approval's id may be authorized once.
    Approve,
    /// A retry with the approval's id is denied.
    Reject,
}

/// The result of storing an approval decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveResult {
    /// The decision is stored. Contains the stored approval.
    Done(Approval),
    /// The approval was already decided or used, or has expired. Nothing was written.
    Already(Approval),
    /// The approval does not exist, or belongs to another user.
    NotFound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Approval,
    Audit,
}

const PENDING: &str = "pending";
pub(crate) const APPROVED: &str = "approved";
const REJECTED: &str = "rejected";
pub(crate) const EXECUTED: &str = "executed";

impl Ledger {
    /// Reads an approval of any agent, strongly consistent.
    pub async fn read_approval_by_id(&self, id: ApprovalId) -> Result<Option<Approval>> {
        let item = self.get_item(&Key::approval(id)).await?;
        item.map(|item| self.read_approval_item(id, &item)).transpose()
    }

    /// Reads an approval like [`Self::read_approval_by_id`], with the row hash.
    pub async fn read_approval_with_hash(&self, id: ApprovalId) -> Result<Option<(Approval, RowHash)>> {
        let item = self.get_item(&Key::approval(id)).await?;
        item.map(|item| Ok((self.read_approval_item(id, &item)?, RowHash::from_item(&item))))
            .transpose()
    }

    /// Stores a user's decision on a pending approval. Returns `Done` if the user has already made this decision.
    pub async fn resolve_approval(
        &self,
        id: ApprovalId,
        decision: ApprovalDecision,
        new_resolution: &ApprovalResolution,
        audit: &AuditEntry,
    ) -> Result<ResolveResult> {
        let Some(request) = self.read_approval_by_id(id).await? else {
            return Ok(ResolveResult::NotFound);
        };
        let update = self.pending_approval_decision_update(&request, decision, new_resolution);
        let is_same_decision = |resolution: &Resolution| match (decision, resolution) {
            (ApprovalDecision::Approve, Resolution::Approved(found) | Resolution::Executed { ruling: found, .. })
            | (ApprovalDecision::Reject, Resolution::Rejected(found)) => found == new_resolution,
            _ => false,
        };
        self.store_approval_decision(id, update, new_resolution, audit, is_same_decision)
            .await
    }

    /// Creates the update that stores a user's decision on a pending approval that belongs to this user.
    pub(crate) fn pending_approval_decision_update(
        &self,
        request: &Approval,
        decision: ApprovalDecision,
        resolution: &ApprovalResolution,
    ) -> UpdateBuilder {
        let state = match decision {
            ApprovalDecision::Approve => APPROVED,
            ApprovalDecision::Reject => REJECTED,
        };
        let set = match resolution.note {
            None => "SET st = :state, resolved = :now, #by = :by, os = :decided",
            Some(_) => "SET st = :state, resolved = :now, #by = :by, os = :decided, note = :note",
        };
        let decided = key::owned::decided_approval_key(request.id, request.created_at);
        add_pending_approval_condition(self.unconditional_decision_update(request.id, set, state, resolution))
            .expression_attribute_values(":decided", decided.write())
    }

    /// Creates the update that approves a pending limit increase, with the granted caps and their expiry time.
    pub(crate) fn limit_increase_approval_update(
        &self,
        request: &Approval,
        granted: TemporaryCaps,
        resolution: &ApprovalResolution,
    ) -> UpdateBuilder {
        let set = match resolution.note {
            None => "SET st = :state, resolved = :now, #by = :by, os = :decided, ends = :until, granted = :granted",
            Some(_) => {
                "SET st = :state, resolved = :now, #by = :by, os = :decided, ends = :until, granted = :granted, note = :note"
            }
        };
        let decided = key::owned::decided_approval_key(request.id, request.created_at);
        add_pending_approval_condition(self.unconditional_decision_update(request.id, set, APPROVED, resolution))
            .expression_attribute_values(":decided", decided.write())
            .expression_attribute_values(":until", granted.until.write())
            .expression_attribute_values(":granted", granted.write())
    }

    /// Creates the update that stores an approval decision. The caller must add the condition.
    fn unconditional_decision_update(
        &self,
        id: ApprovalId,
        update_expression: &str,
        state: &str,
        resolution: &ApprovalResolution,
    ) -> UpdateBuilder {
        let update = self
            .update_item(&Key::approval(id))
            .update_expression(update_expression)
            .expression_attribute_names("#by", "by")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":state", encode_text(state))
            .expression_attribute_values(":now", resolution.at.write())
            .expression_attribute_values(":by", resolution.by.write());
        match &resolution.note {
            None => update,
            Some(note) => update.expression_attribute_values(":note", note.write()),
        }
    }

    /// Creates the update that ends an open approval at `at`, unless it was decided or used meanwhile.
    pub(crate) fn approval_end_update(&self, approval: &Approval, at: Timestamp) -> UpdateBuilder {
        self.update_item(&Key::approval(approval.id))
            .update_expression("SET ends = :at")
            .condition_expression("st = :state AND ends = :ends")
            .expression_attribute_values(":at", at.write())
            .expression_attribute_values(":state", encode_text(stored_approval_state(approval)))
            .expression_attribute_values(":ends", approval.expires_at.write())
    }

    /// Sends the update with the audit row. `is_same_decision` returns whether a resolution is this decision, from an
    /// earlier attempt.
    async fn store_approval_decision(
        &self,
        id: ApprovalId,
        update: UpdateBuilder,
        resolution: &ApprovalResolution,
        audit: &AuditEntry,
        is_same_decision: impl Fn(&Resolution) -> bool,
    ) -> Result<ResolveResult> {
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Approval, update)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        let rejection = match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => {
                let approval = self.read_approval_by_id(id).await?;
                return Ok(approval.map_or(ResolveResult::NotFound, ResolveResult::Done));
            }
            TransactionOutcome::Refused(rejection) => rejection,
        };
        let Some(item) = rejection.existing_item(Role::Approval) else {
            return Ok(ResolveResult::NotFound);
        };
        let approval = self.read_approval_item(id, item)?;
        if approval.owner != resolution.by {
            return Ok(ResolveResult::NotFound);
        }
        Ok(if is_same_decision(&approval.resolution) {
            ResolveResult::Done(approval)
        } else {
            ResolveResult::Already(approval)
        })
    }

    /// Rejects an approved request of the deciding user that no payment has used. A payment and this write require the
    /// same state, so only one succeeds. Returns `Done` if the approval was already withdrawn.
    pub async fn withdraw_approval(
        &self,
        id: ApprovalId,
        new_resolution: &ApprovalResolution,
        audit: &AuditEntry,
    ) -> Result<ResolveResult> {
        // The stored note explains the approval, so a rejection without a note removes the stored note.
        let set = match new_resolution.note {
            None => "SET st = :state, resolved = :now, #by = :by REMOVE note",
            Some(_) => "SET st = :state, resolved = :now, #by = :by, note = :note",
        };
        let update = self.unconditional_decision_update(id, set, REJECTED, new_resolution);
        let update = update
            .condition_expression("st = :approved AND ends > :now AND #owner = :by")
            .expression_attribute_values(":approved", encode_text(APPROVED));
        let is_same_decision =
            |resolution: &Resolution| matches!(resolution, Resolution::Rejected(found) if found == new_resolution);
        self.store_approval_decision(id, update, new_resolution, audit, is_same_decision)
            .await
    }

    pub(crate) fn read_listed_approval(&self, item: &Item) -> Result<Approval> {
        let id = key::find_approval_id(item).ok_or_else(|| self.item_row(item).corrupt_error("sk"))?;
        self.read_approval_item(id, item)
    }

    pub(crate) fn read_approval_item(&self, id: ApprovalId, item: &Item) -> Result<Approval> {
        let row = self.item_row(item);
        let resolution = match row.get::<String>("st")?.as_str() {
            PENDING => Resolution::Pending,
            APPROVED => Resolution::Approved(read_resolution(row)?),
            REJECTED => Resolution::Rejected(read_resolution(row)?),
            EXECUTED => Resolution::Executed {
                ruling: read_resolution(row)?,
                settlement: row.get("sid")?,
            },
            _ => return Err(row.corrupt_error("st")),
        };
        Ok(Approval {
            id,
            agent: row.get("agent")?,
            owner: row.get("owner")?,
            key: row.get("kid")?,
            transaction: row.get("txid")?,
            fingerprint: row.get("rh")?,
            service: row.get("svc")?,
            operation: row.get("op")?,
            amount: row.get("amt")?,
            pay_to: row.get("payto")?,
            call: row.get("call")?,
            threshold: row.get("above")?,
            asking: row.get_optional("asking")?.unwrap_or_default(),
            raise: row.get_optional("raise")?,
            granted: row.get_optional("granted")?,
            created_at: row.get("t")?,
            expires_at: row.get("ends")?,
            resolution,
        })
    }
}

/// Adds the condition that the approval is pending and that the agent belongs to the deciding user.
fn add_pending_approval_condition(update: UpdateBuilder) -> UpdateBuilder {
    update
        .condition_expression("st = :pending AND ends > :now AND #owner = :by")
        .expression_attribute_values(":pending", encode_text(PENDING))
}

pub(crate) fn write_approval(approval: &Approval) -> Item {
    let resolution = approval.users_decision();
    let os = match &approval.resolution {
        Resolution::Pending => key::owned::undecided_approval_key(approval.id, approval.created_at),
        Resolution::Approved(_) | Resolution::Rejected(_) | Resolution::Executed { .. } => {
            key::owned::decided_approval_key(approval.id, approval.created_at)
        }
    };
    Draft::new(&Key::approval(approval.id))
        .with("agent", &approval.agent)
        .with("owner", &approval.owner)
        .with("os", &os)
        .with("kid", &approval.key)
        .with("txid", &approval.transaction)
        .with("rh", &approval.fingerprint)
        .with("svc", &approval.service)
        .with("op", &approval.operation)
        .with("amt", &approval.amount)
        .with("payto", &approval.pay_to)
        .with("call", &approval.call)
        .with("above", &approval.threshold)
        .with("asking", &approval.asking)
        .with_optional("raise", approval.raise.as_ref())
        .with_optional("granted", approval.granted.as_ref())
        .with("t", &approval.created_at)
        .with("ends", &approval.expires_at)
        .with_value("st", encode_text(stored_approval_state(approval)))
        .with_optional("resolved", resolution.map(|resolution| &resolution.at))
        .with_optional("by", resolution.map(|resolution| &resolution.by))
        .with_optional("note", resolution.and_then(|resolution| resolution.note.as_ref()))
        .with_optional("sid", approval.settlement_id().as_ref())
        .into_item()
}

const fn stored_approval_state(approval: &Approval) -> &'static str {
    match &approval.resolution {
        Resolution::Pending => PENDING,
        Resolution::Approved(_) => APPROVED,
        Resolution::Rejected(_) => REJECTED,
        Resolution::Executed { .. } => EXECUTED,
    }
}

fn read_resolution(row: Row<'_>) -> Result<ApprovalResolution> {
    Ok(ApprovalResolution {
        at: row.get("resolved")?,
        by: row.get("by")?,
        note: row.get_optional("note")?,
    })
}
