//! Wallets with keys in KMS: one secp256k1 key per agent, which can't be exported.
//!
//! Half of all KMS signatures have a high `s`, which tokens reject (EIP-2). Each signature is therefore normalized, and
//! returned only if it recovers to the wallet's address.

use alloy::primitives::{Address, B256, Signature};
use aws_sdk_kms::{
    Client, Config,
    config::{retry::RetryConfig, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        create_key::CreateKeyError,
        sign::{SignError as KmsSignError, SignOutput, builders::SignFluentBuilder},
    },
    primitives::Blob,
    types::{KeySpec, KeyUsageType, MessageType, SigningAlgorithmSpec, Tag},
};
use aws_types::SdkConfig;
use k256::ecdsa::{Signature as DerSignature, VerifyingKey};
use purser_domain::{AgentId, Causes, KmsKeyId, PublicKey};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

/// Why a call to KMS failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KmsError {
    /// KMS throttles, can't be reached, or fails temporarily. The only error after which a retry may succeed.
    #[error("KMS is unavailable: {0}")]
    Unavailable(String),
    /// The key is missing, disabled or not accessible, or the request is invalid.
    #[error("KMS rejected the request: {0}")]
    Refused(String),
    /// The response is not a valid key or signature for this wallet.
    #[error("KMS returned {0}")]
    Answer(&'static str),
}

/// A client for keys in KMS. It connects on the first call, because most Lambda instances need no key.
pub struct KmsKeys {
    aws: SdkConfig,
    client: OnceLock<Client>,
}

/// The tag with the stack's name on every wallet key. IAM policies permit the use of a key by this tag.
pub const STACK_TAG: &str = "purser-stack";

/// The tag with the agent's id on every wallet key. Operators use it to find keys without an agent.
pub const AGENT_TAG: &str = "purser-agent";

impl KmsKeys {
    /// Creates a client for the configured account.
    pub const fn new(aws: SdkConfig) -> Self {
        let client = OnceLock::new();
        Self { aws, client }
    }

    fn kms_client(&self) -> &Client {
        self.client.get_or_init(|| Client::new(&self.aws))
    }

    /// Creates an agent's key with this key policy. Without a policy, the account's IAM policies apply.
    ///
    /// Bypasses the lockout check of `CreateKey`, because the caller may not change the key policy. Nobody is
    /// locked out, because the key policy delegates changes to the account's IAM policies.
    ///
    /// Never retried: after a lost response, a key without an agent remains. The tags identify such a key.
    pub async fn create_key(&self, agent: AgentId, stack: &str, policy: Option<&str>) -> Result<KmsKeyId, KmsError> {
        let tag = |key: &str, value: String| Tag::builder().tag_key(key).tag_value(value).build();
        let tags = [tag(STACK_TAG, stack.to_owned()), tag(AGENT_TAG, agent.to_string())];
        let tags = tags.into_iter().collect::<Result<Vec<_>, _>>();
        let once = Config::builder().retry_config(RetryConfig::disabled()).timeout_config(
            TimeoutConfig::builder()
                .operation_attempt_timeout(CREATING)
                .operation_timeout(CREATING)
                .build(),
        );
        let request = self
            .kms_client()
            .create_key()
            .key_spec(KeySpec::EccSecgP256K1)
            .key_usage(KeyUsageType::SignVerify)
            .description("The wallet of an agent of Purser")
            .set_tags(tags.ok())
            .bypass_policy_lockout_safety_check(policy.is_some())
            .set_policy(policy.map(str::to_owned));
        let made = request.customize().config_override(once).send().await;
        let made = made.map_err(|error| kms_error(&error, CreateKeyError::is_limit_exceeded_exception))?;
        let id = made.key_metadata().map(aws_sdk_kms::types::KeyMetadata::key_id);
        id.and_then(KmsKeyId::parse).ok_or(KmsError::Answer("no key id"))
    }

    /// Reads a new key's public key. While KMS rejects the key, retries after each of `NEW_KEY_RETRY_DELAYS`.
    pub async fn read_public_key(&self, key: KmsKeyId) -> Result<PublicKey, KmsError> {
        let ask = || self.kms_client().get_public_key().key_id(key.to_string()).send();
        let response = retry_for_new_key(ask).await?;
        let is_ours = response.key_spec() == Some(&KeySpec::EccSecgP256K1);
        let der = response.public_key().map(Blob::as_ref).filter(|_| is_ours);
        der.and_then(parse_public_key)
            .ok_or(KmsError::Answer("no secp256k1 key"))
    }

    /// Signs a digest. The signature is r, s, and v (27 or 28), and recovers to `address`.
    pub(crate) async fn sign(&self, key: KmsKeyId, address: Address, digest: B256) -> Result<[u8; 65], KmsError> {
        let response = self.sign_request(key, digest).send().await;
        let response = response.map_err(|error| kms_error(&error, KmsSignError::is_key_unavailable_exception))?;
        parse_signature(&response, address, digest)
    }

