/**
 * A client that pays x402 providers through Purser: a `fetch` that pays, a scheme for the official x402 client, and a
 * client for the agent API.
 */

export { ADVICE, type Slug } from './advice.js';
export { type Api, type AuthorizeAnswer, type AuthorizeRequest, type CheckRequest, RawJson } from './api.js';
export { type PendingApproval } from './approval.js';
export { callKey, type KeyParts } from './call_key.js';
export {
  AlreadyPaid,
  ApprovalRequired,
  ConfigurationError,
  InvalidOffer,
  NoProof,
  OfferRedirected,
  PaymentError,
  PaymentLapsed,
  PaymentNotAccepted,
  PaymentRedirected,
  PaymentUnanswered,
  PriceAboveListed,
  type ProviderAnswer,
  PurserError,
  Refusal,
  Unreachable,
} from './errors.js';
export { type PayingFetch, wrapFetch } from './fetch.js';
export { type Amount } from './money.js';
export { type PaidCall, paymentOf, type Receipt } from './paid_call.js';
export { type CallOptions, Purser, type PurserOptions } from './purser.js';
export type * as wire from './wire.js';
export { type PurserScheme, registerPurser, type X402Client } from './x402.js';
