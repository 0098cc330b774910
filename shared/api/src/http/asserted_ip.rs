//! The caller's address as `mcp` asserts it.
//!
//! `mcp` calls the API for its callers, so the gateway sees the address that this function calls from. Beside each
//! caller's key it sends that caller's own address, the time, and an HMAC-SHA-256 over both, the method, the path and the
//! `Authorization` header. The key of the HMAC is a secret that only `mcp` and the functions that authenticate agents may
//! read.
//!
//! Always true: an assertion holds for its one key, method and path, for [`VALID_SECS`] before and after its time; without
//! a valid one the gateway's own source address counts.

use crate::{Clock, GatewayContext, Secrets};
use aws_types::SdkConfig;
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use purser_domain::{Duration, Error, Result, SecretDigest, Timestamp};
use purser_refreshed::{RefreshPolicy, Refreshed};
use sha2::Sha256;
use std::{fmt, net::IpAddr, sync::Arc};
use tracing::{error, warn};

/// The header: address, seconds since the epoch, and the HMAC in hex, with spaces between.
pub const ASSERTED_IP: HeaderName = HeaderName::from_static("x-purser-client-ip");

/// The clocks of two functions differ by much less, and a call takes less.
const VALID_SECS: u64 = 30;
/// 32 random characters hold 128 bits even as hexadecimal digits.
const MIN_CHARS: usize = 32;
/// Separates these HMACs from any other use of the key.
const DOMAIN: &[u8] = b"purser/client-ip/v1\0";
const READING: &str = "reading the key of asserted addresses";
/// A key that was replaced is noticed by the first assertion made with the new one.
const AGES: RefreshPolicy = RefreshPolicy {
    fresh: Duration::from_secs_u32(300),
    longest: None,
    every: Duration::from_secs_u32(30),
    every_at_first: Duration::from_secs_u32(5),
};

/// The key that assertions are made and verified with.
#[derive(Clone)]
pub struct AssertionKey(Hmac<Sha256>);

/// Nothing of the key: debug output may reach a log.
impl fmt::Debug for AssertionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AssertionKey(..)")
    }
}

/// An assertion that was not verified.
struct Asserted {
    ip: IpAddr,
    secs: u64,
    mac: SecretDigest,
}

impl Asserted {
    /// Reads the header; `None` unless it is there once, in its own form.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(ASSERTED_IP).iter();
        let text = values.next()?.to_str().ok()?;
        let mut parts = text.split(' ');
        let asserted = Self {
            ip: parts.next()?.parse().ok()?,
            secs: parts.next()?.parse().ok()?,
            mac: SecretDigest::from_hex(parts.next()?)?,
        };
        (parts.next().is_none() && values.next().is_none()).then_some(asserted)
    }

    fn is_of(&self, now: Timestamp) -> bool {
        now.secs().abs_diff(self.secs) <= VALID_SECS
    }
}

impl AssertionKey {
    /// The key that is this text, unchanged; `None` if it is too short.
    pub fn from_text(text: &str) -> Option<Self> {
        let is_long = text.chars().count() >= MIN_CHARS;
        Hmac::new_from_slice(text.as_bytes()).ok().filter(|_| is_long).map(Self)
    }

    /// The header that asserts this address for one request with this `Authorization`.
    pub fn assert(
        &self,
        ip: IpAddr,
        now: Timestamp,
        method: &Method,
        path: &str,
        authorization: &HeaderValue,
    ) -> Option<HeaderValue> {
        let secs = now.secs();
        let mac = self.mac(ip, secs, method, path, authorization).to_hex();
        HeaderValue::try_from(format!("{ip} {secs} {mac}")).ok()
    }

    fn mac(&self, ip: IpAddr, secs: u64, method: &Method, path: &str, authorization: &HeaderValue) -> SecretDigest {
        let mut mac = self.0.clone();
        mac.update(DOMAIN);
        // None of the first has a line break, so that no two requests make the same text.
        mac.update(format!("{ip}\n{secs}\n{method}\n{path}\n").as_bytes());
        mac.update(authorization.as_bytes());
        SecretDigest::from_bytes(mac.finalize().into_bytes().into())
    }

    /// Whether the assertion was made with this key for this request. [`SecretDigest`] compares in constant time.
    fn made(&self, asserted: &Asserted, method: &Method, path: &str, authorization: &HeaderValue) -> bool {
        self.mac(asserted.ip, asserted.secs, method, path, authorization) == asserted.mac
    }
}

