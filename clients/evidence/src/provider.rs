//! The objects of the x402 extension `offer-receipt`: a provider's signed offer in the 402 response, and a signed
//! receipt in the response to the paid call.
//!
//! A valid signature alone proves nothing about the provider, because anybody can sign with their own key. The signer
//! must be the payee, or use a key that the resource's host publishes (`did:web`) or that the reader trusts for this
//! host ([`ProviderKey`]).

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use k256::ecdsa::signature::Verifier as _;
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
use purser_evidence::parse_json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha3::{Digest as _, Keccak256};
use std::fmt;

/// The kind of a provider's signed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderObject {
    /// An offer: the price of a call, which the provider signs before the client pays.
    Offer,
    /// A receipt: a confirmation of a paid call, which the provider signs after the call.
    Receipt,
}

/// The signer of a provider's offer or receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderSigner {
    /// The address to which the signature recovers, in lower case.
    Address(String),
    /// The key with this `kid`, with a valid signature. The key is in the `kid` or known to the reader.
    Key(String),
    /// An unknown key with this `kid`. The signature is not verified yet.
    Unknown(String),
}

impl ProviderSigner {
    /// Returns the `did:web` of the unknown key, and the host that publishes the DID document.
    pub(crate) fn missing_did(&self) -> Option<(String, String)> {
        let Self::Unknown(kid) = self else { return None };
        let did = kid.split('#').next()?;
        Some((did.to_owned(), did_host(did)?))
    }
}

/// An offer or receipt with a valid signature, unless the signer is [`ProviderSigner::Unknown`].
#[derive(Clone, Debug, PartialEq)]
pub struct SignedByProvider {
    /// The payload.
    pub payload: Value,
    /// The signer of the object.
    pub signer: ProviderSigner,
    key: Option<Key>,
}

impl SignedByProvider {
    /// Returns why the signer may sign for this payee and host. Returns `None` if nothing binds the signer to the
    /// payment.
    pub(crate) fn find_authority(
        &self,
        pay_to: Option<&str>,
        host: Option<&str>,
        keys: &[ProviderKey],
    ) -> Option<String> {
        let address = match (&self.signer, &self.key) {
            (ProviderSigner::Address(address), _) => Some(address.clone()),
            (_, Some(key)) => key.eth_address(),
            _ => None,
        };
        if let (Some(address), Some(pay_to)) = (&address, pay_to)
            && address.eq_ignore_ascii_case(pay_to)
        {
            return Some(format!("the payee {address}"));
        }
        let host = host?;
        let is_known = |known: &&ProviderKey| {
            known.host == host
                && match &known.signer {
                    KnownSigner::Address(known) => address.as_ref() == Some(known),
                    KnownSigner::Key(known) => self.key.as_ref().is_some_and(|key| key.is_same_key(known)),
                }
        };
        keys.iter().find(is_known)?;
        Some(format!("{}, a key of {host}", self.signer))
    }
}

/// A signer that the host of a resource publishes, or that the reader trusts for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderKey {
    /// The host of the resources, with the port unless it is the scheme's default port.
    host: String,
    /// The `kid` in signatures; `None` if the `kid` contains the key itself.
    kid: Option<String>,
    signer: KnownSigner,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KnownSigner {
    /// An address in lower case.
    Address(String),
    Key(Key),
}

/// Why a text or document contains no supported key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderKeyError {
    /// The text is not `did:key`, `did:jwk` or an address.
    #[error("a provider's key is `did:key:…`, `did:jwk:…` or an address")]
    Text,
    /// The document does not belong to a `did:web` without a path.
    #[error("the document's `id` is no `did:web` of a host")]
    Did,
}

impl ProviderKey {
    /// Returns whether the key is from the document of this `did:web`.
    pub fn belongs_to_did(&self, did: &str) -> bool {
        self.kid.as_ref().is_some_and(|kid| kid.split('#').next() == Some(did))
    }

    /// Creates a signer that the reader trusts for a host. `signer` is a `did:key`, a `did:jwk` or an address.
    pub fn for_host(host: &str, signer: &str) -> Result<Self, ProviderKeyError> {
        let signer = match Key::from_kid(signer) {
            Some(key) => KnownSigner::Key(key),
            None => KnownSigner::Address(parse_address(signer).ok_or(ProviderKeyError::Text)?),
        };
        let host = host.to_ascii_lowercase();
        let kid = None;
        Ok(Self { host, kid, signer })
    }

