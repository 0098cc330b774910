//! The signing key, and the JWTs that it signs (RFC 7515, 7517, 7518 §3.4).

use super::base64url;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use purser_domain::{Error, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// ECDSA over P-256 with SHA-256.
pub(super) const ALGORITHM: &str = "ES256";

/// A P-256 key.
pub(super) struct SigningKey {
    pair: EcdsaKeyPair,
    x: String,
    y: String,
    id: String,
}

impl SigningKey {
    /// A new key.
    pub(super) fn generate() -> Result<Self> {
        const DOING: &str = "making the issuer's key";
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        let pair = pair.map_err(|error| Error::internal(DOING, error))?;
        // An uncompressed point: 4, then 32 bytes each for x and y (SEC 1 §2.3.3).
        let (x, y) = match pair.public_key().as_ref() {
            [4, point @ ..] => point.split_at_checked(32),
            _ => None,
        }
        .ok_or_else(|| Error::internal(DOING, "its public half has another form"))?;
        let (x, y) = (base64url(x), base64url(y));
        // The thumbprint (RFC 7638 §3): these members, in this order, without spaces.
        let thumbprint = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let id = base64url(Sha256::digest(thumbprint));
        Ok(Self { pair, x, y, id })
    }

    /// The public half, as it is published.
    pub(super) fn jwk(&self) -> Value {
        json!({
            "kty": "EC",
            "crv": "P-256",
            "x": self.x,
            "y": self.y,
            "kid": self.id,
            "use": "sig",
            "alg": ALGORITHM,
        })
    }

    /// A JWT with these claims.
    pub(super) fn sign(&self, claims: &Value) -> Result<String> {
        let header = json!({"alg": ALGORITHM, "typ": "JWT", "kid": self.id});
        let signed = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
        let signature = self
            .pair
            .sign(&SystemRandom::new(), signed.as_bytes())
            .map_err(|error| Error::internal("signing a token", error))?;
        Ok(format!("{signed}.{}", base64url(signature)))
    }
}
