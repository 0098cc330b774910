// Tests the requests on the wire: the client's name, encodings, charsets and redirects, with a server that records
// requests. No stack is needed, because the server does not act as Purser.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';

import { InvalidOffer, Purser, Unreachable, wrapFetch } from '../dist/index.js';

const TEXT = JSON.stringify({ text: 'Grüße' });
const TERMS = JSON.stringify({ x402Version: 1, accepts: [{ scheme: 'exact', description: 'Grüße' }] });
const JSON_IN = (charset) => ({ 'Content-Type': `application/json; charset=${charset}` });
const BODIES = {
  gzip: [200, { 'Content-Encoding': 'gzip' }, gzipSync(TEXT)],
  deflate: [200, { 'Content-Encoding': 'deflate' }, deflateSync(TEXT)],
  br: [200, { 'Content-Encoding': 'br' }, brotliCompressSync(TEXT)],
  '402-gzip': [402, { 'Content-Encoding': 'gzip' }, gzipSync(TERMS)],
  '402-latin1': [402, JSON_IN('"ISO-8859-1"'), Buffer.from(TERMS, 'latin1')],
  '402-utf16': [402, JSON_IN('utf-8'), Buffer.from(`\ufeff${TERMS}`, 'utf16le')],
  '402-mark': [402, JSON_IN('ISO-8859-1'), Buffer.from(`\ufeff${TERMS}`)],
  '402-unknown': [402, JSON_IN('no-such'), Buffer.from(TERMS)],
  '402-wrong': [402, JSON_IN('utf-8'), Buffer.from(TERMS, 'latin1')],
  '402-bomb': [402, { 'Content-Encoding': 'gzip' }, gzipSync(Buffer.alloc(96 * 1024 * 1024, ' '))],
};

let server;
let url;
const requests = [];

before(async () => {
  server = createServer(async (request, response) => {
    response.on('error', () => {});
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = Buffer.concat(parts).toString();
    requests.push({ path: request.url, headers: request.headers, body });
    const [status, headers, sent] = BODIES[request.url.slice(1)] ?? [200, {}, '[]'];
    response.writeHead(status, headers).end(sent);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `http://127.0.0.1:${server.address().port}`;
});

after(() => {
  server.closeAllConnections();
  server.close();
});

const purser = () => new Purser({ url, key: 'gak_pub_1:gak_sec_2', run: 'run', maxAmount: '0.05' });
const fetchPaid = (path) => wrapFetch(fetch, purser())(`${url}/${path}`);

test('calls of Purser have the name and version of the package', async () => {
  await assert.rejects(purser().api.me(), Unreachable);
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const call = requests.find(({ path }) => path.endsWith('/me'));
  assert.equal(call.headers['user-agent'], `purser-client-typescript/${version}`);
});

for (const encoding of ['gzip', 'deflate', 'br']) {
  test(`a body in ${encoding} is decoded`, async () => {
    assert.equal(await (await fetchPaid(encoding)).text(), TEXT);
    // Node requests br only over TLS, but always decodes br.
    assert.match(requests.at(-1).headers['accept-encoding'], /gzip, deflate/);
  });
}

for (const form of ['402-gzip', '402-latin1', '402-utf16', '402-mark', '402-unknown']) {
  test(`the terms of ${form} reach Purser as they were meant`, async () => {
    await assert.rejects(fetchPaid(form), Unreachable);
    const call = requests.findLast(({ path }) => path === '/x402/authorize');
    assert.deepEqual(JSON.parse(call.body).payment_requirement, JSON.parse(TERMS));
    requests.length = 0;
  });
}

for (const form of ['402-wrong', '402-bomb']) {
  test(`the terms of ${form} are rejected`, async () => {
    await assert.rejects(fetchPaid(form), InvalidOffer);
  });
}
