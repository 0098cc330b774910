// The official x402 facilitator with its three HTTP calls: POST /verify, POST /settle, GET /supported.
//
// The facilitator accepts v2 payments on the stack's chain, and v1 payments on the networks that the SDK knows by name.
// It reads the chain's clock before each verify and settle (chain-clock.mjs), and sends one transaction at a time.

import { x402Facilitator } from '@x402/core/facilitator';
import { toFacilitatorEvmSigner } from '@x402/evm';
import { registerExactEvmScheme } from '@x402/evm/exact/facilitator';
import express from 'express';

import { listen } from './loopback.mjs';

/** Starts the facilitator. `client` is a viem wallet client with public actions, and its account pays the gas. */
export async function startFacilitator({ chain, client, followChain, confirmationTimeoutMs, port }) {
  const oneAtATime = inTurn();
  const signer = toFacilitatorEvmSigner(
    {
      address: client.account.address,
      getCode: (args) => client.getCode(args),
      readContract: (args) => client.readContract(args),
      verifyTypedData: (args) => client.verifyTypedData(args),
      waitForTransactionReceipt: (args) => client.waitForTransactionReceipt(args),
      // The account's nonce is read from the node for each transaction, so two concurrent transactions would get the
      // same nonce.
      sendTransaction: (args) => oneAtATime(() => client.sendTransaction(args)),
      writeContract: (args) => oneAtATime(() => client.writeContract(args)),
    },
    { confirmationTimeoutMs },
  );
  const facilitator = registerExactEvmScheme(new x402Facilitator(), { signer, networks: chain.network })
    .onBeforeVerify(followChain)
    .onBeforeSettle(followChain);

  const app = express();
  app.use(express.json());
  app.get('/supported', (_request, response) => response.json(facilitator.getSupported()));
  app.post('/verify', async ({ body }, response) => {
    const result = await facilitator.verify(body.paymentPayload, body.paymentRequirements);
    log('verify', body, result.isValid, result.invalidReason);
    response.json(result);
  });
  app.post('/settle', async ({ body }, response) => {
    const result = await facilitator.settle(body.paymentPayload, body.paymentRequirements);
    log('settle', body, result.success, result.errorReason, result.transaction);
    response.json(result);
  });
  // An error of the SDK concerns the payload. The caller is the provider, which passes the error to its client.
  app.use((error, _request, response, _next) => {
    console.error(`facilitator: ${error.message}`);
    response.status(500).json({ error: error.message });
  });
  return listen(app, port);
}

/** Returns a function that runs its argument after all earlier arguments have ended, with or without an error. */
function inTurn() {
  let last = Promise.resolve();
  return (run) => {
    const turn = last.then(run);
    last = turn.catch(() => {});
    return turn;
  };
}

function log(step, { paymentRequirements }, ok, reason, transaction) {
  const { network, payTo, amount, maxAmountRequired } = paymentRequirements;
  const fields = { network, pay_to: payTo, units: amount ?? maxAmountRequired, ok, reason, transaction };
  const said = Object.entries(fields).filter(([, value]) => value !== undefined && value !== '');
  console.error(`facilitator: ${step} ${said.map(([name, value]) => `${name}=${value}`).join(' ')}`);
}
