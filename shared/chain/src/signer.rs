//! Signs EIP-3009 `TransferWithAuthorization` messages under the EIP-712 domain of the network's token.
//!
//! Only a [`TransferAuthorization`] for the network's own token is signed, never data from a provider. Signing a
//! settlement twice is safe, because the nonce is the same and the token accepts each nonce once.

use crate::WalletSigner;
use alloy::primitives::{Address, B256, Signature, U256, keccak256};
use alloy::sol_types::{Eip712Domain, SolStruct as _, eip712_domain};
use purser_domain::{Network, TransferAuthorization};
use std::sync::LazyLock;

alloy::sol! {
    /// The names, order and types of the fields are part of the signed hash (EIP-3009).
    struct TransferWithAuthorization {
        address from;
        address to;
        uint256 value;
        uint256 validAfter;
        uint256 validBefore;
        bytes32 nonce;
    }
}

/// Why a transfer was not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The payer is another wallet, because the seed or the stored address is wrong.
    #[error("the key belongs to wallet {derived}, but the payer is {from}")]
    OtherWallet {
        /// The wallet address that is derived from the seed.
        derived: Address,
        /// The payer's address in the transfer.
        from: Address,
    },
    /// The elliptic curve computation failed. No known input causes this error.
    #[error("the transfer could not be signed")]
    Signature,
}

impl WalletSigner {
    /// Signs a transfer of the network's token from this wallet. The signature is r, s, and v (27 or 28).
    pub fn sign(&self, network: Network, authorization: &TransferAuthorization) -> Result<[u8; 65], SignError> {
        let (derived, from) = (self.address(), authorization.from);
        if derived != from {
            return Err(SignError::OtherWallet { derived, from });
        }
        self.sign_digest(transfer_digest(network, authorization))
    }

    /// Signs a digest that this crate computed. The signature is r, s, and v (27 or 28).
    pub(crate) fn sign_digest(&self, digest: B256) -> Result<[u8; 65], SignError> {
        let signature = self
            .key
            .sign_prehash_recoverable(digest.as_slice())
            .map_err(|_| SignError::Signature)?;
        Ok(Signature::from(signature).as_bytes())
    }
}

/// Computes the EIP-712 hash of a transfer, which is signed.
pub(crate) fn transfer_digest(network: Network, authorization: &TransferAuthorization) -> B256 {
    let transfer = TransferWithAuthorization {
        from: authorization.from,
        to: authorization.to,
        value: U256::from(authorization.value.units()),
        validAfter: U256::from(TransferAuthorization::VALID_AFTER),
        validBefore: U256::from(authorization.valid_before.secs()),
        nonce: authorization.nonce,
    };
    let message = keccak256([TYPE_HASH.as_slice(), &transfer.eip712_encode_data()].concat());
    keccak256([&[0x19, 0x01], domain_separator(network).as_slice(), message.as_slice()].concat())
}

/// The EIP-712 type hash of `TransferWithAuthorization`, cached because alloy would compute it for every transfer.
static TYPE_HASH: LazyLock<B256> =
    LazyLock::new(|| keccak256(TransferWithAuthorization::eip712_encode_type().as_bytes()));

fn domain_separator(network: Network) -> B256 {
    static BASE: LazyLock<B256> = LazyLock::new(|| token_domain(Network::Base).separator());
    static BASE_SEPOLIA: LazyLock<B256> = LazyLock::new(|| token_domain(Network::BaseSepolia).separator());
    match network {
        Network::Base => *BASE,
        Network::BaseSepolia => *BASE_SEPOLIA,
    }
}

