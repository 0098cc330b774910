//! Reads the rows that a statement is about, and builds the statement's payload.

use crate::{Inner, logged::LoggedStatement, payees::is_corruption_error, signer::Signer};
use purser_domain::{
    AgentId, Approval, ApprovalChange, Causes, ConfirmationReverted, DecisionIds, DocumentHash, Duration, Error,
    InputDocuments, LoggedDecision, LoggedReceipt, Network, PaymentChange, RECEIPT_STATEMENT, RecordedDecision,
    ReplayDifference, Result, Settlement, SettlementId, SettlementState, StatedApproval, StatedDecision, Timestamp,
    TransactionId, TxHash, receipt_payload, replay_decision,
};
use purser_evidence::{Hash, JwkSet, StatementKind};
use purser_log::{
    Confirmation, LogReader, Outcome, PendingChange, SignedStatement, StatedChange, Stating, unverified_payload,
};
use purser_store::{LogRange, RowHash};
use serde_json::Value;
use uuid::Uuid;

/// The maximum delay of an eventually consistent read of a reversal's row.
const REPLICATED: Duration = Duration::from_secs_u32(300);

/// A reader of the database rows that signed statements describe.
pub(crate) struct Records<'a> {
    pub(crate) shared: &'a Inner,
    pub(crate) network: Network,
}

/// The stored row that a signed statement describes.
pub(crate) enum Record {
    /// A decision about a purchase, and the hash of the decision's row.
    Decision(Box<RecordedDecision>, DecisionIds, Box<LoggedDecision>, RowHash),
    Payment(Box<Settlement>, RowHash),
    /// A reverted confirmation, the payment, and the hash of the reversal's row.
    Reversal(Box<ConfirmationReverted>, Box<Settlement>, RowHash),
    /// An approval, the decision's `decision_hash`, and the hash of the approval's row.
    Approval(Box<Approval>, DocumentHash, RowHash),
    /// The row does not exist. The text names the kind of row.
    Missing(&'static str),
}

impl Records<'_> {
    /// Reads the stored row that the statement about a change describes.
    pub(crate) async fn read_changed_record(&self, agent: AgentId, change: &StatedChange) -> Result<Record> {
        let ledger = &self.shared.ledger;
        match change {
            StatedChange::Refused(id) => {
                let Some((logged, row)) = ledger.read_decision_with_hash(agent, *id).await? else {
                    return Ok(Record::Missing("the decision"));
                };
                let LoggedDecision::Refused(rejection) = &logged else {
                    return Ok(Record::Missing("the rejection"));
                };
                let ids = DecisionIds::from_denial(rejection);
                let decision = RecordedDecision::from_denial(rejection.clone(), self.network);
                Ok(Record::Decision(Box::new(decision), ids, Box::new(logged), row))
            }
            StatedChange::Allowed(id) => {
                let Some((settlement, row)) = ledger.read_settlement_with_hash(agent, *id).await? else {
                    return Ok(Record::Missing("the settlement"));
                };
                let call = ledger
                    .read_call_descriptions(std::slice::from_ref(&settlement))
                    .await?
                    .remove(id);
                let decision = call.and_then(|call| RecordedDecision::from_settlement(&settlement, call));
                Ok(match decision.zip(DecisionIds::from_settlement(&settlement)) {
                    Some((decision, ids)) => Record::Decision(
                        Box::new(decision),
                        ids,
                        Box::new(LoggedDecision::from_settlement(settlement)),
                        row,
                    ),
                    None => Record::Missing("the call of the payment"),
                })
            }
            StatedChange::Reverted(id) => {
                let Some((logged, row)) = ledger.read_decision_with_hash(agent, *id).await? else {
                    return Ok(Record::Missing("the reversal"));
                };
                let LoggedDecision::ConfirmationReverted(reversion) = logged else {
                    return Ok(Record::Missing("the reversal"));
                };
                Ok(match ledger.read_settlement_by_id(agent, reversion.settlement).await? {
                    Some(settlement) => Record::Reversal(Box::new(reversion), Box::new(settlement), row),
                    None => Record::Missing("the settlement"),
                })
            }
            StatedChange::ApprovalChanged(id, ..) => {
                let approval = ledger.read_approval_with_hash(*id).await?;
                let Some((approval, row)) = approval.filter(|(approval, _)| approval.agent == agent) else {
                    return Ok(Record::Missing("the approval"));
                };
                let logged = ledger.find_recorded_decision(agent, approval.transaction).await?;
                let Some(LoggedDecision::Refused(rejection)) = logged else {
                    return Ok(Record::Missing("the decision"));
                };
                let ids = DecisionIds::from_denial(&rejection);
                let (decision, inputs) = (&RecordedDecision::from_denial(rejection, self.network), None);
                let hash = StatedDecision { ids, decision, inputs }.decision_hash();
                Ok(Record::Approval(Box::new(approval), hash, row))
            }
            StatedChange::Confirmed(id, _) | StatedChange::Released(id, _) | StatedChange::Withdrawn(id) => {
                Ok(match ledger.read_settlement_with_hash(agent, *id).await? {
                    Some((settlement, row)) => Record::Payment(Box::new(settlement), row),
                    None => Record::Missing("the settlement"),
                })
            }
        }
    }

