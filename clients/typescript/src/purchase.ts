/**
 * A purchase: authorize the payment, send the call with the signed payment, complete the settlement.
 *
 * Invariants: a failed attempt releases its ordinal, so that the next attempt uses the same payment. A payment is sent
 * only to the URL that Purser has authorized. A paid response is always returned or reported in an error. After a wait
 * for an approval, the client requests the payment requirements again, because they can expire.
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

/** A signed payment that may be sent to the provider. */
export interface Signed {
  payment: Payment;
  call: PaidCall;
}

/** The payment requirements that are sent to Purser. */
export type Requirement = Record<string, unknown> | RawJson;

/** The maximum number of expired, unused payments that one call skips before it fails. */
const MAX_EXPIRED = 20;
/** The longest wait for an approval after which the first payment requirements are still used. */
const FRESH_MILLISECONDS = 1_000;

/** Thrown if the provider no longer requires a payment. This package always catches the error. */
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
    /** Undefined if the caller chose the key. */
    private ordinal: Ordinal | undefined,
  ) {}

  /**
   * Creates a purchase and derives a key, unless the caller chose a key. `requirementOf` selects the part of the
   * payment requirements that is sent to Purser, by default all of them.
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

  /** Authorizes the payment. The ordinal stays reserved until the payment is delivered. */
  async authorize(): Promise<Signed> {
    try {
      await this.#compareWithListed();
      for (let attempt = 1; ; attempt += 1) {
        const answer = await this.#authorized();
        const call = new PaidCall(this.purser.api, answer, this.body.idempotency_key);
        if (answer.payment) return { payment: answer.payment, call };
        // Purser has verified on chain that this payment was never used, so the next key does not pay twice.
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

  /** Throws if the price exceeds the catalog's price by more than the caller allows. */
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

  /** Sends the call with the signed payment header. `value` can be another encoding of the same payment. */
  async deliver({ payment, call }: Signed, value: string = payment.header_value): Promise<Response> {
    let response: Response;
    try {
      response = await this.#send(call, { name: payment.header_name, value });
      // A failed response does not complete the purchase.
      if (!response.ok) this.ordinal?.release();
    } catch (error) {
      this.ordinal?.release();
      throw error;
    }
    return remember(response.ok ? this.#handedOut(response, call) : response, call);
  }

  /** Returns the response. Reading the body to its end, or cancelling the body, ends the purchase. */
  #handedOut(response: Response, call: PaidCall): Response {
    return boundedResponse(response, this.purser.answer, (failure) => {
      if (failure === undefined) return this.ordinal?.spend();
      this.ordinal?.release();
      return new PaymentUnanswered(call, failure);
    });
  }

  /**
   * Runs the purchase again with the provider's current payment requirements. Uses the same key, or the next key if
   * another identical call has already continued the purchase.
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

  /** Requests the provider's current payment requirements. Throws `Unpriced` if the response is not a 402. */
  async #refresh(): Promise<void> {
    const answer = await this.call.ask(this.fetch, this.purser.answer.milliseconds);
    if (!('accepts' in answer)) throw new Unpriced(answer);
    this.body = { ...this.body, payment_requirement: this.requirementOf(answer) };
  }

  /** Derives the key for the lowest free ordinal. */
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
      // The agent key may lack the permission to read the approval. The caller still gets the approval's id.
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
        // `executed`: the response to the approved call was lost, and the same key returns its payment. `rejected` and
        // `expired`: authorizing with the same key returns the reason.
        default:
          return this.#again();
      }
    }
  }

  /**
   * Authorizes with the approval. If this key has used the approval, retries without it to get the same payment.
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
   * Handles a 402 response to the paid call. An earlier attempt has paid, or the provider rejected this payment.
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
 * Returns whether the key can never pay. This is the case if the key's approval has expired, or has been used by an
 * identical call with another key. A new request needs another key.
 */
function isBoundInVain(error: unknown): boolean {
  const isExpired = error instanceof Refusal && error.decision?.reason === 'approval_expired';
  return isExpired || (error instanceof Refusal && error.slug === 'idempotent_replay');
}
