//! A client for the dashboard's API with a user's session token, which is never stored.

use crate::api::{Api, Call, require_list};
use crate::credentials::{CredentialError, credential_header, read_variable};
use crate::exit::Failure;
use purser_client::ApiError;
use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use serde_json::Value;
use zeroize::Zeroizing;

/// The maximum length of a session token, in bytes (`shared/api/src/auth/session.rs`).
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// A client for the dashboard's API.
#[derive(Debug)]
pub(crate) struct Person(Api);

/// A write that is conditional on a version.
#[derive(Clone, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a [&'a str],
    /// The version that was read. Zero if the object is new.
    pub(crate) over: u64,
    pub(crate) body: Option<&'a Value>,
    /// The user's reason for the write.
    pub(crate) reason: Option<&'a str>,
}

impl Person {
    /// Creates a client with the session token from the environment.
    pub(crate) fn new(url: &str) -> Result<Self, Failure> {
        let token = Zeroizing::new(read_variable("PURSER_SESSION_TOKEN").ok_or(CredentialError::NoSession)?);
        let header = credential_header(&token, "Bearer ", MAX_TOKEN_BYTES).ok_or(CredentialError::Session)?;
        Ok(Self(Api::new(url, AUTHORIZATION, header)?))
    }

    /// Returns all agents of the user, except archived agents.
    pub(crate) async fn agents(&self) -> Result<Vec<Value>, Failure> {
        let (mut agents, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("limit", "100")];
            query.extend(cursor.iter().map(|cursor| ("cursor", cursor.as_str())));
            let call = Call {
                query: &query,
                ..Call::get(&["agents"])
            };
            let response = self.0.call(call).await?;
            let next = response.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
            agents.extend(require_list(response, "agents", "its list of agents")?);
            if next.is_none() {
                return Ok(agents);
            }
            if next == cursor {
                return Err(ApiError::Unreadable("a list that does not end").into());
            }
            cursor = next;
        }
    }

    /// Returns the services that the agent has, including disabled services.
    pub(crate) async fn services(&self, agent: &str) -> Result<Vec<Value>, Failure> {
        let response = self.0.call(Call::get(&["agents", agent, "services"])).await?;
        require_list(response, "services", "its list of services")
    }

    /// Returns the agent's version and the agent's rules.
    pub(crate) async fn rules(&self, agent: &str) -> Result<(u64, Vec<Value>), Failure> {
        let response = self.0.call(Call::get(&["agents", agent, "rules"])).await?;
        let version = response_version(&response)?;
        Ok((version, require_list(response, "rules", "its list of rules")?))
    }

    /// Sends a write, and returns the version after the write.
    pub(crate) async fn write(&self, write: Write<'_>) -> Result<u64, Failure> {
        let reason: Vec<_> = write.reason.iter().map(|reason| ("edit_reason", *reason)).collect();
        response_version(&self.send(write, &reason).await?)
    }

    /// Returns the preview of a write. A preview saves nothing.
    pub(crate) async fn preview(&self, write: Write<'_>) -> Result<Value, Failure> {
        self.send(write, &[("preview", "true")]).await
    }

    async fn send(&self, write: Write<'_>, query: &[(&str, &str)]) -> Result<Value, Failure> {
        let call = Call {
            method: write.method,
            query,
            over: Some(write.over),
            body: write.body,
            ..Call::get(write.path)
        };
        self.0.call(call).await
    }
}

/// Returns the version in a response, which the next update must contain.
fn response_version(response: &Value) -> Result<u64, Failure> {
    let version = response.get("version").and_then(Value::as_u64);
    version.ok_or_else(|| ApiError::Unreadable("an answer without a version").into())
}
