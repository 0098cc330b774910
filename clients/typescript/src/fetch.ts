/** Wraps `fetch` so that calls are paid. */

import type { Fetch } from './bounded.js';
import { ProviderCall } from './provider_call.js';
import { Purchase } from './purchase.js';
import type { CallOptions, Purser } from './purser.js';

/** A `fetch` function with an additional argument for payment options. */
export type PayingFetch = (input: string | URL | Request, init?: RequestInit, options?: CallOptions) => Promise<Response>;

/**
 * Wraps `fetch` so that 402 responses are paid through Purser. The wrapped function returns the provider's response.
 * `paymentOf` returns the response's payment and receipt.
 *
 * The wrapped function throws a `PurserError` if a call can't be paid. An error that `fetch` throws before any payment
 * is thrown unchanged.
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
