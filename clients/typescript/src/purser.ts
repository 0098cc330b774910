/**
 * The configuration of an agent's run: Purser's URL, the agent key, the run's id, and the limits of a call.
 */

import { Api } from './api.js';
import type { Fetch } from './bounded.js';
import { Ordinals } from './call_key.js';
import { ConfigurationError } from './errors.js';
import { type Amount, unitsOf } from './money.js';
import type { AuthorizeBody, OriginalRequest } from './wire.js';

export interface PurserOptions {
  /** The URL of Purser: `https`, or `http` on a loopback host. Defaults to the environment variable `PURSER_URL`. */
  url?: string | undefined;
  /** The agent key, `gak_pub_…:gak_sec_…`. The key is sent only to `url`. Defaults to `PURSER_KEY`. */
  key?: string | undefined;
  /**
   * The id of this run, for example a job id or a conversation id. A run that is repeated with the same id does not pay
   * for a call twice.
   */
  run: string;
  /**
   * The maximum price of one call: `"0.05"` USD or `50_000` micro-USDC. If absent, each call must set `maxAmount`.
   */
  maxAmount?: Amount;
  /**
   * The maximum percentage by which a price may exceed the catalog's price. `0` allows no excess. By default, there is
   * no limit.
   */
  maxOverListed?: number;
  /**
   * Whether Purser checks each call before the provider receives it, including calls that cost nothing. The key's
   * permissions, the policy and the freezes then apply to every call, and only operations of the catalog can be called.
   * By default, Purser is involved only if the provider requires a payment.
   */
  checkFirst?: boolean;
  /** How long to wait for an approval, in seconds. With 0, the default, the approval is read once. */
  waitForApproval?: number;
  /** The timeout for one request to Purser, in seconds. The default is 30. */
  timeoutSeconds?: number;
  /** The timeout for a provider's response, including a paid response's body, in seconds. The default is 120. */
  answerTimeoutSeconds?: number;
  /** The maximum length of a paid response's body, in bytes. The default is 64 MiB. */
  maxAnswerBytes?: number;
  /** The `fetch` for requests to Purser. The default is the global `fetch`. */
  fetch?: Fetch;
}

/** The options of one call. */
export interface CallOptions {
  maxAmount?: Amount;
  maxOverListed?: number;
  waitForApproval?: number;
  /** The idempotency key. This key replaces the derived key. The same key never pays twice. */
  idempotencyKey?: string;
  /** The URL of the page that a scrape or crawl operation fetches. */
  target?: string;
  /** The service and the operation. Needed if two services have an operation with the same method and URL. */
  serviceId?: string;
  operationId?: string;
}

/** The validated options of a call. */
export interface Terms {
  maxUnits: number;
  /** The maximum percentage above the catalog's price. */
  maxOverListed: number | undefined;
  waitSeconds: number;
  idempotencyKey: string | undefined;
  /** The other fields of the request body that a call may set. */
  named: Pick<AuthorizeBody, 'metadata' | 'service_id' | 'operation_id'>;
}

const LONGEST_WAIT_SECONDS = 86_400;
const LONGEST_TIMEOUT_SECONDS = 3_600;

export class Purser {
  /** The client for the agent API. */
  readonly api: Api;
  readonly run: string;
  /** @internal */
  readonly ordinals = new Ordinals();
  /**
   * The limits for a provider's response.
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
    // The key is removed from the options, so that logging this object does not reveal the key.
    this.#options = { ...options, key: '' };
  }

  /**
   * Checks a call with Purser before the call is made, if `checkFirst` is set. Throws a `Refusal`.
   * @internal
   */
  async checked({ named }: Terms, original_request: OriginalRequest, signal: AbortSignal): Promise<void> {
    if (this.#options.checkFirst) await this.api.checkUnpaid({ original_request, ...named }, signal);
  }

  /**
   * Merges the options of a call with the options of the run, and validates the result.
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

/** Returns the environment variables. In a browser, returns an empty object. */
function environment(): Record<string, string | undefined> {
  return (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env ?? {};
}

/** Returns whether the agent key may be sent to a URL. The key must not be sent over a network unencrypted. */
function isSafeAddress(text: unknown): text is string {
  if (typeof text !== 'string' || !URL.canParse(text)) return false;
  const { protocol, hostname, username, password, search, hash } = new URL(text);
  const isLocal = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
  const isBare = [username, password, search, hash].every((part) => part === '');
  return isBare && (protocol === 'https:' || (protocol === 'http:' && isLocal));
}
