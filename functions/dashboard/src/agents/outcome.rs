//! The result of a bulk operation for one agent.

use purser_domain::Error;

#[derive(Debug)]
pub(crate) enum BulkOutcome {
    Done,
    Unchanged,
    Failed(Error),
}
