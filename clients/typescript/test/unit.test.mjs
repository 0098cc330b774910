// Tests that need no stack: keys, amounts, configuration, and the advice for error responses.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { inspect } from 'node:util';

import { ADVICE, callKey, ConfigurationError, Purser, RawJson, Refusal, wrapFetch } from '../dist/index.js';
import { Ordinals, sha256 } from '../dist/call_key.js';
import { fromBase64, readOffer } from '../dist/offer.js';

const read = (path) => readFileSync(new URL(`../${path}`, import.meta.url), 'utf8');
const KEY = `gak_pub_${'a'.repeat(32)}:gak_sec_${'b'.repeat(64)}`;
const options = { url: 'https://purser.example', key: KEY, run: 'job-42', maxAmount: '0.05' };

for (const { name, body_hex, key, ...vector } of JSON.parse(read('../vectors.json'))) {
  test(`the key of a call: ${name}`, async () => {
    const bodySha256 = await sha256(Uint8Array.from(Buffer.from(body_hex, 'hex')));
    assert.equal(bodySha256, vector.body_sha256);
    assert.equal(await callKey({ ...vector, bodySha256 }), key);
  });
}

test('an ordinal is used up by a call that was answered, and given back by one that failed', () => {
  const ordinals = new Ordinals();
  const [first, second] = [ordinals.take('a'), ordinals.take('a')];
  assert.deepEqual([first.number, second.number, ordinals.take('b').number], [1, 2, 1]);
  first.release();
  const third = ordinals.take('a');
  assert.equal(third.number, 1);
  third.spend();
  // Releasing an earlier attempt of the same call does not free a spent ordinal.
  for (const ordinal of [first, third, second]) ordinal.release();
  assert.equal(ordinals.take('a').number, 2);
  for (let number = 2; number < 6; number += 1) ordinals.take('c').spend();
  assert.deepEqual([ordinals.take('a').number, ordinals.take('c').number], [3, 5]);
});

test('a held ordinal is given to nobody else', () => {
  const ordinals = new Ordinals();
  const next = () => ordinals.take('a');
  const [first, second] = [next(), next()];
  // A later call ends while the first call is still running.
  second.spend();
  assert.equal(next().number, 3);
  // Releasing a call again does not release an ordinal that another call has reserved since.
  first.release();
  const again = next();
  first.release();
  assert.deepEqual([again.number, next().number], [1, 4]);
  // The released call cannot reserve the ordinal again while another call has reserved it.
  assert.equal(first.retake(), undefined);
  again.release();
  const retaken = first.retake();
  assert.deepEqual([retaken.number, next().number], [1, 5]);
  // Two attempts of one purchase share an ordinal until both have ended.
  first.retake().release();
  assert.equal(next().number, 6);
  // Acknowledging the first attempt spends the ordinal for both attempts.
  first.spend();
  retaken.release();
  assert.deepEqual([first.retake().number, next().number], [1, 7]);
});

test('a header is read in every form of base64', async () => {
  const text = '{"x402Version":2,"accepts":[{}],"error":">>>>>?????"}';
  const good = Buffer.from(text).toString('base64');
  assert.ok(['+', '/', '='].every((digit) => good.includes(digit)), good);
  const urlSafe = Buffer.from(text).toString('base64url');
  for (const form of [good, good.replace(/=+$/, ''), urlSafe, ` ${good}\t`, `${good.slice(0, 40)}\r\n ${good.slice(40)}`])
    assert.equal(fromBase64(form), text, form);
  for (const wrong of ['', '=', '%%%', `${good}, ${good}`, good + good, '///']) assert.equal(fromBase64(wrong), undefined);
});

test('the header may hold terms of version 1, and the body those alone', async () => {
  const offer = (version) => JSON.stringify({ x402Version: version, accepts: [{}] });
  const inHeader = (text) => new Response('', { status: 402, headers: { 'PAYMENT-REQUIRED': btoa(text) } });
  for (const version of [1, 2]) assert.equal((await readOffer(inHeader(offer(version)), 1000)).version, version);
  assert.equal((await readOffer(new Response(offer(1), { status: 402 }), 1000)).version, 1);
  const empty = new Response(offer(1), { status: 402, headers: { 'PAYMENT-REQUIRED': '' } });
  assert.equal((await readOffer(empty, 1000)).version, 1, 'an empty header is none');
  for (const response of [inHeader(offer(3)), inHeader(offer('2')), new Response(offer(2), { status: 402 })])
    await assert.rejects(readOffer(response, 1000), /x402Version/);
});

test('amounts are USD in text or whole micro-units', () => {
  const unitsOf = (maxAmount) => new Purser({ ...options, maxAmount }).terms().maxUnits;
  const rows = [
    ['0.05', 50_000],
    ['12', 12_000_000],
    ['0.000001', 1],
    ['0', 0],
    [50_000, 50_000],
    [7n, 7],
    ['9007199254.740991', 2 ** 53 - 1],
  ];
  for (const [amount, units] of rows) assert.equal(unitsOf(amount), units, String(amount));
  for (const amount of [
    0.05,
    -1,
    NaN,
    2 ** 53,
    '',
    '.5',
    '5.',
    '-1',
    '1e3',
    '1_000',
    '0.0000001',
    '$1',
    ' 1',
    '9007199254.740992',
    null,
  ]) {
    assert.throws(() => unitsOf(amount), ConfigurationError, String(amount));
  }
});

