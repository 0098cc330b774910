//! KMS with secp256k1 and P-256 keys that sign digests, and a key that encrypts secrets. As in KMS, a signature's `s`
//! may be high or low, and each signature of the same digest is different.

use crate::serve;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k256::ecdsa::hazmat::SignPrimitive as _;
use k256::ecdsa::{Signature, SigningKey};
use k256::sha2::Sha256;
use purser_domain::{Ciphertext, SecretOf};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// KMS with keys by id. Clones share the keys.
#[derive(Clone, Default)]
pub struct Kms(Arc<Mutex<State>>);

struct State {
    keys: BTreeMap<String, Key>,
    /// The P-256 keys by ARN, which an administrator created.
    p256: BTreeMap<String, EcdsaKeyPair>,
    /// The key that encrypts secrets.
    secrets_key: [u8; 32],
    /// The number of rejected uses of each new key.
    refused_uses: u32,
    /// The exception for each operation that fails.
    failing: BTreeMap<String, &'static str>,
    asked: Vec<(String, Value)>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            p256: BTreeMap::new(),
            secrets_key: chance(),
            refused_uses: 1,
            failing: BTreeMap::new(),
            asked: Vec::new(),
        }
    }
}

struct Key {
    key: SigningKey,
    tags: BTreeMap<String, String>,
    is_enabled: bool,
    /// The number of further uses that are rejected, as KMS does until the tags of a new key take effect.
    refused_uses: u32,
}

impl Kms {
    /// The ARN of the key that encrypts secrets.
    pub const SECRETS_KEY: &'static str = "arn:aws:kms:us-east-1:000000000000:key/secrets";

    /// Encrypts a secret as a caller with the permission would.
    pub fn encrypt(&self, of: &SecretOf, secret: &[u8]) -> Ciphertext {
        let context = json!(of.encryption_context()).to_string();
        Ciphertext::from_bytes(self.state().seal(&context, secret))
    }

    /// Creates a P-256 key as an administrator would, and returns the ARN.
    pub fn create_p256(&self) -> String {
        let arn = format!("arn:aws:kms:us-east-1:000000000000:key/{}", uuid::Uuid::new_v4());
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        self.state().p256.insert(arn.clone(), key);
        arn
    }

    /// Serves KMS until the runtime ends, and returns its URL.
    pub async fn serve(&self) -> String {
        serve(self.router()).await
    }

    /// Returns the routes of KMS.
    pub fn router(&self) -> Router {
        let kms = self.clone();
        let answer = async move |headers: HeaderMap, body: String| kms.answer(&headers, &body);
        Router::new().route("/", post(answer))
    }

    /// Returns the private keys in hexadecimal, so that a test can check that no key leaks.
    pub fn private_keys(&self) -> Vec<String> {
        let hex = |key: &Key| key.key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        self.state().keys.values().map(hex).collect()
    }

    /// Returns the tags of each key by key id.
    pub fn tags(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let state = self.state();
        let tags = state.keys.iter().map(|(id, key)| (id.clone(), key.tags.clone()));
        tags.collect()
    }

    /// Rejects the first `uses` of each new key, as KMS does until the key's tags take effect. The default is one.
    pub fn refuse_new_keys(&self, uses: u32) {
        self.state().refused_uses = uses;
    }

    /// Disables or enables a key.
    pub fn enable(&self, id: &str, is_enabled: bool) {
        self.state().keys.get_mut(id).expect("a key").is_enabled = is_enabled;
    }

    /// Deletes a key.
    pub fn forget(&self, id: &str) {
        self.state().keys.remove(id);
    }

    /// Makes an operation fail with this exception until [`Self::behave`].
    pub fn fail(&self, operation: &str, exception: &'static str) {
        self.state().failing.insert(operation.to_owned(), exception);
    }

    /// Makes all operations succeed again.
    pub fn behave(&self) {
        self.state().failing.clear();
    }

