// Tests clients that never have an agent key: the official SDK’s OAuth provider, and a stand-in for claude.ai’s
// connector.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { test } from 'node:test';

import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

import { consent, revokeGrants } from './consent.mjs';
import { newAgent, owner, PRICE, stack, WEATHER } from './world.mjs';

const MCP = new URL(`${stack.base_url}/mcp`);

/** An OAuth provider that keeps everything in memory. */
class Memory {
  redirectUrl = 'http://127.0.0.1:33418/callback';
  clientMetadata = { client_name: 'SDK test', redirect_uris: [this.redirectUrl], token_endpoint_auth_method: 'none' };
  state = () => 'the state';
  clientInformation = () => this.client;
  saveClientInformation = (client) => (this.client = client);
  tokens = () => this.saved;
  saveTokens = (tokens) => (this.saved = tokens);
  redirectToAuthorization = (url) => (this.authorizationUrl = url);
  saveCodeVerifier = (verifier) => (this.verifier = verifier);
  codeVerifier = () => this.verifier;
  invalidateCredentials = () => (this.saved = undefined);
}

const connect = async (provider) => {
  const client = new Client({ name: 'purser-tests', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(MCP, { authProvider: provider }));
  return client;
};

/** Signs in and consents at the URL to which the SDK sent the user, and lets the SDK finish. */
const finish = async (provider, agent) => {
  const back = await consent(provider.authorizationUrl, { agent: agent.id });
  await new StreamableHTTPClientTransport(MCP, { authProvider: provider }).finishAuth(back.searchParams.get('code'));
  return back;
};

const post = (url, body, headers = {}) => fetch(url, { method: 'POST', body, headers });

/** Sends one MCP message without the SDK. */
const send = (token, method, params) =>
  post(MCP, JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }), {
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
    ...(token && { Authorization: `Bearer ${token}` }),
  });

const until = async (condition) => {
  while (!(await condition())) await new Promise((done) => setTimeout(done, 200));
};

