//! The stack's OpenID provider: the authorization code flow with PKCE, and a page with a button for each demo user. It
//! is never deployed.
//!
//! `functions/dashboard/tests/api/sign_in.rs` tests sign-ins that a provider rejects.

use axum::extract::{Form, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use maud::{DOCTYPE, html};
use purser_api::Clock;
use purser_domain::{Duration, Timestamp};
use purser_testkit::{Parameters, Signer, TestIssuer, encoded};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use url::Url;

/// The id of the dashboard's OAuth client.
pub const CLIENT_ID: &str = "purser-dashboard";

/// A user who can sign in at the local issuer.
#[derive(Debug, PartialEq, Eq)]
pub struct DemoUser {
    /// The `sub` claim.
    pub sub: &'static str,
    /// The e-mail address.
    pub email: &'static str,
    /// The name on the dashboard.
    pub name: &'static str,
}

/// The owner of the demo agent.
pub const DEMO_OWNER: DemoUser = DemoUser {
    sub: "6f1d3c52-8a54-4c0e-9b57-2f6a1f0f7a01",
    email: "owner@example.test",
    name: "Olive Owner",
};

/// A second user, who must not see the data of [`DEMO_OWNER`].
pub const DEMO_STRANGER: DemoUser = DemoUser {
    sub: "b84e0a97-51c3-4f9d-a1de-7c90d25e6b02",
    email: "second@example.test",
    name: "Sam Second",
};

const USERS: [&DemoUser; 2] = [&DEMO_OWNER, &DEMO_STRANGER];

/// The lifetime of an ID token, after which the dashboard requires a new sign-in.
const TOKEN_LIFE: Duration = Duration::from_secs_u32(8 * 3_600);
/// The lifetime of an authorization code. The browser passes it to the dashboard immediately.
const CODE_LIFE: Duration = Duration::from_secs_u32(60);

/// A running issuer. Clones share its state.
#[derive(Clone)]
pub struct Issuer(Arc<Provider>);

struct Provider {
    /// The issuer's URL, endpoints and keys.
    published: TestIssuer,
    /// The only redirect address, which is compared exactly (RFC 9700 §4.1.3).
    redirect_uri: String,
    /// The URL to which a sign-out redirects.
    signed_out_uri: String,
    clock: Clock,
    /// The newest key signs. Earlier keys stay published, so that their tokens stay valid.
    keys: Mutex<Vec<Signer>>,
    codes: Mutex<HashMap<String, Grant>>,
}

/// The sign-in for which a code was issued.
struct Grant {
    user: &'static DemoUser,
    /// The PKCE challenge: a hash of the verifier, which only the client has.
    challenge: String,
    nonce: String,
    expires_at: Timestamp,
}

impl Issuer {
    /// Creates an issuer at `url` for the dashboard at `dashboard`. Neither URL ends with a slash.
    pub fn new(url: &str, dashboard: &str, clock: Clock) -> Self {
        let below = |path: &str| format!("{dashboard}{path}");
        let issuer = Self(Arc::new(Provider {
            published: TestIssuer::new(url, &[]),
            redirect_uri: below("/dashboard/callback"),
            signed_out_uri: below("/dashboard/sign-in"),
            clock,
            keys: Mutex::default(),
            codes: Mutex::default(),
        }));
        issuer.rotate_key();
        issuer
    }

    /// Returns the issuer's URL, which is the tokens' `iss` claim.
    pub fn url(&self) -> &str {
        &self.0.published.address
    }

    /// Returns the claims of a sign-in at the current time. Tests change a claim and sign the result.
    pub fn claims(&self, user: &DemoUser, lifetime: Duration) -> Value {
        let now = self.0.clock.now();
        json!({
            "iss": self.url(),
            "sub": user.sub,
            "aud": CLIENT_ID,
            "iat": now.secs(),
            "auth_time": now.secs(),
            "exp": now.after(lifetime).secs(),
            "email": user.email,
            "email_verified": true,
            "name": user.name,
        })
    }

    /// Signs these claims with the current key.
    pub fn sign(&self, claims: &Value) -> String {
        let keys = lock(&self.0.keys);
        keys.last().map(|key| key.token(claims)).unwrap_or_default()
    }

    /// Returns an ID token for a sign-in at the current time.
    pub fn token(&self, user: &DemoUser) -> String {
        self.token_for(user, TOKEN_LIFE)
    }

    /// Returns an ID token with the lifetime `lifetime`.
    pub fn token_for(&self, user: &DemoUser, lifetime: Duration) -> String {
        self.sign(&self.claims(user, lifetime))
    }

    /// Returns the address to which the user's browser is redirected after a sign-in at `page`; `None` if the request
    /// is rejected.
    pub fn redirect_with_code(&self, page: &str, user: &'static DemoUser) -> Option<String> {
        let page = Url::parse(page).ok()?;
        let request: Parameters = page.query_pairs().into_owned().collect();
        self.grant(&request, user)
    }

    /// Adds a key, which signs from now on. The earlier keys stay published.
    pub fn rotate_key(&self) {
        let mut keys = lock(&self.0.keys);
        keys.push(Signer::es256(&uuid::Uuid::new_v4().to_string()));
        self.0.published.publish(&keys.iter().collect::<Vec<_>>());
    }

    /// Returns the issuer's endpoints.
    pub(crate) fn router(&self) -> Router {
        let own = Router::new()
            .route("/authorize", get(show_user_list).post(sign_in))
            .route("/token", post(redeem))
            .route("/end-session", get(end_session))
            .with_state(self.clone());
        self.0.published.router().merge(own)
    }

    /// Stores a code for the user, and returns the client's address with the code. Returns `None` for an unknown client
    /// or address, or without PKCE.
    fn grant(&self, form: &Parameters, user: &'static DemoUser) -> Option<String> {
        let provider = &self.0;
        let is = |name: &str, value: &str| form.get(name).is_some_and(|given| given == value);
        let is_known = is("client_id", CLIENT_ID) && is("redirect_uri", &provider.redirect_uri);
        let is_code = is("response_type", "code") && is("code_challenge_method", "S256");
        let has_scope = form
            .get("scope")
            .is_some_and(|scopes| scopes.split(' ').any(|scope| scope == "openid"));
        if !(is_known && is_code && has_scope) {
            return None;
        }
        let (code, now) = (secret(), provider.clock.now());
        let grant = Grant {
            user,
            challenge: form.get("code_challenge")?.clone(),
            nonce: form.get("nonce")?.clone(),
            expires_at: now.after(CODE_LIFE),
        };
        lock(&provider.codes).insert(code.clone(), grant);
        let mut address = Url::parse(&provider.redirect_uri).ok()?;
        // `iss` identifies the issuer (RFC 9207).
        let parameters = [
            ("code", code.as_str()),
            ("state", form.get("state")?),
            ("iss", self.url()),
        ];
        address.query_pairs_mut().extend_pairs(parameters);
        Some(address.into())
    }

    /// Returns the user and the nonce of a code, which can be used once.
    fn redeem(&self, form: &Parameters) -> Option<(&'static DemoUser, String)> {
        let grant = lock(&self.0.codes).remove(form.get("code")?)?;
        let is_its_verifier = encoded(Sha256::digest(form.get("code_verifier")?)) == grant.challenge;
        let is_for_client = form.get("client_id")? == CLIENT_ID && *form.get("redirect_uri")? == self.0.redirect_uri;
        let is_in_time = self.0.clock.now() < grant.expires_at;
        (is_its_verifier && is_for_client && is_in_time).then_some((grant.user, grant.nonce))
    }
}

/// `GET /authorize`: shows a button for each demo user. The forms keep the parameters of the URL.
async fn show_user_list() -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Sign in · Purser" }
                link rel="icon" href="data:,";
            }
            body {
                main {
                    h1 { "Sign in to the local stack" }
                    form method="post" {
                        @for user in USERS {
                            p { button type="submit" name="email" value=(user.email) { "Continue as " (user.name) } " " (user.email) }
                        }
                    }
                }
            }
        }
    };
    ([NO_STORE, (header::REFERRER_POLICY, "no-referrer")], page).into_response()
}

