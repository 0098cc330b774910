//! The stack's own OpenID provider, so that people can sign in without an account anywhere: authorization code with
//! PKCE, ID tokens signed with ES256, and a login page for the demo users.
//!
//! The functions know it only by `OIDC_ISSUER` and treat it as any other provider. It is as strict as a real one, so
//! that what works here works there; but it has no session of its own: every sign-in asks for the password. Its clock
//! is the stack's, so `/_local/clock` makes codes and tokens expire. It is never deployed.
//!
//! | file | one line |
//! |---|---|
//! | `authorize.rs` | `/authorize`: from a client's request, over the login page, to a code |
//! | `redeem.rs` | `/token`: a code and its verifier become tokens |
//! | `page.rs` | the HTML |
//! | `parameters.rs` | form-encoded parameters |

mod authorize;
mod page;
mod parameters;
mod redeem;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use parameters::Parameters;
use purser_api::Clock;
use purser_domain::{Duration, Timestamp};
use purser_testkit::{Signer, TestIssuer, encoded};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The dashboard's client id: a public client, which uses PKCE.
pub const CLIENT_ID: &str = "purser-dashboard";

/// A person who can sign in at the local issuer with [`DEMO_PASSWORD`]. Demo data: the login page shows both.
#[derive(Debug, PartialEq, Eq)]
pub struct DemoUser {
    /// The `sub` of the tokens, which never changes.
    pub sub: &'static str,
    /// The e-mail typed into the login page.
    pub email: &'static str,
    /// The name that the dashboard shows.
    pub name: &'static str,
}

/// The owner of the demo agent.
pub const DEMO_OWNER: DemoUser = DemoUser {
    sub: "6f1d3c52-8a54-4c0e-9b57-2f6a1f0f7a01",
    email: "owner@example.test",
    name: "Olive Owner",
};

/// Another person, who must see nothing of the owner's.
pub const DEMO_STRANGER: DemoUser = DemoUser {
    sub: "b84e0a97-51c3-4f9d-a1de-7c90d25e6b02",
    email: "second@example.test",
    name: "Sam Second",
};

/// The password of every demo user.
pub const DEMO_PASSWORD: &str = "purser";

const USERS: [&DemoUser; 2] = [&DEMO_OWNER, &DEMO_STRANGER];

/// An ID token's lifetime: a working day, after which the dashboard asks to sign in again.
const TOKEN_LIFE: Duration = Duration::from_secs_u32(8 * 3_600);

/// A running issuer. Clones share its state.
#[derive(Clone)]
pub struct Issuer(Arc<Provider>);

struct Provider {
    /// The published documents: its URL, its endpoints, and its keys.
    published: TestIssuer,
    /// Where a code may be sent; compared exactly (RFC 9700 §4.1.3), as `template.yaml` registers it.
    redirect_uris: Vec<String>,
    /// Where a browser may be redirected after signing out.
    signed_out_uris: Vec<String>,
    clock: Clock,
    /// The last one signs; the others stay published for the tokens they signed.
    keys: Mutex<Vec<Signer>>,
    codes: Mutex<HashMap<String, Grant>>,
}

/// The grant behind a code.
struct Grant {
    user: &'static DemoUser,
    redirect_uri: String,
    /// The PKCE challenge: the hash of a verifier that only the client knows.
    challenge: String,
    nonce: String,
    expires_at: Timestamp,
}

impl Issuer {
    /// An issuer at `url` for a dashboard below `dashboard`, both without a trailing slash.
    pub fn new(url: &str, dashboard: &str, clock: Clock) -> Self {
        let below = |path: &str| format!("{dashboard}{path}");
        let issuer = Self(Arc::new(Provider {
            published: TestIssuer::new(url, &[]),
            redirect_uris: vec![below("/dashboard/callback")],
            signed_out_uris: vec![below("/dashboard/sign-in")],
            clock,
            keys: Mutex::default(),
            codes: Mutex::default(),
        }));
        issuer.rotate_key();
        issuer
    }

    /// Its URL, which is the `iss` of its tokens.
    pub fn url(&self) -> &str {
        &self.0.published.address
    }

    /// The claims of a person who signs in now, for a session of that length. Tests change one of them and sign the
    /// result.
    pub fn claims(&self, user: &DemoUser, life: Duration) -> Value {
        let now = self.0.clock.now();
        json!({
            "iss": self.url(),
            "sub": user.sub,
            "aud": CLIENT_ID,
            "iat": now.secs(),
            "auth_time": now.secs(),
            "exp": now.after(life).secs(),
            "email": user.email,
            "email_verified": true,
            "name": user.name,
        })
    }