test('every problem of a configuration is told at once', () => {
  const wrong = {
    url: 'http://purser.example',
    key: `${KEY}\nx`,
    run: '',
    maxAmount: 0.5,
    waitForApproval: Infinity,
    timeoutSeconds: 0,
  };
  assert.throws(
    () => new Purser(wrong),
    (error) => {
      assert.equal(error.problems.length, 6);
      assert.doesNotMatch(error.message, /gak_sec_b/);
      return true;
    },
  );
  for (const url of ['http://127.0.0.1:3000', 'http://localhost', 'http://[::1]:3000', 'https://purser.example/base/'])
    new Purser({ ...options, url });
  for (const url of [
    'http://127.0.0.1.example',
    'http://10.0.0.1',
    'https://user:secret@purser.example',
    'https://purser.example/?a=b',
    'purser.example',
  ]) {
    assert.throws(() => new Purser({ ...options, url }), /https address/, url);
  }
});

test('a call says what it may cost, and a key is not derived of a body that is never the same', async () => {
  const asked = [];
  const provider = async (request) => {
    asked.push(request.url);
    return new Response('{"x402Version":1,"accepts":[{}]}', { status: 402 });
  };
  const { maxAmount, ...without } = options;
  await assert.rejects(wrapFetch(provider, new Purser(without))('https://a.example'), /`maxAmount` is missing/);
  assert.deepEqual(asked, []);
  const body = new FormData();
  body.set('a', 'b');
  await assert.rejects(
    wrapFetch(provider, new Purser(options))('https://a.example', { method: 'POST', body }),
    /idempotencyKey/,
  );
  await assert.rejects(
    wrapFetch(provider, new Purser(options))('https://a.example', {}, { idempotencyKey: '' }),
    ConfigurationError,
  );
});

test('raw JSON is an object, and nothing beside it', () => {
  for (const text of ['', '[]', '1', '{},"max_payment_units":9', '{'])
    assert.throws(() => new RawJson(text), ConfigurationError, text);
  assert.equal(new RawJson('{"a":1.0}').text, '{"a":1.0}');
});

test('address and key come from the environment, unless they are given', () => {
  const { url, key, ...without } = options;
  for (const given of [{}, { key }, { url, key: undefined }]) {
    assert.throws(() => new Purser({ ...without, ...given }), /PURSER_(URL|KEY)/);
  }
  Object.assign(process.env, { PURSER_URL: 'http://purser.example', PURSER_KEY: key });
  try {
    assert.throws(() => new Purser(without), /PURSER_URL/);
    assert.ok(new Purser({ ...without, url }));
    process.env.PURSER_URL = url;
    assert.ok(new Purser(without));
  } finally {
    delete process.env.PURSER_URL;
    delete process.env.PURSER_KEY;
  }
});

test('who prints a Purser prints no key', () => {
  const purser = new Purser(options);
  for (const text of [inspect(purser, { depth: 9, showHidden: true }), JSON.stringify(purser)])
    assert.doesNotMatch(text, /gak_/);
});

test('there is a word of advice for every refusal that an agent can meet, and for no other', () => {
  const documented = [...read('../../docs/errors.md').matchAll(/^### `(\w+)`$/gm)].map(([, slug]) => slug);
  const ofOthers = [
    'invalid_session',
    'not_entitled',
    'recent_sign_in_required',
    'invalid_internal_token',
    'cross_site_request',
    'approval_not_pending',
    'slug_taken',
    'second_operator_required',
    'too_many_freezes',
    'payout_refused',
    'version_conflict',
    'version_required',
  ];
  assert.deepEqual(Object.keys(ADVICE).sort(), documented.filter((slug) => !ofOthers.includes(slug)).sort());
  const adviceOf = (error, reason) =>
    new Refusal(403, { error, message: '', ...(reason && { decision: { reason } }) }).todo;
  // A row lists the reasons that have the same advice.
  const rows = read('../../docs/errors.md').matchAll(/^\| (`[^|]+`) \| [^|]+\|$/gm);
  const reasons = [...rows].flatMap(([, cell]) => [...cell.matchAll(/`(\w+)[:`]/g)].map(([, reason]) => reason));
  assert.ok(reasons.includes('budget_limit') && reasons.includes('agent_frozen'));
  for (const reason of [
    'agent_frozen',
    'category_block',
    'vendor_allowlist',
    'catalog_payee',
    'catalog_price',
    'catalog_payment',
    'budget_limit',
    'schedule',
    'count_limit',
    'minimum_interval',
    'duplicate_guard',
    'price_above_usual',
    'approval_rejected',
    'approval_expired',
    'approval_request_mismatch',
    'too_many_open_approvals',
  ]) {
    assert.ok(reasons.includes(reason), reason);
    assert.notEqual(adviceOf('policy_blocked', `${reason}:x`), ADVICE.policy_blocked, reason);
  }
  assert.match(adviceOf('policy_blocked', 'catalog_payee:pay_to_not_yet_accepted'), /Wait until `retryAt`/);
  assert.match(adviceOf('policy_blocked', 'catalog_payee:pay_to_not_in_catalog'), /Don't pay/);
  assert.match(adviceOf('url_required'), /slug names/);
  const invalid = (...paths) => {
    const details = paths.map((path) => ({ path, message: '' }));
    return new Refusal(400, { error: 'invalid_request', message: '', details }).todo;
  };
  assert.match(invalid('/payment_requirement/accepts'), /Don't pay: the provider's terms/);
  assert.match(invalid('/payment_requirement', '/max_payment_units'), /Correct what/);
  assert.match(invalid(), /Correct what/);
});
