//! Evicts expired payments from windows that get no new payments, on request
//! (`shared/store/src/reconcile/evictions.rs`).
//!
//! Invariant: a request stays until all expired payments of the window are evicted, so an interrupted run loses
//! nothing.

use crate::Inner;
use purser_api::run_with_concurrency_limit;
use purser_domain::{Result, Timestamp};
use purser_store::{EvictResult, EvictionRequest, Ledger};
use tokio::time::Instant;

const MAX_CONCURRENT: usize = 8;
/// The maximum number of transactions for one window before the run continues with the next window.
const STEPS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictionProgress {
    /// The window has no more expired payments.
    Done,
    /// The window still has expired payments.
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
            async move {
                (
                    request,
                    evict_payments_from_window(&ledger, &request, at, deadline).await,
                )
            }
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

/// Evicts payments from one window, with at most [`STEPS`] transactions.
async fn evict_payments_from_window(
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