    /// An ID token with any claims, signed with the current key.
    pub fn sign(&self, claims: &Value) -> String {
        let keys = locked(&self.0.keys);
        keys.last().map(|key| key.token(claims)).unwrap_or_default()
    }

    /// The ID token of a person who signs in now.
    pub fn token(&self, user: &DemoUser) -> String {
        self.token_for(user, TOKEN_LIFE)
    }

    /// An ID token with another lifetime.
    pub fn token_for(&self, user: &DemoUser, life: Duration) -> String {
        self.sign(&self.claims(user, life))
    }

    /// The answer to a client's question for a person who signs in now, without the login page: the address to which
    /// the browser is led, with a code. `None` if the question is refused.
    pub fn answer(&self, question: &str, user: &'static DemoUser) -> Option<String> {
        authorize::answer(&self.0, question.split_once('?')?.1, user)
    }

    /// Signs with a new key from now on. The old one stays published: its tokens are valid until they expire.
    pub fn rotate_key(&self) {
        let mut keys = locked(&self.0.keys);
        keys.push(Signer::es256(&uuid::Uuid::new_v4().to_string()));
        self.0.published.publish(&keys.iter().collect::<Vec<_>>());
    }

    /// Its endpoints.
    pub(crate) fn router(&self) -> Router {
        let own = Router::new()
            .route("/authorize", get(authorize::ask).post(authorize::sign_in))
            .route("/token", post(redeem::redeem))
            .route("/end-session", get(end_session))
            .route("/style.css", get(page::style))
            .fallback(|| async { page::problem(StatusCode::NOT_FOUND, "there is no such page.") })
            .with_state(self.clone());
        self.0.published.router().merge(own)
    }
}

/// `GET /end-session` (OpenID Connect RP-Initiated Logout 1.0 §2). There is no session here to end, so it only
/// redirects the browser back to the client.
async fn end_session(State(Issuer(provider)): State<Issuer>, RawQuery(query): RawQuery) -> Response {
    let Some(parameters) = Parameters::parse(query.unwrap_or_default().as_bytes()) else {
        return page::problem(StatusCode::BAD_REQUEST, "a parameter is given twice.");
    };
    match parameters.get("post_logout_redirect_uri") {
        None => page::signed_out(),
        Some(uri) if provider.signed_out_uris.iter().any(|allowed| allowed == uri) => {
            let state = parameters.get("state").map(|state| ("state", state));
            Redirect::to(&parameters::with(uri, state.into_iter())).into_response()
        }
        Some(_) => page::problem(
            StatusCode::BAD_REQUEST,
            "post_logout_redirect_uri is not an address that this client registered.",
        ),
    }
}

/// A poisoned lock is safe to use: nothing panics while holding one, and no map is ever half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A random text of 244 bits.
fn secret() -> String {
    encoded(
        [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()]
            .map(uuid::Uuid::into_bytes)
            .concat(),
    )
}

