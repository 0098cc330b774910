/**
 * The integration with `@x402/fetch`: a scheme client for which Purser signs, and a matching `fetch`.
 *
 * The official client passes neither method nor URL to a scheme, and converts errors of a scheme to plain text.
 * Therefore this `fetch` does three things:
 *
 * - It adds an id to `extra` in each entry of a 402 response's `accepts`. The scheme finds the call by this id.
 * - It sends Purser's payment header, without the id, instead of the client's header.
 * - It throws a `Refusal` unchanged.
 */

import { parse, RawJson } from './api.js';
import type { Fetch } from './bounded.js';
import { ConfigurationError } from './errors.js';
import { fromBase64, type Offer, toBase64 } from './offer.js';
import { ProviderCall } from './provider_call.js';
import { Purchase, type Requirement, type Signed, Unpriced } from './purchase.js';
import type { Purser } from './purser.js';

/** The part of the official `x402Client` that this package uses. */
export interface X402Client {
  register(network: `${string}:${string}`, scheme: PurserScheme): unknown;
  registerV1(network: string, scheme: PurserScheme): unknown;
}

/** A `SchemeNetworkClient` of `@x402/core`. */
export interface PurserScheme {
  readonly scheme: 'exact';
  findDefaultAsset(asset: string, network: string): { asset: string; decimals: number; symbol: string } | undefined;
  createPaymentPayload(
    version: number,
    requirements: Requirements,
  ): Promise<{ x402Version: number; payload: JsonObject }>;
}

type JsonObject = Record<string, unknown>;

interface Requirements {
  network: string;
  extra?: JsonObject | null;
}

/**
 * The networks on which Purser pays, by version 2 and version 1 name, with the USDC contracts (docs/x402.md §3). The
 * official client handles other networks.
 */
const USDC = {
  'eip155:8453': '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
  'eip155:84532': '0x036cbd53842c5426634e7929541ec2318f3dcf7e',
} as const;
const USDC_V1 = { base: USDC['eip155:8453'], 'base-sepolia': USDC['eip155:84532'] } as const;
const KNOWN: Record<string, string> = { ...USDC, ...USDC_V1 };

const MARK = 'purserCall';
const NOT_OURS = 'this 402 waits for no payment: give wrapFetchWithPayment the fetch that registerPurser returned';
/**
 * The maximum number of pending calls in memory. The oldest calls are dropped, because the official client does not
 * report calls that it abandons.
 */
const REMEMBERED = 256;

/** A 402 response from which the official client has to select an entry. */
interface Pending {
  call: ProviderCall;
  offer: Offer;
}

/** A payment, with the offer that the client got. After a wait for an approval, the payment is for a newer offer. */
type Outcome = { purchase: Purchase; signed: Signed; offer: Offer } | { error: unknown };

/**
 * Registers Purser with an `x402Client` for USDC on Base and Base Sepolia. Returns the `fetch` to pass to
 * `wrapFetchWithPayment` together with the client.
 *
 * The client's own spend controls still apply: one dollar per payment, unless `client.setSpendControls` changes it.
 */
