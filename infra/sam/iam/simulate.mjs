// Checks with an IAM simulator whether requests are allowed. Reads `{policies, requests}` from stdin, and writes a list
// of decisions.

import { text } from "node:stream/consumers";
import { runSimulation } from "@cloud-copilot/iam-simulate";

const { policies, requests } = JSON.parse(await text(process.stdin));
const decisions = [];
for (const { principal, action, resource, account, context, resourcePolicy } of requests) {
  const contextVariables = { "aws:PrincipalArn": principal, ...context };
  const request = { principal, action, resource: { resource, accountId: account }, contextVariables };
  const answer = await runSimulation(
    { request, identityPolicies: policies, serviceControlPolicies: [], resourceControlPolicies: [], resourcePolicy },
    {},
  );
  decisions.push(answer.resultType === "error" ? JSON.stringify(answer.errors) : answer.overallResult);
}
console.log(JSON.stringify(decisions));
