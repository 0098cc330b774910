//! AWS configuration: region, credentials and endpoints.
//!
//! All values come from [`Env`], so that one error reports every missing variable. The SDK's other providers do not
//! apply in Lambda and would add a megabyte to each function (`docs/decisions.md` §11).

use crate::Env;
use aws_sdk_secretsmanager::config::{BehaviorVersion, Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{SharedHttpConnector, http_client_fn};
use aws_types::{
    SdkConfig,
    region::Region,
    sdk_config::{RetryConfig, TimeoutConfig},
    service_config::{LoadServiceConfig, ServiceConfigKey},
};
use axum::http::Uri;
use std::{net::IpAddr, time::Duration};

/// Reads `AWS_REGION`, the credentials, and the endpoints, which are empty in the cloud.
///
/// The SDK's `AWS_ENDPOINT_URL_…` variables are not used, because the SDK uses an empty value as an address.
///
/// AWS responds within milliseconds, so three attempts of one second are enough. The longest handler makes three calls
/// in a row: nine of the function's fifteen seconds.
pub(crate) fn aws_config(env: &mut Env, http: SharedHttpConnector) -> SdkConfig {
    // If a variable is missing, `require_text` records an error in `env`, and the function does not start.
    let region = env.require_text("AWS_REGION");
    let [id, secret] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| env.require_text(name));
    let session = env.get("AWS_SESSION_TOKEN").map(str::to_owned);
    // The credentials have no expiry time, because they stay valid for longer than Lambda keeps an instance.
    let credentials = Credentials::new(id, secret, session, None, "environment");
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(1))
        .operation_timeout(Duration::from_secs(3))
        .build();
    // The behavior version is fixed, so that an update of the SDK does not change retries or timeouts.
    SdkConfig::builder()
        .http_client(http_client_fn(move |_, _| http.clone()))
        .behavior_version(BehaviorVersion::v2026_01_12())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(3))
        .service_config(Endpoints {
            dynamodb: read_endpoint(env, "DYNAMODB_ENDPOINT"),
            secrets: read_endpoint(env, "SECRETS_ENDPOINT"),
            lambda: read_endpoint(env, "LAMBDA_ENDPOINT"),
            kms: read_endpoint(env, "KMS_ENDPOINT"),
            sqs: read_endpoint(env, "SQS_ENDPOINT"),
            ses: read_endpoint(env, "SES_ENDPOINT"),
            eventbridge: read_endpoint(env, "EVENTBRIDGE_ENDPOINT"),
        })
        .region(Region::new(region))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build()
}

/// Reads an endpoint that replaces an AWS endpoint. Unless `NETWORK` is a test network, the endpoint must be on this
/// machine. Otherwise, somebody who can set variables could make a function evaluate real payments against another
/// database.
fn read_endpoint(env: &mut Env, name: &str) -> Option<String> {
    let text = env.get(name)?.to_owned();
    let Some(uri) = text.parse::<Uri>().ok().filter(is_endpoint_url) else {
        env.add_error(name, "must be empty, or an address: http://<host>:<port>");
        return None;
    };
    if !env.is_testnet() && !uri.host().is_some_and(is_loopback) {
        env.add_error(
            name,
            "must be empty or of this machine, unless `NETWORK` is a test network",
        );
        return None;
    }
    Some(text)
}

fn is_endpoint_url(uri: &Uri) -> bool {
    matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some() && uri.query().is_none()
}

/// Returns whether a host is `localhost` or a loopback address. An IPv6 address may have brackets.
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The configured endpoint of each AWS service; `None` for the default endpoint of AWS.
#[derive(Debug)]
struct Endpoints {
    dynamodb: Option<String>,
    secrets: Option<String>,
    lambda: Option<String>,
    kms: Option<String>,
    sqs: Option<String>,
    ses: Option<String>,
    eventbridge: Option<String>,
}

