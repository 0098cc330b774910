//! What a run did.

use purser_domain::Duration as Length;

/// What became of one look at a settlement. Each is a word of the log and of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Paid, and confirmed.
    Confirmed,
    /// Never to be paid; the spend was given back.
    Released,
    /// Its confirmation was taken back: it is held again.
    ConfirmationReverted,
    /// Confirmed so deep that nobody looks at it any more.
    WatchedOut,
    /// Nothing can be said yet.
    NotYet,
    /// What is written down holds.
    Unchanged,
    /// Somebody else moved it meanwhile.
    Superseded,
    /// Its authorization was used up, and the transaction was not found.
    Untraced,
    /// Its authorization was used, and not for its payment.
    Contradicted,
    /// It was paid by a transaction that confirmed another settlement.
    TransactionUsed,
    /// The chain or the ledger could not be asked.
    Failed,
}

impl Outcome {
    /// Every outcome, for tables.
    pub const ALL: [Self; 11] = [
        Self::Confirmed,
        Self::Released,
        Self::ConfirmationReverted,
        Self::WatchedOut,
        Self::NotYet,
        Self::Unchanged,
        Self::Superseded,
        Self::Untraced,
        Self::Contradicted,
        Self::TransactionUsed,
        Self::Failed,
    ];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Released => "released",
            Self::ConfirmationReverted => "taken_back",
            Self::WatchedOut => "watched_out",
            Self::NotYet => "not_yet",
            Self::Unchanged => "unchanged",
            Self::Superseded => "superseded",
            Self::Untraced => "untraced",
            Self::Contradicted => "contradicted",
            Self::TransactionUsed => "transaction_used",
            Self::Failed => "failed",
        }
    }

    /// Whether a hold with this outcome still waits for the chain to decide it. What the chain has decided and nobody may
    /// write down waits for a person.
    pub(crate) const fn waits(self) -> bool {
        match self {
            Self::NotYet | Self::Untraced | Self::Failed => true,
            Self::Confirmed
            | Self::Released
            | Self::ConfirmationReverted
            | Self::WatchedOut
            | Self::Unchanged
            | Self::Superseded
            | Self::Contradicted
            | Self::TransactionUsed => false,
        }
    }
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    outcomes: Vec<Outcome>,
    /// How far the final block is past the `validBefore` of the oldest hold that still waits.
    pub lag: Length,
    /// Whether it came to see everything that the index names.
    pub is_complete: bool,
}

impl Run {
    pub(crate) const fn new() -> Self {
        Self {
            outcomes: Vec::new(),
            lag: Length::from_secs_u32(0),
            is_complete: false,
        }
    }

    /// How often it came to that.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.iter().filter(|seen| **seen == outcome).count()
    }

    /// All that it came to. A settlement whose confirmation was taken back has one more.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    pub(crate) fn note(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// One line. The numbers of what is rare are told by the settlements' own lines.
    pub(crate) fn log(&self) {
        tracing::info!(
            looks = self.outcomes.len(),
            confirmed = self.count(Outcome::Confirmed),
            released = self.count(Outcome::Released),
            not_yet = self.count(Outcome::NotYet),
            failed = self.count(Outcome::Failed),
            lag_seconds = self.lag.secs(),
            complete = self.is_complete,
            "reconcile.run"
        );
    }
}
