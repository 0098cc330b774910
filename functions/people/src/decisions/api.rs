//! One decision about a payment, its statement and its replay, as JSON. An allow is built from its settlement, which contains its checks but not its
//! latency.

use crate::agents::owned::parse_id;
use crate::caller::Caller;
use crate::decisions::operations::ReplayResult;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{CallView, CheckView, Failure, SessionToken};
use purser_domain::{AgentId, Catalog, ENGINE_VERSION, JournalEntry, LoggedDecision, SettlementState, TransactionId};
use purser_log::{FoundStatement, MissingReason};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of reading a decision.
    pub(crate) ReadErrors: 401, 403, 404, 429, 500;
}

/// One decision about a payment, as in a list.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedDecision)]
pub(crate) struct DecisionRow {
    /// The decision's ID, as returned to the agent. A reverted confirmation is a separate decision with a different ID.
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The name of the agent, in a list as of the decision's last change.
    agent_name: String,
    /// The labels of the agent, likewise.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    labels: Value,
    /// The agent key that sent the request. For a payout, the key, the service and the operation are null.
    #[schema(required, example = "00c0ffee00c0ffee")]
    key_id: Option<String>,
    #[schema(value_type = Option<uuid::Uuid>, required)]
    service_id: Option<String>,
    /// Null for a service that is no longer in the catalog, as is its name.
    #[schema(required)]
    service_slug: Option<String>,
    #[schema(required)]
    service_name: Option<String>,
    /// Null if the call matched no operation of the catalog.
    #[schema(required)]
    operation_id: Option<String>,
    amount_units: u64,
    pay_to: String,
    #[schema(format = DateTime)]
    decided_at: String,
    /// `allow`, `block`, `escalate`, `take_back` for a confirmed payment that is no longer on the chain, or `payout`
    /// for a withdrawal.
    #[schema(example = "block")]
    result: String,
    /// `x402_authorized`, the slug that was answered, a rule's own reason, `confirmation_vanished`, or `paid_out`.
    #[schema(example = "category_block:finance")]
    reason: String,
    /// The error slug of a block or an escalation.
    #[schema(required, example = "policy_blocked")]
    error: Option<String>,
    /// The rule or cap that refused the call.
    #[schema(required, example = "category_block")]
    rule_triggered: Option<String>,
    /// The host that was not allowed.
    #[schema(required)]
    hostname: Option<String>,
    /// The version of the policy that was applied; null if the service was never enabled.
    #[schema(required)]
    policy_version: Option<u64>,
    /// The approval that was requested or used.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    approval_id: Option<String>,
    /// The settlement that was authorized or reverted; null for a block or an escalation.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    settlement_id: Option<String>,
    /// The state of the settlement, for an allowed call or a payout.
    #[schema(value_type = Option<String>, required)]
    receipt_status: Option<&'static str>,
    /// The duration of the decision, for a block or an escalation.
    #[schema(required)]
    latency_ms: Option<u64>,
}

/// One decision about a payment, with its call and its checks.
#[derive(Serialize, ToSchema)]
#[schema(as = LoggedDecision)]
pub(crate) struct DecisionView {
    #[serde(flatten)]
    row: DecisionRow,
    /// The call. Null for a payout and for a reverted confirmation, whose call is in the decision that authorized it.
    #[schema(required)]
    call: Option<CallView>,
    /// Every check, in the order in which they were made.
    checks: Vec<CheckView>,
}

