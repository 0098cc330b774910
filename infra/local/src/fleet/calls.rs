//! Calls of the running stack, as its owner, as an agent and as the person who runs it.

use crate::chain::{DevChain, DevChainError};
use crate::stack_file::StackFile;
use purser_api::Clock;
use purser_domain::Timestamp;
use reqwest::{Client, Method, RequestBuilder, StatusCode, header};
use serde_json::{Value, json};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Why the fleet could not be created.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// No answer.
    #[error("{call}: {source}")]
    Unanswered {
        /// Method and path.
        call: String,
        /// The HTTP client's error.
        source: reqwest::Error,
    },
    /// Another answer than the plan expects.
    #[error("{call} answered {status} {answer}; expected: {expected}")]
    Unexpected {
        /// Method and path, or who called.
        call: String,
        /// The status.
        status: StatusCode,
        /// The body.
        answer: Value,
        /// What was expected.
        expected: String,
    },
    /// A value is missing in an answer, or is not what it should be.
    #[error("an answer of the stack has no readable `{0}`")]
    Unreadable(&'static str),
    /// The local chain.
    #[error(transparent)]
    Chain(#[from] DevChainError),
    /// The owner already has a fleet.
    #[error("this stack has the fleet already; stop it, and start a new one with `make run`")]
    Filled,
    /// The journal did not catch up.
    #[error("after two minutes the journal counts {0}, and the calls were {1}")]
    Behind(String, String),
    /// A task ended without a result.
    #[error("a task of the demo ended: {0}")]
    Ended(#[from] tokio::task::JoinError),
}

/// An answer: its status, and its JSON.
pub(crate) struct Answer {
    call: String,
    status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of a success.
    pub(crate) fn ok(self) -> Result<Value, FleetError> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        Err(self.unexpected("a success"))
    }

    /// The body of a refusal with this error.
    pub(crate) fn refused(self, error: &'static str) -> Result<Value, FleetError> {
        if self.body.get("error").and_then(Value::as_str) == Some(error) {
            return Ok(self.body);
        }
        Err(self.unexpected(error))
    }

    fn unexpected(self, expected: &str) -> FleetError {
        FleetError::Unexpected {
            call: self.call,
            status: self.status,
            answer: self.body,
            expected: expected.to_owned(),
        }
    }
}

/// The text at `name` in an answer.
pub(crate) fn text(value: &Value, name: &'static str) -> Result<String, FleetError> {
    let text = value.get(name).and_then(Value::as_str);
    text.map(str::to_owned).ok_or(FleetError::Unreadable(name))
}

/// The number at `name` in an answer.
pub(crate) fn number(value: &Value, name: &'static str) -> Result<u64, FleetError> {
    value
        .get(name)
        .and_then(Value::as_u64)
        .ok_or(FleetError::Unreadable(name))
}

/// The running stack. Clones share it.
#[derive(Clone)]
pub(crate) struct Calls {
    http: Client,
    pub(crate) stack: Arc<StackFile>,
    pub(crate) chain: DevChain,
    /// An ID token of the owner, who has just signed in.
    token: Arc<RwLock<String>>,
}

/// How often a call is repeated that was throttled or met a conflict.
const ATTEMPTS: u32 = 4;

impl Calls {
    pub(crate) fn new(stack: StackFile) -> Self {
        Self {
            http: Client::new(),
            chain: DevChain::new(stack.rpc_url.clone()),
            stack: Arc::new(stack),
            token: Arc::default(),
        }
    }

    /// Sends a request, again where the answer says that this helps: after a 429, a 503, or a 422 that says so.
    async fn send(&self, method: Method, path: &str, credential: &str, body: &Value) -> Result<Answer, FleetError> {
        let call = format!("{method} {path}");
        let request = || -> RequestBuilder {
            let url = format!("{}{path}", self.stack.base_url);
            let request = self.http.request(method.clone(), url).bearer_auth(credential);
            let request = request.header(header::IF_MATCH, "*");
            if body.is_null() { request } else { request.json(body) }
        };
        let unanswered = |source| FleetError::Unanswered {
            call: call.clone(),
            source,
        };
        let mut attempt = 0;
        loop {
            attempt = u32::saturating_add(attempt, 1);
            let answer = request().send().await.map_err(unanswered)?;
            let status = answer.status();
            let body: Value = answer.json().await.map_err(unanswered)?;
            let wait = body.get("retry_after").and_then(Value::as_u64);
            match wait {
                Some(seconds) if attempt < ATTEMPTS => tokio::time::sleep(Duration::from_secs(seconds.min(60))).await,
                Some(_) | None => return Ok(Answer { call, status, body }),
            }
        }
    }

    /// A call of the owner. `body` is null for none.
    pub(crate) async fn owner(&self, method: Method, path: &str, body: &Value) -> Result<Answer, FleetError> {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner).clone();
        self.send(method, path, &token, body).await
    }

    /// A call of an agent.
    pub(crate) async fn agent(&self, key: &str, path: &str, body: &Value) -> Result<Answer, FleetError> {
        self.send(Method::POST, path, key, body).await
    }

    /// A service of the catalog, which anybody may read.
    pub(crate) async fn service(&self, slug: &str) -> Result<Value, FleetError> {
        self.owner(Method::GET, &format!("/services/{slug}"), &Value::Null)
            .await?
            .ok()
    }

    /// Signs the owner in again, as actions require that take a recent sign-in.
    pub(crate) async fn sign_in(&self) -> Result<(), FleetError> {
        let answer = self.owner(Method::POST, "/_local/token", &json!({})).await?.ok()?;
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = text(&answer, "token")?;
        Ok(())
    }

    pub(crate) async fn fund(&self, wallet: &str, units: u64) -> Result<(), FleetError> {
        let body = json!({"wallet_address": wallet, "units": units});
        self.owner(Method::POST, "/_local/fund", &body).await?.ok().map(|_| ())
    }

    /// The stack's time.
    pub(crate) async fn now(&self) -> Result<Timestamp, FleetError> {
        self.advance(0).await
    }

    /// Advances the clocks of stack and chain to that time; nothing if it is past.
    pub(crate) async fn advance_to(&self, time: Timestamp) -> Result<(), FleetError> {
        let ahead = time.since(self.now().await?).secs();
        if ahead > 0 {
            self.advance(ahead).await?;
        }
        self.sign_in().await
    }

    async fn advance(&self, seconds: u64) -> Result<Timestamp, FleetError> {
        let body = json!({"advance_seconds": seconds});
        let answer = self.owner(Method::POST, "/_local/clock", &body).await?.ok()?;
        let time = Clock::system()
            .now()
            .secs()
            .saturating_add(number(&answer, "ahead_seconds")?);
        Timestamp::from_secs(time).ok_or(FleetError::Unreadable("ahead_seconds"))
    }
}
