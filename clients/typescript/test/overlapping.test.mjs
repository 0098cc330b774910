// Tests that concurrent identical calls of a run are separate purchases.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { wrapFetchWithPayment, x402Client } from '@x402/fetch';

import { paymentOf, Purser, registerPurser, wrapFetch } from '../dist/index.js';
import { newAgent, newRun, stack, v2 } from './stack.mjs';

const [WORKERS, CALLS, TIMEOUT_MS] = [4, 40, 100_000];
/** The delays of the responses to paid calls. Some calls end before earlier calls, or start while other calls run. */
const DELAYS_MS = [400, 0, 200, 0, 100];

const PAYERS = {
  'a fetch that pays': (purser, fetch) => wrapFetch(fetch, purser),
  'the official client': (purser, fetch) => {
    const client = new x402Client();
    return wrapFetchWithPayment(registerPurser(client, purser, fetch), client);
  },
};

for (const [what, payer] of Object.entries(PAYERS)) {
  describe(what, { timeout: TIMEOUT_MS }, () => {
    test('four workers make forty purchases', async () => {
      const agent = await newAgent('busy');
      const purser = new Purser({ url: stack.base_url, key: agent.key, run: newRun(), maxAmount: '0.05' });
      let paid = 0;
      const staggered = async (request) => {
        const response = await fetch(request);
        if (!request.headers.has('PAYMENT-SIGNATURE')) return response;
        await new Promise((resolve) => setTimeout(resolve, DELAYS_MS[paid++ % DELAYS_MS.length]));
        return response;
      };
      const pay = payer(purser, staggered);
      const bought = [];
      const work = async () => {
        for (let call = 0; call < CALLS / WORKERS; call += 1) {
          const response = await pay(`${v2}/weather`);
          assert.equal((await response.json()).city, 'Lisbon');
          bought.push(paymentOf(response).settlementId);
        }
      };
      await Promise.all(Array.from({ length: WORKERS }, work));
      assert.equal(new Set(bought).size, CALLS);
      assert.equal((await purser.api.receipts(100)).count, CALLS);
      assert.equal(await agent.spent(), CALLS * 10_000);
    });
  });
}
