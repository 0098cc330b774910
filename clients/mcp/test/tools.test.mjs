// Tests every tool with the official TypeScript SDK as the host, over HTTP and stdio. One host is killed.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AjvJsonSchemaValidator } from '@modelcontextprotocol/sdk/validation/ajv';

import { host, newAgent, PRICE, WAYS, WEATHER } from './world.mjs';

for (const way of Object.keys(WAYS)) {
  test(`the story over ${way}: find, pay, refused over the cap, a person raises it and approves, go on, receipt`, async () => {
    const agent = await newAgent(`mcp-${way}`);
    const { call, tools, close } = await host(way, agent.key);
    const called = new Set();
    const use = (name, args) => called.add(name) && call(name, args);

    const found = await use('find_services', { text: 'weather', max_usd: '0.01' });
    assert.equal(found.services[0].service, 'lab-weather');
    const service = await use('get_service', { service: 'lab-weather' });
    assert.equal(service.operations[0].operation, 'weather.current');
    assert.ok((await use('list_enabled')).services.some(({ left_today_usd }) => left_today_usd));
    assert.equal((await use('check_payment', WEATHER)).would_pay, true);
    const paid = await use('call_service', { ...WEATHER, idempotency_key: 'first' });
    assert.equal(JSON.parse(paid.answer.text).city, 'Lisbon');
    assert.deepEqual([paid.cost_usd, paid.payment.receipt_status], ['0.01', 'confirmed']);

    await agent.limit('lab-weather', { max_per_day_units: PRICE });
    const over = await call('call_service', WEATHER).catch((told) => told);
    assert.equal(over.error, 'daily_spend_limit_exceeded');
    assert.ok(Date.parse(over.retry_at) > Date.now());
    const until = new Date(Date.now() + 86_400_000).toISOString();
    const more = { transaction_id: over.transaction_id, max_per_day_usd: '0.03', until, reason: 'a longer trip' };
    const raise = await use('request_raise', more);
    assert.deepEqual([raise.status, raise.raise.max_per_day_usd], ['pending', '0.03']);
    assert.equal((await call('request_raise', more)).approval_id, raise.approval_id);
    await agent.approve(raise.approval_id, 'fine');
    assert.match((await call('get_approval', { approval_id: raise.approval_id })).what_to_do, /a new idempotency_key and no approval_id/);
    await call('call_service', WEATHER);

    await agent.limit('lab-weather', { max_per_day_units: 10 * PRICE, require_approval_above_units: PRICE - 1 });
    const asked = await call('call_service', WEATHER).catch((told) => told);
    assert.equal(asked.error, 'approval_required');
    const { approval_id, idempotency_key } = asked;
    assert.equal((await use('get_approval', { approval_id })).status, 'pending');
    await agent.approve(approval_id, 'fine');
    assert.equal((await call('get_approval', { approval_id, wait_seconds: 3 })).note, 'fine');
    const approved = await call('call_service', { ...WEATHER, approval_id, idempotency_key });
    const { settlement_id } = approved.payment;
    assert.equal((await use('get_receipt', { settlement_id })).receipt_status, 'confirmed');
    assert.equal((await use('list_receipts', { limit: 1 })).receipts[0].settlement_id, settlement_id);
    assert.equal(await agent.spent(), 3 * PRICE);
    const cursor = `0.${'0'.repeat(32)}.0`;
    assert.equal((await use('read_response', { cursor }).catch((told) => told)).error, 'response_not_kept');
    assert.deepEqual([...called].sort(), tools.map(({ name }) => name).sort(), 'every tool was called');
    await close();
  });
}

test('the shortest call of each tool fits its schema, and a longer one may give each optional argument', async () => {
  const { tools, close } = await host('http', (await newAgent('mcp-schemas')).key);
  const id = '00000000-0000-4000-8000-000000000000';
  const calls = {
    find_services: [{}, { text: 'weather', category: 'data', max_usd: 0.02, limit: 5 }],
    get_service: [{ service: 'lab-weather' }],
    list_enabled: [{}, { service: 'lab-weather' }],
    check_payment: [WEATHER, { ...WEATHER, max_usd: 0.05, parameters: {}, target_url: 'https://a.example' }],
    call_service: [WEATHER, { ...WEATHER, max_usd: 0.05, idempotency_key: 'k', approval_id: id, max_bytes: 1000 }],
    read_response: [{ cursor: `7.${'0f'.repeat(16)}.48000` }, { cursor: `0.${'a'.repeat(32)}.0`, max_bytes: 131072 }],
    get_approval: [{ approval_id: id }, { approval_id: id, wait_seconds: 3 }],
    request_raise: [
      { transaction_id: id, until: '2026-12-31T18:00:00Z', reason: 'r' },
      { transaction_id: id, until: '2026-12-31T18:00:00.5+01:00', reason: 'r', max_per_call_usd: 1, max_per_day_usd: '2' },
    ],
    list_receipts: [{}, { limit: 1 }],
    get_receipt: [{ settlement_id: id }],
  };
  assert.deepEqual(Object.keys(calls).sort(), tools.map(({ name }) => name).sort());
  for (const { name, inputSchema } of tools) {
    const validate = new AjvJsonSchemaValidator().getValidator(inputSchema);
    for (const call of calls[name]) assert.ok(validate(call).valid, `${name} ${JSON.stringify(call)}`);
    assert.ok(!validate({ nothing: 1 }).valid, name);
  }
  await close();
});

test('a program that is killed while it pays, and a new one under the same key, pay once', async () => {
  for (const pause of [20, 60, 120, 250, 500]) {
    const agent = await newAgent('mcp-killed');
    const purchase = { ...WEATHER, idempotency_key: 'a purchase' };
    const first = await host('stdio', agent.key);
    const lost = first.call('call_service', purchase).catch(() => {});
    await new Promise((done) => setTimeout(done, pause));
    process.kill(first.transport.pid, 'SIGKILL');
    await lost;
    const second = await host('stdio', agent.key);
    const told = await second.call('call_service', purchase).catch((failure) => failure);
    if (told.error) assert.match(told.error, /^(asked_again|already_paid)$/);
    else assert.equal(told.payment.receipt_status, 'confirmed');
    assert.equal(await agent.spent(), PRICE, `killed after ${pause} ms`);
    await second.close();
  }
});
