//! Authenticates users by ID tokens of an OpenID Connect issuer, which the API accepts as sessions.
//!
//! Invariants:
//!
//! - The accepted algorithms are RS256 and ES256, regardless of what the token or a key declares.
//! - The token's issuer and audience are exactly those of the configuration.
//! - Every rejection is 401 `invalid_session`, except for a missing entitlement claim. The log contains one word as the
//!   reason, and no part of the token.
//!
//! Browser sessions and sign-ins are in `functions/dashboard`.

use crate::auth::issuer::{Issuer, OidcMetadata, SessionKey, parse_endpoint};
use crate::{BootError, Env, request_source};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, Validation, decode, decode_header, errors::ErrorKind as TokenErrorKind};
use purser_domain::{Duration, Error, ErrorKind, Fingerprint, MailAddress, RequestSource, Result, Timestamp, UserId};
use serde::Deserialize;
use serde_json::{Number, Value, json};
use std::{convert::Infallible, sync::Arc};
use tracing::info;

/// The maximum difference between the issuer's clock and this service's clock.
const LEEWAY: Duration = Duration::from_secs_u32(60);
/// The maximum length of a token, in bytes, below API Gateway's limit of 10 KB for header values.
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// The maximum length of `sub`, in bytes (OpenID Connect Core §2).
const MAX_SUBJECT_BYTES: usize = 255;

/// The issuer and audience of sessions, and the claims that users need.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// The issuer's URL, exactly as in the `iss` claim.
    issuer: String,
    /// This service's client id, which is the expected audience.
    client_id: String,
    /// The claim that grants access to the service; `None` if every user of the issuer has access.
    entitlement: Option<Entitlement>,
    /// The claim that grants access to the operators' pages; `None` if no user has access.
    operators: Option<Entitlement>,
}

/// A claim, and the value that the claim must equal or contain.
#[derive(Clone, Debug)]
struct Entitlement {
    claim: String,
    value: String,
}

impl Entitlement {
    /// Reads `<NAME>_CLAIM` and `<NAME>_VALUE`, which must be set together.
    fn from_env(env: &mut Env, name: &str) -> Option<Self> {
        let [claim, value] = ["CLAIM", "VALUE"].map(|part| env.get(&format!("{name}_{part}")).map(str::to_owned));
        if claim.is_some() != value.is_some() {
            env.add_error(&format!("{name}_CLAIM"), &format!("and `{name}_VALUE` need each other"));
        }
        claim.zip(value).map(|(claim, value)| Self { claim, value })
    }

    /// Returns whether the token has the claim. The token's signature must be verified.
    fn is_claimed_in(&self, token: &str) -> bool {
        let payload = token.split('.').nth(1).unwrap_or_default();
        let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap_or_default();
        let claims: Value = serde_json::from_slice(&payload).unwrap_or_default();
        match claims.get(&self.claim) {
            Some(Value::Array(values)) => values.iter().any(|value| *value == self.value),
            Some(value) => *value == self.value,
            None => false,
        }
    }
}

impl SessionSettings {
    /// Reads `OIDC_ISSUER`, `OIDC_CLIENT_ID`, and two optional pairs: `ENTITLEMENT_CLAIM` with
    /// `ENTITLEMENT_VALUE`, and `OPERATOR_CLAIM` with `OPERATOR_VALUE`.
    pub fn from_env(env: &mut Env) -> Self {
        let [issuer, client_id] = ["OIDC_ISSUER", "OIDC_CLIENT_ID"].map(|name| env.require_text(name));
        let is_issuer = parse_endpoint(&issuer).is_some_and(|url| url.query().is_none() && url.fragment().is_none());
        if !issuer.is_empty() && !is_issuer {
            env.add_error(
                "OIDC_ISSUER",
                "must be an https address without query or fragment, or http on a loopback host",
            );
        }
        Self {
            issuer,
            client_id,
            entitlement: Entitlement::from_env(env, "ENTITLEMENT"),
            operators: Entitlement::from_env(env, "OPERATOR"),
        }
    }

    /// Computes the fingerprint of all settings that can make a sign-in invalid.
    fn settings_fingerprint(&self) -> Fingerprint {
        let pair =
            |claimed: &Option<Entitlement>| json!(claimed.as_ref().map(|claimed| (&claimed.claim, &claimed.value)));
        let (entitlement, operators) = (pair(&self.entitlement), pair(&self.operators));
        Fingerprint::for_text(&json!([self.issuer, self.client_id, entitlement, operators]).to_string())
    }

    /// Returns whether the token is for this service (OpenID Connect Core §3.1.3.7, items 3 to 5). A token with several
    /// audiences needs `azp`, because any audience may have requested it.
    fn matches_audience(&self, audience: Option<&Audience>, authorized_party: Option<&str>) -> bool {
        let audiences = match audience {
            Some(Audience::One(audience)) => std::slice::from_ref(audience),
            Some(Audience::Several(audiences)) => audiences.as_slice(),
            None => return false,
        };
        let is_ours = |audience: &String| *audience == self.client_id;
        audiences.iter().any(is_ours)
            && match authorized_party {
                Some(party) => party == self.client_id,
                None => audiences.iter().all(is_ours),
            }
    }

