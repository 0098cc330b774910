//! The public keys of statements (RFC 7517). Only ES256 and `EdDSA` are supported.

use crate::json::parse_json;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::{
    AlgorithmParameters, CommonParameters, EllipticCurve, EllipticCurveKeyParameters, EllipticCurveKeyType,
    Jwk as LibraryJwk, KeyAlgorithm, OctetKeyPairParameters, OctetKeyPairType, PublicKeyUse, ThumbprintHash,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a key or a key set is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwkError {
    /// The text is not a JSON Web Key Set.
    #[error("the key set is unreadable: {0}")]
    Unreadable(String),
    /// The bytes are not a valid public key: neither a point on P-256 nor an Ed25519 key.
    #[error("the key is not a point on its curve")]
    Point,
    /// The `kid` is not the key's thumbprint.
    #[error("`kid` is not the key's thumbprint (RFC 7638)")]
    Kid,
    /// Two keys have the same `kid`.
    #[error("the key set contains a key twice")]
    Twice,
}

/// A public key: a P-256 point or an Ed25519 key. The `kid` is the thumbprint (RFC 7638, SHA-256).
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Jwk {
    published: LibraryJwk,
    #[serde(skip)]
    kid: String,
    #[serde(skip)]
    algorithm: Algorithm,
    #[serde(skip)]
    key: DecodingKey,
}

impl PartialEq for Jwk {
    fn eq(&self, other: &Self) -> bool {
        self.kid == other.kid
    }
}

impl Eq for Jwk {}

impl Jwk {
    /// Creates a key from an uncompressed P-256 point (SEC 1 §2.3.3: 0x04, x, y).
    pub fn from_p256_point(point: &[u8; 65]) -> Result<Self, JwkError> {
        let [form, coordinates @ ..] = point;
        let (x, y) = coordinates.split_at(32);
        if *form != 0x04 {
            return Err(JwkError::Point);
        }
        Self::from_parameters(AlgorithmParameters::EllipticCurve(EllipticCurveKeyParameters {
            key_type: EllipticCurveKeyType::EC,
            curve: EllipticCurve::P256,
            x: URL_SAFE_NO_PAD.encode(x),
            y: URL_SAFE_NO_PAD.encode(y),
        }))
    }

    /// Creates a key from an Ed25519 public key (RFC 8037 §2).
    pub fn from_ed25519_key(key: &[u8; 32]) -> Result<Self, JwkError> {
        Self::from_parameters(AlgorithmParameters::OctetKeyPair(OctetKeyPairParameters {
            key_type: OctetKeyPairType::OctetKeyPair,
            curve: EllipticCurve::Ed25519,
            x: URL_SAFE_NO_PAD.encode(key),
        }))
    }

    fn from_parameters(parameters: AlgorithmParameters) -> Result<Self, JwkError> {
        let (algorithm, name) = match parameters {
            AlgorithmParameters::EllipticCurve(_) => (Algorithm::ES256, KeyAlgorithm::ES256),
            _ => (Algorithm::EdDSA, KeyAlgorithm::EdDSA),
        };
        let mut jwk = LibraryJwk {
            common: CommonParameters {
                public_key_use: Some(PublicKeyUse::Signature),
                key_algorithm: Some(name),
                ..CommonParameters::default()
            },
            algorithm: parameters,
        };
        let key = DecodingKey::from_jwk(&jwk).map_err(|_| JwkError::Point)?;
        let curve: &'static dyn VerificationAlgorithm = match algorithm {
            Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
            _ => &ED25519,
        };
        let bytes = key.try_get_as_bytes().map_err(|_| JwkError::Point)?;
        UnparsedPublicKey::new(curve, bytes)
            .parse()
            .map_err(|_| JwkError::Point)?;
        let kid = jwk.thumbprint(ThumbprintHash::SHA256).map_err(|_| JwkError::Point)?;
        jwk.common.key_id = Some(kid.clone());
        Ok(Self {
            published: jwk,
            kid,
            algorithm,
            key,
        })
    }

    /// Parses one key of a set. Returns `None` for an unsupported kind of key, which readers ignore (RFC 7517 §5).
    fn from_json(value: &Value) -> Result<Option<Self>, JwkError> {
        let known = |key_type: &str, curve: &str, algorithm: &str| {
            let is = |name: &str, wanted: &str| value.get(name).and_then(Value::as_str) == Some(wanted);
            is("kty", key_type) && is("crv", curve) && (value.get("alg").is_none() || is("alg", algorithm))
        };
        let coordinate = |name: &str| -> Result<[u8; 32], JwkError> {
            let text = value.get(name).and_then(Value::as_str).unwrap_or_default();
            let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| JwkError::Point)?;
            bytes.try_into().map_err(|_| JwkError::Point)
        };
        let key = if known("EC", "P-256", "ES256") {
            let mut point = [0x04; 65];
            let (_, coordinates) = point.split_at_mut(1);
            let (x, y) = coordinates.split_at_mut(32);
            x.copy_from_slice(&coordinate("x")?);
            y.copy_from_slice(&coordinate("y")?);
            Self::from_p256_point(&point)?
        } else if known("OKP", "Ed25519", "EdDSA") {
            Self::from_ed25519_key(&coordinate("x")?)?
        } else {
            return Ok(None);
        };
        match value.get("kid") {
            Some(kid) if kid.as_str() == Some(key.thumbprint()) => Ok(Some(key)),
            _ => Err(JwkError::Kid),
        }
    }

    /// Returns the key's thumbprint (RFC 7638), which identifies the key in statements.
    pub fn thumbprint(&self) -> &str {
        &self.kid
    }

    pub(crate) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns whether `signature`, in base64url, is a valid signature of the message by this key.
    pub(crate) fn verifies(&self, signature: &str, message: &[u8]) -> bool {
        jsonwebtoken::crypto::verify(signature, message, &self.key, self.algorithm).unwrap_or(false)
    }
}

