//! The agent API, one method per call.

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
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::{Host, Url};
use uuid::Uuid;

/// The timeout of one call to Purser.
const TIMEOUT: Duration = Duration::from_secs(35);
/// The maximum number of attempts of a call that got no answer, or a retryable one.
const ATTEMPTS: u32 = 3;
/// The longest pause between attempts. If Purser asks for a longer one, the call returns the error instead.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The longest wait for an approval in one call (`wait_seconds`).
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// The longest answer that is read, in bytes. A list of 500 services takes about a third of it.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// A client of Purser's agent API, with one agent's key. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Purser {
    base: Url,
    http: Client,
    /// `None` for a client that only reads the public catalog.
    authorization: Option<HeaderValue>,
    /// The instant at which every call times out.
    deadline: Option<Instant>,
    /// Adds a header to each request that carries a key.
    signer: Option<Signer>,
}

/// A function that computes a header from a request's method, path and `Authorization`.
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

/// A URL that is not accepted for Purser. It must be `https`, or `http` to this machine.
#[derive(Debug, thiserror::Error)]
pub enum PurserUrlError {
    /// The text is not a URL, or the URL would send the key in the clear.
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
    /// Purser answered with an error.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// No answer was received after several attempts. The request may have taken effect; repeating it with the same
    /// idempotency key returns its result.
    #[error("Purser did not answer")]
    Unreachable(#[source] reqwest::Error),
    /// The answer does not have the expected form. It comes from another server, or from a much later version of
    /// Purser.
    #[error("the answer is not Purser's: {0}")]
    Unreadable(&'static str),
}

impl ApiError {
    /// Returns whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(refusal) => refusal.is_temporary(),
            Self::Unreadable(_) => false,
        }
    }

    /// Returns how long to wait before a retry, if Purser specifies it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            Self::Unreachable(_) | Self::Unreadable(_) => None,
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// A provider call to be paid, as authorize and check judge it.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// The URL of the provider call.
    pub url: &'a str,
    /// The hash of the body, shown to a person who approves the call.
    pub body_hash: Option<String>,
    /// The page that a scrape or crawl operation fetches.
    pub target_url: Option<&'a str>,
    /// The slug of the service; needed if two services list the same call.
    pub service_id: Option<&'a str>,
    /// The slug of the operation; needed if two operations list the same call.
    pub operation_id: Option<&'a str>,
    /// The highest price that is accepted.
    pub ceiling: Usdc,
}

/// A request for higher caps, after a refusal.
#[derive(Clone, Debug, Serialize)]
pub struct RaiseRequest<'a> {
    /// The refusal's audit reference. There is one request for each refusal.
    pub transaction_id: Uuid,
    /// The cap per call to ask for, if the refused payment was above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_call_units: Option<Usdc>,
    /// The cap per rolling 24 hours to ask for, if it refused the payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_day_units: Option<Usdc>,
    /// The time at which the raise is to end: at most seven days from now.
    pub until: DateTime<Utc>,
    /// Why, for the agent's owner: at most 500 characters.
    pub reason: &'a str,
}

/// A filter for the list of services. The default matches all services.
#[derive(Clone, Debug, Default)]
pub struct CatalogFilter {
    /// Only services of this category.
    pub category: Option<String>,
    /// Only services with this trust status.
    pub trust_status: Option<String>,
    /// Only the service with this slug.
    pub slug: Option<String>,
    /// The maximum number of services: 100 by default, at most 500.
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
    /// Creates a client of the Purser at `url`, with an agent's key.
    pub fn new(url: &str, key: &AgentKey) -> Result<Self, PurserUrlError> {
        Ok(Self::without_key(url)?.with_key(key))
    }

