//! Sessions of people, signed by the stand-in issuer.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use purser_domain::Timestamp;
use purser_testkit::{Parameters, Signer, TestIssuer, sample};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Issuer {
    pub(crate) url: String,
    key: Arc<Signer>,
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let key = Arc::new(Signer::es256("k"));
        let stand_in = TestIssuer::start(&[&key]).await;
        let issuer = Self {
            url: stand_in.address.clone(),
            key,
        };
        let redeemer = issuer.clone();
        stand_in.set(|script| {
            // It has no sessions of its own, so sign-out ends at our page.
            script.discovery["end_session_endpoint"].take();
            script.token = Box::new(move |form| redeemer.redeem(form));
        });
        issuer
    }

    /// The token endpoint. A code contains the person, the sign-in's nonce and the PKCE challenge:
    /// `<sub>.<nonce>.<challenge>`.
    fn redeem(&self, form: &Parameters) -> (u16, String) {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
        let known = [
            ("grant_type", "authorization_code"),
            ("client_id", "dashboard"),
            ("redirect_uri", "http://127.0.0.1:3000/dashboard/callback"),
        ];
        let parts: Vec<&str> = form["code"].split('.').collect();
        let (status, body) = match parts.as_slice() {
            [sub, nonce, of] if *of == challenge && known.iter().all(|(name, value)| form[*name] == *value) => {
                let token = self.signed(sub, sample::start(), Some(nonce));
                (200, json!({"id_token": token, "token_type": "Bearer"}))
            }
            _ => (400, json!({"error": "invalid_grant"})),
        };
        (status, body.to_string())
    }

    /// A session of that person, which expires in an hour.
    pub(crate) fn token(&self, sub: &str, now: Timestamp) -> String {
        self.signed(sub, now, None)
    }

    fn signed(&self, sub: &str, now: Timestamp, nonce: Option<&str>) -> String {
        let now = now.secs();
        self.key.token(&json!({
            "iss": self.url, "aud": "dashboard", "sub": sub, "iat": now, "exp": now + 3_600, "nonce": nonce,
        }))
    }
}
