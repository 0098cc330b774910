// Tests that routes and types match docs/openapi.json, that the package has its documented contents, and that the types
// are compatible with the official client.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { ROUTES } from '../dist/api.js';
import { Purser } from '../dist/index.js';
import { newAgent, newRun, stack } from './stack.mjs';

const here = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url));
const document = JSON.parse(readFileSync(here('../../docs/openapi.json'), 'utf8'));
const schemas = document.components.schemas;

/** Schemas that the client defines under another name or inline. */
const RENAMED = { Error: 'ErrorBody' };
const INLINE = ['ProviderProof'];
/**
 * Schemas whose fields depend on a kind, to which Purser may add kinds. The client has the fields that all kinds share.
 */
const OPEN = ['AgentRule'];

/**
 * Operations that this client does not call: documents, keys and checkpoints for verifying statements, runs, and OAuth,
 * which is for MCP clients.
 */
const OTHERS = [
  'close_run',
  'document',
  'llms_txt',
  'log_checkpoint',
  'log_trust',
  'mcp',
  'open_run',
  'skill',
  'statement_keys',
];
const isOther = (operationId) => OTHERS.includes(operationId) || operationId.startsWith('oauth_');

/** The operations that need an agent key, or no key. */
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods)
    .filter(([, { security = [{ agentKey: [] }] }]) => security.some((one) => 'agentKey' in one))
    .map(([method, operation]) => ({ ...operation, route: [method.toUpperCase(), path] })),
);

test('every route that an agent may call is there', () => {
  const described = operations
    .filter(({ operationId }) => !isOther(operationId))
    .map(({ operationId, route }) => [operationId, route]);
  assert.deepEqual(ROUTES, Object.fromEntries(described));
});

