// A run of an agent that makes one purchase and is killed at a step: `<call>:<before|after>:<number of the call>`.

import { wrapFetchWithPayment, x402Client } from '@x402/fetch';

import { AlreadyPaid, paymentOf, Purser, registerPurser, wrapFetch } from '../dist/index.js';

const { PURSER_URL, PURSER_KEY, RUN, URL: url, FLOW, DIE } = process.env;

const seen = {};
/**
 * Kills the process before a request is sent, or after the response was received and before the client sees the
 * response.
 */
const deadly = (nameOf) => async (request) => {
  const name = nameOf(request);
  seen[name] = (seen[name] ?? 0) + 1;
  const die = (when) => {
    if (DIE === `${name}:${when}:${seen[name]}`) process.kill(process.pid, 'SIGKILL');
  };
  die('before');
  const response = await fetch(request);
  // Waits for the complete response.
  const body = await response.arrayBuffer();
  die('after');
  return new Response(body, response);
};
const toPurser = deadly(({ url }) => /(authorize|complete|approvals)/.exec(url)?.[1] ?? 'other');
const toProvider = deadly(({ headers }) =>
  headers.has('PAYMENT-SIGNATURE') || headers.has('X-PAYMENT') ? 'pay' : 'ask',
);

const purser = new Purser({
  url: PURSER_URL,
  key: PURSER_KEY,
  run: RUN,
  maxAmount: '15',
  waitForApproval: 0,
  fetch: toPurser,
});
const client = new x402Client().setSpendControls(false);
const pay =
  FLOW === 'sdk'
    ? wrapFetchWithPayment(registerPurser(client, purser, toProvider), client)
    : wrapFetch(toProvider, purser);

try {
  const response = await pay(url);
  console.log(JSON.stringify({ outcome: response.status, receipt: paymentOf(response).receipt.status }));
} catch (error) {
  console.log(JSON.stringify({ outcome: error.slug ?? error.name, approval: error.approvalId }));
  process.exitCode = error instanceof AlreadyPaid ? 0 : 3;
}
