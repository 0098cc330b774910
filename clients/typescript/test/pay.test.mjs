// Tests the complete flow against the stack's official x402 servers: a payment, a rejection, an approval, and the
// completion.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { before, describe, test } from 'node:test';

import { ApprovalRequired, AlreadyPaid, paymentOf, Purser, Refusal, wrapFetch } from '../dist/index.js';
import { newAgent, newRun, openApproval, stack, v1, v2, WEATHER } from './stack.mjs';

const TIMEOUT_MS = 60_000;

describe('a fetch that pays', { timeout: TIMEOUT_MS }, () => {
  let agent;
  before(async () => {
    agent = await newAgent('payer');
  });
  const purserOf = (options) =>
    new Purser({ url: stack.base_url, key: agent.key, run: newRun(), maxAmount: '0.05', ...options });

  for (const [version, base] of [
    ['v2', v2],
    ['v1', v1],
  ]) {
    test(`pays a provider of x402 ${version}, and proves it`, async () => {
      const spent = await agent.spent();
      const response = await wrapFetch(fetch, purserOf())(`${base}/weather`);
      assert.equal(response.status, 200);
      assert.deepEqual(await response.json(), WEATHER);
      const { receipt, settlementId, amountUnits, replayed } = paymentOf(response);
      assert.equal(receipt.status, 'confirmed');
      assert.equal(receipt.settlement.id, settlementId);
      assert.equal(receipt.settlement.operation_id, version === 'v2' ? 'weather.current' : 'weather.current-v1');
      assert.equal(amountUnits, 10_000);
      assert.equal(replayed, false);
      assert.equal((await agent.spent()) - spent, 10_000);
    });
  }

  test('what is free is passed on, with no word to Purser', async () => {
    const purser = purserOf({ fetch: () => assert.fail('Purser was asked') });
    const response = await wrapFetch(fetch, purser)(`${v2}/free`);
    assert.equal(response.status, 200);
    assert.equal(paymentOf(response), undefined);
  });

  test('a body is sent twice, unchanged, and its hash is what is judged', async () => {
    const authorized = [];
    const purser = purserOf({
      fetch: async (request) => {
        if (request.url.endsWith('/x402/authorize')) authorized.push(await request.clone().json());
        return fetch(request);
      },
    });
    const response = await wrapFetch(fetch, purser)(
      `${v2}/report#part`,
      { method: 'post', body: '{"topic":"tides"}', headers: { 'Content-Type': 'application/json' } },
      { maxAmount: 250_000 },
    );
    assert.equal((await response.json()).topic, 'tides');
    const [{ original_request: described, max_payment_units: most }] = authorized;
    assert.deepEqual(described, {
      method: 'POST',
      url: `${v2}/report`,
      body_hash: `sha256:${createHash('sha256').update('{"topic":"tides"}').digest('hex')}`,
    });
    assert.equal(most, 250_000);
  });

  test('identical calls are purchases of their own, in a row and side by side', async () => {
    const spent = await agent.spent();
    const pay = wrapFetch(fetch, purserOf());
    const responses = [await pay(`${v2}/weather`), ...(await Promise.all([1, 2, 3].map(() => pay(`${v2}/weather`))))];
    assert.deepEqual(
      responses.map(({ status }) => status),
      [200, 200, 200, 200],
    );
    assert.equal(new Set(responses.map((response) => paymentOf(response).settlementId)).size, 4);
    assert.equal((await agent.spent()) - spent, 40_000);
  });

  test('a run that is repeated pays nothing twice', async () => {
    const run = newRun();
    const first = await wrapFetch(fetch, purserOf({ run }))(`${v2}/weather`);
    const spent = await agent.spent();
    const pay = wrapFetch(fetch, purserOf({ run }));
    for (const attempt of [1, 2]) {
      await assert.rejects(pay(`${v2}/weather`), (error) => {
        assert.ok(error instanceof AlreadyPaid, `${attempt}: ${error}`);
        assert.equal(error.settlementId, paymentOf(first).settlementId);
        assert.equal(error.receiptStatus, 'confirmed');
        if (attempt === 2) error.acknowledge();
        return true;
      });
    }
    assert.equal(await agent.spent(), spent);
    // After `acknowledge`, the next call is a new purchase.
    assert.equal((await pay(`${v2}/weather`)).status, 200);
    assert.equal((await agent.spent()) - spent, 10_000);
  });

  test('the story: pay, be refused over the cap, ask a person, go on, and have the receipt', async () => {
    const agent = await newAgent('story');
    const run = newRun();
    const purser = new Purser({ url: stack.base_url, key: agent.key, run, maxAmount: '15' });
    const pay = wrapFetch(fetch, purser);
    await agent.limit('lab-weather', { max_per_day_units: 15_000 });
    await agent.limit('lab-reports', { require_approval_above_units: 10_000_000 });

    assert.equal((await pay(`${v2}/weather`)).status, 200);

    await assert.rejects(pay(`${v2}/weather`), (error) => {
      assert.ok(error instanceof Refusal);
      assert.equal(error.slug, 'daily_spend_limit_exceeded');
      const hours = (error.retryAt - Date.now()) / 3_600_000;
      assert.ok(hours > 23.9 && hours <= 24, `${error.retryAt}`);
      assert.equal(error.checks.find(({ name }) => name === 'max_per_day_units').remaining, 5_000);
      assert.match(error.todo, /retryAt/);
      return true;
    });

    const escalation = await pay(`${v2}/premium`).catch((error) => error);
    assert.ok(escalation instanceof ApprovalRequired, String(escalation));
    assert.equal(escalation.slug, 'approval_required');
    assert.equal((await escalation.approval.status()).status, 'pending');
    // A repeated call creates no second approval.
    await assert.rejects(pay(`${v2}/premium`), (error) => error.approvalId === escalation.approvalId);

    const waiting = escalation.approval.wait(20);
    await agent.approve(escalation.approvalId, 'for the quarterly report');
    const decided = await waiting;
    assert.equal(decided.status, 'approved');
    assert.equal(decided.note, 'for the quarterly report');

    const response = await escalation.retry();
    assert.equal(response.status, 200);
    assert.equal((await response.json()).dataset, 'shipping-lanes');
    const { receipt, settlementId } = paymentOf(response);
    assert.equal(receipt.status, 'confirmed');
    assert.equal((await purser.api.receipt(settlementId)).receipt_status, 'confirmed');
    assert.equal(await agent.spent(), 12_010_000);

    // The same run in a new process does not request another approval.
    const again = wrapFetch(fetch, new Purser({ url: stack.base_url, key: agent.key, run, maxAmount: '15' }));
    await assert.rejects(again(`${v2}/premium`), AlreadyPaid);
    assert.equal(await agent.spent(), 12_010_000);
  });

  test('identical calls that wait for one approval are each answered', async () => {
    const agent = await newAgent('impatient');
    await agent.limit('lab-weather', { require_approval_above_units: 0 });
    const pay = wrapFetch(fetch, new Purser({ url: stack.base_url, key: agent.key, run: newRun(), maxAmount: '1' }));
    const escalations = await Promise.all([1, 2].map(() => pay(`${v2}/weather`).catch((error) => error)));
    assert.equal(escalations[0].approvalId, escalations[1].approvalId);
    await agent.approve(escalations[0].approvalId);
    assert.equal((await escalations[0].retry()).status, 200);
    await assert.rejects(escalations[1].retry(), ({ slug }) => slug === 'idempotent_replay');
    // An approval is used by one purchase. The next call requires another approval.
    await assert.rejects(
      pay(`${v2}/weather`),
      (error) => error instanceof ApprovalRequired && error.approvalId !== escalations[0].approvalId,
    );
    assert.equal(await agent.spent(), 10_000);
  });

  test('a scrape says what it is pointed at', async () => {
    const agent = await newAgent('scraper');
    await agent.limit('lab-scrape', { allowed_domains: ['example.com'] });
    const pay = wrapFetch(fetch, new Purser({ url: stack.base_url, key: agent.key, run: newRun(), maxAmount: '1' }));
    const slugOf = (target) =>
      pay(`${v2}/scrape`, {}, { target }).then(
        ({ status }) => status,
        ({ slug }) => slug,
      );
    assert.equal(await slugOf(undefined), 'target_url_required');
    assert.equal(await slugOf('https://example.net/'), 'domain_not_allowed');
    assert.equal(await slugOf('https://www.example.com/page'), 200);
  });

  test('waits for a person as long as it was told, and goes on by itself', async () => {
    const agent = await newAgent('waiting');
    await agent.limit('lab-weather', { require_approval_above_units: 0 });
    const purser = new Purser({
      url: stack.base_url,
      key: agent.key,
      run: newRun(),
      maxAmount: '1',
      waitForApproval: 20,
    });
    const response = wrapFetch(fetch, purser)(`${v2}/weather`);
    await agent.approve(await openApproval(agent.id));
    assert.equal((await response).status, 200);

    const rejected = wrapFetch(fetch, purser)(`${v2}/weather`);
    await agent.reject(await openApproval(agent.id));
    await assert.rejects(rejected, (error) => {
      assert.equal(error.slug, 'policy_blocked');
      assert.equal(error.decision.reason, 'approval_rejected');
      return true;
    });
  });
});
