/** A `fetch` that pays. */

import type { Fetch } from './bounded.js';
import { ProviderCall } from './provider_call.js';
import { Purchase } from './purchase.js';
import type { CallOptions, Purser } from './purser.js';

/** `fetch` with payment options for each call. */
export type PayingFetch = (input: string | URL | Request, init?: RequestInit, options?: CallOptions) => Promise<Response>;

/**
 * Wraps `fetch` so that a 402 is paid through Purser. The result is the provider's response; `paymentOf` returns its
 * payment and receipt.
 *
 * Throws a `PurserError` if there is no such response. An error of `fetch` before any payment is thrown unchanged.
 */
export function wrapFetch(fetch: Fetch, purser: Purser): PayingFetch {
  return async (input, init, options) => {
    const terms = purser.terms(options);
    const call = await ProviderCall.of(input, init);
    await purser.checked(terms, call.describe(), call.signal);
    const answer = await call.ask(fetch, purser.answer.milliseconds);
    if (!('accepts' in answer)) return answer;
    const purchase = await Purchase.of(purser, fetch, call, terms, answer);
    return purchase.run();
  };
}
