//! Returns the signed statements about a payment or a decision of the calling agent.

use crate::AppState;
use axum::Json;
use axum::extract::Path;
use purser_api::{AgentCredentials, Reply, endpoint, view};
use purser_domain::{ErrorKind, SettlementId, TransactionId};
use purser_log::{FoundStatement, MissingReason, PaymentStatements};

/// The signed statements about a payment.
#[view]
pub(crate) struct SettlementStatements {
    settlement_id: SettlementId,
    transaction_id: TransactionId,
    /// The statement of the decision; null until the statement is in the log, about a minute after the decision.
    decision: Option<FoundStatement>,
    /// Why the decision has no statement. Null if the decision has a statement.
    missing_reason: Option<MissingReason>,
    /// The statements that differ from the settlement's current values: `decision`, `receipt`. A statement contains
    /// what was decided, so a difference means that the record was changed later. Report the difference to the
    /// operator.
    differing: Vec<&'static str>,
    /// The statement of the receipt; null until the payment is confirmed and the statement is in the log.
    receipt: Option<FoundStatement>,
    /// The statements of later changes, in the order of the log: a reversal (a reorganization of the chain reverted the
    /// confirmation) or a release (the payment expired unpaid). A receipt that a reversal names is void.
    changes: Vec<FoundStatement>,
}

/// Read the signed statements about a payment, with the proofs that they are in the log.
#[endpoint(
    get "/x402/settlements/{settlementId}/statement", operation_id = "settlement_statement", tag = "evidence",
    params(("settlementId" = String, Path, description = "The `settlement_id` in the response of `POST /x402/authorize`.")),
    returns = "The signed statements.", errors(NotFound)
)]
pub(crate) async fn read_settlement_statement(
    agents: AppState,
    caller: AgentCredentials,
    Path(settlement): Path<String>,
) -> Reply<Json<SettlementStatements>> {
    // An agent key needs no permission to read a statement, because an agent key needs no permission to read a receipt.
    let caller = agents.authenticate(caller, None).await?;
    let id = SettlementId::parse(&settlement).ok_or(ErrorKind::NotFound)?;
    let settlement = agents.ledger.read_settlement_by_id(caller.agent.id, id).await?;
    let settlement = settlement.ok_or(ErrorKind::NotFound)?;
    let purchase = settlement.terms.purchase().ok_or(ErrorKind::NotFound)?;
    caller.key_scope()?.check_service(purchase.service)?;
    let terms = &settlement.terms;
    let (mut decision, mut payment) = (None, PaymentStatements::default());
    let mut missing_reason = Some(MissingReason::NotStated);
    if let Some(log) = &agents.log {
        decision = log
            .find_decision_statement(terms.transaction, terms.authorized_at)
            .await?;
        payment = log.find_payment_statements(&settlement).await?;
        missing_reason = match decision {
            Some(_) => None,
            None => Some(
                log.find_reason_for_missing_statement(terms.authorized_at, agents.clock.now())
                    .await?,
            ),
        };
    }
    let differing = payment.differing_statement_names(decision.as_ref(), &settlement);
    Ok(Json(SettlementStatements {
        settlement_id: id,
        transaction_id: terms.transaction,
        decision,
        missing_reason,
        differing,
        receipt: payment.receipt,
        changes: payment.changes,
    }))
}

/// The signed statement of a decision.
#[view]
pub(crate) struct AgentDecisionStatement {
    transaction_id: TransactionId,
    /// The settlement's ID; null if the decision did not allow the payment.
    settlement_id: Option<SettlementId>,
    /// The statement of the decision.
    decision: FoundStatement,
    /// The statements of later changes, in the order of the log: of the approval (approved, rejected, withdrawn or
    /// expired), or of the payment.
    changes: Vec<FoundStatement>,
}

/// Read the signed statement of a decision, with the proof that it is in the log.
///
/// A decision that blocked a payment or requires an approval has a statement like one that allowed a payment. The
/// response is 404 until the statement is in the log, about a minute after the decision.
#[endpoint(
    get "/x402/decisions/{transactionId}/statement", operation_id = "agent_decision_statement", tag = "evidence",
    params(("transactionId" = String, Path, description = "The `transaction_id` in a response of `POST /x402/authorize`.")),
    returns = "The statement.", errors(NotFound)
)]
pub(crate) async fn read_decision_statement(
    agents: AppState,
    caller: AgentCredentials,
    Path(transaction): Path<String>,
) -> Reply<Json<AgentDecisionStatement>> {
    // An agent key needs no permission to read a statement, because an agent key needs no permission to read a receipt.
    let caller = agents.authenticate(caller, None).await?;
    let id = TransactionId::parse(&transaction).ok_or(ErrorKind::NotFound)?;
    let log = agents.log.as_ref().ok_or(ErrorKind::NotFound)?;
    let decision = log
        .find_decision_statement(id, id.decided_at())
        .await?
        .ok_or(ErrorKind::NotFound)?;
    // The log contains the decisions of all agents. The statement names its agent, so this check reads no table.
    let subject = decision.decision_subject();
    let subject = subject.filter(|subject| subject.agent == caller.agent.id);
    let subject = subject.ok_or(ErrorKind::NotFound)?;
    caller.key_scope()?.check_service(subject.service)?;
    let changed = subject.settlement.map_or(id.uuid(), SettlementId::uuid);
    Ok(Json(AgentDecisionStatement {
        transaction_id: id,
        settlement_id: subject.settlement,
        decision,
        changes: log.find_change_statements(changed, id.decided_at()).await?,
    }))
}
