//! The result of an act on one of many agents.

use purser_domain::Error;

/// The result of an act on one agent.
#[derive(Debug)]
pub(crate) enum BulkOutcome {
    /// The agent was edited.
    Done,
    /// The agent already was as requested.
    Unchanged,
    Failed(Error),
}
