// Tests the package as it is published.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { newAgent, stack, v2 } from './stack.mjs';

const FOLDER = new URL('..', import.meta.url);
const pack = (...from) => ['pack', ...from, '--dry-run', '--json', '--ignore-scripts'];

test('the package has both module formats, their types, licence and changelog', () => {
  const [{ name, files }] = JSON.parse(execFileSync('npm', pack('./dist'), { cwd: FOLDER, encoding: 'utf8' }));
  assert.equal(name, 'purser-client');
  const paths = files.map(({ path }) => path);
  const modules = ['index.js', 'index.d.ts', 'cjs/index.js', 'cjs/index.d.ts', 'cjs/package.json'];
  for (const path of [...modules, 'package.json', 'README.md', 'CHANGELOG.md', 'LICENSE']) assert.ok(paths.includes(path), path);
  assert.ok(paths.every((path) => /^(cjs\/)?\w+\.(d\.ts|js|json|md)$|^LICENSE$/.test(path)), paths.join(' '));
});

test('what is published is installed and pays', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'purser-installed-'));
  after(() => rmSync(folder, { recursive: true }));
  const npm = (...args) => execFileSync('npm', [...args, '--ignore-scripts'], { cwd: folder, encoding: 'utf8' });
  const dist = fileURLToPath(new URL('dist', FOLDER));
  const [{ filename }] = JSON.parse(npm('pack', dist, '--json'));
  writeFileSync(join(folder, 'package.json'), '{}');
  // The package has no dependencies, so no registry is needed.
  npm('install', '--offline', '--no-audit', '--no-fund', `./${filename}`);
  writeFileSync(
    join(folder, 'pay.mjs'),
    `import { paymentOf, Purser, wrapFetch } from 'purser-client';
    const purser = new Purser({ run: 'installed', maxAmount: '0.05' });
    console.log(paymentOf(await wrapFetch(fetch, purser)(process.argv[2]))?.receipt.status);`,
  );
  const agent = await newAgent('installed');
  const env = { PATH: process.env.PATH, PURSER_URL: stack.base_url, PURSER_KEY: agent.key };
  const said = execFileSync(process.execPath, ['pay.mjs', `${v2}/weather`], { cwd: folder, env, encoding: 'utf8' });
  assert.equal(said, 'confirmed\n');
  assert.equal(await agent.spent(), 10_000);
});

test('without its build nothing can be published', () => {
  // The registry is unreachable, in case the package is published by mistake.
  const nowhere = ['--registry=http://127.0.0.1:9', '--//127.0.0.1:9/:_authToken=x', '--fetch-retries=0'];
  const publish = ['publish', '--ignore-scripts', '--loglevel=error', ...nowhere];
  const told = spawnSync('npm', publish, { cwd: FOLDER, encoding: 'utf8' });
  assert.notEqual(told.status, 0);
  assert.match(told.stderr, /EPRIVATE/);
  // Without a build, `npm publish ./dist` finds no package.
  const empty = mkdtempSync(join(tmpdir(), 'purser-package-'));
  assert.notEqual(spawnSync('npm', pack('./dist'), { cwd: empty }).status, 0);
  rmSync(empty, { recursive: true });
});
