//! Reconciles a batch of settlements: reads the chain, decides on each settlement, and writes.
//!
//! Invariants: every write follows from the chain's state at one final block, the same for the whole run.
//! Each write is conditional, so concurrent runs, or a run and a concurrent `complete`, change a settlement
//! once. A settlement that the node sends no data for stays unchanged and does not delay other settlements.

use crate::{Inner, run::Outcome};
use purser_api::run_with_concurrency_limit;
use purser_chain::Authorization;
use purser_domain::{
    AuthorizationState, Error, ErrorKind, FinalBlock, Mismatch, Reconciliation, Result, Settlement, SettlementState,
    TransactionId, Transfer, TxHash, decide_reconciliation,
};
use purser_store::{Claim, ConfirmResult, TransitionResult};
use std::sync::Arc;
use tokio::time::Instant;

/// The number of settlements in a batch, and the maximum number of nonces in one call to the node.
pub(crate) const BATCH: usize = 500;
const MAX_CONCURRENT_WRITES: usize = 32;

/// Why settlements are reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No later block can accept the settlements' authorizations, or an operator requested the reconciliation.
    Due,
    /// The block with the settlements' confirmations is no longer on the chain.
    Reorganized,
}

pub(crate) struct ReconciledSettlement {
    pub(crate) settlement: Settlement,
    /// The outcomes in chronological order.
    pub(crate) outcomes: Vec<Outcome>,
    /// Whether the settlement's nonce could be derived. Without it, the payment can't be found on the chain.
    pub(crate) has_nonce: bool,
}

impl ReconciledSettlement {
    pub(crate) fn has_failed(&self) -> bool {
        self.outcomes.contains(&Outcome::Failed)
    }
}

struct LoggedOutcome {
    outcome: Outcome,
    reason: Option<&'static str>,
    tx_hash: Option<TxHash>,
}

impl From<Outcome> for LoggedOutcome {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            reason: None,
            tx_hash: None,
        }
    }
}

impl Inner {
    /// Reconciles these settlements, in any order. No chain call is made after `deadline`, but results are written.
    ///
    /// The result omits a settlement whose task panicked.
    pub(crate) async fn reconcile_settlements(
        self: &Arc<Self>,
        settlements: Vec<Settlement>,
        block: &FinalBlock,
        cause: Cause,
        deadline: Instant,
    ) -> Vec<ReconciledSettlement> {
        let (known, mut done) = self.derive_authorizations(settlements);
        let authorizations: Vec<Authorization> = known.iter().map(|(_, authorization)| *authorization).collect();
        let states = self
            .chain
            .read_authorization_states(&authorizations, block, self.log_range, deadline)
            .await;
        let states = self
            .cross_check_authorization_states(&known, states, block, deadline)
            .await;
        let unknown = if Instant::now() > deadline {
            "out_of_time"
        } else {
            "chain_unavailable"
        };
        let writes = known
            .into_iter()
            .zip(states)
            .map(|((settlement, authorization), state)| {
                let (shared, block) = (Arc::clone(self), *block);
                async move {
                    let outcomes = match state {
                        Some(state) => {
                            shared
                                .apply_reconciliation(&settlement, &authorization, &block, &state, cause)
                                .await
                        }
                        None => log_and_return_unknown_state_outcome(&settlement, unknown),
                    };
                    ReconciledSettlement {
                        settlement,
                        outcomes,
                        has_nonce: true,
                    }
                }
            });
        done.extend(run_with_concurrency_limit(MAX_CONCURRENT_WRITES, writes).await);
        done
    }

    /// Derives the authorizations. The second list has settlements whose nonce was derived with another key.
    fn derive_authorizations(
        &self,
        settlements: Vec<Settlement>,
    ) -> (Vec<(Settlement, Authorization)>, Vec<ReconciledSettlement>) {
        let (mut known, mut failed) = (Vec::with_capacity(settlements.len()), Vec::new());
        for settlement in settlements {
            let prefix = settlement.terms.nonce_prefix;
            match self.nonce_key.derive_existing_nonce(settlement.id(), prefix) {
                Ok(nonce) => {
                    let authorization = Authorization::for_settlement(&settlement, nonce);
                    known.push((settlement, authorization));
                }
                Err(error) => {
                    tracing::error!(settlement.id = %settlement.id(), cause = %error, "reconcile.failed");
                    let mut outcomes = Vec::new();
                    push_and_log_outcome(&mut outcomes, &settlement, &failed_outcome("nonce_key_changed"));
                    failed.push(ReconciledSettlement {
                        settlement,
                        outcomes,
                        has_nonce: false,
                    });
                }
            }
        }
        (known, failed)
    }

    /// Decides what happens to a settlement, writes and logs each outcome, and returns the outcomes.
    async fn apply_reconciliation(
        &self,
        settlement: &Settlement,
        authorization: &Authorization,
        block: &FinalBlock,
        state: &AuthorizationState,
        cause: Cause,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let written = self.write_reconciliation(settlement, authorization, block, state, cause, &mut outcomes);
        if let Err(error) = written.await {
            tracing::error!(settlement.id = %settlement.id(), cause = %error, "reconcile.failed");
            // The error was already logged with the details.
            let reason = if matches!(error.kind(), ErrorKind::TemporarilyUnavailable { .. }) {
                "ledger_unavailable"
            } else {
                "write_failed"
            };
            push_and_log_outcome(&mut outcomes, settlement, &failed_outcome(reason));
        }
        outcomes
    }

