//! `POST /x402/settlements/{settlementId}/complete`: verifies the transfer on the chain and finalizes the receipt.
//!
//! Invariants: a settlement is confirmed only after the exact transfer, with the settlement's nonce, was found in a
//! final block. A transaction confirms only one settlement. The provider's claim names the transaction to look for and
//! proves nothing.

use crate::authenticate::require_settlement_access;
use crate::view::{CompleteBody, Completed};
use crate::{AppState, Payments};
use axum::Json;
use axum::extract::Path;
use purser_api::{AgentCredentials, Body, CompleteRequest, PAYMENT_RESPONSE, Reply, endpoint};
use purser_chain::{Evidence, Pending};
use purser_domain::{
    Error, ErrorKind, ExpectedTransfer, FailedProofs, Mismatch, Permission, Result, Settlement, SettlementId,
    SettlementState, Transfer, TxHash,
};
use purser_store::{Claim, ConfirmResult};

/// Verify a payment on the chain and finalize its receipt.
#[endpoint(
    post "/x402/settlements/{settlementId}/complete", operation_id = "complete",
    params(("settlementId" = String, Path, description = "The `settlement_id` in the response of `POST /x402/authorize`.")),
    returns = "The confirmed settlement. This request or an earlier request confirmed it.",
    errors(NotFound, SettlementTransactionAlreadyUsed, ProviderProofRequired, SettlementTransactionHashRequired, OnchainSettlementNotVerified, ChainUnavailable)
)]
pub(crate) async fn complete_settlement(
    payments: AppState,
    caller: AgentCredentials,
    Path(settlement): Path<String>,
    body: Body<CompleteBody>,
) -> Reply<Json<Completed>> {
    let request = purser_api::parse_json_body_with_raw_field(body.bytes(), PAYMENT_RESPONSE)
        .and_then(|(body, _)| CompleteRequest::parse(&body, payments.provider_proof));
    let caller = payments
        .authenticate_for_settlement(caller, Some(Permission::Pay), SettlementId::parse(&settlement))
        .await?;
    let CompleteRequest { tx_hash } = request?;
    let (settlement, purchase) = require_settlement_access(&caller)?;
    if settlement.tx_hash() == Some(tx_hash) {
        log_proof_result(settlement, tx_hash, "already", None);
        return Ok(Json(Completed::new(settlement, purchase)));
    }
    let transfer = verify_transfer(&payments, settlement, tx_hash).await?;
    let now = payments.clock.now();
    match payments
        .ledger
        .confirm_settlement(settlement, &transfer, Claim::Transaction, now)
        .await?
    {
        ConfirmResult::Done(confirmed) => {
            log_proof_result(settlement, tx_hash, "confirmed", None);
            Ok(Json(Completed::new(&confirmed, purchase)))
        }
        ConfirmResult::Already(confirmed) => {
            log_proof_result(settlement, tx_hash, "already", None);
            Ok(Json(Completed::new(&confirmed, purchase)))
        }
        ConfirmResult::TransactionUsed { .. } => Err(transaction_already_used_error(settlement, tx_hash).into()),
    }
}

/// Logs the result of completing a settlement. `failure` says why the transaction did not confirm the settlement.
fn log_proof_result(settlement: &Settlement, tx_hash: TxHash, outcome: &'static str, failure: Option<&'static str>) {
    tracing::info!(
        outcome,
        failure,
        settlement.id = %settlement.id(),
        agent.id = %settlement.terms.agent,
        tx.hash = %tx_hash,
        "payment.completed"
    );
}

/// Finds the settlement's own transfer in the transaction, which must be in a final block.
async fn verify_transfer(payments: &Payments, settlement: &Settlement, tx_hash: TxHash) -> Result<Transfer> {
    let (id, terms) = (settlement.id(), &settlement.terms);
    let nonce = payments.nonce_key.derive_existing_nonce(id, terms.nonce_prefix);
    let nonce = nonce.map_err(|error| Error::internal("deriving a payment's nonce", error))?;
    if !settlement.failed_proofs.may_check_transaction(tx_hash) {
        return Err(permanent_proof_error(settlement, tx_hash, FailedProofs::TOO_MANY));
    }
    let evidence = payments
        .chain
        .verify_transfer(&ExpectedTransfer::new(terms, nonce), tx_hash)
        .await;
    match evidence {
        Ok(Evidence::Final(transfer)) => Ok(transfer),
        Ok(Evidence::Mismatch { block, mismatch }) => {
            reject_wrong_transaction(payments, settlement, tx_hash, block.number, mismatch).await
        }
        Ok(Evidence::Pending(pending)) => {
            if pending == Pending::NotMined {
                payments.ledger.record_failed_proof(settlement, tx_hash).await?;
                // The settlement was confirmed by another transaction or has expired, so the chain
                // can no longer accept this transaction.
                if settlement.state != SettlementState::Authorized {
                    return Err(permanent_proof_error(settlement, tx_hash, "transaction_unknown"));
                }
            }
            log_proof_result(settlement, tx_hash, "not_yet", None);
            let (reason, blocks) = (pending.reason(), pending.blocks_to_wait());
            let retry_after = blocks.saturating_mul(payments.network.seconds_per_block());
            Err(ErrorKind::SettlementNotYetVerified { reason, retry_after }.into())
        }
        Err(error) => {
            log_proof_result(settlement, tx_hash, "not_yet", Some("chain_unavailable"));
            Err(Error::chain_unavailable(payments.network.seconds_per_block(), error))
        }
    }
}

/// Returns the error for a transaction that does not confirm the settlement.
async fn reject_wrong_transaction(
    payments: &Payments,
    settlement: &Settlement,
    tx_hash: TxHash,
    block: u64,
    mismatch: Mismatch,
) -> Result<Transfer> {
    payments.ledger.record_failed_proof(settlement, tx_hash).await?;
    match payments
        .ledger
        .find_confirmed_settlement(payments.network, block, tx_hash)
        .await?
    {
        Some(other) if other != settlement.id() => Err(transaction_already_used_error(settlement, tx_hash)),
        _ => Err(permanent_proof_error(settlement, tx_hash, mismatch.name())),
    }
}

fn permanent_proof_error(settlement: &Settlement, tx_hash: TxHash, reason: &'static str) -> Error {
    log_proof_result(settlement, tx_hash, "mismatch", Some(reason));
    ErrorKind::SettlementNotVerified { reason }.into()
}

fn transaction_already_used_error(settlement: &Settlement, tx_hash: TxHash) -> Error {
    log_proof_result(settlement, tx_hash, "transaction_used", Some("transaction_used"));
    ErrorKind::SettlementTransactionAlreadyUsed.into()
}
