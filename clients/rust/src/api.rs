//! The client for Purser's agent API. Each operation has one method.

use crate::answer::{
    Agent, AgentDecisionStatement, Approval, Authorized, Completed, EnabledServices, Preflight, ServiceDetail,
    ServicePolicy, Services, Settlement, SettlementStatements, Settlements, UnpaidCheck,
};
use crate::http_client::{USER_AGENT, http_client};
use crate::{AgentKey, AgentKeyError, IdempotencyKey, PaymentTerms, Refusal, Usdc};
use chrono::{DateTime, Utc};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::{Host, Url};
use uuid::Uuid;

/// The timeout for one request to Purser.
const TIMEOUT: Duration = Duration::from_secs(35);
/// The maximum number of attempts after no response or a retryable error.
const ATTEMPTS: u32 = 3;
/// The longest pause between two attempts. If `Retry-After` is longer, the error is returned.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The maximum of the parameter `wait_seconds` of an approval request.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(20);
/// The maximum length of a response body, in bytes. A list of 500 services takes about a third.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// A client for Purser's agent API that uses the key of one agent. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Purser {
    base: Url,
    http: Client,
    /// `None` for a client that reads only the public catalog.
    authorization: Option<HeaderValue>,
    /// Returns the agent key of each request, instead of `authorization`.
    key_source: Option<KeySource>,
    /// The time at which every request times out.
    deadline: Option<Instant>,
    /// Adds a signature header to each request that has an agent key.
    signer: Option<Signer>,
}

/// A function that computes a header from the method, the path and the `Authorization` header of a request.
#[derive(Clone)]
struct Signer {
    name: HeaderName,
    sign: Arc<Sign>,
}

type Sign = dyn Fn(&Method, &str, &HeaderValue) -> Option<HeaderValue> + Send + Sync;

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A function that returns the agent key of the next request.
#[derive(Clone)]
struct KeySource(Arc<dyn Fn() -> KeyFuture + Send + Sync>);

/// The result of a function for [`Purser::with_key_source`].
pub type KeyFuture = Pin<Box<dyn Future<Output = Result<AgentKey, ApiError>> + Send>>;

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySource(..)")
    }
}

/// The error for a URL that the client does not accept. The URL must be `https`, or `http` on a loopback host.
#[derive(Debug, thiserror::Error)]
pub enum PurserUrlError {
    /// The text is not a URL, or the URL would send the agent key without encryption.
    #[error("Purser's URL must be https://…, or http:// to this machine")]
    Url,
    /// The HTTP client can't be built.
    #[error("the HTTP client can't be made")]
    Client(#[source] reqwest::Error),
}

/// An error in the environment variables that [`Purser::from_env`] reads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// `PURSER_URL` is not set.
    #[error("the environment variable PURSER_URL is not set")]
    MissingUrl,
    /// `PURSER_URL` is not an accepted URL.
    #[error(transparent)]
    Url(#[from] PurserUrlError),
    /// `PURSER_KEY` is not set or not an agent key.
    #[error(transparent)]
    Key(#[from] AgentKeyError),
}

/// An error of a call to Purser.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// Purser returned an error response.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// Purser did not respond. The request may have taken effect. Repeating it with the same idempotency key is safe.
    #[error("Purser did not answer")]
    Unreachable(#[source] reqwest::Error),
    /// The response does not have the expected format, so another server or a much later version of Purser sent it.
    #[error("the answer is not Purser's: {0}")]
    Unreadable(&'static str),
    /// The function of [`Purser::with_key_source`] failed. The request was not sent.
    #[error("there is no agent key")]
    NoKey(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ApiError {
    /// Returns whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(rejection) => rejection.is_temporary(),
            Self::Unreadable(_) | Self::NoKey(_) => false,
        }
    }

    /// Returns the time to wait before a retry, if Purser specifies a time.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(rejection) => rejection.retry_after,
            Self::Unreachable(_) | Self::Unreadable(_) | Self::NoKey(_) => None,
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(rejection: Refusal) -> Self {
        Self::Refused(Box::new(rejection))
    }
}

/// A description of a provider call, for authorize and check requests.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// The URL of the provider's operation.
    pub url: &'a str,
    /// The hash of the request body. Purser shows the hash to the user who approves the call.
    pub body_hash: Option<String>,
    /// The URL of the page that a scrape or crawl operation fetches.
    pub target_url: Option<&'a str>,
    /// The slug of the service. Needed if two services have an operation with the same method and URL.
    pub service_id: Option<&'a str>,
    /// The slug of the operation. Needed if two operations have the same method and URL.
    pub operation_id: Option<&'a str>,
    /// The maximum price that the agent accepts.
    pub ceiling: Usdc,
}

/// A request for a temporary limit increase after a rejected payment.
#[derive(Clone, Debug, Serialize)]
pub struct RaiseRequest<'a> {
    /// The transaction id of the rejection. Each rejection allows one request.
    pub transaction_id: Uuid,
    /// The requested cap per call, if the price of the rejected payment exceeded the cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_call_units: Option<Usdc>,
    /// The requested cap per rolling 24 hours, if the rejected payment would have exceeded the cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_day_units: Option<Usdc>,
    /// The requested end of the increase, at most seven days from now.
    pub until: DateTime<Utc>,
    /// The reason, which Purser shows to the agent's owner. At most 500 characters.
    pub reason: &'a str,
}

/// A filter for the list of services. The default filter matches all services.
#[derive(Clone, Debug, Default)]
pub struct CatalogFilter {
    /// Only services of this category.
    pub category: Option<String>,
    /// Only services with this trust status.
    pub trust_status: Option<String>,
    /// Only the service with this slug.
    pub slug: Option<String>,
    /// The maximum number of services in the list. The default is 100, and the maximum is 500.
    pub limit: Option<u16>,
}

#[derive(Serialize)]
pub(crate) struct AuthorizeBody<'a> {
    pub(crate) payment_requirement: &'a RawValue,
    pub(crate) max_payment_units: Usdc,
    pub(crate) original_request: Original<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<Metadata<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replay_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval_id: Option<Uuid>,
}

