//! A client for one of Purser's JSON APIs, with an optional credential in a header of each request.

use crate::USER_AGENT;
use crate::credentials::CredentialError;
use crate::exit::Failure;
use crate::signature::Signer;
use purser_client::{ApiError, Purser, PurserUrlError, Refusal, http_client};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH, RETRY_AFTER};
use reqwest::{Client, Method};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use url::{Host, Url, form_urlencoded};

/// The timeout for one request.
const TIMEOUT: Duration = Duration::from_secs(35);
/// The maximum length of a response, in bytes. A list of 2,000 services has about this length.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of attempts after throttling or temporary unavailability.
const ATTEMPTS: u32 = 6;
/// The longest pause between two attempts. It is longer than the rate limit's window of one minute.
const MAX_PAUSE: Duration = Duration::from_secs(61);

#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// The segments of the path.
    pub(crate) path: &'a [&'a str],
    pub(crate) query: &'a [(&'a str, &'a str)],
    /// The version of the object to update, for the header `If-Match`.
    pub(crate) over: Option<u64>,
    pub(crate) body: Option<&'a Value>,
    /// The fields of a form, instead of a JSON body.
    pub(crate) form: &'a [(&'a str, &'a str)],
}

impl<'a> Call<'a> {
    /// Returns a GET request without query parameters.
    pub(crate) const fn get(path: &'a [&'a str]) -> Self {
        Self {
            method: Method::GET,
            path,
            query: &[],
            over: None,
            body: None,
            form: &[],
        }
    }
}

/// A client for the API at one URL.
#[derive(Debug)]
pub(crate) struct Api {
    http: Client,
    base: Url,
    /// The header with the credential; `None` for a client without a credential.
    credential: Option<(HeaderName, HeaderValue)>,
    signer: Option<Signer>,
}

impl Api {
    /// Creates a client that sends `credential` in the header `header`.
    pub(crate) fn new(url: &str, header: HeaderName, mut credential: HeaderValue) -> Result<Self, Failure> {
        credential.set_sensitive(true);
        Ok(Self {
            credential: Some((header, credential)),
            ..Self::without_credential(url)?
        })
    }

    /// Creates a client that sends no credential.
    pub(crate) fn without_credential(url: &str) -> Result<Self, Failure> {
        // The client accepts the same URLs as a client with an agent key.
        Purser::without_key(url).map_err(CredentialError::Url)?;
        let base = Url::parse(url).map_err(|_| CredentialError::Url(PurserUrlError::Url))?;
        let http = http_client(USER_AGENT)
            .timeout(TIMEOUT)
            .build()
            .map_err(|error| CredentialError::Url(PurserUrlError::Client(error)))?;
        Ok(Self {
            http,
            base,
            credential: None,
            signer: None,
        })
    }

    /// Enables AWS signatures if the environment has AWS credentials. Requests to a loopback host are not signed.
    pub(crate) fn sign_requests(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let is_here = match self.base.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        if !is_here {
            self.signer = Signer::from_environment(variable, &self.base)?;
        }
        Ok(self)
    }

    /// Sends a request, and retries it after throttling (429) or temporary unavailability (503).
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<Value, Failure> {
        let mut attempts_left = ATTEMPTS;
        loop {
            attempts_left = attempts_left.saturating_sub(1);
            match self.send_once(&call).await {
                Err(Failure::Api(ApiError::Refused(rejection)))
                    if matches!(rejection.status, 429 | 503) && attempts_left > 0 =>
                {
                    let pause = rejection.retry_after.unwrap_or(Duration::from_secs(1));
                    if pause > MAX_PAUSE {
                        return Err(ApiError::Refused(rejection).into());
                    }
                    tokio::time::sleep(pause).await;
                }
                response => return response,
            }
        }
    }

    async fn send_once(&self, call: &Call<'_>) -> Result<Value, Failure> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| CredentialError::Url(PurserUrlError::Url))?
            .pop_if_empty()
            .extend(call.path);
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(call.query);
        }
        let body = call.body.map(Value::to_string).unwrap_or_default();
        let mut request = self.http.request(call.method.clone(), url.clone());
        if let Some(signer) = &self.signer {
            #[expect(
                clippy::disallowed_methods,
                reason = "a program of its own, whose clock is the machine's"
            )]
            let now = SystemTime::now();
            request = request.headers(signer.headers(call.method.as_str(), &url, body.as_bytes(), now)?);
        }
        if let Some((header, credential)) = &self.credential {
            request = request.header(header, credential);
        }
        if let Some(version) = call.over {
            request = request.header(IF_MATCH, format!("\"{version}\""));
        }
        if !call.form.is_empty() {
            let form = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(call.form)
                .finish();
            request = request
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form);
        } else if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let unreachable = |error: reqwest::Error| ApiError::Unreachable(error.without_url());
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if bytes.len().saturating_add(chunk.len()) > MAX_RESPONSE_BYTES {
                return Err(ApiError::Unreadable("it is longer than 64 MiB").into());
            }
            bytes.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            let rejection = Refusal::read(status.as_u16(), retry_after.map(Duration::from_secs), &bytes);
            return Err(ApiError::from(rejection).into());
        }
        serde_json::from_slice(&bytes).map_err(|_| ApiError::Unreadable("it is no JSON").into())
    }
}

/// Moves the list in the field `name` out of a response.
pub(crate) fn require_list(mut response: Value, name: &str, item: &'static str) -> Result<Vec<Value>, Failure> {
    match response.get_mut(name) {
        Some(Value::Array(list)) => Ok(std::mem::take(list)),
        _ => Err(ApiError::Unreadable(item).into()),
    }
}
