//! Decisions for the agent's owner: blocked and escalated requests, and reverted confirmations. A row is never changed.
//! An allowed payment has no row, because the settlement contains the decision.

use crate::{
    codec::attribute::encode_text,
    codec::fields::fields,
    codec::item::{Draft, Item, Row},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::table::{Query, get_item},
    stream::row_hash::RowHash,
    transact::was_applied,
};
use purser_domain::{
    AgentId, CallDescription, ConfirmationReverted, DecisionRecord, DecisionResult, LoggedDecision, LoggedDenial,
    PastPayment, Reason, Result, Settlement, SettlementId, Timestamp, TransactionId,
};
use std::collections::HashMap;
use uuid::Uuid;

/// A range of an agent's decisions, inclusive at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The first position of the range, as a `UUIDv7`.
    pub first: Uuid,
    /// The last position of the range, as a `UUIDv7`.
    pub last: Uuid,
    /// Whether the newest decisions are read first.
    pub newest_first: bool,
}

impl LogRange {
    /// Creates the range of decisions at or after `from` and before `to`.
    pub fn new(from: Timestamp, to: Timestamp, newest_first: bool) -> Self {
        Self {
            first: SettlementId::new_at(from, [0; 8]).uuid(),
            last: preceding_uuid(SettlementId::new_at(to, [0; 8]).uuid()),
            newest_first,
        }
    }
}

/// A page of an agent's decisions.
#[derive(Clone, Debug)]
pub struct LogPage {
    /// The decisions, in the order of the range.
    pub decisions: Vec<LoggedDecision>,
    /// The range that is left to read; `None` at the end.
    pub rest: Option<LogRange>,
}

/// An agent's payments in a range of positions.
#[derive(Clone, Debug)]
pub struct PastPayments {
    /// The payments, newest first.
    pub payments: Vec<PastPayment>,
    /// Whether earlier payments of the range were not read.
    pub is_partial: bool,
}

/// The rows of a query, and the position of the last row if more rows follow.
struct Rows {
    items: Vec<Item>,
    end: Option<Uuid>,
}

const fn preceding_uuid(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_sub(1))
}

const fn following_uuid(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_add(1))
}

impl Ledger {
    /// Adds a decision without an approval. Takes 1 write unit.
    pub async fn add_decision(&self, decision: &DecisionRecord) -> Result<()> {
        let put = self
            .db
            .put_item()
            .table_name(self.decisions_table()?)
            .set_item(Some(write_decision(decision)))
            .condition_expression("attribute_not_exists(pk)");
        // The decision's id is random. If the row exists already, an earlier attempt has written the row, and the
        // response to that attempt was lost.
        was_applied(put.send().await, "recording a decision").map(|_| ())
    }