    /// Takes the operations and requests since the last call of this method.
    pub fn asked(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.state().asked)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("not poisoned")
    }

    fn answer(&self, headers: &HeaderMap, body: &str) -> Response {
        let request: Value = serde_json::from_str(body).expect("the SDK writes JSON");
        let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok());
        let operation = target
            .and_then(|target| target.strip_prefix("TrentService."))
            .unwrap_or_default();
        let mut state = self.state();
        let answer = match (state.failing.get(operation), operation) {
            (Some(exception), _) => Err(*exception),
            (None, "CreateKey") => state.create(&request),
            (None, "GetPublicKey") => state.public_key(&request),
            (None, "Sign") => state.sign(&request),
            (None, "Encrypt") => state.encrypt(&request),
            (None, "Decrypt") => state.decrypt(&request),
            _ => Err("UnknownOperationException"),
        };
        state.asked.push((operation.to_owned(), request));
        let (status, body) = match answer {
            Ok(body) => (StatusCode::OK, body),
            Err(exception @ ("KMSInternalException" | "DependencyTimeoutException" | "KeyUnavailableException")) => {
                (StatusCode::INTERNAL_SERVER_ERROR, json!({"__type": exception}))
            }
            Err(exception) => (
                StatusCode::BAD_REQUEST,
                json!({"__type": exception, "message": exception}),
            ),
        };
        (
            status,
            [(header::CONTENT_TYPE, "application/x-amz-json-1.1")],
            body.to_string(),
        )
            .into_response()
    }
}

