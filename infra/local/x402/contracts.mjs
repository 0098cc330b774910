// Compiles contracts/*.sol and puts the contracts on the chain at fixed addresses.
//
// The contracts have neither a constructor nor immutable variables, so their runtime code can be placed on the chain
// directly, and placing it again changes no balance. solc is slow to load and to run, so its output is cached in
// node_modules/.cache, under a hash of the input. `npm ci` clears the cache.

import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';

const SOURCES = ['Batch.sol', 'Usdc.sol'];
const CACHE = new URL('./node_modules/.cache/purser-local-x402/', import.meta.url);

export const BATCH = '0x000000000000000000000000000000000000ba7c';

// If a payment would fail, the facilitator calls Multicall3 at its usual address to find the reason.
export const MULTICALL3 = '0xcA11bde05977b3631167028862bE2a173976CA11';

/** Returns `{ Usdc: { abi, code }, Batch: { abi, code } }`, where `code` is runtime code. */
export async function compileContracts() {
  const sources = {};
  for (const name of SOURCES) {
    sources[name] = { content: await readFile(new URL(`./contracts/${name}`, import.meta.url), 'utf8') };
  }
  const input = JSON.stringify({
    language: 'Solidity',
    sources,
    settings: {
      // Paris is the newest EVM version without PUSH0, so the code runs under every hardfork that Anvil supports.
      evmVersion: 'paris',
      optimizer: { enabled: true, runs: 200 },
      outputSelection: { '*': { '*': ['abi', 'evm.deployedBytecode.object'] } },
    },
  });
  const manifest = await readFile(new URL('./node_modules/solc/package.json', import.meta.url), 'utf8');
  const key = createHash('sha256').update(JSON.parse(manifest).version).update('\0').update(input).digest('hex');
  const cached = new URL(`${key}.json`, CACHE);

  try {
    return JSON.parse(await readFile(cached, 'utf8'));
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }

  const contracts = await compile(input);
  await mkdir(CACHE, { recursive: true });
  // The file is written under another name and renamed, because another process may read or write it at the same time.
  const aside = new URL(`${key}.${process.pid}.tmp`, CACHE);
  await writeFile(aside, JSON.stringify(contracts));
  await rename(aside, cached);
  return contracts;
}

async function compile(input) {
  const { default: solc } = await import('solc');
  const output = JSON.parse(solc.compile(input));
  if (output.errors?.length) throw new Error(output.errors.map((error) => error.formattedMessage).join('\n'));

  const contracts = {};
  for (const [file, name] of SOURCES.map((source) => [source, source.replace('.sol', '')])) {
    const { abi, evm } = output.contracts[file][name];
    contracts[name] = { abi, code: `0x${evm.deployedBytecode.object}` };
  }
  return contracts;
}

/** Puts the token, the batch contract and Multicall3 on the chain behind `client`. */
export async function placeContracts(client, usdc) {
  const { Usdc, Batch } = await compileContracts();
  await setCode(client, usdc, Usdc.code);
  await setCode(client, BATCH, Batch.code);
  await setCode(client, MULTICALL3, await multicall3Code(client));
}

function setCode(client, address, code) {
  return client.request({ method: 'anvil_setCode', params: [address, code] });
}

async function multicall3Code(client) {
  // viem contains the creation code but does not export it, so it is imported by its path. Calling creation code
  // returns the runtime code.
  const constants = new URL('./constants/contracts.js', import.meta.resolve('viem'));
  const { multicall3Bytecode } = await import(constants);
  const { data } = await client.call({ data: multicall3Bytecode });
  return data;
}
