//! The phases of a load test, each with a kind of fault.

use std::time::Duration;

/// The fault of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Calm,
    Kills,
    /// The database throttles, rejects calls, and loses responses.
    Database,
    /// The node rejects every call.
    NodeDown,
    /// The node works again, and the remaining calls are repeated.
    Recovery,
    /// API keys are rotated, and limits are updated.
    Edits,
    /// All faults except [`Phase::NodeDown`].
    All,
}

/// The phases, each with its end in hundredths of the run's duration.
const PARTS: [(u32, Phase); 8] = [
    (10, Phase::Calm),
    (25, Phase::Kills),
    (40, Phase::Database),
    (57, Phase::NodeDown),
    (62, Phase::Recovery),
    (75, Phase::Edits),
    (92, Phase::All),
    (100, Phase::Calm),
];

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    duration: Duration,
}

impl Plan {
    /// Returns the plan for a run of this duration.
    pub fn new(length: Duration) -> Self {
        Self { duration: length }
    }

    /// Returns each phase with its duration.
    pub fn phases(self) -> impl Iterator<Item = (Phase, Duration)> {
        let mut begun = 0;
        PARTS.into_iter().map(move |(until, phase)| {
            let share = until - std::mem::replace(&mut begun, until);
            (phase, self.duration * share / 100)
        })
    }

    /// Returns the phase at the time `since` after the start of the run.
    pub fn at(self, since: Duration) -> Phase {
        let mut left = since;
        for (phase, length) in self.phases() {
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return phase,
            }
        }
        Phase::Calm
    }
}

impl Phase {
    pub fn kills(self) -> bool {
        matches!(self, Self::Kills | Self::All)
    }

    pub fn disturbs_the_database(self) -> bool {
        matches!(self, Self::Database | Self::All)
    }

    pub fn edits(self) -> bool {
        matches!(self, Self::Edits | Self::All)
    }

    /// Returns whether a caller may give up, because the node is down or was down a moment ago.
    pub fn excuses(self) -> bool {
        matches!(self, Self::NodeDown | Self::Recovery)
    }
}
