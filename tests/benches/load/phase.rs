//! The phases of a run: each kind of fault, and then all of them together.

use std::time::Duration;

/// The fault of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No fault.
    Calm,
    /// Processes are killed during calls.
    Kills,
    /// The database throttles, rejects calls, and loses responses.
    Database,
    /// The node rejects every call.
    NodeDown,
    /// The node is up again, and the remaining calls are repeated.
    Recovery,
    /// Keys are rotated, and limits are edited.
    Edits,
    /// All faults except the outage of the node.
    All,
}

/// The phases, each with its end in hundredths of the run.
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

/// The plan of the phases.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    duration: Duration,
}

impl Plan {
    /// The plan for a run of this length.
    pub fn new(length: Duration) -> Self {
        Self { duration: length }
    }

    /// The phases in order, with their lengths.
    pub fn phases(self) -> impl Iterator<Item = (Phase, Duration)> {
        let mut begun = 0;
        PARTS.into_iter().map(move |(until, phase)| {
            let share = until - std::mem::replace(&mut begun, until);
            (phase, self.duration * share / 100)
        })
    }

    /// The phase at this time after the start of the run.
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
    /// Whether processes are killed.
    pub fn kills(self) -> bool {
        matches!(self, Self::Kills | Self::All)
    }

    /// Whether calls to the database fail.
    pub fn disturbs_the_database(self) -> bool {
        matches!(self, Self::Database | Self::All)
    }

    /// Whether limits and keys change.
    pub fn edits(self) -> bool {
        matches!(self, Self::Edits | Self::All)
    }

    /// Whether callers may give up, because the node is down or was down a moment ago.
    pub fn excuses(self) -> bool {
        matches!(self, Self::NodeDown | Self::Recovery)
    }
}
