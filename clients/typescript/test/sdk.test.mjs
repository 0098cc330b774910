// Tests the official client, unmodified, with Purser registered.

import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';

import { wrapFetchWithPayment, x402Client } from '@x402/fetch';

import { AlreadyPaid, ApprovalRequired, paymentOf, Purser, Refusal, registerPurser } from '../dist/index.js';
import { newAgent, newRun, stack, v1, v2, WEATHER } from './stack.mjs';

const TIMEOUT_MS = 60_000;

describe('the official client', { timeout: TIMEOUT_MS }, () => {
  let agent;
  before(async () => {
    agent = await newAgent('official client');
  });

  /** Returns a `fetch` of the official client, and the paid requests that were sent. */
  function official({ run = newRun(), maxAmount = '1' } = {}) {
    const purser = new Purser({ url: stack.base_url, key: agent.key, run, maxAmount });
    const client = new x402Client();
    const sent = [];
    const spy = (request) => {
      const header = request.headers.get('PAYMENT-SIGNATURE') ?? request.headers.get('X-PAYMENT');
      if (header) sent.push(JSON.parse(atob(header)));
      return fetch(request);
    };
    return { client, sent, pay: wrapFetchWithPayment(registerPurser(client, purser, spy), client) };
  }

  for (const [version, base] of [
    ['v2', v2],
    ['v1', v1],
  ]) {
    test(`pays a provider of x402 ${version}, and proves it`, async () => {
      const spent = await agent.spent();
      const { pay, sent } = official();
      const response = await pay(`${base}/weather`);
      assert.deepEqual(await response.json(), WEATHER);
      assert.equal(paymentOf(response).receipt.status, 'confirmed');
      assert.equal((await agent.spent()) - spent, 10_000);
      // The payment on the wire is Purser's payment, without the id by which the scheme finds the call.
      assert.equal(sent.length, 1);
      assert.doesNotMatch(JSON.stringify(sent), /purserCall/);
    });
  }

  test('a POST keeps its body and method', async () => {
    const body = '{"topic":"tides"}';
    const response = await official().pay(`${v2}/report`, {
      method: 'POST',
      body,
      headers: { 'Content-Type': 'application/json' },
    });
    assert.equal((await response.json()).topic, 'tides');
    assert.equal(paymentOf(response).receipt.settlement.operation_id, 'report.short');
  });

  test('calls side by side are kept apart', async () => {
    const { pay } = official();
    const responses = await Promise.all(
      [`${v2}/weather`, `${v1}/weather`, `${v2}/search?q=x402`, `${v2}/weather`].map((url) => pay(url)),
    );
    const operations = responses.map((response) => paymentOf(response).receipt.settlement.operation_id);
    assert.deepEqual(operations, ['weather.current', 'weather.current-v1', 'web.search', 'weather.current']);
    assert.equal(new Set(responses.map((response) => paymentOf(response).settlementId)).size, 4);
  });

  test('refusals come as they are', async () => {
    const { pay, sent } = official({ maxAmount: 9_999 });
    await assert.rejects(
      pay(`${v2}/weather`),
      (error) => error instanceof Refusal && error.slug === 'amount_exceeds_max',
    );
    assert.equal(sent.length, 0);
  });

  test("the client's own spend controls hold as well", async () => {
    const { client, pay } = official({ maxAmount: '20' });
    await assert.rejects(pay(`${v2}/premium`), /spendControls.maxAmountPerPayment \(\$1, including USDC\)/);
    await agent.limit('lab-reports', { require_approval_above_units: 10_000_000 });
    client.setSpendControls({ maxAmountPerPayment: '$20' });
    const escalation = await pay(`${v2}/premium`).catch((error) => error);
    assert.ok(escalation instanceof ApprovalRequired, String(escalation));
    await agent.approve(escalation.approvalId);
    assert.equal((await escalation.retry()).status, 200);
  });

  test("the client's own hooks see the payment, and one that asks to pay again does not", async () => {
    const spent = await agent.spent();
    const seen = [];
    const { client, pay, sent } = official();
    client.onAfterPaymentCreation(async ({ paymentPayload }) => {
      seen.push(paymentPayload.payload.authorization.value);
    });
    client.onPaymentResponse(async ({ settleResponse }) => {
      seen.push(settleResponse.success);
      return { recovered: true };
    });
    await assert.rejects(pay(`${v2}/weather`), /waits for no payment/);
    assert.deepEqual([seen, sent.length], [['10000', true], 1]);
    assert.equal((await agent.spent()) - spent, 10_000);
  });

  test('of several entries the one that the client chose is paid', async () => {
    const spent = await agent.spent();
    const purser = new Purser({ url: stack.base_url, key: agent.key, run: newRun(), maxAmount: '1' });
    // Purser alone would select the cheaper entry.
    const client = new x402Client((_, accepts) => accepts[1]);
    const several = async (request) => {
      const response = await fetch(request);
      if (response.status !== 402) return response;
      const offer = JSON.parse(atob(response.headers.get('PAYMENT-REQUIRED')));
      const [entry] = offer.accepts;
      const accepts = [{ ...entry, amount: '5000' }, entry, { scheme: 'exact', network: 'solana:x', amount: '1' }];
      return new Response('', {
        status: 402,
        headers: { 'PAYMENT-REQUIRED': btoa(JSON.stringify({ ...offer, accepts })) },
      });
    };
    const response = await wrapFetchWithPayment(registerPurser(client, purser, several), client)(`${v2}/weather`);
    assert.equal(response.status, 200);
    assert.equal((await agent.spent()) - spent, 10_000);
  });

  test("what the client's extensions add is sent", async () => {
    const { client, pay, sent } = official();
    client.registerExtension({
      key: 'note',
      enrichPaymentPayload: async (payload) => ({
        ...payload,
        extensions: { ...payload.extensions, note: { info: { id: 'n1' } } },
      }),
    });
    assert.equal((await pay(`${v2}/weather`)).status, 200);
    assert.deepEqual(sent[0].extensions, { note: { info: { id: 'n1' } } });
    assert.doesNotMatch(JSON.stringify(sent), /purserCall/);
  });

  test('a run that is repeated pays nothing twice', async () => {
    const run = newRun();
    await official({ run }).pay(`${v2}/weather`);
    const spent = await agent.spent();
    await assert.rejects(official({ run }).pay(`${v2}/weather`), AlreadyPaid);
    assert.equal(await agent.spent(), spent);
  });

  test('without its fetch, the scheme says what is missing', async () => {
    const purser = new Purser({ url: stack.base_url, key: agent.key, run: newRun(), maxAmount: '1' });
    const client = new x402Client();
    registerPurser(client, purser);
    await assert.rejects(
      wrapFetchWithPayment(fetch, client)(`${v2}/weather`),
      /the fetch that registerPurser returned/,
    );
  });
});
