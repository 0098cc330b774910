//! JSON API for one decision: the decision, the statement and the replay.

use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::decisions::operations::ReplayResult;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{CallView, CheckView, Failure, Id, SessionToken, errors};
use purser_domain::{AgentId, Catalog, ENGINE_VERSION, HistoryEntry, LoggedDecision, SettlementState, TransactionId};
use purser_log::{FoundStatement, MissingReason};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

/// A decision about a payment, without the call and the checks, as a list of decisions contains it.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedDecision)]
pub(crate) struct DecisionRow {
    /// The decision's id, which the agent also received. A reverted confirmation is a separate decision with its own
    /// id.
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's name. A list contains the name that the agent had when the decision last changed.
    agent_name: String,
    /// The agent's labels. A list contains the labels that the agent had when the decision last changed.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    labels: Value,
    /// The agent key that signed the request. Null for a withdrawal, like the service fields and `operation_id`.
    #[schema(required, example = "00c0ffee00c0ffee")]
    key_id: Option<String>,
    #[schema(value_type = Option<uuid::Uuid>, required)]
    service_id: Option<String>,
    /// The service's slug. `service_slug` and `service_name` are null if the service is no longer in the catalog.
    #[schema(required)]
    service_slug: Option<String>,
    #[schema(required)]
    service_name: Option<String>,
    /// The catalog operation. Null if the call matched no operation.
    #[schema(required)]
    operation_id: Option<String>,
    amount_units: u64,
    pay_to: String,
    #[schema(format = DateTime)]
    decided_at: String,
    /// The result: `allow`, `block`, `escalate`, `take_back` for a reverted confirmation (the confirmed payment is no
    /// longer on the chain), or `payout` for a withdrawal.
    #[schema(example = "block")]
    result: String,
    /// The reason: `x402_authorized`, the error slug of the response, a rule's own reason, `confirmation_vanished`, or
    /// `paid_out`.
    #[schema(example = "category_block:finance")]
    reason: String,
    /// The error slug of a block or an escalation. Null otherwise.
    #[schema(required, example = "policy_blocked")]
    error: Option<String>,
    /// The rule or cap that blocked the payment or required approval. Null otherwise.
    #[schema(required, example = "category_block")]
    rule_triggered: Option<String>,
    /// The host that the policy does not allow, if this is why the payment was blocked.
    #[schema(required)]
    hostname: Option<String>,
    /// The version of the applied policy. Null if the service was never enabled.
    #[schema(required)]
    policy_version: Option<u64>,
    /// The approval that was requested or used. Null if there is none.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    approval_id: Option<String>,
    /// The settlement that was authorized or whose confirmation was reverted. Null for a block or an escalation.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    settlement_id: Option<String>,
    /// The settlement's state, for an allowed payment or a withdrawal. Null otherwise.
    #[schema(value_type = Option<String>, required)]
    receipt_status: Option<&'static str>,
    /// How long the decision took, in milliseconds. Only for a block or an escalation.
    #[schema(required)]
    latency_ms: Option<u64>,
}

/// A decision about a payment, with its call and its checks.
#[derive(Serialize, ToSchema)]
#[schema(as = LoggedDecision)]
pub(crate) struct DecisionView {
    #[serde(flatten)]
    row: DecisionRow,
    /// The call that the agent described. Null for a withdrawal, and for a reverted confirmation (see the decision that
    /// authorized the payment).
    #[schema(required)]
    call: Option<CallView>,
    /// All checks, in the order in which they were made.
    checks: Vec<CheckView>,
}

impl DecisionRow {
    /// Builds the view of a decision in the decision history.
    pub(crate) fn new(entry: &HistoryEntry, catalog: &Catalog) -> Self {
        let denial = entry.refusal.as_ref();
        let service = entry.service.and_then(|id| catalog.find_by_id(id));
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
            error: denial.map(|denial| denial.error.clone()),
            rule_triggered: denial.map(|denial| denial.rule.clone()),
            hostname: denial.and_then(|denial| denial.hostname.clone()),
            policy_version: entry.policy_version,
            approval_id: entry.approval.map(|id| id.to_string()),
            settlement_id: entry.settlement_id().map(|id| id.to_string()),
            receipt_status: entry.settlement_state().map(SettlementState::state_name),
            latency_ms: denial.map(|denial| denial.latency_ms),
        }
    }
}

/// Read one decision, with its checks and with the call that the agent described.
#[utoipa::path(
    get, path = "/agents/{agentId}/decisions/{transactionId}", operation_id = "read_decision",
    params(
        ("agentId" = String, Path, description = "The ID of an agent that you owned at the time of the decision."),
        ("transactionId" = String, Path, description = "The decision's `transaction_id`."),
    ),
    responses((status = 200, body = DecisionView, description = "The decision."), errors::NotFound)
)]
pub(crate) async fn read_decision(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path((agent, transaction)): Path<(String, String)>,
) -> Result<Json<DecisionView>, Failure> {
    let read = async |user: &Caller| {
        let (agent, id) = (
            require_id(AgentId::parse(&agent))?,
            require_id(TransactionId::parse(&transaction))?,
        );
        people.read_own_decision(user, agent, id).await
    };
    let (_, (agent, decision)) = people
        .authenticate_user_while_reading(token.into_token()?, false, read)
        .await?;
    let edition = people.current_catalog().await?;
    let call = people.read_decision_call(&decision).await?;
    let checks = match &decision {
        LoggedDecision::Allowed(settlement) => settlement.terms.purchase().map(|purchase| &purchase.checks),
        LoggedDecision::Refused(denial) => Some(&denial.checks),
        LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => None,
    };
    Ok(Json(DecisionView {
        row: DecisionRow::new(
            &HistoryEntry::new(&decision, &agent.name, &agent.labels),
            &edition.catalog,
        ),
        call: call.as_ref().map(CallView::from),
        checks: checks
            .map(|checks| CheckView::list_from_checks(checks))
            .unwrap_or_default(),
    }))
}

