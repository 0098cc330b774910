// Tests with a scripted Purser, for responses that the real Purser rarely sends.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  AlreadyPaid,
  ApprovalRequired,
  paymentOf,
  PaymentLapsed,
  PaymentNotAccepted,
  PriceAboveListed,
  Purser,
  Refusal,
  registerPurser,
  Unreachable,
  wrapFetch,
} from '../dist/index.js';

const OFFER =
  '{"x402Version":1,"accepts":[{"maxAmountRequired":"1","precise":12345678901234567890.10}],"vendor":{"b":1,"a":2}}';
const PAYMENT = { x402_version: 1, header_name: 'X-PAYMENT', header_value: 'signed', payload: {} };
const SETTLEMENT = {
  settlement_id: 's',
  transaction_id: 't',
  amount_units: 1,
  pay_to: '0x',
  receipt_status: 'authorized',
};
const paid = { status: 200, body: { ...SETTLEMENT, payment: PAYMENT } };
const lapsed = (receipt_status) => ({ status: 200, body: { ...SETTLEMENT, receipt_status, payment: null } });
const refused = (status, error, more = {}) => ({ status, body: { error, message: '', ...more } });
const escalated = refused(402, 'approval_required', { approval_id: 'a' });
const approval = (status) => ({ status: 200, body: { status } });

/**
 * Returns a paying `fetch` with scripted responses, and the requests that were made. Each path returns its responses in
 * order and then repeats the last response.
 */
function scripted(script, options = {}) {
  const asked = [];
  const purserFetch = async (request) => {
    const name = /(authorize|check|complete|approvals|settlements)/.exec(
      request.url.replace(/settlements\/s\/complete/, 'complete'),
    )[1];
    const text = await request.text();
    asked.push({ name, text, at: Date.now(), body: text && JSON.parse(text) });
    const answers = script[name];
    const { status, body } = answers.length > 1 ? answers.shift() : answers[0];
    return new Response(JSON.stringify(body), { status });
  };
  const purser = new Purser({
    url: 'https://purser.example',
    key: 'gak_pub_a:gak_sec_b',
    run: 'r',
    maxAmount: 1,
    fetch: purserFetch,
    ...options,
  });
  const provider = async ({ headers }) =>
    headers.has('X-PAYMENT') ? new Response('goods') : new Response(OFFER, { status: 402 });
  return {
    pay: (options) => wrapFetch(provider, purser)('https://a.example/', {}, options),
    asked,
    named: (name) => asked.filter((one) => one.name === name),
  };
}

test("the provider's terms go to Purser as they came, to the byte", async () => {
  const { pay, asked } = scripted({ authorize: [paid] });
  assert.equal((await pay()).status, 200);
  assert.ok(asked[0].text.startsWith(`{"payment_requirement":${OFFER},"max_payment_units":1,`), asked[0].text);
});

test("a payment that can't be used any more", async () => {
  const settled = { status: 200, body: { ...SETTLEMENT, id: 's', receipt_status: 'confirmed', tx_hash: '0x1' } };
  for (const [status, kind] of [
    ['confirmed', AlreadyPaid],
    ['authorized', PaymentLapsed],
  ]) {
    const settlements = [status === 'confirmed' ? settled : refused(404, 'not_found')];
    const { pay, named } = scripted({ authorize: [lapsed(status)], settlements });
    for (const _ of [1, 2]) {
      const error = await pay().catch((error) => error);
      assert.ok(error instanceof kind, status);
      assert.equal(error.receiptStatus, status);
      assert.equal(error.payment.receipt.status, status === 'confirmed' ? 'confirmed' : 'unproven');
    }
    assert.equal(new Set(named('authorize').map(({ body }) => body.idempotency_key)).size, 1);
  }
});

test('a payment that expired unused is passed over, unless the caller gave its key', async () => {
  const { pay, named } = scripted({ authorize: [lapsed('expired'), lapsed('expired'), paid] });
  assert.equal((await pay()).status, 200);
  assert.equal(new Set(named('authorize').map(({ body }) => body.idempotency_key)).size, 3);

  const given = scripted({ authorize: [lapsed('expired')], settlements: [refused(404, 'not_found')] });
  await assert.rejects(given.pay({ idempotencyKey: 'mine' }), ({ receiptStatus }) => receiptStatus === 'expired');
  assert.deepEqual(
    given.named('authorize').map(({ body }) => body.idempotency_key),
    ['mine'],
  );

  const endless = scripted({ authorize: [lapsed('expired')], settlements: [refused(404, 'not_found')] });
  await assert.rejects(endless.pay(), PaymentLapsed);
  assert.equal(endless.asked.length, 21);
});

test('a call names service, operation and target', async () => {
  const { pay, asked } = scripted({ authorize: [paid] });
  await pay({ serviceId: 's', operationId: 'o.p', target: 'https://t.example/' });
  const { service_id, operation_id, metadata } = asked[0].body;
  assert.deepEqual([service_id, operation_id, metadata], ['s', 'o.p', { target_url: 'https://t.example/' }]);
});

