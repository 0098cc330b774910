//! The throttle: one counter per scope and minute, one write per request.
//!
//! The counter is incremented while the first reads run, and its refusal takes precedence. If it can't be written, the
//! call continues: the tables that it guards report their own failures (`docs/decisions.md` §9).

use crate::{codec::attribute::Attribute as _, codec::item::Draft, codec::key, codec::transact::was_made};
use aws_sdk_dynamodb::Client;
use purser_domain::{ErrorKind, Result, Timestamp};
use std::{fmt, sync::Arc};

/// The throttle's counters.
#[derive(Clone, Debug)]
pub struct Throttle {
    db: Client,
    table: Arc<str>,
    limit_per_minute: u32,
}

const MINUTE: u64 = 60;
/// How long a counter is kept after its minute, for an environment whose clock is behind.
const KEPT: u64 = 3_600;

impl Throttle {
    /// The counters in this table, each limited to `limit_per_minute`.
    pub fn new(db: Client, table: impl Into<Arc<str>>, limit_per_minute: u32) -> Self {
        Self {
            db,
            table: table.into(),
            limit_per_minute,
        }
    }

    /// Runs `work` while one request of a scope, such as a source address, is counted; 429 when the minute's requests
    /// are used up. `work` has already run by then, so it may read but must not write.
    pub async fn limit<T>(
        &self,
        scope: impl fmt::Display,
        now: Timestamp,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        limited(self.hit(scope, now), work).await
    }

    /// Counts one request: `None` if it is allowed, else the whole seconds to wait for the next minute, one at least.
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

async fn limited<T>(
    hit: impl Future<Output = Result<Option<u64>>>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    // Boxed, since `join` copies a finished future, and the SDK's take kilobytes.
    let (hit, work) = tokio::join!(Box::pin(hit), Box::pin(work));
    match hit {
        Ok(None) => work,
        Ok(Some(retry_after)) => Err(ErrorKind::TooManyRequests {
            retry_after: retry_after.max(1),
        }
        .into()),
        Err(error) => {
            tracing::warn!(cause = %error, "throttle.unavailable");
            work
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::Error;

    #[tokio::test]
    async fn a_limit_wins_over_whatever_the_work_found() {
        type Row = (Result<Option<u64>>, Result<u8>, Result<u8, &'static str>);
        let down = || Error::internal("counting", "down");
        let rows: [Row; 6] = [
            (Ok(None), Ok(1), Ok(1)),
            (Ok(None), Err(ErrorKind::NotFound.into()), Err("not_found")),
            (Ok(Some(30)), Ok(1), Err("too_many_requests")),
            (
                Ok(Some(30)),
                Err(ErrorKind::InvalidAgentKey.into()),
                Err("too_many_requests"),
            ),
            (Err(down()), Ok(1), Ok(1)),
            (Err(down()), Err(ErrorKind::NotFound.into()), Err("not_found")),
        ];
        for (hit, work, expected) in rows {
            let answer = limited(async { hit }, async { work })
                .await
                .map_err(|error| error.kind().slug());
            assert_eq!(answer, expected.map_err(str::to_owned));
        }
    }

    #[tokio::test]
    async fn a_limited_caller_waits_at_least_a_second() {
        let error = limited(async { Ok(Some(0)) }, async { Ok(()) }).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooManyRequests { retry_after: 1 }));
    }

    #[tokio::test]
    async fn both_run_at_the_same_time() {
        let (send, receive) = tokio::sync::oneshot::channel();
        let hit = async {
            receive.await.unwrap();
            Ok(None)
        };
        let work = async {
            send.send(()).unwrap();
            Ok(())
        };
        limited(hit, work).await.unwrap();
    }
}
