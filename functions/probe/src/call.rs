//! Makes one call to a provider without paying, and parses the price in the response.
//!
//! Invariants: a connection goes only to an address that was checked here, also after a redirect. The host name is not
//! resolved again after the check. Only the price in the response is kept.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use encoding_rs::{Encoding, UTF_8};
use purser_api::{
    AllowedHosts, RejectedHostName, any_address_client_builder, may_be_public, public_address_client_builder,
};
use purser_domain::{
    Network, Obstacle, Operation, ProbeResult, Quote, Url, parse_json, probe_result_from_requirements,
};
use reqwest::{
    Client, ClientBuilder, Method, Response, StatusCode,
    header::{self, HeaderMap, HeaderName},
};
use serde_json::Value;
use std::{error::Error as StdError, time::Duration};

/// The timeout of a call including redirects.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of redirects. Sites commonly redirect to https, to `www` and to a versioned path.
const MAX_REDIRECTS: usize = 3;
/// The maximum length of a response, in bytes. Payment requirements of either version have two to three KiB.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// The maximum number of response headers. Servers usually send about two dozen.
const MAX_HEADERS: usize = 100;

/// The product name in the `User-Agent` header of probes.
const PROGRAM: &str = "Purser-Probe";
const PAYMENT_REQUIRED: HeaderName = HeaderName::from_static("payment-required");

/// A client that calls providers.
pub(crate) struct Caller {
    network: Network,
    allowed: AllowedHosts,
    /// Connects only to public addresses.
    strict: Client,
    /// Connects to any address, and calls only the allowed hosts.
    plain: Client,
    longest: Duration,
}

impl Caller {
    /// Creates a client that reads payment requirements for this network. `timeout` is the timeout of a call.
    pub(crate) fn new(network: Network, allowed: AllowedHosts, timeout: Duration) -> reqwest::Result<Self> {
        // Redirects are followed by hand, because each redirect's URL is checked like the first URL.
        let finish = |client: ClientBuilder| client.http1_only().http1_max_headers(MAX_HEADERS).build();
        Ok(Self {
            network,
            allowed,
            strict: finish(public_address_client_builder(PROGRAM))?,
            plain: finish(any_address_client_builder(PROGRAM))?,
            longest: timeout,
        })
    }

    pub(crate) async fn probe_operation(&self, operation: &Operation) -> ProbeResult {
        let Some(address) = operation.endpoint.address() else {
            return Err(Obstacle::PathParameters);
        };
        let call = self.call_provider(&operation.method, address.clone());
        tokio::time::timeout(self.longest, call)
            .await
            .unwrap_or(Err(Obstacle::Timeout))
    }

    async fn call_provider(&self, method: &str, mut url: Url) -> ProbeResult {
        // A probe does not call other methods, because they may have effects without payment.
        let method = match method {
            "GET" => Method::GET,
            "HEAD" => Method::HEAD,
            "POST" => Method::POST,
            _ => return Err(Obstacle::MethodNotProbed),
        };
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_to_allowed_address(&method, url.clone()).await?;
            match response.status() {
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => url = redirect_target(&method, &url, &response)?,
                _ => return self.parse_response(response).await,
            }
        }
        Err(Obstacle::TooManyRedirects)
    }

    async fn send_to_allowed_address(&self, method: &Method, url: Url) -> Result<Response, Obstacle> {
        let mut request = self.client_for(&url)?.request(method.clone(), url);
        if *method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json").body("{}");
        }
        request.send().await.map_err(|error| obstacle_for_error(&error))
    }

    /// Returns `plain` for an allowed host, and otherwise `strict`. Fails if the host can't be public.
    fn client_for(&self, url: &Url) -> Result<&Client, Obstacle> {
        if self.allowed.contains(url) {
            return Ok(&self.plain);
        }
        if may_be_public(url) {
            Ok(&self.strict)
        } else {
            Err(Obstacle::BlockedAddress)
        }
    }

    async fn parse_response(&self, response: Response) -> ProbeResult {
        let status = response.status();
        if status.is_success() {
            return Ok(Quote::Free);
        }
        if status != StatusCode::PAYMENT_REQUIRED {
            return Err(Obstacle::Status(status.as_u16()));
        }
        // x402 v2 sends the payment requirements in a header, v1 in the body (`docs/x402.md` §1, §2).
        let requirement = if let Some(requirement) = parse_payment_required_header(response.headers())? {
            requirement
        } else {
            let charset = response_charset(response.headers());
            let body = read_body(response).await?;
            let text = charset.decode_without_bom_handling_and_without_replacement(&body);
            parse_json(text.ok_or(Obstacle::NotX402)?.as_bytes()).map_err(|_| Obstacle::NotX402)?
        };
        probe_result_from_requirements(&requirement, self.network)
    }
}