/// `POST /authorize`: redirects the browser to the client with a code.
async fn sign_in(
    State(issuer): State<Issuer>,
    Query(parameters): Query<Parameters>,
    Form(form): Form<Parameters>,
) -> Response {
    let user = USERS
        .into_iter()
        .find(|user| form.get("email").is_some_and(|email| email == user.email));
    match user.and_then(|user| issuer.grant(&parameters, user)) {
        Some(address) => ([NO_STORE], Redirect::to(&address)).into_response(),
        None => (
            StatusCode::BAD_REQUEST,
            "The client's request or the person is unknown.",
        )
            .into_response(),
    }
}

/// `POST /token`: exchanges a code and its verifier for tokens. Nothing accepts the access token, but clients expect
/// one.
async fn redeem(State(issuer): State<Issuer>, Form(form): Form<Parameters>) -> Response {
    let Some((user, nonce)) = issuer.redeem(&form) else {
        return (
            StatusCode::BAD_REQUEST,
            [NO_STORE],
            Json(json!({"error": "invalid_grant"})),
        )
            .into_response();
    };
    let mut claims = issuer.claims(user, TOKEN_LIFE);
    if let Some(claims) = claims.as_object_mut() {
        claims.insert("nonce".to_owned(), nonce.into());
    }
    let tokens = json!({
        "id_token": issuer.sign(&claims),
        "access_token": secret(),
        "token_type": "Bearer",
        "expires_in": TOKEN_LIFE.secs(),
    });
    ([NO_STORE], Json(tokens)).into_response()
}

