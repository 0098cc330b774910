//! Statements: JWS compact serializations (RFC 7515 §7.1) with any payload.
//!
//! Statements are signed with ES256. Verification also accepts `EdDSA` for older statements, and only one text form of
//! each statement.
//!
//! ES256 signatures are malleable: (r, n − s) is also valid, and anybody can compute it. Therefore the log contains the
//! exact bytes, and a statement's hash does not identify the statement.

use crate::jwk::{Jwk, JwkError, JwkSet};
use crate::seed::{Seed, SeedError};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{EcdsaKeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use der::{Decode as _, Reader as _, SliceReader, asn1::UintRef};
use jsonwebtoken::Algorithm;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::future::Future;

/// The maximum length of a statement, in bytes. The length of a log entry has 16 bits (c2sp.org/tlog-tiles).
pub const MAX_STATEMENT_BYTES: usize = 65_535;

/// The kind of a statement: the header's `typ` (RFC 7515 §4.1.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// A decision about a payment, including denials.
    Decision,
    /// A receipt for a payment.
    Receipt,
    /// A withdrawal, or a later change of a payment, withdrawal or approval request.
    Change,
}

impl StatementKind {
    /// Returns the value of the header parameter `typ`: a media type without the prefix `application/`.
    pub const fn typ(self) -> &'static str {
        match self {
            Self::Decision => "purser-decision+jwt",
            Self::Receipt => "purser-receipt+jwt",
            Self::Change => "purser-change+jwt",
        }
    }

    /// Returns the kind with this `typ`.
    pub fn from_typ(typ: &str) -> Option<Self> {
        [Self::Decision, Self::Receipt, Self::Change]
            .into_iter()
            .find(|kind| kind.typ() == typ)
    }
}

/// Why a statement can't be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError<E> {
    /// The statement would be longer than [`MAX_STATEMENT_BYTES`].
    #[error("the statement is longer than {MAX_STATEMENT_BYTES} bytes")]
    TooLong,
    /// The signer failed.
    #[error("the statement can't be signed")]
    Signer(#[source] E),
    /// The signature is by another key than the statement's header names.
    #[error("the signature is not by the key in the statement's header")]
    OtherKey,
}

impl<E> SignError<E> {
    /// Converts the signer's error.
    pub fn map_signer_error<F>(self, map: impl FnOnce(E) -> F) -> SignError<F> {
        match self {
            Self::TooLong => SignError::TooLong,
            Self::Signer(error) => SignError::Signer(map(error)),
            Self::OtherKey => SignError::OtherKey,
        }
    }
}

/// The protected header. Any other field is rejected, including `crit`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    alg: AllowedAlgorithms,
    #[serde(borrow)]
    kid: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    typ: std::borrow::Cow<'a, str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum AllowedAlgorithms {
    ES256,
    EdDSA,
}

impl AllowedAlgorithms {
    const fn for_key(key: &Jwk) -> Self {
        match key.algorithm() {
            Algorithm::ES256 => Self::ES256,
            _ => Self::EdDSA,
        }
    }
}

/// Returns the signed part of a statement (RFC 7515 §5.1): the header, a dot and the payload, in base64url.
fn signing_input<E>(key: &Jwk, typ: &str, payload: &[u8]) -> Result<String, SignError<E>> {
    let header = Header {
        alg: AllowedAlgorithms::for_key(key),
        kid: key.thumbprint().into(),
        typ: typ.into(),
    };
    // The fields are an enum and strings, so serialization can't fail.
    let header = serde_json::to_vec(&header).map_err(|_| SignError::TooLong)?;
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    // A dot and the 64 bytes of the signature, which are 86 characters in base64.
    if text.len() > MAX_STATEMENT_BYTES.saturating_sub(87) {
        return Err(SignError::TooLong);
    }
    Ok(text)
}

