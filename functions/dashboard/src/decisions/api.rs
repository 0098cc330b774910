//! JSON API for one decision: the decision, the statement and the replay.

use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::decisions::operations::ReplayResult;
use crate::state::PeopleState;
use axum::Json;
use axum::extract::Path;
use purser_api::{CallView, CheckView, Id, Reply, SessionToken, endpoint, view};
use purser_domain::{
    AgentId, ApprovalId, Catalog, ENGINE_VERSION, HistoryEntry, LoggedDecision, ServiceId, SettlementId,
    SettlementState, Timestamp, TransactionId,
};
use purser_log::{FoundStatement, MissingReason};
use serde_json::Value;

purser_api::views! {
    /// A decision about a payment, without the call and the checks, as a list of decisions contains it.
    pub(crate) struct DecisionRow as ListedDecision {
        /// Builds the view of a decision in the decision history.
        pub(crate) fn new(entry: &HistoryEntry, catalog: &Catalog);
        let denial = entry.refusal.as_ref();
        let service = entry.service.and_then(|id| catalog.find_by_id(id));

        /// The decision's id, which the agent also received. A reverted confirmation is a separate decision with its
        /// own id.
        transaction_id: TransactionId = entry.transaction,
        agent_id: AgentId = entry.agent,
        /// The agent's name. A list contains the name that the agent had when the decision last changed.
        agent_name: String = entry.agent_name.clone(),
        /// The agent's labels. A list contains the labels that the agent had when the decision last changed.
        #[schema(value_type = std::collections::BTreeMap<String, String>)]
        labels: Value = entry.labels.to_json(),
        /// The agent key that signed the request. Null for a withdrawal, like the service fields and `operation_id`.
        #[schema(example = "00c0ffee00c0ffee")]
        key_id: Option<String> = entry.key.map(|id| id.to_string()),
        service_id: Option<ServiceId> = entry.service,
        /// The service's slug. `service_slug` and `service_name` are null if the service is no longer in the catalog.
        service_slug: Option<String> = service.map(|service| service.slug.to_string()),
        service_name: Option<String> = service.map(|service| service.name.clone()),
        /// The catalog operation. Null if the call matched no operation.
        operation_id: Option<String> = entry.operation.as_ref().map(ToString::to_string),
        amount_units: u64 = entry.amount.units(),
        pay_to: String = entry.pay_to.to_string(),
        decided_at: Timestamp = entry.at,
        /// The result: `allow`, `block`, `escalate`, `take_back` for a reverted confirmation (the confirmed payment is
        /// no longer on the chain), or `payout` for a withdrawal.
        #[schema(example = "block")]
        result: String = entry.result.name().to_owned(),
        /// The reason: `x402_authorized`, the error slug of the response, a rule's own reason, `confirmation_vanished`,
        /// or `paid_out`.
        #[schema(example = "category_block:finance")]
        reason: String = entry.reason.clone(),
        /// The error slug of a block or an escalation. Null otherwise.
        #[schema(example = "policy_blocked")]
        error: Option<String> = denial.map(|denial| denial.error.clone()),
        /// The rule or cap that blocked the payment or required approval. Null otherwise.
        #[schema(example = "category_block")]
        rule_triggered: Option<String> = denial.map(|denial| denial.rule.clone()),
        /// The host that the policy does not allow, if this is why the payment was blocked.
        hostname: Option<String> = denial.and_then(|denial| denial.hostname.clone()),
        /// The version of the applied policy. Null if the service was never enabled.
        policy_version: Option<u64> = entry.policy_version,
        /// The approval that was requested or used. Null if there is none.
        approval_id: Option<ApprovalId> = entry.approval,
        /// The settlement that was authorized or whose confirmation was reverted. Null for a block or an escalation.
        settlement_id: Option<SettlementId> = entry.settlement_id(),
        /// The settlement's state, for an allowed payment or a withdrawal. Null otherwise.
        #[schema(value_type = Option<String>)]
        receipt_status: Option<&'static str> = entry.settlement_state().map(SettlementState::state_name),
        /// How long the decision took, in milliseconds. Only for a block or an escalation.
        latency_ms: Option<u64> = denial.map(|denial| denial.latency_ms),
    }
}

/// A decision about a payment, with its call and its checks.
#[view(LoggedDecision)]
pub(crate) struct DecisionView {
    #[serde(flatten)]
    row: DecisionRow,
    /// The call that the agent described. Null for a withdrawal, and for a reverted confirmation (see the decision that
    /// authorized the payment).
    call: Option<CallView>,
    /// All checks, in the order in which they were made.
    checks: Vec<CheckView>,
}

