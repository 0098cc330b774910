//! The supported chains and their tokens. Token data from a provider is never signed (`docs/x402.md` §3.1).

use alloy_primitives::{Address, address};

/// A chain on which a deployment can pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// Base mainnet, chain id 8453.
    Base,
    /// Base Sepolia, chain id 84532.
    BaseSepolia,
}

/// The USDC contract on a chain, with the contract's EIP-712 domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The contract address, which is also the EIP-712 `verifyingContract`.
    pub address: Address,
    /// The EIP-712 domain name, which differs between the chains.
    pub name: &'static str,
    /// The EIP-712 domain version.
    pub version: &'static str,
}

impl Network {
    /// All supported networks.
    pub const ALL: [Self; 2] = [Self::Base, Self::BaseSepolia];

    /// Returns the name in x402 v1, in the API and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::BaseSepolia => "base-sepolia",
        }
    }

    /// Returns the network with this [`Network::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|network| network.name() == name)
    }

    /// Returns the CAIP-2 name, as in x402 v2.
    pub const fn caip2(self) -> &'static str {
        match self {
            Self::Base => "eip155:8453",
            Self::BaseSepolia => "eip155:84532",
        }
    }

    /// Returns the EIP-155 chain id.
    pub const fn chain_id(self) -> u64 {
        match self {
            Self::Base => 8453,
            Self::BaseSepolia => 84532,
        }
    }

    /// Returns the token for payments on this network (`docs/x402.md` §3.1).
    pub const fn token(self) -> Token {
        match self {
            Self::Base => Token {
                address: address!("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"),
                name: "USD Coin",
                version: "2",
            },
            Self::BaseSepolia => Token {
                address: address!("0x036CbD53842c5426634e7929541eC2318f3dCF7e"),
                name: "USDC",
                version: "2",
            },
        }
    }

    /// Returns whether the network is a test network, whose token has no value.
    pub const fn is_testnet(self) -> bool {
        match self {
            Self::Base => false,
            Self::BaseSepolia => true,
        }
    }

    /// Returns the time between two blocks, in seconds (Base's documentation, "Block building").
    pub const fn seconds_per_block(self) -> u64 {
        match self {
            Self::Base | Self::BaseSepolia => 2,
        }
    }

    /// Returns the token's symbol in the API (`docs/spec.md` §2.3).
    pub const fn token_symbol(self) -> &'static str {
        "USDC"
    }
}
