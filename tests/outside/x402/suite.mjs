// Runs the unmodified official end-to-end suite of x402 (the folder e2e of its repository) on the chain of a local
// stack. Three clients that pay through Purser are added, and the facilitators of the suite settle withdrawals.
// expected.json lists the payments that succeed, and those that don't with the reasons. run.sh prepares all this.
//
//   node suite.mjs <checkout>

import { spawn } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { newAgent, operator, owner, stack } from '../../../clients/typescript/test/stack.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const { privateKeyToAccount } = createRequire(join(here, '../../../infra/local/x402/package.json'))('viem/accounts');

const suite = join(resolve(process.argv[2]), 'e2e');
const expected = JSON.parse(readFileSync(join(here, 'expected.json'), 'utf8'));

const PRICE = 1_000; // of every paid endpoint, in micro-units
const FIRST_PORT = 4022; // the suite's own choice: each server and facilitator gets the next one
const PAYOUT_PORT = new URL(process.env.FACILITATOR_URL).port;
const OTHER_CHAINS = ['SOLANA_DEVNET_RPC_URL', 'AVM_TESTNET_RPC_URL', 'APTOS_TESTNET_RPC_URL', 'STELLAR_TESTNET_RPC_URL'];
const NOWHERE = 'http://127.0.0.1:9';
// A client of the suite that pays without Purser. If this client can't make a payment, Purser isn't the cause.
const CONTROL = 'fetch';
const CLIENTS = {
  purser: { language: 'typescript', command: `node ${join(here, 'client.mjs')}` },
  'purser-x402-fetch': {
    language: 'typescript',
    command: `node ${join(here, 'client.mjs')} ${join(suite, 'clients', CONTROL, 'package.json')}`,
  },
  'purser-python': { language: 'python', command: `python ${join(here, 'client.py')}` },
};

const [counted, failed] = [[], []];
/** Compares the result of a scenario with the expected one, and prints it. */
function judge(name, said, wanted, details = '') {
  counted.push(name);
  const isExpected = said === wanted;
  if (!isExpected) failed.push(name);
  console.log(`${name.padEnd(84)} ${said.padEnd(9)} ${isExpected ? '' : `INSTEAD OF ${wanted}`} ${details}`.trimEnd());
}

async function rpc(method, ...params) {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
  const answer = await fetch(stack.rpc_url, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  const { result, error } = await answer.json();
  if (error) throw new Error(`${method}: ${JSON.stringify(error)}`);
  return result;
}

async function holds(wallet) {
  const data = `0x70a08231${wallet.slice(2).toLowerCase().padStart(64, '0')}`;
  return Number(await rpc('eth_call', { to: stack.usdc_address, data }, 'latest'));
}

/** Creates an account with coins for gas and with tokens. */
async function newAccount() {
  const key = `0x${randomBytes(32).toString('hex')}`;
  const { address } = privateKeyToAccount(key);
  await rpc('anvil_setBalance', address, '0xde0b6b3a7640000');
  const body = JSON.stringify({ wallet_address: address, units: 10_000_000 });
  const funded = await fetch(`${stack.base_url}/_local/fund`, { method: 'POST', body });
  if (!funded.ok) throw new Error(`no tokens for an account: ${funded.status}`);
  return { key, address };
}

/** Creates a Solana key and its address. The suite requires them, but no test here uses them. */
function solana() {
  const { d, x } = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  const [secret, address] = [Buffer.from(d, 'base64url'), Buffer.from(x, 'base64url')];
  return { key: base58(Buffer.concat([secret, address])), address: base58(address) };
}

function base58(bytes) {
  const digits = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
  const zeros = bytes.findIndex((byte) => byte !== 0);
  let text = '';
  for (let rest = BigInt(`0x${bytes.toString('hex')}`); rest > 0n; rest /= 58n) text = digits[Number(rest % 58n)] + text;
  return '1'.repeat(zeros) + text;
}

/** Reads the configurations in a folder of the suite, by name. */
function configurations(folder) {
  const names = readdirSync(join(suite, folder)).filter((name) => existsSync(join(suite, folder, name, 'test.config.json')));
  return names.map((name) => [name, JSON.parse(readFileSync(join(suite, folder, name, 'test.config.json'), 'utf8'))]);
}

/** Returns the paid endpoints of the suite's servers, each with the reason if it is left out. */
function endpoints() {
  const legacy = configurations('legacy/servers').map(([name, configuration]) => [`legacy-${name}`, configuration]);
  const servers = [...configurations('servers'), ...legacy];
  return servers.flatMap(([server, { language, transport = 'http', endpoints: all }]) =>
    all
      .filter(({ requiresPayment }) => requiresPayment)
      .map(({ path, protocolFamily = 'evm', transferMethod = 'eip3009' }) => {
        const traits = [`${server} ${path}`, language, transport, protocolFamily, transferMethod];
        return { server, path, why: expected.left_out[traits.find((trait) => trait in expected.left_out)] };
      }),
  );
}

/** Adds the clients that pay through Purser to the suite. */
function addClients() {
  for (const [name, { language, command }] of Object.entries(CLIENTS)) {
    const folder = join(suite, 'clients', name);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'run.sh'), `${command}\n`);
    const config = {
      name,
      type: 'client',
      language,
      protocolFamilies: ['evm'],
      x402Versions: [1, 2],
      evm: { transferMethods: ['eip3009'] },
      environment: { required: ['RESOURCE_SERVER_URL', 'ENDPOINT_PATH'], optional: [] },
    };
    writeFileSync(join(folder, 'test.config.json'), JSON.stringify(config));
  }
}

