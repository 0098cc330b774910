//! The bound on the calls that are open at a time, for a server whose capacity its callers share.

use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The bound on the calls of one caller, and of one provider, that are open at a time. Cloning is cheap.
#[derive(Clone)]
pub struct CallLimit(Arc<Begin>);

type Begin = dyn Fn(Option<String>) -> BoxFuture<'static, Result<OpenCall, TooManyCalls>> + Send + Sync;

/// A call that counts as open until it is ended. If it is dropped, the server's own limit of time ends it.
pub struct OpenCall(BoxFuture<'static, ()>);

/// The refusal of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyCalls {
    /// Whose calls are too many; `None` if that can't be known at the moment.
    pub of: Option<CallsOf>,
    /// The time after which a call is accepted.
    pub retry_after: Duration,
}

/// Whose calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsOf {
    /// The caller's.
    Caller,
    /// Those of the provider, by all callers.
    Provider,
}

impl CallLimit {
    /// Creates it from a function that begins a call of the provider at a host; without a host, of one that only waits.
    pub fn new(
        begin: impl Fn(Option<String>) -> BoxFuture<'static, Result<OpenCall, TooManyCalls>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(begin))
    }

    /// Runs a call while it counts as open.
    pub(crate) async fn during<T, E: From<TooManyCalls>>(
        &self,
        host: Option<&str>,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let open = (self.0)(host.map(str::to_owned)).await?;
        let answer = call.await;
        open.0.await;
        answer
    }
}

impl OpenCall {
    /// Creates it from what ends it.
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
