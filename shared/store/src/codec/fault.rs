//! What is logged when DynamoDB fails.
//!
//! The SDK's error keeps the raw response, items included, and prints it in its debug form. None of that may be logged,
//! so an error is reduced to safe text here, immediately.

use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata, SdkError},
    operation::RequestId as _,
};
use purser_domain::{Causes, Error};
use std::error::Error as StdError;

/// A failed call to DynamoDB, as text that is safe to log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(String);

impl Fault {
    /// A fault with a text of our own.
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// The SDK's error, without request and response.
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

/// Converts an SDK error into an internal error, for `map_err`.
pub(crate) fn failed<E>(doing: &'static str) -> impl FnOnce(SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    move |error| Error::internal(doing, Fault::of(&error))
}
