//! The throttle: one counter per scope and minute, one write per request.
//!
//! A counter that can't be written is an error here; whether the request goes on then is for the caller to say.

use crate::{attribute::Attribute as _, item::Draft, key, transact::was_made};
use aws_sdk_dynamodb::Client;
use purser_domain::{Result, Timestamp};
use std::{fmt, sync::Arc};

/// The throttle's counters.
#[derive(Clone, Debug)]
pub struct Throttle {
    db: Client,
    table: Arc<str>,
    limit_per_minute: u32,
}

const MINUTE: u64 = 60;
/// How long a counter is kept after its minute, so that a clock that is behind still finds it.
const KEPT: u64 = 3_600;

impl Throttle {
    /// The counters in this table, each up to `limit_per_minute`.
    pub fn new(db: Client, table: impl Into<Arc<str>>, limit_per_minute: u32) -> Self {
        Self {
            db,
            table: table.into(),
            limit_per_minute,
        }
    }

    /// Counts one request of a scope, such as a source address, and lets it through: `None`. When the minute's requests
    /// are used up, it answers how many whole seconds to wait for the next minute, one at least.
    pub async fn hit(&self, scope: impl fmt::Display, now: Timestamp) -> Result<Option<u64>> {
        let (minute, second) = (now.secs() / MINUTE, now.secs() % MINUTE);
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(
                Draft::of_partition(key::throttle(&scope.to_string(), minute)).into_item(),
            ))
            .update_expression("ADD n :one SET #ttl = if_not_exists(#ttl, :ttl)")
            .condition_expression("attribute_not_exists(n) OR n < :limit")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":one", 1_u32.write())
            .expression_attribute_values(":limit", self.limit_per_minute.write())
            .expression_attribute_values(":ttl", now.secs().saturating_add(KEPT).write());
        let counted = was_made(update.send().await, "counting a request")?;
        Ok((!counted).then(|| MINUTE.saturating_sub(second)))
    }
}
