//! The HTTP client for calls to AWS and to the blockchain node. Callers share it, so that a Lambda instance loads the
//! certificate authorities once and has one connection pool.
//!
//! The client follows no redirects and uses no proxy. Callers set the timeout of a response.
//!
//! A server may close idle connections while Lambda freezes the instance, and a request on such a connection never gets
//! a response. The client therefore drops connections after [`IDLE`], also by the system clock, because the
//! pool's monotonic clock may stop during a freeze.

use crate::{
    Clock,
    http::{outward::USER_AGENT, public_address::PublicOnly},
};
use aws_smithy_http_client::{
    Connector,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::HttpRequest,
};
use purser_domain::{Duration, Timestamp};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The timeout for connecting, including TLS: three round trips to a node that may be 200 ms away.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(900);

/// The maximum time an idle connection is kept: half of the usual idle timeout of load balancers (60 s for ALB).
const IDLE: Duration = Duration::from_secs_u32(30);

/// Builds a connector with a limit of idle connections. A macro, because the builder's type can't be named.
macro_rules! builder {
    ($most_idle:expr) => {{
        let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT_TIMEOUT);
        Connector::builder()
            .connector_settings(settings.build())
            .pool_idle_timeout(std::time::Duration::from_secs(IDLE.secs()))
            .pool_max_idle_per_host($most_idle)
            .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
    }};
}

/// Creates a client with a new connection pool. Opens connections at the first request.
///
/// A request with `Connection: close` gets a new connection, which is not reused.
pub fn pooled_http_client() -> SharedHttpConnector {
    SharedHttpConnector::new(OnDemand::new(Clock::system()))
}

/// Creates a client that connects to public addresses only and keeps no idle connections. The caller must check IP
/// addresses in URLs ([`crate::may_be_public`]).
pub fn public_address_http_client() -> SharedHttpConnector {
    SharedHttpConnector::new(OutwardOnDemand::default())
}

/// A client that is created at the first call, because few Lambda instances call servers outside AWS.
#[derive(Debug, Default)]
struct OutwardOnDemand(OnceLock<Connector>);

impl HttpConnector for OutwardOnDemand {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let connector = || builder!(0).build_with_resolver(PublicOnly);
        self.0.get_or_init(connector).call(with_user_agent(request))
    }
}

/// HTTP connectors for the AWS SDK. They are created at the first request, because some functions send no request.
#[derive(Debug)]
struct OnDemand {
    clock: Clock,
    pool: Mutex<Option<Pool>>,
    without_pool: OnceLock<Connector>,
}

#[derive(Debug)]
struct Pool {
    connector: SharedHttpConnector,
    last_call: Timestamp,
}

impl OnDemand {
    const fn new(clock: Clock) -> Self {
        Self {
            clock,
            pool: Mutex::new(None),
            without_pool: OnceLock::new(),
        }
    }

    /// Returns the current connection pool. Replaces the pool if the last call was at least [`IDLE`] ago.
    fn current_connector(&self) -> SharedHttpConnector {
        let now = self.clock.now();
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = pool.take().filter(|pool| now.since(pool.last_call) < IDLE);
        let connector = kept.map_or_else(
            || SharedHttpConnector::new(build_connector(usize::MAX)),
            |pool| pool.connector,
        );
        *pool = Some(Pool {
            connector: connector.clone(),
            last_call: now,
        });
        connector
    }
}

impl HttpConnector for OnDemand {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut request = with_user_agent(request);
        // HTTP/2 has no `Connection` header. Here, `close` only selects the client without a pool.
        if request.headers_mut().remove("connection").as_deref() == Some("close") {
            self.without_pool.get_or_init(|| build_connector(0)).call(request)
        } else {
            self.current_connector().call(request)
        }
    }
}

/// Adds the header `User-Agent` if it is missing, as the SDK does.
fn with_user_agent(mut request: HttpRequest) -> HttpRequest {
    if request.headers().get("user-agent").is_none() {
        request.headers_mut().insert("user-agent", USER_AGENT);
    }
    request
}

fn build_connector(max_idle: usize) -> Connector {
    builder!(max_idle).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_testkit::{Reply, ScriptedNode};
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    };

    async fn answered(client: &SharedHttpConnector, node: &ScriptedNode, connection: Option<&'static str>) {
        let body = r#"{"id": 1, "method": "eth_blockNumber", "params": []}"#;
        let mut request = HttpRequest::new(body.into());
        request.set_method("POST").unwrap();
        request.set_uri(node.url.clone()).unwrap();
        if let Some(connection) = connection {
            request.headers_mut().insert("connection", connection);
        }
        let response = client.call(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        // A connection is reused only after the response was read completely.
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    }

    #[tokio::test]
    async fn http_connections_are_not_reused_after_a_pause() {
        let node = ScriptedNode::start(|_, _| Reply::Result("0x1".into())).await;
        let micros = Arc::new(AtomicI64::new(0));
        let client = SharedHttpConnector::new(OnDemand::new(Clock::at_fixed_time(Arc::clone(&micros))));
        // Each row: the seconds since the last call, the `Connection` header, and the expected number of connections.
        let rows = [
            (0, None, 1),
            (0, None, 1),
            (29, None, 1),
            (29, None, 1),
            (30, None, 2),
            (0, Some("close"), 3),
            (0, None, 3),
            (-3_600, None, 3),
            (3_600, None, 4),
        ];
        for (seconds, connection, connections) in rows {
            micros.fetch_add(seconds * 1_000_000, SeqCst);
            answered(&client, &node, connection).await;
            assert_eq!(node.connections(), connections, "{seconds} {connection:?}");
        }
        // The server ignores requests on open connections, so only a new connection gets a response.
        node.forget_connections();
        answered(&client, &node, Some("close")).await;
    }
}
