//! The result of a bulk operation for one agent.

use purser_domain::Error;

/// The result of a bulk operation for one agent.
#[derive(Debug)]
pub(crate) enum BulkOutcome {
    /// The agent was updated.
    Done,
    /// The agent already was in the requested state.
    Unchanged,
    Failed(Error),
}
