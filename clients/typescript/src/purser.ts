/**
 * The configuration of one run of an agent: Purser's address, the agent key, the run's id, and the limits of a call.
 */

import { Api } from './api.js';
import type { Fetch } from './bounded.js';
import { Ordinals } from './call_key.js';
import { ConfigurationError } from './errors.js';
import { type Amount, unitsOf } from './money.js';
import type { AuthorizeBody, OriginalRequest } from './wire.js';

export interface PurserOptions {
  /** The address of Purser: `https://…`, or `http://` on this machine. Defaults to `PURSER_URL` of the environment. */
  url?: string | undefined;
  /** The agent key, `gak_pub_…:gak_sec_…`. It is sent only to `url`. Defaults to `PURSER_KEY` of the environment. */
  key?: string | undefined;
  /**
   * The id of this run, for example of a job or a conversation. A run that is repeated under the same id pays nothing
   * twice.
   */
  run: string;
  /**
   * The highest price of one call: `"0.05"` in USD, or `50_000` in micro-units. Without it, each call must set its own.
   */
  maxAmount?: Amount;
  /**
   * The highest percentage by which a price may exceed the one that the catalog lists; `0` allows none. No limit by
   * default.
   */
  maxOverListed?: number;
  /**
   * Whether Purser judges each call before the provider gets it, also a call that costs nothing. The key's scope, the
   * policy and the freezes then hold for every call, and only calls of the catalog are made. By default, Purser learns
   * of a call only when the provider asks for a payment.
   */
  checkFirst?: boolean;
  /** How long to wait for a person's approval, in seconds. With 0, the default, the approval is read once. */
  waitForApproval?: number;
  /** The timeout of one call to Purser, in seconds; 30 by default. */
  timeoutSeconds?: number;
  /** The timeout of a provider's answer, in seconds, including the body of a paid answer; 120 by default. */
  answerTimeoutSeconds?: number;
  /** The longest body of a paid answer that is read, in bytes; 64 MiB by default. */
  maxAnswerBytes?: number;
  /** The `fetch` for calls to Purser; the global one by default. */
  fetch?: Fetch;
}

/** The options of one call. */
export interface CallOptions {
  maxAmount?: Amount;
  maxOverListed?: number;
  waitForApproval?: number;
  /** The idempotency key, instead of the derived one. The same key never pays twice. */
  idempotencyKey?: string;
  /** The page that a scrape or crawl operation fetches. */
  target?: string;
  /** The service and operation; needed if two services of the catalog list the same call. */
  serviceId?: string;
  operationId?: string;
}

/** The validated options of a call. */
export interface Terms {
  maxUnits: number;
  /** The allowed percentage above the listed price. */
  maxOverListed: number | undefined;
  waitSeconds: number;
  idempotencyKey: string | undefined;
  /** The other members of the body that a call may set. */
  named: Pick<AuthorizeBody, 'metadata' | 'service_id' | 'operation_id'>;
}

const LONGEST_WAIT_SECONDS = 86_400;
const LONGEST_TIMEOUT_SECONDS = 3_600;

export class Purser {
  /** The agent's routes, other than payments. */
  readonly api: Api;
  readonly run: string;
  /** @internal */
  readonly ordinals = new Ordinals();
  /**
   * The limits of a provider's answer.
   * @internal
   */
  readonly answer: { bytes: number; milliseconds: number };
  readonly #options: PurserOptions;

