/**
 * A purchase: authorize, send the call with exactly what was signed, complete.
 *
 * Invariants: a failed attempt releases its ordinal, so that the next attempt asks for the same payment. A payment is
 * sent only to the address that was judged. A paid response is always returned, or reported in an error. After a wait for
 * a person, the provider is asked for its newest terms, because parts of an offer expire.
 */

import { type AuthorizeAnswer, type AuthorizeRequest, RawJson } from './api.js';
import { PendingApproval } from './approval.js';
import { boundedResponse, type Fetch } from './bounded.js';
import { callKey, type Ordinal } from './call_key.js';
import {
  AlreadyPaid,
  ApprovalRequired,
  PaymentLapsed,
  PaymentNotAccepted,
  PaymentRedirected,
  PaymentUnanswered,
  PriceAboveListed,
  Refusal,
} from './errors.js';
import { type Offer, readAnswer, saysUsed } from './offer.js';
import { PaidCall, remember } from './paid_call.js';
import type { ProviderCall } from './provider_call.js';
import type { Purser, Terms } from './purser.js';
import type { Payment } from './wire.js';

/** A signed payment that may be sent. */
export interface Signed {
  payment: Payment;
  call: PaidCall;
}

/** The payment requirement that Purser judges, of an offer. */
export type Requirement = Record<string, unknown> | RawJson;

/** The maximum number of expired, unused payments that one call skips. */
const MAX_EXPIRED = 20;
/** The longest wait for a person after which the offer is still sent. */
const FRESH_MILLISECONDS = 1_000;

/** The signal that the provider no longer asks for a payment. It never leaves this package. */
export class Unpriced extends Error {
  constructor(readonly response: Response) {
    super('the provider no longer asks for a payment');
  }
}

export class Purchase {
  private constructor(
    private readonly purser: Purser,
    private readonly fetch: Fetch,
    private readonly call: ProviderCall,
    private readonly terms: Terms,
    private readonly requirementOf: (offer: Offer) => Requirement,
    private body: AuthorizeRequest,
    /** Undefined if the caller gave the key. */
    private ordinal: Ordinal | undefined,
  ) {}

  /**
   * Creates a purchase and derives its key, unless the caller gave one. `requirementOf` returns the payment requirement
   * of an offer, by default the unchanged offer.
   */
  static async of(
    purser: Purser,
    fetch: Fetch,
    call: ProviderCall,
    terms: Terms,
    offer: Offer,
    requirementOf: (offer: Offer) => Requirement = ({ text }) => new RawJson(text),
  ): Promise<Purchase> {
    const { idempotencyKey, maxUnits, named } = terms;
    const body: AuthorizeRequest = {
      payment_requirement: requirementOf(offer),
      max_payment_units: maxUnits,
      original_request: call.describe(),
      idempotency_key: idempotencyKey ?? '',
      ...named,
    };
    const purchase = new Purchase(purser, fetch, call, terms, requirementOf, body, undefined);
    if (idempotencyKey === undefined) {
      call.requireRepeatable();
      await purchase.#takeKey();
    }
    return purchase;
  }

  /** Runs the complete purchase. */
  async run(): Promise<Response> {
    try {
      return await this.deliver(await this.authorize());
    } catch (error) {
      if (error instanceof Unpriced) return error.response;
      throw error;
    }
  }

  /** Authorizes the payment. Its ordinal stays reserved until the payment is delivered. */
  async authorize(): Promise<Signed> {
    try {
      await this.#compareWithListed();
      for (let attempt = 1; ; attempt += 1) {
        const answer = await this.#authorized();
        const call = new PaidCall(this.purser.api, answer, this.body.idempotency_key);
        if (answer.payment) return { payment: answer.payment, call };
        // Purser has verified on chain that this payment was never used, so the next key buys nothing twice.
        const isOver = answer.receipt_status === 'expired' && this.ordinal !== undefined && attempt < MAX_EXPIRED;
        if (!isOver) throw await this.#ended(call, answer.receipt_status);
        this.ordinal?.spend();
        await this.#takeKey();
      }
    } catch (error) {
      if (isBoundInVain(error)) this.ordinal?.spend();
      this.ordinal?.release();
      throw error;
    }
  }

