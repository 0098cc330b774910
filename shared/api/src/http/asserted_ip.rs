//! Lets the function `mcp` assert the caller's IP address to the functions that authenticate agents, because the
//! gateway reports the address of `mcp`.
//!
//! The header contains one HMAC per receiving function. Each receiving function has a separate key, so a compromised
//! function can't forge addresses for other functions.
//!
//! An assertion is valid for one agent key, method and path, within [`VALID_SECS`] of the assertion's time. Without a
//! valid assertion, the gateway's source address counts.

use crate::{Clock, GatewayContext, Secrets};
use aws_types::SdkConfig;
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use futures_util::future::try_join_all;
use hmac::{Hmac, KeyInit as _, Mac as _};
use purser_domain::{Duration, Error, Result, SecretDigest, Timestamp};
use purser_refreshed::{RefreshPolicy, RefreshingCache};
use sha2::Sha256;
use std::{
    fmt::{self, Write as _},
    net::IpAddr,
    sync::Arc,
};
use tracing::{error, warn};

/// The header: the address, the seconds since the Unix epoch, and the HMACs in hex, separated by spaces.
pub const ASSERTED_IP: HeaderName = HeaderName::from_static("x-purser-client-ip");

/// The validity of an assertion, in seconds. Clock differences and calls are much shorter.
const VALID_SECS: u64 = 30;
/// The minimum length of a key, in characters. 32 hexadecimal digits have 128 bits.
const MIN_CHARS: usize = 32;
/// Separates assertions from any other HMAC with the same key.
const DOMAIN: &[u8] = b"purser/client-ip/v1\0";
/// The maximum number of HMACs in the header. `mcp` sends three.
const MAX_MACS: usize = 8;
const READING: &str = "reading the key of asserted addresses";
/// Limits the reads of the keys from Secrets Manager, because an assertion by an unknown key causes a read.
const AGES: RefreshPolicy = RefreshPolicy {
    fresh: Duration::from_secs_u32(300),
    longest: None,
    every: Duration::from_secs_u32(30),
    every_at_first: Duration::from_secs_u32(5),
};

/// A key that creates and verifies assertions.
#[derive(Clone)]
struct AssertionKey(Hmac<Sha256>);

/// The keys of the running function: one, or for `mcp` the keys of all functions that receive assertions.
#[derive(Clone)]
pub struct AssertionKeySet(Arc<[AssertionKey]>);

/// Omits the keys, because debug output may be logged.
impl fmt::Debug for AssertionKeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AssertionKeySet(..)")
    }
}

/// An assertion whose HMACs are not verified.
struct Assertion {
    ip: IpAddr,
    secs: u64,
    macs: Vec<SecretDigest>,
}

impl Assertion {
    /// Parses the header; `None` unless it occurs exactly once and is valid.
    fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(ASSERTED_IP).iter();
        let text = values.next()?.to_str().ok()?;
        let mut parts = text.split(' ');
        let asserted = Self {
            ip: parts.next()?.parse().ok()?,
            secs: parts.next()?.parse().ok()?,
            macs: parts.map(SecretDigest::from_hex).collect::<Option<_>>()?,
        };
        (asserted.macs.len() <= MAX_MACS && values.next().is_none()).then_some(asserted)
    }

    fn is_valid_at(&self, now: Timestamp) -> bool {
        now.secs().abs_diff(self.secs) <= VALID_SECS
    }
}

impl AssertionKeySet {
    /// Creates the header value that asserts this address for one request.
    pub fn sign_assertion(
        &self,
        ip: IpAddr,
        now: Timestamp,
        method: &Method,
        path: &str,
        authorization: &HeaderValue,
    ) -> Option<HeaderValue> {
        let secs = now.secs();
        let mut text = format!("{ip} {secs}");
        for key in self.0.iter() {
            // Writing to a `String` can't fail.
            let _ = write!(text, " {}", key.mac(ip, secs, method, path, authorization).to_hex());
        }
        HeaderValue::try_from(text).ok()
    }

