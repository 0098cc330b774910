//! Several pieces of work at once, a bounded number of them.

use tokio::task::JoinSet;
use tracing::Instrument as _;

/// Runs all of these, no more than `limit` at once, each begun only when there is room for it, in their order; a panic costs
/// its one. The results come as they are done.
pub async fn at_most<T: Send + 'static>(
    limit: usize,
    work: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let (mut running, mut done) = (JoinSet::new(), Vec::new());
    for work in work {
        if running.len() >= limit {
            done.extend(running.join_next().await.and_then(Result::ok));
        }
        // Its lines belong to the same run.
        running.spawn(work.in_current_span());
    }
    while let Some(finished) = running.join_next().await {
        done.extend(finished);
    }
    done
}
