//! Who holds the wallets' keys, behind one interface: the seed's derivations, or KMS.
//!
//! What a wallet's item says is compared with what its custody gives before anything is signed: the address, and which
//! custody it is.

use crate::attestation::attestation_digest;
use crate::kms::address_of;
use crate::signer::transfer_digest;
use crate::{KeyError, KmsError, KmsKeys, SignError, WalletSeed, WalletSigner};
use alloy::primitives::{Address, B256};
use purser_domain::{AgentId, KmsKeyId, Network, TransferAuthorization, Wallet, WalletAttestation, WalletKey};
use std::sync::Arc;

/// Who holds the keys of all wallets.
#[derive(Debug)]
pub enum Custody {
    /// All follow from one secret, which is in this function's memory.
    Seed(WalletSeed),
    /// Each is a key in KMS; no function ever has one.
    Kms(Box<KmsKeys>),
}

/// A key whose wallet is to be attested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKey {
    /// The seed's, with this last step.
    Seed(u32),
    /// One in KMS.
    Kms(KmsKeyId),
}

/// Why a custody has no signer or signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustodyError {
    /// The wallet's key is in the other custody.
    #[error("the wallet's key is in another custody")]
    OtherCustody,
    /// The wallet's address is not its key's.
    #[error("the key's wallet is {derived}, and the agent's is {stored}")]
    OtherWallet {
        /// Where the key leads.
        derived: Address,
        /// What the agent has.
        stored: Address,
    },
    /// The stored public key is none.
    #[error("the wallet's public key is not on the curve")]
    PublicKey,
    /// The seed derives no such wallet.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Nothing was signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// KMS did not answer as it should.
    #[error(transparent)]
    Kms(#[from] KmsError),
}

impl CustodyError {
    /// Whether another try may succeed.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Kms(KmsError::Unavailable(_)))
    }
}

/// What signs for one wallet, and for no other.
#[derive(Debug)]
pub enum Signer<'a> {
    /// A derived key.
    Seed(Arc<WalletSigner>),
    /// A key in KMS.
    Kms {
        /// Where it is.
        keys: &'a KmsKeys,
        /// Which one it is.
        key: KmsKeyId,
        /// Its address.
        address: Address,
    },
}

impl Custody {
    /// What signs for a wallet, if its key gives its address. Nothing is asked of anybody.
    pub fn signer(&self, wallet: &Wallet) -> Result<Signer<'_>, CustodyError> {
        let signer = match (self, wallet.key) {
            (Self::Seed(seed), WalletKey::Seed { index }) => Signer::Seed(seed.wallet(index)?),
            (Self::Kms(keys), WalletKey::Kms { id, public_key }) => Signer::Kms {
                keys,
                key: id,
                address: address_of(&public_key).ok_or(CustodyError::PublicKey)?,
            },
            (Self::Seed(_), WalletKey::Kms { .. }) | (Self::Kms(_), WalletKey::Seed { .. }) => {
                return Err(CustodyError::OtherCustody);
            }
        };
        let (derived, stored) = (signer.address(), wallet.address);
        if derived == stored {
            Ok(signer)
        } else {
            Err(CustodyError::OtherWallet { derived, stored })
        }
    }

    /// The wallet of a new key, attested by it for that agent.
    pub async fn attest(&self, agent: AgentId, key: NewKey) -> Result<Wallet, CustodyError> {
        let (key, signer) = match (self, key) {
            (Self::Seed(seed), NewKey::Seed(index)) => (WalletKey::Seed { index }, Signer::Seed(seed.wallet(index)?)),
            (Self::Kms(keys), NewKey::Kms(id)) => {
                let public_key = keys.public_key(id).await?;
                let address = address_of(&public_key).ok_or(CustodyError::PublicKey)?;
                let signer = Signer::Kms { keys, key: id, address };
                (WalletKey::Kms { id, public_key }, signer)
            }
            (Self::Seed(_), NewKey::Kms(_)) | (Self::Kms(_), NewKey::Seed(_)) => {
                return Err(CustodyError::OtherCustody);
            }
        };
        let address = signer.address();
        let attestation = signer.sign_digest(attestation_digest(agent, address)).await?;
        Ok(Wallet {
            key,
            address,
            attestation: WalletAttestation::from_bytes(attestation),
        })
    }
}

impl Signer<'_> {
    /// The wallet's address.
    pub fn address(&self) -> Address {
        match self {
            Self::Seed(wallet) => wallet.address(),
            Self::Kms { address, .. } => *address,
        }
    }

    /// Signs a transfer of the network's token from this wallet: r, s, and v as 27 or 28, as the token takes them. The
    /// seed's signatures of one transfer are the same bytes, those of KMS are not.
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
        match self {
            Self::Seed(wallet) => Ok(wallet.sign_digest(digest)?),
            Self::Kms { keys, key, address } => Ok(keys.sign(*key, *address, digest).await?),
        }
    }
}
