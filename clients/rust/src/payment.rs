//! The payment for a call, with its price and its receipt.

use crate::answer::{Authorized, ReceiptStatus, Settlement, Warning};
use crate::terms::{provider_proof, provider_receipt};
use crate::{ApiError, IdempotencyKey, Purser, Usdc};
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The first and the longest pause between two requests for a receipt.
const PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// A payment that was signed for a call.
#[derive(Debug)]
pub struct PaymentMade {
    /// The settlement's id, with which the receipt can be read.
    pub settlement_id: Uuid,
    /// The transaction id, which identifies the decision in the audit log.
    pub transaction_id: Uuid,
    /// The `decision_hash` that the signed statement of the decision must contain.
    pub decision_hash: Option<String>,
    /// The price of the call.
    pub amount: Usdc,
    /// The price in the catalog, if the provider requires more.
    pub listed: Option<Usdc>,
    /// The payee's address.
    pub pay_to: String,
    /// The idempotency key with which this call can be repeated.
    pub idempotency_key: IdempotencyKey,
    /// Whether this is the payment of an earlier attempt with the same idempotency key.
    pub replayed: bool,
    /// Reasons why the provider may reject the payment, for example a very long header.
    pub warnings: Vec<Warning>,
    /// The state of the receipt in Purser's latest response.
    pub receipt: ReceiptState,
    /// The provider's signed objects.
    pub provider: ProviderObjects,
    proof: Option<Value>,
    purser: Purser,
}

/// The provider's signed objects (x402 extension `offer-receipt`). This client does not verify the signatures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderObjects {
    /// The signed offers in the provider's 402 response.
    pub offers: Vec<Value>,
    /// The signed receipt in the response to the paid call.
    pub receipt: Option<Value>,
}

/// The state of a payment that was sent to the provider. Only `Expired` means that nothing was paid.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiptState {
    /// Purser has verified the transfer on chain.
    Confirmed(Box<Settlement>),
    /// The transfer is not on chain yet, or Purser is unavailable. Call [`PaymentMade::confirm`] to try again.
    Pending {
        /// The time to wait before the next attempt.
        retry_after: Duration,
        /// Purser's error, or the connection error.
        error: ApiError,
    },
    /// The provider sent no settlement header (`None`), or Purser rejected the header. Don't pay again, because the
    /// provider may have taken the payment. [`PaymentMade::confirm`] reads the receipt, because Purser also searches
    /// the chain for the transfer.
    Unproven(Option<ApiError>),
    /// The payment was not used before it expired, so nothing was paid.
    Expired(Box<Settlement>),
}

impl ReceiptState {
    /// Returns `confirmed`, `pending`, `unproven` or `expired`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Confirmed(_) => "confirmed",
            Self::Pending { .. } => "pending",
            Self::Unproven(_) => "unproven",
            Self::Expired(_) => "expired",
        }
    }

    /// Returns whether the state is `Confirmed` or `Expired`, which are final.
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Confirmed(_) | Self::Expired(_))
    }
}

impl PaymentMade {
    pub(crate) fn from_authorized(
        purser: &Purser,
        idempotency_key: IdempotencyKey,
        authorization: &Authorized,
        offers: Vec<Value>,
    ) -> Self {
        Self {
            settlement_id: authorization.settlement_id,
            transaction_id: authorization.transaction_id,
            decision_hash: authorization.decision_hash.clone(),
            amount: authorization.amount_units,
            listed: authorization.listed_amount_units,
            pay_to: authorization.pay_to.clone(),
            idempotency_key,
            replayed: authorization.replayed,
            warnings: authorization.warnings.clone(),
            receipt: ReceiptState::Unproven(None),
            provider: ProviderObjects { offers, receipt: None },
            proof: None,
            purser: purser.clone(),
        }
    }

    /// Completes the settlement with the settlement header of the provider's response.
    pub(crate) async fn prove(&mut self, headers: &HeaderMap) {
        self.proof = provider_proof(headers);
        self.provider.receipt = provider_receipt(headers);
        self.complete().await;
    }

    /// Requests the receipt repeatedly until it is `Confirmed` or `Expired`, but not longer than `max_wait`.
    pub async fn confirm(&mut self, max_wait: Duration) -> &ReceiptState {
        let start = Instant::now();
        let mut pause = PAUSE;
        while !self.receipt.is_settled() {
            if let ReceiptState::Pending { retry_after, .. } = self.receipt {
                if start.elapsed().saturating_add(retry_after) > max_wait {
                    break;
                }
                tokio::time::sleep(retry_after).await;
                self.complete().await;
            } else {
                self.look().await;
                let remaining = max_wait.saturating_sub(start.elapsed());
                if self.receipt.is_settled() || remaining.is_zero() {
                    break;
                }
                tokio::time::sleep(pause.min(remaining)).await;
                pause = pause.saturating_mul(2).min(MAX_PAUSE);
            }
        }
        &self.receipt
    }

    async fn complete(&mut self) {
        let Some(proof) = &self.proof else { return };
        self.receipt = match self.purser.complete(self.settlement_id, proof, None).await {
            Ok(completed) => ReceiptState::Confirmed(Box::new(completed.settlement)),
            Err(error) if error.is_passing() => ReceiptState::Pending {
                retry_after: error.retry_after().unwrap_or(PAUSE),
                error,
            },
            Err(error) => ReceiptState::Unproven(Some(error)),
        };
    }

    /// Reads the receipt and returns the status, or `None` if Purser is unavailable.
    pub(crate) async fn look(&mut self) -> Option<ReceiptStatus> {
        if let ReceiptState::Confirmed(settlement) = &self.receipt {
            return Some(settlement.receipt_status.clone());
        }
        let settlement = self.purser.receipt(self.settlement_id).await.ok()?;
        let status = settlement.receipt_status.clone();
        match status {
            ReceiptStatus::Confirmed => self.receipt = ReceiptState::Confirmed(Box::new(settlement)),
            ReceiptStatus::Expired => self.receipt = ReceiptState::Expired(Box::new(settlement)),
            ReceiptStatus::Authorized | ReceiptStatus::Other(_) => {}
        }
        Some(status)
    }
}
