//! The OpenID Connect issuer of ID tokens: the endpoints and the signing keys.
//!
//! Invariants: endpoints and keys are at most an hour old, unless the issuer can't be reached. The issuer is called at
//! most once in 30 seconds. The endpoints are https URLs, or URLs of a server on this machine.

use crate::http::outward::any_address_client_builder;
use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, CommonParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use purser_domain::{Causes, Duration, Error, Result, Timestamp, Url};
use purser_refreshed::{RefreshPolicy, RefreshingCache};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{net::IpAddr, sync::Arc, time};
use tracing::warn;

const AGES: RefreshPolicy = RefreshPolicy {
    fresh: Duration::from_secs_u32(3_600),
    longest: None,
    // Limits the calls to the issuer if an attacker sends tokens with unknown key ids.
    every: Duration::from_secs_u32(30),
    // Shorter than `every`, because no session can be verified without keys. Longer than a fetch, so that a request
    // that waited for a failed fetch does not fetch again.
    every_at_first: Duration::from_secs_u32(5),
};
/// The timeout of one request to the issuer.
const RESPONSE_TIMEOUT: time::Duration = time::Duration::from_secs(2);
/// The maximum length of a response body, in bytes. Enough for dozens of keys with their certificates.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;

/// The issuer's endpoints (OpenID Connect Discovery §3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcMetadata {
    /// The URL at which a user signs in.
    pub authorization_endpoint: Url,
    /// The URL that exchanges an authorization code for tokens.
    pub token_endpoint: Url,
    /// The URL at which a user signs out; `None` if the issuer has none.
    pub end_session_endpoint: Option<Url>,
}

#[derive(Deserialize)]
struct WireOidcMetadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    end_session_endpoint: Option<String>,
    jwks_uri: String,
}

/// A public key that verifies the issuer's ID tokens.
#[derive(Clone)]
pub(crate) struct SessionKey {
    id: Option<String>,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: DecodingKey,
}

/// A published key set (RFC 7517 §5), which may contain keys of unknown types.
#[derive(Deserialize)]
struct WireKeys {
    keys: Vec<Value>,
}

impl SessionKey {
    /// Parses a key. Returns `None` for a key of another type or purpose, which an issuer may also publish.
    fn from_jwk(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
            _ => return None,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let CommonParameters {
            public_key_use,
            key_operations,
            key_algorithm,
            key_id,
            ..
        } = jwk.common;
        let is_for_this = public_key_use.is_none_or(|word| word == PublicKeyUse::Signature)
            && key_operations.is_none_or(|words| words.contains(&KeyOperations::Verify))
            && key_algorithm.is_none_or(|word| word == algorithm.into());
        is_for_this.then_some(Self {
            id: key_id,
            algorithm,
            key,
        })
    }
}

/// The issuer's metadata and signing keys from the same fetch.
#[derive(Clone)]
struct IssuerDocuments {
    metadata: Arc<OidcMetadata>,
    keys: Arc<[SessionKey]>,
}

impl IssuerDocuments {
    /// Finds the key with this algorithm and id. If `id` is `None`, the issuer's key set must have exactly one key.
    fn find_key(&self, algorithm: Algorithm, id: Option<&str>) -> Option<&SessionKey> {
        let fits = |key: &&SessionKey| key.algorithm == algorithm;
        match (id, &*self.keys) {
            (Some(_), keys) => keys.iter().filter(|key| key.id.as_deref() == id).find(fits),
            (None, [only]) => Some(only).filter(fits),
            (None, _) => None,
        }
    }
}

/// A client of the issuer that caches the issuer's metadata and keys.
pub(crate) struct Issuer {
    /// The issuer's URL, exactly as in the `iss` claim.
    name: String,
    client: Client,
    known: RefreshingCache<IssuerDocuments>,
}

impl Issuer {
    /// Fetches the issuer's metadata and keys. After a failure, the first use fetches again.
    pub(crate) async fn new(name: String, now: Timestamp) -> Result<Self> {
        let client = any_address_client_builder("Purser")
            .connect_timeout(time::Duration::from_secs(1))
            .timeout(RESPONSE_TIMEOUT)
            .build();
        let issuer = Self {
            name,
            client: client.map_err(|error| Error::internal("creating an HTTP client", error))?,
            known: RefreshingCache::new(ASKING, AGES, log_issuer_unavailable),
        };
        match issuer.fetch_documents().await {
            Ok(known) => issuer.known.store(known, now),
            Err(error) => log_issuer_unavailable(&error),
        }
        Ok(issuer)
    }

