//! An OpenID Connect issuer for the verifiers of tokens: discovery, keys, and a token endpoint.
//! `infra/local/src/issuer.rs` adds a sign-in page.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use axum::extract::{Form, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

/// A key pair with which an issuer signs tokens.
pub struct Signer {
    kid: Option<String>,
    pair: Pair,
}

enum Pair {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

impl Signer {
    /// Generates a P-256 key with this `kid`.
    pub fn es256(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Self {
            kid: Some(kid.to_owned()),
            pair: Pair::Es256(pair),
        }
    }

    /// Generates an RSA key with this `kid`.
    pub fn rs256(kid: &str) -> Self {
        Self {
            kid: Some(kid.to_owned()),
            pair: Pair::Rs256(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key")),
        }
    }

    /// Returns the same key without a `kid`.
    pub fn unnamed(self) -> Self {
        Self { kid: None, ..self }
    }

    fn alg(&self) -> &'static str {
        match self.pair {
            Pair::Es256(_) => "ES256",
            Pair::Rs256(_) => "RS256",
        }
    }

    /// Returns the public key as a JWK.
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Es256(pair) => {
                // The format of the public key is the byte 4 and both coordinates (SEC 1 §2.3.3).
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y)})
            }
            Pair::Rs256(pair) => {
                let key = pair.public_key();
                let (n, e) = (key.modulus(), key.exponent());
                let [n, e] = [n, e].map(|number| encoded(number.big_endian_without_leading_zero()));
                json!({"kty": "RSA", "n": n, "e": e})
            }
        };
        jwk["alg"] = json!(self.alg());
        jwk["use"] = json!("sig");
        if let Some(kid) = &self.kid {
            jwk["kid"] = json!(kid);
        }
        jwk
    }

    /// Returns the public key's bytes, which tests use as an HMAC secret (algorithm confusion).
    pub fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Es256(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Rs256(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// Signs a token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        let mut header = json!({"typ": "JWT", "alg": self.alg()});
        if let Some(kid) = &self.kid {
            header["kid"] = json!(kid);
        }
        self.token_with(&header, claims)
    }

    /// Signs a token with this header and these claims.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        token_with(header, claims, |message| self.sign(message))
    }

    /// Returns the signature of a message.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Es256(pair) => pair.sign(&random, message).expect("it signs").as_ref().to_vec(),
            Pair::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .expect("it signs");
                signature
            }
        }
    }
}

/// Returns a token with any header, claims and signature (RFC 7515 §3.1).
pub fn token_with(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
    let signature = encoded(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

/// Encodes bytes as base64url without padding.
pub fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The form parameters that a client posts to the token endpoint.
pub type Parameters = BTreeMap<String, String>;

/// Maps the posted form parameters to a status and a body.
type TokenEndpoint = Box<dyn FnMut(&Parameters) -> (u16, String) + Send>;

/// The issuer's responses, and a record of the requests.
pub struct IssuerScript {
    /// Whether the issuer is up. If it is down, it responds with 503.
    pub up: bool,
    /// The delay of each response.
    pub delay: Duration,
    /// The discovery document.
    pub discovery: Value,
    /// The JWK set.
    pub jwks: Value,
    /// The responses of the token endpoint.
    pub token: TokenEndpoint,
    /// The number of requests for the discovery document since the last [`TestIssuer::asked`].
    pub asked: u32,
    /// The last form posted to the token endpoint.
    pub form: Parameters,
}

/// An issuer at `address`. Clones share its state.
#[derive(Clone)]
pub struct TestIssuer {
    /// The address, which is also the `iss` of the tokens.
    pub address: String,
    script: Arc<Mutex<IssuerScript>>,
}

impl TestIssuer {
    /// The id of the issuer's only client.
    pub const CLIENT: &'static str = "purser-dashboard";

    /// Creates an issuer with these keys. The caller serves it at `address`.
    pub fn new(address: &str, keys: &[&Signer]) -> Self {
        let below = |path: &str| format!("{address}{path}");
        let script = IssuerScript {
            up: true,
            delay: Duration::ZERO,
            // OpenID Connect Discovery 1.0 §3.
            discovery: json!({
                "issuer": address,
                "authorization_endpoint": below("/authorize"),
                "token_endpoint": below("/token"),
                "jwks_uri": below("/jwks.json"),
                "end_session_endpoint": below("/end-session"),
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": ["authorization_code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256", "RS256"],
                "scopes_supported": ["openid", "email", "profile"],
                "claims_supported": ["iss", "sub", "aud", "exp", "iat", "nonce", "email", "name"],
                "token_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": true,
            }),
            jwks: json!({}),
            token: Box::new(|_| (500, String::new())),
            asked: 0,
            form: Parameters::new(),
        };
        let issuer = Self {
            address: address.to_owned(),
            script: Arc::new(Mutex::new(script)),
        };
        issuer.publish(keys);
        issuer
    }

    /// Starts an issuer with a token endpoint on a free port.
    pub async fn start(keys: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let issuer = Self::new(&format!("http://{}", listener.local_addr().expect("an address")), keys);
        let routes = issuer.router().merge(
            Router::new()
                .route("/moved", get(|| async { Redirect::temporary("/jwks.json") }))
                .route("/token", post(token))
                .with_state(issuer.clone()),
        );
        tokio::spawn(async move { axum::serve(listener, routes).await });
        issuer
    }

    /// Returns the routes of the discovery document and the keys.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/jwks.json", get(jwks))
            .with_state(self.clone())
    }

    /// Changes the issuer's responses.
    pub fn set<T>(&self, change: impl FnOnce(&mut IssuerScript) -> T) -> T {
        change(&mut self.script.lock().expect("not poisoned"))
    }

    /// Publishes exactly these keys.
    pub fn publish(&self, keys: &[&Signer]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        self.set(|script| script.jwks = json!({"keys": keys}));
    }

    /// Returns the number of requests for the discovery document since the last call of this method.
    pub fn asked(&self) -> u32 {
        self.set(|script| std::mem::take(&mut script.asked))
    }
}

async fn discovery(State(issuer): State<TestIssuer>) -> Response {
    issuer.set(|script| script.asked += 1);
    answered(&issuer, |script| &script.discovery).await
}

async fn jwks(State(issuer): State<TestIssuer>) -> Response {
    answered(&issuer, |script| &script.jwks).await
}

async fn answered(issuer: &TestIssuer, body: impl FnOnce(&IssuerScript) -> &Value) -> Response {
    tokio::time::sleep(issuer.set(|script| script.delay)).await;
    issuer.set(|script| {
        if script.up {
            Json(body(script)).into_response()
        } else {
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    })
}

async fn token(State(issuer): State<TestIssuer>, Form(form): Form<Parameters>) -> Response {
    let (status, body) = issuer.set(|script| {
        script.form = form;
        (script.token)(&script.form)
    });
    let status = StatusCode::from_u16(status).expect("a status");
    (status, [(header::LOCATION, "/jwks.json")], body).into_response()
}
