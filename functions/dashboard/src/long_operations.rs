//! The limit on a user's concurrent long operations, such as bulk operations, exports and previews.
//!
//! Without the limit, the requests that a user may send in a minute could occupy all instances of the Lambda function
//! `people`. Each long operation leases one of the user's [`MAX_CONCURRENT`] slots.

use crate::state::People;
use purser_domain::{Duration, ErrorKind, Fingerprint, Result};
use purser_store::TakeLeaseResult;

pub(crate) const MAX_CONCURRENT: u32 = 3;
/// Longer than the `Timeout` of the Lambda function `people`, so that an operation can't outlive the lease.
pub(crate) const LEASE: Duration = Duration::from_secs_u32(30);

impl People {
    /// Returns 429 if the user has no free slot. If the slots can't be read, runs `work` anyway, as the throttle does.
    /// Operations that stop an agent must not call this function, because the limit must never delay the stop.
    pub(crate) async fn run_in_long_operation_slot<T>(
        &self,
        user: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let scope = format!("long operations of {}", Fingerprint::for_text(user));
        let lease = match self.long_operations.take_lease(scope, MAX_CONCURRENT, self.now()).await {
            Ok(TakeLeaseResult::Taken(lease)) => Some(lease),
            Ok(TakeLeaseResult::Full { retry_after }) => {
                let retry_after = retry_after.secs_rounded_up();
                return Err(ErrorKind::TooManyRequests { retry_after }.into());
            }
            Err(error) => {
                tracing::warn!(cause = %error, "throttle.unavailable");
                None
            }
        };
        let result = Box::pin(work).await;
        if let Some(lease) = lease
            && let Err(error) = self.long_operations.end_lease(lease).await
        {
            // The slot becomes free when the lease ends.
            tracing::warn!(cause = %error, "throttle.unavailable");
        }
        result
    }
}
