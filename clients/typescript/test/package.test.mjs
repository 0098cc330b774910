// Tests of the package as it is published.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const FOLDER = new URL('..', import.meta.url);
const pack = (...from) => ['pack', ...from, '--dry-run', '--json', '--ignore-scripts'];

test('the package has both module formats, their types and a licence, though no script was run', () => {
  const [{ name, files }] = JSON.parse(execFileSync('npm', pack('./dist'), { cwd: FOLDER, encoding: 'utf8' }));
  assert.equal(name, 'purser-client');
  const paths = files.map(({ path }) => path);
  const modules = ['index.js', 'index.d.ts', 'cjs/index.js', 'cjs/index.d.ts', 'cjs/package.json'];
  for (const path of [...modules, 'package.json', 'README.md', 'LICENSE']) assert.ok(paths.includes(path), path);
  assert.ok(paths.every((path) => /^(cjs\/)?\w+\.(d\.ts|js|json|md)$|^LICENSE$/.test(path)), paths.join(' '));
});

test('without its build nothing can be published', () => {
  // An unreachable registry, in case the package were not private.
  const nowhere = ['--registry=http://127.0.0.1:9', '--//127.0.0.1:9/:_authToken=x', '--fetch-retries=0'];
  const publish = ['publish', '--ignore-scripts', '--loglevel=error', ...nowhere];
  const told = spawnSync('npm', publish, { cwd: FOLDER, encoding: 'utf8' });
  assert.notEqual(told.status, 0);
  assert.match(told.stderr, /EPRIVATE/);
  // Without a build, `npm publish ./dist` has nothing to read.
  const empty = mkdtempSync(join(tmpdir(), 'purser-package-'));
  assert.notEqual(spawnSync('npm', pack('./dist'), { cwd: empty }).status, 0);
  rmSync(empty, { recursive: true });
});
