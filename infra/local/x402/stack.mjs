// The x402 part of the local stack in one process: the contracts on the chain, a facilitator, and two paid providers.
//
// Invariants: stdout has exactly one line, the JSON below, which is written when everything responds. Logs go to
// stderr. Nothing listens beyond 127.0.0.1. The process ends on SIGTERM, on SIGINT, and when the pipe on stdin closes,
// so that a killed parent leaves no process behind. The parent starts the chain. README.md lists the environment
// variables.

import { fstatSync } from 'node:fs';

import { createWalletClient, defineChain, http, publicActions } from 'viem';
import { privateKeyToAccount, toAccount } from 'viem/accounts';

import { installChainClock } from './chain-clock.mjs';
import { chainById } from './chains.mjs';
import { BATCH, placeContracts } from './contracts.mjs';
import { startFacilitator } from './facilitator.mjs';
import { startProviderV1 } from './provider-v1.mjs';
import { startProviderV2 } from './provider-v2.mjs';

// Anvil's well-known accounts 2 and 9, as Anvil prints them. The merchant has account 2. The facilitator has the last
// account, so that tests that send from the first accounts do not compete with it for nonces.
const MERCHANT = '0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC';
const FACILITATOR = lazyAccount(
  '0xa0Ee7A142d267C1f36714E4a8F75612F20a79720',
  '0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6',
);

// The SDK logs with console.log, but stdout is reserved for the one line.
console.log = console.error;

endWithParent();
process.stdout.write(`${JSON.stringify(await start(process.env))}\n`);

// Returns an account whose key is loaded at the first signature. Loading a key takes a fifth of a second, and most tests
// submit no payment.
function lazyAccount(address, key) {
  let loaded;
  const account = () => (loaded ??= privateKeyToAccount(key));
  return toAccount({
    address,
    signMessage: (...args) => account().signMessage(...args),
    signTransaction: (...args) => account().signTransaction(...args),
    signTypedData: (...args) => account().signTypedData(...args),
  });
}

async function start(env) {
  const chain = chainById(env.CHAIN_ID);
  const client = await connect(required(env, 'RPC_URL'), chain);
  await placeContracts(client, chain.usdc);

  const confirmationTimeoutMs = Number(env.CONFIRMATION_TIMEOUT_MS || 30_000);
  const followChain = installChainClock(client);
  const facilitatorUrl = await startFacilitator({
    chain,
    client,
    followChain,
    confirmationTimeoutMs,
    port: port(env, 'FACILITATOR_PORT'),
  });
  const merchant = {
    chain,
    followChain,
    facilitatorUrl,
    // This is longer than the facilitator waits for a receipt, so that its `settlement_pending` arrives instead of a
    // timeout.
    facilitatorTimeoutMs: confirmationTimeoutMs + 10_000,
    payTo: MERCHANT,
  };
  return {
    facilitator_url: facilitatorUrl,
    provider_url: await startProviderV2({ ...merchant, port: port(env, 'PROVIDER_PORT') }),
    provider_v1_url: await startProviderV1({ ...merchant, port: port(env, 'PROVIDER_V1_PORT') }),
    pay_to: MERCHANT,
    usdc_address: chain.usdc,
    batch_address: BATCH,
  };
}

async function connect(rpcUrl, { id }) {
  const client = createWalletClient({
    account: FACILITATOR,
    chain: defineChain({
      id,
      name: 'local',
      nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
      rpcUrls: { default: { http: [rpcUrl] } },
    }),
    transport: http(rpcUrl),
    pollingInterval: 100,
  }).extend(publicActions);

  const answered = await chainId(client);
  if (answered !== id) throw new Error(`CHAIN_ID is ${id}, but the chain at RPC_URL is ${answered}`);
  return client;
}

// The chain may still be starting. viem tries four times within a second, and this function tries ten times.
async function chainId(client, attempts = 10) {
  try {
    return await client.getChainId();
  } catch (error) {
    if (attempts === 1) throw error;
    return chainId(client, attempts - 1);
  }
}

function required(env, name) {
  if (!env[name]) throw new Error(`${name} is not set`);
  return env[name];
}

function port(env, name) {
  const value = Number(env[name] || 0);
  if (!Number.isInteger(value) || value < 0 || value > 65_535) throw new Error(`${name} is not a port: \`${env[name]}\``);
  return value;
}

function endWithParent() {
  const end = () => process.exit(0);
  process.on('SIGTERM', end);
  process.on('SIGINT', end);

  // Only a pipe is watched, because a parent holds it open. A terminal is not watched, and /dev/null or a file would
  // end at once.
  const stdin = fstatSync(0);
  if (stdin.isFIFO() || stdin.isSocket()) process.stdin.on('close', end).resume();
}