/// The public keys that verify statements. The serialized form is a JSON Web Key Set (RFC 7517 §5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JwkSet {
    keys: Vec<Jwk>,
}

impl JwkSet {
    /// Creates a set from the current signing key and the older keys. Repeated keys are dropped.
    pub fn new(current: Jwk, older_keys: impl IntoIterator<Item = Jwk>) -> Self {
        let mut keys = vec![current];
        for key in older_keys {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Self { keys }
    }

    /// Parses a JSON Web Key Set. Ignores keys that are neither P-256 nor Ed25519. Fails if a supported key is invalid
    /// or has a `kid` other than the key's thumbprint.
    pub fn parse(json: &str) -> Result<Self, JwkError> {
        let value = parse_json(json.as_bytes()).map_err(|error| JwkError::Unreadable(error.to_string()))?;
        Self::from_value(&value)
    }

    pub(crate) fn from_value(value: &Value) -> Result<Self, JwkError> {
        let given = value.get("keys").and_then(Value::as_array);
        let given = given.ok_or_else(|| JwkError::Unreadable("`keys` is not an array".to_owned()))?;
        let mut keys: Vec<Jwk> = Vec::new();
        for value in given {
            let Some(key) = Jwk::from_json(value)? else { continue };
            if keys.contains(&key) {
                return Err(JwkError::Twice);
            }
            keys.push(key);
        }
        Ok(Self { keys })
    }

    /// Returns the key with this thumbprint.
    pub fn find_by_thumbprint(&self, kid: &str) -> Option<&Jwk> {
        self.keys.iter().find(|key| key.thumbprint() == kid)
    }

    /// Returns the keys. In a set from [`Self::new`], the current signing key is first.
    pub fn keys(&self) -> &[Jwk] {
        &self.keys
    }
}

impl<'de> Deserialize<'de> for JwkSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(&value).map_err(serde::de::Error::custom)
    }
}