test('an SDK client that never had a key pays after one sign-in and one consent, until the grant is revoked', async () => {
  const agent = await newAgent('oauth-sdk');
  const provider = new Memory();
  await assert.rejects(connect(provider), UnauthorizedError);
  assert.equal(provider.authorizationUrl.searchParams.get('resource'), MCP.href);
  const back = await finish(provider, agent);
  assert.equal(back.searchParams.get('state'), 'the state');
  assert.equal(back.searchParams.get('iss'), stack.base_url);

  const client = await connect(provider);
  const pay = () => client.callTool({ name: 'call_service', arguments: WEATHER });
  assert.ok((await client.listTools()).tools.length > 5);
  const paid = JSON.parse((await pay()).content[0].text);
  assert.equal(paid.payment?.receipt_status, 'confirmed', JSON.stringify(paid));
  assert.equal(await agent.spent(), PRICE);

  // The refreshed tokens work, too.
  const first = provider.saved;
  provider.saved = { ...first, access_token: first.access_token.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A')) };
  await client.listTools();
  assert.notEqual(provider.saved.refresh_token, first.refresh_token);

  const [grant] = await revokeGrants(agent.id);
  assert.deepEqual([grant.client_name, grant.redirect_host], ['SDK test', '127.0.0.1']);
  await until(() => client.listTools().then(() => false, (error) => error instanceof UnauthorizedError));
  await client.close();
});

test('a call for which the token lacks the permission gets 403, so that a host can ask for more', async () => {
  const agent = await newAgent('oauth-read');
  const provider = new Memory();
  await assert.rejects(connect(provider), UnauthorizedError);
  provider.authorizationUrl.searchParams.set('scope', 'read');
  await finish(provider, agent);
  const call = (token, name, args) => send(token, 'tools/call', { name, arguments: args });
  const refused = await call(provider.saved.access_token, 'call_service', WEATHER);
  assert.equal(refused.status, 403);
  const metadata = `${stack.base_url}/.well-known/oauth-protected-resource/mcp`;
  const challenge = `Bearer resource_metadata="${metadata}", scope="read pay", error="insufficient_scope"`;
  assert.equal(refused.headers.get('www-authenticate'), challenge);
  assert.equal(JSON.parse((await refused.json()).result.content[0].text).missing, 'pay');
  assert.equal((await call(provider.saved.access_token, 'list_enabled', {})).status, 200);
  assert.equal(await agent.spent(), 0);
  // A host with an agent key can't ask for more, so the tool's error tells the model.
  const { key } = await owner('POST', `/agents/${agent.id}/keys`, { permissions: ['read'] });
  const told = await call(key, 'call_service', WEATHER);
  assert.equal(told.status, 200);
  assert.equal((await told.json()).result.isError, true);
});

// Public reports: the connector registers as a confidential client, requests `offline_access`, probes both metadata
// documents, and shows nothing if `initialize` without a token is accepted (claude-ai-mcp#992, #1043, #1065).
test("a connector that behaves as claude.ai's connects and pays", async () => {
  const agent = await newAgent('oauth-connector');
  const clientInfo = { name: 'Anthropic', version: '1.0.0' };
  const initialize = (token) => send(token, 'initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
  const challenged = await initialize();
  assert.equal(challenged.status, 401);
  const [, url] = /resource_metadata="([^"]+)"/.exec(challenged.headers.get('www-authenticate'));
  const resource = await (await fetch(url)).json();
  assert.equal(resource.resource, MCP.href);
  const [server] = resource.authorization_servers;
  const metadata = await (await fetch(new URL('/.well-known/oauth-authorization-server', server))).json();
  assert.equal(metadata.issuer, server);
  const redirect_uri = 'https://claude.ai/api/mcp/auth_callback';
  const registration = {
    client_name: 'Claude',
    redirect_uris: [redirect_uri],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'client_secret_post',
    scope: 'read pay offline_access',
  };
  const registered = await post(metadata.registration_endpoint, JSON.stringify(registration), {
    'Content-Type': 'application/json',
  });
  assert.equal(registered.status, 201);
  const { client_id, token_endpoint_auth_method } = await registered.json();
  assert.equal(token_endpoint_auth_method, 'none');

  const code_verifier = randomBytes(32).toString('base64url');
  const code_challenge = createHash('sha256').update(code_verifier).digest('base64url');
  const authorization = new URL(metadata.authorization_endpoint);
  authorization.search = new URLSearchParams({
    response_type: 'code',
    client_id,
    redirect_uri,
    code_challenge,
    code_challenge_method: 'S256',
    state: randomBytes(32).toString('base64url'),
    scope: 'read pay offline_access',
    resource: MCP.href,
  });
  const back = await consent(authorization, { agent: agent.id });
  assert.equal(`${back.origin}${back.pathname}`, redirect_uri);
  const form = { grant_type: 'authorization_code', code: back.searchParams.get('code'), redirect_uri, client_id, code_verifier, resource: MCP.href };
  // The code of this client does not work for another client.
  const other = await post(metadata.registration_endpoint, JSON.stringify({ ...registration, client_name: 'Other' }), { 'Content-Type': 'application/json' });
  const stolen = await post(metadata.token_endpoint, new URLSearchParams({ ...form, client_id: (await other.json()).client_id }));
  assert.deepEqual([stolen.status, (await stolen.json()).error], [400, 'invalid_grant']);
  const tokens = await post(metadata.token_endpoint, new URLSearchParams(form));
  assert.equal(tokens.status, 200, await tokens.clone().text());
  const { access_token, refresh_token, token_type } = await tokens.json();
  assert.equal(token_type.toLowerCase(), 'bearer');
  assert.equal((await initialize(access_token)).status, 200);

  const revoked = await post(metadata.revocation_endpoint, new URLSearchParams({ token: refresh_token, client_id }));
  assert.equal(revoked.status, 200);
  await until(async () => (await initialize(access_token)).status === 401);
});
