//! What the log is told when DynamoDB fails.
//!
//! The SDK's own error keeps the raw response, items included, and shows it in its debug form. Nothing of that may reach a
//! log, so an error is reduced to words here, at once.

use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata, SdkError},
    operation::RequestId as _,
};
use purser_domain::{Causes, Error};
use std::error::Error as StdError;

/// A call to DynamoDB that failed, in words that are safe to log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(String);

impl Fault {
    /// What went wrong, said by ourselves.
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// The SDK's error without the request and the response.
    pub(crate) fn of<E>(error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        let Some(answer) = error.as_service_error() else {
            return Self(Causes(error).to_string());
        };
        let (code, message) = (
            answer.code().unwrap_or("unknown"),
            answer.message().unwrap_or("no message"),
        );
        let request = answer.meta().request_id().unwrap_or("unknown");
        Self(format!("{code}: {message} (request {request})"))
    }
}

/// An internal error of ours from one of the SDK's, for `map_err`.
pub(crate) fn failed<E>(doing: &'static str) -> impl FnOnce(SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    move |error| Error::internal(doing, Fault::of(&error))
}
