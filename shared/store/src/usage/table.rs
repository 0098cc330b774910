//! The usage table.

use aws_sdk_dynamodb::Client;
use purser_domain::Duration;
use std::sync::Arc;

/// The usage table.
#[derive(Clone, Debug)]
pub struct UsageTable {
    pub(super) db: Client,
    pub(super) table: Arc<str>,
    /// The time after a decision at which its journal entry is deleted; `None` for never.
    pub(super) journal_kept: Option<Duration>,
}

impl UsageTable {
    /// The usage table with this name.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
            journal_kept: None,
        }
    }

    /// The table, with entries of the journal that are deleted this long after their decision.
    #[must_use]
    pub const fn keeping_journal(mut self, journal_kept: Option<Duration>) -> Self {
        self.journal_kept = journal_kept;
        self
    }
}
