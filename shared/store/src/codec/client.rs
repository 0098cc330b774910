//! The DynamoDB client.

use aws_sdk_dynamodb::{Client, config::Builder};
use aws_types::{
    SdkConfig,
    sdk_config::{RetryConfig, TimeoutConfig},
};
use std::time::Duration;

/// A client that times out early enough for its caller to answer.
///
/// One attempt may take 2 s; a transaction usually takes a few hundredths of a second. Three attempts fit into 6 s, and
/// two such operations in a row fit into the 15 s of a function. The SDK's default pause before a second attempt, up to
/// a second, is meant for services that are slower than DynamoDB.
pub fn client(config: &SdkConfig) -> Client {
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(2))
        .operation_timeout(Duration::from_secs(6))
        .build();
    let retries = RetryConfig::standard()
        .with_max_attempts(3)
        .with_initial_backoff(Duration::from_millis(50));
    Client::from_conf(
        Builder::from(config)
            .timeout_config(timeouts)
            .retry_config(retries)
            .build(),
    )
}
