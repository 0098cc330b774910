//! A user's consent to this program, with the tokens that OAuth grants (RFC 6749, RFC 8628 for devices).
//!
//! Purser ends the grant if a refresh token is used twice, so the stored tokens are read again before a refresh.

use crate::api::{Api, Call};
use crate::credentials::{AGENT_KEY, CredentialError, read_credential, store_credential};
use crate::exit::Failure;
use purser_client::{AgentKey, ApiError, Purser};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use url::Url;
use zeroize::Zeroizing;

/// The id of this program, which every deployment knows.
const CLIENT_ID: &str = "purser-cli";
/// An access token is refreshed this long before it expires, in seconds.
const REFRESH_BEFORE: u64 = 30;

/// The tokens of a grant, as they are stored.
#[derive(Serialize, Deserialize)]
pub(crate) struct Grant {
    /// The URL of the Purser server that issued the tokens.
    url: String,
    access_token: Zeroizing<String>,
    refresh_token: Zeroizing<String>,
    /// The time at which the access token expires, in seconds since 1970.
    expires_at: u64,
}

/// A device authorization, which the user confirms in a browser (RFC 8628 §3.2).
#[derive(Deserialize)]
pub(crate) struct DeviceAuthorization {
    device_code: Zeroizing<String>,
    pub(crate) user_code: String,
    pub(crate) verification_uri: String,
    pub(crate) verification_uri_complete: Option<String>,
    /// Seconds until the code expires.
    expires_in: u64,
    /// Seconds between two polls.
    #[serde(default = "default_interval")]
    interval: u64,
}

const fn default_interval() -> u64 {
    5
}

/// A response of the token endpoint (RFC 6749 §5.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: Zeroizing<String>,
    refresh_token: Zeroizing<String>,
    expires_in: u64,
}

/// Sends a form to one of OAuth's routes.
async fn post(url: &str, route: &str, fields: &[(&str, &str)]) -> Result<Value, Failure> {
    let form: Vec<_> = fields.iter().copied().chain([("client_id", CLIENT_ID)]).collect();
    let path = ["oauth", route];
    let call = Call {
        method: Method::POST,
        form: &form,
        ..Call::get(&path)
    };
    Api::without_credential(url)?.call(call).await
}

fn parse<T: for<'a> Deserialize<'a>>(response: Value, name: &'static str) -> Result<T, Failure> {
    serde_json::from_value(response).map_err(|_| ApiError::Unreadable(name).into())
}

/// Requests a code for the user.
pub(crate) async fn start_device_authorization(url: &str) -> Result<DeviceAuthorization, Failure> {
    parse(
        post(url, "device_authorization", &[("scope", "read pay")]).await?,
        "its device code",
    )
}

impl DeviceAuthorization {
    /// Polls until the user has decided, and returns the tokens.
    pub(crate) async fn wait_for_grant(&self, url: &str) -> Result<Grant, Failure> {
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", self.device_code.as_str()),
        ];
        let deadline = now_secs().saturating_add(self.expires_in);
        let mut interval = Duration::from_secs(self.interval);
        loop {
            tokio::time::sleep(interval).await;
            let failure = match post(url, "token", &fields).await {
                Ok(response) => return Grant::new(url, response),
                Err(failure) => failure,
            };
            interval = next_interval(&failure, interval).ok_or(failure)?;
            if now_secs() >= deadline {
                return Err(Failure::Words(
                    "the code has expired: run `purser login` again".to_owned(),
                ));
            }
        }
    }
}

/// Returns the pause before the next poll, or `None` if polling has failed (RFC 8628 §3.5).
fn next_interval(failure: &Failure, interval: Duration) -> Option<Duration> {
    match failure {
        Failure::Api(ApiError::Refused(rejection)) => match rejection.slug.as_str() {
            "authorization_pending" => Some(interval),
            "slow_down" => Some(interval.saturating_add(Duration::from_secs(5))),
            _ => None,
        },
        Failure::Api(ApiError::Unreachable(_)) => Some(interval.saturating_mul(2)),
        _ => None,
    }
}

impl Grant {
    fn new(url: &str, response: Value) -> Result<Self, Failure> {
        let tokens: TokenResponse = parse(response, "its tokens")?;
        Ok(Self {
            url: url.to_owned(),
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
            expires_at: now_secs().saturating_add(tokens.expires_in),
        })
    }

    /// Parses a stored grant; `None` if the credential is an agent key.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Stores the grant, and returns `the keyring` or the file's path, for a message.
    pub(crate) fn store(&self) -> Result<String, Failure> {
        let text = Zeroizing::new(serde_json::to_string(self).map_err(|error| Failure::Words(error.to_string()))?);
        Ok(store_credential(AGENT_KEY, &text)?)
    }

    /// Returns a client that refreshes the access token before it expires. `url` must be the issuer's URL.
    pub(crate) fn client(self, url: &str) -> Result<Purser, CredentialError> {
        if Url::parse(url).ok() != Url::parse(&self.url).ok() {
            return Err(CredentialError::OtherUrl {
                signed_in: self.url,
                url: url.to_owned(),
            });
        }
        let purser = Purser::without_key(url)?;
        let grant = Arc::new(Mutex::new(self));
        Ok(purser.with_key_source(move || {
            let grant = Arc::clone(&grant);
            Box::pin(async move {
                let mut grant = grant.lock().await;
                grant.refresh_if_old().await.map_err(|failure| match failure {
                    Failure::Api(error) => error,
                    failure => ApiError::NoKey(Box::new(failure)),
                })?;
                AgentKey::from_text(&grant.access_token).map_err(|error| ApiError::NoKey(Box::new(error)))
            })
        }))
    }

    async fn refresh_if_old(&mut self) -> Result<(), Failure> {
        let is_fresh = |grant: &Self| grant.expires_at > now_secs().saturating_add(REFRESH_BEFORE);
        if is_fresh(self) {
            return Ok(());
        }
        // Another process of this program may have refreshed the tokens.
        let stored = read_credential(AGENT_KEY)?.and_then(|text| Self::from_text(&text));
        if let Some(stored) = stored.filter(|stored| stored.url == self.url) {
            *self = stored;
        }
        if !is_fresh(self) {
            let fields = [
                ("grant_type", "refresh_token"),
                ("refresh_token", self.refresh_token.as_str()),
            ];
            *self = Self::new(&self.url, post(&self.url, "token", &fields).await?)?;
            self.store()?;
        }
        Ok(())
    }

    /// Ends the grant (RFC 7009).
    pub(crate) async fn revoke(&self) -> Result<(), Failure> {
        post(&self.url, "revoke", &[("token", &self.refresh_token)])
            .await
            .map(|_| ())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of its own, whose clock is the machine's"
)]
fn now_secs() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_client::Refusal;

    #[test]
    fn device_code_polling_continues_only_while_the_authorization_is_pending() {
        let interval = Duration::from_secs(5);
        for (error, next) in [
            ("authorization_pending", Some(5)),
            ("slow_down", Some(10)),
            ("access_denied", None),
            ("expired_token", None),
            ("invalid_grant", None),
        ] {
            let body = format!("{{\"error\": \"{error}\"}}");
            let failure = Failure::Api(Refusal::read(400, None, body.as_bytes()).into());
            assert_eq!(
                next_interval(&failure, interval).map(|next| next.as_secs()),
                next,
                "{error}"
            );
        }
    }
}