    /// Validates the claims of a token whose signature was verified. The error is one word for the log.
    fn validate_claims(&self, claims: Claims, now: Timestamp) -> Result<IdToken, &'static str> {
        if claims.iss != self.issuer {
            return Err("issuer");
        }
        // Rejects access tokens. Cognito's ID tokens have `token_use: "id"`, and other issuers write `scope` only into
        // access tokens (RFC 9068 §2.2.3).
        let is_for_signing_in = claims.token_use.is_none_or(|word| word == "id");
        if !is_for_signing_in || claims.scope.is_some() || claims.scp.is_some() {
            return Err("kind");
        }
        if !self.matches_audience(claims.aud.as_ref(), claims.azp.as_deref()) {
            return Err("audience");
        }
        let expires_at = parse_numeric_date(&claims.exp).ok_or("time")?;
        // A token is invalid at and after the expiration time (RFC 7519 §4.1.4).
        if now >= expires_at.after(LEEWAY) {
            return Err("expired");
        }
        for from in [claims.nbf.as_ref(), Some(&claims.iat), claims.auth_time.as_ref()]
            .into_iter()
            .flatten()
        {
            if now.after(LEEWAY) < parse_numeric_date(from).ok_or("time")? {
                return Err("not_yet_valid");
            }
        }
        // Without `auth_time`, the time of issue counts as the time of the sign-in.
        let signed_in_at = parse_numeric_date(claims.auth_time.as_ref().unwrap_or(&claims.iat)).ok_or("time")?;
        let has_auth_time = claims.auth_time.is_some();
        if claims.sub.is_empty() || claims.sub.len() > MAX_SUBJECT_BYTES {
            return Err("subject");
        }
        let is_verified = claims.email_verified == Value::Bool(true);
        let mail = match claims.email.as_str().filter(|_| is_verified).map(MailAddress::parse) {
            Some(Some(address)) => MailClaim::Verified(address),
            None if claims.email.is_null() => MailClaim::Absent,
            Some(None) | None => MailClaim::Unverified,
        };
        let names = [
            claims.name,
            claims.email,
            claims.preferred_username,
            claims.cognito_username,
        ];
        let name = names
            .iter()
            .filter_map(|name| name.as_str().map(str::trim))
            .find(|name| !name.is_empty())
            .map(str::to_owned);
        Ok(IdToken {
            person: Person {
                id: UserId::derive(&claims.iss, &claims.sub),
                name,
                mail,
                signed_in_at,
            },
            subject: claims.sub,
            nonce: claims.nonce,
            has_auth_time,
            is_operator: false,
        })
    }
}

/// Parses a `NumericDate` (RFC 7519 §2), rounded down to the second.
fn parse_numeric_date(number: &Number) -> Option<Timestamp> {
    let text = number.to_string();
    let seconds = text.split('.').next()?;
    seconds.parse().ok().and_then(Timestamp::from_secs)
}

/// A signed-in user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The user's id, derived from the issuer and `sub`. Records store this id as their owner.
    pub id: UserId,
    /// The display name, which need not be unique.
    pub name: Option<String>,
    /// The verified email address, if the token has one; `Absent` for a browser session.
    pub mail: MailClaim,
    /// The time at which the issuer authenticated the user.
    pub signed_in_at: Timestamp,
}

/// An issuer's claim about a user's email address (OpenID Connect Core §5.1, `email` and `email_verified`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailClaim {
    /// The token has no claim about an email address.
    Absent,
    /// The user has no verified email address.
    Unverified,
    /// The user's verified email address.
    Verified(MailAddress),
}

/// A verified ID token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdToken {
    /// The signed-in user.
    pub person: Person,
    /// The issuer's permanent id for the user (`sub`).
    pub subject: String,
    /// The nonce from the sign-in request, if the token has a nonce.
    pub nonce: Option<String>,
    /// Whether the token has `auth_time`, which is required if the sign-in sent `max_age` (OpenID Connect Core
    /// §3.1.2.1).
    pub has_auth_time: bool,
    /// Whether the token has the claim that grants access to the operators' pages.
    pub is_operator: bool,
}

/// Whether the user of a valid ID token may use the service.
#[derive(Debug)]
pub enum EntitlementCheck {
    /// The user has the claim that grants access.
    Entitled(IdToken),
    /// The user lacks the claim that grants access. The error is 403 `not_entitled`.
    NotEntitled(UserId, Error),
}

/// A token's claims after the signature check and before validation.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Option<Audience>,
    azp: Option<String>,
    token_use: Option<String>,
    scope: Option<Value>,
    scp: Option<Value>,
    exp: Number,
    nbf: Option<Number>,
    iat: Number,
    auth_time: Option<Number>,
    nonce: Option<String>,
    #[serde(default)]
    name: Value,
    #[serde(default)]
    email: Value,
    #[serde(default)]
    email_verified: Value,
    #[serde(default)]
    preferred_username: Value,
    #[serde(default, rename = "cognito:username")]
    cognito_username: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Verifies the signature with this key and parses the claims.
fn verify_claims(token: &str, key: &SessionKey) -> Result<Claims, &'static str> {
    let mut signature_only = Validation::new(key.algorithm);
    // The library would use the system clock and accept a missing claim, so the caller validates the claims.
    signature_only.required_spec_claims.clear();
    signature_only.validate_exp = false;
    signature_only.validate_nbf = false;
    signature_only.validate_aud = false;
    match decode(token, &key.key, &signature_only) {
        Ok(token) => Ok(token.claims),
        Err(error) if matches!(error.kind(), TokenErrorKind::InvalidSignature) => Err("signature"),
        Err(_) => Err("claims"),
    }
}

