//! The DynamoDB client. Throttled calls are retried only here, and conflicts by the operation that writes
//! (`backoff.rs`).

use crate::codec::{
    backoff::{THROTTLING_PAUSES, throttling_pause},
    fault::is_throttled,
};
use aws_sdk_dynamodb::{
    Client,
    config::{
        Builder,
        retry::{ClassifyRetry, RetryAction, RetryPartition, TokenBucket},
    },
    operation::transact_write_items::TransactWriteItemsError,
};
use aws_smithy_runtime_api::client::{
    interceptors::context::InterceptorContext,
    retries::classifiers::{RetryClassifierPriority, RetryReason},
};
use aws_smithy_types::retry::ErrorKind;
use aws_types::{
    SdkConfig,
    sdk_config::{RetryConfig, TimeoutConfig},
};
use std::time::Duration;

/// Creates a DynamoDB client. Two operations with three attempts of 2 s fit into a function's timeout of 15 s.
pub fn dynamodb_client(config: &SdkConfig) -> Client {
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(2))
        .operation_timeout(Duration::from_secs(6))
        .build();
    let retries = RetryConfig::standard()
        .with_max_attempts(THROTTLING_PAUSES.saturating_add(1))
        .with_initial_backoff(Duration::from_millis(50));
    // Retries after throttling cost no quota, so that one hot partition can't use up the retries of other calls.
    let quota = TokenBucket::builder().throttling_retry_cost(0).build();
    Client::from_conf(
        Builder::from(config)
            .timeout_config(timeouts)
            .retry_config(retries)
            .retry_partition(RetryPartition::custom("purser").token_bucket(quota).build())
            .retry_classifier(Throttling::Paused)
            .build(),
    )
}

/// Creates a client for unimportant calls: throttled calls fail without a retry.
pub(crate) fn client_without_throttling_retries(db: &Client) -> Client {
    let config = db.config().to_builder();
    Client::from_conf(config.retry_classifier(Throttling::GivenUp).build())
}

/// Whether throttled calls and throttled transactions are retried.
#[derive(Clone, Copy, Debug)]
enum Throttling {
    Paused,
    GivenUp,
}

impl Throttling {
    fn retry_action(self) -> RetryAction {
        match self {
            Self::Paused => {
                RetryAction::retryable_error_with_explicit_delay(ErrorKind::ThrottlingError, throttling_pause())
            }
            Self::GivenUp => RetryAction::RetryForbidden,
        }
    }
}

impl ClassifyRetry for Throttling {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let failure = context.output_or_error().and_then(Result::err);
        let failure = failure.and_then(|error| error.as_operation_error());
        match failure.and_then(|error| error.downcast_ref()) {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled))
                if is_throttled(cancelled.cancellation_reasons()) =>
            {
                self.retry_action()
            }
            _ => RetryAction::NoActionIndicated,
        }
    }

    fn classify_retry_v2(&self, context: &InterceptorContext, previous: &RetryAction) -> RetryAction {
        match previous {
            RetryAction::RetryIndicated(RetryReason::RetryableError {
                kind: ErrorKind::ThrottlingError,
                ..
            }) => self.retry_action(),
            _ => self.classify_retry(context),
        }
    }

    fn name(&self) -> &'static str {
        "throttling"
    }

    /// Runs after the SDK's own classifiers.
    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}