test('after an approval that expired the next call asks anew, after a no it does not', async () => {
  for (const [reason, isNew] of [
    ['approval_expired', true],
    ['approval_rejected', false],
  ]) {
    const { pay, named } = scripted({ authorize: [refused(403, 'policy_blocked', { decision: { reason } })] });
    for (const _ of [1, 2]) await assert.rejects(pay(), ({ slug }) => slug === 'policy_blocked');
    const [first, second] = named('authorize').map(({ body }) => body.idempotency_key);
    assert.equal(first !== second, isNew, reason);
  }
});

test('an approval is polled no sooner than Purser says, and the call goes on with it', async () => {
  const approvals = [approval('pending'), refused(429, 'too_many_requests', { retry_after: 2 }), approval('approved')];
  const { pay, named } = scripted({ authorize: [escalated, paid], approvals }, { waitForApproval: 10 });
  assert.equal((await pay()).status, 200);
  // The client retries after a temporary failure, and waits as long as Purser asks.
  const [first, second, third] = named('approvals').map(({ at }) => at);
  assert.ok(second - first >= 1_000 && third - second >= 2_000, `${second - first} ${third - second}`);
  assert.deepEqual(
    named('authorize').map(({ body }) => body.approval_id),
    [undefined, 'a'],
  );
});

test('a wait ends when its time is over, or when the caller gives up', async () => {
  const { pay, named } = scripted(
    { authorize: [escalated], approvals: [approval('pending')] },
    { waitForApproval: 1.5 },
  );
  const started = Date.now();
  const error = await pay().catch((error) => error);
  assert.ok(error instanceof ApprovalRequired && Date.now() - started < 3_000);
  assert.equal(named('approvals').length, 2);
  assert.equal((await error.approval.wait(60, AbortSignal.timeout(10)).catch((error) => error)).name, 'TimeoutError');
});

test('what fails passingly is asked again under the same key, what needs long is told', async () => {
  const { pay, named } = scripted({
    authorize: [refused(500, 'internal_error'), refused(503, 'temporarily_unavailable', { retry_after: 1 }), paid],
  });
  assert.equal((await pay()).status, 200);
  assert.equal(new Set(named('authorize').map(({ text }) => text)).size, 1);
  assert.equal(named('authorize').length, 3);

  const long = scripted({ authorize: [refused(429, 'too_many_requests', { retry_after: 50 })] });
  await assert.rejects(long.pay(), (error) => error instanceof Refusal && error.retryAfter === 50);
  assert.equal(long.asked.length, 1);

  const gateway = scripted({ authorize: [{ status: 403, body: { message: 'Forbidden' } }] });
  await assert.rejects(gateway.pay(), (error) => error instanceof Unreachable && /403/.test(error.message));
});

test('nothing that completing meets loses the answer', async () => {
  const provider = async ({ headers }) =>
    headers.has('X-PAYMENT')
      ? new Response('goods', { headers: { 'X-PAYMENT-RESPONSE': 'p' } })
      : new Response(OFFER, { status: 402 });
  for (const [answer, status, retryAfter] of [
    [refused(503, 'onchain_settlement_not_verified', { retryable: true, retry_after: 7 }), 'pending', 7],
    // The status does not change the result.
    [refused(422, 'onchain_settlement_not_verified', { retryable: true, retry_after: 3 }), 'pending', 3],
    [refused(422, 'onchain_settlement_not_verified', { retryable: false }), 'unproven'],
    [refused(503, 'onchain_settlement_not_verified', { retryable: false }), 'unproven'],
    [refused(500, 'internal_error'), 'pending', 2],
    [{ status: 200, body: ['not an answer'] }, 'pending', 2],
  ]) {
    const fetch = async ({ url }) => {
      const { status, body } = url.endsWith('/complete') ? answer : paid;
      return new Response(JSON.stringify(body), { status });
    };
    const purser = new Purser({
      url: 'https://purser.example',
      key: 'gak_pub_a:gak_sec_b',
      run: 'r',
      maxAmount: 1,
      fetch,
    });
    const response = await wrapFetch(provider, purser)('https://a.example/');
    assert.equal(await response.text(), 'goods');
    const { receipt } = paymentOf(response);
    assert.deepEqual([receipt.status, receipt.retryAfter], [status, retryAfter]);
  }
});

/** An x402 version 1 provider that accepts a payment and sends no settlement header. */
const silent = (status) => async ({ headers }) =>
  headers.has('X-PAYMENT') ? new Response('goods', { status }) : new Response(OFFER, { status: 402 });

