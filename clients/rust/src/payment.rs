//! The payment of a call, with its price and its receipt. It is returned with the answer, or in an error.

use crate::answer::{Authorized, ReceiptStatus, Settlement, Warning};
use crate::terms::{provider_proof, provider_receipt};
use crate::{ApiError, IdempotencyKey, Purser, Usdc};
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The default pause between two requests for a receipt, and the longest one.
const PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A payment that was signed for a call.
#[derive(Debug)]
pub struct PaymentMade {
    /// The settlement's id, which names the receipt.
    pub settlement_id: Uuid,
    /// The audit reference.
    pub transaction_id: Uuid,
    /// The `decision_hash` that the signed statement of the decision must have.
    pub decision_hash: Option<String>,
    /// The price.
    pub amount: Usdc,
    /// The price that the catalog lists, if the provider asked for more.
    pub listed: Option<Usdc>,
    /// The payee.
    pub pay_to: String,
    /// The idempotency key under which this call can be repeated.
    pub idempotency_key: IdempotencyKey,
    /// Whether an earlier attempt with this idempotency key was authorized, and this is the payment of that attempt.
    pub replayed: bool,
    /// The reasons that the provider may refuse the payment, such as a very long header.
    pub warnings: Vec<Warning>,
    /// The state of the receipt when Purser was last asked.
    pub receipt: ReceiptState,
    /// The provider's signed objects.
    pub provider: ProviderObjects,
    proof: Option<Value>,
    purser: Purser,
}

/// The provider's signed objects (x402 extension `offer-receipt`) as it sent them, unverified.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderObjects {
    /// The offers of the answer 402.
    pub offers: Vec<Value>,
    /// The receipt of the answer to the paid call.
    pub receipt: Option<Value>,
}

/// The state of a payment that was sent. Only `Expired` means that nothing was paid.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiptState {
    /// The transfer is verified on chain.
    Confirmed(Box<Settlement>),
    /// The chain needs time, or Purser can't be asked. [`PaymentMade::confirm`] asks again.
    Pending {
        /// How long to wait before asking again.
        retry_after: Duration,
        /// Purser's error, or the failure to reach it.
        error: ApiError,
    },
    /// The provider sent no proof (`None`), or one that Purser does not accept. The provider may have taken the
    /// payment: don't pay again. [`PaymentMade::confirm`] reads the receipt, for which Purser searches the chain
    /// itself.
    Unproven(Option<ApiError>),
    /// The payment was never taken, and can no longer be.
    Expired(Box<Settlement>),
}

impl ReceiptState {
    /// Returns `confirmed`, `pending`, `unproven` or `expired`, the same words as in every client.
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
        authorized: &Authorized,
        offers: Vec<Value>,
    ) -> Self {
        Self {
            settlement_id: authorized.settlement_id,
            transaction_id: authorized.transaction_id,
            decision_hash: authorized.decision_hash.clone(),
            amount: authorized.amount_units,
            listed: authorized.listed_amount_units,
            pay_to: authorized.pay_to.clone(),
            idempotency_key,
            replayed: authorized.replayed,
            warnings: authorized.warnings.clone(),
            receipt: ReceiptState::Unproven(None),
            provider: ProviderObjects { offers, receipt: None },
            proof: None,
            purser: purser.clone(),
        }
    }

    /// Completes the settlement with the proof in the provider's answer.
    pub(crate) async fn prove(&mut self, headers: &HeaderMap) {
        self.proof = provider_proof(headers);
        self.provider.receipt = provider_receipt(headers);
        self.complete().await;
    }

    /// Asks Purser until the receipt is `Confirmed` or `Expired`, at most for `most`.
    pub async fn confirm(&mut self, most: Duration) -> &ReceiptState {
        let begun = Instant::now();
        let mut pause = PAUSE;
        while !self.receipt.is_settled() {
            if let ReceiptState::Pending { retry_after, .. } = self.receipt {
                if begun.elapsed().saturating_add(retry_after) > most {
                    break;
                }
                tokio::time::sleep(retry_after).await;
                self.complete().await;
            } else {
                self.look().await;
                let left = most.saturating_sub(begun.elapsed());
                if self.receipt.is_settled() || left.is_zero() {
                    break;
                }
                tokio::time::sleep(pause.min(left)).await;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
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

    /// Reads the receipt, and returns its status; `None` if Purser can't be asked.
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