  /** Throws if the price exceeds the listed one by more than the caller allows. */
  async #compareWithListed(): Promise<void> {
    const { maxOverListed } = this.terms;
    if (maxOverListed === undefined) return;
    const { idempotency_key: _, ...body } = this.body;
    const answer = await this.purser.api.check({ ...body, replay_key: crypto.randomUUID() });
    const { amount_units: asked, listed_amount_units: listed } = answer;
    if (listed !== undefined && BigInt(asked) * 100n > BigInt(listed) * BigInt(100 + maxOverListed)) {
      throw new PriceAboveListed(asked, listed);
    }
  }

  /** Sends the paid call with exactly the signed header, unless `value` is another encoding of it. */
  async deliver({ payment, call }: Signed, value: string = payment.header_value): Promise<Response> {
    let response: Response;
    try {
      response = await this.#send(call, { name: payment.header_name, value });
      // A failed answer ends no purchase.
      if (!response.ok) this.ordinal?.release();
    } catch (error) {
      this.ordinal?.release();
      throw error;
    }
    return remember(response.ok ? this.#handedOut(response, call) : response, call);
  }

  /** Returns the response. Reading it to the end, or cancelling it, ends the purchase. */
  #handedOut(response: Response, call: PaidCall): Response {
    return boundedResponse(response, this.purser.answer, (failure) => {
      if (failure === undefined) return this.ordinal?.spend();
      this.ordinal?.release();
      return new PaymentUnanswered(call, failure);
    });
  }

  /**
   * Runs the purchase once more with the newest terms, under the same key, or under the next one if another identical
   * call continues it already.
   */
  async #retry(): Promise<Response> {
    const { purser, fetch, call, terms, requirementOf, body } = this;
    const again = new Purchase(purser, fetch, call, terms, requirementOf, body, this.ordinal?.retake());
    if (this.ordinal !== undefined && again.ordinal === undefined) await again.#takeKey();
    try {
      await again.#refresh();
    } catch (error) {
      again.ordinal?.release();
      if (error instanceof Unpriced) return error.response;
      throw error;
    }
    return again.run();
  }

  /** Asks the provider for its newest terms. Throws `Unpriced` if it answers with something else. */
  async #refresh(): Promise<void> {
    const answer = await this.call.ask(this.fetch, this.purser.answer.milliseconds);
    if (!('accepts' in answer)) throw new Unpriced(answer);
    this.body = { ...this.body, payment_requirement: this.requirementOf(answer) };
  }

  /** Derives the key with the lowest free ordinal. */
  async #takeKey(): Promise<void> {
    const { method, url, bodySha256 } = this.call;
    this.ordinal = this.purser.ordinals.take(this.call.identity);
    const parts = { run: this.purser.run, method, url, bodySha256, ordinal: this.ordinal.number };
    this.body = { ...this.body, idempotency_key: await callKey(parts) };
  }

  async #authorized(): Promise<AuthorizeAnswer> {
    const { api } = this.purser;
    const { signal } = this.call;
    try {
      return await api.authorize(this.body, signal);
    } catch (refusal) {
      if (!(refusal instanceof Refusal && refusal.slug === 'approval_required' && refusal.approvalId)) throw refusal;
      const approval = new PendingApproval(api, refusal.approvalId);
      // The key may not be allowed to read the approval; the caller still gets its id.
      const asked = Date.now();
      const state = await approval.wait(this.terms.waitSeconds, signal).catch((error: unknown) => {
        if (!(error instanceof Refusal)) throw error;
        return undefined;
      });
      switch (state?.status) {
        case undefined:
        case 'pending':
          throw new ApprovalRequired(refusal, approval, () => this.#retry());
        case 'approved':
          if (Date.now() - asked > FRESH_MILLISECONDS) await this.#refresh();
          return this.#approved(refusal.approvalId);
        // Executed by a call whose answer was lost: the key replays it. Rejected or expired: the key returns the
        // reason.
        default:
          return this.#again();
      }
    }
  }

  /**
   * Authorizes with the approval. If this key has used it already, the key without the approval replays the payment.
   */
  async #approved(approvalId: string): Promise<AuthorizeAnswer> {
    try {
      return await this.purser.api.authorize({ ...this.body, approval_id: approvalId }, this.call.signal);
    } catch (error) {
      if (error instanceof Refusal && error.slug === 'idempotent_replay') return this.#again();
      throw error;
    }
  }

  #again(): Promise<AuthorizeAnswer> {
    return this.purser.api.authorize(this.body, this.call.signal);
  }

  async #send(call: PaidCall, header: { name: string; value: string }): Promise<Response> {
    let response: Response;
    try {
      response = await this.call.send(this.fetch, this.purser.answer.milliseconds, header);
    } catch (cause) {
      throw new PaymentUnanswered(call, cause);
    }
    const proof = response.headers.get('PAYMENT-RESPONSE') || response.headers.get('X-PAYMENT-RESPONSE');
    await call.prove(proof || null);
    // A browser hides a redirect's status and location.
    if (response.type === 'opaqueredirect' || [301, 302, 303, 307, 308].includes(response.status)) {
      throw new PaymentRedirected(call, response, response.headers.get('Location'));
    }
    if (response.status === 402) throw await this.#refused(call, response);
    return response;
  }

  /**
   * Handles a 402 to the paid call: either an earlier attempt's payment was taken, or this payment was not accepted.
   */
  async #refused(call: PaidCall, response: Response): Promise<Error> {
    const answer = await readAnswer(response, this.purser.answer.milliseconds);
    const status = (await call.look()) ?? 'authorized';
    const wasTaken = status === 'confirmed' || saysUsed(answer);
    if (call.replayed && wasTaken) return this.#alreadyPaid(call, status);
    return new PaymentNotAccepted(call, answer);
  }

  /** Returns the error for an authorization whose payment can no longer be used. */
  async #ended(call: PaidCall, status: string): Promise<Error> {
    await call.look();
    return status === 'confirmed' ? this.#alreadyPaid(call, status) : new PaymentLapsed(call, status);
  }

  #alreadyPaid(call: PaidCall, status: string): AlreadyPaid {
    return new AlreadyPaid(call, status, () => this.ordinal?.spend());
  }
}

/**
 * Returns whether the key is permanently bound to an approval that can no longer be used and paid for nothing. The
 * approval expired, or paid for an identical call under another key. A new request needs another key.
 */
function isBoundInVain(error: unknown): boolean {
  const isExpired = error instanceof Refusal && error.decision?.reason === 'approval_expired';
  return isExpired || (error instanceof Refusal && error.slug === 'idempotent_replay');
}
