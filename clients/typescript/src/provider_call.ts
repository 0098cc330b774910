/** A request to a provider, which can be sent again with a payment. */

import { exchange, type Fetch } from './bounded.js';
import { sha256 } from './call_key.js';
import { ConfigurationError } from './errors.js';
import { type Offer, readOffer } from './offer.js';
import type { OriginalRequest } from './wire.js';

export class ProviderCall {
  /** The URL as it is sent, without a fragment. */
  readonly url: string;

  private constructor(
    /** The request without the body. */
    private readonly template: Request,
    private readonly body: Uint8Array<ArrayBuffer> | null,
    readonly bodySha256: string,
  ) {
    this.url = template.url.replace(/#.*$/s, '');
  }

  /** Creates a call and reads the body, so that the body can be hashed and sent twice. */
  static async of(input: string | URL | Request, init?: RequestInit): Promise<ProviderCall> {
    const template = new Request(input, init);
    const bodiless = template.method === 'GET' || template.method === 'HEAD';
    const body = bodiless ? new Uint8Array() : new Uint8Array(await template.arrayBuffer());
    return new ProviderCall(template, bodiless ? null : body, await sha256(body));
  }

  get method(): string {
    return this.template.method;
  }

  get signal(): AbortSignal {
    return this.template.signal;
  }

  /** Identifies the call: identical calls have the same text. */
  get identity(): string {
    return `${this.method.toUpperCase()} ${this.bodySha256} ${this.url}`;
  }

  /** Throws for a multipart body, because its random boundary makes the derived key different for each attempt. */
  requireRepeatable(): void {
    if (/^multipart\//i.test(this.template.headers.get('Content-Type') ?? '')) {
      throw new ConfigurationError([
        'a multipart body differs each time it is made: give the call an `idempotencyKey`',
      ]);
    }
  }

  /** Returns the description of the call for authorize and check requests. */
  describe(): OriginalRequest {
    const hasBody = this.body !== null && this.body.length > 0;
    return { method: this.method, url: this.url, ...(hasBody && { body_hash: `sha256:${this.bodySha256}` }) };
  }

  /** Sends the request without a payment. Returns the provider's response or the payment requirements. */
  ask(fetch: Fetch, milliseconds: number): Promise<Response | Offer> {
    const request = new Request(this.template, { body: this.body });
    return exchange<Response | Offer>(fetch, request, milliseconds, (response) =>
      response.status === 402 ? readOffer(response, milliseconds) : response,
    );
  }

  /** Sends the request with a payment. Follows no redirect, because it would send the payment to another URL. */
  send(fetch: Fetch, milliseconds: number, header: { name: string; value: string }): Promise<Response> {
    const request = new Request(this.template, { body: this.body, redirect: 'manual' });
    request.headers.set(header.name, header.value);
    return exchange(fetch, request, milliseconds, (response) => response);
  }
}