    /// Returns whether one of these keys made the assertion for this request.
    fn has_signed(&self, assertion: &Assertion, method: &Method, path: &str, authorization: &HeaderValue) -> bool {
        self.0.iter().any(|key| {
            let mac = key.mac(assertion.ip, assertion.secs, method, path, authorization);
            assertion.macs.contains(&mac)
        })
    }
}

impl AssertionKey {
    /// Creates a key from a text; `None` if the text is shorter than [`MIN_CHARS`].
    fn from_text(text: &str) -> Option<Self> {
        let is_long = text.chars().count() >= MIN_CHARS;
        Hmac::new_from_slice(text.as_bytes()).ok().filter(|_| is_long).map(Self)
    }

    fn mac(&self, ip: IpAddr, secs: u64, method: &Method, path: &str, authorization: &HeaderValue) -> SecretDigest {
        let mut mac = self.0.clone();
        mac.update(DOMAIN);
        // No field contains a line break, so the text is unambiguous.
        mac.update(format!("{ip}\n{secs}\n{method}\n{path}\n").as_bytes());
        mac.update(authorization.as_bytes());
        SecretDigest::from_bytes(mac.finalize().into_bytes().into())
    }
}

/// The assertion keys in Secrets Manager. They are read at the first use.
pub struct AssertionKeys {
    secrets: Secrets,
    arns: Vec<String>,
    keys: RefreshingCache<AssertionKeySet>,
    clock: Clock,
}

impl AssertionKeys {
    /// Creates the keys from a list of ARNs that are separated by commas. If `arns` is `None`, returns `None`, and the
    /// function neither creates nor accepts signed addresses.
    pub fn from_secret_arns(arns: Option<String>, aws: &SdkConfig, clock: &Clock) -> Option<Self> {
        Some(Self::new(Secrets::new(aws), &arns?, clock.clone()))
    }

    fn new(secrets: Secrets, arns: &str, clock: Clock) -> Self {
        Self {
            secrets,
            arns: arns.split(',').map(str::to_owned).collect(),
            keys: RefreshingCache::new(READING, AGES, |cause| error!(%cause, "asserted_ip.key_not_refreshed")),
            clock,
        }
    }

    async fn read_keys(&self) -> Result<AssertionKeySet> {
        let keys = try_join_all(self.arns.iter().map(|arn| self.read_key(arn))).await?;
        Ok(AssertionKeySet(keys.into()))
    }

    async fn read_key(&self, arn: &str) -> Result<AssertionKey> {
        let text = self.secrets.read(arn).await?;
        AssertionKey::from_text(&text)
            .ok_or_else(|| Error::internal(READING, format!("`{arn}`: must have {MIN_CHARS} characters or more")))
    }

    /// Returns the keys; `None` if a key can't be read. The cause is logged.
    pub async fn current_keys(&self) -> Option<AssertionKeySet> {
        let keys = self.keys.get_or_fetch(self.clock.now(), || self.read_keys()).await;
        keys.inspect_err(|cause| error!(%cause, "asserted_ip.no_key")).ok()
    }

    /// Returns the asserted address if the assertion is valid for this request.
    async fn verify_asserted_ip(&self, parts: &Parts) -> Option<IpAddr> {
        let asserted = Assertion::from_headers(&parts.headers)?;
        let authorization = parts.headers.get(header::AUTHORIZATION)?;
        let now = self.clock.now();
        if !asserted.is_valid_at(now) {
            return None;
        }
        let (method, path) = (&parts.method, parts.uri.path());
        let is_made = |keys: &AssertionKeySet| keys.has_signed(&asserted, method, path, authorization);
        if is_made(&self.current_keys().await?) {
            return Some(asserted.ip);
        }
        // The key may be new, so the keys are read again.
        let newest = self.keys.fetch_newest(now, || self.read_keys()).await.ok()?;
        if !is_made(&newest) {
            warn!("asserted_ip.refused");
            return None;
        }
        Some(asserted.ip)
    }
}

/// Adds a layer that replaces the caller's address by the address in a valid assertion.
pub fn with_asserted_ip_layer(router: Router, keys: Option<AssertionKeys>) -> Router {
    match keys {
        Some(keys) => router.layer(from_fn_with_state(Arc::new(keys), set_asserted_client_ip)),
        None => router,
    }
}

