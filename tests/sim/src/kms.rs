//! KMS with a secp256k1 key for each agent. As in KMS, a signature's `s` may be high or low, and each signature of the
//! same digest is different.

use crate::people::agent_id;
use crate::plan::CROWD;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k256::ecdsa::hazmat::SignPrimitive as _;
use k256::ecdsa::{Signature, SigningKey};
use k256::sha2::Sha256;
use purser_chain::{Custody, KmsKeys, NewKey};
use purser_domain::{Address, KmsKeyId, Wallet};
use purser_testkit::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The DER prefix of a `SubjectPublicKeyInfo` for secp256k1, before the point (RFC 5480 §2).
const BEFORE_POINT: [u8; 23] = [
    0x30, 0x56, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00,
    0x0a, 0x03, 0x42, 0x00,
];

pub(crate) struct Kms {
    keys: BTreeMap<String, SigningKey>,
    rng: Mutex<Rng>,
}

impl Kms {
    pub(crate) fn new(seed: u64) -> Self {
        let keys = (0..CROWD).map(|agent| (id_of(agent).to_string(), key_of(agent)));
        Self {
            keys: keys.collect(),
            rng: Mutex::new(Rng::from_seed(seed)),
        }
    }

    pub(crate) fn answer(&self, operation: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let request: Value = serde_json::from_slice(body).expect("the SDK writes JSON");
        let id = request["KeyId"].as_str().expect("an id");
        let Some(key) = self.keys.get(id) else {
            return failed(400, "NotFoundException");
        };
        let answer = match operation {
            "GetPublicKey" => {
                let point = key.verifying_key().to_encoded_point(false);
                let der = BASE64_STANDARD.encode([&BEFORE_POINT, point.as_bytes()].concat());
                json!({"KeyId": id, "PublicKey": der, "KeySpec": "ECC_SECG_P256K1", "KeyUsage": "SIGN_VERIFY"})
            }
            "Sign" => {
                assert_eq!(request["MessageType"], "DIGEST");
                let digest = BASE64_STANDARD.decode(request["Message"].as_str().expect("a digest"));
                let digest: [u8; 32] = digest.expect("base64").try_into().expect("32 bytes");
                let der = BASE64_STANDARD.encode(self.sign(key, digest).to_der().as_bytes());
                json!({"KeyId": id, "Signature": der, "SigningAlgorithm": request["SigningAlgorithm"]})
            }
            other => unreachable!("the functions here don't call {other}"),
        };
        (200, answer.to_string().into_bytes())
    }

    fn sign(&self, key: &SigningKey, digest: [u8; 32]) -> Signature {
        let mut random = [0; 33];
        self.rng.lock().expect("not poisoned").fill(&mut random);
        let signed = key
            .as_nonzero_scalar()
            .try_sign_prehashed_rfc6979::<Sha256>(&digest.into(), &random[..32]);
        let (signature, _) = signed.expect("a signature");
        let (r, s) = signature.split_scalars();
        if random[32].is_multiple_of(2) {
            Signature::from_scalars(r.to_bytes(), (-*s).to_bytes()).expect("the other half")
        } else {
            signature
        }
    }
}

pub(crate) fn failed(status: u16, kind: &str) -> (u16, Vec<u8>) {
    (status, json!({"__type": kind}).to_string().into_bytes())
}

/// Returns the wallet address of an agent's key.
pub(crate) fn address(agent: u8) -> Address {
    Address::from_public_key(key_of(agent).verifying_key())
}

/// Creates wallets of the first agents with KMS keys.
pub(crate) async fn wallets(keys: KmsKeys, agents: u8) -> Vec<Wallet> {
    let custody = Custody::from_kms(keys);
    let mut wallets = Vec::new();
    for agent in 0..agents {
        let wallet = custody
            .wallet_for_new_key(NewKey::Kms(id_of(agent)))
            .await
            .expect("a key");
        wallets.push(wallet.attest(agent_id(agent)).await.expect("an attestation"));
    }
    wallets
}

fn id_of(agent: u8) -> KmsKeyId {
    KmsKeyId::parse(&format!("00000000-0000-4000-8000-0000000000{agent:02x}")).expect("an id")
}

fn key_of(agent: u8) -> SigningKey {
    SigningKey::from_slice(&[agent + 1; 32]).expect("a key")
}
