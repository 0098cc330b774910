//! Change events of settlements and decisions.

use crate::{
    codec::{attribute::Item, item::Row, key, ledger::Ledger},
    payments::decision::read_decision,
    stream::{change::Change, fact::ChangeEvent, row_hash::RowHash, sequence::SequenceNumber},
};
use purser_domain::{
    AgentId, ConfirmationReverted, DecisionResult, EventData, EventId, EventKind, LoggedDecision, LoggedDenial, Result,
    Settlement, SettlementState, Timestamp,
};
use serde::{Deserialize, Serialize};

impl Ledger {
    /// Returns the change events of a settlement's transitions, except for a reverted confirmation.
    pub(crate) fn settlement_change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        let read = |image: &Item| -> Result<Settlement> { self.read_settlement_item(image) };
        let Some(new) = change.new.as_ref().map(read).transpose()? else {
            return Ok(Vec::new());
        };
        let old = change.old.as_ref().map(read).transpose()?;
        let terms = &new.terms;
        let is_payout = terms.purchase().is_none();
        let kind = |payment, payout| if is_payout { payout } else { payment };
        let id = terms.id;
        let result = |kind, id, at, data| vec![ChangeEvent::for_agent(terms.agent, kind, id, at, data)];
        Ok(match (old.map(|old| old.state), &new.state) {
            (None, _) => {
                let kind = kind(EventKind::PaymentAuthorized, EventKind::PayoutAuthorized);
                let data = settlement_event_data(&new).time("valid_before", terms.valid_before);
                result(kind, EventId::derive(kind, &[&id]), terms.authorized_at, data)
            }
            (
                Some(SettlementState::Authorized | SettlementState::Expired),
                SettlementState::Confirmed {
                    tx_hash,
                    block_number,
                    settled_at,
                },
            ) => {
                let kind = kind(EventKind::PaymentConfirmed, EventKind::PayoutConfirmed);
                let data = settlement_event_data(&new)
                    .text("tx_hash", tx_hash)
                    .number("block_number", *block_number)
                    .time("settled_at", *settled_at);
                // The id includes the time, because a reverted settlement may be confirmed again.
                let id = EventId::derive(kind, &[&id, tx_hash, &settled_at.micros()]);
                result(kind, id, *settled_at, data)
            }
            (Some(SettlementState::Authorized), SettlementState::Expired) => {
                let kind = kind(EventKind::PaymentReleased, EventKind::PayoutReleased);
                // A second release follows a late confirmation, which has changed `counted_at`, so the ids differ.
                let id = EventId::derive(kind, &[&id, &new.counted_at.micros()]);
                result(kind, id, change.at, settlement_event_data(&new))
            }
            (Some(SettlementState::Authorized), SettlementState::Authorized)
            | (Some(SettlementState::Confirmed { .. }), _)
            | (Some(SettlementState::Expired), SettlementState::Authorized | SettlementState::Expired) => Vec::new(),
        })
    }

    pub(crate) fn parse_agent_in_key(&self, image: &Item) -> Result<AgentId> {
        key::find_agent_id(image).ok_or_else(|| self.item_row(image).corrupt_error("pk"))
    }
}

/// A changed row that is part of the decision history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryChange {
    /// The agent whose decision changed.
    pub agent: AgentId,
    /// The table of the row. In each table, the stream records of an agent are ordered.
    pub source: HistorySource,
    /// The sequence number of the stream record.
    pub sequence: SequenceNumber,
    /// The time of the change, in seconds.
    pub changed_at: Timestamp,
    /// The hash of the row in the stream record.
    pub row: RowHash,
    /// The decision before the change; `None` if the row was added.
    pub old: Option<LoggedDecision>,
    /// The decision after the change.
    pub new: LoggedDecision,
}

/// A table whose rows are part of the decision history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistorySource {
    /// The ledger table, which contains the settlements.
    Ledger,
    /// The decisions table, which contains blocked and escalated payments, and reverted confirmations.
    Decisions,
}