impl DecisionRow {
    /// The view of an entry of the journal.
    pub(crate) fn new(entry: &JournalEntry, catalog: &Catalog) -> Self {
        let refusal = entry.refusal.as_ref();
        let service = entry.service.and_then(|id| catalog.by_id(id));
        Self {
            transaction_id: entry.transaction.to_string(),
            agent_id: entry.agent.to_string(),
            agent_name: entry.agent_name.clone(),
            labels: entry.labels.to_json(),
            key_id: entry.key.map(|id| id.to_string()),
            service_id: entry.service.map(|id| id.to_string()),
            service_slug: service.map(|service| service.slug.to_string()),
            service_name: service.map(|service| service.name.clone()),
            operation_id: entry.operation.as_ref().map(ToString::to_string),
            amount_units: entry.amount.units(),
            pay_to: entry.pay_to.to_string(),
            decided_at: entry.at.to_string(),
            result: entry.result.name().to_owned(),
            reason: entry.reason.clone(),
            error: refusal.map(|refusal| refusal.error.clone()),
            rule_triggered: refusal.map(|refusal| refusal.rule.clone()),
            hostname: refusal.and_then(|refusal| refusal.hostname.clone()),
            policy_version: entry.policy_version,
            approval_id: entry.approval.map(|id| id.to_string()),
            settlement_id: entry.settlement().map(|id| id.to_string()),
            receipt_status: entry.state().map(SettlementState::name),
            latency_ms: refusal.map(|refusal| refusal.latency_ms),
        }
    }
}

/// Read one decision.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/decisions/{transactionId}",
    operation_id = "read_decision",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you owned at the decision."),
        ("transactionId" = String, Path, description = "The decision's `transaction_id`."),
    ),
    responses((status = 200, body = DecisionView, description = "The decision."), ReadErrors)
)]
pub(crate) async fn read(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path((agent, transaction)): Path<(String, String)>,
) -> Result<Json<DecisionView>, Failure> {
    let read = async |person: &Caller| {
        let (agent, id) = (
            parse_id(AgentId::parse(&agent))?,
            parse_id(TransactionId::parse(&transaction))?,
        );
        people.own_decision(person, agent, id).await
    };
    let (_, (agent, decision)) = people.person_reading(token.into_token()?, false, read).await?;
    let edition = people.catalog().await?;
    let call = people.call_of_decision(&decision).await?;
    let checks = match &decision {
        LoggedDecision::Allowed(settlement) => settlement.terms.purchase().map(|purchase| &purchase.checks),
        LoggedDecision::Refused(refusal) => Some(&refusal.checks),
        LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => None,
    };
    Ok(Json(DecisionView {
        row: DecisionRow::new(
            &JournalEntry::new(&decision, &agent.name, &agent.labels),
            &edition.catalog,
        ),
        call: call.as_ref().map(CallView::from),
        checks: checks.map(|checks| CheckView::all(checks)).unwrap_or_default(),
    }))
}

/// The signed statement of a decision.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecisionStatement {
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    /// The statement; null until it is in the log, about a minute after the decision.
    #[schema(required)]
    statement: Option<FoundStatement>,
    /// Why the decision has no statement; null if it has one.
    #[schema(required)]
    missing_reason: Option<MissingReason>,
    /// Which statements differ from the record of the decision and its payment: `decision`, `receipt`. The statement has
    /// what was decided. The record was changed later: report it to the operator.
    differing: Vec<&'static str>,
    /// The statement of the receipt of the decision's payment or payout; null until it is confirmed and the statement is
    /// in the log.
    #[schema(required)]
    receipt: Option<FoundStatement>,
    /// The statements of the later changes of the payment or payout, in the log's order: a reversal or a release, and the
    /// withdrawal that a payout is. A receipt that a reversal names is void. Of a decision that required an approval, or was
    /// followed by a request for higher limits: what was decided (an approval, a rejection, a withdrawal or an expiry).
    changes: Vec<FoundStatement>,
    /// The policy, the agent's rules and the catalog entry that the statement has the hashes of (SHA-256 of the RFC 8785
    /// form); null if they are not stored.
    #[schema(value_type = Option<Object>, required)]
    inputs: Option<Value>,
}

