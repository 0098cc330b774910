//! A call to a provider, and the conditions under which it may be paid.

use crate::idempotency_key::hex;
use crate::ordinals::Place;
use crate::{Call, IdempotencyKey, Usdc};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::time::Duration;
use url::Url;
use uuid::Uuid;

/// A call to a provider, and the conditions under which it may be paid.
///
/// Debug output omits the headers and the body, because they may be secret.
#[derive(Clone)]
pub struct Request {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) key: Key,
    pub(crate) approval: Option<Uuid>,
    pub(crate) wait_for_approval: Option<Duration>,
    ceiling: Option<Usdc>,
    target_url: Option<String>,
    service_id: Option<String>,
    operation_id: Option<String>,
}

/// The idempotency key of a request.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    /// The key is derived from the request with the lowest free ordinal.
    Derived,
    /// An earlier attempt derived the key, with the ordinal in the `Place`.
    Held(IdempotencyKey, Place),
    /// The caller chose the key.
    Given(IdempotencyKey),
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} {}, ..)", self.method, self.url)
    }
}

impl Request {
    /// Creates a request. The URL is normalised and the fragment is removed, as in all clients of Purser.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        let text = url.into();
        let url = Url::parse(&text).map_or(text, |mut url| {
            url.set_fragment(None);
            url.into()
        });
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Vec::new(),
            key: Key::Derived,
            approval: None,
            wait_for_approval: None,
            ceiling: None,
            target_url: None,
            service_id: None,
            operation_id: None,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..self
        }
    }

    /// Sets the maximum price of this request. This maximum replaces the payer's ceiling.
    #[must_use]
    pub fn ceiling(self, ceiling: Usdc) -> Self {
        Self {
            ceiling: Some(ceiling),
            ..self
        }
    }

    /// Sets the idempotency key. This key replaces the derived key.
    #[must_use]
    pub fn key(self, key: IdempotencyKey) -> Self {
        Self {
            key: Key::Given(key),
            ..self
        }
    }

    /// Sets how long this request waits for an approval. This duration replaces the payer's setting.
    #[must_use]
    pub fn wait_for_approval(self, max_wait: Duration) -> Self {
        Self {
            wait_for_approval: Some(max_wait),
            ..self
        }
    }

    /// Sets the URL of the page that a scrape or crawl operation fetches.
    #[must_use]
    pub fn target(self, url: impl Into<String>) -> Self {
        Self {
            target_url: Some(url.into()),
            ..self
        }
    }

    /// Sets the slugs of the service and the operation, for operations with the same method and URL.
    #[must_use]
    pub fn operation(self, service_id: impl Into<String>, operation_id: impl Into<String>) -> Self {
        Self {
            service_id: Some(service_id.into()),
            operation_id: Some(operation_id.into()),
            ..self
        }
    }

    /// Sets the id of an approval. The request must have the approval's idempotency key.
    #[must_use]
    pub fn with_approval(self, approval: Uuid) -> Self {
        Self {
            approval: Some(approval),
            ..self
        }
    }

    pub(crate) fn with_key(self, key: IdempotencyKey, location: Option<Place>) -> Self {
        let key = match location {
            Some(ordinal) => Key::Held(key, ordinal),
            None => Key::Given(key),
        };
        Self { key, ..self }
    }

    /// Returns the description of the call for authorize and check requests.
    pub(crate) fn call(&self, ceiling: Usdc) -> Call<'_> {
        Call {
            method: self.method.as_str(),
            url: &self.url,
            body_hash: (!self.body.is_empty()).then(|| format!("sha256:{}", hex(&Sha256::digest(&self.body)))),
            target_url: self.target_url.as_deref(),
            service_id: self.service_id.as_deref(),
            operation_id: self.operation_id.as_deref(),
            ceiling: self.most(ceiling),
        }
    }

    /// Returns the maximum price of this request. `ceiling` is the payer's default.
    pub(crate) fn most(&self, ceiling: Usdc) -> Usdc {
        self.ceiling.unwrap_or(ceiling)
    }
}
