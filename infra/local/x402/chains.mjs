// The chains that the local chain can imitate, and what x402 defines for each.
//
// The USDC addresses and EIP-712 names are the real ones, so an official client accepts them without configuration, and
// a signature for the local chain has the same domain as a signature for the real chain. The token's own name is in
// contracts/Usdc.sol, and test/smoke.mjs checks that both agree.

const CHAINS = {
  8453: {
    v1Network: 'base',
    usdc: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    usdcName: 'USD Coin',
  },
  84532: {
    v1Network: 'base-sepolia',
    usdc: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    usdcName: 'USDC',
  },
};

export function chainById(text) {
  const chain = CHAINS[text];
  if (!chain) throw new Error(`CHAIN_ID is \`${text}\`, but must be one of ${Object.keys(CHAINS).join(', ')}`);
  return { id: Number(text), network: `eip155:${text}`, usdcVersion: '2', ...chain };
}
