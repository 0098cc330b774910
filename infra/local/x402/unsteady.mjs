// Query parameters with which both local providers behave like difficult real providers:
//
//   ?offers=vary    Each 402 response has a new nonce, id and date (`sign-in-with-x`). In v2, a payment must contain a
//                   nonce of the last five minutes.
//   ?answers=lost   The first response to each payment is lost after the transfer. The second response is sent.

import { randomUUID } from 'node:crypto';

/** How long a nonce is accepted, in milliseconds. An approval can take longer. */
const NONCE_MS = 5 * 60_000;
const NONCE = 'sign-in-with-x';

/**
 * Returns the middleware, which must come before everything that requires payments. `followChain` is from
 * chain-clock.mjs.
 */
export function unsteady(followChain) {
  const nonces = new Map();
  const answers = new Map();
  return async (request, response, next) => {
    const header = request.get('payment-signature') ?? request.get('x-payment');
    const payment = header === undefined ? undefined : fromBase64(header);
    if (request.query.offers === 'vary') {
      await followChain();
      varyOffers(response, nonces);
      const nonce = payment?.extensions?.[NONCE]?.info?.nonce;
      if (payment?.x402Version === 2 && !(nonces.get(nonce) > Date.now())) {
        return response.status(402).json({ error: 'the nonce is not of an offer of the last five minutes' });
      }
    }
    const id = payment?.payload?.authorization?.nonce;
    if (request.query.answers === 'lost' && id !== undefined) {
      const kept = answers.get(id);
      if (kept) return response.set(kept.headers).send(kept.body);
      loseAnswer(response, (answer) => answers.set(id, answer));
    }
    next();
  };
}

/** Makes the payment requirements of each 402 differ in the fields that no payment depends on. */
function varyOffers(response, nonces) {
  const varied = (offer) => {
    const [id, now] = [randomUUID(), Date.now()];
    const times = { issuedAt: new Date(now).toISOString(), expirationTime: new Date(now + NONCE_MS).toISOString() };
    nonces.set(id, now + NONCE_MS);
    return {
      ...offer,
      error: `${offer.error ?? 'Payment required'} (request ${id}, ${times.issuedAt})`,
      ...(offer.x402Version === 2 && {
        extensions: { ...offer.extensions, [NONCE]: { info: { nonce: id, ...times } }, trace: { info: { id } } },
        resource: { ...offer.resource, description: `${offer.resource?.description} at ${times.issuedAt}` },
      }),
      ...(offer.x402Version === 1 && {
        accepts: offer.accepts.map((entry) => ({ ...entry, description: `${entry.description} at ${times.issuedAt}` })),
      }),
    };
  };
  const { setHeader, json } = response;
  response.setHeader = function (name, value) {
    const isOffer = name.toLowerCase() === 'payment-required';
    return setHeader.call(this, name, isOffer ? toBase64(varied(fromBase64(value))) : value);
  };
  response.json = function (body) {
    return json.call(this, body?.x402Version === 1 ? varied(body) : body);
  };
}

/** Closes the connection instead of sending a response that was paid for. */
function loseAnswer(response, keep) {
  const { end } = response;
  response.end = function (body, ...rest) {
    const isSettled = this.getHeader('payment-response') ?? this.getHeader('x-payment-response');
    if (isSettled === undefined || this.statusCode !== 200) return end.call(this, body, ...rest);
    const { 'content-length': _, ...headers } = this.getHeaders();
    keep({ headers, body: Buffer.from(body ?? '') });
    this.destroy();
    return this;
  };
}

function toBase64(value) {
  return Buffer.from(JSON.stringify(value)).toString('base64');
}

function fromBase64(text) {
  try {
    return JSON.parse(Buffer.from(text, 'base64').toString('utf8'));
  } catch {
    return undefined;
  }
}
