//! An authorize call's request, and the functions that decisions, replays and rejections share.

use crate::Payments;
use crate::attest::custody_error;
use axum::response::Response;
use purser_api::AuthorizeRequest;
use purser_chain::Signer;
use purser_domain::{
    Agent, Amount, CallDescription, Catalog, CatalogMatch, DocumentHash, Error, KeyId, Offer, PaymentHeader,
    PaymentTerms, Result, SettlementTerms, Timestamp, TransferAuthorization, allow_decision_hash,
};
use serde_json::{Value, value::RawValue};
use std::sync::Arc;

pub(crate) enum Attempt {
    /// The call is complete, with this response. A rejected call returns an error instead.
    Done(Response),
    /// The inputs changed, so the decision must be made again. Nothing was reserved.
    Retry,
}

/// One authorize call of an authenticated agent.
#[derive(Clone, Copy)]
pub(crate) struct Authorizing<'a> {
    pub(crate) payments: &'a Arc<Payments>,
    pub(crate) request: &'a AuthorizeRequest,
    pub(crate) body: &'a Value,
    /// The provider's payment requirements in their original form, for the payment header.
    pub(crate) requirement: &'a RawValue,
    pub(crate) catalog: &'a Catalog,
    pub(crate) started: Timestamp,
    /// The caller's key, which is stored with every decision.
    pub(crate) key: KeyId,
}

impl Payments {
    /// Returns the signer for the agent's wallet, after verifying the wallet's attestation.
    pub(crate) fn wallet_signer(&self, agent: &Agent) -> Result<Signer<'_>> {
        let signer = self.custody.signer(agent.id, &agent.wallet);
        signer.map_err(|error| custody_error("finding a wallet's key", error))
    }
}

impl Authorizing<'_> {
    /// Returns the catalog's current price, or `None` if the operation is no longer in the catalog.
    pub(crate) fn catalog_price(&self) -> Option<Amount> {
        let catalog_match = CatalogMatch::find_in_catalog(&self.request.intent, self.catalog).ok()?;
        Some(catalog_match.operation?.expected_price(self.started))
    }

    /// Computes the hash that the statement of the allowed call will contain.
    pub(crate) fn allow_decision_hash(&self, terms: &SettlementTerms) -> Option<DocumentHash> {
        let call = CallDescription::new(&self.request.intent, None, terms.network, terms.authorized_at);
        allow_decision_hash(terms, call)
    }

    /// Signs the settlement's payment, always with the same nonce. A different nonce would be a second payment.
    pub(crate) async fn sign_payment(
        &self,
        signer: &Signer<'_>,
        terms: &PaymentTerms,
        offer: &Offer,
    ) -> Result<PaymentHeader> {
        let nonce = self
            .payments
            .nonce_key
            .derive_existing_nonce(terms.settlement, terms.nonce_prefix);
        let nonce = nonce.map_err(|error| Error::internal("signing a payment", error))?;
        let authorization = TransferAuthorization::new(terms, nonce);
        let signature = signer.sign(terms.network, &authorization).await;
        let signature = signature.map_err(|error| custody_error("signing a payment", error))?;
        Ok(PaymentHeader::new(
            offer,
            self.requirement,
            terms.network,
            &authorization,
            signature,
        ))
    }

    pub(crate) fn latency_ms(&self) -> u64 {
        self.payments.clock.now().since(self.started).millis()
    }
}