/// `GET /end-session` (OpenID Connect RP-Initiated Logout 1.0 §2): redirects to the client, because the issuer has no
/// sessions.
async fn end_session(State(issuer): State<Issuer>, Query(parameters): Query<Parameters>) -> Response {
    let Ok(mut address) = Url::parse(&issuer.0.signed_out_uri) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if let Some(state) = parameters.get("state") {
        address.query_pairs_mut().append_pair("state", state);
    }
    Redirect::to(address.as_str()).into_response()
}

/// Ignores that another thread has panicked, because no code can panic between two related changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a random text with 244 bits.
fn secret() -> String {
    encoded(
        [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()]
            .map(uuid::Uuid::into_bytes)
            .concat(),
    )
}

const NO_STORE: (header::HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    /// The example in RFC 7636, appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn parameters(list: &[(&str, &str)]) -> Parameters {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn authorization_codes_are_redeemed_once_before_they_expire() {
        let micros = Arc::new(AtomicI64::new(1_780_000_000_000_000));
        let clock = Clock::at_fixed_time(Arc::clone(&micros));
        let issuer = Issuer::new("http://issuer.test", "http://dashboard.test", clock);
        let asked = parameters(&[
            ("client_id", CLIENT_ID),
            ("redirect_uri", "http://dashboard.test/dashboard/callback"),
            ("response_type", "code"),
            ("scope", "openid email"),
            ("state", "s"),
            ("nonce", "n"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
        ]);
        let form = |verifier: &str| {
            let address = Url::parse(&issuer.grant(&asked, &DEMO_OWNER).unwrap()).unwrap();
            let mut form: Parameters = address.query_pairs().into_owned().collect();
            form.extend(parameters(&[
                ("client_id", CLIENT_ID),
                ("redirect_uri", "http://dashboard.test/dashboard/callback"),
                ("code_verifier", verifier),
            ]));
            form
        };
        let once = form(VERIFIER);
        assert_eq!(issuer.redeem(&once).unwrap(), (&DEMO_OWNER, "n".to_owned()));
        assert!(issuer.redeem(&once).is_none());
        assert!(issuer.redeem(&form("another")).is_none());
        let late = form(VERIFIER);
        micros.fetch_add(60_000_000, Ordering::SeqCst);
        assert!(issuer.redeem(&late).is_none());
        for name in [
            "client_id",
            "redirect_uri",
            "response_type",
            "scope",
            "code_challenge_method",
        ] {
            let mut other = asked.clone();
            other.insert(name.to_owned(), "other".to_owned());
            assert!(issuer.grant(&other, &DEMO_OWNER).is_none(), "{name}");
        }
    }
}
