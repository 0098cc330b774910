//! An OpenID Connect issuer, and a Secrets Manager, as far as the group asks them for anything.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::extract::Json;
use axum::routing::{get, post};
use axum::{Router, body::Bytes};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_domain::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::net::TcpListener;

pub struct Issuer {
    pub url: String,
    pair: EcdsaKeyPair,
}

impl Issuer {
    pub async fn start() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        // SEC 1 §2.3.3: 4, then both coordinates.
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let jwk = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k", "x": encoded(x), "y": encoded(y)});
        let (listener, url) = listen().await;
        let provider = json!({
            "issuer": url, "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"), "jwks_uri": format!("{url}/keys"),
        });
        let keys = json!({"keys": [jwk]});
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(async || Json(provider)))
            .route("/keys", get(async || Json(keys)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, pair }
    }

    /// A session of that person, which ends in an hour.
    pub fn token(&self, sub: &str, now: Timestamp) -> String {
        let now = now.secs();
        let header = json!({"typ": "JWT", "alg": "ES256", "kid": "k"});
        let claims = json!({"iss": self.url, "aud": "dashboard", "sub": sub, "iat": now, "exp": now + 3_600});
        let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", encoded(signature.as_ref()))
    }
}

/// A Secrets Manager that knows these, and its address.
pub async fn secrets<const N: usize>(known: [(&'static str, String); N]) -> String {
    let known = BTreeMap::from(known);
    let answer = async move |body: Bytes| {
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let text = &known[asked["SecretId"].as_str().unwrap()];
        Json(json!({"SecretString": text}))
    };
    let (listener, url) = listen().await;
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(answer))).await });
    url
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