    /// Builds the payload of a decision's statement. Raises an alarm if the decision's replay differs from the record.
    pub(crate) async fn decision_payload(
        &self,
        decision: &RecordedDecision,
        ids: DecisionIds,
        with_inputs: bool,
    ) -> Result<Value> {
        let Inner {
            ledger,
            catalog,
            usage,
            source,
            ..
        } = self.shared;
        let inputs = match decision.inputs.filter(|_| with_inputs) {
            None => None,
            Some(versions) => {
                let of = (ids.agent, ids.service);
                let policy = decision.policy_version;
                let stored = usage.read_replay_inputs(ledger, catalog, of, policy, versions).await?;
                if let Some(stored) = &stored {
                    report_replay_differences(ids.transaction, &replay_decision(decision, &stored.as_replay_inputs()));
                }
                stored.map(|stored| (versions, InputDocuments::new(&stored.as_replay_inputs(), decision.at)))
            }
        };
        let inputs = inputs.as_ref().map(|(versions, documents)| (*versions, documents));
        Ok(StatedDecision { ids, decision, inputs }.to_json(source))
    }

    /// Builds the payload of the statement about a payment's reversal or release, or about a withdrawal.
    pub(crate) async fn payment_change_payload(
        &self,
        settlement: &Settlement,
        change: PaymentChange<'_>,
    ) -> Result<Value> {
        let Inner { ledger, source, .. } = self.shared;
        let mut calls = ledger.read_call_descriptions(std::slice::from_ref(settlement)).await?;
        let call = calls.remove(&settlement.id());
        Ok(change.to_json(&settlement.terms, call, source))
    }

    /// Returns whether the payment's row is consistent with a release at `at`. After the release, the payment
    /// may have been confirmed, and the confirmation reverted.
    pub(crate) async fn was_hold_released_at(&self, settlement: &Settlement, at: Timestamp) -> Result<bool> {
        match settlement.state {
            SettlementState::Expired | SettlementState::Confirmed { .. } => Ok(true),
            SettlementState::Authorized => {
                let terms = &settlement.terms;
                self.was_confirmation_reverted_since(terms.agent, terms.id, None, at)
                    .await
            }
        }
    }

    /// Returns whether a payment's confirmation, by this transaction if `hash` is given, was reverted after `since`.
    pub(crate) async fn was_confirmation_reverted_since(
        &self,
        agent: AgentId,
        id: SettlementId,
        hash: Option<TxHash>,
        since: Timestamp,
    ) -> Result<bool> {
        const PAGE_SIZE: u32 = 100;
        let now = self.shared.clock.now().after(REPLICATED);
        let mut rest = Some(LogRange::new(since, now, false));
        while let Some(range) = rest {
            let page = self
                .shared
                .ledger
                .read_decisions_between(agent, range, PAGE_SIZE)
                .await?;
            let is_reversal = |decision: &LoggedDecision| {
                matches!(decision, LoggedDecision::ConfirmationReverted(reversion)
                    if reversion.settlement == id && hash.is_none_or(|hash| reversion.tx_hash == hash))
            };
            if page.decisions.iter().any(is_reversal) {
                return Ok(true);
            }
            rest = page.rest;
        }
        Ok(false)
    }
}

