/**
 * Reads the payment requirements in a provider's 402 response, in every format that the official x402 clients accept
 * (docs/x402.md §1, §2). The original text is kept.
 */

import { parse } from './api.js';
import { decode, discard, readBytes, readText, TooLongError } from './bounded.js';
import { InvalidOffer, KEPT_BYTES, OfferRedirected, type ProviderAnswer } from './errors.js';

/** The maximum length of payment requirements. Purser accepts requests of 65,536 bytes, with URLs of 8,192 bytes. */
const OFFER_BYTES = 49_152;

/** The result for a body that can't be read. */
const NOTHING = { bytes: new Uint8Array(), cut: true };

export interface Offer {
  version: 1 | 2;
  /** The JSON text as the provider sent it. */
  text: string;
  /** The parsed JSON, including unknown fields. */
  value: Record<string, unknown>;
  accepts: readonly Record<string, unknown>[];
}

/**
 * Reads the payment requirements from the header of a 402 response (x402 version 1 or 2). If the header is absent,
 * reads the body (version 1). Throws if the payment requirements are invalid.
 */
export async function readOffer(response: Response, milliseconds: number): Promise<Offer> {
  if (response.redirected) {
    discard(response.body);
    throw new OfferRedirected(response.url);
  }
  const header = response.headers.get('PAYMENT-REQUIRED') || null;
  let text: string;
  if (header !== null) {
    discard(response.body);
    text = fromBase64(header) ?? refuse('its PAYMENT-REQUIRED is no base64 of UTF-8', header, response.status);
  } else {
    text = await readText(response, OFFER_BYTES, milliseconds).catch((error: unknown) =>
      refuse(error instanceof TooLongError ? error.message : 'its body is unreadable', '', response.status),
    );
  }
  const wrong = (what: string): never => refuse(what, text, response.status);
  if (text.length > OFFER_BYTES) wrong('its terms are too long');
  const value = parse(text) ?? wrong('its terms are no JSON object');
  const version = value['x402Version'];
  if (version !== 1 && (version !== 2 || header === null)) return wrong('its x402Version is none that is sent so');
  const accepts: unknown = value['accepts'];
  if (!Array.isArray(accepts) || accepts.length === 0 || !accepts.every(isRecord))
    return wrong('its `accepts` holds no terms');
  return { version, text, value, accepts };
}

function refuse(what: string, said: string, status: number): never {
  throw new InvalidOffer(what, { status, text: said.slice(0, KEPT_BYTES), cut: said.length > KEPT_BYTES });
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Reads the provider's response for an error: the payment requirements header or, if absent, the start of the body. */
export async function readAnswer(response: Response, milliseconds: number): Promise<ProviderAnswer> {
  const terms = fromBase64(response.headers.get('PAYMENT-REQUIRED') ?? '');
  if (terms) {
    discard(response.body);
    return { status: response.status, text: terms.slice(0, KEPT_BYTES), cut: terms.length > KEPT_BYTES };
  }
  const { bytes, cut } = await readBytes(response, KEPT_BYTES, milliseconds).catch(() => NOTHING);
  return { status: response.status, text: decode(response, bytes, false), cut };
}

/**
 * Returns whether the provider's error text reports that the payment's nonce was used. The text is untrusted, so the
 * result only selects the error that is thrown.
 */
export function saysUsed(answer: ProviderAnswer): boolean {
  const error = parse(answer.text)?.['error'];
  return typeof error === 'string' && /nonce.{0,16}used|used.{0,16}nonce/i.test(error);
}

/**
 * Decodes UTF-8 text from base64. Accepts both alphabets (RFC 4648 §4, §5), with or without padding, and ignores white
 * space. Returns undefined if the text is not valid base64 of UTF-8.
 */
export function fromBase64(text: string): string | undefined {
  const digits = text.replace(/\s+/g, '').replace(/={0,2}$/, '').replace(/-/g, '+').replace(/_/g, '/');
  if (!/^[A-Za-z0-9+/]+$/.test(digits)) return undefined;
  try {
    const bytes = Uint8Array.from(atob(digits), (letter) => letter.charCodeAt(0));
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

export function toBase64(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(''));
}
