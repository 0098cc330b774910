//! For tests: an OpenID Connect issuer on a loopback port, the keys that it signs with, and what was logged meanwhile.

use crate::{Env, SessionSettings, Sessions, boot::subscriber, metrics::NAMESPACE};
use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use axum::{
    Form, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Redirect, Response},
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_domain::Timestamp;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::net::TcpListener;
use tracing::subscriber::DefaultGuard;

/// A key pair that the issuer may publish.
pub(crate) struct Signer {
    kid: Option<&'static str>,
    pair: Pair,
}

enum Pair {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

impl Signer {
    pub(crate) fn es256(kid: &'static str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self {
            kid: Some(kid),
            pair: Pair::Es256(pair),
        }
    }

    pub(crate) fn rs256(kid: &'static str) -> Self {
        Self {
            kid: Some(kid),
            pair: Pair::Rs256(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()),
        }
    }

    /// The same key, which goes without a name.
    pub(crate) fn unnamed(self) -> Self {
        Self { kid: None, ..self }
    }

    fn alg(&self) -> &'static str {
        match self.pair {
            Pair::Es256(_) => "ES256",
            Pair::Rs256(_) => "RS256",
        }
    }

    /// The public key as the issuer publishes it.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Es256(pair) => {
                // SEC 1 §2.3.3: 4, then both coordinates.
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
        if let Some(kid) = self.kid {
            jwk["kid"] = json!(kid);
        }
        jwk
    }

    /// The bytes of the public key, as somebody who mistakes them for a shared secret would use them.
    pub(crate) fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Es256(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Rs256(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let mut header = json!({"typ": "JWT", "alg": self.alg()});
        if let Some(kid) = self.kid {
            header["kid"] = json!(kid);
        }
        self.token_with(&header, claims)
    }

    /// A token with this header, whatever it says; the signature is this key's.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        token_with(header, claims, |message| self.sign(message))
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Es256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }
}

/// A token of any kind (RFC 7515 §3.1).
pub(crate) fn token_with(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
    let signature = encoded(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// What the issuer answers from now on.
pub(crate) struct Script {
    /// Whether it answers at all, and not 503.
    pub(crate) up: bool,
    /// How long an answer takes.
    pub(crate) delay: Duration,
    /// Its description.
    pub(crate) discovery: Value,
    /// Its keys.
    pub(crate) jwks: Value,
    /// The token endpoint's answer.
    pub(crate) token: (u16, String),
    /// How often it was asked for its keys, or would have been, had it answered before.
    pub(crate) asked: u32,
    /// The last form that the token endpoint was sent.
    pub(crate) form: BTreeMap<String, String>,
}

/// An issuer that answers at `address`.
#[derive(Clone)]
pub(crate) struct TestIssuer {
    pub(crate) address: String,
    script: Arc<Mutex<Script>>,
}

impl TestIssuer {
    pub(crate) const CLIENT: &'static str = "purser-dashboard";

    /// An issuer with these keys.
    pub(crate) async fn start(keys: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let script = Script {
            up: true,
            delay: Duration::ZERO,
            discovery: json!({
                "issuer": address,
                "authorization_endpoint": format!("{address}/authorize"),
                "token_endpoint": format!("{address}/token"),
                "end_session_endpoint": format!("{address}/end"),
                "jwks_uri": format!("{address}/keys"),
            }),
            jwks: json!({}),
            token: (500, String::new()),
            asked: 0,
            form: BTreeMap::new(),
        };
        let issuer = Self {
            address,
            script: Arc::new(Mutex::new(script)),
        };
        issuer.publish(keys);
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(jwks))
            .route("/moved", get(|| async { Redirect::temporary("/keys") }))
            .route("/token", post(token))
            .with_state(issuer.clone());
        tokio::spawn(async { axum::serve(listener, routes).await.unwrap() });
        issuer
    }

    /// Changes what it answers.
    pub(crate) fn set<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.script.lock().unwrap())
    }

    pub(crate) fn publish(&self, keys: &[&Signer]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        self.set(|script| script.jwks = json!({"keys": keys}));
    }

    /// How often it was asked since the last time.
    pub(crate) fn asked(&self) -> u32 {
        self.set(|script| std::mem::take(&mut script.asked))
    }

    /// What verifies its sessions.
    pub(crate) async fn sessions(&self, now: Timestamp) -> Sessions {
        Sessions::new(settings(&self.address).unwrap(), now).await.unwrap()
    }
}

pub(crate) fn settings(issuer: &str) -> Result<SessionSettings, String> {
    let variables = [("OIDC_ISSUER", issuer), ("OIDC_CLIENT_ID", TestIssuer::CLIENT)];
    let mut env: Env = variables.into_iter().collect();
    let settings = SessionSettings::from_env(&mut env);
    env.finish(settings).map_err(|error| error.to_string())
}

async fn discovery(State(issuer): State<TestIssuer>) -> Response {
    issuer.set(|script| script.asked += 1);
    answered(&issuer, |script| script.discovery.to_string()).await
}

async fn jwks(State(issuer): State<TestIssuer>) -> Response {
    answered(&issuer, |script| script.jwks.to_string()).await
}

async fn answered(issuer: &TestIssuer, body: impl FnOnce(&Script) -> String) -> Response {
    tokio::time::sleep(issuer.set(|script| script.delay)).await;
    issuer.set(|script| {
        if script.up {
            body(script).into_response()
        } else {
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    })
}

async fn token(State(issuer): State<TestIssuer>, Form(form): Form<BTreeMap<String, String>>) -> Response {
    issuer.set(|script| {
        script.form = form;
        let status = StatusCode::from_u16(script.token.0).unwrap();
        let location = ("location", "/keys");
        (status, [location], script.token.1.clone()).into_response()
    })
}

/// The log of one test, from its making to its end.
pub(crate) struct Logged {
    bytes: Bytes,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logged {
    pub(crate) fn start() -> Self {
        Self::start_in(NAMESPACE)
    }

    /// The same with metrics of that namespace.
    pub(crate) fn start_in(namespace: &str) -> Self {
        let bytes = Bytes::default();
        let writer = bytes.clone();
        let lines = subscriber("trace,hyper=off,h2=off", namespace, move || writer.clone());
        let guard = tracing::subscriber::set_default(lines);
        Self { bytes, _guard: guard }
    }

    /// The text since the last time.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.bytes.0.lock().unwrap())).unwrap()
    }
}