/// The signed statement of a decision, the signed statement of the payment's receipt, and the signed statements of
/// later changes.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecisionStatement {
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    /// The decision's statement. Null until the statement is in the log, about a minute after the decision.
    #[schema(required)]
    statement: Option<FoundStatement>,
    /// Why the decision has no statement. Null if the decision has a statement.
    #[schema(required)]
    missing_reason: Option<MissingReason>,
    /// The statements that differ from the stored records: `decision`, `receipt`. A statement shows the original
    /// content, so a difference means that the record was changed later. Report the difference to the operator.
    differing: Vec<&'static str>,
    /// The statement of the receipt of the payment or withdrawal. Null until the payment is confirmed and the statement
    /// is in the log.
    #[schema(required)]
    receipt: Option<FoundStatement>,
    /// Statements of later changes, in log order. For a payment or withdrawal: a reversal, a release, or the
    /// withdrawal's own statement. A receipt that a reversal names is void. For a decision that required approval or
    /// led to a request for higher limits: the approval decision (approved, rejected, withdrawn or expired).
    changes: Vec<FoundStatement>,
    /// The documents whose hashes the statement contains (SHA-256 of the RFC 8785 form): the policy, the agent's rules
    /// and the catalog entry. Null if these documents are not stored.
    #[schema(value_type = Option<Object>, required)]
    inputs: Option<Value>,
}

/// Read a decision's signed statement, its inclusion proof in the log, and the documents whose hashes the statement
/// contains.
#[utoipa::path(
    get, path = "/decisions/{transactionId}/statement", operation_id = "decision_statement", tag = "evidence",
    responses((status = 200, body = DecisionStatement, description = "The statement."))
)]
pub(crate) async fn read_decision_statement(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(id): Id<TransactionId>,
) -> Result<Json<DecisionStatement>, Failure> {
    let decision = people.find_decision_in_history(&user, id).await?;
    let (found, inputs) = tokio::try_join!(
        people.read_statements(&decision),
        people.read_input_documents(&decision)
    )?;
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

/// The result of repeating a decision's evaluation.
#[derive(Serialize, ToSchema)]
#[schema(as = DecisionReplay)]
pub(crate) struct ReplayView {
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    /// `same`, `different`, or `impossible` if the decision cannot be evaluated again.
    #[schema(example = "same")]
    outcome: &'static str,
    /// Why the decision cannot be evaluated again. Null otherwise.
    #[schema(required)]
    detail: Option<&'static str>,
    /// The version of the evaluator that ran the replay.
    engine_version: u32,
    /// The versions of the inputs that the decision was recorded with. Null if the replay is impossible.
    #[schema(required)]
    inputs: Option<InputVersionsView>,
    /// The differences between the replay's decision and the recorded decision.
    differences: Vec<DifferenceView>,
}

/// The versions of the inputs that a decision was based on.
#[derive(Serialize, ToSchema)]
#[schema(as = InputVersions)]
#[expect(clippy::struct_field_names, reason = "the names in the answer")]
struct InputVersionsView {
    /// The version of the evaluator that made the decision.
    engine_version: u32,
    /// The version of the agent's record, which contains the agent's status and rules.
    agent_version: u64,
    /// The version that the service had in the catalog when the decision was made.
    service_version: u64,
    /// The version of the policy. Null if the service was never enabled.
    #[schema(required)]
    policy_version: Option<u64>,
}

/// A difference between a recorded decision and its replay.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplayDifference)]
struct DifferenceView {
    /// The field that differs: `result`, `reason`, or the name of a check.
    what: &'static str,
    recorded: String,
    replayed: String,
}

/// Evaluate a decision again, with the same policy, rules and catalog entry.
///
/// The replay uses the amounts that the recorded checks contain. It does not recompute `retry_at`.
#[utoipa::path(
    post, path = "/decisions/{transactionId}/replay", operation_id = "replay_decision",
    responses((status = 200, body = ReplayView, description = "Whether the evaluation leads to the same decision."))
)]
pub(crate) async fn replay_decision(
    State(people): State<Arc<People>>,
    user: Caller,
    Id(id): Id<TransactionId>,
) -> Result<Json<ReplayView>, Failure> {
    let decision = people.find_decision_in_history(&user, id).await?;
    let replay = people.replay_decision(&decision).await?;
    Ok(Json(ReplayView::new(id, replay)))
}

impl ReplayView {
    fn new(id: TransactionId, replay: ReplayResult) -> Self {
        let (outcome, detail, inputs, differences) = match replay {
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