/// Read one decision, with its checks and with the call that the agent described.
#[endpoint(
    get "/agents/{agentId}/decisions/{transactionId}",
    params(
        ("agentId" = String, Path, description = "The ID of an agent that you owned at the time of the decision."),
        ("transactionId" = String, Path, description = "The decision's `transaction_id`."),
    ),
    returns = "The decision.", errors(NotFound)
)]
pub(crate) async fn read_decision(
    people: PeopleState,
    token: SessionToken,
    Path((agent, transaction)): Path<(String, String)>,
) -> Reply<Json<DecisionView>> {
    let read = async |user: &Caller| {
        let (agent, id) = (
            require_id(AgentId::parse(&agent))?,
            require_id(TransactionId::parse(&transaction))?,
        );
        people.read_own_decision(user, agent, id).await
    };
    let (_, (agent, decision)) = people
        .authenticate_user_and_read(token.into_token()?, false, read)
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
#[view]
pub(crate) struct DecisionStatement {
    transaction_id: TransactionId,
    /// The decision's statement. Null until the statement is in the log, about a minute after the decision.
    statement: Option<FoundStatement>,
    /// Why the decision has no statement. Null if the decision has a statement.
    missing_reason: Option<MissingReason>,
    /// The statements that differ from the stored records: `decision`, `receipt`. A statement shows the original
    /// content, so a difference means that the record was changed later. Report the difference to the operator.
    differing: Vec<&'static str>,
    /// The statement of the receipt of the payment or withdrawal. Null until the payment is confirmed and the statement
    /// is in the log.
    receipt: Option<FoundStatement>,
    /// Statements of later changes, in log order. For a payment or withdrawal: a reversal, a release, or the
    /// withdrawal's own statement. A receipt that a reversal names is void. For a decision that required approval or
    /// led to a request for higher limits: the approval decision (approved, rejected, withdrawn or expired).
    changes: Vec<FoundStatement>,
    /// The documents whose hashes the statement contains (SHA-256 of the RFC 8785 form): the policy, the agent's rules
    /// and the catalog entry. Null if these documents are not stored.
    #[schema(value_type = Option<Object>)]
    inputs: Option<Value>,
}

/// Read a decision's signed statement, its inclusion proof in the log, and the documents whose hashes the statement
/// contains.
#[endpoint(
    get "/decisions/{transactionId}/statement", operation_id = "decision_statement", tag = "evidence",
    returns = "The statement."
)]
pub(crate) async fn read_decision_statement(
    people: PeopleState,
    user: Caller,
    Id(id): Id<TransactionId>,
) -> Reply<Json<DecisionStatement>> {
    let decision = people.find_decision_in_history(&user, id).await?;
    let (found, inputs) = tokio::try_join!(
        people.read_statements(&decision),
        people.read_input_documents(&decision)
    )?;
    Ok(Json(DecisionStatement {
        transaction_id: id,
        statement: found.statement,
        missing_reason: found.missing_reason,
        differing: found.differing,
        receipt: found.payment.receipt,
        changes: found.payment.changes,
        inputs: inputs.map(|documents| documents.to_json()),
    }))
}

purser_api::views! {
    /// The result of repeating a decision's evaluation.
    pub(crate) struct ReplayView as DecisionReplay {
        fn new(id: TransactionId, replay: ReplayResult);
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

        transaction_id: TransactionId = id,
        /// `same`, `different`, or `impossible` if the decision cannot be evaluated again.
        #[schema(example = "same")]
        outcome: &'static str,
        /// Why the decision cannot be evaluated again. Null otherwise.
        detail: Option<&'static str>,
        /// The version of the evaluator that ran the replay.
        engine_version: u32 = ENGINE_VERSION,
        /// The versions of the inputs that the decision was recorded with. Null if the replay is impossible.
        inputs: Option<InputVersionsView>,
        /// The differences between the replay's decision and the recorded decision.
        differences: Vec<DifferenceView> = differences.collect(),
    }
}

/// The versions of the inputs that a decision was based on.
#[view]
#[expect(clippy::struct_field_names, reason = "the names in the answer")]
struct InputVersionsView {
    /// The version of the evaluator that made the decision.
    engine_version: u32,
    /// The version of the agent's record, which contains the agent's status and rules.
    agent_version: u64,
    /// The version that the service had in the catalog when the decision was made.
    service_version: u64,
    /// The version of the policy. Null if the service was never enabled.
    policy_version: Option<u64>,
}

/// A difference between a recorded decision and its replay.
#[view(ReplayDifference)]
struct DifferenceView {
    /// The field that differs: `result`, `reason`, or the name of a check.
    what: &'static str,
    recorded: String,
    replayed: String,
}

/// Evaluate a decision again, with the same policy, rules and catalog entry.
///
/// The replay uses the amounts that the recorded checks contain. It does not recompute `retry_at`.
#[endpoint(post "/decisions/{transactionId}/replay", returns = "Whether the evaluation leads to the same decision.")]
pub(crate) async fn replay_decision(
    people: PeopleState,
    user: Caller,
    Id(id): Id<TransactionId>,
) -> Reply<Json<ReplayView>> {
    let decision = people.find_decision_in_history(&user, id).await?;
    let replay = people.replay_decision(&decision).await?;
    Ok(Json(ReplayView::new(id, replay)))
}
