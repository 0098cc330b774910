// A provider that uses x402 v1: payment requirements in the JSON body of the 402, the payment in X-PAYMENT, the receipt
// in X-PAYMENT-RESPONSE (docs/x402.md §1).
//
// The official v2 middleware does not accept v1 payments, and the v1 packages are no longer developed, so this file
// implements the protocol. The same facilitator verifies and settles. The provider sends nothing before the facilitator
// has settled, and every failure is a 402 that repeats the payment requirements, as in the official v1 server.

import { HTTPFacilitatorClient } from '@x402/core/server';
import express from 'express';

import { MAX_TIMEOUT_SECONDS, PRICE, UNITS, WEATHER } from './goods.mjs';
import { listen } from './loopback.mjs';
import { unsteady } from './unsteady.mjs';

export async function startProviderV1({ chain, followChain, facilitatorUrl, facilitatorTimeoutMs, payTo, port }) {
  const facilitator = new HTTPFacilitatorClient({ url: facilitatorUrl, timeoutMs: facilitatorTimeoutMs });

  const app = express();
  app.use(unsteady(followChain));
  app.param('units', (_request, response, next, units) => {
    if (UNITS.test(units)) next();
    else response.status(400).json({ error: 'a price is a positive whole number of micro-USDC' });
  });
  app.get('/health', (_request, response) => response.json({ status: 'ok' }));

  for (const { method, path, units, description, answer } of [WEATHER, PRICE]) {
    app[method.toLowerCase()](path, async (request, response) => {
      const terms = {
        scheme: 'exact',
        network: chain.v1Network,
        maxAmountRequired: units ?? request.params.units,
        resource: `${request.protocol}://${request.host}${request.originalUrl}`,
        description,
        mimeType: 'application/json',
        payTo,
        maxTimeoutSeconds: MAX_TIMEOUT_SECONDS,
        asset: chain.usdc,
        outputSchema: { input: { type: 'http', method, discoverable: true } },
        extra: { name: chain.usdcName, version: chain.usdcVersion },
      };
      const paid = await takePayment(facilitator, request.get('x-payment'), terms);
      if (paid.error) {
        response.status(402).json({ x402Version: 1, error: paid.error, accepts: [terms], payer: paid.payer });
      } else {
        response.set('X-PAYMENT-RESPONSE', encode(paid.receipt)).json(answer(request));
      }
    });
  }
  return listen(app, port);
}

/** Returns `{ receipt }` if the money was transferred, otherwise `{ error, payer? }`. */
async function takePayment(facilitator, header, terms) {
  if (header === undefined) return { error: 'X-PAYMENT header is required' };

  const payment = decode(header);
  if (payment?.x402Version !== 1) return { error: 'invalid or malformed payment header' };

  try {
    const verified = await facilitator.verify(payment, terms);
    if (!verified.isValid) return { error: verified.invalidReason, payer: verified.payer };

    const { success, transaction, network, payer, errorReason } = await facilitator.settle(payment, terms);
    return success ? { receipt: { success, transaction, network, payer } } : { error: errorReason, payer };
  } catch (error) {
    // The facilitator rejected the request itself, or did not respond in time. The payment may still settle, which v1
    // cannot express.
    return { error: error.message };
  }
}

function encode(value) {
  return Buffer.from(JSON.stringify(value)).toString('base64');
}

function decode(header) {
  try {
    return JSON.parse(Buffer.from(header, 'base64').toString('utf8'));
  } catch {
    return undefined;
  }
}
