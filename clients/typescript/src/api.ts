/** The routes that an agent's key opens, typed. Calls are bounded in time and size; what may pass is repeated. */

import { isPassing } from './approval.js';
import { discard, exchange, type Fetch, readText, sleep } from './bounded.js';
import { ConfigurationError, Refusal, Unreachable } from './errors.js';
import type * as wire from './wire.js';

/** JSON that goes into a body as it came, to the byte: numbers and members that we would not write the same way. */
export class RawJson {
  constructor(readonly text: string) {
    if (!parse(text)) throw new ConfigurationError(['raw JSON must be the text of an object']);
  }
}

export type AuthorizeRequest = Omit<wire.AuthorizeBody, 'payment_requirement'> & {
  payment_requirement: wire.AuthorizeBody['payment_requirement'] | RawJson;
};
export type CheckRequest = Omit<wire.CheckBody, 'payment_requirement'> & {
  payment_requirement: wire.CheckBody['payment_requirement'] | RawJson;
};

/** An authorization, and whether it is the stored one of an earlier call. */
export type AuthorizeAnswer = wire.Authorized & { replayed: boolean };

/** Method and path by the `operationId` of docs/openapi.json; a test compares them. */
export const ROUTES = {
  authorize: ['POST', '/x402/authorize'],
  check: ['POST', '/x402/check'],
  complete: ['POST', '/x402/settlements/{settlementId}/complete'],
  receipt: ['GET', '/x402/settlements/{settlementId}'],
  receipts: ['GET', '/agents/{agentId}/settlements'],
  approval: ['GET', '/approvals/{id}'],
  me: ['GET', '/mcp/agents/me'],
  services: ['GET', '/mcp/agents/{agentId}/services'],
  policy: ['GET', '/agents/{agentId}/services/{serviceId}/policy'],
  list_services: ['GET', '/services'],
  read_service: ['GET', '/services/{serviceId}'],
} as const;

/** The longest answer that is read: a list of 500 services is about 400 KB. */
const ANSWER_BYTES = 2_097_152;
/** A call is made at most this often. */
const ATTEMPTS = 3;
/** Longer than this is left to the caller to wait. */
const LONGEST_PAUSE_SECONDS = 5;

/** How long Purser waits at most in one call for an approval. */
const LONGEST_WAIT_SECONDS = 20;

interface Call {
  path?: Record<string, string>;
  query?: Record<string, string | number | undefined>;
  body?: object;
  attempts?: number;
  /** Beyond what each call is given. */
  milliseconds?: number;
  signal?: AbortSignal | undefined;
}

export class Api {
  readonly #url: string;
  readonly #key: string;
  readonly #fetch: Fetch;
  readonly #milliseconds: number;
  #agentId: Promise<string> | undefined;

  /** The arguments are checked already, by `Purser`. */
  constructor(url: string, key: string, fetch: Fetch, milliseconds: number) {
    this.#url = url.replace(/\/+$/, '');
    this.#key = key;
    this.#fetch = fetch;
    this.#milliseconds = milliseconds;
  }

  /** Judges, reserves and signs one payment. The same key and request answer the same payment. */
  async authorize(body: AuthorizeRequest, signal?: AbortSignal): Promise<AuthorizeAnswer> {
    const { value, headers } = await this.#call<wire.Authorized>('authorize', { body, signal });
    return { ...value, replayed: headers.get('Idempotent-Replayed') === 'true' };
  }

