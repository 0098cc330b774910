//! Concurrent calls with a limit, so that one person's request can't use up resources that all requests share.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use purser_domain::Result;

/// The maximum number of concurrent calls.
const AT_ONCE: usize = 8;

/// The results of `work` on each item, in the order of the items. A failure cancels what is under way then.
pub(crate) async fn several<T, R, F>(items: impl IntoIterator<Item = T>, work: impl Fn(T) -> F) -> Result<Vec<R>>
where
    F: Future<Output = Result<R>>,
{
    stream::iter(items.into_iter().map(work))
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::Error;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::{sync::Arc, time::Duration};

    /// At most `AT_ONCE` futures run at the same time.
    #[tokio::test]
    async fn concurrent_results_keep_their_order_within_a_limit() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let results = several(0_u64..30, |item| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(30 - item)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(item)
            }
        });
        assert_eq!(results.await.unwrap(), (0..30).collect::<Vec<u64>>());
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
    }

    #[tokio::test]
    async fn a_failure_ends_the_rest() {
        let begun = Arc::new(AtomicUsize::new(0));
        let results = several(0..100, |item| {
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
