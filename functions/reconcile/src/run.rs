//! The result of a run of the function `reconcile`.

use purser_domain::{Duration as Length, Error, Result};

purser_domain::named! {
/// The outcome of reconciling one settlement. The outcome's name is in log lines and metrics.
    Outcome {
    /// The payment is confirmed.
        Confirmed = "confirmed",
    /// The payment can no longer happen, and the reserved amount was released.
        Released = "released",
    /// The confirmation was reverted, and the settlement is held again.
        ConfirmationReverted = "taken_back",
    /// The chain has moved the payment's transaction to another block. The settlement stays confirmed.
        BlockChanged = "block_changed",
    /// The final block is too early to show whether the payment was made. A later run checks the settlement again.
        NotYet = "not_yet",
    /// The settlement's stored state is still correct.
        Unchanged = "unchanged",
    /// Another process changed the settlement concurrently.
        Superseded = "superseded",
    /// The authorization was used, but the transaction was not found.
        Untraced = "untraced",
    /// The authorization was used, but not for the expected transfer.
        Contradicted = "contradicted",
    /// The chain or the ledger could not be reached.
        Failed = "failed",
    }
}

impl Outcome {
    /// Returns whether a later run must read the chain again. A contradicted payment waits for an operator instead.
    pub(crate) const fn waits_for_chain(self) -> bool {
        match self {
            Self::NotYet | Self::Untraced | Self::Failed => true,
            Self::Confirmed
            | Self::Released
            | Self::ConfirmationReverted
            | Self::BlockChanged
            | Self::Unchanged
            | Self::Superseded
            | Self::Contradicted => false,
        }
    }
}

/// The outcomes of a run of the function `reconcile`, and the due holds that remain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    outcomes: Vec<Outcome>,
    /// The time from the `validBefore` of the oldest waiting hold to the time of the final block.
    pub lag: Length,
    /// The number of due holds for which the chain does not show yet whether the payment was made.
    pub waiting: usize,
    /// Whether all due holds were processed.
    pub is_complete: bool,
}

impl Run {
    /// Returns the number of settlements with this outcome.
    pub fn count_outcome(&self, outcome: Outcome) -> usize {
        self.outcomes.iter().filter(|seen| **seen == outcome).count()
    }

    /// Returns all outcomes. A settlement with a reverted confirmation has two outcomes.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Logs the run in one line. Rare outcomes have their own lines.
    pub(crate) fn log_run(&self) {
        tracing::info!(
            looks = self.outcomes.len(),
            confirmed = self.count_outcome(Outcome::Confirmed),
            released = self.count_outcome(Outcome::Released),
            waiting = self.waiting,
            failed = self.count_outcome(Outcome::Failed),
            lag_seconds = self.lag.secs(),
            complete = self.is_complete,
            "reconcile.run"
        );
    }
}

/// The result of a step of a run. A failed step keeps the outcomes from before the failure.
#[derive(Debug)]
pub(crate) struct Step {
    run: Run,
    error: Option<Error>,
}

impl Step {
    pub(crate) const fn new() -> Self {
        Self {
            run: Run {
                outcomes: Vec::new(),
                lag: Length::from_secs_u32(0),
                waiting: 0,
                is_complete: true,
            },
            error: None,
        }
    }

    pub(crate) fn mark_incomplete(mut self) -> Self {
        self.run.is_complete = false;
        self
    }

    /// Marks the step as failed and incomplete. The step keeps the first error.
    pub(crate) fn mark_failed(mut self, error: Error) -> Self {
        self.error = self.error.or(Some(error));
        self.mark_incomplete()
    }

    pub(crate) fn combine(mut self, other: Self) -> Self {
        self.run.outcomes.extend(other.run.outcomes);
        self.run.lag = self.run.lag.max(other.run.lag);
        self.run.waiting = self.run.waiting.saturating_add(other.run.waiting);
        self.run.is_complete &= other.run.is_complete;
        self.error = self.error.or(other.error);
        self
    }

    pub(crate) fn with_outcomes(mut self, outcomes: &[Outcome]) -> Self {
        self.run.outcomes.extend_from_slice(outcomes);
        self
    }

    /// Counts a due hold whose payment the chain does not show yet. `age` is how long the hold has been due.
    pub(crate) fn count_overdue_hold(mut self, age: Length) -> Self {
        self.run.waiting = self.run.waiting.saturating_add(1);
        self.run.lag = self.run.lag.max(age);
        self
    }

    /// Returns the readable rows. Each unreadable row is logged and counted as failed.
    pub(crate) fn collect_rows_and_count_failures<T>(&mut self, rows: impl IntoIterator<Item = Result<T>>) -> Vec<T> {
        let mut read = Vec::new();
        for row in rows {
            match row {
                Ok(row) => read.push(row),
                Err(error) => {
                    tracing::error!(cause = %error, "reconcile.failed");
                    self.run.outcomes.push(Outcome::Failed);
                }
            }
        }
        read
    }

    pub(crate) const fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    pub(crate) fn log_failure(&self) {
        if let Some(failure) = &self.error {
            tracing::error!(cause = %failure, "reconcile.failed");
        }
    }

    /// Returns whether the step left no work for the next run.
    pub(crate) const fn is_complete(&self) -> bool {
        self.run.is_complete
    }

    /// Converts the only step of a run to the run's result and the step's error.
    pub(crate) fn into_run_and_error(self) -> (Run, Option<Error>) {
        (self.run, self.error)
    }
}
