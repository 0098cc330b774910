//! Operators: the token of the internal routes, in its own header.
//!
//! The secret's current and previous value are both valid, so a rotation has no gap. Only their digests are kept.
//! Always true while Secrets Manager answers: a token that is neither is refused within a minute of the change, and the
//! secret is read at most once in 30 seconds, whatever requests arrive.

use crate::{BootError, Secrets};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, HeaderValue, request::Parts},
};
use purser_domain::{Duration, Error, ErrorKind, Result, SecretDigest, Timestamp};
use purser_refreshed::{Ages, Refreshed};
use std::convert::Infallible;
use subtle::{Choice, ConstantTimeEq as _};
use tracing::error;

const AGES: Ages = Ages {
    fresh: Duration::from_secs_u32(60),
    longest: None,
    every: Duration::from_secs_u32(30),
    every_at_first: Duration::from_secs_u32(30),
};
const READING: &str = "reading the internal token";
/// 32 hexadecimal digits are 128 bits, too many to guess.
const SHORTEST: usize = 32;

/// The valid tokens, as Secrets Manager has them.
pub struct InternalTokens {
    secrets: Secrets,
    arn: String,
    good: Refreshed<Good>,
}

/// SHA-256 of the valid tokens.
#[derive(Clone, Copy)]
struct Good {
    current: SecretDigest,
    previous: Option<SecretDigest>,
}

impl Good {
    async fn read(secrets: &Secrets, arn: &str) -> Result<Self> {
        let (current, previous) = tokio::try_join!(secrets.text(arn), secrets.previous_text(arn))?;
        let current = digest_of(&current).ok_or_else(|| {
            let words =
                format!("`{arn}`: must be {SHORTEST} or more letters, digits or signs of ASCII, without spaces");
            Error::internal(READING, words)
        })?;
        Ok(Self {
            current,
            // A placeholder from before the first rotation is not a valid token, and not an error.
            previous: previous.and_then(|text| digest_of(&text)),
        })
    }

    /// Compares with both, so that the timing reveals nothing about either.
    fn include(&self, presented: &SecretDigest) -> bool {
        let current = self.current.ct_eq(presented);
        let previous = self
            .previous
            .map_or(Choice::from(0), |previous| previous.ct_eq(presented));
        (current | previous).into()
    }
}

/// The digest of a text with the form of a token.
fn digest_of(token: &str) -> Option<SecretDigest> {
    let may_be = token.len() >= SHORTEST && token.bytes().all(|byte| byte.is_ascii_graphic());
    may_be.then(|| SecretDigest::of(token))
}

impl InternalTokens {
    /// Reads the tokens. A current token that is too short is refused here, before any request is served.
    pub async fn load(secrets: Secrets, arn: String, now: Timestamp) -> Result<Self, BootError> {
        let good = Refreshed::new(READING, AGES, |cause| error!(%cause, "internal_token.not_refreshed"));
        good.put(Good::read(&secrets, &arn).await?, now);
        Ok(Self { secrets, arn, good })
    }

    /// 401 `invalid_internal_token` unless the request carries a valid token, once.
    pub async fn check(&self, headers: &HeaderMap, now: Timestamp) -> Result<()> {
        self.check_presented(presented(headers).as_ref(), now).await
    }

    async fn check_presented(&self, presented: Option<&HeaderValue>, now: Timestamp) -> Result<()> {
        let presented = presented.ok_or(ErrorKind::InvalidInternalToken)?;
        let digest = SecretDigest::of(presented);
        if self.good.fresh(now).is_some_and(|good| good.include(&digest)) {
            return Ok(());
        }
        // The token may be new.
        let good = self.good.newest(now, || Good::read(&self.secrets, &self.arn)).await?;
        if good.include(&digest) {
            Ok(())
        } else {
            Err(ErrorKind::InvalidInternalToken.into())
        }
    }
}

/// `X-Internal-Token`, if it is there once.
fn presented(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(HeaderName::from_static("x-internal-token")).iter();
    let value = values.next()?.clone();
    values.next().is_none().then_some(value)
}

/// An operator's credentials in a request, all unverified.
pub struct OperatorCredentials {
    presented: Option<HeaderValue>,
}

/// Always succeeds: the handler refuses, by [`OperatorCredentials::check`].
impl<S: Sync> FromRequestParts<S> for OperatorCredentials {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            presented: presented(&parts.headers),
        })
    }
}

impl OperatorCredentials {
    /// 401 `invalid_internal_token` unless the caller is an operator.
    pub async fn check(self, tokens: &InternalTokens, now: Timestamp) -> Result<()> {
        tokens.check_presented(self.presented.as_ref(), now).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clients;
    use purser_testkit::SecretsManager;

    static_assertions::assert_not_impl_any!(Good: PartialEq, std::fmt::Debug);
    static_assertions::assert_not_impl_any!(InternalTokens: PartialEq, std::fmt::Debug);
    static_assertions::assert_not_impl_any!(OperatorCredentials: PartialEq, std::fmt::Debug);

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const C: &str = "cccccccccccccccccccccccccccccccc";

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(1_795_223_340 + secs).unwrap()
    }

    const ARN: &str = "arn:token";

    /// Secrets Manager with one secret.
    struct Manager(SecretsManager);

    impl Manager {
        async fn start(current: &str, previous: Option<&str>) -> (Self, Secrets) {
            let manager = SecretsManager::default();
            manager.store(ARN, current, previous);
            let secrets = test_clients::secrets(&manager).await;
            (Self(manager), secrets)
        }

