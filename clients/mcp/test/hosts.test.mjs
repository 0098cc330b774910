// Tests the server with programs that hosts are built from: mcp-remote as a bridge, LangChain's adapter, and schemas as
// OpenAI's strict mode rewrites them.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { MultiServerMCPClient } from '@langchain/mcp-adapters';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/sdk/validation/ajv';

import { here, host, newAgent, PRICE, stack, WEATHER } from './world.mjs';

const URL_OF_TOOLS = `${stack.base_url}/mcp`;

test('a host behind mcp-remote finds and pays', async () => {
  const agent = await newAgent('mcp-remote');
  const home = mkdtempSync(join(tmpdir(), 'mcp-remote-'));
  after(() => rmSync(home, { recursive: true }));
  const args = ['--transport', 'http-only', '--allow-http', '--header', `Authorization: Bearer ${agent.key}`];
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [here('node_modules/mcp-remote/dist/proxy.js'), URL_OF_TOOLS, ...args],
    env: { PATH: process.env.PATH, HOME: home, MCP_REMOTE_CONFIG_DIR: home },
    stderr: 'ignore',
  });
  const client = new Client({ name: 'purser-tests', version: '1' });
  // The client is also closed if an assertion fails, because a running bridge would keep the test process alive.
  after(() => client.close());
  await client.connect(transport);
  assert.equal((await client.listTools()).tools.length, 10);
  const paid = await client.callTool({ name: 'call_service', arguments: { ...WEATHER, idempotency_key: 'first' } });
  assert.equal(JSON.parse(paid.content[0].text).payment?.receipt_status, 'confirmed', JSON.stringify(paid));
  assert.equal(await agent.spent(), PRICE);
});

test("LangChain's adapter calls every tool, with as few arguments as possible and with null for the rest", async () => {
  const agent = await newAgent('mcp-langchain');
  const headers = { Authorization: `Bearer ${agent.key}` };
  const client = new MultiServerMCPClient({ mcpServers: { purser: { transport: 'http', url: URL_OF_TOOLS, headers } } });
  const tools = new Map((await client.getTools()).map((tool) => [tool.name, tool]));
  assert.equal(tools.size, 10);
  const call = async (name, args) => {
    const told = await tools.get(name).invoke(args);
    const [text] = Array.isArray(told) ? told : [told];
    return JSON.parse(typeof text === 'string' ? text : text.text);
  };
  const paid = await call('call_service', { ...WEATHER, idempotency_key: 'first' });
  assert.equal(paid.payment.receipt_status, 'confirmed');
  const { settlement_id } = paid.payment;
  // If one of several alternatives is an object, the adapter keeps only the object. So `parameters` is an object here.
  const nothing = { parameters: {}, target_url: null, idempotency_key: null, approval_id: null };
  assert.equal((await call('call_service', { ...WEATHER, ...nothing })).cost_usd, '0.01');
  const listed = { ...WEATHER, parameters: { city: 'Lisbon' }, max_usd: 0.05 };
  assert.equal((await call('check_payment', listed)).would_pay, true);
  for (const args of [{}, { text: '', category: null, max_usd: null, limit: 5.0 }]) {
    assert.ok((await call('find_services', args)).services.length > 0);
  }
  for (const args of [{}, { service: null }, { service: '' }]) {
    assert.ok((await call('list_enabled', args)).services.length > 0);
  }
  assert.equal((await call('get_service', { service: 'lab-weather' })).service, 'lab-weather');
  for (const args of [{}, { limit: null }]) assert.equal((await call('list_receipts', args)).receipts.length, 2);
  const until = new Date(Date.now() + 86_400_000).toISOString();
  const raise = { transaction_id: paid.payment.settlement_id, max_per_call_usd: null, max_per_day_usd: '1', until, reason: 'r' };
  await assert.rejects(call('request_raise', raise), /not_found/);
  assert.equal((await call('get_receipt', { settlement_id })).amount_usd, '0.01');
  await client.close();
  assert.equal(await agent.spent(), 2 * PRICE);
});

// Rewrites a schema like OpenAI's strict mode: every property is required, and no object has other properties.
const strict = (schema) => {
  if (schema.anyOf) return { anyOf: schema.anyOf.map(strict) };
  if (schema.type === 'array') return { ...schema, items: strict(schema.items) };
  if (schema.type !== 'object') return schema;
  const properties = Object.fromEntries(Object.entries(schema.properties).map(([name, of]) => [name, strict(of)]));
  return { ...schema, properties, required: Object.keys(properties), additionalProperties: false };
};

test('a host with strict schemas gives every argument, and is understood', async () => {
  const agent = await newAgent('mcp-strict');
  const { tools, call, close } = await host('http', agent.key);
  const given = {
    find_services: { text: 'weather', category: null, max_usd: null, limit: 5 },
    list_enabled: { service: null },
    check_payment: { ...WEATHER, parameters: null, target_url: null },
    call_service: {
      ...WEATHER,
      parameters: [{ name: 'city', value: 'Lisbon' }],
      target_url: null,
      idempotency_key: 'first',
      approval_id: null,
      max_bytes: null,
    },
    list_receipts: { limit: null },
    get_service: { service: 'lab-weather' },
  };
  for (const [name, args] of Object.entries(given)) {
    const { inputSchema } = tools.find((tool) => tool.name === name);
    const validate = new AjvJsonSchemaValidator().getValidator(strict(inputSchema));
    const judged = validate(args);
    assert.ok(judged.valid, `${name}: ${judged.errorMessage}`);
    await call(name, args);
  }
  assert.equal(await agent.spent(), PRICE);
  await close();
});

test('four workers make forty calls, and pay forty times', async () => {
  const agent = await newAgent('mcp-workers');
  const workers = await Promise.all([...Array(4)].map(() => host('stdio', agent.key)));
  const paid = await Promise.all(
    workers.map(async ({ call }, worker) => {
      const settlements = [];
      for (let round = 0; round < 10; round += 1) {
        await new Promise((done) => setTimeout(done, 7 * worker + 3 * round));
        settlements.push((await call('call_service', WEATHER)).payment.settlement_id);
      }
      return settlements;
    }),
  );
  assert.equal(new Set(paid.flat()).size, 40);
  assert.equal(await agent.spent(), 40 * PRICE);
  await Promise.all(workers.map(({ close }) => close()));
});
