//! Attests the wallet of a new agent, with a signature by the wallet's own key.
//!
//! Invariant: an agent has one wallet, and a wallet has one agent. Rows that only the Lambda function `payments` can
//! write bind them before the attestation is signed. [`Custody::signer`] verifies the attestation before each
//! signature, so another function cannot assign a wallet to a different agent.
//!
//! [`Custody::signer`]: purser_chain::Custody::signer

use crate::AppState;
use axum::Json;
use purser_api::{AttestWallet, AttestedWallet, Body, Reply, RequestedWallet};
use purser_chain::{CustodyError, NewKey};
use purser_domain::{Error, ValidationError};
use purser_store::WalletClaim;

const ATTESTING: &str = "attesting a wallet";

/// Handles a direct request for the wallet of a new agent.
pub(crate) async fn attest_wallet(payments: AppState, body: Body<AttestWallet>) -> Reply<Json<AttestedWallet>> {
    // Omits the parser's message, which may repeat parts of the request.
    let unknown = |_| Error::invalid(vec![ValidationError::at_path("", "must be a known request")]);
    let request: AttestWallet = serde_json::from_slice(body.bytes()).map_err(unknown)?;
    let key = match request.wallet {
        RequestedWallet::Seed { index } => NewKey::Seed(index),
        RequestedWallet::Kms { key_id } => NewKey::Kms(key_id),
    };
    let agent = request.agent_id;
    let failed = |error| custody_error(ATTESTING, error);
    let rejected = |reason: &str| Err(Error::internal(ATTESTING, reason).into());
    let wallet = payments.custody.wallet_for_new_key(key).await.map_err(failed)?;
    match payments.ledger.claim_wallet(agent, wallet.address()).await? {
        WalletClaim::Granted => {}
        WalletClaim::OtherAgent => return rejected("the wallet belongs to another agent"),
        WalletClaim::OtherWallet => return rejected("the agent has another wallet"),
    }
    Ok(Json(AttestedWallet::new(&wallet.attest(agent).await.map_err(failed)?)))
}

/// Converts a custody error into an error response. Temporary errors are retryable.
pub(crate) fn custody_error(operation: &'static str, error: CustodyError) -> Error {
    if error.is_temporary() {
        Error::temporarily_unavailable(operation, error)
    } else {
        Error::internal(operation, error)
    }
}
