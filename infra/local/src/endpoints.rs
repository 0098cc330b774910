//! An AWS configuration that reaches nothing but the stack.

use aws_config::{Region, SdkConfig};
use aws_sdk_dynamodb::config::Credentials;
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};

/// Where each service is.
#[derive(Debug)]
struct Endpoints {
    dynamodb: String,
    secrets: String,
}

impl LoadServiceConfig for Endpoints {
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        match (key.env(), key.service_id()) {
            ("AWS_ENDPOINT_URL", "DynamoDB") => Some(self.dynamodb.clone()),
            ("AWS_ENDPOINT_URL", "Secrets Manager") => Some(self.secrets.clone()),
            _ => None,
        }
    }
}

/// The functions' own configuration (retries, timeouts), with these endpoints and credentials that open nothing else.
pub(crate) async fn config(dynamodb: &str, secrets: &str) -> SdkConfig {
    let credentials = Credentials::new("local", "local", None, None, "the local stack");
    let endpoints = Endpoints {
        dynamodb: dynamodb.to_owned(),
        secrets: secrets.to_owned(),
    };
    purser_api::sdk_loader()
        // Both are given, so that nothing is asked of the machine's surroundings.
        .region(Region::from_static("us-east-1"))
        .credentials_provider(credentials)
        .load()
        .await
        .into_builder()
        .service_config(endpoints)
        .build()
}
