//! Holds the wallets' keys, which are derived from the seed or stored in KMS.
//!
//! Invariant: a [`Signer`] exists only for a wallet whose key matches the stored address and has signed an attestation
//! for the agent.

use crate::attestation::{attestation_digest, is_attested};
use crate::kms::wallet_address;
use crate::signer::transfer_digest;
use crate::{KeyError, KmsError, KmsKeys, SignError, WalletSeed, WalletSigner};
use alloy::primitives::{Address, B256};
use purser_domain::{AgentId, KmsKeyId, Network, TransferAuthorization, Wallet, WalletAttestation, WalletKey};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The keys of all wallets: derived from one seed, or stored in KMS.
#[derive(Debug)]
pub struct Custody {
    keys: Keys,
    /// The verified attestations. Verifying an attestation costs as much as a signature.
    verified: Mutex<HashSet<(AgentId, Address, WalletAttestation)>>,
}

#[derive(Debug)]
enum Keys {
    /// The keys are derived from one secret in this Lambda function's memory.
    Seed(WalletSeed),
    /// The keys are in KMS. No Lambda function can read them.
    Kms(Box<KmsKeys>),
}

/// The maximum number of cached attestations (about 128 KiB). A full cache is emptied.
const MAX_VERIFIED: usize = 1024;

/// The key of a new wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKey {
    /// A key that is derived from the seed with this last index of the derivation path.
    Seed(u32),
    /// An existing key in KMS, with this id.
    Kms(KmsKeyId),
}

/// Why no signer or signature could be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustodyError {
    /// The wallet's key is in KMS but this process has only the seed, or the reverse.
    #[error("the wallet's key is in another custody")]
    OtherCustody,
    /// The wallet's stored address does not belong to the wallet's key.
    #[error("the key belongs to wallet {derived}, but the agent has wallet {stored}")]
    OtherWallet {
        /// The address that belongs to the key.
        derived: Address,
        /// The agent's stored wallet address.
        stored: Address,
    },
    /// The wallet's key has not signed an attestation for this agent.
    #[error("wallet {wallet} is not attested for agent {agent}")]
    NotAttested {
        /// The agent that should pay from the wallet.
        agent: AgentId,
        /// The agent's stored wallet address.
        wallet: Address,
    },
    /// The stored public key is invalid.
    #[error("the wallet's public key is not on the curve")]
    PublicKey,
    /// The wallet can't be derived from the seed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Signing failed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The call to KMS failed, or the response is invalid.
    #[error(transparent)]
    Kms(#[from] KmsError),
}

impl CustodyError {
    /// Returns whether a retry may succeed.
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Kms(KmsError::Unavailable(_)))
    }
}

/// The key of one wallet. The wallet's address and attestation are verified.
#[derive(Debug)]
pub struct Signer<'a>(Key<'a>);

#[derive(Debug)]
enum Key<'a> {
    Seed(Arc<WalletSigner>),
    Kms {
        keys: &'a KmsKeys,
        key: KmsKeyId,
        address: Address,
    },
}

/// The wallet of a new key, which has not signed an attestation yet.
#[derive(Debug)]
pub struct NewWallet<'a> {
    key: WalletKey,
    signer: Signer<'a>,
}

impl Custody {
    /// Creates a [`Custody`] that derives the wallet keys from `seed`.
    pub fn from_seed(seed: WalletSeed) -> Self {
        Self::new(Keys::Seed(seed))
    }

    /// Creates a [`Custody`] with wallet keys that KMS stores and signs with.
    pub fn from_kms(keys: KmsKeys) -> Self {
        Self::new(Keys::Kms(Box::new(keys)))
    }

    fn new(keys: Keys) -> Self {
        let verified = Mutex::default();
        Self { keys, verified }
    }

    /// Returns the KMS client; `None` if the keys are derived from the seed.
    pub fn kms_keys(&self) -> Option<&KmsKeys> {
        match &self.keys {
            Keys::Seed(_) => None,
            Keys::Kms(keys) => Some(keys),
        }
    }

