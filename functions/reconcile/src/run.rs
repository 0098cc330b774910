//! The result of a run.

use purser_domain::{Duration as Length, Error, Result};

/// The outcome of reconciling one settlement. Each has a name in the log and in the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Paid and confirmed.
    Confirmed,
    /// It can no longer be paid; the spend was released.
    Released,
    /// Its confirmation was reverted: it is held again.
    ConfirmationReverted,
    /// Its transaction is now in another block; it stays confirmed.
    BlockChanged,
    /// Not decidable yet.
    NotYet,
    /// The stored state is still correct.
    Unchanged,
    /// It was changed concurrently.
    Superseded,
    /// Its authorization was used, but the transaction was not found.
    Untraced,
    /// Its authorization was used, but not for its payment.
    Contradicted,
    /// The chain or the ledger could not be reached.
    Failed,
}

impl Outcome {
    /// Every outcome, for tables.
    pub const ALL: [Self; 10] = [
        Self::Confirmed,
        Self::Released,
        Self::ConfirmationReverted,
        Self::BlockChanged,
        Self::NotYet,
        Self::Unchanged,
        Self::Superseded,
        Self::Untraced,
        Self::Contradicted,
        Self::Failed,
    ];

    /// Its name in the log and in the metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Released => "released",
            Self::ConfirmationReverted => "taken_back",
            Self::BlockChanged => "block_changed",
            Self::NotYet => "not_yet",
            Self::Unchanged => "unchanged",
            Self::Superseded => "superseded",
            Self::Untraced => "untraced",
            Self::Contradicted => "contradicted",
            Self::Failed => "failed",
        }
    }

    /// Whether a hold with this outcome still waits for the chain. A hold whose payment the chain contradicts waits
    /// for a person.
    pub(crate) const fn waits(self) -> bool {
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

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    outcomes: Vec<Outcome>,
    /// The time from the `validBefore` of the oldest waiting hold to the final block.
    pub lag: Length,
    /// The number of due holds that still wait for the chain.
    pub waiting: usize,
    /// Whether all due holds were begun.
    pub is_complete: bool,
}

impl Run {
    /// The number of settlements with this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.iter().filter(|seen| **seen == outcome).count()
    }

    /// All outcomes. A settlement whose confirmation was reverted has two.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Logs one line. Rare outcomes are not counted here: their settlements have lines of their own.
    pub(crate) fn log(&self) {
        tracing::info!(
            looks = self.outcomes.len(),
            confirmed = self.count(Outcome::Confirmed),
            released = self.count(Outcome::Released),
            waiting = self.waiting,
            failed = self.count(Outcome::Failed),
            lag_seconds = self.lag.secs(),
            complete = self.is_complete,
            "reconcile.run"
        );
    }
}

/// The result of a step of a run. A step that failed has the results from before its failure.
#[derive(Debug)]
pub(crate) struct Step {
    run: Run,
    error: Option<Error>,
}

impl Step {
    /// A complete step without outcomes.
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

    /// This step, incomplete.
    pub(crate) fn incomplete(mut self) -> Self {
        self.run.is_complete = false;
        self
    }

    /// This step, incomplete for this reason. The first reason is kept.
    pub(crate) fn failed(mut self, error: Error) -> Self {
        self.error = self.error.or(Some(error));
        self.incomplete()
    }

    /// This step and another one.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.run.outcomes.extend(other.run.outcomes);
        self.run.lag = self.run.lag.max(other.run.lag);
        self.run.waiting = self.run.waiting.saturating_add(other.run.waiting);
        self.run.is_complete &= other.run.is_complete;
        self.error = self.error.or(other.error);
        self
    }

    /// This step with the outcomes of a settlement.
    pub(crate) fn with(mut self, outcomes: &[Outcome]) -> Self {
        self.run.outcomes.extend_from_slice(outcomes);
        self
    }

    /// This step with a hold that waits for the chain and has been due for `overdue`.
    pub(crate) fn with_waiting(mut self, overdue: Length) -> Self {
        self.run.waiting = self.run.waiting.saturating_add(1);
        self.run.lag = self.run.lag.max(overdue);
        self
    }

    /// The rows that could be read. The others are logged and count as failed.
    pub(crate) fn readable<T>(&mut self, rows: impl IntoIterator<Item = Result<T>>) -> Vec<T> {
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

    /// Whether it failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Logs why it failed, if it did.
    pub(crate) fn log_failure(&self) {
        if let Some(failure) = &self.error {
            tracing::error!(cause = %failure, "reconcile.failed");
        }
    }

    /// Whether nothing is left to do.
    pub(crate) const fn is_complete(&self) -> bool {
        self.run.is_complete
    }

    /// The run of which this is the only step, and why it failed, if it did.
    pub(crate) fn into_run(self) -> (Run, Option<Error>) {
        (self.run, self.error)
    }
}
