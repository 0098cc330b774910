//! Runs tasks concurrently with a limit.

use tokio::task::JoinSet;
use tracing::Instrument as _;

/// Runs all tasks, at most `limit` at a time. Returns the results in order of completion. A task that panics has no
/// result.
pub async fn run_with_concurrency_limit<T: Send + 'static>(
    limit: usize,
    work: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let (mut running, mut done) = (JoinSet::new(), Vec::new());
    for work in work {
        if running.len() >= limit {
            done.extend(running.join_next().await.and_then(Result::ok));
        }
        // Keeps the fields of the current span in the task's log lines.
        running.spawn(work.in_current_span());
    }
    while let Some(finished) = running.join_next().await {
        done.extend(finished);
    }
    done
}
