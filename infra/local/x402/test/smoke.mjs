// Runs the stack like `make run`, as a child process next to its own Anvil, and pays with the official client.
//
// Tests what the Rust tests rely on: exact amounts arrive, `AuthorizationUsed` is followed by its `Transfer`, payments
// still work after the chain's clock was advanced, and the child process ends with its parent. Everything listens on
// loopback, every process is ended by the handle that started it, and every suite has a time limit.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { registerExactEvmScheme } from '@x402/evm/exact/client';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import {
  createPublicClient, createWalletClient, domainSeparator, encodeFunctionData, http, parseEventLogs, publicActions,
} from 'viem';
import { mnemonicToAccount } from 'viem/accounts';

import { chainById } from '../chains.mjs';
import { compileContracts } from '../contracts.mjs';

// Each suite takes a few seconds, but longer on a busy machine or with a first compilation.
const TIMEOUT_MS = 90_000;

const DEV_MNEMONIC = 'test test test test test test test test test test test junk';
const funder = mnemonicToAccount(DEV_MNEMONIC, { addressIndex: 0 });
const agent = mnemonicToAccount(DEV_MNEMONIC, { addressIndex: 1 });
const { Usdc, Batch } = await compileContracts();

for (const chainId of ['84532', '8453']) {
  describe(`on chain ${chainId}`, { timeout: TIMEOUT_MS }, () => {
    const chain = chainById(chainId);
    let anvil, rpcUrl, stack, ready, reader, pay;

    before(async () => {
      // A suite's time limit does not apply to its hooks, so startAnvil and startStack have their own limits.
      ({ anvil, rpcUrl } = await startAnvil(chainId));
      ({ stack, ready } = await startStack(rpcUrl, chainId));
      reader = createPublicClient({ transport: http(rpcUrl), pollingInterval: 100 });
      await send(rpcUrl, { to: ready.usdc_address, data: usdcCall('mint', [agent.address, 100_000_000n]) });
      pay = wrapFetchWithPayment(fetch, registerExactEvmScheme(new x402Client(), { signer: agent }));
    });
    after(async () => {
      if (stack) await stop(stack);
      if (anvil) await stop(anvil);
    });

    const usdc = (functionName, args = []) =>
      reader.readContract({ address: ready.usdc_address, abi: Usdc.abi, functionName, args });

    /** Runs `purchase` and returns its response with status 200, after checking the transferred amount and the logs. */
    async function paid(units, receiptHeader, purchase) {
      const balance = await usdc('balanceOf', [ready.pay_to]);
      const response = await purchase();
      assert.equal(response.status, 200, await response.clone().text());
      assert.equal((await usdc('balanceOf', [ready.pay_to])) - balance, units);

      const receipt = fromBase64(response.headers.get(receiptHeader));
      assert.equal(receipt.success, true);
      const { logs } = await reader.getTransactionReceipt({ hash: receipt.transaction });
      const [used, transfer] = parseEventLogs({ abi: Usdc.abi, logs });
      assert.equal(used.eventName, 'AuthorizationUsed');
      assert.equal(used.args.authorizer, agent.address);
      assert.equal(transfer.eventName, 'Transfer');
      assert.equal(transfer.logIndex, used.logIndex + 1);
      assert.deepEqual(transfer.args, { from: agent.address, to: ready.pay_to, value: units });
      return { body: await response.json(), receipt, nonce: used.args.nonce };
    }

    /**
     * Makes a v2 payment that is signed by hand, so that the test can choose the validity. The official client uses
     * only the machine's clock.
     */
    async function payV2ByHand(path, window) {
      const asked = await fetch(ready.provider_url + path);
      const { accepts: [accepted], resource } = fromBase64(asked.headers.get('payment-required'));
      const payload = await authorize(chain, accepted.payTo, accepted.amount, window);
      return fetch(ready.provider_url + path, {
        headers: { 'payment-signature': toBase64({ x402Version: 2, payload, resource, accepted }) },
      });
    }

    async function payV1ByHand(path, window) {
      const { accepts: [{ scheme, network, payTo, maxAmountRequired }] } =
        await (await fetch(ready.provider_v1_url + path)).json();
      const payload = await authorize(chain, payTo, maxAmountRequired, window);
      return fetch(ready.provider_v1_url + path, {
        headers: { 'x-payment': toBase64({ x402Version: 1, scheme, network, payload }) },
      });
    }

    test('the token signs under the domain of the real USDC', async () => {
      const domain = {
        name: chain.usdcName, version: chain.usdcVersion, chainId: chain.id, verifyingContract: ready.usdc_address,
      };
      assert.equal(await usdc('name'), chain.usdcName);
      assert.equal(await usdc('DOMAIN_SEPARATOR'), domainSeparator({ domain }));
    });

    test('what is free is free and what is not says its terms', async () => {
      assert.equal((await fetch(`${ready.provider_url}/health`)).status, 200);
      assert.equal((await fetch(`${ready.provider_v1_url}/health`)).status, 200);
      assert.deepEqual(await (await fetch(`${ready.provider_url}/free`)).json(), { message: 'this one is on the house' });
      assert.equal((await fetch(`${ready.provider_url}/price/1.5`)).status, 400);
      assert.equal((await fetch(`${ready.provider_v1_url}/price/0`)).status, 400);

      const rows = [
        ['GET', '/weather', '10000'], ['GET', '/search?q=x402', '5000'], ['GET', '/scrape?url=https://example.com', '20000'],
        ['POST', '/report', '250000'], ['GET', '/premium', '12000000'], ['GET', '/price/123456', '123456'],
      ];
      for (const [method, path, amount] of rows) {
        const response = await fetch(ready.provider_url + path, { method });
        assert.equal(response.status, 402, path);
        const required = fromBase64(response.headers.get('payment-required'));
        assert.equal(required.resource.url, ready.provider_url + path);
        assert.deepEqual(required.accepts, [{
          scheme: 'exact', network: chain.network, amount, asset: chain.usdc, payTo: ready.pay_to,
          maxTimeoutSeconds: 300, extra: { name: chain.usdcName, version: '2' },
        }]);
      }
      const v1 = await fetch(`${ready.provider_v1_url}/weather`);
      assert.equal(v1.status, 402);
      assert.equal((await v1.json()).accepts[0].resource, `${ready.provider_v1_url}/weather`);
    });

    test('the official client pays v2', async () => {
      const weather = await paid(10_000n, 'payment-response', () => pay(`${ready.provider_url}/weather`));
      assert.equal(weather.body.city, 'Lisbon');
      const price = await paid(123_456n, 'payment-response', () => pay(`${ready.provider_url}/price/123456`));
      assert.deepEqual(price.body, { charged_units: '123456', currency: 'USDC' });
    });

    test('a report is sold to whom gives its payment an id', async () => {
      const order = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"topic":"tin"}' };
      const nameless = await pay(`${ready.provider_url}/report`, order);
      assert.equal(nameless.status, 400);
      assert.equal(nameless.headers.get('payment-response'), null, 'nothing is settled');

      const naming = registerExactEvmScheme(new x402Client(), { signer: agent }).onBeforePaymentCreation(
        async ({ paymentRequired }) => void appendPaymentIdentifierToExtensions(paymentRequired.extensions),
      );
      const report = await paid(250_000n, 'payment-response', () =>
        wrapFetchWithPayment(fetch, naming)(`${ready.provider_url}/report`, order));
      assert.equal(report.body.topic, 'tin');
    });

    test('the official client pays v1', async () => {
      const weather = await paid(10_000n, 'x-payment-response', () => pay(`${ready.provider_v1_url}/weather`));
      assert.equal(weather.body.city, 'Lisbon');
      assert.equal(weather.receipt.network, chain.v1Network);
      await paid(7n, 'x-payment-response', () => pay(`${ready.provider_v1_url}/price/7`));
    });

    test('offers that vary are paid with the nonce of the last five minutes', async () => {
      const url = `${ready.provider_url}/weather?offers=vary`;
      const offers = await Promise.all([1, 2].map(async () => (await fetch(url)).headers.get('payment-required')));
      const [first, second] = offers.map(fromBase64);
      assert.notEqual(first.extensions['sign-in-with-x'].info.nonce, second.extensions['sign-in-with-x'].info.nonce);
      assert.notEqual(first.error, second.error);
      assert.deepEqual(first.accepts, second.accepts);
      await paid(10_000n, 'payment-response', () => pay(url));

      const { accepts: [accepted], resource } = first;
      const window = { validAfter: 0, validBefore: Math.floor(Date.now() / 1000) + 300 };
      const payload = await authorize(chain, accepted.payTo, accepted.amount, window);
      const nameless = toBase64({ x402Version: 2, payload, resource, accepted });
      assert.equal((await fetch(url, { headers: { 'payment-signature': nameless } })).status, 402);

      const v1 = `${ready.provider_v1_url}/weather?offers=vary`;
      const [one, other] = await Promise.all([1, 2].map(async () => (await fetch(v1)).json()));
      assert.notEqual(one.error, other.error);
      await paid(10_000n, 'x-payment-response', () => pay(v1));
    });

    test('a lost answer is sent to the same payment, which is taken once', async () => {
      for (const [url, header, units] of [
        [`${ready.provider_url}/weather?answers=lost&offers=vary`, 'payment-signature', 10_000n],
        [`${ready.provider_v1_url}/weather?answers=lost`, 'x-payment', 10_000n],
      ]) {
        const sent = [];
        const spied = async (request) => {
          if (request.headers.has(header)) sent.push(request.headers.get(header));
          return fetch(request);
        };
        const balance = await usdc('balanceOf', [ready.pay_to]);
        const payer = registerExactEvmScheme(new x402Client(), { signer: agent });
        await assert.rejects(wrapFetchWithPayment(spied, payer)(url), /fetch failed|terminated|socket/);
        const again = await fetch(url, { headers: { [header]: sent[0] } });
        assert.equal(again.status, 200);
        assert.equal((await again.json()).city, 'Lisbon');
        assert.ok(again.headers.get('payment-response') ?? again.headers.get('x-payment-response'));
        assert.equal((await usdc('balanceOf', [ready.pay_to])) - balance, units);
      }
    });

    test('payments at the same moment all settle', async () => {
      const balance = await usdc('balanceOf', [ready.pay_to]);
      const responses = await Promise.all(
        Array.from({ length: 8 }, (_, i) => pay(`${i % 2 ? ready.provider_url : ready.provider_v1_url}/price/11`)),
      );
      assert.deepEqual(responses.map(({ status }) => status), Array(8).fill(200));
      assert.equal((await usdc('balanceOf', [ready.pay_to])) - balance, 88n);
    });

    test('a payment is taken once', async () => {
      const now = Math.floor(Date.now() / 1000);
      const payload = await authorize(chain, ready.pay_to, '10000', { validAfter: 0, validBefore: now + 300 });
      const payment = toBase64({ x402Version: 1, scheme: 'exact', network: chain.v1Network, payload });
      const again = () => fetch(`${ready.provider_v1_url}/weather`, { headers: { 'x-payment': payment } });
      assert.equal((await again()).status, 200);
      const second = await again();
      assert.equal(second.status, 402);
      assert.equal((await second.json()).error, 'invalid_exact_evm_nonce_already_used');
    });

    test('one transaction carries many transfers, all or none', async () => {
      const window = { validAfter: 0, validBefore: Math.floor(Date.now() / 1000) + 300 };
      const calls = [];
      for (const value of ['3', '4']) {
        const { authorization: a, signature } = await authorize(chain, ready.pay_to, value, window);
        calls.push(usdcCall('transferWithAuthorization', [
          a.from, a.to, BigInt(a.value), BigInt(a.validAfter), BigInt(a.validBefore), a.nonce, signature,
        ]));
      }
      const run = (batch) => ({
        to: ready.batch_address,
        data: encodeFunctionData({ abi: Batch.abi, functionName: 'run', args: [ready.usdc_address, batch] }),
      });
      const { logs } = await send(rpcUrl, run(calls));
      const names = parseEventLogs({ abi: Usdc.abi, logs }).map(({ eventName }) => eventName);
      assert.deepEqual(names, ['AuthorizationUsed', 'Transfer', 'AuthorizationUsed', 'Transfer']);
      await assert.rejects(
        send(rpcUrl, run([usdcCall('mint', [agent.address, 1n]), calls[0]])),
        /authorization is used or canceled/,
      );
    });

    // This test comes last, because it leaves the chain's clock ahead.
    test('the providers live in the time of the chain', async () => {
      await reader.request({ method: 'evm_increaseTime', params: [30 * 3600] });
      await reader.request({ method: 'evm_mine', params: [] });
      const chainNow = Number((await reader.getBlock()).timestamp);
      assert.ok(chainNow > Date.now() / 1000 + 29 * 3600);

      const inChainTime = { validAfter: chainNow - 60, validBefore: chainNow + 300 };
      await paid(10_000n, 'payment-response', () => payV2ByHand('/weather', inChainTime));
      await paid(10_000n, 'x-payment-response', () => payV1ByHand('/weather', inChainTime));

      const stale = await payV2ByHand('/weather', { validAfter: 0, validBefore: Math.floor(Date.now() / 1000) + 300 });
      assert.equal(stale.status, 402);
      assert.equal(
        fromBase64(stale.headers.get('payment-required')).error,
        'invalid_exact_evm_payload_authorization_valid_before',
      );
    });
  });
}

