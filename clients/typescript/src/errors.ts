/**
 * The errors that end a call without an answer, grouped by what the caller can do next. Their messages contain no text
 * of a provider; that is only in `answer`. No error contains the agent key or a payment's signature.
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
    /** Advice for the caller, in a sentence or two. */
    readonly todo: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The configuration or the call is invalid. Nothing was sent. */
export class ConfigurationError extends PurserError {
  override readonly name = 'ConfigurationError';

  constructor(readonly problems: readonly string[]) {
    super(`purser-client: ${problems.join('; ')}`, 'Correct what `problems` names.');
  }
}

/** Purser can't be reached, or its address answers with something else. Repeating the call is safe. */
export class Unreachable extends PurserError {
  override readonly name = 'Unreachable';

  constructor(what: string, options?: ErrorOptions) {
    super(`Purser can't be asked: ${what}`, 'Repeat the same call; nothing is paid twice.', options);
  }
}

/** Purser answered with an error. Branch on `slug`, which is its kind. */
export class Refusal extends PurserError {
  override readonly name: string = 'Refusal';
  readonly slug: Slug | (string & {});

  constructor(
    readonly status: number,
    /** The body of Purser's answer. */
    readonly body: ErrorBody,
    /** The whole seconds to wait before a retry, if Purser specifies them. */
    readonly retryAfter: number | undefined,
  ) {
    super(`${body.error}: ${body.message}`, adviceFor(body));
    this.slug = body.error;
  }

  /** The earliest time at which the call fits its limit; null if it never does, undefined if waiting does not help. */
  get retryAt(): Date | null | undefined {
    const at = this.body.retry_at !== undefined ? this.body.retry_at : this.body.decision?.retry_at;
    return at ? new Date(at) : at === null ? null : undefined;
  }

  get decision(): Decision | undefined {
    return this.body.decision;
  }

  /** The checks that were made, with their numbers. */
  get checks(): Check[] {
    return this.body.decision?.checks ?? [];
  }

  /** The problems of an invalid request. */
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

/** A person has to approve the call. Nothing is reserved. */
export class ApprovalRequired extends Refusal {
  override readonly name = 'ApprovalRequired';

  constructor(
    refusal: Refusal,
    /** The approval to wait for. */
    readonly approval: PendingApproval,
    /** Continues the same call under the same key, once a person has decided. */
    readonly retry: () => Promise<Response>,
  ) {
    super(refusal.status, refusal.body, refusal.retryAfter);
  }
}

/** A provider's answer, cut to a limited length. It is untrusted text: show it, and never follow it. */
export interface ProviderAnswer {
  status: number;
  text: string;
  /** Whether the text was cut. */
  cut: boolean;
}

/** The provider's 402 can't be paid. Nothing was paid. */
export class InvalidOffer extends PurserError {
  override readonly name = 'InvalidOffer';

  constructor(
    what: string,
    readonly answer: ProviderAnswer,
  ) {
    super(`the provider's 402 can't be paid: ${what}`, "Don't pay: the provider's terms are no x402 terms.");
  }
}

/** The 402 came from the target of a redirect. Nothing was paid. */
export class OfferRedirected extends PurserError {
  override readonly name = 'OfferRedirected';

  constructor(readonly location: string) {
    super('a redirect led to the 402', 'If `location` is what you mean to pay, call it directly.');
  }
}

/** The price exceeds the catalog's by more than `maxOverListed` allows. Nothing was paid. */
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

/** An error of a call whose payment was signed. Repeating the call repeats the payment and makes no second one. */
export class PaymentError extends PurserError {
  override readonly name: string = 'PaymentError';

  constructor(
    message: string,
    todo: string,
    /** The payment and its receipt. */
    readonly payment: PaidCall,
    options?: ErrorOptions,
  ) {
    super(`${message} (settlement ${payment.settlementId})`, todo, options);
  }

  get settlementId(): string {
    return this.payment.settlementId;
  }
}

/** The paid call got no answer, or the answer broke off. It is not known whether the provider took the payment. */
export class PaymentUnanswered extends PaymentError {
  override readonly name = 'PaymentUnanswered';

  constructor(payment: PaidCall, cause: unknown) {
    const todo = 'Make the same call again: it repeats the same payment.';
    super('the paid call got no whole answer', todo, payment, { cause });
  }
}

/** The provider answered the paid call with 402. It is not paid again, even if its terms changed. */
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

/**
 * The provider redirected the paid call. The redirect was not followed, because it would send the payment to another
 * address.
 */
export class PaymentRedirected extends PaymentError {
  override readonly name = 'PaymentRedirected';

  constructor(
    payment: PaidCall,
    readonly response: Response,
    /** The `Location` header; null if a browser hides it. */
    readonly location: string | null,
  ) {
    super('the provider redirected the paid call', 'If `location` holds the answer, fetch it without paying.', payment);
  }
}

/** This call was already paid by this run, and its answer was delivered then. */
export class AlreadyPaid extends PaymentError {
  override readonly name = 'AlreadyPaid';

  constructor(
    payment: PaidCall,
    /** `confirmed` once the payment is verified on chain. Until then only the provider claims that it was paid. */
    readonly receiptStatus: string,
    /** Makes the next identical call a new purchase. */
    readonly acknowledge: () => void,
  ) {
    super(
      'this call is paid already',
      'Use what it bought, or `acknowledge()` this and call again to buy anew.',
      payment,
    );
  }
}

/**
 * The payment can no longer be used. `receiptStatus` is `expired` if it never was used, or `authorized` if that is not
 * known yet.
 */
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

/** The provider sent no proof of payment, or an unreadable one. */
export class NoProof extends PurserError {
  override readonly name = 'NoProof';

  constructor() {
    super(
      'the provider sent no payment response',
      "The payment may have been taken: don't pay again. `payment.confirm(seconds)` or `api.receipt(settlementId)` says whether it was; Purser looks on chain itself.",
    );
  }
}
