//! A blockchain node over HTTP, and the parser of the URLs in the RPC secret.
//!
//! A call without a complete response is repeated once on a new connection, because a pooled connection may be dead.
//! This is safe because every call is read-only. A complete response is final, even a rejection.

use crate::{
    ChainError,
    rpc::{Exchange, Node},
};
use aws_smithy_runtime_api::client::{
    connection::CaptureSmithyConnection,
    http::{HttpConnector as _, SharedHttpConnector},
    orchestrator::HttpRequest,
};
use aws_smithy_types::body::SdkBody;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use flate2::read::MultiGzDecoder;
use futures_util::future::select_ok;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use purser_domain::{Causes, Network};
use serde_json::Value;
use std::{error::Error as StdError, io::Read as _, pin::pin, time::Duration};
use tokio::time::timeout;
use url::{Host, Url};

/// The size limit of a response, in bytes: some 25,000 logs, more than the transfers from one payer to one payee in a
/// block.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// A node that is called over HTTP.
pub struct HttpNode {
    http: SharedHttpConnector,
    /// The URL without user and password.
    url: String,
    /// The user and password from the URL, as the value of the `Authorization` header (RFC 7617).
    authorization: Option<String>,
    timeout: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Pooled,
    /// A new connection for one request.
    Own,
}

impl HttpNode {
    /// Creates a client. `timeout` limits the whole call, including the second attempt.
    pub fn new(http: SharedHttpConnector, url: &str, timeout: Duration) -> Result<Self, ChainError> {
        let mut url = parse_node_url(url)?;
        let authorization = basic_auth_header(&url)?;
        // These setters fail only for a URL without a host.
        let bare = url.set_username("").and_then(|()| url.set_password(None));
        bare.map_err(|()| ChainError::Address)?;
        url.set_fragment(None);
        Ok(Self {
            http,
            url: url.into(),
            authorization,
            timeout,
        })
    }

    async fn post_request(&self, method: &'static str, request: &Value) -> Result<Vec<u8>, ChainError> {
        match timeout(self.timeout, self.post_with_retry(method, request)).await {
            Ok(response) => response,
            Err(late) => Err(unreachable_error(method, late)),
        }
    }

    /// Returns the first complete response of two attempts. The second attempt starts when the first fails or is still
    /// open at half of the timeout.
    async fn post_with_retry(&self, method: &'static str, request: &Value) -> Result<Vec<u8>, ChainError> {
        let (mut pooled, connection) = (
            self.build_request(request, Connection::Pooled)?,
            CaptureSmithyConnection::new(),
        );
        pooled.add_extension(connection.clone());
        let mut first = pin!(self.post_once(method, pooled));
        let failure = match timeout(self.timeout.checked_div(2).unwrap_or_default(), &mut first).await {
            Ok(Err(ChainError::Unreachable { source, .. })) => Some(source),
            Ok(response) => return response,
            Err(_late) => None,
        };
        // Removes the unresponsive connection from the pool. With HTTP/2, all calls would share it until the system
        // closes it after 15 minutes.
        if let Some(connection) = connection.get() {
            connection.poison();
        }
        log_retry(method, failure.as_deref());
        let second = pin!(self.post_once(method, self.build_request(request, Connection::Own)?));
        match failure {
            Some(_) => second.await,
            None => select_ok([first, second]).await.map(|(response, _slower)| response),
        }
    }

    async fn post_once(&self, method: &'static str, request: HttpRequest) -> Result<Vec<u8>, ChainError> {
        let response = self.http.call(request).await;
        let response = response.map_err(|error| unreachable_error(method, error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(ChainError::Status {
                method,
                status: status.as_u16(),
            });
        }
        let is_packed = response
            .headers()
            .get("content-encoding")
            .is_some_and(|encoding| encoding.eq_ignore_ascii_case("gzip"));
        match Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await {
            Ok(body) if is_packed => decompress(method, &body.to_bytes()),
            Ok(body) => Ok(body.to_bytes().into()),
            Err(error) if error.is::<LengthLimitError>() => Err(ChainError::TooLarge { method }),
            Err(error) => Err(unreachable_error(method, error)),
        }
    }

    fn build_request(&self, request: &Value, connection: Connection) -> Result<HttpRequest, ChainError> {
        let mut post = HttpRequest::new(SdkBody::from(request.to_string()));
        post.set_method("POST").map_err(|_| ChainError::Address)?;
        post.set_uri(self.url.clone()).map_err(|_| ChainError::Address)?;
        let headers = post.headers_mut();
        headers.insert("content-type", "application/json");
        // Responses with many transfers are large. Some nodes compress responses even without this header.
        headers.insert("accept-encoding", "gzip");
        if connection == Connection::Own {
            // The client in `shared/api` opens a new connection for a request with this header (RFC 9110 §7.6.1).
            headers.insert("connection", "close");
        }
        if let Some(authorization) = &self.authorization {
            headers.insert("authorization", authorization.clone());
        }
        Ok(post)
    }
}

impl Node for HttpNode {
    fn send_rpc_request<'a>(&'a self, method: &'static str, request: &'a Value) -> Exchange<'a> {
        Box::pin(self.post_request(method, request))
    }
}

