//! One call of a webhook: signed, at an address that was checked, without redirects, and in time. Of the answer only the
//! status and the pause that it asks for are looked at; its body is not read.

use purser_api::{AllowedHosts, NameRefused, client_for_any, client_for_public, may_be_public};
use purser_domain::{
    CallResult, Delivery, Duration as Length, Event, Timestamp, WebhookSecret, WebhookUrl, retry_after,
    webhook_signature,
};
use reqwest::{
    Client, ClientBuilder,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use std::{error::Error as StdError, time::Duration};

/// One call: what Standard Webhooks recommends at least.
pub(crate) const LONGEST_CALL: Duration = Duration::from_secs(15);
/// Servers usually send about two dozen.
const MAX_HEADERS: usize = 100;

const USER_AGENT: &str = concat!("Purser-Webhooks/", env!("CARGO_PKG_VERSION"));

/// Calls webhooks.
pub(crate) struct Caller {
    allowed: AllowedHosts,
    /// Connects only to public addresses, and encrypted.
    strict: Client,
    /// Connects to any address; used only for the allowed hosts.
    plain: Client,
    longest: Duration,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) result: CallResult,
    /// The pause that a failed call's answer asks for.
    pub(crate) asked: Option<Length>,
}

impl From<CallResult> for Called {
    fn from(result: CallResult) -> Self {
        Self { result, asked: None }
    }
}

impl Caller {
    /// A caller. `longest` is the timeout of a call.
    pub(crate) fn new(allowed: AllowedHosts, longest: Duration) -> reqwest::Result<Self> {
        let finish = |client: ClientBuilder| client.http1_only().http1_max_headers(MAX_HEADERS).build();
        Ok(Self {
            allowed,
            strict: finish(client_for_public(USER_AGENT).https_only(true))?,
            plain: finish(client_for_any(USER_AGENT))?,
            longest,
        })
    }

    /// Calls a webhook with a delivery's event, signed with each of these secrets; `None` if it can't be signed.
    pub(crate) async fn call(
        &self,
        url: &WebhookUrl,
        delivery: &Delivery,
        secrets: &[WebhookSecret],
        now: Timestamp,
    ) -> Option<Called> {
        let id = delivery.event_id.to_string();
        let signature = webhook_signature(secrets, &id, now, &delivery.event)?;
        let Some(client) = self.client_for(url) else {
            return Some(CallResult::BlockedAddress.into());
        };
        let request = client
            .post(url.url().clone())
            .header(CONTENT_TYPE, Event::MEDIA_TYPE)
            .header("webhook-id", id)
            .header("webhook-timestamp", now.secs())
            .header("webhook-signature", signature)
            .body(delivery.event.clone());
        let called = match tokio::time::timeout(self.longest, request.send()).await {
            Err(_) => CallResult::Timeout.into(),
            Ok(Err(error)) => result_of(&error).into(),
            Ok(Ok(answer)) => {
                let asked = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                Called {
                    result: CallResult::Status(answer.status().as_u16()),
                    asked: asked.and_then(|text| retry_after(text, now)),
                }
            }
        };
        Some(called)
    }

    /// The client that may call a URL. Names are checked again when they are resolved.
    fn client_for(&self, url: &WebhookUrl) -> Option<&Client> {
        if self.allowed.contains(url.url()) {
            Some(&self.plain)
        } else {
            (url.is_https() && may_be_public(url.url())).then_some(&self.strict)
        }
    }
}

fn result_of(error: &reqwest::Error) -> CallResult {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = source {
        match error.downcast_ref() {
            Some(NameRefused::Unknown) => return CallResult::UnknownHost,
            Some(NameRefused::NotPublic) => return CallResult::BlockedAddress,
            None => source = error.source(),
        }
    }
    CallResult::Unreachable
}