#[derive(Serialize)]
struct JudgedUnpaid<'a> {
    original_request: Original<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_id: Option<&'a str>,
}

#[derive(Serialize)]
pub(crate) struct Original<'a> {
    method: &'a str,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hash: Option<&'a str>,
}

#[derive(Serialize)]
pub(crate) struct Metadata<'a> {
    target_url: &'a str,
}

#[derive(Serialize)]
pub(crate) struct CompleteBody<'a> {
    pub(crate) payment_response_header: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tx_hash: Option<&'a str>,
}

impl<'a> AuthorizeBody<'a> {
    pub(crate) fn new(call: &'a Call<'_>, terms: &'a PaymentTerms) -> Self {
        Self {
            payment_requirement: terms.as_json(),
            max_payment_units: call.ceiling,
            original_request: Original {
                method: call.method,
                url: call.url,
                body_hash: call.body_hash.as_deref(),
            },
            metadata: call.target_url.map(|target_url| Metadata { target_url }),
            service_id: call.service_id,
            operation_id: call.operation_id,
            idempotency_key: None,
            replay_key: None,
            approval_id: None,
        }
    }
}

impl Purser {
    /// Creates a client for the Purser server at `url` that uses this agent key.
    pub fn new(url: &str, key: &AgentKey) -> Result<Self, PurserUrlError> {
        Ok(Self::without_key(url)?.with_key(key))
    }