/// Parses the RPC secret: one URL, or two different URLs separated by white space.
///
/// The URLs must be https, because anyone on the network path could respond to plain http. On Base Sepolia, plain http
/// to a local address is valid.
pub(crate) fn parse_node_urls(network: Network, text: &str) -> Result<(&str, Option<&str>), ChainError> {
    let mut words = text.split_ascii_whitespace();
    let (Some(first), second, None) = (words.next(), words.next(), words.next()) else {
        return Err(ChainError::Address);
    };
    let safe = |address| {
        let url = parse_node_url(address)?;
        if url.scheme() == "https" || network.is_testnet() && is_local(&url) {
            Ok(url)
        } else {
            Err(ChainError::Address)
        }
    };
    let (item, other) = (safe(first)?, second.map(safe).transpose()?);
    if other.is_some_and(|other| other == item) {
        return Err(ChainError::Address);
    }
    Ok((first, second))
}

fn parse_node_url(address: &str) -> Result<Url, ChainError> {
    let url = Url::parse(address).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or(ChainError::Address)
}

/// Returns whether a URL's host is this machine or on a private network.
pub(crate) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private(),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unique_local(),
        None => false,
    }
}

/// Returns the URL's user and password as a header value; `None` if the URL has no user and no password.
fn basic_auth_header(url: &Url) -> Result<Option<String>, ChainError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let decoded = |text| percent_decode_str(text).decode_utf8().map_err(|_| ChainError::Address);
    let (user, password) = (decoded(url.username())?, decoded(url.password().unwrap_or_default())?);
    let pair = BASE64_STANDARD.encode(format!("{user}:{password}"));
    Ok(Some(format!("Basic {pair}")))
}

/// Decompresses a gzip body. The size limit of a response applies to the decompressed body.
fn decompress(method: &'static str, packed: &[u8]) -> Result<Vec<u8>, ChainError> {
    let mut body = Vec::new();
    let max = u64::try_from(MAX_RESPONSE_BYTES).unwrap_or(u64::MAX);
    let mut start = MultiGzDecoder::new(packed).take(max.saturating_add(1));
    start
        .read_to_end(&mut body)
        .map_err(|error| unreachable_error(method, error))?;
    if body.len() > MAX_RESPONSE_BYTES {
        return Err(ChainError::TooLarge { method });
    }
    Ok(body)
}

fn log_retry(method: &'static str, failure: Option<&(dyn StdError + Send + Sync + 'static)>) {
    let cause = failure.map(|cause| tracing::field::display(Causes(cause)));
    tracing::info!(method, cause, "rpc.retried");
}