describe('the process', { timeout: TIMEOUT_MS }, () => {
  let anvil, rpcUrl;
  before(async () => ({ anvil, rpcUrl } = await startAnvil('84532')));
  after(() => stop(anvil));

  const endings = {
    'its stdin closes': (stack) => stack.stdin.end(),
    'it gets SIGTERM': (stack) => stack.kill('SIGTERM'),
    'it gets SIGINT': (stack) => stack.kill('SIGINT'),
  };
  for (const [when, end] of Object.entries(endings)) {
    test(`ends cleanly when ${when}`, async () => {
      const { stack, lines } = await startStack(rpcUrl, '84532');
      end(stack);
      const [code] = stack.exitCode === null ? await once(stack, 'exit') : [stack.exitCode];
      assert.equal(code, 0);
      assert.equal(lines.length, 1);
    });
  }

  test('refuses a chain that is not the one it was told', async () => {
    await assert.rejects(startStack(rpcUrl, '8453'), /exited with 1/);
  });
});

async function startAnvil(chainId) {
  const port = await freePort();
  const anvil = spawn(
    fileURLToPath(new URL('../node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil', import.meta.url)),
    ['--host', '127.0.0.1', '--port', `${port}`, '--chain-id', chainId, '--mixed-mining', '--block-time', '1', '--silent'],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  const rpcUrl = `http://127.0.0.1:${port}`;
  const client = createPublicClient({ transport: http(rpcUrl, { retryCount: 0 }) });
  for (let tries = 0; tries < 100; tries += 1) {
    if (anvil.exitCode !== null) throw new Error(`anvil exited with ${anvil.exitCode}`);
    try {
      await client.getChainId();
      return { anvil, rpcUrl };
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  await stop(anvil);
  throw new Error('anvil did not answer within ten seconds');
}

async function startStack(rpcUrl, chainId) {
  const stack = spawn(process.execPath, [fileURLToPath(new URL('../stack.mjs', import.meta.url))], {
    env: { PATH: process.env.PATH, RPC_URL: rpcUrl, CHAIN_ID: chainId },
    // The stack ends when stdin closes, so a stack whose test was killed ends too.
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = [];
  const firstLine = new Promise((resolve, reject) => {
    createInterface({ input: stack.stdout }).on('line', (line) => {
      clearTimeout(tooLong);
      lines.push(line);
      resolve(line);
    });
    const tooLong = setTimeout(() => stack.kill('SIGTERM'), TIMEOUT_MS);
    stack.once('exit', (code) => {
      clearTimeout(tooLong);
      reject(new Error(`the stack exited with ${code}`));
    });
  });
  return { stack, lines, ready: JSON.parse(await firstLine) };
}

async function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  await exited;
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

async function send(rpcUrl, call) {
  const wallet = createWalletClient({ account: funder, transport: http(rpcUrl), pollingInterval: 100 }).extend(publicActions);
  const hash = await wallet.sendTransaction({ ...call, chain: null });
  return wallet.waitForTransactionReceipt({ hash });
}

function usdcCall(functionName, args) {
  return encodeFunctionData({ abi: Usdc.abi, functionName, args });
}

/** Returns the `exact` payload that both versions share: an EIP-3009 authorization and its signature. */
async function authorize(chain, to, value, { validAfter, validBefore }) {
  const authorization = {
    from: agent.address, to, value, validAfter: `${validAfter}`, validBefore: `${validBefore}`,
    nonce: `0x${randomBytes(32).toString('hex')}`,
  };
  const signature = await agent.signTypedData({
    domain: { name: chain.usdcName, version: chain.usdcVersion, chainId: chain.id, verifyingContract: chain.usdc },
    primaryType: 'TransferWithAuthorization',
    types: {
      TransferWithAuthorization: [
        { name: 'from', type: 'address' }, { name: 'to', type: 'address' }, { name: 'value', type: 'uint256' },
        { name: 'validAfter', type: 'uint256' }, { name: 'validBefore', type: 'uint256' }, { name: 'nonce', type: 'bytes32' },
      ],
    },
    message: authorization,
  });
  return { signature, authorization };
}

function toBase64(value) {
  return Buffer.from(JSON.stringify(value)).toString('base64');
}

function fromBase64(text) {
  return JSON.parse(Buffer.from(text, 'base64').toString('utf8'));
}
