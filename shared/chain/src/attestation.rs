//! Wallet attestations: a signature by a wallet's key over the agent's id and the wallet's address.
//!
//! The EIP-712 domain has no contract and no chain id. A token's domain has both, so no token accepts an attestation as
//! a transfer (EIP-712, "Definition of domainSeparator").

use crate::{SignError, WalletSigner};
use alloy::primitives::{Address, B256, FixedBytes, Signature};
use alloy::sol_types::{Eip712Domain, SolStruct as _, eip712_domain};
use purser_domain::{AgentId, WalletAttestation};

alloy::sol! {
    /// The names of the struct and the fields are part of the signed hash (EIP-712). Renaming them invalidates all
    /// stored attestations.
    struct AgentWallet {
        bytes16 agent;
        address wallet;
    }
}

/// Returns whether the wallet's key has signed an attestation for this agent and this wallet.
pub fn is_attested(attestation: &WalletAttestation, agent: AgentId, wallet: Address) -> bool {
    let signature = Signature::from_raw_array(attestation.as_bytes()).ok();
    let signer = signature.and_then(|signature| {
        let digest = attestation_digest(agent, wallet);
        signature.recover_address_from_prehash(&digest).ok()
    });
    signer == Some(wallet)
}

impl WalletSigner {
    /// Signs that this wallet belongs to this agent.
    pub fn attest(&self, agent: AgentId) -> Result<WalletAttestation, SignError> {
        let digest = attestation_digest(agent, self.address());
        self.sign_digest(digest).map(WalletAttestation::from_bytes)
    }
}

pub(crate) fn attestation_digest(agent: AgentId, wallet: Address) -> B256 {
    const DOMAIN: Eip712Domain = eip712_domain! {
        name: "Purser wallet attestation",
        version: "1",
    };
    let agent = FixedBytes::from(*agent.uuid().as_bytes());
    AgentWallet { agent, wallet }.eip712_signing_hash(&DOMAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WalletSeed, wallet::TEST_SEED};
    use uuid::Uuid;

    #[test]
    fn an_attestation_proves_one_wallet_for_one_agent() {
        let agent = |number| AgentId::from_uuid(Uuid::from_u128(number));
        let seed = WalletSeed::from_hex(TEST_SEED).unwrap();
        let [wallet, other] = [1, 2].map(|index| seed.derive_wallet(index).unwrap());
        let attestation = wallet.attest(agent(7)).unwrap();
        assert!(is_attested(&attestation, agent(7), wallet.address()));
        assert!(!is_attested(&attestation, agent(8), wallet.address()));
        assert!(!is_attested(&attestation, agent(7), other.address()));
        assert!(!is_attested(
            &other.attest(agent(7)).unwrap(),
            agent(7),
            wallet.address()
        ));
        let nothing = WalletAttestation::from_bytes([0; 65]);
        assert!(!is_attested(&nothing, agent(7), Address::ZERO));
    }
}
