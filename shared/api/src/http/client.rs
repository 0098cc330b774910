//! The HTTP client for a function's calls to AWS and to the blockchain node. All callers share one client, so that a
//! Lambda instance loads the system's certificate authorities once and has one connection pool.
//!
//! The client follows no redirects and uses no proxy. Callers set the timeout of a response.
//!
//! Lambda freezes an instance between invocations. Meanwhile the server may close idle connections, or a device on the
//! path may drop them, and a request on such a connection never gets a response. Therefore the client does not reuse a
//! connection after [`IDLE`]. The pool measures idle time with the monotonic clock. AWS does not document whether this
//! clock advances during a freeze, and reports contradict each other. The system clock is corrected after a freeze, so
//! the client also drops its connections after a pause by the system clock.

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

/// The timeout for connecting, including TLS. A handshake takes three round trips, and a hosted node may be 200 ms
/// away. The timeouts of all callers are longer.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(900);

/// The maximum time for which an idle connection is kept: half of the usual idle timeout of load balancers (60 s for
/// ALB).
const IDLE: Duration = Duration::from_secs_u32(30);

/// Builds a connector with a limit of idle connections to one host. A macro, because the builder's type can't be named.
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

/// Creates a client with its own pool. Certificates are loaded, and connections are opened, at the first request.
///
/// A request with `Connection: close` gets a separate connection.
pub fn pooled_http_client() -> SharedHttpConnector {
    SharedHttpConnector::new(OnDemand::new(Clock::system()))
}

/// Creates a client for calls outside AWS, which connects to public addresses only and keeps no idle connections. The
/// caller must check URLs whose host is an IP address ([`crate::may_be_public`]).
pub fn public_http_client() -> SharedHttpConnector {
    SharedHttpConnector::new(OutwardOnDemand::default())
}

/// A client that is created at the first call, because few instances call servers outside AWS.
#[derive(Debug, Default)]
struct OutwardOnDemand(OnceLock<Connector>);

impl HttpConnector for OutwardOnDemand {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let connector = || builder!(0).build_with_resolver(PublicOnly);
        self.0.get_or_init(connector).call(with_user_agent(request))
    }
}

/// The HTTP connectors of the AWS SDK. The connectors are created at the first request, because some users of
/// [`crate::Boot`] send no request.
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

    /// Returns the current connection pool. If the last call was at least [`IDLE`] ago, creates a new pool instead.
    fn current_pool(&self) -> SharedHttpConnector {
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
        // HTTP/2 has no `Connection` header.
        if request.headers_mut().remove("connection").as_deref() == Some("close") {
            self.without_pool.get_or_init(|| build_connector(0)).call(request)
        } else {
            self.current_pool().call(request)
        }
    }
}

/// Adds `User-Agent` if the request has no such header, as the SDK does.
fn with_user_agent(mut request: HttpRequest) -> HttpRequest {
    if request.headers().get("user-agent").is_none() {
        request.headers_mut().insert("user-agent", USER_AGENT);
    }
    request
}

/// Builds a connector that keeps at most `max_idle` idle connections per host.
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
        // A connection can be reused only after its response was read completely.
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    }

    /// Within the idle limit connections are reused, except for requests with `Connection: close`.
    #[tokio::test]
    async fn http_connections_are_not_reused_after_a_pause() {
        let node = ScriptedNode::start(|_, _| Reply::Result("0x1".into())).await;
        let micros = Arc::new(AtomicI64::new(0));
        let client = SharedHttpConnector::new(OnDemand::new(Clock::at_fixed_time(Arc::clone(&micros))));
        // Each row: the seconds since the last call by the system clock, the `Connection` header, and the expected
        // number of connections.
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
