//! Sends mail with SES v2.

use crate::send::SendResult;
use aws_sdk_sesv2::{
    Client, Config,
    config::{retry::RetryConfig, timeout::TimeoutConfig},
    error::{BuildError, SdkError},
    operation::send_email::SendEmailError,
    types::{Body, Content, Destination, EmailContent, Message, MessageHeader},
};
use aws_types::SdkConfig;
use purser_domain::{CallResult, Error, MailAddress, NotificationMessage, Result};
use std::time::Duration;

/// A mail client with a fixed sender.
pub(crate) struct Mail {
    client: Client,
    sender: MailAddress,
}

impl Mail {
    /// Creates a client with this sender. The SDK does not retry, because a mail without a response may have been sent.
    pub(crate) fn new(aws: &SdkConfig, sender: MailAddress, timeout: Duration) -> Self {
        let config = Config::from(aws)
            .to_builder()
            .retry_config(RetryConfig::disabled())
            .timeout_config(
                TimeoutConfig::builder()
                    .operation_timeout(timeout)
                    .operation_attempt_timeout(timeout)
                    .build(),
            )
            .build();
        Self {
            client: Client::from_conf(config),
            sender,
        }
    }

    pub(crate) async fn send_mail(
        &self,
        to: &MailAddress,
        message: &NotificationMessage,
        origin: &str,
    ) -> Result<SendResult> {
        let content = mail_content(message, origin).map_err(|error| Error::internal("building a mail", error))?;
        let result = self
            .client
            .send_email()
            .from_email_address(self.sender.as_str())
            .destination(Destination::builder().to_addresses(to.as_str()).build())
            .content(EmailContent::builder().simple(content).build())
            .send()
            .await;
        Ok(match result {
            Ok(_) => SendResult::Taken(CallResult::Status(200)),
            Err(error) => classify_ses_error(&error),
        })
    }
}

fn mail_content(message: &NotificationMessage, origin: &str) -> Result<Message, BuildError> {
    let part = |text: String| Content::builder().charset("UTF-8").data(text).build();
    let body = Body::builder()
        .text(part(message.to_text(origin))?)
        .html(part(message.to_html(origin))?)
        .build();
    // The mail links to the page on which a signed-in user turns mails off (RFC 2369 §3.2).
    let unsubscribe = MessageHeader::builder()
        .name("List-Unsubscribe")
        .value(format!("<{}>", NotificationMessage::settings_url(origin)))
        .build()?;
    Ok(Message::builder()
        .subject(part(message.subject.clone())?)
        .body(body)
        .headers(unsubscribe)
        .build())
}

/// Interprets an SES error. `MessageRejected` is permanent, except for an address that an operator must
/// verify in SES.
fn classify_ses_error(error: &SdkError<SendEmailError>) -> SendResult {
    let result = match error {
        SdkError::TimeoutError(_) => CallResult::Timeout,
        SdkError::ServiceError(response) => CallResult::Status(response.raw().status().as_u16()),
        _ => CallResult::Unreachable,
    };
    match error.as_service_error() {
        Some(SendEmailError::MessageRejected(rejected)) if !is_unverified_address_error(rejected.message()) => {
            SendResult::Ended(result)
        }
        _ => SendResult::Failed(result, None),
    }
}

fn is_unverified_address_error(message: Option<&str>) -> bool {
    message.is_some_and(|message| message.contains("not verified"))
}
