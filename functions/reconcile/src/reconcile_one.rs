//! Reconciles one settlement: reads its state on the chain, decides, and writes.
//!
//! Always true: every write follows from a decision of the domain, on evidence at the run's one final block; and the
//! ledger's conditions guard it, so that two concurrent runs, or a run and a `complete`, change a settlement once.

use crate::{Shared, run::Outcome};
use purser_domain::{
    AuthorizationState, Expected, FinalBlock, Mismatch, Reconciliation, Result, Settlement, TransactionId, Transfer,
    TxHash, reconcile,
};
use purser_store::{Confirmed, Moved};
use std::time::Duration;
use tokio::time::timeout;

/// The time for reading the chain: enough for five calls, even if the node answers each just before its timeout.
pub(crate) const LONGEST_RECONCILE: Duration = Duration::from_secs(10);

/// An outcome, and its details for the log.
struct Step {
    outcome: Outcome,
    reason: Option<&'static str>,
    tx_hash: Option<TxHash>,
}

impl From<Outcome> for Step {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            reason: None,
            tx_hash: None,
        }
    }
}

impl Shared {
    /// Reconciles a settlement, writes the result, and logs and returns every outcome.
    pub(crate) async fn reconcile_one(&self, settlement: Settlement, block: &FinalBlock) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        if let Err(error) = self.try_look(&settlement, block, &mut outcomes).await {
            tracing::error!(settlement.id = %settlement.id(), cause = %error, "reconcile.failed");
            note(&mut outcomes, &settlement, &failed("ledger_unavailable"));
        }
        outcomes
    }

    async fn try_look(&self, settlement: &Settlement, block: &FinalBlock, outcomes: &mut Vec<Outcome>) -> Result<()> {
        let expected = Expected::of(&settlement.terms, self.nonce_key.nonce(settlement.id()));
        let authorization_state = self
            .chain
            .authorization_state(settlement, &expected, block, self.log_range);
        let authorization_state = match timeout(LONGEST_RECONCILE, authorization_state).await {
            Ok(Ok(authorization_state)) => authorization_state,
            // Its cause is logged separately.
            Ok(Err(_)) => {
                note(outcomes, settlement, &failed("chain_unavailable"));
                return Ok(());
            }
            Err(_) => {
                note(outcomes, settlement, &failed("chain_too_slow"));
                return Ok(());
            }
        };
        let mut settlement = settlement.clone();
        loop {
            let step: Step = match reconcile(&settlement, &expected, block, &authorization_state) {
                Reconciliation::Confirm(transfer) => self.confirm(&settlement, &transfer).await?,
                Reconciliation::Release(unusable) => match self.ledger.release(&settlement, &unusable).await? {
                    Moved::Done(_) => Outcome::Released.into(),
                    Moved::Superseded(_) => Outcome::Superseded.into(),
                },
                Reconciliation::RevertConfirmation(transfer_gone) => {
                    let now = self.clock.now();
                    let decision = TransactionId::at(now, self.entropy.bytes()?);
                    match self
                        .ledger
                        .revert_confirmation(&settlement, &transfer_gone, decision, now)
                        .await?
                    {
                        Moved::Done(held) => {
                            let tx_hash = Some(transfer_gone.tx_hash());
                            let outcome = Outcome::ConfirmationReverted;
                            note(
                                outcomes,
                                &settlement,
                                &Step {
                                    tx_hash,
                                    ..outcome.into()
                                },
                            );
                            // It is a hold like any other now, and reconciled as one.
                            settlement = held;
                            continue;
                        }
                        Moved::Superseded(_) => Outcome::Superseded.into(),
                    }
                }
                Reconciliation::StillPaid(transfer) if self.is_deep(transfer.block_number(), block) => {
                    self.ledger.stop_watching(&settlement).await?;
                    Outcome::WatchedOut.into()
                }
                Reconciliation::StillPaid(_) | Reconciliation::StillUnpaid => Outcome::Unchanged.into(),
                Reconciliation::NotYet => Outcome::NotYet.into(),
                Reconciliation::Contradicted(mismatch) => contradicted(mismatch, &authorization_state),
                Reconciliation::Untraced => Outcome::Untraced.into(),
            };
            note(outcomes, &settlement, &step);
            return Ok(());
        }
    }

    async fn confirm(&self, settlement: &Settlement, transfer: &Transfer) -> Result<Step> {
        let confirmed = self.ledger.confirm(settlement, transfer, self.clock.now()).await?;
        let outcome = match confirmed {
            Confirmed::Done(_) => Outcome::Confirmed,
            Confirmed::Already(_) => Outcome::Superseded,
            Confirmed::TransactionUsed { .. } => Outcome::TransactionUsed,
        };
        let tx_hash = Some(transfer.tx_hash());
        Ok(Step {
            tx_hash,
            ..outcome.into()
        })
    }
}

const fn failed(reason: &'static str) -> Step {
    Step {
        outcome: Outcome::Failed,
        reason: Some(reason),
        tx_hash: None,
    }
}

fn contradicted(mismatch: Mismatch, authorization_state: &AuthorizationState) -> Step {
    let tx_hash = match authorization_state {
        AuthorizationState::Used(receipt) => Some(receipt.tx_hash),
        AuthorizationState::Unused | AuthorizationState::UsedUntraced => None,
    };
    Step {
        outcome: Outcome::Contradicted,
        reason: Some(mismatch.reason()),
        tx_hash,
    }
}

/// One line for each outcome, at a level that hides those that occur every minute.
fn note(outcomes: &mut Vec<Outcome>, settlement: &Settlement, step: &Step) {
    outcomes.push(step.outcome);
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                outcome = step.outcome.name(),
                reason = step.reason,
                settlement.id = %settlement.id(),
                agent.id = %settlement.terms.agent,
                tx.hash = step.tx_hash.map(tracing::field::display),
                "reconcile.settlement"
            )
        };
    }
    match step.outcome {
        Outcome::NotYet | Outcome::Unchanged => line!(debug),
        Outcome::Confirmed | Outcome::Released | Outcome::WatchedOut | Outcome::Superseded => line!(info),
        Outcome::ConfirmationReverted | Outcome::Untraced | Outcome::TransactionUsed | Outcome::Failed => line!(warn),
        Outcome::Contradicted => line!(error),
    }
}
