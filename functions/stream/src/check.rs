//! The daily check: compares every statement of the previous day with the rows that it was made from. Concurrent runs
//! divide the statements.

use crate::{
    logged::LoggedStatement,
    payees::is_corruption_error,
    record::{
        Record, Records, describe_pending_change, is_receipt_of_reversal, parse_receipt, raise_row_mismatch_alarm,
    },
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use purser_domain::{
    Causes, ConfirmationReverted, Duration as Length, Error, HistoryEntry, LoggedDecision, LoggedReceipt,
    PaymentChange, Result, StatedApproval, Timestamp, receipt_payload,
};
use purser_evidence::JwkSet;
use purser_log::{ClaimedEntries, Confirmation, EntriesToCheck, LogReader, StatedChange};
use serde_json::Value;
use std::{collections::BTreeSet, ops::Range, pin::pin};
use tokio::time::Instant;

/// The number of log entries that are compared concurrently. A comparison waits for up to seven reads.
const MAX_CONCURRENT: usize = 64;

impl Records<'_> {
    /// Claims log entries of the previous day and compares them with the tables, until `deadline`. If the comparison
    /// fails, the claimed entries can be claimed again after two minutes.
    ///
    /// Returns an error if the check is more than a day behind.
    pub(crate) async fn audit_yesterdays_statements(&self, log: &LogReader, deadline: Instant) -> Result<()> {
        let Some(trust) = log.read_trust().await? else {
            return Ok(());
        };
        let (mut result, mut last) = (Ok(()), None);
        while Instant::now() < deadline {
            let Some(claim) = log.claim_entries(self.shared.clock.now()).await? else {
                return result;
            };
            match self.compare_claimed_entries(log, &trust.jwks, &claim, deadline).await {
                Ok(next) => log.record_checked_entries(&claim, next).await?,
                Err(error) => result = Err(error),
            }
            last = Some(claim.committed_at());
        }
        let two_days_ago = self.shared.clock.now().before(Length::DAY).before(Length::DAY);
        let is_late = last.is_some_and(|committed_at| committed_at < two_days_ago);
        result.and(if is_late {
            Err(Error::internal("checking the log", "the daily check is a day late"))
        } else {
            Ok(())
        })
    }

    /// Compares the claimed log entries with the tables, in order. Returns the index of the first remaining entry.
    async fn compare_claimed_entries(
        &self,
        log: &LogReader,
        keys: &JwkSet,
        claim: &ClaimedEntries,
        deadline: Instant,
    ) -> Result<u64> {
        let EntriesToCheck { statements, misindexed } = log.read_claimed_entries(claim).await?;
        for Range { start, end } in misindexed {
            let difference = "the log's index does not contain these entries";
            raise_row_mismatch_alarm(&format!("entries {start} to {}", end.saturating_sub(1)), difference);
        }
        let checks = statements.iter().map(|(index, statement)| async move {
            self.report_log_entry_difference(log, keys, *index, statement).await?;
            Ok::<_, Error>(index.saturating_add(1))
        });
        let checks: Vec<_> = checks.collect();
        let mut checks = pin!(stream::iter(checks).buffered(MAX_CONCURRENT));
        while let Some(next) = checks.try_next().await? {
            if Instant::now() >= deadline {
                return Ok(next);
            }
        }
        Ok(claim.end())
    }

    /// Reports an entry that is not a valid statement, or that differs from the tables.
    async fn report_log_entry_difference(
        &self,
        log: &LogReader,
        keys: &JwkSet,
        index: u64,
        statement: &str,
    ) -> Result<()> {
        let Some(logged) = LoggedStatement::from_signed_entry(index, statement, keys) else {
            raise_row_mismatch_alarm(
                &format!("entry {index}"),
                "the log entry is not a statement of this deployment",
            );
            return Ok(());
        };
        let difference = match self.describe_difference(log, &logged).await {
            Ok(difference) => difference,
            Err(error) if is_corruption_error(&error) => Some(Causes(&error).to_string()),
            Err(error) => return Err(error),
        };
        if let Some(description) = difference {
            raise_row_mismatch_alarm(&describe_pending_change(&logged.fact), &description);
        }
        Ok(())
    }

    /// Describes how the tables differ from a logged statement. Returns `None` if they do not differ.
    async fn describe_difference(&self, log: &LogReader, statement: &LoggedStatement) -> Result<Option<String>> {
        let payload = &statement.payload;
        match self.read_changed_record(statement.agent, &statement.fact).await? {
            Record::Missing(difference) => Ok(Some(format!("{difference} is missing"))),
            Record::Decision(decision, ids, recorded, _) => {
                let with_inputs = payload.get("inputs").is_some_and(|inputs| !inputs.is_null());
                let rebuilt = self.decision_payload(&decision, ids, with_inputs).await?;
                Ok(match statement.first_differing_field(&rebuilt) {
                    Some(name) => Some(format!("`{name}` differs from the statement")),
                    None => self.describe_history_difference(&recorded).await?,
                })
            }
            Record::Approval(approval, decision_hash, _) => {
                let StatedChange::ApprovalChanged(_, change, at) = statement.fact else {
                    return Ok(None);
                };
                let stated = StatedApproval {
                    approval: &approval,
                    decision_hash,
                    change,
                    at,
                };
                Ok(
                    match statement.first_differing_field(&stated.to_json(&self.shared.source)) {
                        Some(name) => Some(format!("`{name}` differs from the statement")),
                        None if approval.was_changed_at(change, at) => None,
                        None => Some("the approval is in another state".to_owned()),
                    },
                )
            }
            Record::Reversal(reversion, settlement, _) => {
                let Some(receipt) = statement.find_reverted_receipt(log, &reversion).await? else {
                    return Ok(Some("`changed_receipt` is not the reverted one".to_owned()));
                };
                let change = PaymentChange::Reversal(&reversion, receipt);
                let rebuilt = self.payment_change_payload(&settlement, change).await?;
                Ok(match statement.first_differing_field(&rebuilt) {
                    Some(name) => Some(format!("`{name}` differs from the statement")),
                    None => {
                        self.describe_history_difference(&LoggedDecision::ConfirmationReverted(*reversion))
                            .await?
                    }
                })
            }
            Record::Payment(settlement, _) if let StatedChange::Released(_, at) = statement.fact => {
                let rebuilt = self
                    .payment_change_payload(&settlement, PaymentChange::Release(at))
                    .await?;
                Ok(match statement.first_differing_field(&rebuilt) {
                    Some(name) => Some(format!("`{name}` differs from the statement")),
                    None if self.was_hold_released_at(&settlement, at).await? => None,
                    None => Some("the payment is not released".to_owned()),
                })
            }
            Record::Payment(settlement, _) if matches!(statement.fact, StatedChange::Withdrawn(_)) => {
                let rebuilt = self
                    .payment_change_payload(&settlement, PaymentChange::Withdrawal)
                    .await?;
                Ok(match statement.first_differing_field(&rebuilt) {
                    Some(name) => Some(format!("`{name}` differs from the statement")),
                    None => {
                        self.describe_history_difference(&LoggedDecision::from_settlement(*settlement))
                            .await?
                    }
                })
            }
            Record::Payment(settlement, _) => {
                let rebuilt = receipt_payload(&settlement, &self.shared.source).unwrap_or_default();
                let Some(name) = statement.first_differing_field(&rebuilt) else {
                    let recorded = LoggedDecision::from_settlement(*settlement);
                    return match recorded {
                        LoggedDecision::PaidOut(_) => self.describe_history_difference(&recorded).await,
                        _ => Ok(None),
                    };
                };
                let StatedChange::Confirmed(id, confirmation) = &statement.fact else {
                    return Ok(Some(name));
                };
                let Confirmation {
                    tx_hash, settled_at, ..
                } = *confirmation;
                let is_superseded = log.has_later_receipt(*id, settled_at, statement.index).await?
                    || self
                        .was_confirmation_reverted_since(statement.agent, *id, Some(tx_hash), settled_at)
                        .await?;
                Ok((!is_superseded).then(|| format!("`{name}` differs from the receipt's statement")))
            }
        }
    }

    async fn describe_history_difference(&self, decision: &LoggedDecision) -> Result<Option<String>> {
        let (ledger, usage) = (&self.shared.ledger, &self.shared.usage);
        let agent = decision.agent_id();
        let owners = ledger.read_owners(&BTreeSet::from([agent])).await?;
        let Some(owner) = owners.find(agent).map(|known| &known.owner) else {
            return Ok(None);
        };
        let Some(entry) = usage.find_entry(owner, decision.log_position()).await? else {
            let agent = ledger.read_agent_by_id(agent).await?;
            let owned_since = match &agent {
                Some(agent) => usage.read_ownership_start(agent).await?,
                None => Timestamp::MAX,
            };
            let is_missing = decision.decided_at() >= owned_since;
            return Ok(is_missing.then(|| "the decision history has no entry".to_owned()));
        };
        let expected = HistoryEntry::new(decision, &entry.agent_name, &entry.labels);
        Ok((entry != expected).then(|| "the entry of the decision history differs".to_owned()))
    }
}

impl LoggedStatement {
    /// Returns the first field that differs, or `None` if both payloads have the same bytes.
    fn first_differing_field(&self, rebuilt: &Value) -> Option<String> {
        if self.bytes == rebuilt.to_string().as_bytes() {
            return None;
        }
        let fields = self.payload.as_object().into_iter().flatten();
        let mut differing = fields.filter(|(name, value)| rebuilt.get(name) != Some(value));
        Some(differing.next().map_or("payload", |(name, _)| name.as_str()).to_owned())
    }

    /// Returns the receipt to which the reversal's statement refers, or `Some(None)` if it refers to none.
    /// Returns `None` if the log has no matching receipt at the stated index.
    async fn find_reverted_receipt(
        &self,
        log: &LogReader,
        reversion: &ConfirmationReverted,
    ) -> Result<Option<Option<LoggedReceipt>>> {
        let index = self.payload.pointer("/changed_receipt/index");
        let Some(index) = index.and_then(Value::as_u64) else {
            return Ok(Some(None));
        };
        let entry = log.read_entry(index).await?;
        let receipt = entry.filter(|entry| index < self.index && is_receipt_of_reversal(reversion, entry));
        Ok(receipt.map(|entry| Some(parse_receipt(index, &entry))))
    }
}