fn assemble_statement<E>(key: &Jwk, signing_input: &str, signature: &[u8; 64]) -> Result<String, SignError<E>> {
    let signature = URL_SAFE_NO_PAD.encode(signature);
    if !key.verifies(&signature, signing_input.as_bytes()) {
        return Err(SignError::OtherKey);
    }
    Ok(format!("{signing_input}.{signature}"))
}

/// A key that signs statements with ES256. Signing the same payload again yields a different statement.
pub struct StatementKey {
    key: EcdsaKeyPair,
    jwk: Jwk,
}

impl StatementKey {
    /// Creates the key from a seed. Fails if the seed is not a valid P-256 key.
    pub fn new(seed: &Seed) -> Result<Self, SeedError> {
        let key = seed.derive_p256()?;
        let public = key.public_key().as_ref().try_into().map_err(|_| SeedError)?;
        let jwk = Jwk::from_p256_point(public).map_err(|_: JwkError| SeedError)?;
        Ok(Self { key, jwk })
    }

    /// Returns the public key that verifies the statements.
    pub const fn jwk(&self) -> &Jwk {
        &self.jwk
    }

    /// Signs a payload, which should be a JSON document.
    pub fn sign(&self, kind: StatementKind, payload: &[u8]) -> Result<String, SignError<SeedError>> {
        let text = signing_input(&self.jwk, kind.typ(), payload)?;
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.map_err(|_| SignError::Signer(SeedError))?;
        let signature = signature
            .as_ref()
            .try_into()
            .map_err(|_| SignError::Signer(SeedError))?;
        assemble_statement(&self.jwk, &text, signature)
    }
}

/// Omits the secret, because debug output may be logged.
impl fmt::Debug for StatementKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatementKey({})", self.jwk.thumbprint())
    }
}

/// A P-256 ECDSA signature: r and s, 32 bytes each (RFC 7518 §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcdsaSignature([u8; 64]);

impl EcdsaSignature {
    /// Creates a signature from r and s, big-endian.
    pub const fn new(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Parses the DER form of KMS signatures (RFC 3279 §2.2.3). Returns `None` unless the DER is canonical. A high s is
    /// valid, because JWS has no rule against it.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let mut reader = SliceReader::new(der).ok()?;
        let (r, s) = reader
            .sequence(|inner| Ok((UintRef::decode(inner)?, UintRef::decode(inner)?)))
            .ok()?;
        reader.finish(()).ok()?;
        let mut bytes = [0; 64];
        let (first, second) = bytes.split_at_mut(32);
        for (to, from) in [(first, r), (second, s)] {
            let from = from.as_bytes();
            let at = to.len().checked_sub(from.len())?;
            to.get_mut(at..)?.copy_from_slice(from);
        }
        Some(Self(bytes))
    }
}

/// Signs digests with a P-256 key, for example KMS with `MessageType: DIGEST` and `ECDSA_SHA_256`.
pub trait DigestSigner {
    /// Why a digest can't be signed.
    type Error;

    /// Signs a SHA-256 digest.
    fn sign(&self, digest: [u8; 32]) -> impl Future<Output = Result<EcdsaSignature, Self::Error>> + Send;
}

/// Signs a payload, which should be a JSON document, with ES256. The signature is verified, so that a signature by a
/// wrong key is detected.
pub async fn sign_es256<S: DigestSigner>(
    signer: &S,
    key: &Jwk,
    kind: StatementKind,
    payload: &[u8],
) -> Result<String, SignError<S::Error>> {
    let text = signing_input(key, kind.typ(), payload)?;
    let digest = Sha256::digest(text.as_bytes()).into();
    let EcdsaSignature(signature) = signer.sign(digest).await.map_err(SignError::Signer)?;
    assemble_statement(key, &text, &signature)
}

