//! The size of the demo fleet.

/// The size of the demo fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetSize {
    /// The number of agents.
    pub agents: usize,
    /// The number of days on which they pay.
    pub days: usize,
}

impl FleetSize {
    /// The fewest agents: two of every role, and some that only pay.
    pub const FEWEST_AGENTS: usize = 50;
    /// The most agents.
    pub const MOST_AGENTS: usize = 10_000;
    /// The most days: the longest range of `GET /usage`.
    pub const MOST_DAYS: usize = 31;
}

impl FleetSize {
    /// `count` of a thousand agents, in proportion; at least `least`.
    pub(crate) fn share(self, count: usize, least: usize) -> usize {
        (self.agents.saturating_mul(count) / 1_000).max(least)
    }
}
