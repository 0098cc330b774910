//! Sends messages by mail and incoming webhook, and interprets the results.

use crate::Notifications;
use axum::http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use purser_api::WebhookCallResult;
use purser_domain::{
    CallResult, Duration, Error, NotificationMessage, NotificationSettings, Result, SecretOf, WebhookUrl,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// The mail service or the incoming webhook accepted the message.
    Taken(CallResult),
    /// Sending failed temporarily. The next attempt waits at least for the pause that the receiver requested.
    Failed(CallResult, Option<Duration>),
    /// The message was rejected permanently, because the mail address or the incoming webhook no longer exists.
    Ended(CallResult),
}

impl SendResult {
    pub(crate) const fn call_result(self) -> CallResult {
        match self {
            Self::Taken(result) | Self::Failed(result, _) | Self::Ended(result) => result,
        }
    }

    pub(crate) const fn nothing_to_send() -> Self {
        Self::Taken(CallResult::Status(204))
    }

    /// Interprets the response of an incoming webhook. Slack returns 403, 404 or 410 for a removed webhook, app or
    /// channel.
    const fn from_webhook_response(call_result: WebhookCallResult) -> Self {
        match call_result.result {
            result if result.is_success() => Self::Taken(result),
            result @ CallResult::Status(403 | 404 | 410) => Self::Ended(result),
            result => Self::Failed(result, call_result.asked),
        }
    }
}

impl Notifications {
    pub(crate) async fn mail_to_user(
        &self,
        settings: &NotificationSettings,
        message: &NotificationMessage,
    ) -> Result<SendResult> {
        let (Some(mail), Some(to)) = (&self.0.mail, &settings.address) else {
            return Ok(SendResult::nothing_to_send());
        };
        mail.send_mail(to, message, &self.0.origin).await
    }

    pub(crate) async fn post_to_user_webhook(
        &self,
        settings: &NotificationSettings,
        message: &NotificationMessage,
    ) -> Result<SendResult> {
        let shared = &self.0;
        let Some((place, _)) = &settings.terms.slack else {
            return Ok(SendResult::nothing_to_send());
        };
        let Some(ciphertext) = shared.table.read_notification_url(&settings.person, place.url).await? else {
            // The user replaced the incoming webhook. The next attempt uses the new URL.
            return Ok(SendResult::Failed(CallResult::Unreachable, None));
        };
        let of = SecretOf::NoticeUrl {
            person: settings.person.clone(),
            url: place.url,
        };
        let url = shared.key.decrypt(&of, &ciphertext).await?;
        let url = std::str::from_utf8(&url).ok().and_then(WebhookUrl::parse);
        let url = url.ok_or_else(|| {
            Error::internal(
                "reading the URL of a notification channel",
                "the stored text is not a URL",
            )
        })?;
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = message.to_slack_body(&shared.origin);
        let result = shared.incoming.post(&url, headers, body, shared.clock.now()).await;
        Ok(SendResult::from_webhook_response(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_status_403_404_and_410_disable_incoming_webhooks() {
        let rows = [
            (CallResult::Status(200), "taken"),
            (CallResult::Status(403), "ended"),
            (CallResult::Status(404), "ended"),
            (CallResult::Status(410), "ended"),
            (CallResult::Status(302), "failed"),
            (CallResult::Status(400), "failed"),
            (CallResult::Status(429), "failed"),
            (CallResult::Status(503), "failed"),
            (CallResult::Timeout, "failed"),
            (CallResult::BlockedAddress, "failed"),
        ];
        for (result, expected) in rows {
            let word = match SendResult::from_webhook_response(result.into()) {
                SendResult::Taken(_) => "taken",
                SendResult::Failed(..) => "failed",
                SendResult::Ended(_) => "ended",
            };
            assert_eq!(word, expected, "{result}");
        }
    }
}