/// The key as Secrets Manager has it. It is read when it is first needed.
pub struct AssertionKeys {
    secrets: Secrets,
    arn: String,
    key: Refreshed<AssertionKey>,
    clock: Clock,
}

impl AssertionKeys {
    /// The key in this secret; without a secret no assertion is valid.
    pub fn of_secret(arn: Option<String>, aws: &SdkConfig, clock: &Clock) -> Option<Self> {
        Some(Self::new(Secrets::new(aws), arn?, clock.clone()))
    }

    fn new(secrets: Secrets, arn: String, clock: Clock) -> Self {
        Self {
            secrets,
            arn,
            key: Refreshed::new(READING, AGES, |cause| error!(%cause, "asserted_ip.key_not_refreshed")),
            clock,
        }
    }

    async fn read(&self) -> Result<AssertionKey> {
        let text = self.secrets.text(&self.arn).await?;
        AssertionKey::from_text(&text).ok_or_else(|| {
            Error::internal(
                READING,
                format!("`{}`: must have {MIN_CHARS} characters or more", self.arn),
            )
        })
    }

    /// The key; `None`, with a line in the log, if it can't be read.
    pub async fn current(&self) -> Option<AssertionKey> {
        let key = self.key.current(self.clock.now(), || self.read()).await;
        key.inspect_err(|cause| error!(%cause, "asserted_ip.no_key")).ok()
    }

    /// The address that a request validly asserts.
    async fn asserted(&self, parts: &Parts) -> Option<IpAddr> {
        let asserted = Asserted::read(&parts.headers)?;
        let authorization = parts.headers.get(header::AUTHORIZATION)?;
        let now = self.clock.now();
        if !asserted.is_of(now) {
            return None;
        }
        let (method, path) = (&parts.method, parts.uri.path());
        let is_made = |key: &AssertionKey| key.made(&asserted, method, path, authorization);
        if is_made(&self.current().await?) {
            return Some(asserted.ip);
        }
        // The key may be new.
        let newest = self.key.newest(now, || self.read()).await.ok()?;
        if !is_made(&newest) {
            warn!("asserted_ip.refused");
            return None;
        }
        Some(asserted.ip)
    }
}

/// The router for which an address that `mcp` validly asserts is the caller's: [`crate::client_ip`] and the throttle count
/// by it.
pub fn with_asserted_ip(router: Router, keys: Option<AssertionKeys>) -> Router {
    match keys {
        Some(keys) => router.layer(from_fn_with_state(Arc::new(keys), replace_ip)),
        None => router,
    }
}