fn token_domain(network: Network) -> Eip712Domain {
    let token = network.token();
    eip712_domain! {
        name: token.name,
        version: token.version,
        chain_id: network.chain_id(),
        verifying_contract: token.address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::primitives::hex;
    use k256::ecdsa::SigningKey;
    use purser_domain::{Amount, Timestamp};
    use serde_json::Value;

    /// Test vectors that were made with viem and accepted by the reference facilitator.
    fn vectors() -> Vec<(Network, Value)> {
        let vectors: Vec<Value> = serde_json::from_str(include_str!("../testdata/eip3009.json")).unwrap();
        assert_eq!(vectors.len(), Network::ALL.len());
        Network::ALL.into_iter().zip(vectors).collect()
    }

    fn text<'a>(vector: &'a Value, pointer: &str) -> &'a str {
        vector.pointer(pointer).unwrap().as_str().unwrap()
    }

    fn authorization(vector: &Value) -> TransferAuthorization {
        TransferAuthorization {
            from: text(vector, "/message/from").parse().unwrap(),
            to: text(vector, "/message/to").parse().unwrap(),
            value: Amount::parse_atomic_units(text(vector, "/message/value")).unwrap(),
            valid_before: Timestamp::from_secs(text(vector, "/message/validBefore").parse().unwrap()).unwrap(),
            nonce: text(vector, "/message/nonce").parse().unwrap(),
        }
    }

    /// Returns the wallet of one of the accounts that Anvil and Hardhat print at startup.
    fn wallet(number: usize) -> WalletSigner {
        let keys = [
            "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
            "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
            "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
        ];
        WalletSigner::from_key(SigningKey::from_slice(&hex::decode(keys[number]).unwrap()).unwrap())
    }

    #[test]
    fn viem_signatures_are_reproduced_byte_for_byte() {
        for (network, vector) in vectors() {
            assert_eq!(
                domain_separator(network).to_string(),
                text(&vector, "/domainSeparator"),
                "{network:?}"
            );
            let authorization = authorization(&vector);
            assert_eq!(
                transfer_digest(network, &authorization).to_string(),
                text(&vector, "/digest"),
                "{network:?}"
            );
            let signature = wallet(1).sign(network, &authorization).unwrap();
            assert_eq!(
                hex::encode_prefixed(signature),
                text(&vector, "/signature"),
                "{network:?}"
            );
        }
    }

    #[test]
    fn signatures_recover_to_the_signing_wallet() {
        let (network, vector) = vectors().pop().unwrap();
        let mut seen = [false; 2];
        for byte in 0..16 {
            let authorization = TransferAuthorization {
                nonce: B256::repeat_byte(byte),
                ..authorization(&vector)
            };
            let bytes = wallet(1).sign(network, &authorization).unwrap();
            seen[usize::from(bytes[64] - 27)] = true;
            let signature = Signature::from_raw_array(&bytes).unwrap();
            assert_eq!(
                signature
                    .recover_address_from_prehash(&transfer_digest(network, &authorization))
                    .unwrap(),
                authorization.from
            );
        }
        assert_eq!(seen, [true; 2]);
    }

    #[test]
    fn transfers_from_another_wallet_are_not_signed() {
        let (network, vector) = vectors().pop().unwrap();
        let refused = wallet(2).sign(network, &authorization(&vector)).unwrap_err();
        let from = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8".parse().unwrap();
        assert_eq!(
            refused,
            SignError::OtherWallet {
                derived: wallet(2).address(),
                from
            }
        );
    }

    #[test]
    fn every_field_of_a_transfer_is_signed() {
        let (network, vector) = vectors().pop().unwrap();
        let same = authorization(&vector);
        let changed = [
            (Network::Base, same),
            (
                network,
                TransferAuthorization {
                    to: Address::repeat_byte(9),
                    ..same
                },
            ),
            (
                network,
                TransferAuthorization {
                    value: Amount::from_units(10_001).unwrap(),
                    ..same
                },
            ),
            (
                network,
                TransferAuthorization {
                    valid_before: Timestamp::from_secs(1).unwrap(),
                    ..same
                },
            ),
            (
                network,
                TransferAuthorization {
                    nonce: B256::ZERO,
                    ..same
                },
            ),
        ];
        for (other_network, other) in changed {
            assert_ne!(
                transfer_digest(other_network, &other),
                transfer_digest(network, &same),
                "{other_network:?} {other:?}"
            );
        }
    }
}