impl Ledger {
    /// Returns the change of the decision history; `None` for other rows. Fails if the row can't be read.
    pub fn decision_history_change(&self, change: &Change) -> Result<Option<HistoryChange>> {
        let Some(new) = change.new.as_ref().filter(|_| !change.is_unchanged()) else {
            return Ok(None);
        };
        let is_decisions = self.decisions_table().is_ok_and(|decisions| decisions == change.table);
        let (source, prefix) = if is_decisions {
            (HistorySource::Decisions, "A#")
        } else {
            (HistorySource::Ledger, "S#")
        };
        if !key::partition_key_text(new).starts_with(prefix) {
            return Ok(None);
        }
        let row = Row::new(&change.table, new);
        let agent = key::find_agent_id(new).ok_or_else(|| row.corrupt_error("pk"))?;
        let read = |image: &Item| match source {
            HistorySource::Ledger => self.read_settlement_item(image).map(LoggedDecision::from_settlement),
            HistorySource::Decisions => read_decision(Row::new(&change.table, image)),
        };
        Ok(Some(HistoryChange {
            agent,
            source,
            sequence: SequenceNumber::parse(&change.sequence).ok_or_else(|| row.corrupt_error("sequence"))?,
            changed_at: change.at,
            row: RowHash::from_item(new),
            old: change.old.as_ref().map(read).transpose()?,
            new: read(new)?,
        }))
    }
}

/// Returns the change events of a decision's row. Such a row is added once and never changed.
pub(crate) fn decision_change_events(change: &Change) -> Result<Vec<ChangeEvent>> {
    let (None, Some(image)) = (&change.old, &change.new) else {
        return Ok(Vec::new());
    };
    let row = Row::new(&change.table, image);
    Ok(match read_decision(row)? {
        LoggedDecision::Refused(denial) => vec![denial_event(&denial)],
        LoggedDecision::ConfirmationReverted(reversion) => vec![reversion_event(&reversion)],
        // Allowed payments and withdrawals have no row in the decisions table.
        LoggedDecision::Allowed(_) | LoggedDecision::PaidOut(_) => Vec::new(),
    })
}

fn settlement_event_data(settlement: &Settlement) -> EventData {
    let terms = &settlement.terms;
    let data = EventData::new()
        .text("settlement_id", terms.id)
        .text("transaction_id", terms.transaction)
        .text("network", terms.network.name())
        .amount("amount_units", terms.amount)
        .text("pay_to", terms.pay_to)
        .time("authorized_at", terms.authorized_at);
    match terms.purchase() {
        None => data,
        Some(purchase) => data
            .text("service_id", purchase.service)
            .text("operation_id", &purchase.operation)
            .text("key_id", purchase.key)
            .optional_text("approval_id", purchase.approval),
    }
}

fn denial_event(denial: &LoggedDenial) -> ChangeEvent {
    let kind = match denial.result {
        DecisionResult::Escalate => EventKind::PaymentEscalated,
        DecisionResult::Allow | DecisionResult::Block | DecisionResult::RevertConfirmation | DecisionResult::Payout => {
            EventKind::PaymentRefused
        }
    };
    let data = EventData::new()
        .text("transaction_id", denial.transaction)
        .text("service_id", denial.service)
        .optional_text("operation_id", denial.operation.as_ref())
        .text("key_id", denial.key)
        .amount("amount_units", denial.amount)
        .text("pay_to", denial.pay_to)
        .text("error", &denial.error)
        .text("reason", &denial.reason)
        .text("rule_triggered", &denial.rule);
    let data = match kind {
        EventKind::PaymentEscalated => data.optional_text("approval_id", denial.approval),
        _ => data,
    };
    let id = EventId::derive(kind, &[&denial.transaction]);
    ChangeEvent::for_agent(denial.agent, kind, id, denial.at, data)
}

fn reversion_event(reversion: &ConfirmationReverted) -> ChangeEvent {
    let kind = match reversion.service {
        Some(_) => EventKind::PaymentTakenBack,
        None => EventKind::PayoutTakenBack,
    };
    let data = EventData::new()
        .text("settlement_id", reversion.settlement)
        .text("transaction_id", reversion.transaction)
        .amount("amount_units", reversion.amount)
        .text("pay_to", reversion.pay_to)
        .time("authorized_at", reversion.settlement.authorized_at())
        .text("tx_hash", reversion.tx_hash)
        .optional_text("service_id", reversion.service)
        .optional_text("operation_id", reversion.operation.as_ref())
        .optional_text("key_id", reversion.key);
    let id = EventId::derive(kind, &[&reversion.transaction]);
    ChangeEvent::for_agent(reversion.agent, kind, id, reversion.at, data)
}
