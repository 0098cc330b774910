/** The payment of a call, with its price and its receipt. It accompanies the response or an error. */

import type { Api, AuthorizeAnswer } from './api.js';
import { isPassing } from './approval.js';
import { sleep } from './bounded.js';
import { NoProof, PurserError, Refusal, Unreachable } from './errors.js';
import type { Settlement, Warning } from './wire.js';

/** The state of a payment that was sent. Only `expired` means that nothing was paid. */
export type Receipt =
  /** The transfer is verified on chain. */
  | { status: 'confirmed'; settlement: Settlement }
  /** The chain needs time, or Purser could not be asked. `confirm` asks again, after `retryAfter` seconds. */
  | { status: 'pending'; retryAfter: number; error: PurserError }
  /** The provider sent no proof, or one that Purser does not accept. It may have taken the payment: don't pay again. */
  | { status: 'unproven'; error: PurserError }
  /** The payment was never taken, and can no longer be. */
  | { status: 'expired'; settlement: Settlement };

/** The default pause between two requests for a receipt, and the longest one. */
const PAUSE_SECONDS = 2;
const LONGEST_PAUSE_SECONDS = 15;

const PAYMENTS = Symbol.for('purser-client.payments');

export class PaidCall {
  readonly settlementId: string;
  readonly transactionId: string;
  readonly amountUnits: number;
  /** The price that the catalog lists, if the provider asked for more; otherwise undefined. */
  readonly listedAmountUnits: number | undefined;
  readonly payTo: string;
  /** Whether this is the stored payment of an earlier attempt. */
  readonly replayed: boolean;
  /** The reasons that the provider may refuse the payment, such as a very long header. */
  readonly warnings: readonly Warning[];
  /** The state of the receipt when Purser was last asked. */
  receipt: Receipt = { status: 'unproven', error: new NoProof() };
  readonly #api: Api;
  #proof: string | null = null;

  constructor(
    api: Api,
    answer: AuthorizeAnswer,
    /** The idempotency key under which this call can be repeated. */
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
   * Completes the settlement with the provider's payment response, unless that is null. Never throws.
   * @internal
   */
  async prove(proof: string | null): Promise<Receipt> {
    this.#proof = proof;
    if (proof !== null && this.receipt.status !== 'confirmed') this.receipt = await this.#complete(proof);
    return this.receipt;
  }

  /** Asks Purser until the receipt is `confirmed` or `expired`, at most for `seconds`. Never throws. */
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
   * Reads the receipt and returns its status: `authorized`, `confirmed` or `expired`; undefined if Purser can't be
   * asked.
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

/** Shared by both module formats, because a program may load the package as both. */
const shared = globalThis as { [PAYMENTS]?: WeakMap<Response, PaidCall> };
const payments = (shared[PAYMENTS] ??= new WeakMap());

/** Stores the payment of a response. */
export function remember(response: Response, payment: PaidCall): Response {
  payments.set(response, payment);
  return response;
}

/** Returns the payment of a response; undefined if it was not paid. */
export function paymentOf(response: Response): PaidCall | undefined {
  return payments.get(response);
}
