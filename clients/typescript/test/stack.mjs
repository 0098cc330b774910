// The running stack. Creates agents, acts as the agents' owner, and reads the chain.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export const stack = JSON.parse(readFileSync(join(process.env.STACK_FOLDER ?? '../../.local', 'stack.json'), 'utf8'));

/** The initial balance of an agent's wallet, in micro-USDC. */
export const FUNDS = 100_000_000;

async function call(method, path, body, headers) {
  const response = await fetch(stack.base_url + path, { method, headers, body: body && JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
  return answer;
}

/** Sends a request as the demo owner, with a fresh sign-in. */
export async function owner(method, path, body) {
  const { token } = await call('POST', '/_local/token');
  return call(method, path, body, { Authorization: `Bearer ${token}`, 'If-Match': '*' });
}

/** Sends a request as an operator. */
export const operator = (method, path, body) => call(method, path, body, { 'X-Internal-Token': stack.internal_token });

/** Creates an agent with a key and a funded wallet. */
export async function newAgent(name) {
  const agent = await owner('POST', '/agents', { name });
  const { key } = await owner('POST', `/agents/${agent.agent_id}/keys`, {});
  await call('POST', '/_local/fund', { wallet_address: agent.wallet_address, units: FUNDS });
  return {
    id: agent.agent_id,
    key,
    wallet: agent.wallet_address,
    /** The amount that left the wallet on chain, in micro-USDC. */
    spent: async () => FUNDS - (await balanceOf(agent.wallet_address)),
    limit: (service, policy) => owner('PATCH', `/agents/${agent.agent_id}/services/${service}`, policy),
    approve: (id, note) => owner('POST', `/agents/${agent.agent_id}/approvals/${id}/approve`, { note }),
    reject: (id) => owner('POST', `/agents/${agent.agent_id}/approvals/${id}/reject`, {}),
  };
}

async function balanceOf(wallet) {
  const data = `0x70a08231${wallet.slice(2).toLowerCase().padStart(64, '0')}`;
  const params = [{ to: stack.usdc_address, data }, 'latest'];
  const response = await fetch(stack.rpc_url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_call', params }),
  });
  return Number(BigInt((await response.json()).result));
}

/** Waits until the agent has a pending approval, and returns it. */
export async function openApproval(agentId) {
  for (;;) {
    const { approvals } = await owner('GET', `/approvals?agent_id=${agentId}&status=pending`);
    if (approvals.length > 0) return approvals[0].approval_id;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Advances the clocks of the stack and of the chain. */
export const advance = (seconds) => call('POST', '/_local/clock', { advance_seconds: seconds });

/** The URLs of the stack's official x402 servers, version 2 and version 1. */
export const v2 = stack.provider_url;
export const v1 = await call('GET', '/services/lab-weather-v1').then(({ website }) => website.replace(/\/$/, ''));

export const WEATHER = { city: 'Lisbon', temperature_c: 19.5, humidity_percent: 64, conditions: 'partly cloudy' };

/** Returns a unique run id. */
export const newRun = () => `test-${crypto.randomUUID()}`;