test('a payment that was sent and not proven is unproven, and is confirmed once its receipt is', async () => {
  const settlement = { ...SETTLEMENT, id: 's', tx_hash: null };
  for (const status of [200, 500, 402]) {
    for (const end of ['confirmed', 'expired']) {
      const receipts = [
        ...(status === 402 ? [settlement] : []),
        settlement,
        { error: 'temporarily_unavailable', message: '' },
        { ...settlement, receipt_status: end },
      ];
      const asked = [];
      const purserFetch = async ({ url }) => {
        asked.push(url);
        if (url.endsWith('/authorize')) return new Response(JSON.stringify(paid.body));
        const body = receipts.shift();
        return new Response(JSON.stringify(body), { status: body.error ? 503 : 200 });
      };
      const purser = new Purser({
        url: 'https://purser.example',
        key: 'gak_pub_a:gak_sec_b',
        run: 'r',
        maxAmount: 1,
        fetch: purserFetch,
      });
      const answer = await wrapFetch(silent(status), purser)('https://a.example/').catch((error) => error);
      assert.equal(answer instanceof PaymentNotAccepted, status === 402, String(answer));
      const payment = status === 402 ? answer.payment : paymentOf(answer);
      assert.equal(payment.receipt.status, 'unproven');
      assert.match(payment.receipt.error.todo, /don't pay again/);
      if (status === 402) assert.match(answer.todo, /may have been taken/);
      assert.equal((await payment.confirm(0)).status, 'unproven');
      assert.equal((await payment.confirm(10)).status, end);
      assert.ok(!asked.some((url) => url.endsWith('/complete')));
      assert.equal((await payment.confirm(10)).settlement.receipt_status, end);
      assert.equal(receipts.length, 0);
    }
  }
});

test('a receipt that stays open is unproven when the time ends', async () => {
  const { pay, named } = scripted({ authorize: [paid], settlements: [{ status: 200, body: SETTLEMENT }] });
  const payment = paymentOf(await pay());
  const started = Date.now();
  assert.equal((await payment.confirm(2.5)).status, 'unproven');
  assert.ok(Date.now() - started >= 2_400 && Date.now() - started < 4_000);
  // The receipt is read immediately, after a pause, and at the end.
  assert.equal(named('settlements').length, 3);
});

test('a price above the listed one is told, and refused above the percentage that the caller allows', async () => {
  const raised = { amount_units: 400_000, listed_amount_units: 10_000 };
  const told = scripted({ authorize: [{ status: 200, body: { ...paid.body, ...raised } }] });
  assert.equal(paymentOf(await told.pay()).listedAmountUnits, 10_000);
  assert.equal(paymentOf(await scripted({ authorize: [paid] }).pay()).listedAmountUnits, undefined);

  for (const [maxOverListed, check, isPaid] of [
    [3_900, raised, true],
    [3_899, raised, false],
    [0, { amount_units: 10_001, listed_amount_units: 10_000 }, false],
    [0, { amount_units: 10_000 }, true],
  ]) {
    const { pay, named } = scripted({ check: [{ status: 200, body: check }], authorize: [paid] }, { maxOverListed });
    const answer = await pay().catch((error) => error);
    assert.equal(answer instanceof PriceAboveListed, !isPaid, String(answer));
    assert.equal(named('authorize').length, isPaid ? 1 : 0);
    const { replay_key, idempotency_key, ...body } = named('check')[0].body;
    assert.ok(replay_key && idempotency_key === undefined && body.original_request.url === 'https://a.example/');
  }
  await assert.rejects(scripted({}).pay({ maxOverListed: -1 }), /whole percent/);
});

test('with `checkFirst` a call is judged before its provider gets it', async () => {
  const refusal = refused(403, 'policy_blocked', { decision: { reason: 'agent_frozen' } });
  const called = [];
  const provider = async ({ url }) => {
    called.push(url);
    return new Response('free');
  };
  for (const [check, isCalled] of [
    [refusal, false],
    [{ status: 200, body: { check: true, result: 'allow' } }, true],
  ]) {
    const asked = [];
    const purser = new Purser({
      url: 'https://purser.example',
      key: 'gak_pub_a:gak_sec_b',
      run: 'r',
      maxAmount: 1,
      checkFirst: true,
      fetch: async (request) => {
        asked.push([request.url, await request.json()]);
        return new Response(JSON.stringify(check.body), { status: check.status });
      },
    });
    const client = { register: () => {}, registerV1: () => {} };
    const payers = [
      wrapFetch(provider, purser),
      (url, init) => registerPurser(client, purser, provider)(url, init),
    ];
    for (const pay of payers) {
      const answer = await pay('https://a.example/free', { method: 'POST', body: 'x' }).catch((error) => error);
      if (isCalled) assert.equal(await answer.text(), 'free');
      else assert.ok(answer instanceof Refusal && answer.slug === 'policy_blocked', String(answer));
      const [url, { original_request: judged }] = asked.pop();
      assert.equal(url, 'https://purser.example/x402/check/unpaid');
      assert.deepEqual([judged.method, judged.url], ['POST', 'https://a.example/free']);
      assert.match(judged.body_hash, /^sha256:/);
    }
    assert.equal(called.length, isCalled ? 2 : 0);
  }
});
