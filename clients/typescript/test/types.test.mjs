// Compiles programs that use the package with each module resolution, and the snippets in README.md.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const path = (relative) => fileURLToPath(new URL(`../${relative}`, import.meta.url));
const run = promisify(execFile);

// The strictest settings that a user of the package may have.
const STRICT = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess'];
const PLAIN = ['--target', 'es2022', '--lib', 'es2022', '--types', 'node'];
const BROWSER = ['--target', 'es2022', '--lib', 'es2022,dom,dom.iterable', '--types', ''];
const CALL = `
  const purser = new Purser({ url: 'https://purser.example', key: globalThis.process?.env['PURSER_KEY'], run: 'r' });
  export const pay: PayingFetch = wrapFetch(fetch, purser);
  export const status = async () => paymentOf(await pay(new URL('https://a.example/')))?.receipt.status;
`;
const IMPORT = `import { paymentOf, type PayingFetch, Purser, wrapFetch } from 'purser-client';`;
const [SEVEN, FIVE] = ['typescript', 'typescript-5'];

let folder;
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'purser-types-'));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(path('dist'), join(folder, 'node_modules/purser-client'));
  for (const name of ['@types', '@x402']) symlinkSync(path(`node_modules/${name}`), join(folder, 'node_modules', name));
});
after(() => rmSync(folder, { recursive: true }));

/** Type-checks one file, and returns the compiler's output. */
async function check(compiler, name, text, options) {
  writeFileSync(join(folder, name), text);
  const tsc = path(`node_modules/${compiler}/bin/tsc`);
  return run(process.execPath, [tsc, ...STRICT, ...options, name], { cwd: folder }).then(
    () => '',
    ({ stdout, stderr }) => stdout + stderr,
  );
}

for (const [what, compiler, name, options] of [
  ['an ES module', SEVEN, 'a.mts', ['--module', 'nodenext', ...PLAIN]],
  ['CommonJS under node16', SEVEN, 'b.cts', ['--module', 'node16', ...PLAIN]],
  ['CommonJS under node16, by TypeScript 5', FIVE, 'c.cts', ['--module', 'node16', ...PLAIN]],
  ['node10', FIVE, 'd.ts', ['--module', 'commonjs', '--moduleResolution', 'node10', ...PLAIN]],
  ['a bundler', SEVEN, 'e.ts', ['--module', 'esnext', '--moduleResolution', 'bundler', ...PLAIN]],
  ['a bundler, by TypeScript 5', FIVE, 'f.ts', ['--module', 'esnext', '--moduleResolution', 'bundler', ...PLAIN]],
]) {
  test(`the types are found and whole: ${what}, without the DOM`, async () => {
    assert.equal(await check(compiler, name, IMPORT + CALL, options), '');
  });
}

test('the types are whole in a browser, without Node', async () => {
  const text = IMPORT + CALL.replace("globalThis.process?.env['PURSER_KEY']", "'gak_pub_a:gak_sec_b'");
  const options = ['--module', 'esnext', '--moduleResolution', 'bundler', ...BROWSER];
  assert.equal(await check(SEVEN, 'g.ts', text, options), '');
});

test("README.md's snippets compile, strictly", async () => {
  const snippets = [...readFileSync(path('README.md'), 'utf8').matchAll(/^```ts\n(.*?)^```/gms)].map(([, text]) => text);
  assert.ok(snippets.length >= 3);
  const text = snippets.join('\n');
  // The types inside the official client are not checked.
  const options = ['--module', 'nodenext', '--skipLibCheck'];
  assert.equal(await check(SEVEN, 'readme.mts', text, [...options, ...PLAIN]), '');
  assert.match(await check(SEVEN, 'wrong.mts', `${text}\nresponse.nothing;`, [...options, ...PLAIN]), /TS2339/);
});

test('CommonJS and ES modules may be loaded beside each other', async () => {
  const text = `
    const cjs = require('purser-client');
    const answer = (body, status) => new Response(JSON.stringify(body), { status });
    const authorized = { settlement_id: 's', payment: { header_name: 'X-PAYMENT', header_value: 'p', payload: {} } };
    process.env.PURSER_URL = 'https://purser.example';
    process.env.PURSER_KEY = 'gak_pub_a:gak_sec_b';
    const purser = new cjs.Purser({ run: 'r', maxAmount: 1, fetch: async () => answer(authorized, 200) });
    const offer = { x402Version: 1, accepts: [{}] };
    const provider = async ({ headers }) => answer(offer, headers.has('X-PAYMENT') ? 200 : 402);
    (async () => {
      const esm = await import('purser-client');
      const response = await cjs.wrapFetch(provider, purser)('https://a.example/');
      console.log(esm.paymentOf(response).receipt.status, cjs.paymentOf(response).settlementId, esm === cjs);
    })();
  `;
  writeFileSync(join(folder, 'both.cjs'), text);
  const { stdout } = await run(process.execPath, ['--preserve-symlinks', 'both.cjs'], { cwd: folder });
  assert.equal(stdout, 'unproven s false\n');
});