/// Answers with a secret, or with a form for one, are not cached.
const NO_STORE: (header::HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::jwk::JwkSet;
    use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
    use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
    use reqwest::redirect::Policy;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicI64, Ordering};
    use tokio::net::TcpListener;
    use url::{Url, form_urlencoded};

    const DASHBOARD: &str = "http://127.0.0.1:3000";
    const CALLBACK: &str = "http://127.0.0.1:3000/dashboard/callback";
    /// RFC 7636, appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    const NOW: u32 = 1_780_000_000;

    /// An issuer with its own port, whose clock only moves when set.
    struct World {
        issuer: Issuer,
        http: reqwest::Client,
        micros: Arc<AtomicI64>,
    }

    struct Answer {
        status: u16,
        headers: HeaderMap,
        body: String,
    }

    impl Answer {
        /// The redirect's target and its parameters.
        fn redirect(&self) -> (String, BTreeMap<String, String>) {
            assert_eq!(self.status, 303, "{}", self.body);
            let mut url = Url::parse(self.headers[LOCATION].to_str().unwrap()).unwrap();
            let parameters = url.query_pairs().into_owned().collect();
            url.set_query(None);
            (url.into(), parameters)
        }

        fn json(&self) -> Value {
            serde_json::from_str(&self.body).unwrap()
        }

        #[track_caller]
        fn error(&self, error: &str) {
            assert_eq!(
                (self.status, self.json()["error"].as_str()),
                (400, Some(error)),
                "{}",
                self.body
            );
            assert_eq!(self.headers["cache-control"], "no-store");
        }
    }

    impl World {
        async fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let start = Timestamp::EPOCH.after(Duration::from_secs_u32(NOW));
            let micros = Arc::new(AtomicI64::new(start.micros()));
            let issuer = Issuer::new(&url, DASHBOARD, Clock::still(Arc::clone(&micros)));
            let router = issuer.router();
            tokio::spawn(async move { axum::serve(listener, router).await });
            let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
            Self { issuer, http, micros }
        }

        fn advance(&self, seconds: u32) {
            let micros = Duration::from_secs_u32(seconds).micros();
            self.micros.fetch_add(micros, Ordering::SeqCst);
        }

        async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
            let response = request.send().await.unwrap();
            Answer {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: response.text().await.unwrap(),
            }
        }

        async fn get(&self, path: &str, query: &[(&str, &str)]) -> Answer {
            let url = format!("{}{path}?{}", self.issuer.url(), form(query));
            self.send(self.http.get(url)).await
        }

        async fn post(&self, path: &str, body: &[(&str, &str)]) -> Answer {
            let request = self.http.post(format!("{}{path}", self.issuer.url()));
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            self.send(request.body(form(body))).await
        }

        /// Submits the login page.
        async fn sign_in(&self, query: &[(&str, &str)], email: &str, password: &str) -> Answer {
            let path = format!("/authorize?{}", form(query));
            self.post(&path, &[("email", email), ("password", password)]).await
        }

        /// The code of an owner who signed in.
        async fn code(&self) -> String {
            let answer = self.sign_in(&request(), DEMO_OWNER.email, DEMO_PASSWORD).await;
            answer.redirect().1["code"].clone()
        }

        async fn claims(&self, token: &str) -> Result<Value, jsonwebtoken::errors::Error> {
            let keys: JwkSet = serde_json::from_str(&self.get("/jwks.json", &[]).await.body).unwrap();
            let header = decode_header(token)?;
            let key = keys.find(&header.kid.unwrap()).unwrap();
            let mut validation = Validation::new(jsonwebtoken::Algorithm::ES256);
            validation.set_audience(&[CLIENT_ID]);
            validation.set_issuer(&[self.issuer.url()]);
            // The library uses the system's clock.
            validation.validate_exp = false;
            Ok(decode(token, &DecodingKey::from_jwk(key)?, &validation)?.claims)
        }
    }

    fn form(parameters: &[(&str, &str)]) -> String {
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(parameters)
            .finish()
    }

    /// The dashboard's authorization request.
    fn request() -> Vec<(&'static str, &'static str)> {
        vec![
            ("response_type", "code"),
            ("client_id", CLIENT_ID),
            ("redirect_uri", CALLBACK),
            ("scope", "openid email"),
            ("state", "a state & more"),
            ("nonce", "a nonce"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
        ]
    }

    /// The request with one parameter replaced or left out.
    fn changed(name: &'static str, value: Option<&'static str>) -> Vec<(&'static str, &'static str)> {
        let others = request().into_iter().filter(|(other, _)| *other != name);
        others.chain(value.map(|value| (name, value))).collect()
    }

    fn redemption(code: &str) -> Vec<(&'static str, String)> {
        vec![
            ("grant_type", "authorization_code".to_owned()),
            ("client_id", CLIENT_ID.to_owned()),
            ("redirect_uri", CALLBACK.to_owned()),
            ("code_verifier", VERIFIER.to_owned()),
            ("code", code.to_owned()),
        ]
    }

    /// Redeems a code, with one parameter replaced.
    async fn redeem(world: &World, code: &str, change: Option<(&str, &str)>) -> Answer {
        let mut parameters = redemption(code);
        for (name, value) in &mut parameters {
            if let Some((_, other)) = change.filter(|(changed, _)| changed == name) {
                other.clone_into(value);
            }
        }
        let parameters: Vec<_> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        world.post("/token", &parameters).await
    }

    #[tokio::test]
    async fn a_person_signs_in_and_the_client_gets_a_token() {
        let world = World::new().await;
        let known = world.get("/.well-known/openid-configuration", &[]).await.json();
        let url = world.issuer.url().to_owned();
        for (name, path) in [
            ("issuer", ""),
            ("authorization_endpoint", "/authorize"),
            ("token_endpoint", "/token"),
            ("jwks_uri", "/jwks.json"),
            ("end_session_endpoint", "/end-session"),
        ] {
            assert_eq!(known[name], format!("{url}{path}"));
        }

        let page = world.get("/authorize", &request()).await;
        assert_eq!(page.status, 200);
        assert_eq!(page.headers["cache-control"], "no-store");
        for part in [
            r#"<form method="post">"#,
            r#"<label for="email">"#,
            r#"<label for="password">"#,
            r#"type="password""#,
        ] {
            assert!(page.body.contains(part), "{part} in {}", page.body);
        }
        assert!(!page.body.contains("role=\"alert\""));

        let answer = world.sign_in(&request(), " Owner@Example.test", "purser").await;
        let (to, parameters) = answer.redirect();
        assert_eq!(to, CALLBACK);
        assert_eq!(parameters["state"], "a state & more");
        assert_eq!(parameters["iss"], url);
        assert_eq!(parameters.len(), 3);

        world.advance(59);
        let answer = redeem(&world, &parameters["code"], None).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.headers["cache-control"], "no-store");
        let tokens = answer.json();
        assert_eq!(
            (tokens["token_type"].as_str(), tokens["expires_in"].as_u64()),
            (Some("Bearer"), Some(28_800))
        );
        assert!(tokens["access_token"].is_string());
        let claims = world.claims(tokens["id_token"].as_str().unwrap()).await.unwrap();
        let expected = json!({
            "iss": url, "sub": DEMO_OWNER.sub, "aud": CLIENT_ID, "iat": NOW + 59, "auth_time": NOW + 59, "exp": NOW + 59 + 28_800,
            "nonce": "a nonce", "email": DEMO_OWNER.email, "name": DEMO_OWNER.name,
            "email_verified": true,
        });
        assert_eq!(claims, expected);
    }

    #[tokio::test]
    async fn a_code_is_redeemed_once_in_time_and_by_its_own_client() {
        let world = World::new().await;
        let code = world.code().await;
        assert_eq!(redeem(&world, &code, None).await.status, 200);
        redeem(&world, &code, None).await.error("invalid_grant");

        let rows = [
            ("code", "unknown", "invalid_grant"),
            (
                "code_verifier",
                "another-verifier-of-at-least-43-characters.",
                "invalid_grant",
            ),
            // The challenge itself, which the browser has seen, is not a valid verifier.
            ("code_verifier", CHALLENGE, "invalid_grant"),
            ("code_verifier", "short", "invalid_grant"),
            ("redirect_uri", "http://127.0.0.1:3000/dashboard/other", "invalid_grant"),
            ("client_id", "another", "invalid_client"),
            ("grant_type", "refresh_token", "unsupported_grant_type"),
            ("grant_type", "", "invalid_request"),
            ("code", "", "invalid_request"),
            ("code_verifier", "", "invalid_request"),
        ];
        for (name, value, error) in rows {
            redeem(&world, &world.code().await, Some((name, value)))
                .await
                .error(error);
        }
        world
            .post("/token", &[("code", "a"), ("code", "b")])
            .await
            .error("invalid_request");

        // A code that was sent with a wrong verifier may be stolen, and is used up.
        let code = world.code().await;
        redeem(&world, &code, Some(("code_verifier", CHALLENGE)))
            .await
            .error("invalid_grant");
        redeem(&world, &code, None).await.error("invalid_grant");

        let code = world.code().await;
        world.advance(60);
        redeem(&world, &code, None).await.error("invalid_grant");
    }

    #[tokio::test]
    async fn nobody_is_redirected_for_a_client_or_an_address_that_is_not_registered() {
        let world = World::new().await;
        let twice: Vec<_> = request().into_iter().chain([("redirect_uri", CALLBACK)]).collect();
        let rows = [
            changed("redirect_uri", Some("https://evil.example/dashboard/callback")),
            changed("redirect_uri", Some("http://127.0.0.1:3000/dashboard/callback/")),
            changed("redirect_uri", Some("http://127.0.0.1:3000/dashboard/callback?a=b")),
            changed("redirect_uri", Some("http://127.0.0.1:3000/dashboard/callback/../x")),
            changed("redirect_uri", None),
            changed("client_id", Some("another")),
            changed("client_id", None),
            twice,
        ];
        for query in rows {
            let page = world.get("/authorize", &query).await;
            let posted = world.sign_in(&query, DEMO_OWNER.email, DEMO_PASSWORD).await;
            for answer in [page, posted] {
                assert_eq!(answer.status, 400, "{query:?}");
                assert!(!answer.headers.contains_key(LOCATION), "{query:?}");
                assert!(answer.body.contains("<h1>This link does not work</h1>"), "{query:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_client_is_told_what_is_wrong_with_its_request() {
        let world = World::new().await;
        let rows = [
            (changed("response_type", Some("token")), "unsupported_response_type"),
            (changed("response_type", None), "invalid_request"),
            (changed("response_mode", Some("fragment")), "invalid_request"),
            (changed("scope", Some("email openid2")), "invalid_scope"),
            (changed("scope", None), "invalid_scope"),
            (changed("code_challenge_method", Some("plain")), "invalid_request"),
            (changed("code_challenge_method", None), "invalid_request"),
            (changed("code_challenge", Some("short")), "invalid_request"),
            (changed("code_challenge", None), "invalid_request"),
            (changed("nonce", None), "invalid_request"),
            (changed("state", None), "invalid_request"),
            (changed("prompt", Some("none")), "login_required"),
        ];
        for (query, error) in rows {
            let page = world.get("/authorize", &query).await;
            let posted = world.sign_in(&query, DEMO_OWNER.email, DEMO_PASSWORD).await;
            for answer in [page, posted] {
                let (to, parameters) = answer.redirect();
                assert_eq!(
                    (to.as_str(), parameters["error"].as_str()),
                    (CALLBACK, error),
                    "{query:?}"
                );
                assert_eq!(parameters["iss"], world.issuer.url());
                assert!(!parameters.contains_key("code"), "{query:?}");
                let state = query.iter().find(|(name, _)| *name == "state");
                assert_eq!(
                    parameters.get("state").map(String::as_str),
                    state.map(|(_, state)| *state)
                );
            }
        }
    }

    #[tokio::test]
    async fn a_wrong_password_and_an_unknown_person_are_told_alike() {
        let world = World::new().await;
        let page = |email: &'static str| {
            let world = &world;
            async move {
                let answer = world.sign_in(&request(), email, "wrong").await;
                assert_eq!(answer.status, 403);
                assert!(!answer.headers.contains_key(LOCATION));
                assert!(answer.body.contains("role=\"alert\""), "{}", answer.body);
                // The form shows the typed values again, except the password.
                assert!(answer.body.contains(&format!("value=\"{email}\"")), "{}", answer.body);
                assert!(!answer.body.contains("value=\"wrong\""));
                answer.body.replace(&format!("value=\"{email}\""), "")
            }
        };
        assert_eq!(page(DEMO_OWNER.email).await, page("nobody@example.test").await);
        let answer = world.sign_in(&request(), "\"><script>alert(1)</script>", "wrong").await;
        assert!(!answer.body.contains("<script>"), "{}", answer.body);
        assert_eq!(world.sign_in(&request(), "", "").await.status, 403);
    }

    #[tokio::test]
    async fn people_keep_their_own_names() {
        let world = World::new().await;
        for user in USERS {
            let answer = world.sign_in(&request(), user.email, DEMO_PASSWORD).await;
            let answer = redeem(&world, &answer.redirect().1["code"], None).await.json();
            let claims = world.claims(answer["id_token"].as_str().unwrap()).await.unwrap();
            assert_eq!(claims["sub"], user.sub);
            assert!(uuid::Uuid::parse_str(user.sub).is_ok());
        }
        assert_ne!(DEMO_OWNER.sub, DEMO_STRANGER.sub);
    }

    #[tokio::test]
    async fn a_rotated_key_signs_beside_the_one_before_it() {
        let world = World::new().await;
        let before = world.issuer.token(&DEMO_OWNER);
        world.issuer.rotate_key();
        let after = world.issuer.token(&DEMO_OWNER);
        let id = |token: &str| decode_header(token).unwrap().kid.unwrap();
        assert_ne!(id(&before), id(&after));
        for token in [&before, &after] {
            assert_eq!(world.claims(token).await.unwrap()["sub"], DEMO_OWNER.sub);
        }
        // A token with another signature is not accepted.
        let (_, signature) = before.rsplit_once('.').unwrap();
        let (signed, _) = after.rsplit_once('.').unwrap();
        assert!(world.claims(&format!("{signed}.{signature}")).await.is_err());
    }

    #[tokio::test]
    async fn signing_out_leads_back_to_the_client_and_nowhere_else() {
        let world = World::new().await;
        let page = world.get("/end-session", &[]).await;
        assert_eq!(page.status, 200);
        assert!(page.body.contains("You are signed out"));
        let home = format!("{DASHBOARD}/dashboard/sign-in");
        let query = [("post_logout_redirect_uri", home.as_str()), ("state", "s")];
        let (to, parameters) = world.get("/end-session", &query).await.redirect();
        assert_eq!((to, parameters["state"].as_str()), (home, "s"));
        let foreign = world
            .get("/end-session", &[("post_logout_redirect_uri", "https://evil.example/")])
            .await;
        assert_eq!(foreign.status, 400);
        assert!(!foreign.headers.contains_key(LOCATION));
    }
}
