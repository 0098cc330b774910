//! The chains that Purser can pay on, and the one token that it uses on each.
//!
//! All signed data besides the payment itself is pinned here: chain id, token address, and the token's EIP-712 name and
//! version. Provider-supplied token data is never signed (`docs/x402.md` §3.1).

use alloy_primitives::{Address, address};

/// A chain that Purser can be configured for. One deployment pays on one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// Base mainnet, chain id 8453.
    Base,
    /// Base Sepolia, chain id 84532.
    BaseSepolia,
}

/// The USDC contract of a chain, with its EIP-712 domain as deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The contract; also the EIP-712 `verifyingContract`.
    pub address: Address,
    /// The EIP-712 domain name. It differs between chains for the same currency.
    pub name: &'static str,
    /// The EIP-712 domain version.
    pub version: &'static str,
}

impl Network {
    /// Every network, for tables.
    pub const ALL: [Self; 2] = [Self::Base, Self::BaseSepolia];

    /// The name in x402 v1, in the API and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::BaseSepolia => "base-sepolia",
        }
    }

    /// The network with this [`Network::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|network| network.name() == name)
    }

    /// The CAIP-2 name in x402 v2.
    pub const fn caip2(self) -> &'static str {
        match self {
            Self::Base => "eip155:8453",
            Self::BaseSepolia => "eip155:84532",
        }
    }

    /// The EIP-155 chain id.
    pub const fn chain_id(self) -> u64 {
        match self {
            Self::Base => 8453,
            Self::BaseSepolia => 84532,
        }
    }

    /// The token for payments on this network (`docs/x402.md` §3.1, read from the deployed contracts).
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

    /// Whether its token has no value.
    pub const fn is_testnet(self) -> bool {
        match self {
            Self::Base => false,
            Self::BaseSepolia => true,
        }
    }

    /// The time between two blocks: two seconds on both networks (Base's documentation, "Block building").
    pub const fn block_seconds(self) -> u64 {
        match self {
            Self::Base | Self::BaseSepolia => 2,
        }
    }

    /// The token's symbol in the API (`docs/spec.md` §2.3); the same on every chain.
    pub const fn token_symbol(self) -> &'static str {
        "USDC"
    }
}