    /// Signs like [`Self::sign`], but retries as [`retry_for_new_key`] does while KMS rejects the new key.
    pub(crate) async fn sign_with_new_key(
        &self,
        key: KmsKeyId,
        address: Address,
        digest: B256,
    ) -> Result<[u8; 65], KmsError> {
        let response = retry_for_new_key(|| self.sign_request(key, digest).send()).await?;
        parse_signature(&response, address, digest)
    }

    fn sign_request(&self, key: KmsKeyId, digest: B256) -> SignFluentBuilder {
        self.kms_client()
            .sign()
            .key_id(key.to_string())
            .message_type(MessageType::Digest)
            .message(Blob::new(digest.to_vec()))
            .signing_algorithm(SigningAlgorithmSpec::EcdsaSha256)
    }
}

fn parse_signature(response: &SignOutput, address: Address, digest: B256) -> Result<[u8; 65], KmsError> {
    let der = response.signature().map(Blob::as_ref).unwrap_or_default();
    to_recoverable_signature(der, address, digest).ok_or(KmsError::Answer("a signature by another key"))
}

/// Omits the account, because debug output may be logged.
impl fmt::Debug for KmsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KmsKeys(..)")
    }
}

/// The timeout of `CreateKey`, which takes longer than other calls.
const CREATING: Duration = Duration::from_secs(5);

/// The delays before retries with a new key, which usually becomes usable within a second.
const NEW_KEY_RETRY_DELAYS: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(900),
];

/// Makes a KMS call with a new key. After a temporary error of the key, retries after each of
/// [`NEW_KEY_RETRY_DELAYS`], and then returns [`KmsError::Unavailable`].
async fn retry_for_new_key<T, E, F>(request: impl Fn() -> F) -> Result<T, KmsError>
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
    F: Future<Output = Result<T, SdkError<E>>>,
{
    let mut waits = NEW_KEY_RETRY_DELAYS.into_iter();
    loop {
        match (request().await, waits.next()) {
            (Ok(response), _) => return Ok(response),
            (Err(SdkError::ServiceError(context)), Some(wait)) if is_temporary_key_error(context.err()) => {
                tokio::time::sleep(wait).await;
            }
            (Err(error), _) => return Err(kms_error(&error, is_temporary_key_error)),
        }
    }
}

/// Returns whether an error about a new key is temporary. KMS may not find a new key for a short time (KMS developer
/// guide, "Eventual consistency"), and the tags that permit the use of the key take up to five minutes to take effect
/// ("ABAC for AWS KMS").
fn is_temporary_key_error<E: ProvideErrorMetadata>(error: &E) -> bool {
    matches!(
        error.code(),
        Some("NotFoundException" | "AccessDeniedException" | "KeyUnavailableException")
    )
}

/// Converts an SDK error. `is_temporary` returns whether an error of the KMS operation is temporary.
///
/// Throttled calls have status 400 and were already retried by the SDK.
fn kms_error<E>(error: &SdkError<E>, is_temporary: fn(&E) -> bool) -> KmsError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    const TRANSIENT_ERRORS: [&str; 5] = [
        "DependencyTimeoutException",
        "KMSInternalException",
        "KeyUnavailableException",
        "LimitExceededException",
        "ThrottlingException",
    ];
    let message = Causes(error).to_string();
    let may_pass = match error {
        SdkError::ServiceError(context) => {
            is_temporary(context.err())
                || context
                    .err()
                    .code()
                    .is_some_and(|code| TRANSIENT_ERRORS.contains(&code))
                || context.raw().status().as_u16() >= 500
        }
        _ => true,
    };
    if may_pass {
        KmsError::Unavailable(message)
    } else {
        KmsError::Refused(message)
    }
}

/// Parses a secp256k1 public key from a `SubjectPublicKeyInfo` (RFC 5480 §2): `DER_PREFIX` and the uncompressed point.
fn parse_public_key(der: &[u8]) -> Option<PublicKey> {
    const DER_PREFIX: [u8; 23] = [
        0x30, 0x56, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04,
        0x00, 0x0a, 0x03, 0x42, 0x00,
    ];
    let point = der.strip_prefix(&DER_PREFIX)?;
    let key = VerifyingKey::from_sec1_bytes(point)
        .ok()
        .filter(|_| point.len() == 65)?;
    let compressed = key.to_encoded_point(true);
    compressed.as_bytes().try_into().ok().map(PublicKey::from_bytes)
}

/// Computes the address of a public key; `None` if the key is not a point on the curve.
pub fn wallet_address(key: &PublicKey) -> Option<Address> {
    let key = VerifyingKey::from_sec1_bytes(key.as_bytes()).ok()?;
    Some(Address::from_public_key(&key))
}