    /// Reads up to `limit` of the agent's decisions before `before`, newest first, eventually consistent.
    pub async fn read_decisions(
        &self,
        agent: AgentId,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<LoggedDecision>> {
        let (allowed, recorded) = tokio::try_join!(
            self.read_recent_settlements(agent, before, limit),
            self.list_recorded_decisions(agent, before, limit)
        )?;
        let allowed = allowed.into_iter().map(LoggedDecision::from_settlement);
        let mut log: Vec<LoggedDecision> = allowed.chain(recorded).collect();
        log.sort_by_key(|decision| std::cmp::Reverse(decision.log_position()));
        log.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(log)
    }

    /// Reads up to `limit` payments and up to `limit` other decisions of the agent in this range, eventually
    /// consistent. A page may be short even if more pages follow.
    pub async fn read_decisions_between(&self, agent: AgentId, range: LogRange, limit: u32) -> Result<LogPage> {
        let (allowed, recorded) = tokio::try_join!(
            self.read_rows_between(&self.table, key::settlement_partition(agent), range, limit, false),
            self.read_rows_between(
                self.decisions_table()?,
                key::decision_partition(agent),
                range,
                limit,
                false
            ),
        )?;
        let table = self.decisions_table()?;
        let settlements = allowed.items.iter().map(|item| self.read_settlement_item(item));
        let others = recorded.items.iter().map(|item| read_decision(Row::new(table, item)));
        let settlements = settlements.map(|settlement| settlement.map(LoggedDecision::from_settlement));
        let decisions: Result<Vec<LoggedDecision>> = settlements.chain(others).collect();
        let mut decisions = decisions?;
        decisions.sort_by_key(LoggedDecision::log_position);
        // If a query ended before the end of the range, decisions after the query's last row may be missing, so the
        // page ends at this row.
        let ends = [allowed.end, recorded.end].into_iter().flatten();
        let rest = if range.newest_first {
            decisions.reverse();
            let end = ends.max();
            decisions.retain(|decision| end.is_none_or(|end| decision.log_position() >= end));
            end.map(|end| LogRange {
                last: preceding_uuid(end),
                ..range
            })
        } else {
            let end = ends.min();
            decisions.retain(|decision| end.is_none_or(|end| decision.log_position() <= end));
            end.map(|end| LogRange {
                first: following_uuid(end),
                ..range
            })
        };
        Ok(LogPage {
            decisions,
            rest: rest.filter(|rest| rest.first <= rest.last),
        })
    }

    /// Reads the agent's newest payments in this range, newest first. May return a few more than `max_rows`.
    pub async fn read_payments_between(
        &self,
        agent: AgentId,
        range: LogRange,
        max_rows: usize,
        is_consistent: bool,
    ) -> Result<PastPayments> {
        let (mut payments, mut rest) = (
            Vec::new(),
            Some(LogRange {
                newest_first: true,
                ..range
            }),
        );
        while let Some(range) = rest.filter(|_| payments.len() < max_rows) {
            // One query returns at most a megabyte, which is about a thousand settlements.
            let page = self
                .read_rows_between(
                    &self.table,
                    key::settlement_partition(agent),
                    range,
                    1_000,
                    is_consistent,
                )
                .await?;
            let settlements = page.items.iter().map(|item| self.read_settlement_item(item));
            for settlement in settlements {
                payments.extend(PastPayment::from_settlement(&settlement?));
            }
            rest = page.end.map(|end| LogRange {
                last: preceding_uuid(end),
                ..range
            });
        }
        Ok(PastPayments {
            payments,
            is_partial: rest.is_some(),
        })
    }

    async fn read_rows_between(
        &self,
        table: &str,
        pk: String,
        range: LogRange,
        limit: u32,
        is_consistent: bool,
    ) -> Result<Rows> {
        // DynamoDB rejects a range that ends before it starts, so no query is sent.
        if range.first > range.last {
            let (items, end) = (Vec::new(), None);
            return Ok(Rows { items, end });
        }
        let query = Query::new(&self.db, table, pk)
            .range(range.first.to_string(), range.last.to_string())
            .consistent_if(is_consistent)
            .limit(limit);
        let query = if range.newest_first { query.descending() } else { query };
        let response = query.send("reading decisions").await?;
        let items = response.items.unwrap_or_default();
        // DynamoDB ends a page at the limit or after a megabyte.
        let end = response.last_evaluated_key.as_ref().map(|last| {
            let last = Uuid::try_parse(key::sort_key_text(last)).ok();
            last.ok_or_else(|| Row::new(table, &Item::new()).corrupt_error("sk"))
        });
        Ok(Rows {
            items,
            end: end.transpose()?,
        })
    }

    /// Reads the agents' descriptions of the provider calls that these settlements pay for.
    pub async fn read_call_descriptions(
        &self,
        settlements: &[Settlement],
    ) -> Result<HashMap<SettlementId, CallDescription>> {
        let terms = settlements.iter().map(|settlement| &settlement.terms);
        let keys: Vec<Key> = terms
            .filter(|terms| terms.purchase().is_some())
            .map(|terms| Key::idempotency(terms.agent, &terms.idempotency_key))
            .collect();
        let items = self.get_items(&keys).await?;
        let rows = items.iter().map(|item| self.item_row(item));
        rows.map(|row| Ok((row.get("sid")?, row.get("call")?))).collect()
    }

    /// Reads a decision from the decisions table, which contains no allowed payments and no withdrawals.
    pub async fn find_recorded_decision(&self, agent: AgentId, id: TransactionId) -> Result<Option<LoggedDecision>> {
        let decision = self.read_decision_with_hash(agent, id).await?;
        Ok(decision.map(|(decision, _)| decision))
    }

    /// Reads a decision like [`Self::find_recorded_decision`], and also returns the row hash.
    pub async fn read_decision_with_hash(
        &self,
        agent: AgentId,
        id: TransactionId,
    ) -> Result<Option<(LoggedDecision, RowHash)>> {
        let table = self.decisions_table()?;
        let item = get_item(&self.db, table, &Key::decision(agent, id), "reading a decision").await?;
        let read = |item: Item| {
            let decision = read_decision(Row::new(table, &item))?;
            Ok((decision, RowHash::from_item(&item)))
        };
        item.map(read).transpose()
    }

    /// Reads up to `limit` decisions before `before`, newest first, without allowed payments and withdrawals.
    pub async fn list_recorded_decisions(
        &self,
        agent: AgentId,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<LoggedDecision>> {
        let table = self.decisions_table()?;
        let response = Query::new(&self.db, table, key::decision_partition(agent))
            .newest_page(before, limit)
            .send("listing decisions")
            .await?;
        let items = response.items().iter();
        items.map(|item| read_decision(Row::new(table, item))).collect()
    }
}

pub(crate) fn read_decision(row: Row<'_>) -> Result<LoggedDecision> {
    match row.get("result")? {
        DecisionResult::RevertConfirmation => row.read().map(LoggedDecision::ConfirmationReverted),
        // Allowed payments and withdrawals have no row in the decisions table, so such a row is corrupt.
        DecisionResult::Allow | DecisionResult::Payout => Err(row.corrupt_error("result")),
        DecisionResult::Block | DecisionResult::Escalate => row.read().map(LoggedDecision::Refused),
    }
}

fields! {
    ConfirmationReverted {
        transaction: sk(TransactionId::parse),
        agent: pk(key::parse_agent),
        transfers: "ot" or_default,
        key: "kid" optional,
        service: "svc" optional,
        operation: "op" optional,
        amount: "amt",
        pay_to: "payto",
        at: "t",
        settlement: "sid",
        tx_hash: "txh",
        policy_version: "pver" optional,
    }

    LoggedDenial {
        transaction: sk(TransactionId::parse),
        agent: pk(key::parse_agent),
        transfers: "ot" or_default,
        key: "kid",
        service: "svc",
        operation: "op" optional,
        amount: "amt",
        pay_to: "payto",
        call: "call",
        at: "t",
        result: "result",
        error: "error",
        reason: "reason",
        rule: "rule",
        hostname: "host" optional,
        policy_version: "pver" optional,
        inputs: "inv" optional,
        approval: "apid" optional,
        checks: "checks",
        latency_ms: "ms",
    }
}

pub(crate) fn write_reverted_confirmation(reversion: &ConfirmationReverted) -> Item {
    Draft::new(&Key::decision(reversion.agent, reversion.transaction))
        .with("result", &DecisionResult::RevertConfirmation)
        .with_fields(reversion)
        .into_item()
}

pub(crate) fn write_decision(decision: &DecisionRecord) -> Item {
    let reason = &decision.reason;
    let hostname = match reason {
        Reason::DomainNotAllowed { hostname, .. } => Some(hostname),
        Reason::ServiceNotEnabled { .. }
        | Reason::OperationNotEnabled { .. }
        | Reason::AmountExceedsMax { .. }
        | Reason::PerCallLimit { .. }
        | Reason::PolicyBlocked(_)
        | Reason::DailyLimit { .. }
        | Reason::ApprovalRequired { .. }
        | Reason::InsufficientBalance { .. } => None,
    };
    Draft::new(&Key::decision(decision.agent, decision.transaction))
        .with_optional("ot", Some(&decision.transfers).filter(|transfers| **transfers > 0))
        .with("kid", &decision.key)
        .with("svc", &decision.service)
        .with_optional("op", decision.operation.as_ref())
        .with("amt", &decision.amount)
        .with("payto", &decision.pay_to)
        .with("rh", &decision.fingerprint)
        .with("call", &decision.call)
        .with("t", &decision.at)
        .with("result", &reason.result())
        .with_value("error", encode_text(reason.slug()))
        .with_value("reason", encode_text(&reason.reason_text()))
        .with_value("rule", encode_text(reason.triggered_rule()))
        .with_optional("host", hostname)
        .with_optional("pver", decision.policy_version.as_ref())
        .with_optional("inv", decision.inputs.as_ref())
        .with_optional("apid", decision.approval.as_ref())
        .with("checks", &decision.checks)
        .with("ms", &decision.latency_ms)
        .into_item()
}
