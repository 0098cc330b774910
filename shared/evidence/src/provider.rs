//! The `offer-receipt` objects of a provider (x402 extension `offer-receipt`): a signed offer in the answer 402, and a
//! signed receipt in the answer to the paid call.
//!
//! An object is signed by EIP-712, with the domain `x402 offer` or `x402 receipt`, version 1 and chain 1, or it is a JWS
//! over its payload. Any EIP-712 signature recovers some address, so it proves something only about the address that a
//! reader expects. A JWS proves that the key of its `kid` signed; whose key that is, the object can't say.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use k256::ecdsa::signature::Verifier as _;
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha3::{Digest as _, Keccak256};
use std::fmt;

/// The kind of a provider's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderObject {
    /// The price, before the payment.
    Offer,
    /// The confirmation of the paid call.
    Receipt,
}

/// Who signed a provider's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderSigner {
    /// The address that the signature recovers, in lowercase.
    Address(String),
    /// The key that this `kid` contains (`did:key` or `did:jwk`). Its signature is valid.
    Key(String),
    /// The key of this `kid`, which has to be fetched to verify the signature.
    Unknown(String),
}

/// A provider's object with a signature that is valid, unless its signer is [`ProviderSigner::Unknown`].
#[derive(Clone, Debug, PartialEq)]
pub struct SignedByProvider {
    /// The payload.
    pub payload: Value,
    /// Who signed it.
    pub signer: ProviderSigner,
}

/// Why a provider's object is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The object is neither a JWS nor EIP-712 with the members of its kind.
    #[error("it is no signed object of the extension `offer-receipt`")]
    Form,
    /// The signature is not the key's, or recovers no address.
    #[error("its signature is invalid")]
    Signature,
}

#[derive(Deserialize)]
#[serde(tag = "format", rename_all = "lowercase")]
enum Object {
    Jws { signature: String },
    Eip712 { payload: Value, signature: String },
}

/// A member of a structure of EIP-712.
#[derive(Clone, Copy)]
enum Member {
    Text(&'static str),
    Number(&'static str),
}

use Member::{Number, Text};

impl ProviderObject {
    /// The word in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offer => "offer",
            Self::Receipt => "receipt",
        }
    }

    const fn domain(self) -> &'static str {
        match self {
            Self::Offer => "x402 offer",
            Self::Receipt => "x402 receipt",
        }
    }

    const fn structure(self) -> &'static str {
        match self {
            Self::Offer => {
                "Offer(uint256 version,string resourceUrl,string scheme,string network,string asset,string payTo,\
                 string amount,uint256 validUntil)"
            }
            Self::Receipt => {
                "Receipt(uint256 version,string network,string resourceUrl,string payer,uint256 issuedAt,\
                 string transaction)"
            }
        }
    }

    /// The members, in the order of the structure.
    const fn members(self) -> &'static [Member] {
        match self {
            Self::Offer => &[
                Number("version"),
                Text("resourceUrl"),
                Text("scheme"),
                Text("network"),
                Text("asset"),
                Text("payTo"),
                Text("amount"),
                Number("validUntil"),
            ],
            Self::Receipt => &[
                Number("version"),
                Text("network"),
                Text("resourceUrl"),
                Text("payer"),
                Number("issuedAt"),
                Text("transaction"),
            ],
        }
    }

    /// Verifies an object of this kind: `{"format": "eip712", "payload", "signature"}` or `{"format": "jws",
    /// "signature"}`. Other members are ignored.
    pub fn verify(self, object: &Value) -> Result<SignedByProvider, ProviderError> {
        match Object::deserialize(object).map_err(|_| ProviderError::Form)? {
            Object::Eip712 { payload, signature } => {
                let address = recovered(&signature, &self.digest(&payload)?)?;
                let signer = ProviderSigner::Address(address);
                Ok(SignedByProvider { payload, signer })
            }
            Object::Jws { signature } => verify_jws(&signature),
        }
    }

    /// The digest that is signed (EIP-712, "Definition of `encode`").
    fn digest(self, payload: &Value) -> Result<[u8; 32], ProviderError> {
        let mut domain = keccak(b"EIP712Domain(string name,string version,uint256 chainId)").to_vec();
        domain.extend(keccak(self.domain().as_bytes()));
        domain.extend(keccak(b"1"));
        domain.extend(word(1));
        let mut structure = keccak(self.structure().as_bytes()).to_vec();
        for member in self.members() {
            match member {
                Text(name) => {
                    let text = payload.get(name).and_then(Value::as_str).ok_or(ProviderError::Form)?;
                    structure.extend(keccak(text.as_bytes()));
                }
                Number(name) => {
                    let number = payload.get(name).and_then(Value::as_u64).ok_or(ProviderError::Form)?;
                    structure.extend(word(number));
                }
            }
        }
        let signed = [&b"\x19\x01"[..], &keccak(&domain), &keccak(&structure)].concat();
        Ok(keccak(&signed))
    }
}

impl fmt::Display for ProviderSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) | Self::Key(text) | Self::Unknown(text) => f.write_str(text),
        }
    }
}

fn keccak(bytes: &[u8]) -> [u8; 32] {
    Keccak256::digest(bytes).into()
}

/// A number as 32 bytes, big-endian.
fn word(number: u64) -> [u8; 32] {
    let mut word = [0; 32];
    let (_, end) = word.split_at_mut(24);
    end.copy_from_slice(&number.to_be_bytes());
    word
}

