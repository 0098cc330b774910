// Runs the conformance suite against the function's service with additional tools for the suite, and tests the
// inspector's command line.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';

import { here, newAgent, NODE, PURSER, settings, stack } from './world.mjs';

const SERVER = process.env.CONFORMANCE ?? here('../../../target/debug/examples/conformance');

// With an empty home directory, this machine's settings have no effect.
const home = mkdtempSync(join(tmpdir(), 'mcp-'));
after(() => rmSync(home, { recursive: true }));

const run = (script, args) =>
  new Promise((done) => {
    const options = { timeout: 60_000, cwd: here('.'), env: { PATH: process.env.PATH, HOME: home } };
    execFile(NODE, [here(`node_modules/${script}`), ...args], options, (error, stdout, stderr) =>
      done({ code: error ? error.code : 0, text: `${stdout}${stderr}`, stdout }),
    );
  });

test("the conformance suite finds what the baseline says, and nothing else", async () => {
  const server = spawn(SERVER, { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const [url] = await new Promise((done) => createInterface(server.stdout).once('line', (line) => done([line])));
    const suite = '@modelcontextprotocol/conformance/dist/index.js';
    const { code, text } = await run(suite, ['server', '--url', url, '--suite', 'all', '--expected-failures', 'baseline.yml']);
    assert.equal(code, 0, text);
    assert.match(text, /tools-call-simple-text/);
  } finally {
    server.kill();
  }
});

test('the inspector lists the tools without an error, and calls one, over both ways', async () => {
  const agent = await newAgent('mcp-inspector');
  const inspector = '@modelcontextprotocol/inspector/clients/launcher/build/index.js';
  const ways = [
    [`${stack.base_url}/mcp`, '--transport', 'http', '--header', `Authorization: Bearer ${agent.key}`],
    [PURSER, 'mcp', ...Object.entries(settings(agent.key)).flatMap(([name, value]) => ['-e', `${name}=${value}`])],
  ];
  for (const way of ways) {
    const inspect = (...args) => run(inspector, ['--cli', ...way, ...args]);
    const listed = await inspect('--method', 'tools/list', '--strict');
    assert.equal(listed.code, 0, listed.text);
    const call = (tool, ...args) => inspect('--method', 'tools/call', '--tool-name', tool, ...args);
    const called = await call('get_service', '--tool-arg', 'service=lab-weather');
    assert.equal(called.code, 0, called.text);
    assert.match(called.stdout, /weather\.current/);
    const refused = await call('get_service', '--tool-arg', 'service=nothing');
    assert.equal(refused.code, 5, refused.text);
  }
});
