//! Waiting for a person's verdict.

use crate::answer::{Approval, ApprovalStatus};
use crate::{ApiError, Paid, PayError, Payer, Purser, Refusal, Request};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long at least from one look to the next, where Purser doesn't wait: at first, and at last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A call that a person has to approve first. Nothing was reserved or paid.
///
/// It may be waited on, dropped, or made again later by repeating the request in the same run: its key is the same.
#[derive(Clone, Debug)]
pub struct PendingApproval {
    pub(crate) purser: Purser,
    pub(crate) request: Request,
    pub(crate) approval_id: Uuid,
    pub(crate) refusal: Box<Refusal>,
}

/// Where an approval stands after a wait.
#[derive(Clone, Debug)]
pub enum Waited {
    /// A person said yes: [`PendingApproval::proceed`].
    Approved(Box<Approval>),
    /// A person said no.
    Rejected(Box<Approval>),
    /// Nobody decided in its time.
    Expired(Box<Approval>),
    /// Nobody has decided yet.
    Pending(Box<Approval>),
}

impl PendingApproval {
    /// The approval's id.
    pub const fn approval_id(&self) -> Uuid {
        self.approval_id
    }

    /// What Purser answered: the amount, the threshold, the checks.
    pub const fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// Waits until a person has decided, `most` at longest.
    pub async fn wait(&self, most: Duration) -> Result<Waited, ApiError> {
        let approval = Box::new(Self::verdict(&self.purser, self.approval_id, most).await?);
        Ok(match approval.status {
            // What was paid already is found again by its key.
            ApprovalStatus::Approved | ApprovalStatus::Executed => Waited::Approved(approval),
            ApprovalStatus::Rejected => Waited::Rejected(approval),
            ApprovalStatus::Expired => Waited::Expired(approval),
            ApprovalStatus::Pending | ApprovalStatus::Other(_) => Waited::Pending(approval),
        })
    }

    /// Any approval of the agent, once a person has decided, or as it stands after `most`. Purser waits; where it answers
    /// at once, it is asked ever more seldom, and no sooner than it says.
    pub async fn verdict(purser: &Purser, approval_id: Uuid, most: Duration) -> Result<Approval, ApiError> {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = Instant::now();
            let found = purser
                .approval_within(approval_id, most.saturating_sub(begun.elapsed()))
                .await;
            let hint = match &found {
                Ok(approval) if approval.status != ApprovalStatus::Pending => return found,
                Ok(_) => Duration::ZERO,
                Err(error) if error.is_passing() => error.retry_after().unwrap_or_default(),
                Err(_) => return found,
            };
            let left = most.saturating_sub(begun.elapsed());
            if left.is_zero() || hint > left {
                return found;
            }
            // Asked once more at the end.
            tokio::time::sleep(hint.max(pause.saturating_sub(asked.elapsed()).min(left))).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the call with the approval.
    pub async fn proceed(self, payer: &Payer) -> Result<Paid, PayError> {
        payer.send(self.request.approved(self.approval_id)).await
    }
}
