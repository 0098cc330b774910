//! The P-256 key that signs statements. The key is derived from a secret, or is in KMS.

use aws_sdk_kms::{
    Client,
    error::{DisplayErrorContext, ProvideErrorMetadata, SdkError},
    primitives::Blob,
    types::{KeySpec, MessageType, SigningAlgorithmSpec},
};
use aws_types::SdkConfig;
use purser_domain::{Error, Result};
use purser_evidence::{DigestSigner, EcdsaSignature, Jwk, SignError, StatementKey, StatementKind, sign_es256};

const SIGNING: &str = "signing a statement";
const READING: &str = "reading the key for statements";

/// The DER prefix of a P-256 `SubjectPublicKeyInfo`, before the uncompressed point (RFC 5480 §2).
const BEFORE_POINT: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Signs statements with a key derived from the secret or with a KMS key.
pub(crate) enum Signer {
    Secret(StatementKey),
    Kms(KmsSigner),
}

pub(crate) struct KmsSigner {
    client: Client,
    arn: String,
    jwk: Jwk,
}

impl Signer {
    pub(crate) const fn jwk(&self) -> &Jwk {
        match self {
            Self::Secret(key) => key.jwk(),
            Self::Kms(signer) => &signer.jwk,
        }
    }

    /// Signs a payload. Returns `None` if the statement would be too long for a log entry.
    pub(crate) async fn sign(&self, kind: StatementKind, payload: &[u8]) -> Result<Option<String>> {
        let signed = match self {
            Self::Secret(key) => {
                let signed = key.sign(kind, payload);
                signed.map_err(|error| error.map_signer_error(|error| Error::internal(SIGNING, error)))
            }
            Self::Kms(signer) => sign_es256(signer, &signer.jwk, kind, payload).await,
        };
        match signed {
            Ok(statement) => Ok(Some(statement)),
            Err(SignError::TooLong) => Ok(None),
            Err(SignError::Signer(error)) => Err(error),
            Err(error @ SignError::OtherKey) => Err(Error::internal(SIGNING, error.to_string())),
        }
    }
}

impl KmsSigner {
    pub(crate) async fn from_kms_key(aws: &SdkConfig, arn: &str) -> Result<Self> {
        let client = Client::new(aws);
        let response = client.get_public_key().key_id(arn).send().await;
        let response = response.map_err(|error| kms_error(READING, &error))?;
        let is_p256 = response.key_spec() == Some(&KeySpec::EccNistP256);
        let der = response.public_key().map(Blob::as_ref).filter(|_| is_p256);
        let point = der.and_then(|der| der.strip_prefix(&BEFORE_POINT));
        let point: Option<&[u8; 65]> = point.and_then(|point| point.try_into().ok());
        let point = point.ok_or_else(|| Error::internal(READING, "KMS returned no P-256 key"))?;
        let jwk = Jwk::from_p256_point(point).map_err(|error| Error::internal(READING, error))?;
        let arn = arn.to_owned();
        Ok(Self { client, arn, jwk })
    }
}

impl DigestSigner for KmsSigner {
    type Error = Error;

    async fn sign(&self, digest: [u8; 32]) -> Result<EcdsaSignature> {
        let sign = self.client.sign().key_id(&self.arn).message_type(MessageType::Digest);
        let sign = sign
            .message(Blob::new(digest))
            .signing_algorithm(SigningAlgorithmSpec::EcdsaSha256);
        let response = sign.send().await.map_err(|error| kms_error(SIGNING, &error))?;
        let der = response.signature().map(Blob::as_ref).unwrap_or_default();
        EcdsaSignature::from_der(der).ok_or_else(|| Error::internal(SIGNING, "KMS returned no signature"))
    }
}

/// Maps a KMS error to a temporary error, because the changes stay pending and the next run signs them.
fn kms_error<E>(operation: &'static str, error: &SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    Error::temporarily_unavailable(operation, DisplayErrorContext(error).to_string())
}
