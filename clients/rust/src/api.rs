//! The agent API, call by call.

use crate::answer::{
    Agent, Approval, Authorized, Completed, EnabledServices, Preflight, ServiceDetail, ServicePolicy, Services,
    Settlement, Settlements,
};
use crate::{AgentKey, AgentKeyError, IdempotencyKey, PaymentTerms, Refusal, Usdc};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::{Host, Url};
use uuid::Uuid;

/// How long one call of Purser takes at most.
const TIMEOUT: Duration = Duration::from_secs(35);
/// How often a call is made at most, where the answer says that it may be repeated, or none came.
const ATTEMPTS: u32 = 3;
/// The longest pause between them; what has to wait longer is the caller's to wait for.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long Purser waits at most in one call for an approval (`wait_seconds`).
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// The longest answer that is read, in bytes: a list of 500 services is a third of it.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// Purser, called with one agent's key. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Purser {
    base: Url,
    http: Client,
    /// None to read the public catalog alone.
    authorization: Option<HeaderValue>,
    /// When every call is over.
    deadline: Option<Instant>,
    /// Makes one more header of each request.
    signer: Option<Signer>,
}

/// Makes a header of a request's method, path and `Authorization`.
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

/// A URL that Purser can't be called at: it must be `https`, or `http` to this machine.
#[derive(Debug, thiserror::Error)]
pub enum PurserUrlError {
    /// It is no URL, or would send the key in the clear.
    #[error("Purser's URL must be https://…, or http:// to this machine")]
    Url,
    /// The HTTP client can't be made.
    #[error("the HTTP client can't be made")]
    Client(#[source] reqwest::Error),
}

/// Why the environment names no Purser.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// `PURSER_URL` is not set.
    #[error("the environment variable PURSER_URL is not set")]
    MissingUrl,
    /// `PURSER_URL` can't be called.
    #[error(transparent)]
    Url(#[from] PurserUrlError),
    /// `PURSER_KEY` is not set, or is no agent key.
    #[error(transparent)]
    Key(#[from] AgentKeyError),
}

/// Why a call has no answer to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// Purser answered no.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// No answer, after some attempts. What was asked for may have been done: the same call under the same key finds it.
    #[error("Purser did not answer")]
    Unreachable(#[source] reqwest::Error),
    /// An answer of another form: another server, or a much later version.
    #[error("the answer is not Purser's: {0}")]
    Unreadable(&'static str),
}

impl ApiError {
    /// Whether the same question may be answered otherwise later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(refusal) => refusal.is_temporary(),
            Self::Unreadable(_) => false,
        }
    }

    /// How long to wait before, if Purser says.
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

/// One provider call to be paid, as authorize and check judge it.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// Where the provider is called.
    pub url: &'a str,
    /// The hash of the body, for a person who approves it.
    pub body_hash: Option<String>,
    /// The page that a scrape or crawl operation is pointed at.
    pub target_url: Option<&'a str>,
    /// The service's slug, where two list the same call.
    pub service_id: Option<&'a str>,
    /// The operation's slug, for the same.
    pub operation_id: Option<&'a str>,
    /// What it may cost at most.
    pub ceiling: Usdc,
}

/// Which services a list has; all by default.
#[derive(Clone, Debug, Default)]
pub struct CatalogFilter {
    /// Of this category.
    pub category: Option<String>,
    /// Of this trust status.
    pub trust_status: Option<String>,
    /// With this slug.
    pub slug: Option<String>,
    /// At most so many: 100 by default, 500 at most.
    pub limit: Option<u16>,
}

#[derive(Serialize)]
pub(crate) struct Judged<'a> {
    pub(crate) payment_requirement: &'a Value,
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
pub(crate) struct Proved<'a> {
    pub(crate) payment_response_header: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tx_hash: Option<&'a str>,
}

