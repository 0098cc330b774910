//! Limits concurrent calls, for a server that several callers share.

use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A limit for one caller's concurrent calls and for the concurrent calls to one provider.
#[derive(Clone)]
pub struct CallLimit(Arc<Begin>);

type Begin = dyn Fn(Option<String>) -> BoxFuture<'static, Result<OpenCall, TooManyCalls>> + Send + Sync;

/// A call that counts as open until it ends. A dropped call counts as open until the server's time limit.
pub struct OpenCall(BoxFuture<'static, ()>);

/// The error for a call that exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyCalls {
    /// The limit that was reached. `None` if the calls cannot be counted at the moment.
    pub of: Option<CallsOf>,
    /// The time to wait before the next call.
    pub retry_after: Duration,
}

/// The calls that a limit counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsOf {
    /// All calls from the caller.
    Caller,
    /// All calls to the provider, from all callers.
    Provider,
}

impl CallLimit {
    /// Creates a limit from a function that starts to count a call to a host. `None` stands for a call that only waits.
    pub fn new(
        begin: impl Fn(Option<String>) -> BoxFuture<'static, Result<OpenCall, TooManyCalls>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(begin))
    }

    /// Runs a call. The call counts as open until it ends.
    pub(crate) async fn run_within_limit<T, E: From<TooManyCalls>>(
        &self,
        host: Option<&str>,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let open = (self.0)(host.map(str::to_owned)).await?;
        let response = call.await;
        open.0.await;
        response
    }
}

impl OpenCall {
    /// Creates an open call. `end` is the future that stops counting the call.
    pub fn new(end: BoxFuture<'static, ()>) -> Self {
        Self(end)
    }
}

impl fmt::Debug for CallLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimit").finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCall").finish_non_exhaustive()
    }
}