        fn store(&self, current: &str, previous: Option<&str>) {
            self.0.store(ARN, current, previous);
        }

        fn go_down(&self, down: bool) {
            if down {
                self.0.lie(400, r#"{"__type":"AccessDeniedException"}"#);
            } else {
                self.0.behave();
            }
        }

        /// How often the current value was read since the last call.
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

    async fn is_good(tokens: &InternalTokens, token: &str, now: Timestamp) -> bool {
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("x-internal-token"),
            HeaderValue::from_str(token).unwrap(),
        )]);
        match tokens.check(&headers, now).await {
            Ok(()) => true,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::InvalidInternalToken), "{error}");
                false
            }
        }
    }

    #[tokio::test]
    async fn the_current_and_the_previous_token_are_good_and_nothing_else() {
        let (manager, secrets) = Manager::start(B, Some(A)).await;
        let tokens = load(&secrets).await;
        let longer = format!("{B}b");
        let rows = [
            (B, true),
            (A, true),
            (C, false),
            ("", false),
            ("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", false),
            (longer.as_str(), false),
            ("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbB", false),
        ];
        for (token, good) in rows {
            assert_eq!(is_good(&tokens, token, at(0)).await, good, "{token}");
        }
        assert_eq!(manager.reads(), 1);
        let (_, secrets) = Manager::start(B, None).await;
        let tokens = load(&secrets).await;
        assert!(is_good(&tokens, B, at(0)).await && !is_good(&tokens, A, at(0)).await);
        // A malformed or empty token is never valid.
        let (_, secrets) = Manager::start(B, Some("")).await;
        assert!(!is_good(&load(&secrets).await, "", at(0)).await);
        let (_, secrets) = Manager::start(B, Some("changeme")).await;
        assert!(!is_good(&load(&secrets).await, "changeme", at(0)).await);
    }

    #[tokio::test]
    async fn a_token_that_can_be_guessed_or_not_be_sent_is_refused_at_boot() {
        let rows = [
            ("a".repeat(32), true),
            ("a".repeat(31), false),
            (String::new(), false),
            (format!("{A}\n"), false),
            (format!("{A} {A}"), false),
            ("\u{e9}".repeat(32), false),
        ];
        for (token, good) in rows {
            let (_, secrets) = Manager::start(&token, Some(B)).await;
            let loaded = InternalTokens::load(secrets, "arn:token".to_owned(), at(0)).await;
            let words = loaded.err().map(|error| error.to_string());
            assert_eq!(words.is_none(), good, "{token:?}");
            assert!(words.is_none_or(|words| words.contains("32 or more") && !words.contains("aaaa")));
        }
        let (manager, secrets) = Manager::start(A, None).await;
        manager.go_down(true);
        assert!(
            InternalTokens::load(secrets, "arn:token".to_owned(), at(0))
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn a_rotation_is_noticed_and_guesses_cost_one_read_in_30_seconds() {
        let (manager, secrets) = Manager::start(A, None).await;
        let tokens = load(&secrets).await;
        assert_eq!(manager.reads(), 1);
        manager.store(B, Some(A));
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
    async fn a_token_that_was_rotated_away_stops_within_a_minute_without_a_mismatch() {
        let (manager, secrets) = Manager::start(A, None).await;
        let tokens = load(&secrets).await;
        manager.store(C, Some(B));
        manager.reads();
        for (secs, good, reads) in [(0, true, 0), (59, true, 0), (60, false, 1), (61, false, 0)] {
            assert_eq!(is_good(&tokens, A, at(secs)).await, good, "{secs}");
            assert_eq!(manager.reads(), reads, "{secs}");
        }
    }

    #[tokio::test]
    async fn what_was_known_stays_while_the_secret_cant_be_read() {
        let (manager, secrets) = Manager::start(A, None).await;
        let tokens = load(&secrets).await;
        manager.store(B, None);
        manager.go_down(true);
        manager.reads();
        let rows = [(60, A, true, 1), (61, A, true, 0), (62, B, false, 0), (90, A, true, 1)];
        for (secs, token, good, reads) in rows {
            assert_eq!(is_good(&tokens, token, at(secs)).await, good, "{secs}");
            assert_eq!(manager.reads(), reads, "{secs}");
        }
        manager.go_down(false);
        assert!(!is_good(&tokens, A, at(120)).await && is_good(&tokens, B, at(120)).await);
        // A mistake at the next rotation does not lock operators out.
        manager.store("short", Some(B));
        assert!(is_good(&tokens, B, at(180)).await);
    }

    #[tokio::test]
    async fn callers_at_the_same_time_share_one_read() {
        let (manager, secrets) = Manager::start(A, None).await;
        let tokens = load(&secrets).await;
        manager.store(B, None);
        manager.reads();
        let call = || is_good(&tokens, B, at(60));
        assert_eq!(tokio::join!(call(), call(), call()), (true, true, true));
        assert_eq!(manager.reads(), 1);
    }

    #[tokio::test]
    async fn the_header_is_there_once_and_no_other_will_do() {
        let (manager, secrets) = Manager::start(A, None).await;
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
            let answer = caller.check(&tokens, at(0)).await;
            let slug = answer.err().map(|error| error.kind().slug());
            assert_eq!(slug.is_none(), good, "{headers:?}");
            assert!(slug.is_none_or(|slug| slug == "invalid_internal_token"));
        }
        assert_eq!(manager.reads(), 0);
    }
}
