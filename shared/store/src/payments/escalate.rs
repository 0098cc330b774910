//! Escalates a decision: writes the approval, the idempotency record and the decision in one transaction. An escalation
//! reserves nothing.
//!
//! Invariant: each request has at most one open approval. The approvals of identical requests share a partition and are
//! numbered from 0, and each number can be used once.

use crate::{
    codec::attribute::{Attribute as _, encode_text},
    codec::backoff::Backoff,
    codec::fault::Fault,
    codec::item::Draft,
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::table::Query,
    payments::decision::write_decision,
    payments::idempotency::{ESCALATE, IdempotencyRecord},
    people::approval::write_approval,
    transact::{Transaction, TransactionOutcome},
};
use aws_sdk_dynamodb::types::builders::PutBuilder;
use purser_domain::{
    AgentId, Approval, ApprovalId, AskingLimit, DecisionRecord, Error, Fingerprint, Reason, Resolution, Result,
    Timestamp,
};

/// The result of storing a decision that requires an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EscalateResult {
    /// A new approval is pending.
    Staged(Approval),
    /// An identical request with another idempotency key already has a pending approval, which this request uses too.
    Joined(Approval),
    /// The idempotency key was already used. The caller compares the fingerprint.
    IdempotencyRecord(IdempotencyRecord),
    /// The agent has the maximum number of pending approvals. The caller records the rejection under the same id.
    TooMany,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Key,
    Approval,
    /// The open approval that this escalation ends.
    Ended,
    /// The set of the agent's approvals that may be pending.
    Waiting,
    Decision,
}

/// The approval to which the idempotency key is bound.
enum ApprovalSlot {
    /// A new approval, and the request's open approval that it replaces because that approval waives too few limits.
    New(Approval, Option<Box<Approval>>),
    /// The request's existing open approval.
    Taken(Approval),
}

impl ApprovalSlot {
    const fn approval(&self) -> &Approval {
        match self {
            Self::New(approval, _) | Self::Taken(approval) => approval,
        }
    }

    fn into_escalate_result(self) -> EscalateResult {
        match self {
            Self::New(approval, _) => EscalateResult::Staged(approval),
            Self::Taken(approval) => EscalateResult::Joined(approval),
        }
    }
}

impl Ledger {
    /// Records a decision that requires an approval, with a new approval or the request's open approval. At most
    /// `max_waiting` of the agent's approvals are pending.
    ///
    /// `previous_approval` is the granted approval in the request, if it waives too few limits.
    ///
    /// If several conditions fail, a used idempotency key takes precedence over an existing approval, and both over the
    /// limit of pending approvals. The limit therefore never rejects a repeated request, or a request that uses an open
    /// approval.
    pub async fn store_escalation(
        &self,
        key: &Fingerprint,
        decision: &DecisionRecord,
        previous_approval: Option<ApprovalId>,
        expires_at: Timestamp,
        max_waiting: u32,
    ) -> Result<EscalateResult> {
        let mut backoff = Backoff::new();
        let mut place = match previous_approval {
            // Most escalated requests are new, so the number 0 is tried without a read.
            None => ApprovalSlot::New(new_approval(decision, expires_at, 0)?, None),
            Some(_) => self.read_approval_slot(decision, expires_at).await?,
        };
        loop {
            let transaction = self.escalation_transaction(key, decision, previous_approval, &place, max_waiting)?;
            let TransactionOutcome::Refused(rejection) = transaction.send_until_outcome(&self.db, &mut backoff).await?
            else {
                return Ok(place.into_escalate_result());
            };
            if let Some(item) = rejection.existing_item(Role::Key) {
                let record = IdempotencyRecord::read_record(self.item_row(item))?;
                return Ok(if was_written_by_this_call(&record, decision, &place) {
                    place.into_escalate_result()
                } else {
                    EscalateResult::IdempotencyRecord(record)
                });
            }
            if let Some(item) = rejection.existing_item(Role::Approval) {
                let existing = self.read_approval_item(place.approval().id, item)?;
                place = if is_open_for_decision(&existing, decision)
                    && existing.waives(limits_requiring_approval(decision))
                {
                    ApprovalSlot::Taken(existing)
                } else {
                    self.read_approval_slot(decision, expires_at).await?
                };
            } else if rejection.existing_item(Role::Ended).is_some() {
                place = self.read_approval_slot(decision, expires_at).await?;
            } else if let Some(full) = rejection.existing_item(Role::Waiting) {
                let made = self
                    .try_remove_decided_approvals(place.approval(), full, &mut backoff)
                    .await?;
                if !made {
                    place = self.read_approval_slot(decision, expires_at).await?;
                    if let ApprovalSlot::New(..) = place {
                        return Ok(EscalateResult::TooMany);
                    }
                }
            } else {
                let words = Fault::new("another decision has the same id");
                return Err(Error::internal("escalating a request", words));
            }
            backoff.wait_for_retry().await?;
        }
    }

