//! The throttle's glue: the counter is asked while the first reads run, and its "no" wins.

use purser_domain::{ErrorKind, Result};
use std::future::Future;
use tracing::warn;

/// Runs `work` while `hit` counts the request; answers 429 where `hit` says how many seconds to wait.
///
/// `work` has run by then, so it may read but must not write. A counter that fails lets the call go on: the tables that
/// it guards answer for themselves (`docs/decisions.md` §9).
pub async fn admit<T>(
    hit: impl Future<Output = Result<Option<u64>>>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    // Boxed, since joining copies a future that is over, and those of the SDK take kilobytes.
    let (hit, work) = tokio::join!(Box::pin(hit), Box::pin(work));
    match hit {
        Ok(None) => work,
        Ok(Some(retry_after)) => Err(ErrorKind::TooManyRequests {
            retry_after: retry_after.max(1),
        }
        .into()),
        Err(error) => {
            warn!(cause = %error, "throttle.unavailable");
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
            let answer = admit(async { hit }, async { work })
                .await
                .map_err(|error| error.kind().slug());
            assert_eq!(answer, expected.map_err(str::to_owned));
        }
    }

    #[tokio::test]
    async fn a_limited_caller_waits_at_least_a_second() {
        let error = admit(async { Ok(Some(0)) }, async { Ok(()) }).await.unwrap_err();
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
        admit(hit, work).await.unwrap();
    }
}
