// Connects a host over both transports: HTTP to the stack, and stdio to the program on this machine.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

import { stack } from '../../typescript/test/stack.mjs';

export { newAgent, owner, stack } from '../../typescript/test/stack.mjs';

export const here = (path) => fileURLToPath(new URL(path, import.meta.url));
export const PURSER = process.env.PURSER ?? here('../../../target/debug/purser');
// The conformance suite and the inspector need Node 22. If this process has an older version, npm's `node@22` is used. Its
// binary package is a direct dependency, because `node@22` would download the binary in an install script.
const [major] = process.versions.node.split('.').map(Number);
export const NODE = major >= 22 ? process.execPath : here(`node_modules/node-linux-${process.arch}/bin/node`);
export const PRICE = 10_000;
export const WEATHER = { service: 'lab-weather', operation: 'weather.current', max_usd: '0.05' };

/** Returns the environment of a host that starts `purser mcp`, without this machine's settings. */
export const settings = (key) => ({ PURSER_URL: stack.base_url, PURSER_KEY: key });

export const WAYS = {
  http: (key) =>
    new StreamableHTTPClientTransport(new URL(`${stack.base_url}/mcp`), {
      requestInit: { headers: { Authorization: `Bearer ${key}` } },
    }),
  stdio: (key) => new StdioClientTransport({ command: PURSER, args: ['mcp'], env: settings(key), stderr: 'inherit' }),
};

/** Connects a host with the tools of this agent. `call` returns a tool's result, or throws the tool's error. */
export async function host(way, key) {
  const transport = WAYS[way](key);
  const client = new Client({ name: 'purser-tests', version: '1' });
  await client.connect(transport);
  // The client validates results only against output schemas that it has listed.
  const { tools } = await client.listTools();
  const call = async (name, args = {}) => {
    const result = await client.callTool({ name, arguments: args });
    const told = JSON.parse(result.content[0].text);
    if (result.isError) throw Object.assign(new Error(told.message), told);
    // The provider's text is in a content block of its own.
    if (!result.structuredContent && result.content[1]?.text) (told.answer ??= {}).text = result.content[1].text;
    return result.structuredContent ?? told;
  };
  return { client, transport, tools, call, close: () => client.close() };
}