impl State {
    fn cipher(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.secrets_key).expect("a key"))
    }

    /// Encrypts a secret with an encryption context. Returns the nonce and the ciphertext.
    fn seal(&self, context: &str, secret: &[u8]) -> Vec<u8> {
        let nonce: [u8; 12] = chance();
        let mut sealed = secret.to_vec();
        let done = self.cipher().seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context.as_bytes()),
            &mut sealed,
        );
        done.expect("a ciphertext");
        [&nonce[..], &sealed].concat()
    }

    fn encrypt(&self, request: &Value) -> Result<Value, &'static str> {
        let secret = blob(request, "Plaintext")?;
        if request["KeyId"] != Kms::SECRETS_KEY {
            return Err("NotFoundException");
        }
        if !(1..=4_096).contains(&secret.len()) {
            return Err("ValidationException");
        }
        let sealed = self.seal(&context(request), &secret);
        Ok(json!({"KeyId": request["KeyId"], "CiphertextBlob": BASE64_STANDARD.encode(sealed)}))
    }

    fn decrypt(&self, request: &Value) -> Result<Value, &'static str> {
        if request["KeyId"] != Kms::SECRETS_KEY {
            return Err("IncorrectKeyException");
        }
        let sealed = blob(request, "CiphertextBlob")?;
        let (nonce, sealed) = sealed.split_at_checked(12).ok_or("InvalidCiphertextException")?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).expect("twelve bytes");
        let mut sealed = sealed.to_vec();
        let context = context(request);
        let opened = self
            .cipher()
            .open_in_place(nonce, Aad::from(context.as_bytes()), &mut sealed);
        let secret = opened.map_err(|_| "InvalidCiphertextException")?;
        Ok(json!({"KeyId": request["KeyId"], "Plaintext": BASE64_STANDARD.encode(secret)}))
    }

    fn create(&mut self, request: &Value) -> Result<Value, &'static str> {
        if (request["KeySpec"].as_str(), request["KeyUsage"].as_str()) != (Some("ECC_SECG_P256K1"), Some("SIGN_VERIFY"))
        {
            return Err("ValidationException");
        }
        let policy = request["Policy"].as_str();
        if policy.is_some_and(|policy| serde_json::from_str::<Value>(policy).is_err()) {
            return Err("MalformedPolicyDocumentException");
        }
        // The roles in `template.yaml` that create keys can't change a key's policy, so KMS would reject the call
        // without the bypass.
        if policy.is_some() && request["BypassPolicyLockoutSafetyCheck"] != true {
            return Err("MalformedPolicyDocumentException");
        }
        let tags = request["Tags"].as_array().into_iter().flatten();
        let tags = tags.filter_map(|tag| Some((tag["TagKey"].as_str()?, tag["TagValue"].as_str()?)));
        let key = Key {
            key: new_key(),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            is_enabled: true,
            refused_uses: self.refused_uses,
        };
        let id = uuid::Uuid::new_v4().to_string();
        let arn = format!("arn:aws:kms:us-east-1:000000000000:key/{id}");
        self.keys.insert(id.clone(), key);
        let told =
            json!({"KeyId": id, "Arn": arn, "Enabled": true, "KeyState": "Enabled", "KeySpec": "ECC_SECG_P256K1"});
        Ok(json!({"KeyMetadata": told}))
    }

    fn key(&mut self, request: &Value) -> Result<&Key, &'static str> {
        let id = request["KeyId"].as_str().unwrap_or_default();
        let key = self.keys.get_mut(id).ok_or("NotFoundException")?;
        if let Some(fewer) = key.refused_uses.checked_sub(1) {
            key.refused_uses = fewer;
            return Err("AccessDeniedException");
        }
        if key.is_enabled {
            Ok(key)
        } else {
            Err("DisabledException")
        }
    }

    fn p256(&self, request: &Value) -> Option<&EcdsaKeyPair> {
        self.p256.get(request["KeyId"].as_str()?)
    }

    fn public_key(&mut self, request: &Value) -> Result<Value, &'static str> {
        /// The DER prefix of a `SubjectPublicKeyInfo` for a P-256 key, before the point (RFC 5480 §2).
        const BEFORE_P256: [u8; 26] = [
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
            0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        /// The DER prefix of a `SubjectPublicKeyInfo` for a secp256k1 key, before the point (RFC 5480 §2).
        const BEFORE: [u8; 23] = [
            0x30, 0x56, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04,
            0x00, 0x0a, 0x03, 0x42, 0x00,
        ];
        if let Some(key) = self.p256(request) {
            let der = [&BEFORE_P256, key.public_key().as_ref()].concat();
            return Ok(json!({
                "KeyId": request["KeyId"],
                "PublicKey": BASE64_STANDARD.encode(der),
                "KeySpec": "ECC_NIST_P256",
                "KeyUsage": "SIGN_VERIFY",
                "SigningAlgorithms": ["ECDSA_SHA_256"],
            }));
        }
        let point = self.key(request)?.key.verifying_key().to_encoded_point(false);
        let der = [&BEFORE, point.as_bytes()].concat();
        Ok(json!({
            "KeyId": request["KeyId"],
            "PublicKey": BASE64_STANDARD.encode(der),
            "KeySpec": "ECC_SECG_P256K1",
            "KeyUsage": "SIGN_VERIFY",
            "SigningAlgorithms": ["ECDSA_SHA_256"],
        }))
    }

    fn sign(&mut self, request: &Value) -> Result<Value, &'static str> {
        if self.p256(request).is_none() {
            self.key(request)?;
        }
        if request["SigningAlgorithm"] != "ECDSA_SHA_256" || request["MessageType"] != "DIGEST" {
            return Err("InvalidKeyUsageException");
        }
        let digest = request["Message"]
            .as_str()
            .and_then(|text| BASE64_STANDARD.decode(text).ok());
        let digest: [u8; 32] = digest
            .and_then(|digest| digest.try_into().ok())
            .ok_or("ValidationException")?;
        if let Some(key) = self.p256(request) {
            let digest = Digest::import_less_safe(&digest, &SHA256).expect("a digest");
            let der = BASE64_STANDARD.encode(key.sign_digest(&digest).expect("a signature"));
            return Ok(json!({"KeyId": request["KeyId"], "Signature": der, "SigningAlgorithm": "ECDSA_SHA_256"}));
        }
        let key = &self.keys[request["KeyId"].as_str().unwrap_or_default()];
        let random: [u8; 33] = chance();
        let signed = key
            .key
            .as_nonzero_scalar()
            .try_sign_prehashed_rfc6979::<Sha256>(&digest.into(), &random[..32]);
        let (signature, _) = signed.expect("a signature");
        let (r, s) = signature.split_scalars();
        let signature = if random[32].is_multiple_of(2) {
            Signature::from_scalars(r.to_bytes(), (-*s).to_bytes()).expect("the other half")
        } else {
            signature
        };
        let der = BASE64_STANDARD.encode(signature.to_der().as_bytes());
        Ok(json!({"KeyId": request["KeyId"], "Signature": der, "SigningAlgorithm": "ECDSA_SHA_256"}))
    }
}

/// Returns the encryption context with sorted fields.
fn context(request: &Value) -> String {
    let context: BTreeMap<String, Value> =
        serde_json::from_value(request["EncryptionContext"].clone()).unwrap_or_default();
    json!(context).to_string()
}

fn blob(request: &Value, name: &str) -> Result<Vec<u8>, &'static str> {
    let text = request[name].as_str().ok_or("ValidationException")?;
    BASE64_STANDARD.decode(text).map_err(|_| "ValidationException")
}

fn new_key() -> SigningKey {
    loop {
        if let Ok(key) = SigningKey::from_slice(&chance::<32>()) {
            return key;
        }
    }
}

fn chance<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("chance");
    bytes
}
