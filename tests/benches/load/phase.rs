//! The faults of a run, one after another and then together.

use std::time::Duration;

/// What strikes during a part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing.
    Calm,
    /// Processes are killed in the midst of calls.
    Kills,
    /// The database throttles, fails, and loses answers.
    Database,
    /// The node refuses every call.
    NodeDown,
    /// The node is back, and what was left is repeated.
    Recovery,
    /// Keys are rotated, and limits are edited.
    Edits,
    /// All but the node's outage.
    All,
}

/// The phases and when each ends, in hundredths of the run.
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

/// When each phase begins and ends.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    length: Duration,
}

impl Plan {
    /// The plan of a run of this length.
    pub fn new(length: Duration) -> Self {
        Self { length }
    }

    /// The phases in order, with their lengths.
    pub fn phases(self) -> impl Iterator<Item = (Phase, Duration)> {
        let mut begun = 0;
        PARTS.into_iter().map(move |(until, phase)| {
            let share = until - std::mem::replace(&mut begun, until);
            (phase, self.length * share / 100)
        })
    }

    /// The phase at this time after the start.
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

    /// Whether the database has faults.
    pub fn disturbs_the_database(self) -> bool {
        matches!(self, Self::Database | Self::All)
    }

    /// Whether people edit.
    pub fn edits(self) -> bool {
        matches!(self, Self::Edits | Self::All)
    }

    /// Whether a caller who gives up is expected: the node is down, or has just been.
    pub fn excuses(self) -> bool {
        matches!(self, Self::NodeDown | Self::Recovery)
    }
}