export function registerPurser(
  client: X402Client,
  purser: Purser,
  fetch: Fetch = (request) => globalThis.fetch(request),
): (input: string | URL | Request, init?: RequestInit) => Promise<Response> {
  // This validates the options now instead of at the first payment.
  purser.terms();
  const pending = new Recent<Pending>();
  const outcomes = new Recent<Outcome>();

  const scheme: PurserScheme = {
    scheme: 'exact',
    findDefaultAsset: (asset, network) =>
      KNOWN[network] === asset.toLowerCase() ? { asset, decimals: 6, symbol: 'USDC' } : undefined,
    async createPaymentPayload(version, { network, extra }) {
      const [id = '', index = ''] = String(extra?.[MARK]).split('.');
      // Each id is used only once, so that a hook cannot get a second payment for a completed call.
      const found = pending.take(id);
      if (!found) throw new ConfigurationError([NOT_OURS]);
      const { call, offer } = found;
      try {
        const chosen = offer.accepts[Number(index)] ?? {};
        const purchase = await Purchase.of(purser, fetch, call, purser.terms(), offer, (newest) =>
          newest === offer ? only(offer, Number(index)) : only(newest, newest.accepts.findIndex(sameTerms(chosen))),
        );
        const signed = await purchase.authorize();
        const { payload } = signed.payment;
        outcomes.set(signatureOf(payload), { purchase, signed, offer });
        return payload as { x402Version: number; payload: JsonObject };
      } catch (error) {
        // The `fetch` below throws the error, because the client would convert it. This payload is never sent.
        const signature = crypto.randomUUID();
        outcomes.set(signature, { error });
        return { x402Version: version, scheme: 'exact', network, payload: { signature } };
      }
    },
  };

  for (const network of Object.keys(USDC)) client.register(network as keyof typeof USDC, scheme);
  for (const network of Object.keys(USDC_V1)) client.registerV1(network, scheme);

  return async (input, init) => {
    const request = new Request(input, init);
    const header = request.headers.get('PAYMENT-SIGNATURE') ?? request.headers.get('X-PAYMENT');
    if (header !== null) {
      const sent = parse(fromBase64(header) ?? '');
      const outcome = outcomes.take(signatureOf(sent));
      if (!outcome) {
        // A payment for Purser's scheme must have a purchase. A payment for another scheme is passed on.
        if (isOurs((sent?.['accepted'] as JsonObject | undefined) ?? sent ?? {}))
          throw new ConfigurationError([NOT_OURS]);
        return fetch(request);
      }
      if ('error' in outcome) {
        if (outcome.error instanceof Unpriced) return outcome.error.response;
        throw outcome.error;
      }
      const value = withExtensions(outcome.signed, outcome.offer.value['extensions'], sent?.['extensions']);
      return outcome.purchase.deliver(outcome.signed, value);
    }
    const call = await ProviderCall.of(request);
    await purser.checked(purser.terms(), call.describe(), call.signal);
    const answer = await call.ask(fetch, purser.answer.milliseconds);
    if (!('accepts' in answer)) return answer;
    const id = crypto.randomUUID();
    pending.set(id, { call, offer: answer });
    return marked(answer, id);
  };
}

/** Returns whether an entry, or a version 1 payment, has a scheme and network that Purser supports. */
function isOurs({ scheme, network }: JsonObject): boolean {
  return scheme === 'exact' && Object.hasOwn(KNOWN, String(network));
}

/** Returns the 402 response for the client, with an id in each entry that Purser may pay. */
function marked({ version, value, accepts }: Offer, id: string): Response {
  const entries = accepts.map((entry, index) => {
    const extra = { ...(entry['extra'] as object | null), [MARK]: `${id}.${index}` };
    return isOurs(entry) ? { ...entry, extra } : entry;
  });
  const text = JSON.stringify({ ...value, accepts: entries });
  if (version === 1) return new Response(text, { status: 402, headers: { 'Content-Type': 'application/json' } });
  return new Response('{}', { status: 402, headers: { 'PAYMENT-REQUIRED': toBase64(text) } });
}

/**
 * Returns the offer with only the entry that the client selected, so that Purser evaluates and signs this entry. If the
 * entry no longer exists, returns the whole offer, and Purser selects an entry.
 */
function only({ text, value, accepts }: Offer, index: number): Requirement {
  const entry = accepts[index];
  return accepts.length === 1 || !entry ? new RawJson(text) : { ...value, accepts: [entry] };
}

/** Returns a function that checks whether an entry requires the same payment as the selected entry. */
function sameTerms(chosen: JsonObject): (entry: JsonObject) => boolean {
  const judged = ['scheme', 'network', 'asset', 'payTo', 'amount', 'maxAmountRequired'];
  return (entry) => judged.every((name) => String(entry[name]).toLowerCase() === String(chosen[name]).toLowerCase());
}

/**
 * Returns the value of Purser's payment header. If the client added or changed extensions of the offer, the value is
 * encoded again with these extensions.
 */
function withExtensions({ payment }: Signed, offered: unknown, sent: unknown): string {
  const before = (offered ?? {}) as JsonObject;
  const changed = Object.entries(sent ?? {}).filter(([key, value]) => canonical(value) !== canonical(before[key]));
  if (changed.length === 0) return payment.header_value;
  const extensions = { ...(payment.payload['extensions'] as object | undefined), ...Object.fromEntries(changed) };
  return toBase64(JSON.stringify({ ...payment.payload, extensions }));
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) =>
    typeof member === 'object' && member !== null && !Array.isArray(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  );
}

function signatureOf(payload: JsonObject | undefined): string {
  const inner = payload?.['payload'] as { signature?: unknown } | undefined;
  return String(inner?.signature);
}

/** A map with a maximum size, which drops its oldest entries. */
class Recent<Value> {
  readonly #entries = new Map<string, Value>();

  take(name: string): Value | undefined {
    const value = this.#entries.get(name);
    this.#entries.delete(name);
    return value;
  }

  set(name: string, value: Value): void {
    this.#entries.set(name, value);
    const oldest = this.#entries.keys().next();
    if (this.#entries.size > REMEMBERED && !oldest.done) this.#entries.delete(oldest.value);
  }
}
