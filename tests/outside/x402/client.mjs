// A client of the official suite that pays through Purser's TypeScript client. It follows
// e2e/clients/text-client-protocol.txt: the last line of the output is the result. A payment succeeds when Purser has
// found the transfer on the chain.
//
//   node client.mjs                  by Purser's own `fetch`
//   node client.mjs <package.json>   by the `@x402/fetch` that the package of that file has, where Purser is registered

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

import { paymentOf, Purser, registerPurser, wrapFetch } from '../../../clients/typescript/dist/index.js';

const url = process.env.RESOURCE_SERVER_URL + process.env.ENDPOINT_PATH;
const purser = new Purser({ run: crypto.randomUUID(), maxAmount: '0.01' });

async function payer(file) {
  if (!file) return wrapFetch(fetch, purser);
  const { wrapFetchWithPayment, x402Client } = await import(pathToFileURL(createRequire(file).resolve('@x402/fetch')));
  const client = new x402Client();
  return wrapFetchWithPayment(registerPurser(client, purser), client);
}

function proofOf(headers) {
  const proof = headers.get('PAYMENT-RESPONSE') ?? headers.get('X-PAYMENT-RESPONSE');
  return proof && JSON.parse(atob(proof));
}

async function pay() {
  const response = await (await payer(process.argv[2]))(url);
  const receipt = await paymentOf(response)?.confirm(30);
  if (receipt?.status !== 'confirmed') throw new Error(`not confirmed: ${receipt?.status} ${receipt?.error?.message}`);
  const answer = { data: await response.json(), status_code: response.status, payment_response: proofOf(response.headers) };
  console.log('Client test completed successfully');
  return { success: true, ...answer };
}

const result = await pay().catch((error) => ({ success: false, error: `${error.name}: ${error.message}` }));
console.log(JSON.stringify(result));
process.exitCode = result.success ? 0 : 1;
