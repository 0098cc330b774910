// A webhook receiver. It verifies each call with the official Standard Webhooks library, and prints each event as a
// line of JSON. A call that it can't verify is rejected with 401, which is printed too.
//
//     WEBHOOK_SECRET=whsec_… node receiver.mjs      on 127.0.0.1:4030, where the local stack may call it
//
// The receiver remembers the ids of received events, because a call may be repeated.

import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const { WEBHOOK_SECRET: secret, PORT = "4030" } = process.env;
if (!secret) {
  console.error("receiver: WEBHOOK_SECRET is not set: the `secret` of the answer that made the webhook");
  process.exit(2);
}
const webhook = new Webhook(secret);
const taken = new Set();
const say = (line) => console.log(JSON.stringify(line));

async function body(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}

const server = createServer(async (request, response) => {
  const id = request.headers["webhook-id"];
  try {
    const event = webhook.verify(await body(request), request.headers);
    say({ verified: true, again: taken.has(id), type: event.type, id: event.id, subject: event.subject, data: event.data });
    taken.add(id);
    response.writeHead(204).end();
  } catch {
    say({ verified: false });
    response.writeHead(401).end();
  }
});
server.listen(Number(PORT), "127.0.0.1", () => say({ listening: `http://127.0.0.1:${server.address().port}/` }));
