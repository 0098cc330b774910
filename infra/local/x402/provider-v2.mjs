// A provider that accepts x402 v2 payments with the official Express middleware, set up as in production.
//
// Everything in goods.mjs is for sale; /free and /health cost nothing. The middleware verifies the payment, lets the
// route respond, and settles only if the response is below 400. This file never handles a payment.

import { decodePaymentSignatureHeader } from '@x402/core/http';
import { HTTPFacilitatorClient } from '@x402/core/server';
import { ExactEvmScheme } from '@x402/evm/exact/server';
import { paymentMiddlewareFromHTTPServer, x402HTTPResourceServer, x402ResourceServer } from '@x402/express';
import {
  declarePaymentIdentifierExtension,
  paymentIdentifierResourceServerExtension,
  PAYMENT_IDENTIFIER,
  validatePaymentIdentifierRequirement,
} from '@x402/extensions/payment-identifier';
import express from 'express';

import { GOODS, MAX_TIMEOUT_SECONDS, UNITS } from './goods.mjs';
import { listen } from './loopback.mjs';
import { unsteady } from './unsteady.mjs';

export async function startProviderV2({ chain, followChain, facilitatorUrl, facilitatorTimeoutMs, payTo, port }) {
  const facilitator = new HTTPFacilitatorClient({ url: facilitatorUrl, timeoutMs: facilitatorTimeoutMs });
  const resources = new x402ResourceServer(facilitator).register(chain.network, new ExactEvmScheme());
  resources.registerExtension(paymentIdentifierResourceServerExtension);
  const paywall = new x402HTTPResourceServer(resources, paidRoutes(chain, payTo));
  // The middleware is initialized now instead of at the first request, so that a stack that reports to be ready is
  // ready.
  await paywall.initialize();

  const app = express();
  app.use(unsteady(followChain));
  // Both come before the paywall, because a request without a valid response must not be paid for.
  app.use(express.json());
  app.use('/price/:units', (request, response, next) => {
    if (UNITS.test(request.params.units)) next();
    else response.status(400).json({ error: 'a price is a positive whole number of micro-USDC' });
  });
  app.use(paymentMiddlewareFromHTTPServer(paywall, undefined, undefined, false));

  app.get('/health', (_request, response) => response.json({ status: 'ok' }));
  app.get('/free', (_request, response) => response.json({ message: 'this one is on the house' }));
  for (const { method, path, answer, takesIdentifier } of GOODS) {
    app[method.toLowerCase()](path, (request, response) => {
      // The middleware leaves this check to the application. A response with an error is not settled.
      const { valid, errors } = takesIdentifier ? identified(request) : { valid: true };
      if (valid) response.json(answer(request));
      else response.status(400).json({ error: errors[0] });
    });
  }
  return listen(app, port);
}

function identified(request) {
  return validatePaymentIdentifierRequirement(decodePaymentSignatureHeader(request.get('payment-signature')), true);
}

/** Returns the middleware's routes, with `:name` segments as in Express and one price function per route. */
function paidRoutes(chain, payTo) {
  const usdc = (amount) => ({
    amount,
    asset: chain.usdc,
    extra: { name: chain.usdcName, version: chain.usdcVersion },
  });
  return Object.fromEntries(
    GOODS.map(({ method, path, units, description, takesIdentifier }) => [
      `${method} ${path}`,
      {
        accepts: {
          scheme: 'exact',
          network: chain.network,
          payTo,
          price: units ? usdc(units) : ({ decodedPath }) => usdc(decodedPath.split('/')[2]),
          maxTimeoutSeconds: MAX_TIMEOUT_SECONDS,
        },
        description,
        mimeType: 'application/json',
        serviceName: 'Purser Local Merchant',
        ...(takesIdentifier && { extensions: { [PAYMENT_IDENTIFIER]: declarePaymentIdentifierExtension(true) } }),
      },
    ]),
  );
}
