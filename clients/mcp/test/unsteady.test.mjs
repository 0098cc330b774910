// Tests with the stack's unsteady providers: payment requirements that vary, lost responses, and an approval that takes
// ten minutes. The tests advance the stack's clock, so no later test may compare that clock with the machine's clock.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import { advance, operator, v1, v2 } from '../../typescript/test/stack.mjs';
import { host, newAgent, PRICE, stack, WAYS } from './world.mjs';

const SLUG = `unsteady-${crypto.randomUUID().slice(0, 8)}`;

/**
 * Returns the arguments of a call. The stack's catalog does not describe the provider's test parameters, so this test
 * adds an operation that does.
 */
const purchase = (version, habits) => ({
  service: SLUG,
  operation: `weather.${version}`,
  parameters: habits,
  max_usd: '0.05',
  idempotency_key: 'a purchase',
});

before(async () => {
  const operation = async (version, base, slug) => {
    const [{ payment }] = (await (await fetch(`${stack.base_url}/services/${slug}`)).json()).operations;
    const habit = { type: 'string', in: 'query', required: false };
    return {
      id: crypto.randomUUID(),
      operation_id: `weather.${version}`,
      label: 'Weather of an unsteady provider',
      method: 'GET',
      endpoint: `${base}/weather`,
      category: 'data',
      execution: 'sync',
      price_model: 'fixed',
      estimated_price_units: PRICE,
      max_price_units: PRICE,
      params: { offers: habit, answers: habit },
      payment,
    };
  };
  await operator('PUT', `/internal/services/${crypto.randomUUID()}`, {
    slug: SLUG,
    name: 'Unsteady',
    description: 'The providers of the stack, with their habits as parameters.',
    website: 'https://unsteady.example/',
    logo_url: null,
    category: 'data',
    source: 'curated',
    trust_status: 'platform_verified',
    curated: true,
    operations: [await operation('v2', v2, 'lab-weather'), await operation('v1', v1, 'lab-weather-v1')],
  });
  // The functions reload the catalog every five seconds.
  await new Promise((done) => setTimeout(done, 5_500));
});

for (const way of Object.keys(WAYS)) {
  for (const version of ['v2', 'v1']) {
    test(`over ${way}, a lost answer of ${version} is sent again for the same payment`, async () => {
      const agent = await newAgent(`mcp-lost-${way}`);
      const { call, close } = await host(way, agent.key);
      const args = purchase(version, { answers: 'lost', offers: 'vary' });
      const lost = await call('call_service', args).catch((told) => told);
      assert.deepEqual([lost.error, lost.paid], ['answer_lost', 'maybe'], JSON.stringify(lost));
      assert.equal(await agent.spent(), PRICE, 'the money has moved');
      const again = await call('call_service', args);
      assert.equal(JSON.parse(again.answer.text).city, 'Lisbon');
      const { settlement_id, receipt_status } = again.payment;
      assert.deepEqual([settlement_id, receipt_status], [lost.settlement_id, 'confirmed']);
      assert.equal(await agent.spent(), PRICE);
      await close();
    });
  }

  test(`over ${way}, a person may take ten minutes`, async () => {
    const agent = await newAgent(`mcp-patient-${way}`);
    await agent.limit(SLUG, { require_approval_above_units: 0 });
    const { call, close } = await host(way, agent.key);
    const args = purchase('v2', { offers: 'vary' });
    const asked = await call('call_service', args).catch((told) => told);
    assert.equal(asked.error, 'approval_required', JSON.stringify(asked));
    const { approval_id } = asked;
    assert.equal((await call('get_approval', { approval_id, wait_seconds: 1 })).status, 'pending');
    // After this time, the provider no longer accepts the payment requirements of the first call.
    await advance(600);
    await agent.approve(approval_id);
    const paid = await call('call_service', { ...args, approval_id });
    assert.equal(paid.payment.receipt_status, 'confirmed');
    assert.equal((await call('get_approval', { approval_id })).settlement_id, paid.payment.settlement_id);
    assert.equal(await agent.spent(), PRICE);
    await close();
  });
}