test("every type is the document's", () => {
  const needed = new Set(['Error']);
  for (const { requestBody, responses } of operations.filter(({ operationId }) => operationId in ROUTES)) {
    for (const content of [requestBody?.content, responses['200'].content])
      collect(content?.['application/json'].schema);
  }
  collect(schemas.Error);
  const names = [...needed].filter((name) => !INLINE.includes(name));
  const parameters = document.paths['/services'].get.parameters.map(
    ({ name, schema }) => `${name}?: ${typeOf(schema)}`,
  );
  compile([
    'import type * as wire from "../src/wire.js";',
    'import type { Api } from "../src/api.js";',
    'type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2)',
    '  ? true : { document: A; client: B };',
    ...names.map((name) => `interface ${name}_ ${membersOf(schemas[name])}`),
    ...names.map((name) => `export const is${name}: Equal<${name}_, wire.${RENAMED[name] ?? name}> = true;`),
    `export const query: Equal<{ ${parameters.join('; ')} }, NonNullable<Parameters<Api["services"]>[0]>> = true;`,
  ]);
  assert.ok(names.length > 20, `${names}`);

  function collect(schema) {
    for (const [, name] of JSON.stringify(schema ?? {}).matchAll(/#\/components\/schemas\/(\w+)/g)) {
      const isNew = !needed.has(name) && !isPlain(schemas[name]) && !OPEN.includes(name);
      if (!isNew) continue;
      needed.add(name);
      collect(schemas[name]);
    }
  }
});

test('the official client takes it as it is', () => {
  compile([
    'import { wrapFetchWithPayment, x402Client } from "@x402/fetch";',
    'import { Purser, registerPurser, wrapFetch } from "../src/index.js";',
    'const purser = new Purser({ url: "https://purser.example", key: "", run: "r" });',
    'const client = new x402Client();',
    'export const pay: typeof globalThis.fetch = wrapFetchWithPayment(registerPurser(client, purser), client);',
    'export const own: typeof globalThis.fetch = wrapFetch(fetch, purser);',
    'registerPurser(client, purser, fetch);',
  ]);
});

test("the package needs nothing at run time, Node's own modules included", () => {
  const manifest = JSON.parse(readFileSync(here('package.json'), 'utf8'));
  assert.deepEqual(
    Object.keys(manifest).filter((name) => /ependencies/.test(name)),
    ['devDependencies'],
  );
  for (const file of readdirSync(here('dist')).filter((name) => name.endsWith('.js'))) {
    const text = readFileSync(here(`dist/${file}`), 'utf8');
    for (const [, from] of text.matchAll(/(?:from|import)\s*\(?\s*["']([^"']+)["']/g))
      assert.match(from, /^\.\/\w+\.js$/, file);
    assert.doesNotMatch(text, /\b(process|Buffer|require|__dirname)\b[.(]/, file);
  }
});

test('every route answers', async () => {
  const agent = await newAgent('reader');
  const { api } = new Purser({ url: stack.base_url, key: agent.key, run: newRun() });
  assert.equal((await api.me()).agent_id, agent.id);
  const { services } = await api.services({ category: 'data', limit: 3 });
  assert.ok(services.length > 0 && services.every(({ category }) => category === 'data'));
  const service = await api.service('lab-weather');
  assert.equal(service.operations[0].operation_id, 'weather.current');
  assert.ok((await api.enabledServices()).services.some(({ slug, enabled }) => slug === 'lab-weather' && enabled));
  assert.equal((await api.policy('lab-weather')).spend_today_units, 0);
  assert.deepEqual(await api.receipts(1), { settlements: [], count: 0 });
  const [{ endpoint: url, method }] = service.operations;
  const payment_requirement = JSON.parse(atob((await fetch(url)).headers.get('PAYMENT-REQUIRED')));
  const call = { payment_requirement, max_payment_units: 10_000, original_request: { method, url } };
  assert.equal((await api.check({ ...call, replay_key: 'r' })).would_authorize, true);
  const { settlement_id: id, replayed } = await api.authorize({ ...call, idempotency_key: 'k' });
  assert.equal(replayed, false);
  assert.equal((await api.authorize({ ...call, idempotency_key: 'k' })).replayed, true);
  assert.equal((await api.receipt(id)).receipt_status, 'authorized');
  await assert.rejects(
    api.complete(id, { payment_response_header: '' }),
    ({ slug }) => slug === 'provider_proof_required',
  );
  await assert.rejects(api.approval('../me'), ({ slug }) => slug === 'not_found');
});

/** Compiles lines of TypeScript as a file next to `src`, with the package's settings. Fails with the output of tsc. */
function compile(lines) {
  const folder = mkdtempSync(here('.types-'));
  try {
    writeFileSync(`${folder}/lines.ts`, lines.join('\n'));
    const settings = {
      extends: '../tsconfig.json',
      include: ['lines.ts'],
      compilerOptions: { noEmit: true, rootDir: '..', skipLibCheck: true },
    };
    writeFileSync(`${folder}/tsconfig.json`, JSON.stringify(settings));
    execFileSync(process.execPath, [here('node_modules/typescript/bin/tsc'), '--project', folder], {
      encoding: 'utf8',
    });
  } catch (error) {
    assert.fail(error.stdout || error);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Returns whether a schema is not an object and therefore is written inline. */
function isPlain(schema) {
  return schema.enum !== undefined || (schema.type === 'string' && !schema.properties);
}

/** Returns the fields of an object's schema, including the fields from `allOf`. */
function membersOf(schema) {
  const parts = flatten(schema);
  const required = parts.flatMap((part) => part.required ?? []);
  const members = parts.flatMap((part) => Object.entries(part.properties ?? {}));
  const optional = (name) => (required.includes(name) ? '' : '?');
  return `{ ${members.map(([name, member]) => `${name}${optional(name)}: ${typeOf(member)}`).join('; ')} }`;
}

function flatten(schema) {
  if (schema.$ref) return flatten(schemas[schema.$ref.split('/').pop()]);
  return schema.allOf ? schema.allOf.flatMap(flatten) : [schema];
}

function typeOf(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split('/').pop();
    if (OPEN.includes(name)) return `wire.${name}`;
    return isPlain(schemas[name]) || INLINE.includes(name) ? typeOf(schemas[name]) : `${name}_`;
  }
  if (schema.oneOf) return schema.oneOf.map(typeOf).join(' | ');
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  const plain = {
    string: 'string',
    integer: 'number',
    number: 'number',
    boolean: 'boolean',
    null: 'null',
    object: 'Record<string, unknown>',
  };
  return [schema.type]
    .flat()
    .map((type) => (type === 'array' ? `(${typeOf(schema.items)})[]` : plain[type]))
    .join(' | ');
}
