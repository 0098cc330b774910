// Tests the package in Chromium without Node, if a browser is installed.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { once } from 'node:events';
import { test } from 'node:test';

import { newAgent, newRun, stack, v1, v2 } from './stack.mjs';

const TIMEOUT_MS = 60_000;
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const DRIVER = new URL('../../../tests/browser/package.json', import.meta.url);
const driver = createRequire(DRIVER);

function whyNot() {
  if (!existsSync(CHROMIUM)) return 'there is no Chromium (apt-get install chromium)';
  try {
    driver.resolve('playwright-core');
    return false;
  } catch {
    return 'there is no playwright-core (infra/setup.sh browser)';
  }
}

test('pays in a browser', { timeout: TIMEOUT_MS, skip: whyNot() }, async () => {
  const pages = createServer(({ url }, response) => {
    if (!url.endsWith('.js')) return response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html>');
    response
      .writeHead(200, { 'Content-Type': 'text/javascript' })
      .end(readFileSync(new URL(`../dist${url}`, import.meta.url)));
  });
  pages.listen(0, '127.0.0.1');
  await once(pages, 'listening');
  // Web security is disabled, because neither Purser nor the stack's providers allow requests from other origins.
  const { chromium } = driver('playwright-core');
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-web-security'] });
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${pages.address().port}/`);
    const agent = await newAgent('in a browser');
    const options = { url: stack.base_url, key: agent.key, run: newRun(), maxAmount: '0.5' };
    const post = { method: 'POST', body: '{"topic":"tides"}', headers: { 'Content-Type': 'application/json' } };
    const calls = [[`${v2}/weather`], [`${v1}/weather`], [`${v2}/report`, post]];
    const paid = await page.evaluate(
      async ({ options, calls }) => {
        const { paymentOf, Purser, wrapFetch } = await import('/index.js');
        const run = async (call, purser) => {
          const response = await wrapFetch(fetch, purser)(...call).catch((error) => error);
          return response instanceof Response
            ? [response.status, paymentOf(response).receipt.status]
            : [response.name, String(response)];
        };
        const [first, second] = [new Purser(options), new Purser(options)];
        const outcomes = [];
        for (const call of calls) outcomes.push(await run(call, first));
        outcomes.push((await run(calls[0], second)).slice(0, 1));
        return outcomes;
      },
      { options, calls },
    );
    assert.deepEqual(paid, [[200, 'confirmed'], [200, 'confirmed'], [200, 'confirmed'], ['AlreadyPaid']]);
    assert.equal(await agent.spent(), 270_000);
  } finally {
    await browser.close();
    pages.close();
    pages.closeAllConnections();
  }
});