/// The key that signs statements, and the readers of the rows and the log from which statements are built.
pub(crate) struct Signing<'a> {
    pub(crate) records: Records<'a>,
    pub(crate) signer: &'a Signer,
    pub(crate) log: LogReader,
}

/// A statement's payload, or the reason why there is none.
enum PayloadResult {
    Payload(StatementKind, Uuid, Value),
    Nothing,
    /// The row is missing or differs from the stream's copy. The text names the row or the difference.
    Differs(&'static str),
}

impl Signing<'_> {
    async fn statement_payload(&self, pending: &PendingChange) -> Result<PayloadResult> {
        const REWRITTEN: &str = "the row was rewritten";
        let (agent, pending_change) = (pending.agent, &pending.fact);
        let row_in_stream = RowHash::from_digits(&pending.row);
        match self.records.read_changed_record(agent, pending_change).await? {
            Record::Missing(difference) => Ok(PayloadResult::Differs(difference)),
            Record::Decision(.., row)
            | Record::Payment(_, row)
            | Record::Reversal(.., row)
            | Record::Approval(.., row)
                if row != row_in_stream =>
            {
                Ok(PayloadResult::Differs(REWRITTEN))
            }
            Record::Approval(approval, hash, _) => match pending_change {
                StatedChange::ApprovalChanged(_, change, at) => {
                    self.approval_payload(&approval, hash, *change, *at).await
                }
                _ => Ok(PayloadResult::Nothing),
            },
            Record::Decision(decision, ids, ..) => {
                let payload = self.records.decision_payload(&decision, ids, true).await?;
                Ok(PayloadResult::Payload(
                    StatementKind::Decision,
                    ids.transaction.uuid(),
                    payload,
                ))
            }
            Record::Reversal(reversion, settlement, _) => {
                let receipt = self.find_reverted_receipt(&reversion).await?;
                let change = PaymentChange::Reversal(&reversion, receipt);
                let payload = self.records.payment_change_payload(&settlement, change).await?;
                Ok(PayloadResult::Payload(
                    StatementKind::Change,
                    settlement.id().uuid(),
                    payload,
                ))
            }
            Record::Payment(settlement, _) => match pending_change {
                StatedChange::Confirmed(id, confirmation) => {
                    self.receipt_payload(&settlement, *id, confirmation, pending).await
                }
                StatedChange::Released(id, at) => {
                    if !self.records.was_hold_released_at(&settlement, *at).await? {
                        return Ok(PayloadResult::Differs("the payment is not released"));
                    }
                    let payload = self
                        .records
                        .payment_change_payload(&settlement, PaymentChange::Release(*at))
                        .await?;
                    Ok(PayloadResult::Payload(StatementKind::Change, id.uuid(), payload))
                }
                StatedChange::Withdrawn(id) => {
                    let payload = self
                        .records
                        .payment_change_payload(&settlement, PaymentChange::Withdrawal)
                        .await?;
                    Ok(PayloadResult::Payload(StatementKind::Change, id.uuid(), payload))
                }
                _ => Ok(PayloadResult::Nothing),
            },
        }
    }

    /// Builds the payload of an approval change's statement, or `Nothing` if an expiry is already in the log.
    async fn approval_payload(
        &self,
        approval: &Approval,
        decision_hash: DocumentHash,
        change: ApprovalChange,
        at: Timestamp,
    ) -> Result<PayloadResult> {
        if !approval.was_changed_at(change, at) {
            return Ok(PayloadResult::Differs("the approval was rewritten"));
        }
        let stated = StatedApproval {
            approval,
            decision_hash,
            change,
            at,
        };
        let payload = stated.to_json(&self.records.shared.source);
        let (id, since) = (approval.transaction.uuid(), approval.transaction.decided_at());
        if change == ApprovalChange::Expired {
            let stated = self.log.find_change_statements(id, since).await?;
            if stated
                .iter()
                .any(|item| unverified_payload(&item.statement).as_ref() == Some(&payload))
            {
                return Ok(PayloadResult::Nothing);
            }
        }
        Ok(PayloadResult::Payload(StatementKind::Change, id, payload))
    }

