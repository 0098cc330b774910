// Calls the API with the types of openapi-typescript. run.py compiles it next to the generated `api.ts`.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

declare const process: { argv: string[] };
const [baseUrl, agent, token, key] = process.argv.slice(2) as [string, string, string, string];
const owner = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const path = { agentId: agent };
const body: components['schemas']['RuleBody'] = { kind: 'count_limit', count: 7, window_seconds: 3600 };
const added = await owner.POST('/agents/{agentId}/rules', { params: { path, header: { 'If-Match': '*' } }, body });
if (added.error) throw new Error(JSON.stringify(added.error));
const { data: rules } = await owner.GET('/agents/{agentId}/rules', { params: { path } });
const rule: components['schemas']['AgentRule'] | undefined = rules?.rules[0];
// The type of the rule depends on `kind`.
if (rule?.kind !== 'count_limit' || rule.count !== 7) throw new Error(JSON.stringify(rules));
const { data: me } = await createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } }).GET('/mcp/agents/me');
if (me?.agent_id !== agent) throw new Error(JSON.stringify(me));
