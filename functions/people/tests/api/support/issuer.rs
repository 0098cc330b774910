//! An OpenID Connect issuer, and a Secrets Manager, as far as the group asks them for anything.

use crate::store::sample;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::extract::Json;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, body::Bytes};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_domain::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::net::TcpListener;

#[derive(Clone)]
pub(crate) struct Issuer {
    pub(crate) url: String,
    pair: Arc<EcdsaKeyPair>,
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let pair = Arc::new(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap());
        // SEC 1 §2.3.3: 4, then both coordinates.
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let jwk = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k", "x": encoded(x), "y": encoded(y)});
        let (listener, url) = listen().await;
        let provider = json!({
            "issuer": url, "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"), "jwks_uri": format!("{url}/keys"),
        });
        let keys = json!({"keys": [jwk]});
        let issuer = Self { url, pair };
        let redeemer = issuer.clone();
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(async || Json(provider)))
            .route("/keys", get(async || Json(keys)))
            .route("/token", post(async move |form: Bytes| redeemer.redeem(&form)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        issuer
    }

    /// The token endpoint. A code is whom it signs in, for which sign-in, and who may redeem it:
    /// `<sub>.<nonce>.<challenge>`.
    fn redeem(&self, form: &[u8]) -> (StatusCode, Json<Value>) {
        let form: BTreeMap<_, _> = url::form_urlencoded::parse(form).into_owned().collect();
        let challenge = encoded(Sha256::digest(&form["code_verifier"]));
        let known = [
            ("grant_type", "authorization_code"),
            ("client_id", "dashboard"),
            ("redirect_uri", "http://127.0.0.1:3000/dashboard/callback"),
        ];
        let parts: Vec<&str> = form["code"].split('.').collect();
        match parts.as_slice() {
            [sub, nonce, of] if *of == challenge && known.iter().all(|(name, value)| form[*name] == *value) => {
                let token = self.signed(sub, sample::start(), Some(nonce));
                (StatusCode::OK, Json(json!({"id_token": token, "token_type": "Bearer"})))
            }
            _ => (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))),
        }
    }

    /// A session of that person, which ends in an hour.
    pub(crate) fn token(&self, sub: &str, now: Timestamp) -> String {
        self.signed(sub, now, None)
    }

    fn signed(&self, sub: &str, now: Timestamp, nonce: Option<&str>) -> String {
        let now = now.secs();
        let header = json!({"typ": "JWT", "alg": "ES256", "kid": "k"});
        let claims = json!({
            "iss": self.url, "aud": "dashboard", "sub": sub, "iat": now, "exp": now + 3_600, "nonce": nonce,
        });
        let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", encoded(signature.as_ref()))
    }
}

/// A Secrets Manager that knows these, and its address.
pub(crate) async fn secrets<const N: usize>(known: [(&'static str, String); N]) -> String {
    let known = BTreeMap::from(known);
    let answer = async move |body: Bytes| {
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let ids = asked["SecretIdList"].as_array().unwrap().iter();
        let values = ids.map(|id| json!({"ARN": id, "SecretString": known[id.as_str().unwrap()]}));
        Json(json!({"SecretValues": values.collect::<Vec<_>>()}))
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
