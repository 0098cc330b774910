//! `/authorize`: a client's authorization request, the login page, and the code that is sent to the client (OpenID
//! Connect Core 1.0 §3.1.2, RFC 7636 §4.3).
//!
//! Until client and redirect URI are verified, nothing is redirected: an error is a page, so that no link of a stranger
//! can redirect a person elsewhere.

use super::parameters::{self, Parameters};
use super::{CLIENT_ID, DEMO_PASSWORD, DemoUser, Grant, Issuer, Provider, USERS, locked, page, secret};
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use purser_domain::Duration;

/// A code's lifetime: the browser takes it to the client immediately.
const CODE_LIFE: Duration = Duration::from_secs_u32(60);

/// A valid authorization request.
struct SignIn {
    redirect_uri: String,
    state: String,
    nonce: String,
    challenge: String,
}

/// Why no login page is shown.
enum Refusal {
    /// The client is unknown: the error is shown to the person.
    Unknown(&'static str),
    /// The client gets an error code of RFC 6749 §4.1.2.1 or OpenID Connect Core §3.1.2.6.
    Told {
        redirect_uri: String,
        state: Option<String>,
        error: &'static str,
        description: &'static str,
    },
}

impl SignIn {
    fn parse(provider: &Provider, query: &str) -> Result<Self, Refusal> {
        let parameters = Parameters::parse(query.as_bytes()).ok_or(Refusal::Unknown("a parameter is given twice."))?;
        if parameters.get("client_id") != Some(CLIENT_ID) {
            return Err(Refusal::Unknown("client_id is not a client that this issuer knows."));
        }
        let redirect_uri = parameters
            .get("redirect_uri")
            .filter(|uri| provider.redirect_uris.iter().any(|allowed| allowed == uri))
            .ok_or(Refusal::Unknown(
                "redirect_uri is not an address that this client registered.",
            ))?;
        let state = parameters.get("state");
        let told = |error, description| Refusal::Told {
            redirect_uri: redirect_uri.to_owned(),
            state: state.map(str::to_owned),
            error,
            description,
        };
        let invalid = |description| told("invalid_request", description);
        let scopes = parameters.get("scope").unwrap_or_default();
        let challenge = parameters.get("code_challenge").unwrap_or_default();
        match parameters.get("response_type") {
            Some("code") => {}
            Some(_) => return Err(told("unsupported_response_type", "response_type must be code")),
            None => return Err(invalid("response_type is missing")),
        }
        if !matches!(parameters.get("response_mode"), None | Some("query")) {
            return Err(invalid("response_mode must be query"));
        }
        if !scopes.split(' ').any(|scope| scope == "openid") {
            return Err(told("invalid_scope", "scope must contain openid"));
        }
        if parameters.get("code_challenge_method") != Some("S256") {
            return Err(invalid("code_challenge_method must be S256"));
        }
        if !is_hash(challenge) {
            return Err(invalid("code_challenge must be a SHA-256 in base64url"));
        }
        if parameters.get("prompt") == Some("none") {
            return Err(told("login_required", "there is no sign-in without a person"));
        }
        let nonce = parameters.get("nonce").ok_or_else(|| invalid("nonce is missing"))?;
        Ok(Self {
            redirect_uri: redirect_uri.to_owned(),
            state: state.ok_or_else(|| invalid("state is missing"))?.to_owned(),
            nonce: nonce.to_owned(),
            challenge: challenge.to_owned(),
        })
    }
}

/// 32 bytes are 43 characters in base64url.
fn is_hash(text: &str) -> bool {
    text.len() == 43
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl Refusal {
    fn answer(self, provider: &Provider) -> Response {
        match self {
            Self::Unknown(what) => page::problem(StatusCode::BAD_REQUEST, what),
            Self::Told {
                redirect_uri,
                state,
                error,
                description,
            } => {
                let parameters = [
                    ("error", Some(error)),
                    ("error_description", Some(description)),
                    ("state", state.as_deref()),
                    ("iss", Some(&provider.published.address)),
                ];
                back(&redirect_uri, &parameters)
            }
        }
    }
}

/// `GET /authorize`: the login page.
pub(super) async fn ask(State(Issuer(provider)): State<Issuer>, RawQuery(query): RawQuery) -> Response {
    match SignIn::parse(&provider, &query.unwrap_or_default()) {
        Ok(_) => page::sign_in(),
        Err(refusal) => refusal.answer(&provider),
    }
}

/// `POST /authorize`: the login page's form, sent to the page's own URL, which still has the client's parameters.
pub(super) async fn sign_in(
    State(Issuer(provider)): State<Issuer>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let asked = match SignIn::parse(&provider, &query.unwrap_or_default()) {
        Ok(asked) => asked,
        Err(refusal) => return refusal.answer(&provider),
    };
    let Some(form) = Parameters::parse(&body) else {
        return page::problem(StatusCode::BAD_REQUEST, "a field is given twice.");
    };
    let email = form.get("email").unwrap_or_default().trim();
    let Some(user) = user(email, form.get("password").unwrap_or_default()) else {
        return page::sign_in_again(email);
    };
    let answer = granted(&provider, asked, user);
    ([super::NO_STORE], Redirect::to(&answer)).into_response()
}

/// The address for a person who has signed in; `None` where the client's request is refused.
pub(super) fn answer(provider: &Provider, query: &str, user: &'static DemoUser) -> Option<String> {
    Some(granted(provider, SignIn::parse(provider, query).ok()?, user))
}

/// Keeps a code for the person, and returns the client's address with it.
fn granted(provider: &Provider, asked: SignIn, user: &'static DemoUser) -> String {
    let code = secret();
    let now = provider.clock.now();
    let grant = Grant {
        user,
        redirect_uri: asked.redirect_uri.clone(),
        challenge: asked.challenge,
        nonce: asked.nonce,
        expires_at: now.after(CODE_LIFE),
    };
    {
        let mut codes = locked(&provider.codes);
        codes.retain(|_, grant| now < grant.expires_at);
        codes.insert(code.clone(), grant);
    }
    // `iss` identifies the issuer of the answer (RFC 9207).
    let parameters = [
        ("code", Some(code.as_str())),
        ("state", Some(&asked.state)),
        ("iss", Some(&provider.published.address)),
    ];
    address(&asked.redirect_uri, &parameters)
}

/// The person with this e-mail and password; an error does not say which of the two was wrong.
fn user(email: &str, password: &str) -> Option<&'static DemoUser> {
    USERS
        .into_iter()
        .find(|user| user.email.eq_ignore_ascii_case(email) && password == DEMO_PASSWORD)
}

/// Redirects the browser to the client with 303, so that the password is not posted there (RFC 9700 §4.12).
fn back(redirect_uri: &str, parameters: &[(&str, Option<&str>)]) -> Response {
    ([super::NO_STORE], Redirect::to(&address(redirect_uri, parameters))).into_response()
}

/// The client's address with those of the parameters that have a value.
fn address(redirect_uri: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let present = parameters.iter().filter_map(|(name, value)| Some((*name, (*value)?)));
    parameters::with(redirect_uri, present)
}
