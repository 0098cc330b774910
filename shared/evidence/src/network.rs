//! The networks that Purser pays on.

/// A network with USDC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The name in version 1 of x402.
    pub name: &'static str,
    /// The name in version 2 (CAIP-2).
    pub caip2: &'static str,
    /// The chain id (EIP-155).
    pub chain_id: u64,
    /// The address of USDC, in lowercase.
    pub usdc: &'static str,
}

impl Network {
    /// Base and its test network.
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

    /// The network of this name, in either version.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|network| name == network.name || name == network.caip2)
    }

    /// Whether this is USDC: its address in any case, or its symbol.
    pub fn is_usdc(&self, asset: &str) -> bool {
        asset == "USDC" || asset.eq_ignore_ascii_case(self.usdc)
    }
}