/// Returns the target of a redirect. Rejects a redirect that a browser would turn into another method, and a redirect
/// from https to http, because anyone on the network path could respond.
fn redirect_target(method: &Method, url: &Url, response: &Response) -> Result<Url, Obstacle> {
    let keeps_method = matches!(
        response.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    );
    if *method == Method::POST && !keeps_method {
        return Err(Obstacle::Status(response.status().as_u16()));
    }
    let location = response.headers().get(header::LOCATION);
    let target = location.and_then(|location| url.join(location.to_str().ok()?).ok());
    let plain = |target: &Url| target.username().is_empty() && target.password().is_none();
    let as_safe = |target: &Url| match target.scheme() {
        "https" => true,
        "http" => url.scheme() == "http",
        _ => false,
    };
    target.filter(plain).filter(as_safe).ok_or(Obstacle::BadRedirect)
}

/// Parses the payment requirements in the header `PAYMENT-REQUIRED`. The header may occur once.
fn parse_payment_required_header(headers: &HeaderMap) -> Result<Option<Value>, Obstacle> {
    let mut values = headers.get_all(PAYMENT_REQUIRED).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Obstacle::NotX402);
    }
    if value.len() > MAX_RESPONSE_BYTES {
        return Err(Obstacle::TooLarge);
    }
    let json = STANDARD.decode(value).map_err(|_| Obstacle::NotX402)?;
    parse_json(&json).map(Some).map_err(|_| Obstacle::NotX402)
}

