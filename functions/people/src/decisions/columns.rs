//! Decisions as CSV: the members of `GET /decisions` except the call and the checks, and the agent's name and the
//! amount in the token.

use crate::csv::{line, or_empty};
use crate::decisions::operations::DecisionFacts;
use purser_domain::{Agent, Catalog, LoggedDecision};

/// The names of the columns.
const COLUMNS: [&str; 21] = [
    "decided_at",
    "transaction_id",
    "result",
    "reason",
    "error",
    "rule_triggered",
    "hostname",
    "agent_id",
    "agent_name",
    "service_id",
    "service_name",
    "operation_id",
    "amount",
    "amount_units",
    "pay_to",
    "key_id",
    "policy_version",
    "approval_id",
    "settlement_id",
    "receipt_status",
    "latency_ms",
];

/// The CSV line of the column names.
pub(crate) fn header() -> String {
    line(&COLUMNS.map(str::to_owned))
}

/// The CSV line of a decision about this agent.
pub(crate) fn row(decision: &LoggedDecision, agent: &Agent, catalog: &Catalog) -> String {
    let facts = DecisionFacts::from(decision);
    let refusal = facts.refusal;
    let service = facts.service.and_then(|id| catalog.by_id(id));
    line(&[
        facts.at.to_string(),
        facts.transaction.to_string(),
        decision.result().name().to_owned(),
        facts.reason.to_owned(),
        or_empty(refusal.map(|refusal| &refusal.error)),
        or_empty(refusal.map(|refusal| &refusal.rule)),
        or_empty(refusal.and_then(|refusal| refusal.hostname.as_ref())),
        facts.agent.to_string(),
        agent.name.clone(),
        or_empty(facts.service),
        or_empty(service.map(|service| &service.name)),
        or_empty(facts.operation),
        facts.amount.to_usdc(),
        facts.amount.to_string(),
        facts.pay_to.to_string(),
        or_empty(facts.key),
        or_empty(facts.policy_version),
        or_empty(facts.approval),
        or_empty(facts.settlement),
        or_empty(facts.receipt_status),
        or_empty(refusal.map(|refusal| refusal.latency_ms)),
    ])
}
