//! Converts errors of DynamoDB calls into text that is safe to log. The debug form of an SDK error contains items.

use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata, SdkError},
    operation::RequestId as _,
    types::CancellationReason,
};
use purser_domain::{Causes, Error};
use std::error::Error as StdError;

/// A failed call to DynamoDB, as text that is safe to log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(String);

impl Fault {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(crate) fn from_sdk_error<E>(error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        let Some(response) = error.as_service_error() else {
            return Self(Causes(error).to_string());
        };
        let (code, message) = (
            response.code().unwrap_or("unknown"),
            response.message().unwrap_or("no message"),
        );
        let request = response.meta().request_id().unwrap_or("unknown");
        Self(format!("{code}: {message} (request {request})"))
    }
}

/// Converts an SDK error, for `map_err`. The error is `temporarily_unavailable` after throttling.
pub(crate) fn store_error<E>(operation: &'static str) -> impl FnOnce(SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    move |error| {
        let fault = Fault::from_sdk_error(&error);
        if error.code().is_some_and(is_throttling) {
            Error::temporarily_unavailable(operation, fault)
        } else {
            Error::internal(operation, fault)
        }
    }
}

/// Returns whether this exception means throttling (developer guide, "Error handling with DynamoDB").
fn is_throttling(code: &str) -> bool {
    matches!(
        code,
        "ProvisionedThroughputExceededException" | "RequestLimitExceeded" | "ThrottlingException"
    )
}

/// Codes of cancellation reasons (API reference, `TransactWriteItems`).
pub(crate) const CONDITION_FAILED: &str = "ConditionalCheckFailed";
pub(crate) const CONFLICT: &str = "TransactionConflict";
pub(crate) const THROTTLED: &str = "ThrottlingError";
pub(crate) const THROUGHPUT_EXCEEDED: &str = "ProvisionedThroughputExceeded";

/// Returns whether DynamoDB cancelled a transaction because of throttling, so that a later retry can succeed. The other
/// reasons may be conflicts. If all reasons are conflicts, returns `false`.
pub(crate) fn is_throttled(reasons: &[CancellationReason]) -> bool {
    let mut codes = reasons.iter().filter_map(CancellationReason::code);
    let lasts = |code| !matches!(code, "None" | CONFLICT | THROTTLED | THROUGHPUT_EXCEEDED);
    !codes.clone().any(lasts) && codes.any(|code| matches!(code, THROTTLED | THROUGHPUT_EXCEEDED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::{error::ErrorMetadata, operation::get_item::GetItemError};
    use aws_smithy_runtime_api::http::Response;
    use aws_smithy_types::body::SdkBody;
    use purser_domain::ErrorKind;

    #[test]
    fn only_throttling_is_temporarily_unavailable() {
        let rows = [
            ("ProvisionedThroughputExceededException", true),
            ("RequestLimitExceeded", true),
            ("ThrottlingException", true),
            ("InternalServerError", false),
            ("ResourceNotFoundException", false),
            ("TransactionConflictException", false),
            ("TransactionInProgressException", false),
            ("AccessDeniedException", false),
        ];
        for (code, throttled) in rows {
            let error = GetItemError::generic(ErrorMetadata::builder().code(code).message("no").build());
            let response = Response::new(400_u16.try_into().unwrap(), SdkBody::empty());
            let error = store_error("reading")(SdkError::service_error(error, response));
            let kind = error.kind();
            match kind {
                ErrorKind::TemporarilyUnavailable { retry_after: 1 } => assert!(throttled, "{code}"),
                ErrorKind::Internal => assert!(!throttled, "{code}"),
                _ => panic!("{code}: {error}"),
            }
        }
    }
}