    /// Returns the signer of an agent's wallet, without a call. Fails if the key does not match the stored address, or
    /// if the attestation is invalid.
    pub fn signer(&self, agent: AgentId, wallet: &Wallet) -> Result<Signer<'_>, CustodyError> {
        let signer = match (&self.keys, wallet.key) {
            (Keys::Seed(seed), WalletKey::Seed { index }) => Key::Seed(seed.derive_wallet(index)?),
            (Keys::Kms(keys), WalletKey::Kms { id, public_key }) => Key::Kms {
                keys,
                key: id,
                address: wallet_address(&public_key).ok_or(CustodyError::PublicKey)?,
            },
            (Keys::Seed(_), WalletKey::Kms { .. }) | (Keys::Kms(_), WalletKey::Seed { .. }) => {
                return Err(CustodyError::OtherCustody);
            }
        };
        let signer = Signer(signer);
        let (derived, stored) = (signer.address(), wallet.address);
        if derived != stored {
            return Err(CustodyError::OtherWallet { derived, stored });
        }
        if self.has_attested(agent, wallet) {
            Ok(signer)
        } else {
            Err(CustodyError::NotAttested { agent, wallet: stored })
        }
    }

    /// Returns whether the wallet's key has signed the stored attestation for this agent.
    fn has_attested(&self, agent: AgentId, wallet: &Wallet) -> bool {
        let claim = (agent, wallet.address, wallet.attestation);
        let verified = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified().contains(&claim) {
            return true;
        }
        let is_attested = is_attested(&wallet.attestation, agent, wallet.address);
        if is_attested {
            let mut verified = verified();
            if verified.len() >= MAX_VERIFIED {
                verified.clear();
            }
            verified.insert(claim);
        }
        is_attested
    }

    /// Returns the wallet of a new key. A key in KMS takes a call that reads the public key.
    pub async fn wallet_for_new_key(&self, key: NewKey) -> Result<NewWallet<'_>, CustodyError> {
        let (key, signer) = match (&self.keys, key) {
            (Keys::Seed(seed), NewKey::Seed(index)) => {
                (WalletKey::Seed { index }, Key::Seed(seed.derive_wallet(index)?))
            }
            (Keys::Kms(keys), NewKey::Kms(id)) => {
                let public_key = keys.read_public_key(id).await?;
                let address = wallet_address(&public_key).ok_or(CustodyError::PublicKey)?;
                let signer = Key::Kms { keys, key: id, address };
                (WalletKey::Kms { id, public_key }, signer)
            }
            (Keys::Seed(_), NewKey::Kms(_)) | (Keys::Kms(_), NewKey::Seed(_)) => {
                return Err(CustodyError::OtherCustody);
            }
        };
        let signer = Signer(signer);
        Ok(NewWallet { key, signer })
    }
}

impl NewWallet<'_> {
    /// Returns the wallet's address.
    pub fn address(&self) -> Address {
        self.signer.address()
    }

    /// Signs the attestation that the wallet belongs to this agent.
    pub async fn attest(self, agent: AgentId) -> Result<Wallet, CustodyError> {
        let address = self.address();
        let digest = attestation_digest(agent, address);
        let attestation = match &self.signer.0 {
            Key::Seed(_) => self.signer.sign_digest(digest).await?,
            Key::Kms { keys, key, address } => keys.sign_with_new_key(*key, *address, digest).await?,
        };
        Ok(Wallet {
            key: self.key,
            address,
            attestation: WalletAttestation::from_bytes(attestation),
        })
    }
}

impl Signer<'_> {
    /// Returns the wallet's address.
    pub fn address(&self) -> Address {
        match &self.0 {
            Key::Seed(wallet) => wallet.address(),
            Key::Kms { address, .. } => *address,
        }
    }

    /// Signs a transfer of the network's token from this wallet. The signature is r, s, and v (27 or 28). Only
    /// signatures with the seed are deterministic.
    pub async fn sign(
        &self,
        network: Network,
        authorization: &TransferAuthorization,
    ) -> Result<[u8; 65], CustodyError> {
        let (derived, from) = (self.address(), authorization.from);
        if derived != from {
            return Err(SignError::OtherWallet { derived, from }.into());
        }
        self.sign_digest(transfer_digest(network, authorization)).await
    }

    async fn sign_digest(&self, digest: B256) -> Result<[u8; 65], CustodyError> {
        match &self.0 {
            Key::Seed(wallet) => Ok(wallet.sign_digest(digest)?),
            Key::Kms { keys, key, address } => Ok(keys.sign(*key, *address, digest).await?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wallet::TEST_SEED;
    use uuid::Uuid;

    #[tokio::test]
    async fn a_wallet_signs_only_for_its_attested_agent() {
        let custody = Custody::from_seed(WalletSeed::from_hex(TEST_SEED).unwrap());
        let agent = |number| AgentId::from_uuid(Uuid::from_u128(number));
        let attested = async |index, number| {
            let wallet = custody.wallet_for_new_key(NewKey::Seed(index)).await.unwrap();
            wallet.attest(agent(number)).await.unwrap()
        };
        let (first, second) = (attested(1, 1).await, attested(2, 2).await);
        // In the second round, the attestations come from the cache.
        for _ in 0..2 {
            assert_eq!(custody.signer(agent(1), &first).unwrap().address(), first.address);
            let wallet = first.address;
            let refused = CustodyError::NotAttested {
                agent: agent(2),
                wallet,
            };
            assert_eq!(custody.signer(agent(2), &first).unwrap_err(), refused);
            let borrowed = Wallet {
                attestation: second.attestation,
                ..first
            };
            assert_eq!(custody.signer(agent(2), &borrowed).unwrap_err(), refused);
        }
    }

    #[tokio::test]
    async fn the_memory_of_verified_attestations_is_bounded() {
        let custody = Custody::from_seed(WalletSeed::from_hex(TEST_SEED).unwrap());
        let signer = WalletSeed::from_hex(TEST_SEED).unwrap().derive_wallet(0).unwrap();
        let verified = || custody.verified.lock().unwrap().len();
        for number in 0..u128::try_from(MAX_VERIFIED).unwrap() + 2 {
            let agent = AgentId::from_uuid(Uuid::from_u128(number));
            let wallet = Wallet {
                key: WalletKey::Seed { index: 0 },
                address: signer.address(),
                attestation: signer.attest(agent).unwrap(),
            };
            custody.signer(agent, &wallet).unwrap();
            assert!(verified() <= MAX_VERIFIED);
        }
        assert_eq!(verified(), 2);
    }
}
