//! The limit on one user's concurrent long operations, over all instances of the function.
//!
//! The function's instances are what all users share: each request occupies one until the response, and the function
//! has `PeopleConcurrency` of them, or all functions have the account's quota. A bulk change, a CSV export or a preview
//! makes up to hundreds of database calls, a list at most ten, so without this limit one user's 120 requests of a minute
//! could occupy every instance. A long operation leases one of the user's [`MAX_CONCURRENT`] slots.

use crate::state::People;
use purser_domain::{Duration, ErrorKind, Fingerprint, Result};
use purser_store::CallLeased;

/// The maximum number of concurrent long operations of one user.
pub(crate) const MAX_CONCURRENT: u32 = 3;
/// The lease of a slot: longer than the function's `Timeout` (template.yaml), so that no operation outlives its lease.
pub(crate) const LEASE: Duration = Duration::from_secs_u32(30);

impl People {
    /// Runs `work` in one of the user's slots; 429 if no slot is free. If the slots can't be read, `work` runs, as with
    /// the throttle. What stops an agent must not need a slot.
    pub(crate) async fn run_long<T>(&self, user: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let scope = format!("long operations of {}", Fingerprint::for_text(user));
        let lease = match self.long_operations.take(scope, MAX_CONCURRENT, self.now()).await {
            Ok(CallLeased::Taken(lease)) => Some(lease),
            Ok(CallLeased::Full { retry_after }) => {
                let retry_after = retry_after.secs_to_wait();
                return Err(ErrorKind::TooManyRequests { retry_after }.into());
            }
            Err(error) => {
                tracing::warn!(cause = %error, "throttle.unavailable");
                None
            }
        };
        let result = Box::pin(work).await;
        if let Some(lease) = lease
            && let Err(error) = self.long_operations.end(lease).await
        {
            // The slot is free again when the lease ends.
            tracing::warn!(cause = %error, "throttle.unavailable");
        }
        result
    }
}
