//! The one HTTP client of a function. AWS and the chain's node are called with it, so that an environment loads the
//! system's certificate authorities once and has one connection pool.
//!
//! It follows no redirects and uses no proxy. Callers set the timeout of an answer.

use aws_smithy_http_client::{
    Connector,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::HttpRequest,
};
use std::{sync::OnceLock, time::Duration};

/// Timeout for connecting, TLS included: a handshake takes three round trips, and a hosted node may be 200 ms away.
/// Every caller's timeout is longer.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);

/// A client with its own pool. Nothing is loaded or opened before the first request.
pub fn http() -> SharedHttpConnector {
    SharedHttpConnector::new(OnDemand(OnceLock::new()))
}

/// The SDK's connector, created when it is needed: not every [`crate::Boot`] makes calls.
#[derive(Debug)]
struct OnDemand(OnceLock<Connector>);

impl HttpConnector for OnDemand {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.0.get_or_init(connector).call(request)
    }
}

fn connector() -> Connector {
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT_TIMEOUT);
    Connector::builder()
        .connector_settings(settings.build())
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .build()
}
