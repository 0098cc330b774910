//! Authenticates operators by the token in the header `X-Internal-Token`.
//!
//! A secret in Secrets Manager maps each operator's name to the SHA-256 hash of the token, so a reader of the secret
//! can't act as an operator.
//!
//! A removed token is rejected within a minute, unless Secrets Manager can't be reached. The secret is read at most
//! once in 30 seconds.

use crate::{BootError, RejectionLimit, Secrets, ThrottleScope, request_source};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, HeaderValue, request::Parts},
};
use purser_domain::{
    Acting, Actor, Duration, Error, ErrorKind, OperatorName, RequestSource, Result, SecretDigest, Timestamp,
};
use purser_refreshed::{RefreshPolicy, RefreshingCache};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use subtle::ConstantTimeEq as _;
use tracing::{error, warn};

const AGES: RefreshPolicy = RefreshPolicy {
    fresh: Duration::from_secs_u32(60),
    longest: None,
    every: Duration::from_secs_u32(30),
    every_at_first: Duration::from_secs_u32(30),
};
const READING: &str = "reading the operators' tokens";
/// The minimum length of a token in characters. 32 hexadecimal digits have 128 bits.
const MIN_TOKEN_LEN: usize = 32;

/// The operators' tokens, as stored in Secrets Manager.
pub struct InternalTokens {
    secrets: Secrets,
    arn: String,
    operators: RefreshingCache<Operators>,
}

#[derive(Clone)]
struct Operators(Arc<[(OperatorName, SecretDigest)]>);

impl Operators {
    async fn from_secret(secrets: &Secrets, arn: &str) -> Result<Self> {
        let text = secrets.read(arn).await?;
        Self::parse(&text).ok_or_else(|| {
            let message = format!("`{arn}`: must be a JSON object of names, each with the SHA-256 of its token in hex");
            Error::internal(READING, message)
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let listed: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let operator =
            |(name, digest): (String, String)| Some((OperatorName::parse(&name)?, SecretDigest::from_hex(&digest)?));
        listed.into_iter().map(operator).collect::<Option<_>>().map(Self)
    }

    fn has_operator(&self, name: &OperatorName) -> bool {
        self.0.iter().any(|(listed, _)| listed == name)
    }

    /// Finds the operator with this token digest. Compares every stored digest, so that the duration reveals nothing.
    fn find_by_digest(&self, presented_digest: &SecretDigest) -> Option<&OperatorName> {
        let mut found = None;
        for (name, digest) in self.0.iter() {
            if digest.ct_eq(presented_digest).into() {
                found = Some(name);
            }
        }
        found
    }
}

/// Hashes a token. Returns `None` if the token is too short or not visible ASCII.
fn token_digest(token: &[u8]) -> Option<SecretDigest> {
    let may_be = token.len() >= MIN_TOKEN_LEN && token.iter().all(u8::is_ascii_graphic);
    may_be.then(|| SecretDigest::from_secret(token))
}

impl InternalTokens {
    /// Reads the operators from Secrets Manager. Fails if the secret is malformed.
    pub async fn load(secrets: Secrets, arn: String, now: Timestamp) -> Result<Self, BootError> {
        let operators = RefreshingCache::new(READING, AGES, |cause| error!(%cause, "operators.not_refreshed"));
        operators.store(Operators::from_secret(&secrets, &arn).await?, now);
        Ok(Self {
            secrets,
            arn,
            operators,
        })
    }

    /// Returns whether an operator has this name, according to a list that is at most a minute old.
    pub async fn has_operator(&self, name: &OperatorName, now: Timestamp) -> Result<bool> {
        if self
            .operators
            .fresh_value(now)
            .is_some_and(|known| known.has_operator(name))
        {
            return Ok(true);
        }
        let newest = self
            .operators
            .fetch_newest(now, || Operators::from_secret(&self.secrets, &self.arn))
            .await?;
        Ok(newest.has_operator(name))
    }

    /// Returns the operator, or 401 `invalid_internal_token` unless exactly one header contains a valid token.
    pub async fn authenticate(&self, headers: &HeaderMap, now: Timestamp) -> Result<OperatorName> {
        self.authenticate_token(read_token(headers).as_ref(), now).await
    }

    async fn authenticate_token(&self, header: Option<&HeaderValue>, now: Timestamp) -> Result<OperatorName> {
        let digest = header.and_then(|presented| token_digest(presented.as_bytes()));
        let digest = digest.ok_or(ErrorKind::InvalidInternalToken)?;
        let known = self.operators.fresh_value(now);
        if let Some(name) = known.as_ref().and_then(|operators| operators.find_by_digest(&digest)) {
            return Ok(name.clone());
        }
        // The operator or the token may be new, so the secret is read again.
        let newest = self
            .operators
            .fetch_newest(now, || Operators::from_secret(&self.secrets, &self.arn))
            .await?;
        let name = newest.find_by_digest(&digest).cloned();
        Ok(name.ok_or_else(|| {
            // A removed operator or an attacker sent this token, which is long enough to be valid.
            warn!("operator.refused");
            ErrorKind::InvalidInternalToken
        })?)
    }
}

/// Returns the value of `X-Internal-Token` if the header occurs exactly once.
fn read_token(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(HeaderName::from_static("x-internal-token")).iter();
    let value = values.next()?.clone();
    values.next().is_none().then_some(value)
}

/// An authenticated operator.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The operator's name.
    pub name: OperatorName,
    /// The operator and the source of the request, as the audit log records them.
    pub acting: Acting,
}

/// The unverified credentials in an operator's request.
pub struct OperatorCredentials {
    presented: Option<HeaderValue>,
    source: RequestSource,
    scope: ThrottleScope,
}

/// Extraction never fails. [`OperatorCredentials::authenticate`] rejects the request.
impl<S: Sync> FromRequestParts<S> for OperatorCredentials {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            presented: read_token(&parts.headers),
            source: request_source(parts),
            scope: ThrottleScope::for_request(&parts.extensions),
        })
    }
}