    /// Finds the logged receipt of a payment whose confirmation was reverted, or `None` if none was signed.
    async fn find_reverted_receipt(&self, reversion: &ConfirmationReverted) -> Result<Option<LoggedReceipt>> {
        let since = reversion.settlement.authorized_at();
        let receipts = self.log.read_indexed_receipts(reversion.settlement, since).await?;
        let own = receipts
            .into_iter()
            .rfind(|(_, entry)| is_receipt_of_reversal(reversion, entry));
        Ok(own.map(|(index, entry)| parse_receipt(index, &entry)))
    }

    /// Builds the payload of a receipt. A reverted or moved confirmation has no receipt.
    async fn receipt_payload(
        &self,
        settlement: &Settlement,
        id: SettlementId,
        confirmation: &Confirmation,
        pending: &PendingChange,
    ) -> Result<PayloadResult> {
        let Confirmation {
            tx_hash,
            block_number,
            settled_at,
        } = *confirmation;
        if let SettlementState::Confirmed {
            tx_hash: tx,
            block_number: block,
            settled_at: at,
        } = &settlement.state
            && (*tx, *at) == (tx_hash, settled_at)
        {
            let payload = receipt_payload(settlement, &self.records.shared.source);
            return Ok(match payload.filter(|_| *block == block_number) {
                Some(payload) => PayloadResult::Payload(StatementKind::Receipt, id.uuid(), payload),
                // A transaction that moved to another block has its own statement.
                None => PayloadResult::Nothing,
            });
        }
        if self
            .records
            .was_confirmation_reverted_since(pending.agent, id, Some(tx_hash), settled_at)
            .await?
        {
            return Ok(PayloadResult::Nothing);
        }
        if self.records.shared.clock.now().since(pending.changed_at) < REPLICATED {
            return Err(Error::temporarily_unavailable(
                "signing a receipt's statement",
                "the payment is no longer confirmed",
            ));
        }
        Ok(PayloadResult::Differs("the confirmation was rewritten"))
    }
}

impl Signing<'_> {
    /// Signs the statement of a change that was just stored. Returns `None` for a reversal, release or
    /// withdrawal, after an error, and if the row differs. A later run then handles the change.
    pub(crate) async fn sign_statement_before_append(&self, pending: &PendingChange) -> Option<String> {
        if let StatedChange::Reverted(_) | StatedChange::Released(..) | StatedChange::Withdrawn(_) = pending.fact {
            return None;
        }
        // A difference is not reported here, because the change may not have been replicated yet.
        match self.statement_payload(pending).await {
            Ok(PayloadResult::Payload(kind, _, payload)) => {
                let payload = payload.to_string().into_bytes();
                self.signer.sign(kind, &payload).await.ok().flatten()
            }
            Ok(PayloadResult::Nothing | PayloadResult::Differs(_)) | Err(_) => None,
        }
    }

    /// Returns whether the stored payment still has this confirmation, with the same transaction, block and time.
    async fn is_confirmed(&self, pending: &PendingChange, id: SettlementId, confirmation: &Confirmation) -> bool {
        let settlement = self
            .records
            .shared
            .ledger
            .read_settlement_by_id(pending.agent, id)
            .await;
        let Ok(Some(settlement)) = settlement else { return false };
        settlement.state
            == SettlementState::Confirmed {
                tx_hash: confirmation.tx_hash,
                block_number: confirmation.block_number,
                settled_at: confirmation.settled_at,
            }
    }
}