async fn set_asserted_client_ip(State(keys): State<Arc<AssertionKeys>>, request: Request, next: Next) -> Response {
    // Only `mcp` sends this header.
    if !request.headers().contains_key(ASSERTED_IP) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    // In a box, because the future is large.
    if let Some(ip) = Box::pin(keys.verify_asserted_ip(&parts)).await
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

    static_assertions::assert_not_impl_any!(AssertionKey: PartialEq, fmt::Debug, fmt::Display);
    static_assertions::assert_not_impl_any!(AssertionKeySet: PartialEq, fmt::Display);

    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const NOW: u64 = 1_795_223_340;
    const GATEWAY: &str = "198.51.100.1";
    const CALLER: &str = "203.0.113.7";
    const BEARER: HeaderValue = HeaderValue::from_static("Bearer gak_pub_1:gak_sec_2");

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn made(key: &str, secs: u64, method: &Method, path: &str, authorization: &HeaderValue) -> HeaderValue {
        let keys = AssertionKeySet([AssertionKey::from_text(key).unwrap()].into());
        let ip = CALLER.parse().unwrap();
        keys.sign_assertion(ip, at(secs), method, path, authorization).unwrap()
    }

    fn valid() -> HeaderValue {
        made(KEY, NOW, &Method::GET, "/me", &BEARER)
    }

    async fn router(manager: &SecretsManager) -> Router {
        router_by(manager, &Arc::new(AtomicI64::new(at(NOW).micros()))).await
    }

    async fn router_by(manager: &SecretsManager, micros: &Arc<AtomicI64>) -> Router {
        let clock = Clock::at_fixed_time(Arc::clone(micros));
        let keys = AssertionKeys::new(test_clients::secrets(manager).await, "arn:key", clock);
        let seen = async |request: Request| client_ip(request.extensions()).unwrap().to_string();
        with_asserted_ip_layer(Router::new().route("/me", any(seen)), Some(keys))
    }

    /// Sends `GET /me` with the asserted address, and returns the address that the handler sees.
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
    async fn client_ip_assertions_are_bound_to_one_request_and_time() {
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
            (
                "too many",
                of(&format!("{text}{}", format!(" {}", "0".repeat(64)).repeat(8))),
            ),
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
    async fn an_asserted_ip_address_is_accepted_only_by_the_function_it_is_signed_for() {
        let arns = ["arn:agents", "arn:payments", "arn:people"];
        let texts = ["a", "b", "c"].map(|letter| letter.repeat(32));
        let manager = SecretsManager::new(arns.into_iter().zip(texts.iter().map(String::as_str)));
        let secrets = test_clients::secrets(&manager).await;
        let still = || Clock::at_fixed_time(Arc::new(AtomicI64::new(at(NOW).micros())));
        let keys_of = |arns: &str| AssertionKeys::new(secrets.clone(), arns, still());
        let seen_by = async |verifier: &str, asserter: &str| {
            let keys = keys_of(asserter).current_keys().await.unwrap();
            let asserted = keys.sign_assertion(CALLER.parse().unwrap(), at(NOW), &Method::GET, "/me", &BEARER);
            let request = async |request: Request| client_ip(request.extensions()).unwrap().to_string();
            let router = with_asserted_ip_layer(Router::new().route("/me", any(request)), Some(keys_of(verifier)));
            seen(&router, &[asserted.unwrap()]).await
        };
        for verifier in arns {
            assert_eq!(seen_by(verifier, &arns.join(",")).await, CALLER, "{verifier}, of mcp");
            for asserter in arns {
                let expected = if asserter == verifier { CALLER } else { GATEWAY };
                assert_eq!(seen_by(verifier, asserter).await, expected, "{verifier}, of {asserter}");
            }
        }
    }

    #[tokio::test]
    async fn the_gateway_client_address_is_used_if_the_assertion_key_is_unreadable() {
        let manager = SecretsManager::default();
        let unread = router(&manager).await;
        assert_eq!(seen(&unread, &[valid()]).await, GATEWAY);
        assert_eq!(manager.asked().len(), 1);
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