  constructor(options: PurserOptions) {
    const { PURSER_URL, PURSER_KEY } = environment();
    const { url = PURSER_URL, key = PURSER_KEY, run } = options;
    const { timeoutSeconds = 30, fetch = (request: Request) => globalThis.fetch(request) } = options;
    const { answerTimeoutSeconds = 120, maxAnswerBytes = 67_108_864 } = options;
    const problems: string[] = [];
    if (!isSafeAddress(url)) {
      problems.push('`url`, or PURSER_URL, must be an https address, or http on this machine');
    }
    if (typeof key !== 'string' || !/^gak_pub_[\w-]+:gak_sec_[\w-]+$/.test(key)) {
      problems.push("`key`, or PURSER_KEY, must be an agent's whole key, `gak_pub_…:gak_sec_…`");
    }
    if (typeof run !== 'string' || run === '')
      problems.push("`run` must name this run: a job's or a conversation's id");
    for (const [name, seconds] of Object.entries({ timeoutSeconds, answerTimeoutSeconds })) {
      if (isSeconds(seconds, LONGEST_TIMEOUT_SECONDS) && seconds > 0) continue;
      problems.push(`\`${name}\` must be above 0, at most ${LONGEST_TIMEOUT_SECONDS}`);
    }
    if (!Number.isSafeInteger(maxAnswerBytes) || maxAnswerBytes < 1) problems.push('`maxAnswerBytes` must be above 0');
    problems.push(...problemsOf(options));
    if (problems.length > 0) throw new ConfigurationError(problems);
    this.run = run;
    this.answer = { bytes: maxAnswerBytes, milliseconds: answerTimeoutSeconds * 1000 };
    this.api = new Api(url ?? '', key ?? '', fetch, timeoutSeconds * 1000);
    // The key is removed, so that printing this object reveals no secret.
    this.#options = { ...options, key: '' };
  }

  /**
   * Judges a call before it is made, if `checkFirst` is set. Throws a `Refusal`.
   * @internal
   */
  async checked({ named }: Terms, original_request: OriginalRequest, signal: AbortSignal): Promise<void> {
    if (this.#options.checkFirst) await this.api.checkUnpaid({ original_request, ...named }, signal);
  }

  /**
   * Merges a call's options with those of the run, and validates them.
   * @internal
   */
  terms(call: CallOptions = {}): Terms {
    const { maxAmount = this.#options.maxAmount, waitForApproval = this.#options.waitForApproval ?? 0 } = call;
    const { maxOverListed = this.#options.maxOverListed } = call;
    const problems = problemsOf({ ...call, maxAmount, maxOverListed, waitForApproval });
    if (maxAmount === undefined) problems.push('`maxAmount` is missing: say what the call may cost');
    const { idempotencyKey, target, serviceId, operationId } = call;
    if (idempotencyKey !== undefined && !/^[^\x00-\x1f\x7f-\x9f]{1,255}$/.test(idempotencyKey)) {
      problems.push('`idempotencyKey` must be 1 to 255 characters');
    }
    if (problems.length > 0) throw new ConfigurationError(problems);
    const named = {
      ...(target !== undefined && { metadata: { target_url: target } }),
      ...(serviceId !== undefined && { service_id: serviceId }),
      ...(operationId !== undefined && { operation_id: operationId }),
    };
    return { maxUnits: unitsOf(maxAmount) ?? 0, maxOverListed, waitSeconds: waitForApproval, idempotencyKey, named };
  }
}

function problemsOf({
  maxAmount,
  maxOverListed = 0,
  waitForApproval = 0,
}: {
  maxAmount?: Amount | undefined;
  maxOverListed?: number | undefined;
  waitForApproval?: number;
}): string[] {
  const problems: string[] = [];
  if (maxAmount !== undefined && unitsOf(maxAmount) === undefined) {
    problems.push('`maxAmount` must be USD as decimal text, such as "0.05", or whole micro-units, such as 50_000');
  }
  if (!Number.isSafeInteger(maxOverListed) || maxOverListed < 0) {
    problems.push('`maxOverListed` must be whole percent, 0 or more');
  }
  if (!isSeconds(waitForApproval, LONGEST_WAIT_SECONDS)) {
    problems.push(`\`waitForApproval\` must be seconds, at most ${LONGEST_WAIT_SECONDS}`);
  }
  return problems;
}

function isSeconds(value: unknown, most: number): value is number {
  return typeof value === 'number' && value >= 0 && value <= most;
}

/** Returns the environment variables; none in a browser. */
function environment(): Record<string, string | undefined> {
  return (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env ?? {};
}

/** Returns whether the key may be sent to an address: it must not cross a network unencrypted. */
function isSafeAddress(text: unknown): text is string {
  if (typeof text !== 'string' || !URL.canParse(text)) return false;
  const { protocol, hostname, username, password, search, hash } = new URL(text);
  const isLocal = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
  const isBare = [username, password, search, hash].every((part) => part === '');
  return isBare && (protocol === 'https:' || (protocol === 'http:' && isLocal));
}
