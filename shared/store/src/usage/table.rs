//! The usage table.

use aws_sdk_dynamodb::Client;
use std::sync::Arc;

/// The usage table.
#[derive(Clone, Debug)]
pub struct UsageTable {
    pub(super) db: Client,
    pub(super) table: Arc<str>,
}

impl UsageTable {
    /// The usage table with this name.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }
}