    /// Creates a client of the Purser at `PURSER_URL`, with the agent key in `PURSER_KEY`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client has no other settings, and reads this when it is asked to"
    )]
    pub fn from_env() -> Result<Self, EnvironmentError> {
        let url = std::env::var("PURSER_URL").map_err(|_| EnvironmentError::MissingUrl)?;
        Ok(Self::new(&url, &AgentKey::from_env()?)?)
    }

    /// Returns a client with another agent key that shares this one's connections.
    #[must_use]
    pub fn with_key(&self, key: &AgentKey) -> Self {
        Self {
            // An agent key has only characters that a header allows.
            authorization: key.header(),
            ..self.clone()
        }
    }

    /// Returns a client whose calls time out at `deadline`.
    ///
    /// A call without an answer by then is [`ApiError::Unreachable`].
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..self.clone()
        }
    }

    /// Returns a client that adds the header `name` to each request that carries a key. `sign` computes its value from
    /// the method, the path and the `Authorization` header.
    ///
    /// This is for a server that calls Purser on behalf of others and vouches for them.
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

    /// Creates a client without a key. It can read the public catalog; every other call is refused.
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
            deadline: None,
            signer: None,
        })
    }

    /// Returns the agent that the key belongs to.
    pub async fn agent(&self) -> Result<Agent, ApiError> {
        self.get(&["mcp", "agents", "me"]).await
    }

    /// Lists the services that the agent may buy, each with its spend policy.
    pub async fn list_enabled_services(&self, agent_id: &str) -> Result<EnabledServices, ApiError> {
        self.get(&["mcp", "agents", agent_id, "services"]).await
    }

    /// Asks the agent's owner for higher caps for a limited time.
    ///
    /// Once the approval is approved, repeat the payment with a new idempotency key and without the approval's id.
    pub async fn ask_for_raise(&self, request: &RaiseRequest<'_>) -> Result<Approval, ApiError> {
        Ok(self.post(&["x402", "raises"], request).await?.0)
    }

    /// Returns one service's policy, by slug or id, and the remainder of its limits.
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

    /// Returns one service of the catalog with its operations, by slug or id.
    pub async fn service(&self, service: &str) -> Result<ServiceDetail, ApiError> {
        self.get(&["services", service]).await
    }

    /// Returns what authorize would decide now. Nothing is reserved. `replay_key` must be new for each check.
    pub async fn check(&self, call: &Call<'_>, terms: &PaymentTerms, replay_key: &str) -> Result<Preflight, ApiError> {
        let body = AuthorizeBody {
            replay_key: Some(replay_key),
            ..AuthorizeBody::new(call, terms)
        };
        self.post(&["x402", "check"], &body).await.map(|(answer, _)| answer)
    }

    /// Returns whether the agent may make a call without a payment: by the key's scope, the catalog, the policy, the
    /// freezes and the rules. A refusal is [`ApiError::Refused`].
    ///
    /// Purser never learns of a call that its provider doesn't ask a payment for, so a program that calls providers on
    /// behalf of agents asks this first.
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
        let answer = self.post(&["x402", "check", "unpaid"], &body).await;
        answer.map(|(answer, _)| answer)
    }

    /// Authorizes a call: Purser judges, reserves and signs its payment. The same key and call return the same payment.
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
        let (answer, headers): (Authorized, HeaderMap) = self.post(&["x402", "authorize"], &body).await?;
        Ok(Authorized {
            replayed: headers.get("idempotent-replayed").is_some_and(|value| value == "true"),
            ..answer
        })
    }

    /// Completes a settlement: Purser verifies the payment on chain, by the provider's settlement header.
    ///
    /// `tx_hash` is needed only if the header does not name the transaction. The request is not retried, because the
    /// caller is waiting for the paid answer.
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
        self.once(Method::POST, url, Some(&body))
            .await
            .map(|(answer, _)| answer)
    }

    /// Returns one receipt.
    pub async fn receipt(&self, settlement: Uuid) -> Result<Settlement, ApiError> {
        self.get(&["x402", "settlements", &settlement.to_string()]).await
    }

    /// Returns the signed statements about a payment.
    pub async fn statements(&self, settlement: Uuid) -> Result<SettlementStatements, ApiError> {
        self.get(&["x402", "settlements", &settlement.to_string(), "statement"])
            .await
    }

    /// Returns the signed statement of a decision, by the `transaction_id` of a response of authorize. The error is a 404
    /// until the statement is in the log, about a minute after the decision.
    pub async fn decision_statement(&self, transaction: Uuid) -> Result<AgentDecisionStatement, ApiError> {
        self.get(&["x402", "decisions", &transaction.to_string(), "statement"])
            .await
    }

    /// Returns the keys that verify statements and the log, as `purser verify --trust` reads them.
    pub async fn trust(&self) -> Result<Value, ApiError> {
        self.get(&["log", "trust"]).await
    }

    /// Lists the newest receipts, up to `limit`, which is at most 100.
    pub async fn receipts(&self, agent_id: &str, limit: u8) -> Result<Settlements, ApiError> {
        let address = self.address(&["agents", agent_id, "settlements"])?;
        self.read(address, &[("limit", Some(limit.to_string()))]).await
    }

    /// Returns an approval with its current status.
    pub async fn approval(&self, approval: Uuid) -> Result<Approval, ApiError> {
        self.get(&["approvals", &approval.to_string()]).await
    }

    /// Returns an approval once it is no longer pending, or after `wait`. Purser does the waiting, in whole seconds and
    /// up to [`LONGEST_WAIT`]. The request is not retried; the caller waits after a temporary failure.
    pub(crate) async fn approval_within(&self, approval: Uuid, wait: Duration) -> Result<Approval, ApiError> {
        let seconds = wait.min(LONGEST_WAIT).as_secs();
        if seconds == 0 {
            return self.approval(approval).await;
        }
        let mut url = self.address(&["approvals", &approval.to_string()])?;
        url.query_pairs_mut().append_pair("wait_seconds", &seconds.to_string());
        let (answer, _) = self.once(Method::GET, url, None::<&()>).await?;
        Ok(answer)
    }

    /// Builds a URL below the base. Each part is percent-encoded as a single path segment.
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
            .map(|(answer, _)| answer)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<(T, HeaderMap), ApiError> {
        self.send_with_retries(Method::POST, self.address(segments)?, Some(body))
            .await
    }

    /// Sends a request, and retries it where that may help. Retries are safe: each request is a read, carries a key, or
    /// concerns one settlement.
    async fn send_with_retries<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<&impl Serialize>,
    ) -> Result<(T, HeaderMap), ApiError> {
        let mut attempts_left = ATTEMPTS;
        loop {
            attempts_left = attempts_left.saturating_sub(1);
            let answer = self.once(method.clone(), url.clone(), body).await;
            let pause = match &answer {
                Err(ApiError::Refused(refusal)) if refusal.is_temporary() => {
                    refusal.retry_after.unwrap_or(Duration::from_millis(500))
                }
                Err(ApiError::Unreachable(_)) => Duration::from_millis(500),
                _ => return answer,
            };
            let longest = self
                .deadline
                .map_or(MAX_PAUSE, |deadline| time_left(deadline).min(MAX_PAUSE));
            if attempts_left == 0 || pause > longest {
                return answer;
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn signature(&self, method: &Method, url: &Url) -> Option<(HeaderName, HeaderValue)> {
        let (signer, authorization) = (self.signer.as_ref()?, self.authorization.as_ref()?);
        let value = (signer.sign)(method, url.path(), authorization)?;
        Some((signer.name.clone(), value))
    }

    async fn once<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<&impl Serialize>,
    ) -> Result<(T, HeaderMap), ApiError> {
        let signature = self.signature(&method, &url);
        let mut request = self.http.request(method, url);
        if let Some((name, value)) = signature {
            request = request.header(name, value);
        }
        if let Some(deadline) = self.deadline {
            request = request.timeout(time_left(deadline).min(TIMEOUT));
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request
            .send()
            .await
            .map_err(|error| ApiError::Unreachable(error.without_url()))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_bounded(response, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| match error {
                BodyError::Broken(error) => ApiError::Unreachable(error),
                BodyError::TooLong => ApiError::Unreadable("it is longer than 1 MiB"),
            })?;
        if status.is_success() {
            let answer = serde_json::from_slice(&body).map_err(|_| ApiError::Unreadable("its members"))?;
            Ok((answer, headers))
        } else {
            Err(Refusal::read(status.as_u16(), retry_after(&headers), &body).into())
        }
    }
}

/// Returns the time until `deadline`, or zero if it has passed.
pub(crate) fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The reason that a body was not read to its end.
pub(crate) enum BodyError {
    Broken(reqwest::Error),
    TooLong,
}

/// Reads a body of at most `most` bytes.
pub(crate) async fn read_bounded(mut response: Response, most: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| BodyError::Broken(error.without_url()))?
    {
        if body.len().saturating_add(chunk.len()) > most {
            return Err(BodyError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Reads the first `most` bytes of a body, or a little more. Returns whether there was more; a body that broke off
/// counts as more.
pub(crate) async fn read_start(mut response: Response, most: usize) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while body.len() <= most {
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