/// Why a statement is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// The text is not a JWS compact serialization in canonical form.
    #[error(
        "the statement is not a JWS compact serialization: three parts in base64url, without padding or line break"
    )]
    Spelling,
    /// The algorithm is neither ES256 nor `EdDSA`, or the header has other fields than `alg`, `kid` and `typ`.
    #[error("the statement's header is not `alg` (ES256 or EdDSA), `kid` and `typ`")]
    Header,
    /// The key set has no key with the statement's `kid`.
    #[error("the statement's key is not in the key set")]
    UnknownKey,
    /// The signature was not made with the key that the statement's `kid` identifies.
    #[error("the statement's signature is invalid")]
    Signature,
}

/// A statement with a valid signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedStatement {
    typ: String,
    kid: String,
    payload: Vec<u8>,
}

impl VerifiedStatement {
    /// Returns the kind of the statement, or `None` if the `typ` is unknown.
    pub fn kind(&self) -> Option<StatementKind> {
        StatementKind::from_typ(&self.typ)
    }

    /// Returns the header's `typ`.
    pub fn typ(&self) -> &str {
        &self.typ
    }

    /// Returns the thumbprint of the signing key.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Returns the exact bytes of the payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

impl JwkSet {
    /// Verifies a statement. The text must be exactly the serialization, without a line break at the end.
    pub fn verify(&self, statement: &str) -> Result<VerifiedStatement, StatementError> {
        let (text, signature) = statement.rsplit_once('.').ok_or(StatementError::Spelling)?;
        let (header, payload) = text.split_once('.').ok_or(StatementError::Spelling)?;
        // The decoder rejects padding, spare bits and characters outside the alphabet, including a third dot.
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| StatementError::Spelling);
        let (header, payload) = (decoded(header)?, decoded(payload)?);
        if decoded(signature)?.len() != 64 || statement.len() > MAX_STATEMENT_BYTES {
            return Err(StatementError::Spelling);
        }
        let header: Header<'_> = serde_json::from_slice(&header).map_err(|_| StatementError::Header)?;
        let key = self.find_by_thumbprint(&header.kid).ok_or(StatementError::UnknownKey)?;
        // The key determines the algorithm, so a statement can't choose a weaker one.
        if AllowedAlgorithms::for_key(key) != header.alg {
            return Err(StatementError::Header);
        }
        if !key.verifies(signature, text.as_bytes()) {
            return Err(StatementError::Signature);
        }
        Ok(VerifiedStatement {
            typ: header.typ.into_owned(),
            kid: header.kid.into_owned(),
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeroize::Zeroizing;

    static_assertions::assert_not_impl_any!(Seed: Serialize, PartialEq, fmt::Display);
    static_assertions::assert_not_impl_any!(StatementKey: Serialize, PartialEq, Clone, fmt::Display);

    #[test]
    fn key_derivation_matches_another_implementation() {
        let vectors: serde_json::Value = serde_json::from_str(include_str!("../tests/vectors.json")).unwrap();
        let seed = vectors["keys"]["ES256"]["private_d"].as_str().unwrap();
        let seed = URL_SAFE_NO_PAD.decode(seed).unwrap().try_into().unwrap();
        let key = StatementKey::new(&Seed::new(Zeroizing::new(seed))).unwrap();
        assert_eq!(key.jwk().thumbprint(), vectors["keys"]["ES256"]["public"]["kid"]);
        assert_eq!(format!("{key:?}"), format!("StatementKey({})", key.jwk().thumbprint()));
        let set = JwkSet::new(key.jwk().clone(), []);
        for _ in 0..100 {
            let statement = key.sign(StatementKind::Change, b"{}").unwrap();
            assert_eq!(set.verify(&statement).unwrap().payload(), b"{}");
        }
    }

    #[test]
    fn invalid_private_key_numbers_are_rejected() {
        let key = |bytes| StatementKey::new(&Seed::new(Zeroizing::new(bytes)));
        assert!(key([0; 32]).is_err());
        assert!(key([0xff; 32]).is_err());
        assert!(key([0x7f; 32]).is_ok());
    }
}
