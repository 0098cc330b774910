//! `POST /x402/settlements/{settlementId}/complete`: proves the transfer on chain and finalizes the receipt.
//!
//! What is always true: a settlement is confirmed only after its exact transfer, carrying its own nonce, was found in a
//! final block; a transaction confirms one settlement. A provider's claim says where to search, and is never proof. A
//! payment that is not there yet is no failure: the answer says to retry.

use crate::Payments;
use crate::view::{CompleteBody, Completed};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use purser_api::{AgentCredentials, CompleteRequest, Failure};
use purser_chain::{ChainError, Evidence, Pending};
use purser_domain::{Error, ErrorKind, Expected, Result, Settlement, SettlementId, SettlementState, Transfer, TxHash};
use purser_store::{Confirmed, Presented};
use std::sync::Arc;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) CompleteErrors: 400, 401, 404, 409, 413, 422, 429, 500, 503;
}

/// Prove a payment on chain and finalize its receipt.
#[utoipa::path(
    post,
    path = "/x402/settlements/{settlementId}/complete",
    tag = "payments",
    security(("agentKey" = [])),
    params(("settlementId" = String, Path, description = "From authorize.")),
    request_body = CompleteBody,
    responses(
        (status = 200, body = Completed, description = "Confirmed, now or before."),
        CompleteErrors,
    )
)]
pub(crate) async fn complete(
    State(payments): State<Arc<Payments>>,
    caller: AgentCredentials,
    Path(settlement): Path<String>,
    body: Bytes,
) -> Result<Json<Completed>, Failure> {
    let request = purser_api::json_body(&body).and_then(|body| CompleteRequest::parse(&body, payments.provider_proof));
    let proof = request.as_ref().ok().map(|request| request.tx_hash);
    let Presented { settlement, claimed_by } = payments
        .authenticate_for_settlement(caller, SettlementId::parse(&settlement), proof)
        .await?;
    let CompleteRequest { tx_hash } = request?;
    let settlement = settlement.ok_or(ErrorKind::NotFound)?;

    let log = |outcome, failure| log(&settlement, tx_hash, outcome, failure);
    let already_used = || {
        log("transaction_used", Some("transaction_used"));
        Err(ErrorKind::SettlementTransactionAlreadyUsed.into())
    };
    if matches!(&settlement.state, SettlementState::Confirmed { tx_hash: known, .. } if *known == tx_hash) {
        log("already", None);
        return Ok(Json(Completed::from(&settlement)));
    }
    if claimed_by.is_some_and(|other| other != settlement.id()) {
        return already_used();
    }
    let transfer = verify(&payments, &settlement, tx_hash).await?;
    match payments
        .ledger
        .confirm(&settlement, &transfer, payments.clock.now())
        .await?
    {
        Confirmed::Done(settlement) => {
            log("confirmed", None);
            Ok(Json(Completed::from(&settlement)))
        }
        Confirmed::Already(settlement) => {
            log("already", None);
            Ok(Json(Completed::from(&settlement)))
        }
        Confirmed::TransactionUsed { .. } => already_used(),
    }
}

/// One line for each proof that was checked. A failure is one that waiting does not fix.
fn log(settlement: &Settlement, tx_hash: TxHash, outcome: &'static str, failure: Option<&'static str>) {
    tracing::info!(
        outcome,
        failure,
        settlement.id = %settlement.id(),
        agent.id = %settlement.terms.agent,
        tx.hash = %tx_hash,
        "payment.completed"
    );
}

/// Searches the transaction for the settlement's own transfer, and waits briefly for it to become final. A transaction
/// that the node does not know is only wrong once no block can include it any more.
async fn verify(payments: &Payments, settlement: &Settlement, tx_hash: TxHash) -> Result<Transfer> {
    let expected = Expected::of(&settlement.terms, payments.nonce_key.nonce(settlement.id()));
    let never = |reason| {
        log(settlement, tx_hash, "mismatch", Some(reason));
        Err(ErrorKind::SettlementNotVerified { reason }.into())
    };
    let seen = payments
        .chain
        .await_transfer(&expected, tx_hash, payments.backoff)
        .await;
    let too_late = match seen {
        Ok(Evidence::Pending(Pending::NotMined)) => is_too_late(payments, settlement, tx_hash).await,
        _ => Ok(false),
    };
    match (seen, too_late) {
        (Ok(Evidence::Final(transfer)), _) => Ok(transfer),
        (Ok(Evidence::Mismatch(mismatch)), _) => never(mismatch.reason()),
        (Ok(Evidence::Pending(_)), Ok(true)) => never("transaction_unknown"),
        (Ok(Evidence::Pending(pending)), Ok(false)) => {
            let reason = pending.reason();
            log(settlement, tx_hash, "not_yet", None);
            Err(ErrorKind::SettlementNotYetVerified { reason }.into())
        }
        (Err(error), _) | (_, Err(error)) => {
            const REASON: &str = "chain_unavailable";
            log(settlement, tx_hash, "not_yet", Some(REASON));
            Err(Error::not_yet_verified(REASON, error))
        }
    }
}

/// Whether the chain has shown that a transaction unknown to the node can't pay the settlement any more: earlier, if
/// the settlement is expired; or now. Our clock only says when it is worth asking.
async fn is_too_late(payments: &Payments, settlement: &Settlement, tx_hash: TxHash) -> Result<bool, ChainError> {
    let valid_before = settlement.terms.valid_before;
    match settlement.state {
        SettlementState::Expired => Ok(true),
        SettlementState::Authorized | SettlementState::Confirmed { .. } if payments.clock.now() < valid_before => {
            Ok(false)
        }
        SettlementState::Authorized | SettlementState::Confirmed { .. } => {
            payments.chain.is_too_late_for(tx_hash, valid_before).await
        }
    }
}
