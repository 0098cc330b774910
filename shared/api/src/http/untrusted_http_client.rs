//! Calls untrusted servers, with a timeout and without redirects. The body of a webhook's response is never read.

use crate::http::{
    outward::{AllowedHosts, any_address_client_builder, public_address_client_builder},
    public_address::{RejectedHostName, may_be_public},
};
use axum::http::HeaderMap;
use purser_domain::{CallResult, Duration as Length, Timestamp, WebhookUrl, parse_retry_after};
use reqwest::{Client, ClientBuilder, StatusCode, header::ACCEPT, header::RETRY_AFTER};
use serde_json::{Map, Value};
use std::{error::Error as StdError, time::Duration};
use url::Url;

/// The maximum number of response headers. Servers usually send two dozen.
const MAX_HEADERS: usize = 100;

/// An HTTP client that calls untrusted servers.
pub struct UntrustedHttpClient {
    allowed: AllowedHosts,
    /// The client for servers that are not in `allowed`: only HTTPS, and only public addresses.
    strict: Client,
    /// The client for servers in `allowed`, at any address.
    plain: Client,
    longest: Duration,
}

/// The result of a webhook call, and the pause that the receiver requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookCallResult {
    /// The HTTP status of the receiver's response, or why there was no response.
    pub result: CallResult,
    /// The pause that a failed response requested with `Retry-After`.
    pub asked: Option<Length>,
}

impl From<CallResult> for WebhookCallResult {
    fn from(result: CallResult) -> Self {
        Self { result, asked: None }
    }
}

impl UntrustedHttpClient {
    /// Creates a client. `program` is the start of `User-Agent`, and `timeout` applies to each call.
    pub fn new(program: &str, allowed: AllowedHosts, timeout: Duration) -> reqwest::Result<Self> {
        let finish = |client: ClientBuilder| client.http1_only().http1_max_headers(MAX_HEADERS).build();
        Ok(Self {
            allowed,
            strict: finish(public_address_client_builder(program).https_only(true))?,
            plain: finish(any_address_client_builder(program))?,
            longest: timeout,
        })
    }

    /// Sends a POST request to a webhook. Returns the status and `Retry-After`, or why there was no response.
    ///
    /// A URL that may not be called gets no request. `now` is the base of a `Retry-After` that is a date.
    pub async fn post(&self, url: &WebhookUrl, headers: HeaderMap, body: String, now: Timestamp) -> WebhookCallResult {
        let Some(client) = self.client_for(url.url()) else {
            return CallResult::BlockedAddress.into();
        };
        let request = client.post(url.url().clone()).headers(headers).body(body);
        match tokio::time::timeout(self.longest, request.send()).await {
            Err(_) => CallResult::Timeout.into(),
            Ok(Err(error)) => classify_error(&error).into(),
            Ok(Ok(response)) => {
                let requested = response
                    .headers()
                    .get(RETRY_AFTER)
                    .and_then(|value| value.to_str().ok());
                WebhookCallResult {
                    result: CallResult::Status(response.status().as_u16()),
                    asked: requested.and_then(|text| parse_retry_after(text, now)),
                }
            }
        }
    }

    /// Reads a JSON object of at most `max_bytes` bytes. Returns `None` for any failure or other response.
    pub async fn get_object(&self, url: &Url, max_bytes: usize) -> Option<Map<String, Value>> {
        let request = self.client_for(url)?.get(url.clone());
        let read = async {
            let mut response = request.header(ACCEPT, "application/json").send().await.ok()?;
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.ok()? {
                if body.len().saturating_add(chunk.len()) > max_bytes {
                    return None;
                }
                body.extend_from_slice(&chunk);
            }
            let is_ok = response.status() == StatusCode::OK;
            serde_json::from_slice(&body).ok().filter(|_| is_ok)
        };
        tokio::time::timeout(self.longest, read).await.ok()?
    }

    /// Returns the client for this URL; `None` if the URL may not be called.
    fn client_for(&self, url: &Url) -> Option<&Client> {
        if self.allowed.contains(url) {
            Some(&self.plain)
        } else {
            (url.scheme() == "https" && may_be_public(url)).then_some(&self.strict)
        }
    }
}

fn classify_error(error: &reqwest::Error) -> CallResult {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = source {
        match error.downcast_ref() {
            Some(RejectedHostName::Unknown) => return CallResult::UnknownHost,
            Some(RejectedHostName::NotPublic) => return CallResult::BlockedAddress,
            None => source = error.source(),
        }
    }
    CallResult::Unreachable
}
