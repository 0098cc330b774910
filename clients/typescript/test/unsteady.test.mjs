// Tests with the stack's unsteady providers: payment requirements that vary, lost responses, and an approval that takes
// ten minutes. The tests advance the stack's clock, so this file runs after the tests that compare that clock with the
// machine's clock.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { wrapFetchWithPayment, x402Client } from '@x402/fetch';

import { ApprovalRequired, paymentOf, PaymentUnanswered, Purser, registerPurser, wrapFetch } from '../dist/index.js';
import { advance, newAgent, newRun, openApproval, stack, v1, v2, WEATHER } from './stack.mjs';

const TIMEOUT_MS = 100_000;

/** The ways to pay. Each has the options of a call as options of the whole run. */
const PAYERS = {
  'a fetch that pays': (purser) => wrapFetch(fetch, purser),
  'the official client': (purser) => {
    const client = new x402Client();
    return wrapFetchWithPayment(registerPurser(client, purser), client);
  },
};

for (const [what, payer] of Object.entries(PAYERS)) {
  describe(what, { timeout: TIMEOUT_MS }, () => {
    async function prepared(policy, options = {}) {
      const agent = await newAgent('patient');
      if (policy) await agent.limit('lab-weather', policy);
      const purser = new Purser({ url: stack.base_url, key: agent.key, run: newRun(), maxAmount: '1', ...options });
      return { agent, pay: payer(purser), purser };
    }

    for (const [version, base] of [
      ['v2', v2],
      ['v1', v1],
    ]) {
      test(`a lost answer of ${version} is sent again for the same payment`, async () => {
        const { agent, pay } = await prepared();
        const url = `${base}/weather?answers=lost&offers=vary`;
        const lost = await pay(url).catch((error) => error);
        assert.ok(lost instanceof PaymentUnanswered, String(lost));
        assert.equal(await agent.spent(), 10_000);
        const response = await pay(url);
        assert.deepEqual(await response.json(), WEATHER);
        const { settlementId, replayed, receipt } = paymentOf(response);
        assert.deepEqual([settlementId, replayed, receipt.status], [lost.settlementId, true, 'confirmed']);
        assert.equal(await agent.spent(), 10_000, 'the same nonce');
      });
    }

    test('an approved call is bought at a newer offer', async () => {
      const { agent, pay } = await prepared({ require_approval_above_units: 0 });
      const url = `${v2}/weather?offers=vary`;
      const escalation = await pay(url).catch((error) => error);
      assert.ok(escalation instanceof ApprovalRequired, String(escalation));
      await assert.rejects(pay(url), (error) => error.approvalId === escalation.approvalId);
      await agent.approve(escalation.approvalId);
      assert.equal((await pay(url)).status, 200);
      assert.equal(await agent.spent(), 10_000);
    });

    test('a person may take ten minutes', async () => {
      // After this time, the provider no longer accepts the first payment requirements, neither from a call that waits
      // nor from `retry`.
      const url = `${v2}/weather?offers=vary`;
      const waiting = await prepared({ require_approval_above_units: 0 }, { waitForApproval: 120 });
      const asking = await prepared({ require_approval_above_units: 0 });
      const call = waiting.pay(url);
      const escalation = await asking.pay(url).catch((error) => error);
      const open = await openApproval(waiting.agent.id);
      await advance(600);
      // The client measures the wait with the machine's clock, and still sends payment requirements that are one second
      // old.
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      await waiting.agent.approve(open);
      await asking.agent.approve(escalation.approvalId);
      for (const [response, { agent, purser }, approval] of [
        [await call, waiting, open],
        [await escalation.retry(), asking, escalation.approvalId],
      ]) {
        assert.equal(response.status, 200);
        const { settlementId, receipt } = paymentOf(response);
        assert.equal(receipt.status, 'confirmed');
        assert.equal((await purser.api.approval(approval)).settlement_id, settlementId);
        assert.equal(await agent.spent(), 10_000);
      }
    });
  });
}