function removeClients() {
  for (const name of Object.keys(CLIENTS)) rmSync(join(suite, 'clients', name), { recursive: true, force: true });
}

/** Adds the suite's servers, with all ports that they will use, to the catalog, and enables them for the agent. */
async function sell(agent, paths, ports, payTo) {
  const payment = { scheme: 'exact', network: 'base-sepolia', token: 'USDC', amount_units: PRICE, pay_to: payTo };
  const services = ports.map((port) => ({ port, id: crypto.randomUUID() }));
  for (const { port, id } of services) {
    const operations = paths.map((path, index) => ({
      id: crypto.randomUUID(),
      operation_id: `call.${index}`,
      label: path,
      method: 'GET',
      endpoint: `http://localhost:${port}${path}`,
      category: 'data',
      execution: 'sync',
      price_model: 'fixed',
      estimated_price_units: PRICE,
      max_price_units: null,
      params: {},
      payment,
    }));
    await operator('PUT', `/internal/services/${id}`, {
      slug: `official-${port}`,
      name: `Official server at port ${port}`,
      description: 'A server of the official suite.',
      website: `http://localhost:${port}/`,
      category: 'data',
      source: 'test',
      trust_status: 'listed',
      curated: true,
      operations,
    });
  }
  // The catalog is cached for some seconds.
  for (const { id } of services) {
    await until(() => owner('POST', `/agents/${agent.id}/services`, { service_id: id }));
  }
}

const pause = (milliseconds) => new Promise((resume) => setTimeout(resume, milliseconds));

/** Repeats a check until it succeeds, for up to half a minute. */
async function until(works, attempts = 150) {
  try {
    return await works();
  } catch (error) {
    if (attempts === 1) throw error;
    await pause(200);
    return until(works, attempts - 1);
  }
}

const groups = new Set();
process.on('exit', () => groups.forEach(end));
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

function end(group) {
  groups.delete(group);
  try {
    process.kill(-group, 'SIGKILL');
  } catch {
    // All processes of the group have ended.
  }
}

/** Starts a program in a process group, so that its child processes can be ended too. */
function start(command, folder, env, stdio) {
  const child = spawn(command[0], command.slice(1), { cwd: folder, env: { ...process.env, ...env }, stdio, detached: true });
  groups.add(child.pid);
  return { ended: once(child, 'exit'), stop: () => end(child.pid) };
}

/** Runs the suite's servers and all clients with one facilitator. Returns the suite's results. */
async function pay(facilitator, run, env) {
  const [report, log] = ['json', 'log'].map((kind) => join(process.env.RESULTS, `${facilitator}.${kind}`));
  rmSync(report, { force: true });
  const list = (key, values) => `--${key}=${[...new Set(values)].join(',')}`;
  const command = [
    ...['pnpm', 'test', '--verbose', '--testnet', '--families=evm', `--output-json=${report}`],
    list('clients', [...Object.keys(CLIENTS), CONTROL]),
    list('facilitators', [facilitator]),
    list('servers', run.map(({ server }) => server)),
    list('endpoints', run.map(({ path }) => path)),
  ];
  const output = openSync(log, 'w');
  const program = start(command, suite, env, ['ignore', output, output]);
  // The suite may not end after it has written the report, because its mock facilitator keeps running after npx has
  // ended.
  while (!existsSync(report) && !(await Promise.race([program.ended, pause(1_000)])));
  await pause(1_000);
  program.stop();
  if (!existsSync(report)) throw new Error(`the suite did not get to its results: ${log}`);
  const { results } = JSON.parse(readFileSync(report, 'utf8'));

  const nameOf = (client, endpoint) => `${client} pays ${endpoint} by ${facilitator}`;
  const said = new Map();
  for (const { client, server, endpoint, passed, error } of results) {
    said.set(nameOf(client, `${server} ${endpoint}`), [passed ? 'pass' : 'fail', error]);
  }
  const clients = [...Object.keys(CLIENTS), CONTROL];
  const wanted = expected.paid.flatMap((endpoint) => clients.map((client) => nameOf(client, endpoint)));
  for (const name of new Set([...wanted, ...said.keys()])) {
    const [verdict, details] = said.get(name) ?? ['not run'];
    judge(name, verdict, wanted.includes(name) ? 'pass' : 'nothing', details);
  }
  return results;
}

