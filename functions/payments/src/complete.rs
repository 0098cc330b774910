//! `POST /x402/settlements/{settlementId}/complete`: proves the transfer on chain and finalizes the receipt.
//!
//! What is always true: a settlement is confirmed only after its exact transfer, carrying its own nonce, was found in
//! a final block; a transaction confirms one settlement. A provider's word is a place to look, never proof. A payment
//! that is not there yet is no failure: the answer says to come back.

use crate::Payments;
use crate::view::{CompleteBody, Completed};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use purser_api::{Caller, Failure};
use purser_chain::Evidence;
use purser_domain::{
    CompleteRequest, Error, ErrorKind, Expected, Result, Settlement, SettlementId, SettlementState, Transfer, TxHash,
};
use purser_store::Confirmed;
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
    caller: Caller,
    Path(settlement): Path<String>,
    body: Bytes,
) -> Result<Json<Completed>, Failure> {
    let request = purser_api::json_body(&body).and_then(|body| CompleteRequest::parse(&body, payments.provider_proof));
    let (_, settlement) = payments
        .enter_for_settlement(caller, SettlementId::parse(&settlement))
        .await?;
    let CompleteRequest { tx_hash } = request?;
    let settlement = settlement.ok_or(ErrorKind::NotFound)?;

    if matches!(&settlement.state, SettlementState::Confirmed { tx_hash: known, .. } if *known == tx_hash) {
        return Ok(Json(Completed::from(&settlement)));
    }
    let transfer = verify(&payments, &settlement, tx_hash).await?;
    match payments
        .ledger
        .confirm(&settlement, &transfer, payments.clock.now())
        .await?
    {
        Confirmed::Done(settlement) => {
            tracing::info!(settlement.id = %settlement.id(), tx.hash = %tx_hash, "payment.confirmed");
            Ok(Json(Completed::from(&settlement)))
        }
        // Nothing expires yet that the chain has not shown to be unusable, so a transfer seen now contradicts it.
        Confirmed::Expired(_) => Err(Error::internal("confirming a settlement", "it has expired").into()),
        Confirmed::Already(settlement) => Ok(Json(Completed::from(&settlement))),
        Confirmed::TransactionUsed { .. } => Err(ErrorKind::SettlementTransactionAlreadyUsed.into()),
    }
}

/// Looks for the settlement's own transfer in that transaction, waiting a moment for it to become final.
async fn verify(payments: &Payments, settlement: &Settlement, tx_hash: TxHash) -> Result<Transfer> {
    let expected = Expected::of(&settlement.terms, payments.nonce_key.nonce(settlement.id()));
    match payments
        .chain
        .await_transfer(&expected, tx_hash, payments.patience)
        .await
    {
        Ok(Evidence::Final(transfer)) => Ok(transfer),
        Ok(Evidence::Mismatch(mismatch)) => Err(ErrorKind::SettlementNotVerified {
            reason: mismatch.reason(),
        }
        .into()),
        Ok(Evidence::Pending(pending)) => Err(ErrorKind::SettlementNotYetVerified {
            reason: pending.reason(),
        }
        .into()),
        Err(error) => Err(Error::not_yet_verified("chain_unavailable", error)),
    }
}
