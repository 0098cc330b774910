/** The typed routes of the agent API. Calls have a time limit and a size limit. Temporary failures are retried. */

import { isPassing } from './approval.js';
import { discard, exchange, type Fetch, readText, sleep } from './bounded.js';
import { ConfigurationError, Refusal, Unreachable } from './errors.js';
import type * as wire from './wire.js';

/** The name and version of this package. A test compares the version with that of package.json. */
export const USER_AGENT = 'purser-client-typescript/0.1.0';
/** A browser sends its own name, and would first ask Purser whether it may send another. */
const NAMED =
  (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node === undefined
    ? {}
    : { 'User-Agent': USER_AGENT };

/** JSON that is sent byte for byte, because some numbers and members would be serialized differently. */
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

/** An authorization, and whether it is the stored answer of an earlier call. */
export type AuthorizeAnswer = wire.Authorized & { replayed: boolean };

/** The method and path by the `operationId` of docs/openapi.json. A test compares them. */
export const ROUTES = {
  authorize: ['POST', '/x402/authorize'],
  check: ['POST', '/x402/check'],
  check_unpaid: ['POST', '/x402/check/unpaid'],
  raise: ['POST', '/x402/raises'],
  complete: ['POST', '/x402/settlements/{settlementId}/complete'],
  receipt: ['GET', '/x402/settlements/{settlementId}'],
  settlement_statement: ['GET', '/x402/settlements/{settlementId}/statement'],
  agent_decision_statement: ['GET', '/x402/decisions/{transactionId}/statement'],
  receipts: ['GET', '/agents/{agentId}/settlements'],
  approval: ['GET', '/approvals/{id}'],
  me: ['GET', '/mcp/agents/me'],
  services: ['GET', '/mcp/agents/{agentId}/services'],
  policy: ['GET', '/agents/{agentId}/services/{serviceId}/policy'],
  list_services: ['GET', '/services'],
  read_service: ['GET', '/services/{serviceId}'],
} as const;

/** The longest answer that is read, in bytes. A list of 500 services takes about 400 KB. */
const ANSWER_BYTES = 2_097_152;
/** The maximum number of attempts of a call. */
const ATTEMPTS = 3;
/** The longest pause between attempts. If Purser asks for a longer one, the call fails instead. */
const LONGEST_PAUSE_SECONDS = 5;

/** The longest wait for an approval in one call. */
const LONGEST_WAIT_SECONDS = 20;

interface Call {
  path?: Record<string, string>;
  query?: Record<string, string | number | undefined>;
  body?: object;
  attempts?: number;
  /** Additional time, beyond the timeout of every call. */
  milliseconds?: number;
  signal?: AbortSignal | undefined;
}

export class Api {
  readonly #url: string;
  readonly #key: string;
  readonly #fetch: Fetch;
  readonly #milliseconds: number;
  #agentId: Promise<string> | undefined;

  /** `Purser` validates the arguments. */
  constructor(url: string, key: string, fetch: Fetch, milliseconds: number) {
    this.#url = url.replace(/\/+$/, '');
    this.#key = key;
    this.#fetch = fetch;
    this.#milliseconds = milliseconds;
  }

  /** Judges, reserves and signs one payment. The same key and request return the same payment. */
  async authorize(body: AuthorizeRequest, signal?: AbortSignal): Promise<AuthorizeAnswer> {
    const { value, headers } = await this.#call<wire.Authorized>('authorize', { body, signal });
    return { ...value, replayed: headers.get('Idempotent-Replayed') === 'true' };
  }

  /** Judges one payment without any effect. */
  async check(body: CheckRequest): Promise<wire.CheckAnswer> {
    return (await this.#call<wire.CheckAnswer>('check', { body })).value;
  }

  /**
   * Judges one call that is made without a payment, by the key's scope, the catalog, the policy and the freezes. A
   * refusal is thrown.
   */
  async checkUnpaid(body: wire.UnpaidCheckBody, signal?: AbortSignal): Promise<wire.UnpaidCheckAnswer> {
    return (await this.#call<wire.UnpaidCheckAnswer>('check_unpaid', { body, signal })).value;
  }

  /**
   * Completes a settlement with the provider's payment response. It is not retried: if the chain needs time, it throws.
   */
  async complete(settlementId: string, body: wire.CompleteBody): Promise<wire.Completed> {
    return (await this.#call<wire.Completed>('complete', { path: { settlementId }, body, attempts: 1 })).value;
  }

  /** Returns one settlement. */
  async receipt(settlementId: string): Promise<wire.Settlement> {
    return (await this.#call<wire.Settlement>('receipt', { path: { settlementId } })).value;
  }

  /** Returns the signed statements about a payment. Each is null until it is in the log. */
  async statements(settlementId: string): Promise<wire.SettlementStatements> {
    return (await this.#call<wire.SettlementStatements>('settlement_statement', { path: { settlementId } })).value;
  }

  /** Returns the signed statement of a decision. It is not found until it is in the log. */
  async decisionStatement(transactionId: string): Promise<wire.AgentDecisionStatement> {
    const path = { transactionId };
    return (await this.#call<wire.AgentDecisionStatement>('agent_decision_statement', { path })).value;
  }

  /** Lists the agent's settlements, newest first: 25 by default, at most 100. */
  async receipts(limit?: number): Promise<wire.SettlementList> {
    const path = { agentId: await this.#agent() };
    return (await this.#call<wire.SettlementList>('receipts', { path, query: { limit } })).value;
  }

  /**
   * Returns an approval. With `waitSeconds`, returns it once it is no longer pending, or after that many whole seconds,
   * at most 20. Such a call is not retried, and its timeout is extended by the wait.
   */
  async approval(id: string, waitSeconds = 0, signal?: AbortSignal): Promise<wire.Approval> {
    const wait = Math.floor(Math.min(waitSeconds, LONGEST_WAIT_SECONDS));
    const call = wait > 0 ? { query: { wait_seconds: wait }, attempts: 1, milliseconds: wait * 1000 } : {};
    return (await this.#call<wire.Approval>('approval', { path: { id }, signal, ...call })).value;
  }

  /**
   * Asks the agent's owner for higher caps for a limited time. Once the approval is approved, repeat the payment with a
   * new idempotency key and without the approval's id.
   */
  async askForRaise(body: wire.RaiseBody): Promise<wire.Approval> {
    return (await this.#call<wire.Approval>('raise', { body })).value;
  }

  /** Returns the agent that the key belongs to. */
  async me(): Promise<wire.Agent> {
    return (await this.#call<wire.Agent>('me', {})).value;
  }

  /** Lists the services that are enabled for the agent, each with its policy. */
  async enabledServices(): Promise<wire.EnabledServiceList> {
    return (await this.#call<wire.EnabledServiceList>('services', { path: { agentId: await this.#agent() } })).value;
  }

  /** Returns one service's policy, and the remainder of its limits. */
  async policy(serviceId: string): Promise<wire.ServicePolicy> {
    const path = { agentId: await this.#agent(), serviceId };
    return (await this.#call<wire.ServicePolicy>('policy', { path })).value;
  }

  /** Lists the services of the catalog. */
  async services(
    query: { category?: wire.Category; trust_status?: wire.TrustStatus; slug?: string; limit?: number } = {},
  ): Promise<wire.ServiceList> {
    return (await this.#call<wire.ServiceList>('list_services', { query })).value;
  }

  /** Returns one service of the catalog with its operations, by slug or UUID. */
  async service(serviceId: string): Promise<wire.ServiceDetail> {
    return (await this.#call<wire.ServiceDetail>('read_service', { path: { serviceId } })).value;
  }

  /** Caches the agent's id, which never changes for a key. A failure is not cached. */
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
      headers: {
        ...NAMED,
        Authorization: `Bearer ${this.#key}`,
        ...(call.body && { 'Content-Type': 'application/json' }),
      },
      body: call.body ? encode(call.body) : null,
      // The key is sent to Purser only. A redirect is not followed, and no referrer is sent.
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

/** Serializes a body, with raw members unchanged. These are complete objects, so they can't alter the other members. */
function encode(body: object): string {
  const members = Object.entries(body)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${JSON.stringify(name)}:${value instanceof RawJson ? value.text : JSON.stringify(value)}`);
  return `{${members.join(',')}}`;
}

/** Parses a JSON object. Returns undefined for any other text. */
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