fn unreachable_error(method: &'static str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> ChainError {
    let source = source.into();
    ChainError::Unreachable { method, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::tests::http;
    use aws_smithy_runtime_api::client::{
        connection::ConnectionMetadata,
        http::{HttpConnector, HttpConnectorFuture},
        orchestrator::HttpResponse,
    };
    use purser_testkit::{Reply, ScriptedNode};
    use serde_json::json;
    use std::{
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::SeqCst},
        },
    };

    /// Returns the result of a call, or the error as text.
    async fn asked(node: &HttpNode) -> String {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": []});
        match node.send_rpc_request("eth_blockNumber", &request).await {
            Ok(body) => serde_json::from_slice::<Value>(&body).unwrap()["result"].to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn over(node: &ScriptedNode) -> HttpNode {
        HttpNode::new(http(), &node.url, Duration::from_secs(1)).unwrap()
    }

    /// Returns a node that sends this reply to the first call, and valid replies to later calls.
    async fn at_first(reply: Reply) -> ScriptedNode {
        let mut first = Some(reply);
        ScriptedNode::start(move |_, _| first.take().unwrap_or(Reply::Result(json!(7)))).await
    }

    #[tokio::test]
    async fn node_calls_without_a_complete_response_are_retried_once() {
        const STATUS: &str = "`eth_blockNumber` returned HTTP status";
        let rows = [
            (Reply::HangUp, "7", 2),
            (Reply::Silence, "7", 2),
            (Reply::Result(json!(7)), "7", 1),
            (Reply::Status(429), &format!("{STATUS} 429"), 1),
            (Reply::Status(503), &format!("{STATUS} 503"), 1),
        ];
        for (reply, answer, calls) in rows {
            let node = at_first(reply.clone()).await;
            assert_eq!(asked(&over(&node)).await, answer, "{reply:?}");
            assert_eq!(node.count("eth_blockNumber"), calls, "{reply:?}");
        }
        let down = ScriptedNode::start(|_, _| Reply::HangUp).await;
        assert_eq!(asked(&over(&down)).await, "`eth_blockNumber` got no response");
        assert_eq!(down.count("eth_blockNumber"), 2);
        let hangs = ScriptedNode::start(|_, _| Reply::Silence).await;
        assert_eq!(asked(&over(&hangs)).await, "`eth_blockNumber` got no response");
        assert_eq!(hangs.count("eth_blockNumber"), 2);
    }

    #[tokio::test]
    async fn node_calls_on_dead_connections_open_a_new_connection() {
        let node = at_first(Reply::Result(json!(7))).await;
        let caller = over(&node);
        assert_eq!(asked(&caller).await, "7");
        node.forget_connections();
        assert_eq!(asked(&caller).await, "7");
        assert_eq!((node.count("eth_blockNumber"), node.connections()), (2, 2));
    }

    /// A client whose pooled connections never respond. Records whether the connections were removed from the pool.
    #[derive(Debug)]
    struct DeadPool(Arc<AtomicBool>);

    impl HttpConnector for DeadPool {
        fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
            if request.headers().get("connection") == Some("close") {
                let body = SdkBody::from(json!({"result": 7}).to_string());
                return HttpConnectorFuture::ready(Ok(HttpResponse::new(200.try_into().unwrap(), body)));
            }
            let poisoned = Arc::clone(&self.0);
            let connection = move || {
                let poisoned = Arc::clone(&poisoned);
                let connection = ConnectionMetadata::builder().proxied(false);
                Some(connection.poison_fn(move || poisoned.store(true, SeqCst)).build())
            };
            let captured = request.extension::<CaptureSmithyConnection>().unwrap();
            captured.set_connection_retriever(connection);
            HttpConnectorFuture::new(pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unresponsive_connections_leave_the_connection_pool() {
        let poisoned = Arc::new(AtomicBool::new(false));
        let http = SharedHttpConnector::new(DeadPool(Arc::clone(&poisoned)));
        let node = HttpNode::new(http, "https://node.example", Duration::from_secs(2)).unwrap();
        assert_eq!(asked(&node).await, "7");
        assert!(poisoned.load(SeqCst));
    }

    #[tokio::test]
    async fn a_slow_node_response_to_the_first_attempt_is_used_after_a_retry_began() {
        let mut calls = 0;
        let node = ScriptedNode::start(move |_, _| {
            calls += 1;
            if calls == 1 {
                Reply::Result(json!(7))
            } else {
                Reply::Silence
            }
        })
        .await;
        node.set_latency(Duration::from_millis(700));
        assert_eq!(asked(&over(&node)).await, "7");
    }

    /// On Base Sepolia, plain HTTP to a local address is valid too.
    #[test]
    fn one_or_two_https_node_addresses_are_accepted() {
        use Network::{Base, BaseSepolia};
        fn split(network: Network, text: &str) -> Option<(&str, Option<&str>)> {
            parse_node_urls(network, text).ok()
        }
        let (one, other) = ("https://a.example/v2/key", "https://user:word@b.example");
        let both = format!("{one}\r\n {other}\n");
        assert_eq!(split(Base, one), Some((one, None)));
        assert_eq!(split(Base, &format!("{one}\n")), Some((one, None)));
        assert_eq!(split(Base, &both), Some((one, Some(other))));
        let same = format!("{one}\nHTTPS://A.example:443/v2/key");
        let three = format!("{both} https://c.example");
        let mixed = format!("{one}\nhttp://b.example");
        for wrong in [
            "",
            " \n",
            &same,
            &three,
            &mixed,
            "a.example",
            "wss://a.example",
            "file:///a",
        ] {
            for network in [Base, BaseSepolia] {
                assert_eq!(split(network, wrong), None, "{wrong}");
            }
        }
        let near = [
            "localhost",
            "127.0.0.1",
            "[::1]",
            "172.17.0.1",
            "10.1.2.3",
            "192.168.0.2",
            "[fd00::1]",
        ];
        let far = [
            "a.example",
            "localhost.example",
            "8.8.8.8",
            "172.32.0.1",
            "[2001:db8::1]",
            "0.0.0.0",
        ];
        for (hosts, taken) in [(&near[..], true), (&far[..], false)] {
            for host in hosts {
                let address = format!("http://{host}:8545");
                assert_eq!(split(BaseSepolia, &address).is_some(), taken, "{address}");
                assert_eq!(split(Base, &address), None, "{address}");
            }
        }
    }

    #[test]
    fn a_node_address_may_contain_basic_credentials() {
        let check = |address: &str, url: &str, authorization: Option<&str>| {
            let node = HttpNode::new(http(), address, Duration::from_secs(1)).unwrap();
            let request = node.build_request(&json!({}), Connection::Pooled).unwrap();
            assert_eq!(request.uri(), url, "{address}");
            assert_eq!(request.headers().get("authorization"), authorization, "{address}");
        };
        check(
            "https://node.example/v2/key?a=b#c",
            "https://node.example/v2/key?a=b",
            None,
        );
        check("https://node.example", "https://node.example/", None);
        // The example of RFC 7617 §2.
        let aladdin = Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        check(
            "https://Aladdin:open%20sesame@node.example:8545/",
            "https://node.example:8545/",
            aladdin,
        );
        check(
            "https://key@node.example/",
            "https://node.example/",
            Some("Basic a2V5Og=="),
        );
        for address in ["ftp://node.example", "node.example", "https://%ff@node.example", ""] {
            let refused = HttpNode::new(http(), address, Duration::from_secs(1));
            assert!(matches!(refused.err(), Some(ChainError::Address)), "{address}");
        }
    }
}
