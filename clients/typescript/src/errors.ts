/**
 * Everything that can end a call without its answer, by what the caller can do next. Messages are ours or Purser's: a
 * provider's words are data, in `answer`, and the agent's key and payments' signatures are nowhere.
 */

import { adviceFor, type Slug } from './advice.js';
import type { PendingApproval } from './approval.js';
import type { PaidCall } from './paid_call.js';
import type { Check, Decision, ErrorBody, Problem } from './wire.js';

/** The longest part of a provider's answer that an error keeps, in bytes. */
export const KEPT_BYTES = 16_384;

export class PurserError extends Error {
  override readonly name: string = 'PurserError';

  constructor(
    message: string,
    /** What to do about it, in a sentence or two. */
    readonly todo: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The configuration or the call can't work; nothing was sent. */
export class ConfigurationError extends PurserError {
  override readonly name = 'ConfigurationError';

  constructor(readonly problems: readonly string[]) {
    super(`purser-client: ${problems.join('; ')}`, 'Correct what `problems` names.');
  }
}

/** Purser can't be asked, or what answers at its address is not Purser. Repeating is safe. */
export class Unreachable extends PurserError {
  override readonly name = 'Unreachable';

  constructor(what: string, options?: ErrorOptions) {
    super(`Purser can't be asked: ${what}`, 'Repeat the same call; nothing is paid twice.', options);
  }
}

/** Purser answered no. `slug` says why: branch on it. */
export class Refusal extends PurserError {
  override readonly name: string = 'Refusal';
  readonly slug: Slug | (string & {});

  constructor(
    readonly status: number,
    /** All that Purser said. */
    readonly body: ErrorBody,
    /** Whole seconds to wait before the same request makes sense, if Purser named any. */
    readonly retryAfter: number | undefined,
  ) {
    super(`${body.error}: ${body.message}`, adviceFor(body));
    this.slug = body.error;
  }

  /** From when the call fits its limit; null if never, undefined if no time changes it. */
  get retryAt(): Date | null | undefined {
    const at = this.body.retry_at !== undefined ? this.body.retry_at : this.body.decision?.retry_at;
    return at ? new Date(at) : at === null ? null : undefined;
  }

  get decision(): Decision | undefined {
    return this.body.decision;
  }

  /** Every check that was made, with its numbers. */
  get checks(): Check[] {
    return this.body.decision?.checks ?? [];
  }

  /** Every problem of an invalid request. */
  get details(): Problem[] {
    return this.body.details ?? [];
  }

  get approvalId(): string | undefined {
    return this.body.approval_id ?? undefined;
  }

  get settlementId(): string | undefined {
    return this.body.settlement_id ?? undefined;
  }
}

/** A person has to say yes; nothing is reserved. */
export class ApprovalRequired extends Refusal {
  override readonly name = 'ApprovalRequired';

  constructor(
    refusal: Refusal,
    /** What to wait on. */
    readonly approval: PendingApproval,
    /** Goes on with the same call, under the same key, once a person has decided. */
    readonly retry: () => Promise<Response>,
  ) {
    super(refusal.status, refusal.body, refusal.retryAfter);
  }
}

/** What a provider said, cut to a bounded length: text of a stranger, to be shown and never to be followed. */
export interface ProviderAnswer {
  status: number;
  text: string;
  /** Whether there was more. */
  cut: boolean;
}

/** A 402 that can't be paid as it came; nothing was paid. */
export class InvalidOffer extends PurserError {
  override readonly name = 'InvalidOffer';

  constructor(
    what: string,
    readonly answer: ProviderAnswer,
  ) {
    super(`the provider's 402 can't be paid: ${what}`, "Don't pay: the provider's terms are no x402 terms.");
  }
}

/** The 402 came from where a redirect led; nothing was paid. */
export class OfferRedirected extends PurserError {
  override readonly name = 'OfferRedirected';

  constructor(readonly location: string) {
    super('a redirect led to the 402', 'If `location` is what you mean to pay, call it directly.');
  }
}

/** The provider asks for more above the catalog's price than `maxOverListed` allows; nothing was paid. */
export class PriceAboveListed extends PurserError {
  override readonly name = 'PriceAboveListed';

  constructor(
    readonly amountUnits: number,
    readonly listedAmountUnits: number,
  ) {
    super(
      `the provider asks for ${amountUnits} micro-units, and the catalog lists ${listedAmountUnits}`,
      'Nothing was paid. Raise `maxOverListed` if the call is worth it.',
    );
  }
}

/** A call for which a payment is signed. The same call tried again repeats the payment and makes no second one. */
export class PaymentError extends PurserError {
  override readonly name: string = 'PaymentError';

  constructor(
    message: string,
    todo: string,
    /** The payment, and what is known of its receipt. */
    readonly payment: PaidCall,
    options?: ErrorOptions,
  ) {
    super(`${message} (settlement ${payment.settlementId})`, todo, options);
  }

  get settlementId(): string {
    return this.payment.settlementId;
  }
}

/** The paid call got no answer, so that nobody knows yet whether the provider took the payment; or it broke off. */
export class PaymentUnanswered extends PaymentError {
  override readonly name = 'PaymentUnanswered';

  constructor(payment: PaidCall, cause: unknown) {
    const todo = 'Make the same call again: it repeats the same payment.';
    super('the paid call got no whole answer', todo, payment, { cause });
  }
}

/** The provider answers 402 though it was paid. It is not paid again, whatever its new terms. */
export class PaymentNotAccepted extends PaymentError {
  override readonly name = 'PaymentNotAccepted';

  constructor(
    payment: PaidCall,
    readonly answer: ProviderAnswer,
  ) {
    const todo =
      "The payment may have been taken: don't pay another way. `payment.confirm(seconds)` says whether it was; the same call repeats the same payment.";
    super('the provider did not accept the payment', todo, payment);
  }
}

/** The provider redirects the paid call. A payment goes to nobody else, so that it was not followed. */
export class PaymentRedirected extends PaymentError {
  override readonly name = 'PaymentRedirected';

  constructor(
    payment: PaidCall,
    readonly response: Response,
    /** Where to; null where a browser hides it. */
    readonly location: string | null,
  ) {
    super('the provider redirected the paid call', 'If `location` holds the answer, fetch it without paying.', payment);
  }
}

/** This very call was paid before, by this run: what it bought was handed out then. */
export class AlreadyPaid extends PaymentError {
  override readonly name = 'AlreadyPaid';

  constructor(
    payment: PaidCall,
    /** `confirmed` once proven on chain; until then only the provider says so. */
    readonly receiptStatus: string,
    /** Lets the next identical call be a purchase of its own. */
    readonly acknowledge: () => void,
  ) {
    super(
      'this call is paid already',
      'Use what it bought, or `acknowledge()` this and call again to buy anew.',
      payment,
    );
  }
}

/** The payment can't be used any more. `receiptStatus`: `expired` if it never was, `authorized` if nobody knows yet. */
export class PaymentLapsed extends PaymentError {
  override readonly name = 'PaymentLapsed';

  constructor(
    payment: PaidCall,
    readonly receiptStatus: string,
  ) {
    const todo =
      receiptStatus === 'expired'
        ? 'Nothing was paid: call again under another `idempotencyKey`.'
        : 'Repeat the call later: it is not known yet whether the provider took the payment.';
    super("the payment of this call can't be used any more", todo, payment);
  }
}

/** The provider sent no proof of payment, or none that was understood. */
export class NoProof extends PurserError {
  override readonly name = 'NoProof';

  constructor() {
    super(
      'the provider sent no payment response',
      "The payment may have been taken: don't pay again. `payment.confirm(seconds)` or `api.receipt(settlementId)` says whether it was; Purser looks on chain itself.",
    );
  }
}
