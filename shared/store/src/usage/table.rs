use aws_sdk_dynamodb::Client;
use purser_domain::Duration;
use std::sync::Arc;

/// A client of the usage table.
#[derive(Clone, Debug)]
pub struct UsageTable {
    pub(super) db: Client,
    pub(super) table: Arc<str>,
    /// The time after which an entry of the decision history is deleted; `None` if never.
    pub(super) journal_kept: Option<Duration>,
}

impl UsageTable {
    /// Creates a client of the usage table with the name `table`. Entries of the decision history never expire.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
            journal_kept: None,
        }
    }

    /// Sets the time after a decision at which the decision's entry in the history is deleted.
    #[must_use]
    pub const fn with_history_retention(mut self, history_retention: Option<Duration>) -> Self {
        self.journal_kept = history_retention;
        self
    }
}