struct UnverifiedHeader {
    algorithm: Algorithm,
    key_id: Option<String>,
}

impl UnverifiedHeader {
    /// Parses a token's header. The error is one word for the log.
    fn parse(token: &str) -> Result<Self, &'static str> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("length");
        }
        let header = decode_header(token).map_err(|_| "form")?;
        if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256) {
            return Err("algorithm");
        }
        // Other values mark access tokens (RFC 9068 §2.1) and other kinds of tokens (RFC 8725 §3.11).
        if header.typ.is_some_and(|kind| !kind.eq_ignore_ascii_case("JWT")) {
            return Err("kind");
        }
        // Tokens with unsupported critical extensions must be rejected, and none is supported (RFC 7515 §4.1.11).
        if header.crit.is_some() {
            return Err("extension");
        }
        Ok(Self {
            algorithm: header.alg,
            key_id: header.kid,
        })
    }
}

/// Verifies ID tokens with the issuer's keys.
pub struct Sessions {
    settings: SessionSettings,
    issuer: Issuer,
}

/// The parameters of the token request that exchanges an authorization code (RFC 6749 §4.1.3).
#[derive(Clone, Copy)]
pub struct AuthorizationCode<'a> {
    /// The parameter `code` of the redirect.
    pub code: &'a str,
    /// The secret whose hash was sent as `code_challenge` (RFC 7636).
    pub code_verifier: &'a str,
    /// The same `redirect_uri` as in the authorization request.
    pub redirect_uri: &'a str,
}

#[derive(Deserialize)]
struct WireTokens {
    id_token: String,
}

#[derive(Deserialize)]
struct WireTokenError {
    error: String,
}

impl Sessions {
    /// Fetches the issuer's keys. After a failure, the first verification fetches again.
    pub async fn new(settings: SessionSettings, now: Timestamp) -> Result<Self, BootError> {
        let issuer = Issuer::new(settings.issuer.clone(), now).await?;
        Ok(Self { settings, issuer })
    }

    /// Returns this service's client id at the issuer.
    pub fn client_id(&self) -> &str {
        &self.settings.client_id
    }

    /// Returns the issuer's URL, exactly as in the `iss` claim.
    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Computes the fingerprint of the sign-in settings. A browser session ends when the settings change.
    pub fn settings_fingerprint(&self) -> Fingerprint {
        self.settings.settings_fingerprint()
    }

    /// Returns the verified ID token, 401 `invalid_session`, or 403 `not_entitled` for a user without the entitling
    /// claim.
    pub async fn verify_id_token(&self, token: &str, now: Timestamp) -> Result<IdToken> {
        match self.check_entitlement(token, now).await? {
            EntitlementCheck::Entitled(id_token) => Ok(id_token),
            EntitlementCheck::NotEntitled(_, refused) => Err(refused),
        }
    }

    /// Verifies an ID token like [`Sessions::verify_id_token`], but returns the user's id if the entitling claim is
    /// missing.
    pub async fn check_entitlement(&self, token: &str, now: Timestamp) -> Result<EntitlementCheck> {
        let header = UnverifiedHeader::parse(token).map_err(invalid_session_error)?;
        let key = self
            .issuer
            .signing_key(header.algorithm, header.key_id.as_deref(), now)
            .await?;
        let key = key.ok_or_else(|| invalid_session_error("key"))?;
        let claims = verify_claims(token, &key).map_err(invalid_session_error)?;
        let id_token = self
            .settings
            .validate_claims(claims, now)
            .map_err(invalid_session_error)?;
        match &self.settings.entitlement {
            Some(entitlement) if !entitlement.is_claimed_in(token) => {
                info!(reason = "entitlement", person = %id_token.person.id, "session.refused");
                let claim = entitlement.claim.clone();
                let refused = ErrorKind::NotEntitled { claim }.into();
                Ok(EntitlementCheck::NotEntitled(id_token.person.id, refused))
            }
            _ => Ok(EntitlementCheck::Entitled(IdToken {
                is_operator: self
                    .settings
                    .operators
                    .as_ref()
                    .is_some_and(|operators| operators.is_claimed_in(token)),
                ..id_token
            })),
        }
    }

    /// Returns the issuer's cached endpoints, at most an hour old unless the issuer can't be reached.
    pub async fn oidc_metadata(&self, now: Timestamp) -> Result<Arc<OidcMetadata>> {
        self.issuer.oidc_metadata(now).await
    }

    /// Exchanges an authorization code for an ID token (RFC 6749 §4.1.3, RFC 7636 §4.5).
    ///
    /// The returned token is not verified. A code that was used, has expired or belongs to another sign-in is 401
    /// `invalid_session`.
    pub async fn exchange_code(&self, code: AuthorizationCode<'_>, now: Timestamp) -> Result<String> {
        let metadata = self.oidc_metadata(now).await?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.code),
            ("redirect_uri", code.redirect_uri),
            ("client_id", self.client_id()),
            ("code_verifier", code.code_verifier),
        ];
        let failed = |message: String| Error::internal("exchanging a sign-in's code", message);
        let response = self.issuer.post_form(&metadata.token_endpoint, &form).await;
        let (status, body) = response.map_err(failed)?;
        if status.is_success() {
            let tokens: WireTokens = serde_json::from_slice(&body)
                .map_err(|_| failed("the issuer's response has no ID token".to_owned()))?;
            return Ok(tokens.id_token);
        }
        let error: Option<WireTokenError> = serde_json::from_slice(&body).ok();
        if error.is_some_and(|error| error.error == "invalid_grant") {
            return Err(invalid_session_error("code"));
        }
        Err(failed(format!("the issuer returned {status}")))
    }
}