/// Parses a signature in strict DER. Returns the signature with low `s`, and with the parity that recovers to
/// `address`; `None` if neither parity does.
fn to_recoverable_signature(der: &[u8], address: Address, digest: B256) -> Option<[u8; 65]> {
    let signature = DerSignature::from_der(der).ok()?;
    let signature = signature.normalize_s().unwrap_or(signature);
    [false, true].into_iter().find_map(|is_y_odd| {
        let signature = Signature::from_signature_and_parity(signature, is_y_odd);
        let signer = signature.recover_address_from_prehash(&digest).ok();
        (signer == Some(address)).then(|| signature.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WalletSeed, wallet::TEST_SEED};
    use alloy::primitives::U256;
    use aws_sdk_kms::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};

    #[test]
    fn signatures_use_low_s_and_recover_the_wallet() {
        let seed = WalletSeed::from_hex(TEST_SEED).unwrap();
        let [wallet, other] = [1, 2].map(|index| seed.derive_wallet(index).unwrap());
        let half = U256::from_be_slice(&alloy::primitives::hex!(
            "7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0"
        ));
        for byte in 0..16 {
            let digest = B256::repeat_byte(byte);
            let expected = wallet.sign_digest(digest).unwrap();
            let low = DerSignature::from_slice(&expected[..64]).unwrap();
            let (r, s) = low.split_scalars();
            let high = DerSignature::from_scalars(r.to_bytes(), (-*s).to_bytes()).unwrap();
            for signature in [low, high] {
                let der = signature.to_der();
                let given = to_recoverable_signature(der.as_bytes(), wallet.address(), digest).unwrap();
                assert_eq!(given, expected);
                assert!(U256::from_be_slice(&given[32..64]) <= half);
                assert_eq!(to_recoverable_signature(der.as_bytes(), other.address(), digest), None);
                assert_eq!(
                    to_recoverable_signature(der.as_bytes(), wallet.address(), B256::repeat_byte(99)),
                    None
                );
                let mut longer = der.as_bytes().to_vec();
                longer.push(0);
                for wrong in [&longer[..], &longer[..40], &expected[..], &[]] {
                    assert_eq!(to_recoverable_signature(wrong, wallet.address(), digest), None);
                }
            }
        }
    }

    #[test]
    fn public_keys_must_be_valid_secp256k1_points() {
        let wallet = WalletSeed::from_hex(TEST_SEED).unwrap().derive_wallet(1).unwrap();
        let point = wallet.key.verifying_key().to_encoded_point(false);
        let before = "3056301006072a8648ce3d020106052b8104000a034200";
        let der = [
            alloy::primitives::hex::decode(before).unwrap(),
            point.as_bytes().to_vec(),
        ]
        .concat();
        let key = parse_public_key(&der).unwrap();
        assert_eq!(wallet_address(&key), Some(wallet.address()));
        let mut on_p256 = der.clone();
        on_p256[19] = 0x07;
        let mut off_the_curve = der.clone();
        off_the_curve[50] ^= 1;
        let longer = [der.clone(), vec![0]].concat();
        for wrong in [&on_p256, &off_the_curve, &longer, &der[..87].to_vec(), &Vec::new()] {
            assert_eq!(parse_public_key(wrong), None);
        }
        assert_eq!(wallet_address(&PublicKey::from_bytes([7; 33])), None);
    }

    fn keys_at(url: &str) -> KmsKeys {
        let credentials = Credentials::new("test", "test", None, None, "test");
        let aws = SdkConfig::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("eu-west-1"))
            .endpoint_url(url)
            .credentials_provider(SharedCredentialsProvider::new(credentials));
        KmsKeys::new(aws.build())
    }

    #[tokio::test]
    async fn kms_rejections_are_retryable_only_for_new_keys() {
        let kms = purser_testkit::Kms::default();
        let keys = keys_at(&kms.serve().await);
        let agent = AgentId::from_uuid(uuid::Uuid::from_u128(1));
        // KMS rejects the new key once per delay.
        kms.refuse_new_keys(3);
        let key = keys.create_key(agent, "stack", Some("{}")).await.unwrap();
        let public_key = keys.read_public_key(key).await.unwrap();
        let address = wallet_address(&public_key).unwrap();
        let digest = B256::repeat_byte(1);
        assert!(keys.sign(key, address, digest).await.is_ok());

        kms.refuse_new_keys(4);
        let key = keys.create_key(agent, "stack", None).await.unwrap();
        let refused = keys.read_public_key(key).await.unwrap_err();
        assert!(matches!(refused, KmsError::Unavailable(_)), "{refused}");
        let public_key = keys.read_public_key(key).await.unwrap();
        let address = wallet_address(&public_key).unwrap();
        kms.fail("Sign", "AccessDeniedException");
        let refused = keys.sign_with_new_key(key, address, digest).await.unwrap_err();
        assert!(matches!(refused, KmsError::Unavailable(_)), "{refused}");
        let refused = keys.sign(key, address, digest).await.unwrap_err();
        assert!(matches!(refused, KmsError::Refused(_)), "{refused}");
        kms.behave();
        assert!(keys.sign_with_new_key(key, address, digest).await.is_ok());
    }
}