    /// Returns the issuer's endpoints, at most an hour old.
    pub(crate) async fn oidc_metadata(&self, now: Timestamp) -> Result<Arc<OidcMetadata>> {
        Ok(self.known.get_or_fetch(now, || self.fetch_documents()).await?.metadata)
    }

    /// Finds the issuer's key with this algorithm and id. For an unknown id, fetches the keys again, because the issuer
    /// may have added a key.
    pub(crate) async fn signing_key(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<SessionKey>> {
        let known = self.known.get_or_fetch(now, || self.fetch_documents()).await?;
        let key = known.find_key(algorithm, id).cloned();
        if key.is_some() || id.is_none() {
            return Ok(key);
        }
        let known = self.known.fetch_newest(now, || self.fetch_documents()).await?;
        Ok(known.find_key(algorithm, id).cloned())
    }

    /// Posts a form to an endpoint of the issuer. The error text contains the URL and the cause.
    pub(crate) async fn post_form(
        &self,
        address: &Url,
        form: &[(&str, &str)],
    ) -> Result<(StatusCode, Vec<u8>), String> {
        send_request(self.client.post(address.clone()).form(form)).await
    }

    async fn fetch_documents(&self) -> Result<IssuerDocuments> {
        let failed = |message: String| Error::internal(ASKING, message);
        // A trailing slash of the issuer is removed before the path is appended (OpenID Connect Discovery §4.1).
        let address = format!("{}/.well-known/openid-configuration", self.name.trim_end_matches('/'));
        let wire: WireOidcMetadata = self.get_json(&address).await.map_err(failed)?;
        // Without this check, one issuer could impersonate another (OpenID Connect Discovery §4.3).
        if wire.issuer != self.name {
            return Err(failed(format!("the metadata at {address} belongs to another issuer")));
        }
        let address = |text: &str, name: &str| {
            parse_endpoint(text).ok_or_else(|| failed(format!("the {name} is not an https address")))
        };
        let metadata = OidcMetadata {
            authorization_endpoint: address(&wire.authorization_endpoint, "authorization_endpoint")?,
            token_endpoint: address(&wire.token_endpoint, "token_endpoint")?,
            end_session_endpoint: match &wire.end_session_endpoint {
                Some(text) => Some(address(text, "end_session_endpoint")?),
                None => None,
            },
        };
        let jwks_uri = address(&wire.jwks_uri, "jwks_uri")?;
        let keys: WireKeys = self.get_json(jwks_uri.as_str()).await.map_err(failed)?;
        Ok(IssuerDocuments {
            metadata: Arc::new(metadata),
            keys: keys.keys.into_iter().filter_map(SessionKey::from_jwk).collect(),
        })
    }

    async fn get_json<T: DeserializeOwned>(&self, address: &str) -> Result<T, String> {
        let (status, body) = send_request(self.client.get(address)).await?;
        if !status.is_success() {
            return Err(format!("{address} returned {status}"));
        }
        serde_json::from_slice(&body).map_err(|_| format!("the response from {address} has an unexpected format"))
    }
}

const ASKING: &str = "calling the OpenID issuer";

fn log_issuer_unavailable(error: &Error) {
    warn!(cause = %error, "session.issuer_unavailable");
}

/// Sends the request and returns the response's status and body. Fails if the body exceeds [`MAX_RESPONSE_BYTES`].
async fn send_request(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), String> {
    let message = |error: reqwest::Error| Causes(&error).to_string();
    let mut response = request.send().await.map_err(message)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(message)? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_RESPONSE_BYTES {
            return Err("the response is longer than the limit".to_owned());
        }
    }
    Ok((response.status(), body))
}

