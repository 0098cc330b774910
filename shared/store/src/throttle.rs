//! The throttle: one counter per scope and minute, one write per request.
//!
//! A counter that can't be written is an error here; whether the request goes on then is for the caller to say.

use crate::{attribute::Attribute as _, fault::failed, item::Draft, key};
use aws_sdk_dynamodb::{Client, operation::update_item::UpdateItemError};
use purser_domain::{Result, Timestamp};
use std::sync::Arc;

/// The throttle's counters.
#[derive(Clone, Debug)]
pub struct Throttle {
    db: Client,
    table: Arc<str>,
}

/// Whether a request is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttled {
    /// It is, and was counted.
    Admitted,
    /// It is not: the minute's requests are used up.
    Limited {
        /// Whole seconds until the next minute, one at least.
        retry_after: u64,
    },
}

const MINUTE: u64 = 60;
/// How long a counter is kept after its minute, so that a clock that is behind still finds it.
const KEPT: u64 = 3_600;

impl Throttle {
    /// The counters in this table.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }

    /// Counts one request of a scope, such as a source address, unless its limit for this minute is reached.
    pub async fn hit(&self, scope: &str, now: Timestamp, limit_per_minute: u32) -> Result<Throttled> {
        let (minute, second) = (now.secs() / MINUTE, now.secs() % MINUTE);
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(Draft::of_partition(key::throttle(scope, minute)).into_item()))
            .update_expression("ADD n :one SET #ttl = if_not_exists(#ttl, :ttl)")
            .condition_expression("attribute_not_exists(n) OR n < :limit")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":one", 1_u32.write())
            .expression_attribute_values(":limit", limit_per_minute.write())
            .expression_attribute_values(":ttl", now.secs().saturating_add(KEPT).write());
        match update.send().await {
            Ok(_) => Ok(Throttled::Admitted),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(Throttled::Limited {
                    retry_after: MINUTE.saturating_sub(second),
                }),
                _ => Err(failed("counting a request")(error)),
            },
        }
    }
}