    fn escalation_transaction(
        &self,
        key: &Fingerprint,
        decision: &DecisionRecord,
        previous_approval: Option<ApprovalId>,
        slot: &ApprovalSlot,
        max_waiting: u32,
    ) -> Result<Transaction<Role>> {
        let approval = slot.approval();
        let row = Draft::new(&Key::idempotency(decision.agent, key))
            .with_value("kind", encode_text(ESCALATE))
            .with("rh", &decision.fingerprint)
            .with("apid", &approval.id)
            .with("txid", &decision.transaction)
            .into_item();
        let decision = DecisionRecord {
            approval: Some(approval.id),
            ..decision.clone()
        };
        let record = PutBuilder::default()
            .table_name(self.decisions_table()?)
            .set_item(Some(write_decision(&decision)))
            .condition_expression("attribute_not_exists(pk)");
        let mut transaction = Transaction::new();
        let key = match previous_approval {
            None => self.put_new_item(row),
            Some(_) => self
                .put_item(row)
                .condition_expression(
                    "attribute_not_exists(pk) OR (kind = :escalate AND rh = :fingerprint AND apid <> :id)",
                )
                .expression_attribute_values(":escalate", encode_text(ESCALATE))
                .expression_attribute_values(":fingerprint", decision.fingerprint.write())
                .expression_attribute_values(":id", approval.id.write()),
        };
        transaction.add_put(Role::Key, key)?;
        if let ApprovalSlot::New(approval, ended) = slot {
            transaction.add_put(Role::Approval, self.put_new_item(write_approval(approval)))?;
            if let Some(ended) = ended {
                transaction.add_update(Role::Ended, self.approval_end_update(ended, approval.created_at))?;
            }
            transaction.add_update(Role::Waiting, self.waiting_approval_update(approval, max_waiting))?;
        }
        transaction.add_put(Role::Decision, record)?;
        Ok(transaction)
    }

    /// Returns the request's newest approval if it is open and waives all limits, and otherwise a new approval.
    async fn read_approval_slot(&self, decision: &DecisionRecord, expires_at: Timestamp) -> Result<ApprovalSlot> {
        let Some(newest) = self.read_newest_approval(decision.agent, &decision.fingerprint).await? else {
            return Ok(ApprovalSlot::New(new_approval(decision, expires_at, 0)?, None));
        };
        let is_open = is_open_for_decision(&newest, decision);
        if is_open && newest.waives(limits_requiring_approval(decision)) {
            return Ok(ApprovalSlot::Taken(newest));
        }
        let next = new_approval(decision, expires_at, next_approval_sequence(Some(&newest))?)?;
        Ok(ApprovalSlot::New(next, is_open.then(|| Box::new(newest))))
    }

    pub(crate) async fn read_newest_approval(
        &self,
        agent: AgentId,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Approval>> {
        let first = ApprovalId::derive(agent, fingerprint, 0);
        let response = Query::new(&self.db, &self.table, key::approval_partition(first))
            .descending()
            .limit(1)
            .consistent()
            .send("reading a request's approvals")
            .await?;
        let newest = response.items().first();
        newest.map(|item| self.read_listed_approval(item)).transpose()
    }
}

fn is_open_for_decision(approval: &Approval, decision: &DecisionRecord) -> bool {
    approval.status(decision.at).is_open()
}

/// Returns the number of a request's next approval: 0 for the first approval.
pub(crate) fn next_approval_sequence(newest: Option<&Approval>) -> Result<u32> {
    let Some(newest) = newest else {
        return Ok(0);
    };
    let next = newest.id.sequence().checked_add(1);
    next.ok_or_else(|| {
        Error::internal(
            "assigning an approval's sequence number",
            Fault::new("all sequence numbers are used"),
        )
    })
}

fn limits_requiring_approval(decision: &DecisionRecord) -> &[AskingLimit] {
    match &decision.reason {
        Reason::ApprovalRequired {
            asking: asking_limits, ..
        } => asking_limits,
        _ => &[],
    }
}

/// A retry after a lost response finds the record of the first attempt.
fn was_written_by_this_call(record: &IdempotencyRecord, decision: &DecisionRecord, slot: &ApprovalSlot) -> bool {
    matches!(record, IdempotencyRecord::Escalated { transaction, approval, .. }
        if *transaction == decision.transaction && *approval == slot.approval().id)
}

fn new_approval(decision: &DecisionRecord, expires_at: Timestamp, sequence: u32) -> Result<Approval> {
    let (
        Reason::ApprovalRequired {
            threshold,
            asking: asking_limits,
            ..
        },
        Some(operation),
    ) = (&decision.reason, decision.operation.clone())
    else {
        return Err(Error::internal(
            "escalating a request",
            Fault::new("the decision requires no approval or has no operation"),
        ));
    };
    Ok(Approval {
        id: ApprovalId::derive(decision.agent, &decision.fingerprint, sequence),
        agent: decision.agent,
        owner: decision.owner.clone(),
        key: decision.key,
        transaction: decision.transaction,
        fingerprint: decision.fingerprint,
        service: decision.service,
        operation,
        amount: decision.amount,
        pay_to: decision.pay_to,
        call: decision.call.clone(),
        threshold: *threshold,
        asking: asking_limits.clone(),
        raise: None,
        granted: None,
        created_at: decision.at,
        expires_at,
        resolution: Resolution::Pending,
    })
}
