/** One sentence of advice for each error slug (docs/errors.md §2 and §3). A test compares the slugs. */

import type { ErrorBody } from './wire.js';

const REPEAT = 'Repeat the same request after `retryAfter` seconds; nothing is paid twice.';

export const ADVICE = {
  not_found: "Check the id: it does not exist, or is another agent's.",
  request_too_large: "Send less: the provider's terms are longer than Purser reads.",
  too_many_requests: REPEAT,
  invalid_authorization_header: 'Configure the whole key, `gak_pub_…:gak_sec_…`.',
  invalid_agent_key: 'Configure a key that works: this one is unknown, revoked or expired.',
  key_not_allowed: 'Use another key or ask the owner: this one lacks what `body.missing` names.',
  invalid_request: 'Correct what `details` names.',
  service_not_found: "Don't pay: no listed service has this address. See `api.services()` for those that can be paid.",
  service_not_enabled: 'Ask the owner to enable this service.',
  operation_not_enabled_for_agent: 'Call one of `body.enabled_operations`, by its method and endpoint.',
  domain_not_allowed: 'Fetch a target on one of `body.allowed_domains`, or ask the owner.',
  amount_exceeds_max: 'Raise `maxAmount` if the call is worth `body.amount_units` micro-units.',
  amount_exceeds_per_call_limit: 'Buy less at once, or ask the owner to raise the cap per call.',
  policy_blocked: "Don't pay: a rule of the owner forbids it.",
  daily_spend_limit_exceeded: 'Wait until `retryAt`; without one it never fits.',
  approval_required: 'Wait for a person: `await error.approval.wait(seconds)`, then `await error.retry()`.',
  insufficient_usdc_balance: 'Ask the owner to fund `body.wallet_address`.',
  idempotency_key_reused_for_different_request:
    "Don't pay again: this key is of other terms. Read `api.receipt(settlementId)`, or give another `idempotencyKey`.",
  idempotent_replay:
    'This approval paid for another such call, `settlementId`. The next identical call asks a person anew.',
  provider_proof_required: "Send the provider's payment response as it was received.",
  settlement_transaction_hash_required: "Send the transaction's hash: the provider's response names none.",
  onchain_settlement_not_verified:
    "Don't pay again. If `body.retryable`, repeat after `retryAfter` seconds; else `payment.confirm(seconds)` says whether the payment was taken.",
  settlement_transaction_already_used: "Send this payment's own transaction: that one proved another.",
  temporarily_unavailable: REPEAT,
  internal_error: REPEAT,
} as const;

/** The error slugs that calls with an agent key can return, except `<field>_required`. */
export type Slug = keyof typeof ADVICE;

const BLOCKED: Record<string, string> = {
  agent_frozen: 'Stop: the owner froze this agent.',
  category_block: 'Buy in another category.',
  vendor_allowlist: "Buy from a vendor that the owner's rule allows.",
  catalog_payee: "Don't pay: the offer pays somebody else than the catalog lists.",
  'catalog_payee:pay_to_not_yet_accepted':
    'Wait until `retryAt`, then call again: the catalog accepts this payee and price only from then on.',
  catalog_price: "Don't pay: the offer asks more than the catalog lists.",
  catalog_payment: "Don't pay: the catalog lists no payment for this operation.",
  budget_limit: 'Wait until `retryAt`; without one, no such payment fits.',
  schedule: 'Wait until `retryAt`: the owner allows payments only at some times.',
  count_limit: 'Wait until `retryAt`: the number of payments is used up. Without one, no further payment fits.',
  minimum_interval: 'Wait until `retryAt`: the last payment was too short a time ago.',
  duplicate_guard: "Don't pay again: this call was just paid. Use that payment, or wait until `retryAt`.",
  price_above_usual: "Don't pay: the price is further above the usual one than the owner allows.",
  approval_rejected: 'Stop: a person said no.',
  approval_expired: 'Ask again: the next identical call asks a person anew.',
  approval_request_mismatch: 'Repeat the approved request unchanged.',
  too_many_open_approvals: "Wait until a person has decided one of the agent's open approvals.",
};

/** Returns the advice for an error response, based on the slug, the decision's reason and the validation errors. */
export function adviceFor({ error: slug, decision, details = [] }: ErrorBody): string {
  const reason = decision?.reason ?? '';
  const rule = reason.split(':')[0] ?? '';
  const isOfTerms = details.length > 0 && details.every(({ path }) => path.startsWith('/payment_requirement'));
  if (slug === 'invalid_request' && isOfTerms) return "Don't pay: the provider's terms are wrong, as `details` says.";
  const blocked = Object.hasOwn(BLOCKED, reason) ? reason : rule;
  if (slug === 'policy_blocked' && Object.hasOwn(BLOCKED, blocked)) return BLOCKED[blocked] ?? '';
  if (Object.hasOwn(ADVICE, slug)) return ADVICE[slug as Slug];
  return slug.endsWith('_required') ? 'Send the member that the slug names.' : 'Read `body.message`.';
}
