//! A client of the internal API, with an operator's token.

use crate::credentials::{CredentialError, OPERATOR_TOKEN, from_standard_input, path, store, stored};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::signature::Signer;
use purser_client::{ApiError, Purser, PurserUrlError, Refusal};
use reqwest::header::{CONTENT_TYPE, HeaderValue, IF_MATCH, RETRY_AFTER};
use reqwest::{Client, Method};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use url::{Host, Url};
use zeroize::Zeroizing;

/// The timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(35);
/// The longest answer that is read, in bytes: the list of 2,000 services.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of attempts of a call that was throttled or temporarily unavailable.
const ATTEMPTS: u32 = 6;
/// The longest pause between attempts: one minute, the window of the rate limit.
const MAX_PAUSE: Duration = Duration::from_secs(61);

/// Purser's internal API.
#[derive(Debug)]
pub(crate) struct Operator {
    http: Client,
    base: Url,
    token: HeaderValue,
    signer: Option<Signer>,
}

impl Operator {
    /// Creates a client with the environment's token, or with the stored one. Requests are signed if the environment
    /// has AWS credentials, except to this machine.
    pub(crate) fn new(url: &str) -> Result<Self, Failure> {
        let text = match variable("PURSER_OPERATOR_TOKEN") {
            Some(text) => Zeroizing::new(text),
            None => stored(&path(OPERATOR_TOKEN)?)?.ok_or(CredentialError::NoToken)?,
        };
        Self::with_token(url, &text)
    }

    fn with_token(url: &str, token: &str) -> Result<Self, Failure> {
        // The same addresses are accepted as for an agent key.
        Purser::without_key(url).map_err(CredentialError::Url)?;
        let base = Url::parse(url).map_err(|_| CredentialError::Url(PurserUrlError::Url))?;
        let token = token.trim();
        let is_token = (1..=256).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        let header = HeaderValue::from_str(token).ok().filter(|_| is_token);
        let mut token = header.ok_or(CredentialError::Token)?;
        token.set_sensitive(true);
        let is_here = match base.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let signer = if is_here { None } else { Signer::of(variable, &base)? };
        // Redirects are not followed: they would send the token to another address.
        let http = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .build()
            .map_err(|error| CredentialError::Url(PurserUrlError::Client(error)))?;
        Ok(Self {
            http,
            base,
            token,
            signer,
        })
    }

    /// Returns all services, as `GET /internal/services` lists them.
    pub(crate) async fn services(&self) -> Result<Vec<Value>, Failure> {
        match self
            .call(Method::GET, &["services"], None, None)
            .await?
            .get_mut("services")
        {
            Some(Value::Array(services)) => Ok(std::mem::take(services)),
            _ => Err(ApiError::Unreadable("its list of services").into()),
        }
    }

    /// Returns one service, with its version.
    pub(crate) async fn service(&self, id: &str) -> Result<Value, Failure> {
        self.call(Method::GET, &["services", id], None, None).await
    }

    /// Writes a new service, or replaces the version `over` of an existing one.
    pub(crate) async fn put(&self, id: &str, over: Option<u64>, entry: &Value) -> Result<Value, Failure> {
        self.call(Method::PUT, &["services", id], over, Some(entry)).await
    }

    /// Requests a probe of a service.
    pub(crate) async fn probe(&self, id: &str) -> Result<Value, Failure> {
        self.call(Method::POST, &["services", id, "probe"], None, None).await
    }

    /// Sends a request, and retries it if it was throttled or the API is temporarily unavailable.
    async fn call(
        &self,
        method: Method,
        path: &[&str],
        over: Option<u64>,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let mut attempts_left = ATTEMPTS;
        loop {
            attempts_left = attempts_left.saturating_sub(1);
            match self.once(method.clone(), path, over, body).await {
                Err(Failure::Api(ApiError::Refused(refusal)))
                    if matches!(refusal.status, 429 | 503) && attempts_left > 0 =>
                {
                    let pause = refusal.retry_after.unwrap_or(Duration::from_secs(1));
                    if pause > MAX_PAUSE {
                        return Err(ApiError::Refused(refusal).into());
                    }
                    tokio::time::sleep(pause).await;
                }
                answer => return answer,
            }
        }
    }

    async fn once(
        &self,
        method: Method,
        path: &[&str],
        over: Option<u64>,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| CredentialError::Url(PurserUrlError::Url))?
            .pop_if_empty()
            .push("internal")
            .extend(path);
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut request = self.http.request(method.clone(), url.clone());
        if let Some(signer) = &self.signer {
            #[expect(
                clippy::disallowed_methods,
                reason = "a program of its own, whose clock is the machine's"
            )]
            let now = SystemTime::now();
            request = request.headers(signer.headers(method.as_str(), &url, body.as_bytes(), now)?);
        }
        request = request.header("x-internal-token", self.token.clone());
        if let Some(version) = over {
            request = request.header(IF_MATCH, format!("\"{version}\""));
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let unreachable = |error: reqwest::Error| ApiError::Unreachable(error.without_url());
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if bytes.len().saturating_add(chunk.len()) > MAX_ANSWER_BYTES {
                return Err(ApiError::Unreadable("it is longer than 64 MiB").into());
            }
            bytes.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            let refusal = Refusal::read(status.as_u16(), retry_after.map(Duration::from_secs), &bytes);
            return Err(ApiError::from(refusal).into());
        }
        serde_json::from_slice(&bytes).map_err(|_| ApiError::Unreadable("it is no JSON").into())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of its own, which reads its few settings where they are used"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Reads an operator's token from standard input, and stores it after Purser has accepted it.
pub(crate) async fn login(url: &str, output: &Output) -> Result<Exit, Failure> {
    let text = from_standard_input()?;
    Operator::with_token(url, &text)?.services().await?;
    let path = path(OPERATOR_TOKEN)?;
    store(&path, text.trim())?;
    output.say(&format!("The token is stored in {}.", path.display()));
    Ok(Exit::Done)
}
