//! The limit of concurrent calls, for a server whose callers share its capacity.

use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A limit of the concurrent calls of one caller and to one provider. Cloning is cheap.
#[derive(Clone)]
pub struct CallLimit(Arc<Begin>);

type Begin = dyn Fn(Option<String>) -> BoxFuture<'static, Result<OpenCall, TooManyCalls>> + Send + Sync;

/// A call that counts as open until it ends. If it is dropped, it counts until the time limit of the server.
pub struct OpenCall(BoxFuture<'static, ()>);

/// The refusal of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyCalls {
    /// The calls that are too many; `None` if they can't be counted at the moment.
    pub of: Option<CallsOf>,
    /// The time after which a call is accepted.
    pub retry_after: Duration,
}

/// The calls that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsOf {
    /// The calls of the caller.
    Caller,
    /// The calls of all callers to the provider.
    Provider,
}

impl CallLimit {
    /// Creates a limit from a function that starts to count a call: to the provider at a host or, without a host, a
    /// call that only waits.
    pub fn new(
        begin: impl Fn(Option<String>) -> BoxFuture<'static, Result<OpenCall, TooManyCalls>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(begin))
    }

    /// Runs a call, which counts as open until it ends.
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
    /// Creates an open call from the future that ends it.
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
