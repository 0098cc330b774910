//! Limits the concurrency within a request.

use purser_domain::{Error, Result};
use tokio::task::JoinSet;

/// The maximum number of items that are processed concurrently.
const MAX_CONCURRENT: usize = 8;

/// Returns the results in the order of the items. The first error cancels all remaining work.
pub(crate) async fn run_concurrently<T, R, F>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> F,
) -> Result<Vec<R>>
where
    F: Future<Output = Result<R>> + Send + 'static,
    R: Send + 'static,
{
    let mut items = items.into_iter().fuse().enumerate();
    let mut under_way = JoinSet::new();
    let mut done = Vec::new();
    loop {
        while under_way.len() < MAX_CONCURRENT
            && let Some((index, item)) = items.next()
        {
            let work = work(item);
            under_way.spawn(async move { (index, work.await) });
        }
        let Some(joined) = under_way.join_next().await else {
            break;
        };
        let (index, result) = joined.map_err(|error| Error::internal("running concurrent calls", error))?;
        done.push((index, result?));
    }
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::{sync::Arc, time::Duration};

    #[tokio::test]
    async fn run_concurrently_returns_ordered_results_and_limits_concurrency() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let results = run_concurrently(0_u64..30, |item| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(30 - item)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(item)
            }
        });
        assert_eq!(results.await.unwrap(), (0..30).collect::<Vec<u64>>());
        assert_eq!(most.load(Ordering::SeqCst), MAX_CONCURRENT);
    }

    #[tokio::test]
    async fn a_failed_task_cancels_the_remaining_tasks() {
        let begun = Arc::new(AtomicUsize::new(0));
        let results = run_concurrently(0..100, |item| {
            let begun = Arc::clone(&begun);
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                if item == 0 {
                    Err(Error::internal("testing", "no"))
                } else {
                    Ok(())
                }
            }
        });
        assert!(results.await.is_err());
        assert!(begun.load(Ordering::SeqCst) < 100);
    }
}
