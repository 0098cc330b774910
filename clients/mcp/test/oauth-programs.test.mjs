// Tests programs that never have an agent key, unmodified: the conformance suite’s cases for authorization servers, the
// inspector, and mcp-remote as a bridge. Each prints the URL that a user opens.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

import { consent, revokeGrants } from './consent.mjs';
import { here, newAgent, NODE, PRICE, stack, WEATHER } from './world.mjs';

const MCP = `${stack.base_url}/mcp`;
// With an empty home directory, this machine's settings and tokens have no effect.
const home = mkdtempSync(join(tmpdir(), 'oauth-'));
after(() => rmSync(home, { recursive: true }));
const env = { PATH: process.env.PATH, HOME: home, MCP_REMOTE_CONFIG_DIR: home, MCP_AUTO_OPEN_ENABLED: 'true', MCP_INSPECTOR_SECRET_STORE: 'file' };

const freePort = () =>
  new Promise((done) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });

/** Consents as a user when a program prints the authorization URL, and returns to the program. `asked` counts the URLs. */
const answer = (output, agent) => {
  const seen = { text: '', asked: 0 };
  output.on('data', async (data) => {
    seen.text += data;
    const [, url] = /(http:\S+\/dashboard\/connect\?\S+)\s/.exec(seen.text) ?? [];
    if (!url || seen.asked) return;
    seen.asked += 1;
    const back = await consent(url, { agent: agent.id });
    // A program may print the URL before it listens.
    while (!(await fetch(back).catch(() => undefined))) await new Promise((done) => setTimeout(done, 100));
  });
  return seen;
};

/** Runs a program to its end. */
const run = (script, args, agent) =>
  new Promise((done) => {
    const child = spawn(NODE, [here(`node_modules/${script}`), ...args], { cwd: home, env, timeout: 60_000 });
    const [stdout, stderr] = [child.stdout, child.stderr].map((output) => answer(output, agent));
    child.on('close', (code) => done({ code, stdout: stdout.text, text: stdout.text + stderr.text, asked: stdout.asked + stderr.asked }));
  });

// Together, because each program waits for its own consent.
describe('a program that never had a key', { concurrency: true }, () => {
  test("the conformance suite's cases for authorization servers pass", async () => {
    const agent = await newAgent('oauth-conformance');
    const port = await freePort();
    const registration = { client_name: 'Conformance', redirect_uris: [`http://127.0.0.1:${port}/callback`] };
    const registered = await fetch(`${stack.base_url}/oauth/register`, { method: 'POST', body: JSON.stringify(registration) });
    const { client_id } = await registered.json();
    const args = ['authorization', '--url', stack.base_url, '--client-id', client_id, '--resource', MCP, '-p', port];
    const { code, text } = await run('conformance-authorization/dist/index.js', args, agent);
    assert.equal(code, 0, text);
    for (const scenario of ['authorization-server-metadata-endpoint', 'authorization-code-grant']) {
      assert.match(text, new RegExp(`✓ ${scenario}: \\d passed, 0 failed`));
    }
  });

  test('the inspector asks for one consent, calls a tool, and keeps its tokens for the next call', async () => {
    const agent = await newAgent('oauth-inspector');
    const callback = `http://127.0.0.1:${await freePort()}/oauth/callback`;
    const inspect = (...args) =>
      run('@modelcontextprotocol/inspector/clients/launcher/build/index.js', ['--cli', MCP, '--transport', 'http', '--callback-url', callback, ...args], agent);
    const service = ['--method', 'tools/call', '--tool-name', 'get_service', '--tool-arg', 'service=lab-weather'];
    const first = await inspect(...service);
    assert.deepEqual([first.code, first.asked], [0, 1], first.text);
    assert.match(first.stdout, /weather\.current/);
    const second = await inspect(...service);
    assert.deepEqual([second.code, second.asked], [0, 0], second.text);
    const [grant] = await revokeGrants(agent.id);
    assert.deepEqual([grant.client_name, grant.redirect_host], ['MCP Inspector', '127.0.0.1']);
  });

  test('a host behind mcp-remote pays after one consent', async () => {
    const agent = await newAgent('oauth-remote');
    const args = [here('node_modules/mcp-remote/dist/proxy.js'), MCP, String(await freePort()), '--transport', 'http-only', '--allow-http'];
    const transport = new StdioClientTransport({ command: process.execPath, args, env, stderr: 'pipe' });
    const seen = answer(transport.stderr, agent);
    const client = new Client({ name: 'purser-tests', version: '1' });
    // The client is also closed if an assertion fails, because a running bridge would keep the test process alive.
    after(() => client.close());
    await client.connect(transport);
    const paid = await client.callTool({ name: 'call_service', arguments: WEATHER });
    assert.equal(JSON.parse(paid.content[0].text).payment?.receipt_status, 'confirmed', `${JSON.stringify(paid)} ${seen.text}`);
    assert.equal(await agent.spent(), PRICE);
    const [grant] = await revokeGrants(agent.id);
    assert.ok(['127.0.0.1', 'localhost'].includes(grant.redirect_host), grant.redirect_host);
  });
});
