// Compiles the example with strict settings, and runs it with a scripted model of the AI SDK (the last version for Node
// 20). The model requests the paid tool, and responds with the tool's result.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { MockLanguageModelV3 } from 'ai/test';

import { Purser } from '../dist/index.js';
import { newAgent, newRun, stack, v2, WEATHER } from './stack.mjs';

const path = (relative) => fileURLToPath(new URL(`../${relative}`, import.meta.url));

let folder;
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'purser-examples-'));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(path('dist'), join(folder, 'node_modules/purser-client'));
  for (const name of ['ai', 'zod', '@types']) symlinkSync(path(`node_modules/${name}`), join(folder, 'node_modules', name));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  symlinkSync(path('examples/vercel-ai.ts'), join(folder, 'vercel-ai.ts'));
  // The types inside the library are not checked.
  const options = ['--strict', '--skipLibCheck', '--preserveSymlinks', '--target', 'es2022', '--module', 'nodenext'];
  const tsc = [path('node_modules/typescript/bin/tsc'), ...options, '--types', 'node', 'vercel-ai.ts'];
  execFileSync(process.execPath, tsc, { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'] });
});
after(() => rmSync(folder, { recursive: true }));

/** Runs the example for an agent. Returns the agent's response and the tool's result. */
async function run(agent) {
  const env = { PURSER_URL: stack.base_url, PURSER_KEY: agent.key, WEATHER_URL: `${v2}/weather`, RUN: newRun() };
  Object.assign(process.env, env);
  const usage = { inputTokens: {}, outputTokens: {} };
  const call = { type: 'tool-call', toolCallId: 'call-1', toolName: 'currentWeather', input: '{}' };
  const model = new MockLanguageModelV3({
    doGenerate: [
      { content: [call], finishReason: { unified: 'tool-calls' }, usage, warnings: [] },
      { content: [{ type: 'text', text: 'Cloudy.' }], finishReason: { unified: 'stop' }, usage, warnings: [] },
    ],
  });
  // With a query in the path, each import loads the module again, with another run.
  const { ask } = await import(`${pathToFileURL(join(folder, 'vercel-ai.js'))}?run=${env.RUN}`);
  const answer = await ask(model, 'How is the weather in Lisbon?');
  const { content } = model.doGenerateCalls.at(-1).prompt.at(-1);
  return { answer, told: content[0].output.value };
}

test('the agent of the AI SDK pays for its tool', async () => {
  const agent = await newAgent('ai sdk');
  const { answer, told } = await run(agent);
  assert.equal(answer, 'Cloudy.');
  assert.deepEqual(JSON.parse(told), WEATHER);
  assert.equal(await agent.spent(), 10_000);
  const { api } = new Purser({ url: stack.base_url, key: agent.key, run: newRun(), maxAmount: 1 });
  const { settlements } = await api.receipts();
  assert.deepEqual(settlements.map(({ receipt_status }) => receipt_status), ['confirmed']);
});

test('the agent of the AI SDK learns of a refusal', async () => {
  const agent = await newAgent('ai sdk');
  await agent.limit('lab-weather', { require_approval_above_units: 0 });
  const { told } = await run(agent);
  assert.match(told, /^The call failed\. .*approv/);
  assert.equal(await agent.spent(), 0);
});
