//! Waits until a user has decided about an approval.

use crate::answer::{Approval, ApprovalStatus};
use crate::{ApiError, Paid, PayError, Payer, Purser, Refusal, Request};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The first and the longest pause between two requests for an approval. The pause doubles after each request.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// A call that needs an approval. Nothing was reserved or paid.
///
/// Repeating the request later in the same run uses the same idempotency key.
#[derive(Clone, Debug)]
pub struct PendingApproval {
    pub(crate) purser: Purser,
    pub(crate) request: Request,
    pub(crate) approval_id: Uuid,
    pub(crate) refusal: Box<Refusal>,
}

/// The result of waiting for an approval.
#[derive(Clone, Debug)]
pub enum WaitResult {
    /// A user approved the call. Continue with [`PendingApproval::proceed`].
    Approved(Box<Approval>),
    /// A user rejected the call.
    Rejected(Box<Approval>),
    /// The approval expired before a user decided.
    Expired(Box<Approval>),
    /// No user has decided yet.
    Pending(Box<Approval>),
}

impl PendingApproval {
    /// Returns the approval's id.
    pub const fn approval_id(&self) -> Uuid {
        self.approval_id
    }

    /// Returns Purser's error response, which contains the amount, the threshold and the checks.
    pub const fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// Waits until a user has decided, but not longer than `max_wait`.
    pub async fn wait(&self, max_wait: Duration) -> Result<WaitResult, ApiError> {
        let approval = Box::new(Self::verdict(&self.purser, self.approval_id, max_wait).await?);
        Ok(match approval.status {
            // An `executed` approval was already used. A repeated call with the same key returns the payment.
            ApprovalStatus::Approved | ApprovalStatus::Executed => WaitResult::Approved(approval),
            ApprovalStatus::Rejected => WaitResult::Rejected(approval),
            ApprovalStatus::Expired => WaitResult::Expired(approval),
            ApprovalStatus::Pending | ApprovalStatus::Other(_) => WaitResult::Pending(approval),
        })
    }

    /// Returns an approval of the agent once it is decided, or the current state after `max_wait`.
    pub async fn verdict(purser: &Purser, approval_id: Uuid, max_wait: Duration) -> Result<Approval, ApiError> {
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let request = Instant::now();
            let found = purser
                .approval_within(approval_id, max_wait.saturating_sub(start.elapsed()))
                .await;
            let hint = match &found {
                Ok(approval) if approval.status != ApprovalStatus::Pending => return found,
                Ok(_) => Duration::ZERO,
                Err(error) if error.is_passing() => error.retry_after().unwrap_or_default(),
                Err(_) => return found,
            };
            let remaining = max_wait.saturating_sub(start.elapsed());
            if remaining.is_zero() || hint > remaining {
                return found;
            }
            // The pause ends with the wait at the latest, so that the last request is made at that time.
            tokio::time::sleep(hint.max(pause.saturating_sub(request.elapsed()).min(remaining))).await;
            pause = pause.saturating_mul(2).min(MAX_PAUSE);
        }
    }

    /// Repeats the call with the approval's id.
    pub async fn proceed(self, payer: &Payer) -> Result<Paid, PayError> {
        payer.send(self.request.with_approval(self.approval_id)).await
    }
}