/** Has each facilitator of the suite settle a withdrawal. */
async function payOut(env) {
  for (const [name, wanted] of Object.entries(expected.payouts)) {
    const folder = join(suite, 'facilitators', name);
    const command = readFileSync(join(folder, 'run.sh'), 'utf8').trim().split('\n').at(-1).split(' ');
    const facilitator = start(command, folder, { ...env, PORT: PAYOUT_PORT }, 'ignore');
    await until(async () => {
      const { ok } = await fetch(`${process.env.FACILITATOR_URL}/supported`);
      if (!ok) throw new Error(`the facilitator ${name} does not start`);
    });
    // Each withdrawal has its own agent, because a rejected withdrawal stays open until it can no longer be made.
    const [agent, to] = await Promise.all([newAgent(`paid-out-by-${name}`), newAccount()]);
    const before = await holds(to.address);
    await owner('PUT', `/agents/${agent.id}/payout-address`, { address: to.address });
    const payout = { amount_units: PRICE, idempotency_key: crypto.randomUUID() };
    const { submission } = await owner('POST', `/agents/${agent.id}/payouts`, payout);
    judge(`a payout by ${name}`, submission, wanted.submission);
    const arrived = (await holds(to.address)) - before;
    judge(`what a payout by ${name} brought, in micro-units`, `${arrived}`, wanted.submission === 'accepted' ? `${PRICE}` : '0');
    facilitator.stop();
    await facilitator.ended;
  }
}

async function main() {
  const [agent, client, facilitator, server] = await Promise.all([
    newAgent('official-suite'),
    newAccount(),
    newAccount(),
    newAccount(),
  ]);
  const [clientSolana, facilitatorSolana, serverSolana] = [solana(), solana(), solana()];
  const all = endpoints();
  const run = all.filter(({ why }) => !why);
  const ports = [...new Set(run.map((endpoint) => endpoint.server))].map((_, index) => FIRST_PORT + index);
  await sell(agent, [...new Set(run.map(({ path }) => path))], ports, server.address);

  const env = {
    PURSER_URL: stack.base_url,
    PURSER_KEY: agent.key,
    CLIENT_EVM_PRIVATE_KEY: client.key,
    CLIENT_SVM_PRIVATE_KEY: clientSolana.key,
    FACILITATOR_EVM_PRIVATE_KEY: facilitator.key,
    FACILITATOR_SVM_PRIVATE_KEY: facilitatorSolana.key,
    SERVER_EVM_ADDRESS: server.address,
    SERVER_SVM_ADDRESS: serverSolana.address,
    BASE_SEPOLIA_RPC_URL: stack.rpc_url,
    ...Object.fromEntries(OTHER_CHAINS.map((name) => [name, NOWHERE])),
  };
  for (const { server: name, path, why } of all) {
    if (why) console.log(`${`${name} ${path}`.padEnd(84)} left out  ${why}`);
  }
  for (const [name, { language }] of configurations('facilitators')) {
    const why = expected.left_out[language];
    if (why) console.log(`${`everything by the facilitator ${name}`.padEnd(84)} left out  ${why}`);
  }

  addClients();
  const results = [];
  try {
    // The facilitators run one after the other, so that few ports are used. `fetch` refuses port 4045.
    for (const name of expected.facilitators) results.push(...(await pay(name, run, env)));
  } finally {
    removeClients();
  }
  const ours = results.filter(({ client: name, passed }) => name in CLIENTS && passed);
  const spent = await agent.spent();
  judge("what left the agent's wallet, in micro-units", `${spent}`, `${ours.length * PRICE}`);
  await payOut({
    EVM_PRIVATE_KEY: facilitator.key,
    SVM_PRIVATE_KEY: facilitatorSolana.key,
    EVM_NETWORK: 'eip155:84532',
    EVM_RPC_URL: stack.rpc_url,
  });
  console.log(`${counted.length - failed.length} passed, ${failed.length} failed`);
  process.exitCode = failed.length === 0 ? 0 : 1;
}

await main();