impl<'a> Judged<'a> {
    pub(crate) fn of(call: &'a Call<'_>, terms: &'a PaymentTerms) -> Self {
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
    /// Purser at this URL, with an agent's key.
    pub fn new(url: &str, key: &AgentKey) -> Result<Self, PurserUrlError> {
        Ok(Self::without_key(url)?.with_key(key))
    }

    /// Purser at `PURSER_URL`, with the agent's key in `PURSER_KEY`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client has no other settings, and reads this when it is asked to"
    )]
    pub fn from_env() -> Result<Self, EnvironmentError> {
        let url = std::env::var("PURSER_URL").map_err(|_| EnvironmentError::MissingUrl)?;
        Ok(Self::new(&url, &AgentKey::from_env()?)?)
    }

    /// The same Purser, over the same connections, with this agent's key.
    #[must_use]
    pub fn with_key(&self, key: &AgentKey) -> Self {
        Self {
            // Its characters are all a header's.
            authorization: key.header(),
            ..self.clone()
        }
    }

    /// The same Purser, whose calls are over at `deadline`: what is not answered then is [`ApiError::Unreachable`].
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..self.clone()
        }
    }

    /// The same Purser, whose requests with a key have one more header: what `sign` makes of the method, the path and the
    /// `Authorization` header. For a server that calls Purser for others and vouches for them.
    #[must_use]
    pub fn signed(
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

    /// Purser at this URL, to read its public catalog: without a key, all else is refused.
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
        // A redirect would carry the key elsewhere.
        let http = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
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

    /// The agent that the key belongs to.
    pub async fn agent(&self) -> Result<Agent, ApiError> {
        self.get(&["mcp", "agents", "me"]).await
    }

    /// What the agent may buy.
    pub async fn enabled_services(&self, agent_id: &str) -> Result<EnabledServices, ApiError> {
        self.get(&["mcp", "agents", agent_id, "services"]).await
    }

    /// One service's policy, by slug or id, and what is left of its limits.
    pub async fn policy(&self, agent_id: &str, service: &str) -> Result<ServicePolicy, ApiError> {
        self.get(&["agents", agent_id, "services", service, "policy"]).await
    }

    /// The catalog.
    pub async fn services(&self, filter: &CatalogFilter) -> Result<Services, ApiError> {
        let query = [
            ("category", filter.category.clone()),
            ("trust_status", filter.trust_status.clone()),
            ("slug", filter.slug.clone()),
            ("limit", filter.limit.map(|limit| limit.to_string())),
        ];
        self.read(self.address(&["services"])?, &query).await
    }

    /// One service of the catalog, by slug or id, with its operations.
    pub async fn service(&self, service: &str) -> Result<ServiceDetail, ApiError> {
        self.get(&["services", service]).await
    }

    /// What authorize would decide now. Nothing is reserved; `replay_key` is new for each question.
    pub async fn check(&self, call: &Call<'_>, terms: &PaymentTerms, replay_key: &str) -> Result<Preflight, ApiError> {
        let body = Judged {
            replay_key: Some(replay_key),
            ..Judged::of(call, terms)
        };
        self.post(&["x402", "check"], &body).await.map(|(answer, _)| answer)
    }

    /// Has a payment judged, reserved and signed. The same key and call answer the same payment.
    pub async fn authorize(
        &self,
        call: &Call<'_>,
        terms: &PaymentTerms,
        key: &IdempotencyKey,
        approval: Option<Uuid>,
    ) -> Result<Authorized, ApiError> {
        let body = Judged {
            idempotency_key: Some(key.as_str()),
            approval_id: approval,
            ..Judged::of(call, terms)
        };
        let (answer, headers): (Authorized, HeaderMap) = self.post(&["x402", "authorize"], &body).await?;
        Ok(Authorized {
            replayed: headers.get("idempotent-replayed").is_some_and(|value| value == "true"),
            ..answer
        })
    }

    /// Has a payment proved on the chain, by what the provider answered. Asked once, as somebody waits for what was paid.
    /// The transaction is needed only where the provider's answer does not name it.
    pub async fn complete(
        &self,
        settlement: Uuid,
        provider_proof: &Value,
        tx_hash: Option<&str>,
    ) -> Result<Completed, ApiError> {
        let body = Proved {
            payment_response_header: provider_proof,
            tx_hash,
        };
        let url = self.address(&["x402", "settlements", &settlement.to_string(), "complete"])?;
        self.once(Method::POST, url, Some(&body))
            .await
            .map(|(answer, _)| answer)
    }

    /// A receipt.
    pub async fn receipt(&self, settlement: Uuid) -> Result<Settlement, ApiError> {
        self.get(&["x402", "settlements", &settlement.to_string()]).await
    }

    /// The newest receipts, 100 at most.
    pub async fn receipts(&self, agent_id: &str, limit: u8) -> Result<Settlements, ApiError> {
        let address = self.address(&["agents", agent_id, "settlements"])?;
        self.read(address, &[("limit", Some(limit.to_string()))]).await
    }

    /// Where an approval stands.
    pub async fn approval(&self, approval: Uuid) -> Result<Approval, ApiError> {
        self.get(&["approvals", &approval.to_string()]).await
    }

    /// Where an approval stands once it is no longer pending, or after so long at most: Purser waits, up to
    /// [`LONGEST_WAIT`], in whole seconds. Asked once: a failure that passes is the caller's to wait for.
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

    /// An address below the base; each part is one segment, whatever is in it.
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
        self.repeated(Method::GET, url, None::<&()>)
            .await
            .map(|(answer, _)| answer)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<(T, HeaderMap), ApiError> {
        self.repeated(Method::POST, self.address(segments)?, Some(body)).await
    }

    /// Makes a call, again where that may help: each is a read, under a key, or about one settlement.
    async fn repeated<T: DeserializeOwned>(
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
        let body = bounded(response, MAX_ANSWER_BYTES).await.map_err(|error| match error {
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

/// The time until then; none if it is over.
pub(crate) fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Why a body was not read to its end.
pub(crate) enum BodyError {
    Broken(reqwest::Error),
    TooLong,
}

/// The body, if it is not longer than `most` bytes.
pub(crate) async fn bounded(mut response: Response, most: usize) -> Result<Vec<u8>, BodyError> {
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

/// The first bytes of a body, and whether there was more, as far as is known of one that breaks off.
pub(crate) async fn bounded_start(mut response: Response, most: usize) -> (Vec<u8>, bool) {
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