async fn replace_ip(State(keys): State<Arc<AssertionKeys>>, request: Request, next: Next) -> Response {
    // Only calls of `mcp` have the header.
    if !request.headers().contains_key(ASSERTED_IP) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    // Boxed: the future is large.
    if let Some(ip) = Box::pin(keys.asserted(&parts)).await
        && let Some(context) = parts.extensions.get_mut::<GatewayContext>()
    {
        context.set_source_ip(ip);
    }
    next.run(Request::from_parts(parts, body)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client_ip, test_clients};
    use axum::{body::Body, routing::any};
    use http_body_util::BodyExt as _;
    use purser_testkit::SecretsManager;
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
    use tower::ServiceExt as _;

    static_assertions::assert_not_impl_any!(AssertionKey: PartialEq, fmt::Display);

    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const NOW: u64 = 1_795_223_340;
    const GATEWAY: &str = "198.51.100.1";
    const CALLER: &str = "203.0.113.7";
    const BEARER: HeaderValue = HeaderValue::from_static("Bearer gak_pub_1:gak_sec_2");

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn made(key: &str, secs: u64, method: &Method, path: &str, authorization: &HeaderValue) -> HeaderValue {
        let key = AssertionKey::from_text(key).unwrap();
        let ip = CALLER.parse().unwrap();
        key.assert(ip, at(secs), method, path, authorization).unwrap()
    }

    fn valid() -> HeaderValue {
        made(KEY, NOW, &Method::GET, "/me", &BEARER)
    }

    async fn router(manager: &SecretsManager) -> Router {
        router_by(manager, &Arc::new(AtomicI64::new(at(NOW).micros()))).await
    }

    async fn router_by(manager: &SecretsManager, micros: &Arc<AtomicI64>) -> Router {
        let clock = Clock::still(Arc::clone(micros));
        let keys = AssertionKeys::new(test_clients::secrets(manager).await, "arn:key".to_owned(), clock);
        let seen = async |request: Request| client_ip(request.extensions()).unwrap().to_string();
        with_asserted_ip(Router::new().route("/me", any(seen)), Some(keys))
    }

    /// The address that a `GET /me` with the bearer's key counts by.
    async fn seen(router: &Router, asserted: &[HeaderValue]) -> String {
        let mut request = Request::get("/me").body(Body::empty()).unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, BEARER);
        for value in asserted {
            request.headers_mut().append(ASSERTED_IP, value.clone());
        }
        let context = GatewayContext::new(Method::GET, None, GATEWAY.parse().unwrap());
        request.extensions_mut().insert(context);
        let answer = router.clone().oneshot(request).await.unwrap();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.into()).unwrap()
    }

    #[tokio::test]
    async fn an_assertion_holds_for_its_key_method_path_and_time_and_for_nothing_else() {
        let manager = SecretsManager::new([("arn:key", KEY)]);
        let router = router(&manager).await;
        for secs in [NOW, NOW - VALID_SECS, NOW + VALID_SECS] {
            let asserted = made(KEY, secs, &Method::GET, "/me", &BEARER);
            assert_eq!(seen(&router, &[asserted]).await, CALLER);
        }
        let text = valid().to_str().unwrap().to_owned();
        let of = |text: &str| HeaderValue::try_from(text).unwrap();
        let another = HeaderValue::from_static("Bearer gak_pub_1:gak_sec_3");
        let rows = [
            ("too old", made(KEY, NOW - VALID_SECS - 1, &Method::GET, "/me", &BEARER)),
            ("too new", made(KEY, NOW + VALID_SECS + 1, &Method::GET, "/me", &BEARER)),
            ("another method", made(KEY, NOW, &Method::POST, "/me", &BEARER)),
            ("another path", made(KEY, NOW, &Method::GET, "/them", &BEARER)),
            ("another agent", made(KEY, NOW, &Method::GET, "/me", &another)),
            (
                "another key",
                made(&KEY.replace('0', "1"), NOW, &Method::GET, "/me", &BEARER),
            ),
            ("another address", of(&text.replace(CALLER, "203.0.113.8"))),
            (
                "another time",
                of(&text.replace(&NOW.to_string(), &(NOW + 1).to_string())),
            ),
            ("more", of(&format!("{text} x"))),
            ("an address alone", of(CALLER)),
            ("nothing", of("")),
        ];
        for (what, asserted) in rows {
            assert_eq!(seen(&router, &[asserted]).await, GATEWAY, "{what}");
        }
        assert_eq!(seen(&router, &[valid(), valid()]).await, GATEWAY, "twice");
        assert_eq!(seen(&router, &[]).await, GATEWAY);
    }

    #[tokio::test]
    async fn without_the_key_the_gateways_address_counts_and_a_new_key_is_noticed() {
        let manager = SecretsManager::default();
        let unread = router(&manager).await;
        assert_eq!(seen(&unread, &[valid()]).await, GATEWAY);
        assert_eq!(manager.asked().len(), 1);
        // A request without the header reads no secret.
        seen(&router(&manager).await, &[]).await;
        assert_eq!(manager.asked().len(), 0);
        let short = SecretsManager::new([("arn:key", "short")]);
        assert_eq!(seen(&router(&short).await, &[valid()]).await, GATEWAY);

        let (manager, micros) = (SecretsManager::new([("arn:key", KEY)]), Arc::new(AtomicI64::new(0)));
        micros.store(at(NOW).micros(), SeqCst);
        let router = router_by(&manager, &micros).await;
        assert_eq!(seen(&router, &[valid()]).await, CALLER);
        let new = KEY.replace('0', "1");
        manager.store("arn:key", &new);
        micros.store(at(NOW + 30).micros(), SeqCst);
        let asserted = made(&new, NOW + 30, &Method::GET, "/me", &BEARER);
        assert_eq!(seen(&router, &[asserted]).await, CALLER);
        assert_eq!(seen(&router, &[valid()]).await, GATEWAY, "the old key is over");
    }
}
