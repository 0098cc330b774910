//! The one HTTP client of a function. AWS and the chain's node are called over it, so that an environment reads the
//! system's certificate authorities once and has one pool of connections.
//!
//! It follows no redirect and knows no proxy. How long an answer may take is its callers' to say.

use aws_smithy_http_client::{
    Connector,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::HttpRequest,
};
use std::{sync::OnceLock, time::Duration};

/// How long connecting may take, TLS included: a handshake takes three times the distance, and a hosted node may be
/// 200 ms away. Every caller waits longer than this.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);

/// A client with a pool of its own. Nothing is read or opened before the first request.
pub fn http() -> SharedHttpConnector {
    SharedHttpConnector::new(OnDemand(OnceLock::new()))
}

/// The SDK's connector, made when it is needed: not every [`crate::Boot`] calls somebody.
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
