//! A test identity provider that signs users' tokens.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_domain::Timestamp;
use purser_testkit::{Parameters, Signer, TestIssuer};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone)]
pub(crate) struct Issuer {
    pub(crate) url: String,
    key: Arc<Signer>,
    micros: Arc<AtomicI64>,
    /// The number of codes that were sent to the token endpoint.
    pub(crate) redeemed: Arc<AtomicU32>,
    /// Additional claims in every issued token.
    pub(crate) claims: Arc<Mutex<Value>>,
}

impl Issuer {
    pub(crate) async fn start(micros: Arc<AtomicI64>) -> Self {
        let key = Arc::new(Signer::es256("k"));
        let stand_in = TestIssuer::start(&[&key]).await;
        let issuer = Self {
            url: stand_in.address.clone(),
            key,
            micros,
            redeemed: Arc::default(),
            claims: Arc::new(Mutex::new(json!({}))),
        };
        let redeemer = issuer.clone();
        stand_in.set(|script| {
            // The identity provider has no sessions, so sign-out ends at Purser's page.
            script.discovery["end_session_endpoint"].take();
            script.token = Box::new(move |form| redeemer.redeem(form));
        });
        issuer
    }

    /// The token endpoint. A code is `<sub>.<nonce>.<challenge>`, with the PKCE challenge.
    fn redeem(&self, form: &Parameters) -> (u16, String) {
        self.redeemed.fetch_add(1, Ordering::SeqCst);
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
        let known = [
            ("grant_type", "authorization_code"),
            ("client_id", "dashboard"),
            ("redirect_uri", "http://127.0.0.1:3000/dashboard/callback"),
        ];
        let parts: Vec<&str> = form["code"].split('.').collect();
        let (status, body) = match parts.as_slice() {
            [sub, nonce, of] if *of == challenge && known.iter().all(|(name, value)| form[*name] == *value) => {
                let now = Timestamp::from_micros(self.micros.load(Ordering::SeqCst)).unwrap();
                let more = self.claims.lock().unwrap().clone();
                let token = self.signed(sub, now, Some(nonce), &more);
                (200, json!({"id_token": token, "token_type": "Bearer"}))
            }
            _ => (400, json!({"error": "invalid_grant"})),
        };
        (status, body.to_string())
    }

    /// Signs an ID token for this user that expires in an hour.
    pub(crate) fn token(&self, sub: &str, now: Timestamp) -> String {
        self.token_with(sub, now, &json!({}))
    }

    pub(crate) fn token_with(&self, sub: &str, now: Timestamp, more: &Value) -> String {
        self.signed(sub, now, None, more)
    }

    fn signed(&self, sub: &str, now: Timestamp, nonce: Option<&str>, more: &Value) -> String {
        let now = now.secs();
        let mut claims = json!({
            "iss": self.url, "aud": "dashboard", "sub": sub, "iat": now, "exp": now + 3_600, "nonce": nonce, "name": sub,
        });
        claims
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.key.token(&claims)
    }
}
