/** A call's payment, as it is found beside the response: what it cost, and its receipt. */

import type { Api, AuthorizeAnswer } from './api.js';
import { isPassing } from './approval.js';
import { sleep } from './bounded.js';
import { NoProof, PurserError, Refusal, Unreachable } from './errors.js';
import type { Settlement } from './wire.js';

/** Where the proof of a payment stands. */
export type Receipt =
  | { status: 'confirmed'; settlement: Settlement }
  /** The chain needs time, or Purser could not be asked: `confirm` asks again, after `retryAfter` seconds. */
  | { status: 'pending'; retryAfter: number; error: PurserError }
  | { status: 'failed'; error: PurserError };

/** What is waited where an answer names no time. */
const PAUSE_SECONDS = 2;

export class PaidCall {
  readonly settlementId: string;
  readonly transactionId: string;
  readonly amountUnits: number;
  readonly payTo: string;
  /** Whether it is the stored payment of an earlier attempt. */
  readonly replayed: boolean;
  /** As it stands since Purser was asked last. */
  receipt: Receipt = { status: 'failed', error: new NoProof() };
  readonly #api: Api;
  #proof: string | null = null;

  constructor(
    api: Api,
    answer: AuthorizeAnswer,
    /** Under which this call can be repeated from anywhere. */
    readonly idempotencyKey: string,
  ) {
    this.#api = api;
    this.settlementId = answer.settlement_id;
    this.transactionId = answer.transaction_id;
    this.amountUnits = answer.amount_units;
    this.payTo = answer.pay_to;
    this.replayed = answer.replayed;
  }

  /**
   * Asks Purser to prove the payment by the provider's payment response, or null if there is none. Never throws.
   * @internal
   */
  async prove(proof: string | null): Promise<Receipt> {
    this.#proof = proof;
    if (proof !== null && this.receipt.status !== 'confirmed') this.receipt = await this.#complete(proof);
    return this.receipt;
  }

  /** Asks again while the receipt is pending, at most this long. */
  async confirm(seconds: number): Promise<Receipt> {
    const end = Date.now() + seconds * 1000;
    while (this.#proof !== null && this.receipt.status === 'pending') {
      const next = this.receipt.retryAfter * 1000;
      if (Date.now() + next > end) break;
      await sleep(next);
      await this.prove(this.#proof);
    }
    return this.receipt;
  }

  /**
   * What Purser knows of it by itself: `authorized`, `confirmed` or `expired`; undefined if it can't be asked.
   * @internal
   */
  async look(): Promise<string | undefined> {
    const settlement = await this.#api.receipt(this.settlementId).catch(() => undefined);
    if (settlement?.receipt_status === 'confirmed') this.receipt = { status: 'confirmed', settlement };
    return settlement?.receipt_status;
  }

  async #complete(proof: string): Promise<Receipt> {
    try {
      const settlement = await this.#api.complete(this.settlementId, { payment_response_header: proof });
      return { status: 'confirmed', settlement };
    } catch (cause) {
      const error = cause instanceof PurserError ? cause : new Unreachable('the request could not be made', { cause });
      if (!isPassing(error)) return { status: 'failed', error };
      const retryAfter = (error instanceof Refusal && error.retryAfter) || PAUSE_SECONDS;
      return { status: 'pending', retryAfter, error };
    }
  }
}

const payments = new WeakMap<Response, PaidCall>();

/** Remembers what a response was paid with. */
export function remember(response: Response, payment: PaidCall): Response {
  payments.set(response, payment);
  return response;
}

/** What a response was paid with; undefined if it cost nothing. */
export function paymentOf(response: Response): PaidCall | undefined {
  return payments.get(response);
}