    async fn write_reconciliation(
        &self,
        settlement: &Settlement,
        authorization: &Authorization,
        block: &FinalBlock,
        state: &AuthorizationState,
        cause: Cause,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<()> {
        let mut settlement = settlement.clone();
        loop {
            let step: LoggedOutcome = match decide_reconciliation(&settlement, &authorization.expected, block, state) {
                Reconciliation::Confirm(transfer) => self.confirm_settlement(&settlement, &transfer).await?,
                Reconciliation::Release(unusable) => match self.ledger.release_hold(&settlement, &unusable).await? {
                    TransitionResult::Done(_) => Outcome::Released.into(),
                    TransitionResult::Superseded(_) => Outcome::Superseded.into(),
                },
                Reconciliation::RevertConfirmation(transfer_gone) => {
                    let now = self.clock.now();
                    let decision = TransactionId::new_at(now, self.entropy.random_bytes()?);
                    let reverted = self
                        .ledger
                        .revert_confirmation(&settlement, &transfer_gone, decision, now);
                    match reverted.await? {
                        TransitionResult::Done(held) => {
                            let step = LoggedOutcome {
                                tx_hash: Some(transfer_gone.tx_hash()),
                                ..Outcome::ConfirmationReverted.into()
                            };
                            push_and_log_outcome(outcomes, &settlement, &step);
                            // The settlement is held again and is reconciled like any other hold.
                            settlement = held;
                            continue;
                        }
                        TransitionResult::Superseded(_) => Outcome::Superseded.into(),
                    }
                }
                Reconciliation::StillPaid(_) if cause == Cause::Due => Outcome::Unchanged.into(),
                Reconciliation::StillPaid(transfer) | Reconciliation::PaidInAnotherBlock(transfer) => {
                    self.ledger.update_confirmation_block(&settlement, &transfer).await?;
                    LoggedOutcome {
                        tx_hash: Some(transfer.tx_hash()),
                        ..Outcome::BlockChanged.into()
                    }
                }
                Reconciliation::StillUnpaid => Outcome::Unchanged.into(),
                Reconciliation::NotYet => Outcome::NotYet.into(),
                Reconciliation::Contradicted(mismatch) => contradicted_outcome(mismatch, state),
                Reconciliation::Untraced => Outcome::Untraced.into(),
            };
            push_and_log_outcome(outcomes, &settlement, &step);
            return Ok(());
        }
    }

    async fn confirm_settlement(&self, settlement: &Settlement, transfer: &Transfer) -> Result<LoggedOutcome> {
        let now = self.clock.now();
        let confirmed = self
            .ledger
            .confirm_settlement(settlement, transfer, Claim::Transfer, now)
            .await?;
        let outcome = match confirmed {
            ConfirmResult::Done(_) => Outcome::Confirmed,
            ConfirmResult::Already(_) => Outcome::Superseded,
            // The transfer has the settlement's own nonce, so another settlement can't have claimed it.
            ConfirmResult::TransactionUsed { .. } => {
                return Err(Error::internal(
                    "claiming a transfer",
                    "another settlement has claimed the transfer",
                ));
            }
        };
        let tx_hash = Some(transfer.tx_hash());
        Ok(LoggedOutcome {
            tx_hash,
            ..outcome.into()
        })
    }
}

/// Returns whether the settlement was held when it was read.
pub(crate) fn is_held(settlement: &Settlement) -> bool {
    settlement.state == SettlementState::Authorized
}

/// Logs and returns the outcome for a settlement that the node sent no data for.
fn log_and_return_unknown_state_outcome(settlement: &Settlement, reason: &'static str) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    push_and_log_outcome(&mut outcomes, settlement, &failed_outcome(reason));
    outcomes
}

const fn failed_outcome(reason: &'static str) -> LoggedOutcome {
    LoggedOutcome {
        outcome: Outcome::Failed,
        reason: Some(reason),
        tx_hash: None,
    }
}

fn contradicted_outcome(mismatch: Mismatch, state: &AuthorizationState) -> LoggedOutcome {
    let tx_hash = match state {
        AuthorizationState::Used(transaction) => Some(transaction.tx_hash),
        AuthorizationState::Unused | AuthorizationState::UsedUntraced => None,
    };
    LoggedOutcome {
        outcome: Outcome::Contradicted,
        reason: Some(mismatch.name()),
        tx_hash,
    }
}

/// Logs and adds an outcome. Outcomes that occur every minute are hidden by default.
fn push_and_log_outcome(outcomes: &mut Vec<Outcome>, settlement: &Settlement, step: &LoggedOutcome) {
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
        Outcome::Confirmed | Outcome::Released | Outcome::BlockChanged | Outcome::Superseded => line!(info),
        Outcome::ConfirmationReverted | Outcome::Untraced | Outcome::Failed => line!(warn),
        Outcome::Contradicted => line!(error),
    }
}
