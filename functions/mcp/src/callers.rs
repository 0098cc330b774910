//! Authenticates callers: verifies an agent key or access token before the protocol is handled, and throttles callers
//! without either.
//!
//! Invariant: a message reaches a tool only if the API accepted the key from this address at most [`CACHE_SECS`] ago.
//! The API checks the key again for each call that may reach a provider.

use crate::open_calls::OpenCalls;
use crate::responses::Responses;
use axum::http::{HeaderMap, HeaderValue, header, request::Parts};
use purser_api::{ASSERTED_IP, AssertionKeys, Clock, ThrottleScope, client_ip, read_key};
use purser_client::{AgentKey, ApiError, Purser, Refusal, Slug};
use purser_domain::{Duration, Error, ErrorKind, KeyLack, PresentedKey, Result, SecretDigest, Timestamp};
use purser_mcp::Caller;
use purser_store::Throttle;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// The time in seconds for which an accepted key, even if revoked, is not verified again.
const CACHE_SECS: u32 = 3;
/// The maximum number of cached keys per instance. Further keys are verified for each message.
const MAX_CACHED: usize = 10_000;
const VERIFYING: std::time::Duration = std::time::Duration::from_secs(5);
/// The `Retry-After` in seconds if the API is unreachable.
const RETRY_AFTER: u64 = 2;

pub(crate) struct Callers {
    pub(crate) throttle: Throttle,
    /// The keys that sign callers' addresses for the API. With `None`, the API throttles all callers
    /// together, because the API sees only this function's address.
    pub(crate) assertion_keys: Option<AssertionKeys>,
    pub(crate) clock: Clock,
    pub(crate) accepted: AcceptedKeys,
    pub(crate) open_calls: OpenCalls,
    pub(crate) responses: Responses,
}

/// Parses the key or access token in the header `Authorization`, as the API does (`read_key`).
fn parse_agent_key(headers: &HeaderMap) -> Result<(PresentedKey, AgentKey)> {
    let presented = read_key(headers)?;
    let text = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = text.and_then(|text| text.split_once(' '));
    let key = key.and_then(|(_, key)| AgentKey::from_text(key).ok());
    Ok((presented, key.ok_or(ErrorKind::InvalidAgentKey)?))
}

impl Callers {
    /// Verifies the caller of a request. A missing key is a 401, after which MCP hosts ask the user for access.
    pub(crate) async fn verify_caller(&self, purser: &Purser, parts: &Parts) -> Result<Caller> {
        let now = self.clock.now();
        let (presented, key) = match parse_agent_key(&parts.headers) {
            Ok(key) => key,
            // This request does not reach the API, so the Lambda function `mcp` counts the rejection itself.
            Err(error) => {
                let scope = ThrottleScope::for_request(&parts.extensions);
                return self.throttle.run_limited_by(scope, now, async { Err(error) }).await;
            }
        };
        let purser = self.with_client_ip_assertion(purser.with_key(&key), parts).await;
        let authorization = parts.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let who = AcceptedKeys::credentials_and_ip_digest(authorization.unwrap_or_default(), parts);
        if !self.accepted.contains(&who, now) {
            let deadline = Instant::now().checked_add(VERIFYING);
            let request = deadline.map_or_else(|| purser.clone(), |deadline| purser.until(deadline));
            request.agent().await.map_err(rejected_key_error)?;
            self.accepted.add(who, now);
        }
        let calls = self.open_calls.call_limit(presented.agent, presented.key);
        let responses = self.responses.for_key(presented.agent, presented.key);
        Ok(Caller {
            purser,
            calls,
            responses,
            lacks_permission: Arc::default(),
        })
    }

    /// Returns a client whose calls to the API contain the caller's signed address.
    async fn with_client_ip_assertion(&self, purser: Purser, parts: &Parts) -> Purser {
        let Some(ip) = client_ip(&parts.extensions) else {
            return purser;
        };
        let key = match &self.assertion_keys {
            Some(keys) => keys.current_keys().await,
            None => None,
        };
        let Some(key) = key else { return purser };
        let clock = self.clock.clone();
        purser.with_signature(ASSERTED_IP, move |method, path, authorization| {
            key.sign_assertion(ip, clock.now(), method, path, authorization)
        })
    }
}

fn rejected_key_error(error: ApiError) -> Error {
    let unavailable = ErrorKind::TemporarilyUnavailable {
        retry_after: RETRY_AFTER,
    };
    let ApiError::Refused(rejection) = error else {
        tracing::warn!(%error, "mcp.key_not_verified");
        return unavailable.into();
    };
    let Refusal { slug, retry_after, .. } = &*rejection;
    match slug {
        Slug::InvalidAgentKey => ErrorKind::InvalidAgentKey,
        Slug::InvalidAuthorizationHeader => ErrorKind::InvalidAuthorizationHeader,
        // Every key may read its own agent, so only the key's allowed networks can cause this error.
        Slug::KeyNotAllowed => ErrorKind::KeyNotAllowed {
            missing: KeyLack::Network,
        },
        Slug::TooManyRequests => ErrorKind::TooManyRequests {
            retry_after: retry_after.map_or(RETRY_AFTER, |wait| wait.as_secs()),
        },
        _ => {
            tracing::warn!(refusal = %rejection, "mcp.key_not_verified");
            unavailable
        }
    }
    .into()
}

/// Digests of the keys that the API accepted and of the callers' addresses, with expiry times.
#[derive(Default)]
pub(crate) struct AcceptedKeys(Mutex<HashMap<[u8; 32], Timestamp>>);

impl AcceptedKeys {
    fn credentials_and_ip_digest(authorization: &[u8], parts: &Parts) -> [u8; 32] {
        let ip = client_ip(&parts.extensions).map(|ip| ip.to_string());
        let text = [ip.unwrap_or_default().as_bytes(), b" ", authorization].concat();
        *SecretDigest::from_secret(text).as_bytes()
    }

    fn contains(&self, key_digest: &[u8; 32], now: Timestamp) -> bool {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key_digest).is_some_and(|until| now < *until)
    }

    fn add(&self, key_digest: [u8; 32], now: Timestamp) {
        let until = now.after(Duration::from_secs_u32(CACHE_SECS));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_CACHED {
            kept.retain(|_, until| now < *until);
        }
        if kept.len() < MAX_CACHED {
            kept.insert(key_digest, until);
        }
    }
}