impl LoadServiceConfig for Endpoints {
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        match (key.env(), key.service_id()) {
            ("AWS_ENDPOINT_URL", "DynamoDB") => self.dynamodb.clone(),
            ("AWS_ENDPOINT_URL", "Secrets Manager") => self.secrets.clone(),
            ("AWS_ENDPOINT_URL", "Lambda") => self.lambda.clone(),
            ("AWS_ENDPOINT_URL", "KMS") => self.kms.clone(),
            ("AWS_ENDPOINT_URL", "SQS") => self.sqs.clone(),
            ("AWS_ENDPOINT_URL", "SESv2") => self.ses.clone(),
            ("AWS_ENDPOINT_URL", "EventBridge") => self.eventbridge.clone(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAMBDA: [(&str, &str); 3] = [
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];

    /// Returns the DynamoDB and Secrets Manager endpoints of the configuration, and the error.
    fn check(variables: &[(&str, &str)]) -> ([Option<String>; 2], Option<String>) {
        let mut env: Env = variables.iter().copied().collect();
        let config = aws_config(&mut env, crate::pooled_http_client());
        let told = |id| {
            let key = ServiceConfigKey::builder().service_id(id).profile("endpoint_url");
            let key = key.env("AWS_ENDPOINT_URL").build().unwrap();
            config.service_config().unwrap().load_config(key)
        };
        let told = ["DynamoDB", "Secrets Manager"].map(told);
        (told, env.finish(()).err().map(|error| error.to_string()))
    }

    #[test]
    fn empty_endpoint_variables_mean_no_endpoint() {
        let with = |more: &[(&'static str, &'static str)]| check(&[&LAMBDA, more].concat());
        assert_eq!(with(&[]), ([None, None], None));
        assert_eq!(
            with(&[("DYNAMODB_ENDPOINT", ""), ("SECRETS_ENDPOINT", "")]),
            ([None, None], None)
        );
        assert_eq!(
            with(&[
                ("NETWORK", "base-sepolia"),
                ("DYNAMODB_ENDPOINT", "http://172.17.0.1:8000"),
                ("SECRETS_ENDPOINT", "https://secrets.example")
            ]),
            (
                [
                    Some("http://172.17.0.1:8000".to_owned()),
                    Some("https://secrets.example".to_owned())
                ],
                None
            )
        );
        for text in ["127.0.0.1:8000", "ftp://a", "http://", "http://a?b", "/x"] {
            let (told, wrong) = with(&[("DYNAMODB_ENDPOINT", text)]);
            assert_eq!(told, [None, None], "{text}");
            let words = "`DYNAMODB_ENDPOINT` must be empty, or an address: http://<host>:<port>";
            assert_eq!(wrong.as_deref(), Some(words), "{text}");
        }
    }

    #[test]
    fn aws_endpoints_outside_test_networks_must_be_loopback() {
        let rows = [
            // Each row: the network, the endpoint, and whether the endpoint is accepted.
            (Some("base"), "http://127.0.0.1:8000", true),
            (Some("base"), "http://[::1]:8000", true),
            (None, "http://localhost:8000", true),
            (Some("base"), "http://172.17.0.1:8000", false),
            (Some("base"), "https://dynamodb.example", false),
            (Some("base"), "http://127.0.0.1.example", false),
            (Some("base"), "http://127.0.0.1@example.com", false),
            (Some("mainnet"), "http://172.17.0.1:8000", false),
            (None, "http://172.17.0.1:8000", false),
            (Some("base-sepolia"), "http://172.17.0.1:8000", true),
        ];
        for (network, text, is_taken) in rows {
            let network = network.map(|network| ("NETWORK", network));
            let more: Vec<_> = network.into_iter().chain([("SECRETS_ENDPOINT", text)]).collect();
            let ([_, told], wrong) = check(&[&LAMBDA[..], &more].concat());
            assert_eq!(
                (told.is_some(), wrong.is_none()),
                (is_taken, is_taken),
                "{network:?} {text}"
            );
        }
    }

    #[test]
    fn missing_aws_variables_are_reported() {
        assert_eq!(
            check(&[]).1.unwrap(),
            "`AWS_REGION` is not set; `AWS_ACCESS_KEY_ID` is not set; `AWS_SECRET_ACCESS_KEY` is not set"
        );
    }
}