/// The address of the key that signed a digest: `0x` and 65 bytes, r, s and v.
fn recovered(signature: &str, digest: &[u8; 32]) -> Result<String, ProviderError> {
    let digits = signature.strip_prefix("0x").ok_or(ProviderError::Form)?;
    let bytes = from_hexadecimal(digits).ok_or(ProviderError::Form)?;
    let Some(([v], scalars)) = bytes.split_last_chunk::<1>().map(|(scalars, v)| (v, scalars)) else {
        return Err(ProviderError::Form);
    };
    let parity = match v {
        0 | 27 => 0,
        1 | 28 => 1,
        _ => return Err(ProviderError::Signature),
    };
    let signature = Signature::from_slice(scalars).map_err(|_| ProviderError::Signature)?;
    let id = RecoveryId::from_byte(parity).ok_or(ProviderError::Signature)?;
    let key = VerifyingKey::recover_from_prehash(digest, &signature, id).map_err(|_| ProviderError::Signature)?;
    let point = key.to_encoded_point(false);
    // The point without its first byte; the address is the end of its hash.
    let hash = keccak(point.as_bytes().split_first().map_or(&[], |(_, rest)| rest));
    let address = hash.split_at(12).1.iter();
    Ok(address.fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}")))
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            let is_digits = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            u8::from_str_radix(pair, 16).ok().filter(|_| is_digits)
        })
        .collect()
}

/// The header of a provider's JWS. Extensions that must be understood are refused.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    #[serde(default)]
    crit: Option<Value>,
}

fn verify_jws(jws: &str) -> Result<SignedByProvider, ProviderError> {
    let form = |_| ProviderError::Form;
    let (text, signature) = jws.rsplit_once('.').ok_or(ProviderError::Form)?;
    let (header, payload) = text.split_once('.').ok_or(ProviderError::Form)?;
    let header = URL_SAFE_NO_PAD.decode(header).map_err(form)?;
    let header: Header = serde_json::from_slice(&header).map_err(|_| ProviderError::Form)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(form)?;
    let payload = serde_json::from_slice(&payload).map_err(|_| ProviderError::Form)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(form)?;
    if header.crit.is_some() {
        return Err(ProviderError::Form);
    }
    let Some(key) = Key::of(&header.kid) else {
        let signer = ProviderSigner::Unknown(header.kid);
        return Ok(SignedByProvider { payload, signer });
    };
    if key.algorithm() != header.alg || !key.is_signature(text.as_bytes(), &signature) {
        return Err(ProviderError::Signature);
    }
    let signer = ProviderSigner::Key(header.kid);
    Ok(SignedByProvider { payload, signer })
}

/// A public key that a `kid` contains.
enum Key {
    Ed25519(Vec<u8>),
    /// A point, compressed or not.
    P256(Vec<u8>),
    Secp256k1(Vec<u8>),
}

#[derive(Deserialize)]
struct KeyOfDid {
    crv: String,
    x: String,
    #[serde(default)]
    y: String,
}

impl Key {
    /// The key in a `did:key` or `did:jwk`, with or without a fragment; `None` for any other.
    fn of(kid: &str) -> Option<Self> {
        let did = kid.split('#').next()?;
        if let Some(text) = did.strip_prefix("did:jwk:") {
            let key: KeyOfDid = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
            let x = URL_SAFE_NO_PAD.decode(&key.x).ok()?;
            let y = URL_SAFE_NO_PAD.decode(&key.y).ok()?;
            let point = [&[0x04][..], &x, &y].concat();
            return match key.crv.as_str() {
                "Ed25519" => Some(Self::Ed25519(x)),
                "P-256" => Some(Self::P256(point)),
                "secp256k1" => Some(Self::Secp256k1(point)),
                _ => None,
            };
        }
        // The multicodec, as a varint, is before the key (did:key §3.1).
        let bytes = from_base58(did.strip_prefix("did:key:z")?)?;
        match bytes.split_at_checked(2)? {
            ([0xed, 0x01], key) => Some(Self::Ed25519(key.to_vec())),
            ([0x80, 0x24], key) => Some(Self::P256(key.to_vec())),
            ([0xe7, 0x01], key) => Some(Self::Secp256k1(key.to_vec())),
            _ => None,
        }
    }

    const fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::P256(_) => "ES256",
            Self::Secp256k1(_) => "ES256K",
        }
    }

    fn is_signature(&self, message: &[u8], signature: &[u8]) -> bool {
        let is_valid = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key)
                .verify(message, signature)
                .is_ok()
        };
        match self {
            Self::Ed25519(key) => is_valid(&ED25519, key),
            Self::P256(key) => is_valid(&ECDSA_P256_SHA256_FIXED, key),
            Self::Secp256k1(key) => {
                // The library refuses the high s, about which JWS has no rule.
                let signature = Signature::from_slice(signature);
                let signature = signature.map(|signature| signature.normalize_s().unwrap_or(signature));
                let verified = VerifyingKey::from_sec1_bytes(key).and_then(|key| key.verify(message, &signature?));
                verified.is_ok()
            }
        }
    }
}

/// Decodes base58 with the alphabet of Bitcoin. `None` for another digit, or for a text that is longer than any key's.
fn from_base58(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    if text.len() > 128 {
        return None;
    }
    // Little-endian.
    let mut bytes: Vec<u8> = Vec::new();
    for digit in text.bytes() {
        let mut carry = u32::try_from(DIGITS.iter().position(|known| *known == digit)?).ok()?;
        for byte in &mut bytes {
            carry = u32::from(*byte).saturating_mul(58).saturating_add(carry);
            let [low, ..] = carry.to_le_bytes();
            *byte = low;
            carry >>= 8;
        }
        while carry > 0 {
            let [low, ..] = carry.to_le_bytes();
            bytes.push(low);
            carry >>= 8;
        }
    }
    let zeros = text.bytes().take_while(|digit| *digit == b'1').count();
    bytes.extend(std::iter::repeat_n(0, zeros));
    bytes.reverse();
    Some(bytes)
}