/// Parses the URL of an endpoint that may receive secrets: https, or http to a server on this machine.
pub(crate) fn parse_endpoint(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str()?;
    let is_loopback = || {
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    };
    let is_safe = match url.scheme() {
        "https" => true,
        "http" => is_loopback(),
        _ => false,
    };
    (is_safe && url.username().is_empty() && url.password().is_none()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sessions;
    use crate::test_clients::{TestLog, sessions as sessions_of, settings};
    use purser_domain::ErrorKind;
    use purser_testkit::{Signer, TestIssuer};
    use serde_json::json;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(1_795_223_340 + secs).unwrap()
    }

    fn token(signer: &Signer, issuer: &TestIssuer) -> String {
        let end = at(100_000).secs();
        signer.token(&json!({"iss": issuer.address, "aud": TestIssuer::CLIENT, "sub": "user-1", "iat": at(0).secs(), "exp": end}))
    }

    /// Verifies a token. Returns `ok` or the slug of the error.
    async fn check(sessions: &Sessions, token: &str, now: Timestamp) -> &'static str {
        match sessions.verify_id_token(token, now).await {
            Ok(_) => "ok",
            Err(error) if matches!(error.kind(), ErrorKind::InvalidSession) => "invalid_session",
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Internal) && error.cause().is_some(),
                    "{error}"
                );
                "internal_error"
            }
        }
    }

    #[tokio::test]
    async fn issuer_keys_are_fetched_at_boot_and_hourly() {
        let (old, new) = (Signer::es256("old"), Signer::rs256("new"));
        let issuer = TestIssuer::start(&[&old]).await;
        let sessions = sessions_of(&issuer, at(0)).await;
        assert_eq!(issuer.asked(), 1);
        let old = token(&old, &issuer);
        // The issuer has removed the old key, which stays cached until the next fetch.
        issuer.publish(&[&new]);
        for (secs, expected, asked) in [
            (0, "ok", 0),
            (3_599, "ok", 0),
            (3_600, "invalid_session", 1),
            (3_601, "invalid_session", 0),
        ] {
            assert_eq!(check(&sessions, &old, at(secs)).await, expected, "{secs}");
            assert_eq!(issuer.asked(), asked, "{secs}");
        }
        assert_eq!(check(&sessions, &token(&new, &issuer), at(3_601)).await, "ok");
        assert_eq!(issuer.asked(), 0);
    }

    #[tokio::test]
    async fn an_unknown_issuer_key_triggers_a_rate_limited_fetch() {
        let (old, new, stranger) = (Signer::es256("old"), Signer::es256("new"), Signer::es256("stranger"));
        let issuer = TestIssuer::start(&[&old]).await;
        let sessions = sessions_of(&issuer, at(0)).await;
        let [old, new_token, stranger] = [&old, &new, &stranger].map(|signer| token(signer, &issuer));
        issuer.asked();
        issuer.publish(&[&new]);
        let rows = [
            // The fetch at boot was less than 30 seconds ago, so the keys are not fetched again.
            (29, &new_token, "invalid_session", 0),
            (30, &new_token, "ok", 1),
            (30, &old, "invalid_session", 0),
            (31, &stranger, "invalid_session", 0),
            (59, &stranger, "invalid_session", 0),
            (60, &stranger, "invalid_session", 1),
            (60, &stranger, "invalid_session", 0),
            (89, &stranger, "invalid_session", 0),
            (89, &new_token, "ok", 0),
            (90, &stranger, "invalid_session", 1),
        ];
        for (secs, token, expected, asked) in rows {
            assert_eq!(check(&sessions, token, at(secs)).await, expected, "{secs}");
            assert_eq!(issuer.asked(), asked, "{secs}");
        }
    }

    #[tokio::test]
    async fn an_unavailable_issuer_is_retried_on_demand() {
        let signer = Signer::es256("es");
        let issuer = TestIssuer::start(&[&signer]).await;
        let token = token(&signer, &issuer);
        issuer.set(|script| script.up = false);
        let sessions = sessions_of(&issuer, at(0)).await;
        assert_eq!(issuer.asked(), 1);
        assert_eq!(check(&sessions, &token, at(0)).await, "internal_error");
        assert_eq!(issuer.asked(), 1);
        assert!(sessions.oidc_metadata(at(0)).await.is_err());
        issuer.set(|script| script.up = true);
        // Without keys, the next fetch is due after 5 seconds instead of 30.
        for (secs, expected, asked) in [(4, "internal_error", 0), (5, "ok", 1), (6, "ok", 0)] {
            assert_eq!(check(&sessions, &token, at(secs)).await, expected, "{secs}");
            assert_eq!(issuer.asked(), asked, "{secs}");
        }
        // The issuer is up at the first call, which fetches immediately.
        issuer.set(|script| script.up = false);
        let sessions = sessions_of(&issuer, at(0)).await;
        issuer.set(|script| script.up = true);
        assert_eq!(check(&sessions, &token, at(0)).await, "ok");
    }

    #[tokio::test]
    async fn cached_keys_stay_valid_during_an_issuer_outage() {
        let (signer, stranger) = (Signer::rs256("rs"), Signer::es256("stranger"));
        let issuer = TestIssuer::start(&[&signer]).await;
        let sessions = sessions_of(&issuer, at(0)).await;
        let [good, stranger] = [&signer, &stranger].map(|signer| token(signer, &issuer));
        issuer.asked();
        issuer.set(|script| script.up = false);
        let rows = [
            (30, &stranger, "invalid_session", 1),
            (3_600, &good, "ok", 1),
            // The keys are cached again.
            (3_601, &good, "ok", 0),
            (3_629, &stranger, "invalid_session", 0),
            (3_630, &good, "ok", 1),
            (50_000, &good, "ok", 1),
        ];
        for (secs, token, expected, asked) in rows {
            assert_eq!(check(&sessions, token, at(secs)).await, expected, "{secs}");
            assert_eq!(issuer.asked(), asked, "{secs}");
        }
        assert!(sessions.oidc_metadata(at(50_001)).await.is_ok());
        // The issuer responds again, but without the key.
        issuer.set(|script| {
            script.up = true;
            script.jwks = json!({"keys": []});
        });
        assert_eq!(check(&sessions, &good, at(50_030)).await, "invalid_session");
    }

    #[tokio::test]
    async fn concurrent_callers_share_one_fetch_of_issuer_keys() {
        let signer = Signer::es256("es");
        let issuer = TestIssuer::start(&[&signer]).await;
        let token = token(&signer, &issuer);
        for (up, expected) in [(false, "internal_error"), (true, "ok")] {
            issuer.set(|script| script.up = false);
            let sessions = sessions_of(&issuer, at(0)).await;
            issuer.asked();
            issuer.set(|script| {
                script.up = up;
                script.delay = time::Duration::from_millis(50);
            });
            let answered = AtomicU32::new(0);
            let call = async || {
                assert_eq!(check(&sessions, &token, at(0)).await, expected);
                answered.fetch_add(1, Ordering::SeqCst);
            };
            tokio::join!(call(), call(), call(), call());
            assert_eq!((answered.into_inner(), issuer.asked()), (4, 1));
            issuer.set(|script| script.delay = time::Duration::ZERO);
        }
    }

    #[tokio::test]
    async fn known_issuer_keys_do_not_wait_for_a_fetch() {
        let (known, stranger) = (Signer::es256("known"), Signer::es256("stranger"));
        let issuer = TestIssuer::start(&[&known]).await;
        let sessions = sessions_of(&issuer, at(0)).await;
        let [known, stranger] = [&known, &stranger].map(|signer| token(signer, &issuer));
        issuer.set(|script| script.delay = time::Duration::from_mins(1));
        let slow = check(&sessions, &stranger, at(30));
        let quick = async {
            // Waits until the request with the unknown key has started to fetch the keys.
            tokio::time::sleep(time::Duration::from_millis(20)).await;
            check(&sessions, &known, at(30)).await
        };
        tokio::select! {
            biased;
            _ = slow => panic!("the issuer does not answer"),
            answer = quick => assert_eq!(answer, "ok"),
        }
    }

    #[tokio::test]
    async fn issuer_metadata_must_match_and_use_safe_urls() {
        let signer = Signer::es256("es");
        let issuer = TestIssuer::start(&[&signer]).await;
        let good = issuer.set(|script| script.discovery.clone());
        let rows = [
            (json!({}), None),
            (json!({"end_session_endpoint": null}), None),
            (
                json!({"issuer": "https://issuer.example"}),
                Some("belongs to another issuer"),
            ),
            (
                json!({"issuer": format!("{}/", issuer.address)}),
                Some("belongs to another issuer"),
            ),
            (json!({"issuer": null}), Some("unexpected format")),
            (json!({"token_endpoint": null}), Some("unexpected format")),
            (json!({"jwks_uri": "http://issuer.example/keys"}), Some("jwks_uri")),
            (json!({"jwks_uri": "file:///etc/passwd"}), Some("jwks_uri")),
            (
                json!({"token_endpoint": "http://issuer.example"}),
                Some("token_endpoint"),
            ),
            (
                json!({"authorization_endpoint": "javascript:alert(1)"}),
                Some("authorization_endpoint"),
            ),
            (json!({"end_session_endpoint": "x"}), Some("end_session_endpoint")),
            (json!({"jwks_uri": format!("{}/nowhere", issuer.address)}), Some("404")),
            (json!({"padding": "x".repeat(300_000)}), Some("longer than the limit")),
        ];
        for (changes, words) in rows {
            let mut discovery = good.clone();
            for (name, value) in changes.as_object().unwrap() {
                discovery[name] = value.clone();
            }
            issuer.set(|script| script.discovery = discovery);
            let sessions = sessions_of(&issuer, at(0)).await;
            let told = sessions.oidc_metadata(at(0)).await.err().map(|error| error.to_string());
            match (words, told) {
                (None, None) => (),
                (Some(words), Some(told)) => assert!(told.contains(words), "{told}"),
                (words, told) => panic!("{words:?} {told:?}"),
            }
        }
        issuer.set(|script| script.discovery = good.clone());
        let metadata = sessions_of(&issuer, at(0)).await.oidc_metadata(at(0)).await.unwrap();
        assert_eq!(metadata.authorization_endpoint.as_str(), good["authorization_endpoint"]);
        assert_eq!(metadata.token_endpoint.as_str(), good["token_endpoint"]);
        let end = metadata.end_session_endpoint.as_ref().map(Url::as_str);
        assert_eq!(end, good["end_session_endpoint"].as_str());
    }

    #[tokio::test]
    async fn issuer_keys_for_other_purposes_are_ignored() {
        let (es, rs) = (Signer::es256("k"), Signer::rs256("k"));
        let issuer = TestIssuer::start(&[]).await;
        let changed = |signer: &Signer, name: &str, value: Value| {
            let mut jwk = signer.jwk();
            jwk[name] = value;
            jwk
        };
        let rows = [
            (es.jwk(), "ok"),
            (changed(&es, "alg", Value::Null), "ok"),
            (changed(&es, "use", Value::Null), "ok"),
            (changed(&es, "key_ops", json!(["verify"])), "ok"),
            (changed(&es, "x5c", json!(["ignored"])), "ok"),
            (changed(&es, "use", json!("enc")), "invalid_session"),
            (changed(&es, "key_ops", json!(["sign"])), "invalid_session"),
            (changed(&es, "alg", json!("ES384")), "invalid_session"),
            (changed(&es, "alg", json!("RS256")), "invalid_session"),
            (changed(&es, "crv", json!("P-384")), "invalid_session"),
            (changed(&es, "kty", json!("OKP")), "invalid_session"),
            (changed(&es, "kid", json!("K")), "invalid_session"),
            (changed(&es, "x", json!("not base64!")), "invalid_session"),
            (json!({"kty": "oct", "kid": "k", "k": "AAAA"}), "invalid_session"),
            (json!("a key"), "invalid_session"),
        ];
        for (jwk, expected) in rows {
            // Another key has the same id and a different type.
            issuer.set(|script| script.jwks = json!({"keys": [rs.jwk(), jwk]}));
            let sessions = sessions_of(&issuer, at(0)).await;
            assert_eq!(check(&sessions, &token(&es, &issuer), at(0)).await, expected, "{jwk}");
            assert_eq!(check(&sessions, &token(&rs, &issuer), at(0)).await, "ok");
        }
        let encrypting = changed(&rs, "alg", json!("RSA-OAEP"));
        issuer.set(|script| script.jwks = json!({"keys": [encrypting]}));
        let sessions = sessions_of(&issuer, at(0)).await;
        assert_eq!(check(&sessions, &token(&rs, &issuer), at(0)).await, "invalid_session");
    }

    #[tokio::test]
    async fn issuer_requests_follow_no_redirects_and_time_out() {
        let signer = Signer::es256("es");
        let issuer = TestIssuer::start(&[&signer]).await;
        issuer.set(|script| script.discovery["jwks_uri"] = json!(format!("{}/moved", issuer.address)));
        let error = sessions_of(&issuer, at(0))
            .await
            .oidc_metadata(at(0))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("307"), "{error}");
        issuer.set(|script| script.delay = time::Duration::from_mins(1));
        let started = time::Instant::now();
        let logged = TestLog::start();
        let sessions = sessions_of(&issuer, at(0)).await;
        assert!(started.elapsed() < time::Duration::from_secs(10));
        assert!(logged.take().contains("session.issuer_unavailable"));
        drop(sessions);
        // The port was just freed, so nothing listens on it.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let sessions = Sessions::new(settings(&address).unwrap(), at(0)).await.unwrap();
        let error = sessions.oidc_metadata(at(0)).await.unwrap_err();
        assert!(error.to_string().contains(&address), "{error}");
    }
}
