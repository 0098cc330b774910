//! The networks that Purser pays on.

/// A network with the USDC token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The network's name in x402 v1, for example `base`.
    pub name: &'static str,
    /// The CAIP-2 name, as in x402 v2.
    pub caip2: &'static str,
    /// The EIP-155 chain id.
    pub chain_id: u64,
    /// The address of the USDC contract, in lower case.
    pub usdc: &'static str,
}

impl Network {
    /// Base and Base Sepolia.
    pub const ALL: [Self; 2] = [
        Self {
            name: "base",
            caip2: "eip155:8453",
            chain_id: 8_453,
            usdc: "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
        },
        Self {
            name: "base-sepolia",
            caip2: "eip155:84532",
            chain_id: 84_532,
            usdc: "0x036cbd53842c5426634e7929541ec2318f3dcf7e",
        },
    ];

    /// Returns the network with this name, in x402 v1 or v2.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|network| name == network.name || name == network.caip2)
    }

    /// Returns whether this text identifies USDC: the contract address in any case, or the symbol.
    pub fn is_usdc(&self, asset: &str) -> bool {
        asset == "USDC" || asset.eq_ignore_ascii_case(self.usdc)
    }
}