/// Returns the charset of a response. The default is UTF-8.
fn response_charset(headers: &HeaderMap) -> &'static Encoding {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    let named = kind
        .split_once("charset=")
        .map(|(_, rest)| rest.trim_start_matches('"'));
    let label = named.and_then(|rest| rest.split(['"', ';', ' ']).next());
    label
        .and_then(|label| Encoding::for_label(label.as_bytes()))
        .unwrap_or(UTF_8)
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, Obstacle> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| obstacle_for_error(&error))? {
        if body.len().saturating_add(chunk.len()) > MAX_RESPONSE_BYTES {
            return Err(Obstacle::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn obstacle_for_error(error: &reqwest::Error) -> Obstacle {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = source {
        match error.downcast_ref() {
            Some(RejectedHostName::Unknown) => return Obstacle::UnknownHost,
            Some(RejectedHostName::NotPublic) => return Obstacle::BlockedAddress,
            None => source = error.source(),
        }
    }
    Obstacle::Unreachable
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{
        Router,
        body::Bytes,
        http::{HeaderMap, Uri},
        response::{IntoResponse as _, Redirect},
        routing::{any, get},
    };
    use purser_domain::{Address, Amount, CatalogPayment};
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };

    const NETWORK: Network = Network::BaseSepolia;

    fn entry(version: u8) -> Value {
        let token = NETWORK.token();
        let mut entry = json!({
            "scheme": "exact", "asset": token.address.to_string(), "payTo": Address::repeat_byte(1).to_string(),
            "maxTimeoutSeconds": 60, "extra": {"name": token.name, "version": token.version},
        });
        if version == 1 {
            (entry["network"], entry["maxAmountRequired"]) = (json!("base-sepolia"), json!("10000"));
        } else {
            (entry["network"], entry["amount"]) = (json!("eip155:84532"), json!("10000"));
        }
        entry
    }

    fn requirement(version: u8, entries: &[Value]) -> Value {
        json!({"x402Version": version, "error": "pay", "accepts": entries})
    }

    fn header_of(requirement: &Value) -> [(&'static str, String); 1] {
        [("payment-required", STANDARD.encode(requirement.to_string()))]
    }

    fn asks() -> Quote {
        Quote::Paid(CatalogPayment {
            scheme: "exact".to_owned(),
            network: NETWORK,
            amount: Amount::from_units(10_000).unwrap(),
            pay_to: Address::repeat_byte(1),
        })
    }

    /// Responds to GET and HEAD with 402, and to POST only with the body and the content type of a probe.
    async fn paid(headers: HeaderMap, method: Method, body: Bytes) -> axum::response::Response {
        assert!(
            headers[header::USER_AGENT]
                .to_str()
                .unwrap()
                .starts_with("Purser-Probe/")
        );
        assert!(
            ["authorization", "cookie", "x-payment"]
                .iter()
                .all(|name| !headers.contains_key(*name))
        );
        let expected: (&[u8], bool) = if method == Method::POST {
            (b"{}", true)
        } else {
            (b"", false)
        };
        if (&*body, headers.contains_key(header::CONTENT_TYPE)) != expected {
            return StatusCode::BAD_REQUEST.into_response();
        }
        let v2 = requirement(2, &[entry(2)]);
        (StatusCode::PAYMENT_REQUIRED, header_of(&v2), "{}").into_response()
    }

    async fn provider() -> String {
        let pay = StatusCode::PAYMENT_REQUIRED;
        let mainnet = || {
            let mut entry = entry(2);
            entry["network"] = json!("eip155:8453");
            entry
        };
        let routes = Router::new()
            .route("/v2", any(paid))
            .route("/v1", get(async move || (pay, requirement(1, &[entry(1)]).to_string())))
            .route(
                "/cheapest",
                get(async move || {
                    let mut dear = entry(2);
                    dear["amount"] = json!("20000");
                    (pay, header_of(&requirement(2, &[dear, entry(2)])))
                }),
            )
            .route(
                "/latin1",
                get(async move || {
                    let mut entry = entry(1);
                    entry["description"] = json!("Grüße");
                    let text = requirement(1, &[entry]).to_string();
                    let (bytes, _, _) = encoding_rs::WINDOWS_1252.encode(&text);
                    (
                        pay,
                        [("content-type", "application/json; charset=iso-8859-1")],
                        bytes.into_owned(),
                    )
                }),
            )
            .route("/free", get(async || "weather"))
            .route("/free/nothing", get(async || StatusCode::NO_CONTENT))
            .route(
                "/mainnet",
                get(async move || (pay, header_of(&requirement(2, &[mainnet()])))),
            )
            .route("/page", get(async move || (pay, "<html>pay me</html>")))
            .route("/empty", get(async move || pay))
            .route(
                "/not-base64",
                get(async move || {
                    (
                        pay,
                        [("payment-required", "{}")],
                        requirement(1, &[entry(1)]).to_string(),
                    )
                }),
            )
            .route(
                "/two-headers",
                get(async move || {
                    let mut response = (pay, header_of(&requirement(2, &[entry(2)]))).into_response();
                    let value = response.headers()["payment-required"].clone();
                    response.headers_mut().append("payment-required", value);
                    response
                }),
            )
            .route(
                "/repeated-key",
                get(async move || (pay, r#"{"x402Version":1,"x402Version":1}"#)),
            )
            .route("/500", get(async || StatusCode::INTERNAL_SERVER_ERROR))
            .route("/401", get(async || StatusCode::UNAUTHORIZED))
            .route("/large", get(async move || (pay, " ".repeat(MAX_RESPONSE_BYTES + 1))))
            .route("/largest", get(async move || (pay, " ".repeat(MAX_RESPONSE_BYTES))))
            .route(
                "/long-header",
                get(async move || (pay, [("payment-required", "A".repeat(MAX_RESPONSE_BYTES + 1))])),
            )
            .route(
                "/many-headers",
                get(async move || {
                    let mut headers = HeaderMap::new();
                    for n in 0..=MAX_HEADERS {
                        headers.append("x-more", n.into());
                    }
                    (pay, headers)
                }),
            )
            .route("/slow", get(async || tokio::time::sleep(Duration::from_mins(1)).await))
            .route(
                "/301",
                any(async || (StatusCode::MOVED_PERMANENTLY, [("location", "/v2")])),
            )
            .route("/303", any(async || Redirect::to("/v2")))
            .route("/307", any(async || Redirect::temporary("v2?x=1#y")))
            .route("/308", any(async || Redirect::permanent("/v2")))
            .route("/no-location", get(async || StatusCode::FOUND))
            .route(
                "/to",
                any(async |uri: Uri| Redirect::temporary(uri.query().unwrap_or_default())),
            )
            .route("/hops/{n}", get(hop));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        authority
    }

    async fn hop(axum::extract::Path(n): axum::extract::Path<u8>) -> Redirect {
        match n {
            1 => Redirect::to("/v2"),
            n => Redirect::to(&format!("/hops/{}", n.saturating_sub(1))),
        }
    }

    fn caller(allowed: &[&str], longest: Duration) -> Caller {
        let allowed = AllowedHosts::parse(&allowed.join(",")).unwrap();
        Caller::new(NETWORK, allowed, longest).unwrap()
    }

    const LONG: Duration = Duration::from_secs(30);

    async fn call(caller: &Caller, method: &str, url: &str) -> ProbeResult {
        let call = caller.call_provider(method, Url::parse(url).unwrap());
        tokio::time::timeout(caller.longest, call)
            .await
            .unwrap_or(Err(Obstacle::Timeout))
    }

    #[tokio::test]
    async fn probe_results_match_the_providers_response() {
        let authority = provider().await;
        let caller = caller(&[&authority], LONG);
        let status = |status| Err(Obstacle::Status(status));
        let rows = [
            ("GET", "/v2", Ok(asks())),
            ("HEAD", "/v2", Ok(asks())),
            ("POST", "/v2", Ok(asks())),
            ("DELETE", "/v2", Err(Obstacle::MethodNotProbed)),
            ("PUT", "/v2", Err(Obstacle::MethodNotProbed)),
            ("get", "/v2", Err(Obstacle::MethodNotProbed)),
            ("GET", "/v1", Ok(asks())),
            ("GET", "/latin1", Ok(asks())),
            // An x402 v1 provider sends the payment requirements in the body, and a HEAD response has no body.
            ("HEAD", "/v1", Err(Obstacle::NotX402)),
            ("GET", "/cheapest", Ok(asks())),
            ("GET", "/free", Ok(Quote::Free)),
            ("HEAD", "/free", Ok(Quote::Free)),
            ("GET", "/free/nothing", Ok(Quote::Free)),
            ("POST", "/free", status(405)),
            ("GET", "/mainnet", Err(Obstacle::OtherNetwork)),
            ("GET", "/page", Err(Obstacle::NotX402)),
            ("GET", "/empty", Err(Obstacle::NotX402)),
            ("GET", "/not-base64", Err(Obstacle::NotX402)),
            ("GET", "/two-headers", Err(Obstacle::NotX402)),
            ("GET", "/repeated-key", Err(Obstacle::NotX402)),
            ("GET", "/500", status(500)),
            ("GET", "/401", status(401)),
            ("GET", "/404", status(404)),
            ("GET", "/large", Err(Obstacle::TooLarge)),
            ("GET", "/largest", Err(Obstacle::NotX402)),
            ("GET", "/long-header", Err(Obstacle::TooLarge)),
            ("GET", "/many-headers", Err(Obstacle::Unreachable)),
            ("GET", "/301", Ok(asks())),
            ("GET", "/303", Ok(asks())),
            ("GET", "/307", Ok(asks())),
            ("GET", "/308", Ok(asks())),
            ("POST", "/307", Ok(asks())),
            ("POST", "/308", Ok(asks())),
            ("POST", "/301", status(301)),
            ("POST", "/303", status(303)),
            ("GET", "/no-location", Err(Obstacle::BadRedirect)),
            ("GET", "/to?ftp://lab.example/", Err(Obstacle::BadRedirect)),
            ("GET", "/to?file:///etc/passwd", Err(Obstacle::BadRedirect)),
            ("GET", "/to?http://u:p@lab.example/", Err(Obstacle::BadRedirect)),
            ("GET", "/to?http://[", Err(Obstacle::BadRedirect)),
            ("GET", "/hops/3", Ok(asks())),
            ("GET", "/hops/4", Err(Obstacle::TooManyRedirects)),
        ];
        for (method, path, expected) in rows {
            let seen = call(&caller, method, &format!("http://{authority}{path}")).await;
            assert_eq!(seen, expected, "{method} {path}");
        }
    }

    /// The target of a redirect is checked even if the redirecting address is allowed.
    #[tokio::test]
    async fn probes_never_reach_private_addresses() {
        let authority = provider().await;
        let (_, port) = authority.split_once(':').unwrap();
        // Only the address in `allowed` may be called, even if servers listen at the other addresses.
        let allowed = caller(&[&authority], LONG);
        let strict = caller(&[], LONG);
        assert_eq!(
            call(&strict, "GET", &format!("http://{authority}/v2")).await,
            Err(Obstacle::BlockedAddress)
        );
        for host in [
            "127.0.0.2",
            "127.1",
            "0",
            "[::ffff:127.0.0.1]",
            "[::1]",
            "localhost",
            "LOCALHOST.",
            "x.localhost",
        ] {
            let (host, url) = (format!("{host}:{port}"), format!("http://{host}:{port}/v2"));
            // `127.1` is another notation of the allowed address `127.0.0.1`, so the call succeeds.
            let expected = if host.starts_with("127.1:") {
                Ok(asks())
            } else {
                Err(Obstacle::BlockedAddress)
            };
            assert_eq!(call(&allowed, "GET", &url).await, expected, "{url}");
            assert_eq!(call(&strict, "GET", &url).await, Err(Obstacle::BlockedAddress), "{url}");
            let by_redirect = format!("http://{authority}/to?{url}");
            assert_eq!(call(&allowed, "GET", &by_redirect).await, expected, "{by_redirect}");
        }
        for url in [
            "http://169.254.169.254/latest/meta-data/",
            "http://10.0.0.1/",
            "https://[fd00:ec2::254]/",
        ] {
            let by_redirect = format!("http://{authority}/to?{url}");
            assert_eq!(
                call(&allowed, "GET", &by_redirect).await,
                Err(Obstacle::BlockedAddress),
                "{url}"
            );
        }
        // The same host on another port is not allowed.
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", other.local_addr().unwrap());
        assert_eq!(call(&allowed, "GET", &url).await, Err(Obstacle::BlockedAddress));
    }

    #[tokio::test]
    async fn probed_host_names_are_checked_after_resolution() {
        let authority = provider().await;
        let (_, port) = authority.split_once(':').unwrap();
        let caller = caller(&[], LONG);
        // Skips the check of the host name, as if a public name resolved to this machine.
        let error = caller
            .strict
            .get(format!("http://localhost:{port}/v2"))
            .send()
            .await
            .unwrap_err();
        assert_eq!(obstacle_for_error(&error), Obstacle::BlockedAddress);
        assert!(
            caller
                .plain
                .get(format!("http://localhost:{port}/v2"))
                .send()
                .await
                .is_ok()
        );
        let error = caller
            .strict
            .get("http://no-such-name.invalid/")
            .send()
            .await
            .unwrap_err();
        assert_eq!(obstacle_for_error(&error), Obstacle::UnknownHost);
    }

    /// Starts a server that sends `head`, and then sends `rest` repeatedly.
    async fn talker(head: &'static str, rest: &'static [u8]) -> String {
        async fn talk(mut stream: TcpStream, head: &str, rest: &[u8]) -> std::io::Result<()> {
            let mut request = [0; 1_024];
            let _ = stream.read(&mut request).await?;
            stream.write_all(head.as_bytes()).await?;
            loop {
                if rest.is_empty() {
                    tokio::time::sleep(Duration::from_mins(1)).await;
                } else {
                    stream.write_all(rest).await?;
                }
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk(stream, head, rest));
            }
        });
        authority
    }

    #[tokio::test]
    async fn a_probe_call_ends_even_if_the_provider_stalls() {
        const CHUNK: &[u8] = b"zz\r\n";
        let provider = provider().await;
        let quiet = talker("", b"").await;
        let in_head = talker("HTTP/1.1 402 Payment Required\r\nx: y", b"").await;
        let in_body = talker("HTTP/1.1 402 Payment Required\r\ncontent-length: 9\r\n\r\n{", b"").await;
        let endless_head = talker("HTTP/1.1 402 Payment Required\r\nx: ", b"yyyyyyyyyyyyyyyy").await;
        let endless_body = talker("HTTP/1.1 402 Payment Required\r\n\r\n", b"                ").await;
        let broken = talker(
            "HTTP/1.1 402 Payment Required\r\ntransfer-encoding: chunked\r\n\r\n",
            CHUNK,
        )
        .await;
        let endless_free = talker("HTTP/1.1 200 OK\r\n\r\n", b"                ").await;
        let not_http = talker("220 smtp.lab.example\r\n", b"").await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = listener.local_addr().unwrap().to_string();
        drop(listener);
        let short = Duration::from_millis(500);
        let slow = format!("{provider}/slow");
        let rows = [
            (&slow, short, Err(Obstacle::Timeout)),
            (&quiet, short, Err(Obstacle::Timeout)),
            (&in_head, short, Err(Obstacle::Timeout)),
            (&in_body, short, Err(Obstacle::Timeout)),
            (&endless_head, LONG, Err(Obstacle::Unreachable)),
            (&endless_body, LONG, Err(Obstacle::TooLarge)),
            (&broken, LONG, Err(Obstacle::Unreachable)),
            (&endless_free, LONG, Ok(Quote::Free)),
            (&not_http, LONG, Err(Obstacle::Unreachable)),
            (&nobody, LONG, Err(Obstacle::Unreachable)),
        ];
        for (address, longest, expected) in rows {
            let authority = address.split('/').next().unwrap();
            let seen = call(&caller(&[authority], longest), "GET", &format!("http://{address}")).await;
            assert_eq!(seen, expected, "{address}");
        }
    }
}
