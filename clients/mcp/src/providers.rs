//! The client for provider calls.

use std::fmt;
use std::sync::Arc;
use url::Url;

/// The HTTP client for provider calls, and the URLs that the client may call.
#[derive(Clone)]
pub struct Providers {
    pub(crate) client: reqwest::Client,
    allowed: Arc<dyn Fn(&Url) -> bool + Send + Sync>,
}

impl Providers {
    /// Creates the client from an HTTP client without redirects. Only URLs that `allowed` accepts are called.
    pub fn new(client: reqwest::Client, allowed: impl Fn(&Url) -> bool + Send + Sync + 'static) -> Self {
        Self {
            client,
            allowed: Arc::new(allowed),
        }
    }

    pub(crate) fn may_call(&self, url: &Url) -> bool {
        (self.allowed)(url)
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Providers").finish_non_exhaustive()
    }
}