    /// Creates a client for the Purser server at `PURSER_URL` that uses the agent key in `PURSER_KEY`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client has no other settings, and reads this when it is asked to"
    )]
    pub fn from_env() -> Result<Self, EnvironmentError> {
        let url = std::env::var("PURSER_URL").map_err(|_| EnvironmentError::MissingUrl)?;
        Ok(Self::new(&url, &AgentKey::from_env()?)?)
    }

    /// Returns a client that uses another agent key and shares this client's connections.
    #[must_use]
    pub fn with_key(&self, key: &AgentKey) -> Self {
        Self {
            // An agent key contains only characters that are valid in a header.
            authorization: key.header(),
            key_source: None,
            ..self.clone()
        }
    }

    /// Returns a client that calls `source` for the agent key of each request, and shares this client's connections.
    ///
    /// Programs use this method with access tokens, which expire after ten minutes. `source` should keep the current
    /// token, and should request a new token only before the current token expires.
    #[must_use]
    pub fn with_key_source(&self, source: impl Fn() -> KeyFuture + Send + Sync + 'static) -> Self {
        Self {
            authorization: None,
            key_source: Some(KeySource(Arc::new(source))),
            ..self.clone()
        }
    }

    /// Returns a client whose requests time out at `deadline` with [`ApiError::Unreachable`].
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..self.clone()
        }
    }

    /// Returns a client that adds the header `name` to each request that has an agent key. `sign` computes the header's
    /// value from the method, the path and the `Authorization` header.
    ///
    /// Servers that forward agents' requests to Purser authenticate the forwarded request with this header.
    #[must_use]
    pub fn with_signature(
        &self,
        name: HeaderName,
        sign: impl Fn(&Method, &str, &HeaderValue) -> Option<HeaderValue> + Send + Sync + 'static,
    ) -> Self {
        Self {
            signer: Some(Signer {
                name,
                sign: Arc::new(sign),
            }),
            ..self.clone()
        }
    }

    /// Creates a client without an agent key, for the public catalog.
    pub fn without_key(url: &str) -> Result<Self, PurserUrlError> {
        let base = Url::parse(url).map_err(|_| PurserUrlError::Url)?;
        let is_this_machine = match base.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        if !(base.scheme() == "https" || base.scheme() == "http" && is_this_machine) {
            return Err(PurserUrlError::Url);
        }
        let http = http_client(USER_AGENT)
            .timeout(TIMEOUT)
            .build()
            .map_err(PurserUrlError::Client)?;
        Ok(Self {
            base,
            http,
            authorization: None,
            key_source: None,
            deadline: None,
            signer: None,
        })
    }

    /// Returns the agent that the key belongs to.
    pub async fn agent(&self) -> Result<Agent, ApiError> {
        self.get(&["mcp", "agents", "me"]).await
    }

    /// Lists the services that are enabled for the agent, each with a spend policy.
    pub async fn list_enabled_services(&self, agent_id: &str) -> Result<EnabledServices, ApiError> {
        self.get(&["mcp", "agents", agent_id, "services"]).await
    }

    /// Requests a temporary limit increase from the agent's owner.
    ///
    /// After the approval, repeat the payment with a new idempotency key and without the approval's id.
    pub async fn ask_for_raise(&self, request: &RaiseRequest<'_>) -> Result<Approval, ApiError> {
        Ok(self.post(&["x402", "raises"], request).await?.0)
    }

    /// Returns the agent's policy for a service, and the remainder of its limits. `service` is a slug or an id.
    pub async fn policy(&self, agent_id: &str, service: &str) -> Result<ServicePolicy, ApiError> {
        self.get(&["agents", agent_id, "services", service, "policy"]).await
    }

    /// Lists the services of the catalog.
    pub async fn services(&self, filter: &CatalogFilter) -> Result<Services, ApiError> {
        let query = [
            ("category", filter.category.clone()),
            ("trust_status", filter.trust_status.clone()),
            ("slug", filter.slug.clone()),
            ("limit", filter.limit.map(|limit| limit.to_string())),
        ];
        self.read(self.address(&["services"])?, &query).await
    }

    /// Returns a service of the catalog with its operations. `service` is a slug or an id.
    pub async fn service(&self, service: &str) -> Result<ServiceDetail, ApiError> {
        self.get(&["services", service]).await
    }

    /// Returns the decision that authorize would make now. `replay_key` must be new for each check.
    pub async fn check(&self, call: &Call<'_>, terms: &PaymentTerms, replay_key: &str) -> Result<Preflight, ApiError> {
        let body = AuthorizeBody {
            replay_key: Some(replay_key),
            ..AuthorizeBody::new(call, terms)
        };
        self.post(&["x402", "check"], &body).await.map(|(response, _)| response)
    }

    /// Checks whether the agent may make a call without a payment. A rejection is returned as [`ApiError::Refused`].
    ///
    /// A program that calls providers for agents should make this check before each call.
    pub async fn check_unpaid(&self, call: &Call<'_>) -> Result<UnpaidCheck, ApiError> {
        let body = JudgedUnpaid {
            original_request: Original {
                method: call.method,
                url: call.url,
                body_hash: call.body_hash.as_deref(),
            },
            metadata: call.target_url.map(|target_url| Metadata { target_url }),
            service_id: call.service_id,
            operation_id: call.operation_id,
        };
        let response = self.post(&["x402", "check", "unpaid"], &body).await;
        response.map(|(response, _)| response)
    }

    /// Authorizes a call: Purser evaluates the policy, reserves the amount and signs the payment.
    ///
    /// The same call with the same key returns the same payment.
    pub async fn authorize(
        &self,
        call: &Call<'_>,
        terms: &PaymentTerms,
        key: &IdempotencyKey,
        approval: Option<Uuid>,
    ) -> Result<Authorized, ApiError> {
        let body = AuthorizeBody {
            idempotency_key: Some(key.as_str()),
            approval_id: approval,
            ..AuthorizeBody::new(call, terms)
        };
        let (response, headers): (Authorized, HeaderMap) = self.post(&["x402", "authorize"], &body).await?;
        Ok(Authorized {
            replayed: headers.get("idempotent-replayed").is_some_and(|value| value == "true"),
            ..response
        })
    }

    /// Completes a settlement: Purser verifies the payment on chain with the provider's settlement header.
    ///
    /// `tx_hash` is needed only if the header contains no transaction hash. The request is not retried, because the
    /// caller waits for the paid response.
    pub async fn complete(
        &self,
        settlement: Uuid,
        provider_proof: &Value,
        tx_hash: Option<&str>,
    ) -> Result<Completed, ApiError> {
        let body = CompleteBody {
            payment_response_header: provider_proof,
            tx_hash,
        };
        let url = self.address(&["x402", "settlements", &settlement.to_string(), "complete"])?;
        self.send_once(Method::POST, url, Some(&body))
            .await
            .map(|(response, _)| response)
    }

    /// Returns a settlement, which is the receipt of a payment.
    pub async fn receipt(&self, settlement: Uuid) -> Result<Settlement, ApiError> {
        self.get(&["x402", "settlements", &settlement.to_string()]).await
    }

    /// Returns the signed statements about a payment.
    pub async fn statements(&self, settlement: Uuid) -> Result<SettlementStatements, ApiError> {
        self.get(&["x402", "settlements", &settlement.to_string(), "statement"])
            .await
    }

    /// Returns the signed statement of a decision, or a 404 error in the first minute after the decision.
    pub async fn decision_statement(&self, transaction: Uuid) -> Result<AgentDecisionStatement, ApiError> {
        self.get(&["x402", "decisions", &transaction.to_string(), "statement"])
            .await
    }

    /// Returns the keys that verify the statements and the log, in the format of `purser verify --trust`.
    pub async fn trust(&self) -> Result<Value, ApiError> {
        self.get(&["log", "trust"]).await
    }

    /// Lists the newest receipts. `limit` is the maximum number of receipts, at most 100.
    pub async fn receipts(&self, agent_id: &str, limit: u8) -> Result<Settlements, ApiError> {
        let address = self.address(&["agents", agent_id, "settlements"])?;
        self.read(address, &[("limit", Some(limit.to_string()))]).await
    }

    /// Returns an approval with its current status.
    pub async fn approval(&self, approval: Uuid) -> Result<Approval, ApiError> {
        self.get(&["approvals", &approval.to_string()]).await
    }

    /// Returns an approval once it is no longer pending, or after `max_wait`. The request is not retried.
    pub(crate) async fn approval_within(&self, approval: Uuid, max_wait: Duration) -> Result<Approval, ApiError> {
        let seconds = max_wait.min(MAX_WAIT).as_secs();
        if seconds == 0 {
            return self.approval(approval).await;
        }
        let mut url = self.address(&["approvals", &approval.to_string()])?;
        url.query_pairs_mut().append_pair("wait_seconds", &seconds.to_string());
        let (response, _) = self.send_once(Method::GET, url, None::<&()>).await?;
        Ok(response)
    }

    /// Builds a URL below the base URL. Each segment is percent-encoded.
    fn address(&self, segments: &[&str]) -> Result<Url, ApiError> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| ApiError::Unreadable("its URL has no path"))?
            .pop_if_empty()
            .extend(segments);
        Ok(url)
    }

    async fn get<T: DeserializeOwned>(&self, segments: &[&str]) -> Result<T, ApiError> {
        self.read(self.address(segments)?, &[]).await
    }

    async fn read<T: DeserializeOwned>(&self, mut url: Url, query: &[(&str, Option<String>)]) -> Result<T, ApiError> {
        let given = query.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        for (name, value) in given {
            url.query_pairs_mut().append_pair(name, value);
        }
        self.send_with_retries(Method::GET, url, None::<&()>)
            .await
            .map(|(response, _)| response)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<(T, HeaderMap), ApiError> {
        self.send_with_retries(Method::POST, self.address(segments)?, Some(body))
            .await
    }

    /// Sends a request, and retries it after a temporary failure. A retry of these requests never pays twice.
    async fn send_with_retries<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<&impl Serialize>,
    ) -> Result<(T, HeaderMap), ApiError> {
        let mut attempts_left = ATTEMPTS;
        loop {
            attempts_left = attempts_left.saturating_sub(1);
            let response = self.send_once(method.clone(), url.clone(), body).await;
            let pause = match &response {
                Err(ApiError::Refused(rejection)) if rejection.is_temporary() => {
                    rejection.retry_after.unwrap_or(Duration::from_millis(500))
                }
                Err(ApiError::Unreachable(_)) => Duration::from_millis(500),
                _ => return response,
            };
            let longest = self
                .deadline
                .map_or(MAX_PAUSE, |deadline| time_left(deadline).min(MAX_PAUSE));
            if attempts_left == 0 || pause > longest {
                return response;
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn authorization(&self) -> Result<Option<HeaderValue>, ApiError> {
        match &self.key_source {
            Some(KeySource(source)) => Ok(source().await?.header()),
            None => Ok(self.authorization.clone()),
        }
    }

    fn signature(
        &self,
        method: &Method,
        url: &Url,
        authorization: Option<&HeaderValue>,
    ) -> Option<(HeaderName, HeaderValue)> {
        let signer = self.signer.as_ref()?;
        let value = (signer.sign)(method, url.path(), authorization?)?;
        Some((signer.name.clone(), value))
    }

    async fn send_once<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<&impl Serialize>,
    ) -> Result<(T, HeaderMap), ApiError> {
        let authorization = self.authorization().await?;
        let signature = self.signature(&method, &url, authorization.as_ref());
        let mut request = self.http.request(method, url);
        if let Some((name, value)) = signature {
            request = request.header(name, value);
        }
        if let Some(deadline) = self.deadline {
            request = request.timeout(time_left(deadline).min(TIMEOUT));
        }
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request
            .send()
            .await
            .map_err(|error| ApiError::Unreachable(error.without_url()))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_bounded(response, MAX_RESPONSE_BYTES)
            .await
            .map_err(|error| match error {
                BodyError::Broken(error) => ApiError::Unreachable(error),
                BodyError::TooLong => ApiError::Unreadable("it is longer than 1 MiB"),
            })?;
        if status.is_success() {
            let document = serde_json::from_slice(&body).map_err(|_| ApiError::Unreadable("its members"))?;
            Ok((document, headers))
        } else {
            Err(Refusal::read(status.as_u16(), retry_after(&headers), &body).into())
        }
    }
}

pub(crate) fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

pub(crate) enum BodyError {
    Broken(reqwest::Error),
    TooLong,
}

/// Reads a body. A body longer than `max_bytes` bytes is an error.
pub(crate) async fn read_bounded(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| BodyError::Broken(error.without_url()))?
    {
        if body.len().saturating_add(chunk.len()) > max_bytes {
            return Err(BodyError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Reads the start of a body, at least `max_bytes` bytes if available. Returns whether the body was cut.
pub(crate) async fn read_truncated(mut response: Response, max_bytes: usize) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while body.len() <= max_bytes {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return (body, false),
            Err(_) => break,
        }
    }
    (body, true)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