fn invalid_session_error(reason: &'static str) -> Error {
    info!(reason, "session.refused");
    ErrorKind::InvalidSession.into()
}

/// The unverified session token of an API request.
pub struct SessionToken {
    token: Option<String>,
    source: RequestSource,
}

/// Extraction never fails. [`SessionToken::into_token`] rejects a request without a token.
impl<S: Sync> FromRequestParts<S> for SessionToken {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            token: read_bearer_token(&parts.headers),
            source: request_source(parts),
        })
    }
}

impl SessionToken {
    /// Returns the unverified token and the source of the request, or 401 `invalid_session` without a token.
    pub fn into_token(self) -> Result<(String, RequestSource)> {
        let source = self.source;
        let token = self.token.ok_or(ErrorKind::InvalidSession)?;
        Ok((token, source))
    }

    /// Returns whether the token has the form of a JSON Web Token (RFC 7519 §3). An agent key never has this form.
    pub fn has_jwt_form(&self) -> bool {
        let token = self.token.as_deref();
        token.is_some_and(|token| token.split('.').count() == 3 && !token.contains(':'))
    }
}

/// Returns the bearer token if the `Authorization` header occurs exactly once.
fn read_bearer_token(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let text = values.next()?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    // The scheme is case-insensitive (RFC 9110 §11.1).
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && values.next().is_none();
    is_bearer.then(|| token.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_clients::{TestLog, sessions as sessions_of, settings};
    use aws_lc_rs::hmac;
    use axum::http::HeaderValue;
    use purser_domain::{AgentId, NewKey};
    use purser_testkit::{Signer, TestIssuer, encoded, token_with};
    use uuid::Uuid;

    static_assertions::assert_not_impl_any!(SessionToken: PartialEq, std::fmt::Debug);
    static_assertions::assert_not_impl_any!(WireTokens: PartialEq, std::fmt::Debug);

    const NOW_SECS: u64 = 1_795_223_340;

    fn now() -> Timestamp {
        Timestamp::from_secs(NOW_SECS)
            .unwrap()
            .after(Duration::from_secs_u32(1))
    }

    /// Returns valid claims with these changes; null removes a claim.
    fn claims(issuer: &TestIssuer, changes: &Value) -> Value {
        let mut claims = json!({
            "iss": issuer.address, "aud": TestIssuer::CLIENT, "sub": "user-1", "exp": NOW_SECS + 3600,
            "iat": NOW_SECS, "name": "Ada", "nonce": "n-1", "jti": "ignored", "email_verified": true,
        });
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        claims
    }

    struct Bench {
        issuer: TestIssuer,
        es: Signer,
        rs: Signer,
        sessions: Sessions,
        logged: TestLog,
    }

    impl Bench {
        async fn new() -> Self {
            let (es, rs) = (Signer::es256("es"), Signer::rs256("rs"));
            let issuer = TestIssuer::start(&[&es, &rs]).await;
            let sessions = sessions_of(&issuer, now()).await;
            let logged = TestLog::start();
            Self {
                issuer,
                es,
                rs,
                sessions,
                logged,
            }
        }

        /// Verifies a token. The error is the logged reason.
        async fn check(&self, token: &str) -> Result<IdToken, String> {
            let answer = self.sessions.verify_id_token(token, now()).await;
            let log = self.logged.take();
            assert!(token.is_empty() || !log.contains(token), "{log}");
            assert!(!log.contains("user-1"), "{log}");
            let reason = log
                .split("\"reason\":\"")
                .nth(1)
                .map(|rest| rest.split('"').next().unwrap());
            match answer {
                Ok(id_token) => {
                    assert_eq!(reason, None);
                    Ok(id_token)
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::InvalidSession), "{error}");
                    assert!(error.cause().is_none());
                    Err(reason.unwrap().to_owned())
                }
            }
        }
    }

    #[tokio::test]
    async fn valid_es256_and_rs256_tokens_identify_their_user() {
        let bench = Bench::new().await;
        let expected = IdToken {
            person: Person {
                id: UserId::derive(&bench.issuer.address, "user-1"),
                name: Some("Ada".to_owned()),
                mail: MailClaim::Absent,
                signed_in_at: Timestamp::from_secs(NOW_SECS).unwrap(),
            },
            subject: "user-1".to_owned(),
            nonce: Some("n-1".to_owned()),
            has_auth_time: false,
            is_operator: false,
        };
        for signer in [&bench.es, &bench.rs] {
            let token = signer.token(&claims(&bench.issuer, &json!({})));
            assert_eq!(bench.check(&token).await, Ok(expected.clone()));
        }
        assert_eq!(bench.sessions.client_id(), TestIssuer::CLIENT);
        assert_eq!(bench.sessions.issuer(), bench.issuer.address);
        // `auth_time` takes precedence over the time of issue.
        let earlier = json!({"auth_time": NOW_SECS - 5_000});
        let token = bench.es.token(&claims(&bench.issuer, &earlier));
        let id_token = bench.check(&token).await.unwrap();
        assert_eq!(
            Some(id_token.person.signed_in_at),
            Timestamp::from_secs(NOW_SECS - 5_000)
        );
        assert!(id_token.has_auth_time);
    }

    #[tokio::test]
    async fn only_id_tokens_are_accepted_as_sessions() {
        let bench = Bench::new().await;
        let rows = [
            (json!({"typ": "at+jwt"}), json!({}), Some("kind")),
            (json!({"typ": "application/at+jwt"}), json!({}), Some("kind")),
            (json!({"typ": "logout+jwt"}), json!({}), Some("kind")),
            (json!({"typ": "jwt"}), json!({}), None),
            (json!({}), json!({"token_use": "access"}), Some("kind")),
            (json!({}), json!({"token_use": "id"}), None),
            (json!({}), json!({"scope": "openid email"}), Some("kind")),
            (json!({}), json!({"scp": ["openid"]}), Some("kind")),
            // Cognito's access tokens have a `client_id` and no `aud`, so they are rejected.
            (
                json!({}),
                json!({"aud": null, "client_id": TestIssuer::CLIENT}),
                Some("audience"),
            ),
        ];
        for (members, changes, reason) in rows {
            let mut header = json!({"alg": "ES256", "kid": "es"});
            header
                .as_object_mut()
                .unwrap()
                .extend(members.as_object().unwrap().clone());
            let token = bench.es.token_with(&header, &claims(&bench.issuer, &changes));
            let refused = bench.check(&token).await.err();
            assert_eq!(refused.as_deref(), reason, "{members} {changes}");
        }
    }

    #[tokio::test]
    async fn the_entitlement_claim_may_equal_or_contain_the_value() {
        let es = Signer::es256("es");
        let issuer = TestIssuer::start(&[&es]).await;
        let settings = SessionSettings {
            entitlement: Some(Entitlement {
                claim: "cognito:groups".to_owned(),
                value: "purser".to_owned(),
            }),
            ..settings(&issuer.address).unwrap()
        };
        let sessions = Sessions::new(settings, now()).await.unwrap();
        assert_ne!(
            sessions.settings_fingerprint(),
            sessions_of(&issuer, now()).await.settings_fingerprint()
        );
        for (groups, entitled) in [
            (json!("purser"), true),
            (json!(["staff", "purser"]), true),
            (json!(["purser2", "staff"]), false),
            (json!("staff purser"), false),
            (json!([]), false),
            (json!({"purser": true}), false),
            (json!(true), false),
            (Value::Null, false),
        ] {
            let token = es.token(&claims(&issuer, &json!({"cognito:groups": groups})));
            let refused = sessions.verify_id_token(&token, now()).await.err();
            let slug = refused.map(|error| error.kind().slug());
            assert_eq!(slug.as_deref(), (!entitled).then_some("not_entitled"), "{groups}");
        }
        let forged = Signer::es256("es").token(&claims(&issuer, &json!({})));
        let refused = sessions.verify_id_token(&forged, now()).await.unwrap_err();
        assert_eq!(refused.kind().slug(), "invalid_session");
    }

    #[tokio::test]
    async fn operators_need_the_configured_token_claim() {
        let es = Signer::es256("es");
        let issuer = TestIssuer::start(&[&es]).await;
        let plain = sessions_of(&issuer, now()).await;
        let settings = SessionSettings {
            operators: Some(Entitlement {
                claim: "cognito:groups".to_owned(),
                value: "operators".to_owned(),
            }),
            ..settings(&issuer.address).unwrap()
        };
        let named = Sessions::new(settings, now()).await.unwrap();
        assert_ne!(named.settings_fingerprint(), plain.settings_fingerprint());
        for (groups, expected) in [
            (json!(["staff", "operators"]), true),
            (json!("operators"), true),
            (json!(["staff"]), false),
            (Value::Null, false),
        ] {
            let token = es.token(&claims(&issuer, &json!({"cognito:groups": groups})));
            assert_eq!(
                named.verify_id_token(&token, now()).await.unwrap().is_operator,
                expected,
                "{groups}"
            );
            assert!(!plain.verify_id_token(&token, now()).await.unwrap().is_operator);
        }
    }

    #[tokio::test]
    async fn token_claims_are_validated_with_clock_leeway() {
        let bench = Bench::new().await;
        let (exp, issuer) = (NOW_SECS + 3600, bench.issuer.address.clone());
        // The time is `NOW_SECS + 1` and the leeway is 60 s, so a token expires 60 s after `exp`.
        let rows = [
            (json!({}), None),
            (json!({"exp": NOW_SECS + 1}), None),
            (json!({"exp": NOW_SECS - 58}), None),
            (json!({"exp": NOW_SECS - 59}), Some("expired")),
            (json!({"exp": NOW_SECS - 3600}), Some("expired")),
            (json!({"exp": 0}), Some("expired")),
            (json!({"exp": -1}), Some("time")),
            (json!({"exp": 1.0e300}), Some("time")),
            (json!({"exp": u64::MAX}), Some("time")),
            (json!({"exp": exp.to_string()}), Some("claims")),
            (json!({"exp": null}), Some("claims")),
            (json!({"exp": 1_795_223_282.9}), None),
            (json!({"exp": 1_795_223_281.9}), Some("expired")),
            (json!({"nbf": NOW_SECS + 61}), None),
            (json!({"nbf": NOW_SECS + 62}), Some("not_yet_valid")),
            (json!({"nbf": "soon"}), Some("claims")),
            (json!({"iat": NOW_SECS + 61}), None),
            (json!({"iat": NOW_SECS + 62}), Some("not_yet_valid")),
            (json!({"iat": -1}), Some("time")),
            (json!({"iat": null}), Some("claims")),
            (json!({"auth_time": NOW_SECS + 61}), None),
            (json!({"auth_time": NOW_SECS + 62}), Some("not_yet_valid")),
            (json!({"auth_time": "now"}), Some("claims")),
            (json!({"iss": format!("{issuer}/")}), Some("issuer")),
            (json!({"iss": issuer.to_uppercase()}), Some("issuer")),
            (json!({"iss": ""}), Some("issuer")),
            (json!({"iss": [issuer]}), Some("claims")),
            (json!({"iss": null}), Some("claims")),
            (json!({"aud": 7}), Some("claims")),
            (json!({"sub": ""}), Some("subject")),
            (json!({"sub": "x".repeat(255)}), None),
            (json!({"sub": "x".repeat(256)}), Some("subject")),
            (json!({"sub": 7}), Some("claims")),
            (json!({"sub": null}), Some("claims")),
            (json!({"nonce": 7}), Some("claims")),
            // The issuer is checked before the other claims.
            (json!({"iss": "x", "aud": "x", "exp": 0, "sub": ""}), Some("issuer")),
        ];
        for (changes, reason) in rows {
            let token = bench.es.token(&claims(&bench.issuer, &changes));
            let refused = bench.check(&token).await.err();
            assert_eq!(refused.as_deref(), reason, "{changes}");
        }
    }

    /// OpenID Connect Core §3.1.3.7, items 3 to 5. Tests of `functions/dashboard` cover items 11 to 13, other tests
    /// here the rest.
    #[tokio::test]
    async fn the_audience_and_authorized_party_must_match() {
        let us = TestIssuer::CLIENT;
        let rows = [
            // Item 3: this service's client id is an audience.
            (json!({"aud": us}), None),
            (json!({"aud": [us]}), None),
            (json!({"aud": "another"}), Some("audience")),
            (json!({"aud": ["another"]}), Some("audience")),
            (json!({"aud": [us.to_uppercase()]}), Some("audience")),
            (json!({"aud": format!("{us} another")}), Some("audience")),
            (json!({"aud": ""}), Some("audience")),
            (json!({"aud": []}), Some("audience")),
            (json!({"aud": null, "azp": us}), Some("audience")),
            (json!({"aud": "another", "azp": us}), Some("audience")),
            (json!({"aud": [us, 7]}), Some("claims")),
            // Item 4: a token with several audiences needs `azp`.
            (json!({"aud": ["another", us]}), Some("audience")),
            (json!({"aud": [us, "another"]}), Some("audience")),
            (json!({"aud": [us, "another"], "azp": us}), None),
            (json!({"aud": [us, ""]}), Some("audience")),
            (json!({"aud": [us, us]}), None),
            // Item 5: `azp` must be this service's client id.
            (json!({"azp": us}), None),
            (json!({"azp": "another"}), Some("audience")),
            (json!({"azp": ""}), Some("audience")),
            (json!({"azp": us.to_uppercase()}), Some("audience")),
            (json!({"azp": [us]}), Some("claims")),
            (json!({"aud": [us, "another"], "azp": "another"}), Some("audience")),
        ];
        let bench = Bench::new().await;
        for (changes, reason) in rows {
            let token = bench.es.token(&claims(&bench.issuer, &changes));
            let refused = bench.check(&token).await.err();
            assert_eq!(refused.as_deref(), reason, "{changes}");
        }
    }

    #[tokio::test]
    async fn only_verified_email_addresses_are_used() {
        let bench = Bench::new().await;
        let address = MailClaim::Verified(MailAddress::parse("a@b.test").unwrap());
        let rows = [
            (json!({"email": "a@b.test", "email_verified": true}), address),
            (
                json!({"email": "a@b.test", "email_verified": false}),
                MailClaim::Unverified,
            ),
            (
                json!({"email": "a@b.test", "email_verified": "true"}),
                MailClaim::Unverified,
            ),
            (
                json!({"email": "a@b.test", "email_verified": null}),
                MailClaim::Unverified,
            ),
            (
                json!({"email": "a@b.test, c@d.test", "email_verified": true}),
                MailClaim::Unverified,
            ),
            (json!({"email_verified": true}), MailClaim::Absent),
        ];
        for (changes, expected) in rows {
            let token = bench.es.token(&claims(&bench.issuer, &changes));
            let mail = bench.check(&token).await.unwrap().person.mail;
            assert_eq!(mail, expected, "{changes}");
        }
    }

    #[tokio::test]
    async fn the_first_available_name_claim_is_used() {
        let bench = Bench::new().await;
        let rows = [
            (json!({"email": "a@b.test"}), Some("Ada")),
            (
                json!({"name": null, "email": "a@b.test", "preferred_username": "ada"}),
                Some("a@b.test"),
            ),
            (
                json!({"name": " ", "email": 7, "preferred_username": " ada "}),
                Some("ada"),
            ),
            (json!({"name": null, "cognito:username": "ada_1"}), Some("ada_1")),
            (json!({"name": null}), None),
        ];
        for (changes, name) in rows {
            let token = bench.es.token(&claims(&bench.issuer, &changes));
            assert_eq!(
                bench.check(&token).await.unwrap().person.name.as_deref(),
                name,
                "{changes}"
            );
        }
    }

    #[tokio::test]
    async fn only_id_tokens_signed_by_the_issuer_are_accepted() {
        let bench = Bench::new().await;
        let claims = claims(&bench.issuer, &json!({}));
        let (header, es, rs) = (json!({"alg": "ES256", "kid": "es"}), &bench.es, &bench.rs);
        let with_hmac = |secret: &[u8], kid: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
            let header = json!({"alg": "HS256", "kid": kid});
            token_with(&header, &claims, |message| hmac::sign(&key, message).as_ref().to_vec())
        };
        let good = es.token(&claims);
        let (message, signature) = good.rsplit_once('.').unwrap();
        let (head, _) = message.split_once('.').unwrap();
        let promoted = encoded(claims.to_string().replace("user-1", "user-2"));
        let unsigned = |header: &Value| token_with(header, &claims, |_| Vec::new());
        let rows = [
            (good.clone(), None),
            (unsigned(&json!({"alg": "none"})), Some("form")),
            (unsigned(&json!({"alg": "None", "kid": "es"})), Some("form")),
            (unsigned(&json!({"kid": "es"})), Some("form")),
            (unsigned(&header), Some("signature")),
            (with_hmac(&es.public_bytes(), "es"), Some("algorithm")),
            (with_hmac(&rs.public_bytes(), "rs"), Some("algorithm")),
            (with_hmac(b"", "nobody"), Some("algorithm")),
            // The header's algorithm differs from the key's algorithm.
            (
                es.token_with(&json!({"alg": "RS256", "kid": "es"}), &claims),
                Some("key"),
            ),
            (
                rs.token_with(&json!({"alg": "ES256", "kid": "rs"}), &claims),
                Some("key"),
            ),
            (
                rs.token_with(&json!({"alg": "PS256", "kid": "rs"}), &claims),
                Some("algorithm"),
            ),
            (
                rs.token_with(&json!({"alg": "RS512", "kid": "rs"}), &claims),
                Some("algorithm"),
            ),
            // Another key pair with the same key id signed the token.
            (Signer::es256("es").token(&claims), Some("signature")),
            (Signer::rs256("rs").token(&claims), Some("signature")),
            // The verification must ignore a key in the token's header.
            (
                Signer::es256("es").token_with(
                    &json!({"alg": "ES256", "kid": "es", "jwk": Signer::es256("es").jwk()}),
                    &claims,
                ),
                Some("signature"),
            ),
            (Signer::es256("unknown").token(&claims), Some("key")),
            // The issuer has several keys, and the token identifies no key.
            (es.token_with(&json!({"alg": "ES256"}), &claims), Some("key")),
            (
                es.token_with(&json!({"alg": "ES256", "kid": "es", "crit": ["exp"]}), &claims),
                Some("extension"),
            ),
            (format!("{head}.{promoted}.{signature}"), Some("signature")),
            (format!("{message}."), Some("signature")),
            (message.to_owned(), Some("form")),
            (format!("{good}.{signature}"), Some("form")),
            (format!("{good}="), Some("claims")),
            (String::new(), Some("form")),
            ("..".to_owned(), Some("form")),
            ("a.b.c".to_owned(), Some("form")),
        ];
        for (token, reason) in rows {
            let refused = bench.check(&token).await.err();
            assert_eq!(refused.as_deref(), reason, "{token}");
        }
        // JSON parsers differ in which of two equal claims they use, so the token is rejected.
        let header = encoded(json!({"alg": "ES256", "kid": "es"}).to_string());
        let twice = format!("{{\"sub\":\"user-2\",{}", claims.to_string().trim_start_matches('{'));
        let message = format!("{header}.{}", encoded(twice));
        let signature = encoded(es.sign(message.as_bytes()));
        assert_eq!(
            bench.check(&format!("{message}.{signature}")).await,
            Err("claims".to_owned())
        );
    }

    #[tokio::test]
    async fn overlong_id_tokens_are_rejected() {
        let bench = Bench::new().await;
        let of_length = |length: usize| {
            // Base64 encodes three bytes as four letters, so not every length is possible.
            (0..length)
                .rev()
                .map(|fill| bench.es.token(&claims(&bench.issuer, &json!({"x": "x".repeat(fill)}))))
                .find(|token| token.len() <= length)
                .unwrap()
        };
        assert!(bench.check(&of_length(MAX_TOKEN_BYTES)).await.is_ok());
        let longer = bench
            .es
            .token(&claims(&bench.issuer, &json!({"x": "x".repeat(MAX_TOKEN_BYTES)})));
        assert_eq!(bench.check(&longer).await, Err("length".to_owned()));
    }

    #[tokio::test]
    async fn a_single_issuer_key_needs_no_key_id() {
        let (es, rs) = (Signer::es256("es").unnamed(), Signer::rs256("rs"));
        let issuer = TestIssuer::start(&[&es]).await;
        let token = es.token(&claims(&issuer, &json!({})));
        assert!(
            sessions_of(&issuer, now())
                .await
                .verify_id_token(&token, now())
                .await
                .is_ok()
        );
        issuer.publish(&[&es, &rs]);
        assert!(
            sessions_of(&issuer, now())
                .await
                .verify_id_token(&token, now())
                .await
                .is_err()
        );
    }

    #[test]
    fn the_issuer_url_is_https_or_local() {
        let rows = [
            ("https://issuer.example", true),
            ("https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_x", true),
            ("https://issuer.example/tenant/", true),
            ("http://127.0.0.1:9000", true),
            ("http://[::1]:9000", true),
            ("http://localhost:9000/x", true),
            ("http://issuer.example", false),
            ("http://10.0.0.1", false),
            ("http://127.0.0.1.evil.example", false),
            ("http://localhost.evil.example", false),
            ("https://issuer.example?x", false),
            ("https://issuer.example#x", false),
            ("https://name:password@issuer.example", false),
            ("ftp://issuer.example", false),
            ("issuer.example", false),
            ("/", false),
        ];
        for (issuer, good) in rows {
            assert_eq!(settings(issuer).is_ok(), good, "{issuer}");
        }
        let mut env = Env::default();
        let settings = SessionSettings::from_env(&mut env);
        assert_eq!(
            env.finish(settings).unwrap_err().to_string(),
            "`OIDC_ISSUER` is not set; `OIDC_CLIENT_ID` is not set"
        );
    }

    #[tokio::test]
    async fn only_a_single_bearer_token_is_accepted() {
        let bench = Bench::new().await;
        let token = bench.es.token(&claims(&bench.issuer, &json!({})));
        let agent = NewKey::from_random(AgentId::from_uuid(Uuid::from_u128(1)), [7; 40], Timestamp::EPOCH).text;
        let good = format!("Bearer {token}");
        let rows: [(Vec<String>, bool); 8] = [
            (vec![good.clone()], true),
            (vec![format!("bEARER  {token} ")], true),
            (vec![], false),
            (vec![token.clone()], false),
            (vec![format!("Basic {token}")], false),
            (vec![format!("Bearer {agent}")], false),
            (vec!["Bearer".to_owned()], false),
            (vec![good.clone(), good], false),
        ];
        for (values, expected) in rows {
            let mut request = axum::http::Request::new(()).into_parts().0;
            for value in &values {
                let value = HeaderValue::from_str(value).unwrap();
                request.headers.append(header::AUTHORIZATION, value);
            }
            let Ok(presented) = SessionToken::from_request_parts(&mut request, &()).await;
            let person = match presented.into_token() {
                Ok((token, _)) => bench.sessions.verify_id_token(&token, now()).await,
                Err(error) => Err(error),
            };
            assert_eq!(person.is_ok(), expected, "{values:?}");
            let refused = person.err().map(|error| error.kind().slug());
            assert!(refused.is_none_or(|slug| slug == "invalid_session"));
        }
        assert!(!bench.logged.take().contains("gak_"));
    }

    #[tokio::test]
    async fn authorization_codes_are_exchanged_for_id_tokens() {
        let bench = Bench::new().await;
        let code = AuthorizationCode {
            code: "c&1",
            code_verifier: "v 1",
            redirect_uri: "http://127.0.0.1:3000/dashboard/callback",
        };
        let rows = [
            (
                200,
                r#"{"id_token":"a.b.c","access_token":"x","token_type":"Bearer"}"#,
                Ok("a.b.c"),
            ),
            (400, r#"{"error":"invalid_grant"}"#, Err("invalid_session")),
            (400, r#"{"error":"invalid_request"}"#, Err("internal_error")),
            (401, r#"{"error":"invalid_client"}"#, Err("internal_error")),
            (200, r#"{"access_token":"x"}"#, Err("internal_error")),
            (200, "<html>", Err("internal_error")),
            (302, "", Err("internal_error")),
            (503, "", Err("internal_error")),
        ];
        for (status, body, expected) in rows {
            bench
                .issuer
                .set(|script| script.token = Box::new(move |_| (status, body.to_owned())));
            let answer = bench.sessions.exchange_code(code, now()).await;
            let told = answer.as_deref().map_err(|error| error.kind().slug());
            assert_eq!(told, expected.map_err(str::to_owned), "{status} {body}");
            let cause = answer.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!cause.contains("c&1") && !cause.contains("v 1"), "{cause}");
        }
        let form = bench.issuer.set(|script| std::mem::take(&mut script.form));
        let pairs: Vec<(&str, &str)> = form
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("client_id", TestIssuer::CLIENT),
            ("code", "c&1"),
            ("code_verifier", "v 1"),
            ("grant_type", "authorization_code"),
            ("redirect_uri", "http://127.0.0.1:3000/dashboard/callback"),
        ];
        assert_eq!(pairs, expected);
        let endless = format!("{{\"id_token\":\"{}\"}}", "x".repeat(300_000));
        bench
            .issuer
            .set(|script| script.token = Box::new(move |_| (200, endless.clone())));
        assert!(bench.sessions.exchange_code(code, now()).await.is_err());
    }
}
