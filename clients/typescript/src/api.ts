/**
 * The client for the agent API. Requests have a time limit and a size limit, and are retried after temporary errors.
 */

import { isPassing } from './approval.js';
import { discard, exchange, type Fetch, readText, sleep } from './bounded.js';
import { ConfigurationError, Refusal, Unreachable } from './errors.js';
import type * as wire from './wire.js';

/** The `User-Agent` of this package. A test compares the version with package.json. */
export const USER_AGENT = 'purser-client-typescript/0.1.0';
/**
 * Browsers send their own `User-Agent`, and another value would need a CORS preflight, so the header is set only
 * outside browsers.
 */
const NAMED =
  (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node === undefined
    ? {}
    : { 'User-Agent': USER_AGENT };

/** JSON text that is sent unchanged, because parsing and serializing would change some numbers and fields. */
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

/** An authorization, and whether it is the stored response of an earlier call. */
export type AuthorizeAnswer = wire.Authorized & { replayed: boolean };

/** The method and path of each operation, by `operationId`. A test compares them with docs/openapi.json. */
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

/** The maximum length of a response body, in bytes. A list of 500 services has about 400 KB. */
const ANSWER_BYTES = 2_097_152;
/** The maximum number of attempts for a request. */
const ATTEMPTS = 3;
/** The longest pause between two attempts. If Purser's `Retry-After` is longer, the request fails. */
const LONGEST_PAUSE_SECONDS = 5;

/** The maximum time for which one request can wait for an approval. */
const LONGEST_WAIT_SECONDS = 20;

interface Call {
  path?: Record<string, string>;
  query?: Record<string, string | number | undefined>;
  body?: object;
  attempts?: number;
  /** Additional time for the request, on top of the timeout. */
  milliseconds?: number;
  signal?: AbortSignal | undefined;
}

export class Api {
  readonly #url: string;
  readonly #key: string;
  readonly #fetch: Fetch;
  readonly #milliseconds: number;
  #agentId: Promise<string> | undefined;

  /** Creates the client. The arguments are validated by `Purser`. */
  constructor(url: string, key: string, fetch: Fetch, milliseconds: number) {
    this.#url = url.replace(/\/+$/, '');
    this.#key = key;
    this.#fetch = fetch;
    this.#milliseconds = milliseconds;
  }

  /** Authorizes a payment. Repeating the request with the same key returns the same payment. */
  async authorize(body: AuthorizeRequest, signal?: AbortSignal): Promise<AuthorizeAnswer> {
    const { value, headers } = await this.#call<wire.Authorized>('authorize', { body, signal });
    return { ...value, replayed: headers.get('Idempotent-Replayed') === 'true' };
  }

  /** Returns the decision that authorize would make now, without reserving or signing anything. */
  async check(body: CheckRequest): Promise<wire.CheckAnswer> {
    return (await this.#call<wire.CheckAnswer>('check', { body })).value;
  }

  /**
   * Checks a call that needs no payment against the key's permissions, the catalog, the policy and the freezes. Throws
   * a `Refusal` if the agent may not make the call.
   */
  async checkUnpaid(body: wire.UnpaidCheckBody, signal?: AbortSignal): Promise<wire.UnpaidCheckAnswer> {
    return (await this.#call<wire.UnpaidCheckAnswer>('check_unpaid', { body, signal })).value;
  }

  /**
   * Completes a settlement with the provider's settlement header. The request is not retried, so the method throws if
   * the payment is not on chain yet.
   */
  async complete(settlementId: string, body: wire.CompleteBody): Promise<wire.Completed> {
    return (await this.#call<wire.Completed>('complete', { path: { settlementId }, body, attempts: 1 })).value;
  }

  /** Returns a settlement, which is the receipt of a payment. */
  async receipt(settlementId: string): Promise<wire.Settlement> {
    return (await this.#call<wire.Settlement>('receipt', { path: { settlementId } })).value;
  }

  /** Returns the signed statements about a payment. A statement is null until it is in the log. */
  async statements(settlementId: string): Promise<wire.SettlementStatements> {
    return (await this.#call<wire.SettlementStatements>('settlement_statement', { path: { settlementId } })).value;
  }

  /** Returns the signed statement of a decision. Throws a 404 error until the statement is in the log. */
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
   * Returns an approval. With `waitSeconds` (whole seconds, at most 20), Purser delays the response until the approval
   * is decided or the time is over. The timeout is extended by the wait, and the request is not retried.
   */
  async approval(id: string, waitSeconds = 0, signal?: AbortSignal): Promise<wire.Approval> {
    const wait = Math.floor(Math.min(waitSeconds, LONGEST_WAIT_SECONDS));
    const call = wait > 0 ? { query: { wait_seconds: wait }, attempts: 1, milliseconds: wait * 1000 } : {};
    return (await this.#call<wire.Approval>('approval', { path: { id }, signal, ...call })).value;
  }

  /**
   * Requests a temporary limit increase from the agent's owner. After the owner has approved the increase, repeat the
   * payment with a new idempotency key and without the approval's id.
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

  /** Returns the agent's policy for a service, and the remainder of its limits. */
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

  /** Returns a service of the catalog with its operations. `serviceId` is a slug or a UUID. */
  async service(serviceId: string): Promise<wire.ServiceDetail> {
    return (await this.#call<wire.ServiceDetail>('read_service', { path: { serviceId } })).value;
  }

  /** Returns the agent's id. The id is cached, because it never changes for a key. A failure is not cached. */
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
      // The client follows no redirect, so that the agent key is sent to Purser only. The client sends no referrer.
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

/** Serializes a body. Raw fields stay unchanged, and can't alter other fields because each is a complete object. */
function encode(body: object): string {
  const members = Object.entries(body)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${JSON.stringify(name)}:${value instanceof RawJson ? value.text : JSON.stringify(value)}`);
  return `{${members.join(',')}}`;
}

/** Parses a JSON object. Returns undefined if the text is not a JSON object. */
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