impl Stating for Signing<'_> {
    async fn verify_stored_statement(&self, pending: &PendingChange, statement: String) -> Option<SignedStatement> {
        let keys = JwkSet::new(self.signer.jwk().clone(), []);
        let logged = LoggedStatement::from_signed_entry(0, &statement, &keys)?;
        if (logged.agent, &logged.fact) != (pending.agent, &pending.fact) {
            return None;
        }
        let (kind, id) = match &pending.fact {
            StatedChange::Allowed(_) | StatedChange::Refused(_) => {
                let id = logged.payload.get("transaction_id").and_then(Value::as_str);
                (StatementKind::Decision, TransactionId::parse(id?)?.uuid())
            }
            StatedChange::Confirmed(id, confirmation) if self.is_confirmed(pending, *id, confirmation).await => {
                (StatementKind::Receipt, id.uuid())
            }
            StatedChange::Confirmed(..)
            | StatedChange::Reverted(_)
            | StatedChange::Released(..)
            | StatedChange::Withdrawn(_)
            | StatedChange::ApprovalChanged(..) => return None,
        };
        Some(SignedStatement { kind, id, statement })
    }

    async fn sign_change(&self, pending: &PendingChange) -> Result<Outcome> {
        let (kind, id, payload) = match self.statement_payload(pending).await {
            Ok(PayloadResult::Payload(kind, id, payload)) => (kind, id, payload),
            Ok(PayloadResult::Nothing) => return Ok(Outcome::Nothing),
            Ok(PayloadResult::Differs(difference)) => {
                raise_row_mismatch_alarm(&describe_pending_change(&pending.fact), difference);
                return Ok(Outcome::SetAside(difference.to_owned()));
            }
            Err(error) if is_corruption_error(&error) => return Ok(Outcome::SetAside(Causes(&error).to_string())),
            Err(error) => return Ok(Outcome::Later(error)),
        };
        let payload = payload.to_string().into_bytes();
        Ok(match self.signer.sign(kind, &payload).await? {
            Some(statement) => Outcome::Stated(SignedStatement { kind, id, statement }),
            None => Outcome::SetAside("the statement is longer than a log entry may be".to_owned()),
        })
    }

    fn report_quarantined_change(&self, key: &str, reason: &str) {
        tracing::error!(key, reason, "statement.set_aside");
    }
}

/// Returns whether a log entry is a receipt of the reverted confirmation. Does not verify the signature.
pub(crate) fn is_receipt_of_reversal(reversion: &ConfirmationReverted, entry: &[u8]) -> bool {
    let payload = std::str::from_utf8(entry).ok().and_then(unverified_payload);
    payload.is_some_and(|payload| {
        let text = |at: &str| payload.pointer(at).and_then(Value::as_str);
        let settled_at = text("/settlement/settled_at").and_then(Timestamp::parse);
        text("/statement") == Some(RECEIPT_STATEMENT)
            && text("/settlement_id") == Some(&reversion.settlement.to_string())
            && text("/settlement/tx_hash") == Some(&reversion.tx_hash.to_string())
            && settled_at.is_some_and(|settled_at| settled_at <= reversion.at)
    })
}

pub(crate) fn parse_receipt(index: u64, entry: &[u8]) -> LoggedReceipt {
    let leaf_hash = *Hash::for_leaf(entry).as_bytes();
    LoggedReceipt { index, leaf_hash }
}

pub(crate) fn describe_pending_change(pending_change: &StatedChange) -> String {
    match pending_change {
        StatedChange::Allowed(id) => format!("the decision about settlement {id}"),
        StatedChange::Refused(id) => format!("decision {id}"),
        StatedChange::Confirmed(id, _) => format!("the receipt of settlement {id}"),
        StatedChange::Reverted(id) => format!("reversal {id}"),
        StatedChange::Released(id, _) => format!("the release of settlement {id}"),
        StatedChange::Withdrawn(id) => format!("the withdrawal by settlement {id}"),
        StatedChange::ApprovalChanged(id, change, _) => format!("{} of approval {id}", change.name()),
    }
}

/// Raises an alarm for a mismatch. `row` names the row or log object, and `description` the mismatch.
pub(crate) fn raise_row_mismatch_alarm(row: &str, description: &str) {
    tracing::error!(change = "statement", row, what = description, "change.seen");
}

/// Raises an alarm for a decision whose replay differs from the recorded decision.
fn report_replay_differences(transaction: TransactionId, differences: &[ReplayDifference]) {
    for difference in differences {
        let ReplayDifference {
            what: description,
            recorded,
            replayed,
        } = difference;
        tracing::error!(change = "replay", row = %transaction, what = description, recorded, replayed, "change.seen");
    }
}
