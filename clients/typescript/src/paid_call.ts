/** The payment for a call, with its price and its receipt. A response or an error has at most one payment. */

import type { Api, AuthorizeAnswer } from './api.js';
import { isPassing } from './approval.js';
import { sleep } from './bounded.js';
import { NoProof, PurserError, Refusal, Unreachable } from './errors.js';
import type { Settlement, Warning } from './wire.js';

/** The state of a payment that was sent. Only `expired` means that nothing was paid. */
export type Receipt =
  /** Purser has verified the transfer on chain. */
  | { status: 'confirmed'; settlement: Settlement }
  /** The transfer is not on chain yet, or Purser is unavailable. Call `confirm` after `retryAfter` seconds. */
  | { status: 'pending'; retryAfter: number; error: PurserError }
  /** The settlement header is absent or rejected. Don't pay again: the provider may have taken the payment. */
  | { status: 'unproven'; error: PurserError }
  /** The payment was not used before it expired, so nothing was paid. */
  | { status: 'expired'; settlement: Settlement };

/** The first and the longest pause between two requests for a receipt. */
const PAUSE_SECONDS = 2;
const LONGEST_PAUSE_SECONDS = 15;

const PAYMENTS = Symbol.for('purser-client.payments');

export class PaidCall {
  readonly settlementId: string;
  readonly transactionId: string;
  readonly amountUnits: number;
  /** The price in the catalog, if the provider requires more. Otherwise undefined. */
  readonly listedAmountUnits: number | undefined;
  readonly payTo: string;
  /** Whether this is the payment of an earlier attempt. */
  readonly replayed: boolean;
  /** Reasons why the provider may reject the payment, for example a very long header. */
  readonly warnings: readonly Warning[];
  /** The state of the receipt in Purser's latest response. */
  receipt: Receipt = { status: 'unproven', error: new NoProof() };
  readonly #api: Api;
  #proof: string | null = null;

  constructor(
    api: Api,
    answer: AuthorizeAnswer,
    /** The idempotency key with which this call can be repeated. */
    readonly idempotencyKey: string,
  ) {
    this.#api = api;
    this.settlementId = answer.settlement_id;
    this.transactionId = answer.transaction_id;
    this.amountUnits = answer.amount_units;
    this.listedAmountUnits = answer.listed_amount_units;
    this.payTo = answer.pay_to;
    this.replayed = answer.replayed;
    this.warnings = answer.warnings ?? [];
  }

  /**
   * Completes the settlement with the provider's settlement header. Does nothing if it is null. Never throws.
   * @internal
   */
  async prove(proof: string | null): Promise<Receipt> {
    this.#proof = proof;
    if (proof !== null && this.receipt.status !== 'confirmed') this.receipt = await this.#complete(proof);
    return this.receipt;
  }

  /** Requests the receipt until it is `confirmed` or `expired`, at most for `seconds`. Never throws. */
  async confirm(seconds: number): Promise<Receipt> {
    const end = Date.now() + seconds * 1000;
    for (let pause = PAUSE_SECONDS; !this.#isSettled(); pause = Math.min(pause * 1.5, LONGEST_PAUSE_SECONDS)) {
      if (this.receipt.status === 'pending') {
        const next = this.receipt.retryAfter * 1000;
        if (Date.now() + next > end) break;
        await sleep(next);
        await this.prove(this.#proof);
      } else {
        await this.look();
        const left = end - Date.now();
        if (this.#isSettled() || left <= 0) break;
        await sleep(Math.min(pause * 1000, left));
      }
    }
    return this.receipt;
  }

  #isSettled(): boolean {
    return this.receipt.status === 'confirmed' || this.receipt.status === 'expired';
  }

  /**
   * Reads the receipt and returns its status: `authorized`, `confirmed` or `expired`. Returns undefined if Purser is
   * unavailable.
   * @internal
   */
  async look(): Promise<string | undefined> {
    const settlement = await this.#api.receipt(this.settlementId).catch(() => undefined);
    const status = settlement?.receipt_status;
    if (settlement && (status === 'confirmed' || status === 'expired')) this.receipt = { status, settlement };
    return status;
  }

  async #complete(proof: string): Promise<Receipt> {
    try {
      const settlement = await this.#api.complete(this.settlementId, { payment_response_header: proof });
      return { status: 'confirmed', settlement };
    } catch (cause) {
      const error = cause instanceof PurserError ? cause : new Unreachable('the request could not be made', { cause });
      if (!isPassing(error)) return { status: 'unproven', error };
      const retryAfter = (error instanceof Refusal && error.retryAfter) || PAUSE_SECONDS;
      return { status: 'pending', retryAfter, error };
    }
  }
}

/** Shared by the ES module and the CommonJS module, because a program may load both. */
const shared = globalThis as { [PAYMENTS]?: WeakMap<Response, PaidCall> };
const payments = (shared[PAYMENTS] ??= new WeakMap());

/** Stores the payment of a response, for `paymentOf`. */
export function remember(response: Response, payment: PaidCall): Response {
  payments.set(response, payment);
  return response;
}

/** Returns the payment of a response, or undefined if the call was not paid. */
export function paymentOf(response: Response): PaidCall | undefined {
  return payments.get(response);
}