    /// Returns the signers in the document of a host's `did:web`: the supported assertion methods (DID Core §5.3.2).
    pub fn from_did_document(document: &Value) -> Result<Vec<Self>, ProviderKeyError> {
        let did = document
            .get("id")
            .and_then(Value::as_str)
            .ok_or(ProviderKeyError::Did)?;
        let host = did_host(did).ok_or(ProviderKeyError::Did)?;
        let list = |name: &str| {
            let list = document.get(name).and_then(Value::as_array);
            list.map(Vec::as_slice).unwrap_or_default()
        };
        // An id may be relative to the document's id.
        let absolute = |id: &str| match id.strip_prefix('#') {
            Some(fragment) => format!("{did}#{fragment}"),
            None => id.to_owned(),
        };
        let id_of = |method: &Value| method.get("id").and_then(Value::as_str).map(absolute);
        let mut keys = Vec::new();
        for assertion in list("assertionMethod") {
            let method = match assertion.as_str().map(absolute) {
                Some(id) => list("verificationMethod")
                    .iter()
                    .find(|method| id_of(method).as_ref() == Some(&id)),
                None => Some(assertion),
            };
            if let Some(method) = method
                && let Some(kid) = id_of(method)
                && let Some(signer) = KnownSigner::from_verification_method(method)
            {
                let (host, kid) = (host.clone(), Some(kid));
                keys.push(Self { host, kid, signer });
            }
        }
        Ok(keys)
    }
}

impl KnownSigner {
    /// Returns the signer of a verification method (DID Core §5.2).
    fn from_verification_method(method: &Value) -> Option<Self> {
        let text = |name: &str| method.get(name).and_then(Value::as_str);
        if let Some(jwk) = method.get("publicKeyJwk") {
            return Key::from_did_jwk(&KeyOfDid::deserialize(jwk).ok()?).map(Self::Key);
        }
        if let Some(multibase) = text("publicKeyMultibase") {
            return Key::from_multibase(multibase).map(Self::Key);
        }
        // The account id has the CAIP-10 format `eip155:<chain>:<address>`.
        let account = text("blockchainAccountId")?.strip_prefix("eip155:")?;
        parse_address(account.split_once(':')?.1).map(Self::Address)
    }
}

/// Returns the host of a `did:web`. A path is rejected, because it may belong to another tenant of the host.
fn did_host(did: &str) -> Option<String> {
    let host = did.strip_prefix("did:web:").filter(|host| !host.contains(':'))?;
    let host = host.replace("%3A", ":").replace("%3a", ":");
    let is_host = !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-:".contains(&c));
    is_host.then(|| host.to_ascii_lowercase())
}

/// Parses an address and returns it in lower case.
fn parse_address(text: &str) -> Option<String> {
    let bytes = decode_hex(text.strip_prefix("0x")?)?;
    (bytes.len() == 20).then(|| text.to_ascii_lowercase())
}

/// Why a provider's offer or receipt is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The object is neither a JWS nor an EIP-712 object with the fields of its kind.
    #[error("it is no signed object of the extension `offer-receipt`")]
    Form,
    /// The signature was not made with the signer's key, or no address can be recovered from the signature.
    #[error("its signature is invalid")]
    Signature,
    /// The payload lacks a required field.
    #[error("its payload has no `{0}`")]
    Missing(&'static str),
}

#[derive(Deserialize)]
#[serde(tag = "format", rename_all = "lowercase")]
enum Object {
    Jws { signature: String },
    Eip712 { payload: Value, signature: String },
}

/// A field of an EIP-712 struct.
#[derive(Clone, Copy)]
enum Member {
    Text(&'static str),
    Number(&'static str),
}

use Member::{Number, Text};

impl ProviderObject {
    /// Returns the name of the object for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offer => "offer",
            Self::Receipt => "receipt",
        }
    }

