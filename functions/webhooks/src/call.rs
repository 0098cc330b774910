//! Makes one signed webhook call.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use purser_api::{AllowedHosts, UntrustedHttpClient, WebhookCallResult};
use purser_domain::{Delivery, Timestamp, WebhookSecret, WebhookSettings, WebhookUrl, webhook_signature_header};
use std::{pin::Pin, time::Duration};

/// The timeout of one webhook call. Standard Webhooks recommends 15 seconds or more.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(15);

const PROGRAM: &str = "Purser-Webhooks";

/// Posts calls to webhook receivers. The simulation has its own implementation.
pub trait WebhookReceivers: Send + Sync {
    /// Posts a body to a URL, within the timeout of a call.
    fn post<'a>(&'a self, url: &'a WebhookUrl, headers: HeaderMap, body: String, now: Timestamp) -> Posted<'a>;
}

/// The future of a webhook call's result.
pub type Posted<'a> = Pin<Box<dyn Future<Output = WebhookCallResult> + Send + 'a>>;

impl WebhookReceivers for UntrustedHttpClient {
    fn post<'a>(&'a self, url: &'a WebhookUrl, headers: HeaderMap, body: String, now: Timestamp) -> Posted<'a> {
        Box::pin(self.post(url, headers, body, now))
    }
}

pub(crate) fn webhook_receivers(
    allowed: AllowedHosts,
    timeout: Duration,
) -> reqwest::Result<Box<dyn WebhookReceivers>> {
    Ok(Box::new(UntrustedHttpClient::new(PROGRAM, allowed, timeout)?))
}

pub(crate) struct Caller(Box<dyn WebhookReceivers>);

impl Caller {
    pub(crate) fn new(receivers: Box<dyn WebhookReceivers>) -> Self {
        Self(receivers)
    }

    /// Calls a webhook with a delivery's event. Returns `None` if the call can't be signed.
    pub(crate) async fn call_webhook(
        &self,
        settings: &WebhookSettings,
        delivery: &Delivery,
        secrets: &[WebhookSecret],
        now: Timestamp,
    ) -> Option<WebhookCallResult> {
        let id = delivery.event_id.to_string();
        let signature = webhook_signature_header(secrets, &id, now, &delivery.event)?;
        let headers: HeaderMap = [
            (CONTENT_TYPE, HeaderValue::from_static(settings.content_type.name())),
            (HeaderName::from_static("webhook-id"), HeaderValue::from_str(&id).ok()?),
            (HeaderName::from_static("webhook-timestamp"), now.secs().into()),
            (
                HeaderName::from_static("webhook-signature"),
                HeaderValue::from_str(&signature).ok()?,
            ),
        ]
        .into_iter()
        .collect();
        Some(self.0.post(&settings.url, headers, delivery.event.clone(), now).await)
    }
}