impl OperatorCredentials {
    /// Returns the operator, 401 `invalid_internal_token`, or 429 `too_many_requests` after too many rejections from
    /// this source.
    pub async fn authenticate(
        self,
        tokens: &InternalTokens,
        rejection_limit: &RejectionLimit,
        now: Timestamp,
    ) -> Result<Operator> {
        let checked = tokens.authenticate_token(self.presented.as_ref(), now).await;
        let name = checked.map_err(|error| match error.kind() {
            ErrorKind::InvalidInternalToken => rejection_limit.count_rejection_and_return_error(self.scope, now, error),
            _ => error,
        })?;
        let acting = Acting {
            actor: Actor::Operator(name.clone()),
            source: self.source,
        };
        Ok(Operator { name, acting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clients;
    use purser_testkit::SecretsManager;

    static_assertions::assert_not_impl_any!(Operators: PartialEq, std::fmt::Debug);
    static_assertions::assert_not_impl_any!(InternalTokens: PartialEq, std::fmt::Debug);
    static_assertions::assert_not_impl_any!(OperatorCredentials: PartialEq, std::fmt::Debug);

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const C: &str = "cccccccccccccccccccccccccccccccc";

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(1_795_223_340 + secs).unwrap()
    }

    const ARN: &str = "arn:token";

    struct Manager(SecretsManager);

    /// Returns the secret's JSON for these operators and tokens.
    fn listing(operators: &[(&str, &str)]) -> String {
        let digest = |token: &str| SecretDigest::from_secret(token).to_hex();
        let listed: BTreeMap<_, _> = operators.iter().map(|(name, token)| (*name, digest(token))).collect();
        serde_json::to_string(&listed).unwrap()
    }

    impl Manager {
        async fn start(operators: &[(&str, &str)]) -> (Self, Secrets) {
            Self::holding(&listing(operators)).await
        }

        async fn holding(text: &str) -> (Self, Secrets) {
            let manager = SecretsManager::default();
            manager.store(ARN, text);
            let secrets = test_clients::secrets(&manager).await;
            (Self(manager), secrets)
        }

        fn store(&self, operators: &[(&str, &str)]) {
            self.0.store(ARN, &listing(operators));
        }

        fn go_down(&self, down: bool) {
            if down {
                self.0.lie(400, r#"{"__type":"AccessDeniedException"}"#);
            } else {
                self.0.behave();
            }
        }

        /// Returns how often the secret was read since the last call.
        fn reads(&self) -> usize {
            let asked = self.0.asked();
            asked
                .iter()
                .filter(|asked| asked["VersionStage"] == "AWSCURRENT")
                .count()
        }
    }

    async fn load(secrets: &Secrets) -> InternalTokens {
        InternalTokens::load(secrets.clone(), "arn:token".to_owned(), at(0))
            .await
            .unwrap()
    }

    /// Returns the name of the operator with this token.
    async fn whose(tokens: &InternalTokens, token: &str, now: Timestamp) -> Option<String> {
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("x-internal-token"),
            HeaderValue::from_str(token).unwrap(),
        )]);
        match tokens.authenticate(&headers, now).await {
            Ok(name) => Some(name.to_string()),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::InvalidInternalToken), "{error}");
                None
            }
        }
    }

    async fn is_good(tokens: &InternalTokens, token: &str, now: Timestamp) -> bool {
        whose(tokens, token, now).await.is_some()
    }

    #[tokio::test]
    async fn each_internal_token_identifies_one_operator() {
        let (manager, secrets) = Manager::start(&[("ada", A), ("bob", B)]).await;
        let tokens = load(&secrets).await;
        let (longer, digest) = (format!("{B}b"), SecretDigest::from_secret(B).to_hex());
        let rows = [
            (A, Some("ada")),
            (B, Some("bob")),
            (C, None),
            ("", None),
            ("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", None),
            (longer.as_str(), None),
            ("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbB", None),
            // The secret contains the token's digest, which is not accepted as a token.
            (digest.as_str(), None),
        ];
        for (token, name) in rows {
            assert_eq!(whose(&tokens, token, at(0)).await.as_deref(), name, "{token}");
        }
        assert_eq!(manager.reads(), 1);
    }

    #[tokio::test]
    async fn weak_operator_tokens_are_rejected() {
        for token in ["a".repeat(31), "changeme".to_owned(), format!("{A} {A}")] {
            let (_, secrets) = Manager::start(&[("ada", &token)]).await;
            assert!(!is_good(&load(&secrets).await, &token, at(0)).await, "{token}");
        }
        let (_, secrets) = Manager::start(&[]).await;
        assert!(!is_good(&load(&secrets).await, A, at(0)).await);
    }

    #[tokio::test]
    async fn malformed_operator_secrets_fail_at_startup_without_being_shown() {
        let digest = "ab".repeat(32);
        for text in [
            A.to_owned(),
            String::new(),
            "[]".to_owned(),
            r#"{"ada": 7}"#.to_owned(),
            format!(r#"{{"ada": "a{}"}}"#, "ab".repeat(31)),
            format!(r#"{{"ada": "{digest}ab"}}"#),
            format!(r#"{{"Ada": "{digest}"}}"#),
            format!(r#"{{"": "{digest}"}}"#),
            format!(r#"{{"ada": "{digest}", "bob": "x"}}"#),
        ] {
            let (_, secrets) = Manager::holding(&text).await;
            let loaded = InternalTokens::load(secrets, ARN.to_owned(), at(0)).await;
            let words = loaded.err().expect(&text).to_string();
            assert!(words.contains("`arn:token`: must be a JSON object of names"), "{words}");
            assert!(text.is_empty() || !words.contains(&text), "{words}");
        }
        let (manager, secrets) = Manager::start(&[("ada", A)]).await;
        manager.go_down(true);
        assert!(InternalTokens::load(secrets, ARN.to_owned(), at(0)).await.is_err());
    }

    #[tokio::test]
    async fn unknown_operator_tokens_reload_the_secret_every_30_seconds() {
        let (manager, secrets) = Manager::start(&[("ada", A)]).await;
        let tokens = load(&secrets).await;
        assert_eq!(manager.reads(), 1);
        manager.store(&[("ada", A), ("bob", B)]);
        let rows = [
            (29, B, false, 0),
            (30, B, true, 1),
            (30, A, true, 0),
            (31, C, false, 0),
            (59, C, false, 0),
            (60, C, false, 1),
            (61, C, false, 0),
            (61, B, true, 0),
        ];
        for (secs, token, good, reads) in rows {
            assert_eq!(is_good(&tokens, token, at(secs)).await, good, "{secs}");
            assert_eq!(manager.reads(), reads, "{secs}");
        }
    }

    #[tokio::test]
    async fn removed_operator_tokens_are_rejected_within_a_minute() {
        let (manager, secrets) = Manager::start(&[("ada", A)]).await;
        let tokens = load(&secrets).await;
        manager.store(&[("ada", B)]);
        manager.reads();
        for (secs, good, reads) in [(0, true, 0), (59, true, 0), (60, false, 1), (61, false, 0)] {
            assert_eq!(is_good(&tokens, A, at(secs)).await, good, "{secs}");
            assert_eq!(manager.reads(), reads, "{secs}");
        }
    }

    /// A malformed secret does not lock operators out.
    #[tokio::test]
    async fn known_operator_tokens_work_while_secrets_manager_is_down() {
        let (manager, secrets) = Manager::start(&[("ada", A)]).await;
        let tokens = load(&secrets).await;
        manager.store(&[("ada", B)]);
        manager.go_down(true);
        manager.reads();
        let rows = [(60, A, true, 1), (61, A, true, 0), (62, B, false, 0), (90, A, true, 1)];
        for (secs, token, good, reads) in rows {
            assert_eq!(is_good(&tokens, token, at(secs)).await, good, "{secs}");
            assert_eq!(manager.reads(), reads, "{secs}");
        }
        manager.go_down(false);
        assert!(!is_good(&tokens, A, at(120)).await && is_good(&tokens, B, at(120)).await);
        // A failed rotation made the secret malformed. The last valid list stays in use.
        manager.0.store(ARN, "short");
        assert!(is_good(&tokens, B, at(180)).await);
    }

    #[tokio::test]
    async fn concurrent_callers_share_one_read_of_operator_tokens() {
        let (manager, secrets) = Manager::start(&[("ada", A)]).await;
        let tokens = load(&secrets).await;
        manager.store(&[("ada", B)]);
        manager.reads();
        let call = || is_good(&tokens, B, at(60));
        assert_eq!(tokio::join!(call(), call(), call()), (true, true, true));
        assert_eq!(manager.reads(), 1);
    }

    #[tokio::test]
    async fn exactly_one_internal_token_header_is_required() {
        let (manager, secrets) = Manager::start(&[("ada", A)]).await;
        let tokens = load(&secrets).await;
        manager.reads();
        let bearer = format!("Bearer {A}");
        let rows: [(&[(&str, &str)], bool); 6] = [
            (&[("x-internal-token", A)], true),
            (&[], false),
            (&[("authorization", &bearer)], false),
            (&[("x-internal-token", &bearer)], false),
            (&[("x-internal-token", A), ("x-internal-token", A)], false),
            (&[("x-internal-token", A), ("x-internal-token", B)], false),
        ];
        for (headers, good) in rows {
            let mut request = axum::http::Request::new(()).into_parts().0;
            for (name, value) in headers {
                let name = HeaderName::try_from(*name).unwrap();
                request.headers.append(name, HeaderValue::from_str(value).unwrap());
            }
            let Ok(caller) = OperatorCredentials::from_request_parts(&mut request, &()).await;
            let answer = caller.authenticate(&tokens, &RejectionLimit::new(10), at(0)).await;
            let slug = answer.err().map(|error| error.kind().slug());
            assert_eq!(slug.is_none(), good, "{headers:?}");
            assert!(slug.is_none_or(|slug| slug == "invalid_internal_token"));
        }
        assert_eq!(manager.reads(), 0);
    }

    #[tokio::test]
    async fn valid_operator_tokens_are_accepted_from_throttled_addresses() {
        let (_manager, secrets) = Manager::start(&[("ada", A)]).await;
        let (tokens, refusals) = (load(&secrets).await, RejectionLimit::new(2));
        let call = async |token: &'static str, secs| {
            let caller = OperatorCredentials {
                presented: Some(HeaderValue::from_static(token)),
                source: RequestSource::default(),
                scope: ThrottleScope::Unknown,
            };
            let answer = caller.authenticate(&tokens, &refusals, at(secs)).await;
            answer.err().map(|error| error.kind().slug())
        };
        let rows = [
            (B, 0, Some("invalid_internal_token")),
            (A, 0, None),
            ("short", 0, Some("invalid_internal_token")),
            (B, 0, Some("too_many_requests")),
            ("short", 59, Some("too_many_requests")),
            (A, 59, None),
            (B, 60, Some("invalid_internal_token")),
        ];
        for (token, secs, expected) in rows {
            assert_eq!(call(token, secs).await.as_deref(), expected, "{token} {secs}");
        }
    }
}
