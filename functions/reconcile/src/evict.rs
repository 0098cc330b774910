//! Evicts expired payments from windows that get no new payments, if requested
//! (`shared/store/src/reconcile/evictions.rs`). The chain is not needed.
//!
//! Invariants: a request stays until all expired payments of its window are evicted, so an interrupted run loses
//! nothing. Small and large windows progress at the same rate.

use crate::Inner;
use purser_api::run_with_concurrency_limit;
use purser_domain::{Result, Timestamp};
use purser_store::{EvictResult, EvictionRequest, Ledger};
use tokio::time::Instant;

/// The number of windows that are processed concurrently.
const MAX_CONCURRENT: usize = 8;
/// The number of transactions for one window before another window gets its turn.
const STEPS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictionProgress {
    /// All expired payments are evicted.
    Done,
    /// More expired payments remain.
    More,
    /// The window is in use or was changed in the meantime. The next run reads the window again.
    NotNow,
}

/// Processes eviction requests until `deadline`. The next run processes the remaining requests.
pub(crate) async fn evict_requested_windows(shared: &Inner, deadline: Instant) -> Result<()> {
    let mut left = Vec::new();
    for request in shared.ledger.read_eviction_requests().await? {
        match request {
            Ok(request) => left.push(request),
            Err(error) => tracing::error!(cause = %error, "reconcile.eviction_failed"),
        }
    }
    let (requested, mut done) = (left.len(), 0_usize);
    while !left.is_empty() && Instant::now() < deadline {
        let at = shared.clock.now();
        let turns = left.into_iter().map(|request| {
            let ledger = shared.ledger.clone();
            async move { (request, evict_window(&ledger, &request, at, deadline).await) }
        });
        left = Vec::new();
        for (request, turn) in run_with_concurrency_limit(MAX_CONCURRENT, turns).await {
            match turn {
                Ok(EvictionProgress::Done) => {
                    shared.ledger.clear_eviction_request(&request).await?;
                    done = done.saturating_add(1);
                }
                Ok(EvictionProgress::More) => left.push(request),
                Ok(EvictionProgress::NotNow) => {}
                Err(error) => tracing::error!(cause = %error, "reconcile.eviction_failed"),
            }
        }
    }
    if requested > 0 {
        tracing::info!(asked = requested, done, "reconcile.evicted");
    }
    Ok(())
}

/// Evicts payments from one window, with a limited number of transactions, or fewer when the time is up.
async fn evict_window(
    ledger: &Ledger,
    request: &EvictionRequest,
    at: Timestamp,
    deadline: Instant,
) -> Result<EvictionProgress> {
    let Some(window) = ledger.read_window_to_evict(request.scope).await? else {
        return Ok(EvictionProgress::Done);
    };
    for _ in 0..STEPS {
        if Instant::now() >= deadline {
            return Ok(EvictionProgress::More);
        }
        match ledger.evict_expired(&window, at).await? {
            EvictResult::All => return Ok(EvictionProgress::Done),
            EvictResult::More => {}
            EvictResult::Superseded | EvictResult::Outdated => return Ok(EvictionProgress::NotNow),
        }
    }
    Ok(EvictionProgress::More)
}