    const fn eip712_domain_name(self) -> &'static str {
        match self {
            Self::Offer => "x402 offer",
            Self::Receipt => "x402 receipt",
        }
    }

    const fn eip712_type_name(self) -> &'static str {
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

    /// Returns the fields in the order of the EIP-712 struct.
    const fn eip712_fields(self) -> &'static [Member] {
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

    /// Returns the payload fields that identify the payment. An EIP-712 struct has all of them.
    const fn payment_fields(self) -> &'static [Member] {
        match self {
            Self::Offer => &[
                Text("resourceUrl"),
                Text("scheme"),
                Text("network"),
                Text("asset"),
                Text("payTo"),
                Text("amount"),
            ],
            Self::Receipt => &[Text("network"), Text("resourceUrl"), Text("payer"), Number("issuedAt")],
        }
    }

    /// Verifies an EIP-712 or JWS object. `keys` has the keys that a `kid` does not contain.
    pub fn verify(self, object: &Value, keys: &[ProviderKey]) -> Result<SignedByProvider, ProviderError> {
        let signed = match Object::deserialize(object).map_err(|_| ProviderError::Form)? {
            Object::Eip712 { payload, signature } => {
                let address = recover_signer_address(&signature, &self.signing_digest(&payload)?)?;
                let signer = ProviderSigner::Address(address);
                let key = None;
                SignedByProvider { payload, signer, key }
            }
            Object::Jws { signature } => verify_jws(&signature, keys)?,
        };
        for field in self.payment_fields() {
            let (name, is_there) = match field {
                Text(name) => (*name, signed.payload.get(name).is_some_and(Value::is_string)),
                Number(name) => (*name, signed.payload.get(name).is_some_and(Value::is_u64)),
            };
            if !is_there {
                return Err(ProviderError::Missing(name));
            }
        }
        Ok(signed)
    }

    /// Returns the JSON Pointers of the fields that the signature covers.
    pub(crate) fn list_signed_members(self, object: &Value) -> Vec<String> {
        let mut fields = vec!["/format".to_owned(), "/signature".to_owned()];
        if object.get("format").and_then(Value::as_str) == Some("eip712") {
            fields.extend(self.eip712_fields().iter().map(|field| {
                let (Text(name) | Number(name)) = field;
                format!("/payload/{name}")
            }));
        }
        fields
    }

    /// Returns the signed digest (EIP-712, "Definition of `encode`").
    fn signing_digest(self, payload: &Value) -> Result<[u8; 32], ProviderError> {
        let mut domain = keccak(b"EIP712Domain(string name,string version,uint256 chainId)").to_vec();
        domain.extend(keccak(self.eip712_domain_name().as_bytes()));
        domain.extend(keccak(b"1"));
        domain.extend(abi_word(1));
        let mut structure = keccak(self.eip712_type_name().as_bytes()).to_vec();
        for field in self.eip712_fields() {
            match field {
                Text(name) => {
                    let text = payload.get(name).and_then(Value::as_str).ok_or(ProviderError::Form)?;
                    structure.extend(keccak(text.as_bytes()));
                }
                Number(name) => {
                    let number = payload.get(name).and_then(Value::as_u64).ok_or(ProviderError::Form)?;
                    structure.extend(abi_word(number));
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

/// Encodes a number as 32 bytes, big-endian.
fn abi_word(number: u64) -> [u8; 32] {
    let mut word = [0; 32];
    let (_, end) = word.split_at_mut(24);
    end.copy_from_slice(&number.to_be_bytes());
    word
}

/// Returns the address that signed a digest. The signature is `0x` and 65 bytes: r, s and v.
fn recover_signer_address(signature: &str, digest: &[u8; 32]) -> Result<String, ProviderError> {
    let digits = signature.strip_prefix("0x").ok_or(ProviderError::Form)?;
    let bytes = decode_hex(digits).ok_or(ProviderError::Form)?;
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
    Ok(eth_address(&key))
}

fn eth_address(key: &VerifyingKey) -> String {
    let point = key.to_encoded_point(false);
    // The address is the end of a hash over the point without the first byte.
    let hash = keccak(point.as_bytes().split_first().map_or(&[], |(_, rest)| rest));
    let address = hash.split_at(12).1.iter();
    address.fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            let is_digits = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            u8::from_str_radix(pair, 16).ok().filter(|_| is_digits)
        })
        .collect()
}

/// The header of a provider's JWS. A header with `crit` is rejected.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    #[serde(default)]
    crit: Option<Value>,
}

fn verify_jws(jws: &str, keys: &[ProviderKey]) -> Result<SignedByProvider, ProviderError> {
    let form = |_| ProviderError::Form;
    let (text, signature) = jws.rsplit_once('.').ok_or(ProviderError::Form)?;
    let (header, payload) = text.split_once('.').ok_or(ProviderError::Form)?;
    let header = URL_SAFE_NO_PAD.decode(header).map_err(form)?;
    let header: Header = serde_json::from_slice(&header).map_err(|_| ProviderError::Form)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(form)?;
    let payload = parse_json(&payload).map_err(|_| ProviderError::Form)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(form)?;
    if header.crit.is_some() {
        return Err(ProviderError::Form);
    }
    let known = || {
        let known = keys.iter().find(|known| known.kid.as_ref() == Some(&header.kid));
        known.and_then(|known| match &known.signer {
            KnownSigner::Key(key) => Some(key.clone()),
            KnownSigner::Address(_) => None,
        })
    };
    let Some(key) = Key::from_kid(&header.kid).or_else(known) else {
        let (signer, key) = (ProviderSigner::Unknown(header.kid), None);
        return Ok(SignedByProvider { payload, signer, key });
    };
    if key.jws_algorithm() != header.alg || !key.verifies(text.as_bytes(), &signature) {
        return Err(ProviderError::Signature);
    }
    let (signer, key) = (ProviderSigner::Key(header.kid), Some(key));
    Ok(SignedByProvider { payload, signer, key })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Ed25519(Vec<u8>),
    /// A point, compressed or uncompressed.
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
    /// Returns the key in a `did:key` or `did:jwk`. Returns `None` for any other text.
    fn from_kid(kid: &str) -> Option<Self> {
        let did = kid.split('#').next()?;
        if let Some(text) = did.strip_prefix("did:jwk:") {
            let key = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?);
            return Self::from_did_jwk(&key.ok()?);
        }
        Self::from_multibase(did.strip_prefix("did:key:")?)
    }

    fn from_did_jwk(key: &KeyOfDid) -> Option<Self> {
        let x = URL_SAFE_NO_PAD.decode(&key.x).ok()?;
        let y = URL_SAFE_NO_PAD.decode(&key.y).ok()?;
        let point = [&[0x04][..], &x, &y].concat();
        match key.crv.as_str() {
            "Ed25519" => Some(Self::Ed25519(x)),
            "P-256" => Some(Self::P256(point)),
            "secp256k1" => Some(Self::Secp256k1(point)),
            _ => None,
        }
    }

    /// Returns the key in a `did:key` or a `publicKeyMultibase`.
    fn from_multibase(text: &str) -> Option<Self> {
        // The multicodec of the key precedes the key as a varint (did:key §3.1).
        let bytes = decode_base58(text.strip_prefix('z')?)?;
        match bytes.split_at_checked(2)? {
            ([0xed, 0x01], key) => Some(Self::Ed25519(key.to_vec())),
            ([0x80, 0x24], key) => Some(Self::P256(key.to_vec())),
            ([0xe7, 0x01], key) => Some(Self::Secp256k1(key.to_vec())),
            _ => None,
        }
    }

    /// Returns the key's address on chain. Only secp256k1 keys have an address.
    fn eth_address(&self) -> Option<String> {
        match self {
            Self::Secp256k1(point) => VerifyingKey::from_sec1_bytes(point).ok().as_ref().map(eth_address),
            Self::Ed25519(_) | Self::P256(_) => None,
        }
    }

    /// Returns whether two keys are equal, even if only one of the points is compressed.
    fn is_same_key(&self, other: &Self) -> bool {
        self.jws_algorithm() == other.jws_algorithm() && self.compressed_bytes() == other.compressed_bytes()
    }

    fn compressed_bytes(&self) -> Vec<u8> {
        let (Self::Ed25519(bytes) | Self::P256(bytes) | Self::Secp256k1(bytes)) = self;
        match bytes.split_first() {
            // SEC 1 §2.3.3: the lowest bit is the sign of y.
            Some((0x04, point)) if point.len() == 64 => {
                let (x, y) = point.split_at(32);
                let sign = y.last().map_or(0, |last| last & 1);
                [&[sign | 0x02][..], x].concat()
            }
            _ => bytes.clone(),
        }
    }

    const fn jws_algorithm(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::P256(_) => "ES256",
            Self::Secp256k1(_) => "ES256K",
        }
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let is_valid = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key)
                .verify(message, signature)
                .is_ok()
        };
        match self {
            Self::Ed25519(key) => is_valid(&ED25519, key),
            Self::P256(key) => is_valid(&ECDSA_P256_SHA256_FIXED, key),
            Self::Secp256k1(key) => {
                // JWS allows a high `s`, which the library rejects.
                let signature = Signature::from_slice(signature);
                let signature = signature.map(|signature| signature.normalize_s().unwrap_or(signature));
                let verified = VerifyingKey::from_sec1_bytes(key).and_then(|key| key.verify(message, &signature?));
                verified.is_ok()
            }
        }
    }
}

/// Decodes base58 with Bitcoin's alphabet. Returns `None` for a text longer than any key.
fn decode_base58(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    if text.len() > 128 {
        return None;
    }
    // The bytes are in little-endian order.
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