  /** Judges one payment without effect. */
  async check(body: CheckRequest): Promise<wire.CheckAnswer> {
    return (await this.#call<wire.CheckAnswer>('check', { body })).value;
  }

  /** Proves a payment by what the provider answered. Asked once: a chain that needs time is told by a refusal. */
  async complete(settlementId: string, body: wire.CompleteBody): Promise<wire.Completed> {
    return (await this.#call<wire.Completed>('complete', { path: { settlementId }, body, attempts: 1 })).value;
  }

  /** One settlement. */
  async receipt(settlementId: string): Promise<wire.Settlement> {
    return (await this.#call<wire.Settlement>('receipt', { path: { settlementId } })).value;
  }

  /** The agent's settlements, newest first; 25 unless `limit` says otherwise, 100 at most. */
  async receipts(limit?: number): Promise<wire.SettlementList> {
    const path = { agentId: await this.#agent() };
    return (await this.#call<wire.SettlementList>('receipts', { path, query: { limit } })).value;
  }

  /**
   * Where an approval stands. With `waitSeconds`, once it is no longer pending, or after so many whole seconds, 20 at
   * most: then asked once, and given that much more time.
   */
  async approval(id: string, waitSeconds = 0, signal?: AbortSignal): Promise<wire.Approval> {
    const wait = Math.floor(Math.min(waitSeconds, LONGEST_WAIT_SECONDS));
    const call = wait > 0 ? { query: { wait_seconds: wait }, attempts: 1, milliseconds: wait * 1000 } : {};
    return (await this.#call<wire.Approval>('approval', { path: { id }, signal, ...call })).value;
  }

  /** The agent behind the key. */
  async me(): Promise<wire.Agent> {
    return (await this.#call<wire.Agent>('me', {})).value;
  }

  /** The services enabled for the agent, each with its policy. */
  async enabledServices(): Promise<wire.EnabledServiceList> {
    return (await this.#call<wire.EnabledServiceList>('services', { path: { agentId: await this.#agent() } })).value;
  }

  /** One service's policy, and what of it is left now. */
  async policy(serviceId: string): Promise<wire.ServicePolicy> {
    const path = { agentId: await this.#agent(), serviceId };
    return (await this.#call<wire.ServicePolicy>('policy', { path })).value;
  }

  /** The catalog. */
  async services(
    query: { category?: wire.Category; trust_status?: wire.TrustStatus; slug?: string; limit?: number } = {},
  ): Promise<wire.ServiceList> {
    return (await this.#call<wire.ServiceList>('list_services', { query })).value;
  }

  /** One service of the catalog with its operations, by slug or UUID. */
  async service(serviceId: string): Promise<wire.ServiceDetail> {
    return (await this.#call<wire.ServiceDetail>('read_service', { path: { serviceId } })).value;
  }

  /** A key names one agent for good; a failure is not kept. */
  #agent(): Promise<string> {
    this.#agentId ??= this.me().then(
      ({ agent_id }) => agent_id,
      (error: unknown) => {
        this.#agentId = undefined;
        throw error;
      },
    );
    return this.#agentId;
  }

  async #call<Answer>(route: keyof typeof ROUTES, call: Call): Promise<{ value: Answer; headers: Headers }> {
    let pause = 0.25;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#once<Answer>(route, call);
      } catch (error) {
        const wait = (error instanceof Refusal && error.retryAfter) || pause;
        const again = isPassing(error) && attempt < (call.attempts ?? ATTEMPTS) && wait <= LONGEST_PAUSE_SECONDS;
        if (!again || call.signal?.aborted) throw error;
        await sleep(wait * 1000, call.signal);
        pause *= 4;
      }
    }
  }

  async #once<Answer>(route: keyof typeof ROUTES, call: Call): Promise<{ value: Answer; headers: Headers }> {
    const [method, template] = ROUTES[route];
    const url = new URL(
      this.#url + template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(call.path?.[name] ?? '')),
    );
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const request = new Request(url, {
      method,
      headers: { Authorization: `Bearer ${this.#key}`, ...(call.body && { 'Content-Type': 'application/json' }) },
      body: call.body ? encode(call.body) : null,
      // The key goes to Purser alone: not along a redirect, not as a referrer's address.
      redirect: 'manual',
      referrerPolicy: 'no-referrer',
      ...(call.signal && { signal: call.signal }),
    });
    const milliseconds = this.#milliseconds + (call.milliseconds ?? 0);
    let answer: { status: number; text: string; headers: Headers };
    try {
      answer = await exchange(this.#fetch, request, milliseconds, async (response) => {
        const { status, headers } = response;
        if (status >= 300 && status < 400) discard(response.body);
        return { status, headers, text: await readText(response, ANSWER_BYTES, this.#milliseconds) };
      });
    } catch (cause) {
      call.signal?.throwIfAborted();
      throw new Unreachable(cause instanceof Error ? cause.message : 'no answer', { cause });
    }
    const value = parse(answer.text);
    if (answer.status >= 200 && answer.status < 300 && value)
      return { value: value as Answer, headers: answer.headers };
    const retryAfter = wholeSeconds(
      value?.['retry_after'] ?? answer.headers.get('Retry-After'),
    );
    if (typeof value?.['error'] === 'string') {
      throw new Refusal(answer.status, { message: '', ...value } as unknown as wire.ErrorBody, retryAfter);
    }
    throw new Unreachable(`status ${answer.status} without an error of Purser's`);
  }
}

/** A body as JSON, with raw members as they are: whole objects, so that they can't break out. */
function encode(body: object): string {
  const members = Object.entries(body)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${JSON.stringify(name)}:${value instanceof RawJson ? value.text : JSON.stringify(value)}`);
  return `{${members.join(',')}}`;
}

/** A JSON object, or undefined. */
export function parse(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

function wholeSeconds(value: unknown): number | undefined {
  const seconds = typeof value === 'string' && /^[0-9]{1,9}$/.test(value) ? Number(value) : value;
  return typeof seconds === 'number' && Number.isSafeInteger(seconds) && seconds >= 0 ? seconds : undefined;
}
