//! `POST /token`: exchanges a code and its verifier for tokens (RFC 6749 §4.1.3, RFC 7636 §4.5).

use super::parameters::Parameters;
use super::{CLIENT_ID, Grant, Issuer, NO_STORE, Provider, TOKEN_LIFE, locked, secret};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use purser_testkit::encoded;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// An error code of RFC 6749 §5.2, and its description.
type Refusal = (&'static str, &'static str);

/// `POST /token`.
pub(super) async fn redeem(State(issuer): State<Issuer>, body: Bytes) -> Response {
    let grant = match grant(&issuer.0, &body) {
        Ok(grant) => grant,
        Err((error, description)) => {
            let told = json!({"error": error, "error_description": description});
            return (StatusCode::BAD_REQUEST, [NO_STORE], Json(told)).into_response();
        }
    };
    ([NO_STORE], Json(tokens(&issuer, &grant))).into_response()
}

/// The grant of the code, if all parameters match it.
fn grant(provider: &Provider, body: &[u8]) -> Result<Grant, Refusal> {
    let parameters = Parameters::parse(body).ok_or(("invalid_request", "a parameter is given twice"))?;
    match parameters.get("grant_type") {
        Some("authorization_code") => {}
        Some(_) => return Err(("unsupported_grant_type", "grant_type must be authorization_code")),
        None => return Err(("invalid_request", "grant_type is missing")),
    }
    if parameters.get("client_id") != Some(CLIENT_ID) {
        return Err(("invalid_client", "client_id is not a client that this issuer knows"));
    }
    let [Some(code), Some(redirect_uri), Some(verifier)] =
        ["code", "redirect_uri", "code_verifier"].map(|name| parameters.get(name))
    else {
        return Err(("invalid_request", "code, redirect_uri and code_verifier are required"));
    };
    // Even a failed attempt uses the code up: a code that leaked must not work for anyone.
    let grant = locked(&provider.codes).remove(code);
    let grant = grant.ok_or(("invalid_grant", "the code is unknown or used"))?;
    if provider.clock.now() >= grant.expires_at {
        return Err(("invalid_grant", "the code has expired"));
    }
    if grant.redirect_uri != redirect_uri {
        return Err(("invalid_grant", "the code was sent to another redirect_uri"));
    }
    if !is_verifier(verifier) || encoded(Sha256::digest(verifier)) != grant.challenge {
        return Err(("invalid_grant", "code_verifier is not the one of the code"));
    }
    Ok(grant)
}

/// 43 to 128 unreserved characters (RFC 7636 §4.1).
fn is_verifier(text: &str) -> bool {
    (43..=128).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~'))
}

/// The access token gives access to nothing: no endpoint takes one, but clients expect it.
fn tokens(issuer: &Issuer, grant: &Grant) -> Value {
    let mut claims = issuer.claims(grant.user, TOKEN_LIFE);
    if let Some(claims) = claims.as_object_mut() {
        claims.insert("nonce".to_owned(), grant.nonce.clone().into());
    }
    json!({
        "id_token": issuer.sign(&claims),
        "access_token": secret(),
        "token_type": "Bearer",
        "expires_in": TOKEN_LIFE.secs(),
    })
}