/// Read the signed statement of a decision, with the proof that it is in the log, and what its hashes are of.
#[utoipa::path(
    get,
    path = "/decisions/{transactionId}/statement",
    operation_id = "decision_statement",
    tag = "evidence",
    security(("session" = [])),
    params(("transactionId" = String, Path, description = "The `transaction_id` of a decision about an agent that you owned at the time.")),
    responses((status = 200, body = DecisionStatement, description = "The statement."), ReadErrors)
)]
pub(crate) async fn statement(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(transaction): Path<String>,
) -> Result<Json<DecisionStatement>, Failure> {
    let person = people.authenticate(token).await?;
    let id = parse_id(TransactionId::parse(&transaction))?;
    let decision = people.decision_in_history(&person, id).await?;
    let (found, inputs) = tokio::try_join!(people.statements(&decision), people.input_documents(&decision))?;
    Ok(Json(DecisionStatement {
        transaction_id: id.to_string(),
        statement: found.statement,
        missing_reason: found.missing_reason,
        differing: found.differing,
        receipt: found.payment.receipt,
        changes: found.payment.changes,
        inputs: inputs.map(|documents| documents.to_json()),
    }))
}

/// The result of evaluating a decision again.
#[derive(Serialize, ToSchema)]
#[schema(as = DecisionReplay)]
pub(crate) struct ReplayView {
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    /// `same`, `different`, or `impossible` if the decision can't be evaluated again.
    #[schema(example = "same")]
    outcome: &'static str,
    /// Why the decision can't be evaluated again.
    #[schema(required)]
    detail: Option<&'static str>,
    /// The version of the evaluation that made the replay.
    engine_version: u32,
    /// The versions that the decision names.
    #[schema(required)]
    inputs: Option<InputVersionsView>,
    /// Where the replay differs from the record.
    differences: Vec<DifferenceView>,
}

/// The versions of what a decision was based on.
#[derive(Serialize, ToSchema)]
#[schema(as = InputVersions)]
#[expect(clippy::struct_field_names, reason = "the names in the answer")]
struct InputVersionsView {
    /// The version of the evaluation that made the decision.
    engine_version: u32,
    /// The version of the agent's record, with its status and rules.
    agent_version: u64,
    /// The version of the service in the catalog.
    service_version: u64,
    /// The version of the policy; null if the service was never enabled.
    #[schema(required)]
    policy_version: Option<u64>,
}

/// A difference between a decision and its replay.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplayDifference)]
struct DifferenceView {
    /// `result`, `reason` or the name of a check.
    what: &'static str,
    recorded: String,
    replayed: String,
}

/// Evaluate a decision again with the policy, the rules and the catalog entry of its time.
///
/// Amounts are those that the checks recorded. The waits of `retry_at` are not evaluated again.
#[utoipa::path(
    post,
    path = "/decisions/{transactionId}/replay",
    operation_id = "replay_decision",
    tag = "dashboard",
    security(("session" = [])),
    params(("transactionId" = String, Path, description = "The `transaction_id` of a decision about an agent that you owned at the time.")),
    responses((status = 200, body = ReplayView, description = "Whether today's evaluation decides the same."), ReadErrors)
)]
pub(crate) async fn evaluate_again(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(transaction): Path<String>,
) -> Result<Json<ReplayView>, Failure> {
    let person = people.authenticate(token).await?;
    let id = parse_id(TransactionId::parse(&transaction))?;
    let decision = people.decision_in_history(&person, id).await?;
    let replayed = people.replay(&decision).await?;
    Ok(Json(ReplayView::new(id, replayed)))
}

impl ReplayView {
    fn new(id: TransactionId, replayed: ReplayResult) -> Self {
        let (outcome, detail, inputs, differences) = match replayed {
            ReplayResult::Impossible(reason) => ("impossible", Some(reason), None, Vec::new()),
            ReplayResult::Made {
                versions,
                policy_version,
                differences,
            } => {
                let outcome = if differences.is_empty() { "same" } else { "different" };
                let inputs = InputVersionsView {
                    engine_version: versions.engine,
                    agent_version: versions.agent,
                    service_version: versions.service,
                    policy_version,
                };
                (outcome, None, Some(inputs), differences)
            }
        };
        let differences = differences.into_iter().map(|difference| DifferenceView {
            what: difference.what,
            recorded: difference.recorded,
            replayed: difference.replayed,
        });
        Self {
            transaction_id: id.to_string(),
            outcome,
            detail,
            engine_version: ENGINE_VERSION,
            inputs,
            differences: differences.collect(),
        }
    }
}
