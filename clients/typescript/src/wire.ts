/**
 * The requests and responses of the agents' routes. A test compares the fields with the OpenAPI document. Amounts are
 * integers in micro-USDC (1,000,000 are 1.00 USD). Times are in ISO 8601 format in UTC.
 */

/** The request to the provider. */
export interface OriginalRequest {
  method: string;
  url: string;
  /** The hash of the request body. The decision applies only to this body. */
  body_hash?: string | null;
}

export interface Metadata {
  /** The URL of the page that a scrape or crawl operation fetches. */
  target_url?: string | null;
}

export interface AuthorizeBody {
  /** The provider's decoded payment requirements (x402 version 1 or 2), or one entry of `accepts`. */
  payment_requirement: Record<string, unknown>;
  max_payment_units: number;
  original_request: OriginalRequest;
  idempotency_key: string;
  replay_key?: string | null;
  approval_id?: string | null;
  service_id?: string | null;
  operation_id?: string | null;
  metadata?: Metadata | null;
}

export interface CheckBody {
  payment_requirement: Record<string, unknown>;
  max_payment_units: number;
  original_request: OriginalRequest;
  replay_key: string;
  idempotency_key?: string | null;
  approval_id?: string | null;
  service_id?: string | null;
  operation_id?: string | null;
  metadata?: Metadata | null;
}

/** A call that needs no payment. */
export interface UnpaidCheckBody {
  original_request: OriginalRequest;
  service_id?: string | null;
  operation_id?: string | null;
  metadata?: Metadata | null;
}

/** The result for a call that the agent may make without a payment. A rejection is thrown as an error. */
export interface UnpaidCheckAnswer {
  check: boolean;
  result: string;
  agent_id: string;
  service_id: string;
  operation_id: string;
}

/** A request for a temporary limit increase after a rejected payment. */
export interface RaiseBody {
  /** The `transaction_id` of the rejection. */
  transaction_id: string;
  max_per_call_units?: number | null;
  max_per_day_units?: number | null;
  /** The requested end of the increase, at most seven days from now. */
  until: string;
  reason: string;
}

export interface CompleteBody {
  /** The value of the settlement header, or an object with header names as keys. */
  payment_response_header: string | Record<string, unknown>;
  tx_hash?: string | null;
}

/** A signed x402 payment. */
export interface Payment {
  x402_version: number;
  header_name: string;
  header_value: string;
  payload: Record<string, unknown>;
}

export interface Authorized {
  authorized: boolean;
  result: string;
  reason: string;
  settlement_id: string;
  transaction_id: string;
  /** The `decision_hash` that the signed statement of the decision must contain. */
  decision_hash: string;
  amount_units: number;
  /** The price in the catalog, if `amount_units` exceeds it. */
  listed_amount_units?: number;
  receipt_status: string;
  network: string;
  token: string;
  pay_to: string;
  wallet_address: string;
  authorized_at: string;
  expires_at: string;
  /** Null once the payment can no longer be used. */
  payment: Payment | null;
  /** Reasons why a provider may reject the payment. */
  warnings?: Warning[];
}

export interface Warning {
  code: string;
  message: string;
}

export interface Check {
  name: string;
  /** The outcome: `passed`, `failed`, `lifted` (by an approval) or `unknown`. */
  outcome: string;
  passed?: boolean | null;
  limit?: number | null;
  used?: number | null;
  /** The remainder of the limit, without this call. */
  remaining?: number | null;
}

/** The decision that caused a block or an escalation. */
export interface Decision {
  result: string;
  reason: string;
  rule_triggered: string;
  latency_ms: number;
  retry_at?: string | null;
  checks: Check[];
}

/** The period of a window: a rolling window has `window_seconds`, any other window `period`. */
export interface WindowPeriod {
  window_seconds?: number;
  /** `day`, `week` or `month` of the calendar in `time_zone`, or `lifetime`. */
  period?: string;
  time_zone?: string;
}

export interface Budget extends WindowPeriod {
  rule_id: string;
  limit_units: number;
  /** Absent if the payments to all services count. */
  services?: string[];
  /** Absent if the payments to services of all categories count. */
  categories?: string[];
  /** `ask` if a payment beyond the limit requires an approval. Absent if the payment is blocked. */
  action?: string;
  used_units: number;
  remaining_units: number;
}

/** A rule that limits the number of payments, with its current usage. */
export interface CountedPayments extends WindowPeriod {
  rule_id: string;
  kind: string;
  services: string[] | null;
  /** Absent if the payments to services of all categories count. */
  categories?: string[];
  count: number;
  /** `ask` if a payment beyond the limit requires an approval. Absent if the payment is blocked. */
  action?: string;
  used: number;
  remaining: number;
}

/** The agent's spend and the remainder of its limits. */
export interface Spend {
  spend_today_units: number;
  remaining_today_units: number;
  budgets: Budget[];
  /** Absent if the agent has no rules that limit the number of payments. */
  counts?: CountedPayments[];
}

export interface CheckAnswer extends Spend {
  check: boolean;
  would_authorize: boolean;
  result: string;
  reason: string;
  amount_units: number;
  /** The price in the catalog, if `amount_units` exceeds it. */
  listed_amount_units?: number;
  approval_required: boolean;
  checks: Check[];
  /** Absent if `result` is `allow`. */
  decision?: Decision;
}

export interface Settlement {
  id: string;
  transaction_id: string;
  agent_id: string;
  service_id: string;
  operation_id: string;
  network: string;
  token: string;
  amount_units: number;
  pay_to: string;
  /** `authorized`, `confirmed` or `expired`. */
  receipt_status: string;
  tx_hash: string | null;
  authorized_at: string;
  settled_at: string | null;
}

export interface Completed extends Settlement {
  confirmed_via: string;
}

export interface SettlementItem {
  id: string;
  transaction_id: string;
  service_id: string;
  operation_id: string;
  amount_units: number;
  receipt_status: string;
  authorized_at: string;
  settled_at: string | null;
}

export interface SettlementList {
  settlements: SettlementItem[];
  count: number;
}

/** A signed statement and the proof that the statement is in the deployment's log. */
export interface SignedStatement {
  /** The statement, a JWS in compact serialization. */
  statement: string;
  /** The proof (c2sp.org/tlog-proof), which also contains the statement. */
  proof: string;
  index: number;
}

/** The signed statements about a payment. A statement is null until it is in the log. */
export interface SettlementStatements {
  settlement_id: string;
  transaction_id: string;
  decision: SignedStatement | null;
  missing_reason: 'pending' | 'before_log' | 'not_stated' | null;
  differing: string[];
  receipt: SignedStatement | null;
  changes: SignedStatement[];
}

/** The signed statement of a decision. `settlement_id` is null if the decision did not allow the payment. */
export interface AgentDecisionStatement {
  transaction_id: string;
  settlement_id: string | null;
  decision: SignedStatement;
  changes: SignedStatement[];
}

export interface DescribedCall {
  method: string;
  url: string;
  body_hash: string | null;
  target_url: string | null;
  metadata: Record<string, unknown>;
  catalog_price_units: number | null;
  catalog_max_price_units: number | null;
}

export interface Approval {
  approval_id: string;
  /** `pending`, `approved`, `rejected`, `expired` or `executed`. */
  status: string;
  transaction_id: string;
  service_id: string;
  operation_id: string;
  amount_units: number;
  pay_to: string;
  created_at: string;
  expires_at: string;
  resolved_at: string | null;
  note: string | null;
  settlement_id: string | null;
  call: DescribedCall;
  /** The requested limit increase. Absent if the approval is for a payment. */
  raised_caps?: Raise;
}

/** A temporary limit increase. */
export interface Raise {
  max_per_call_units: number | null;
  max_per_day_units: number | null;
  /** When the first of the caps ends. */
  until: string;
  max_per_call_until: string | null;
  max_per_day_until: string | null;
}

export type Category = 'search' | 'scrape' | 'ai' | 'data' | 'infrastructure' | 'security' | 'finance' | 'creative';
export type TrustStatus = 'listed' | 'discovered' | 'probe_passed' | 'platform_verified' | 'disabled';

export interface ServiceItem {
  id: string;
  slug: string;
  name: string;
  description: string;
  website: string;
  logo_url: string | null;
  category: Category;
  source: string;
  trust_status: TrustStatus;
  operation_count: number;
  paid_operation_count: number;
  free_operation_count: number;
  min_price_units: number;
}

export interface ServiceList {
  services: ServiceItem[];
  count: number;
}

export interface OperationPayment {
  scheme: string;
  network: string;
  token: string;
  amount_units: number;
  pay_to: string;
}

export interface Operation {
  id: string;
  operation_id: string;
  availability: 'paid_x402' | 'free_verified' | 'unverified';
  label: string;
  method: string;
  /** The operation's URL, with path parameters as `{name}`. */
  endpoint: string;
  category: Category;
  execution: string;
  price_model: string;
  estimated_price_units: number;
  max_price_units: number | null;
  params: Record<string, unknown>;
  payment: OperationPayment | null;
  /** The scheduled pricing, which will replace `price_model`, `max_price_units` and `payment`. */
  next?: NextOperationPayment;
}

export interface NextOperationPayment {
  /** The time from which the new pricing applies. */
  from: string;
  price_model: string;
  max_price_units: number | null;
  payment: OperationPayment;
}

export interface ServiceDetail {
  id: string;
  slug: string;
  name: string;
  description: string;
  website: string;
  logo_url: string | null;
  category: Category;
  trust_status: TrustStatus;
  operations: Operation[];
}

export interface Agent {
  agent_id: string;
  name: string;
  created_at: string;
  /** The labels from the agent's owner. */
  labels: Record<string, unknown>;
}

export interface SpendPolicy {
  max_per_call_units: number;
  max_per_day_units: number;
  require_approval_above_units: number;
  enabled_operations: string[] | null;
  allowed_domains: string[];
  /** The temporary limit increase that applies now. */
  raised_caps?: Raise;
}

export interface EnabledServiceView {
  service_id: string;
  slug: string | null;
  name: string | null;
  category: string | null;
  trust_status: string | null;
  enabled: boolean;
  unavailable_reason: string | null;
  version: number;
  policy: SpendPolicy;
}

export interface EnabledServiceList {
  agent_id: string;
  services: EnabledServiceView[];
  count: number;
}

/** A rule of the agent, with the fields of the rule's kind. */
export interface AgentRule {
  rule_id: string;
  rule_version: number;
  kind: string;
  [field: string]: unknown;
}

export interface ServicePolicy extends EnabledServiceView, Spend {
  /** All rules of the agent. A rule with `services` restricts payments to the services in the list. */
  rules: AgentRule[];
}

/** A validation error. `path` is a JSON Pointer, or `/<name>` for a query parameter. */
export interface Problem {
  path: string;
  message: string;
}

/** The body of an error response. `error` determines which other fields are present (docs/errors.md). */
export interface ErrorBody {
  error: string;
  message: string;
  request_id?: string;
  transaction_id?: string;
  /** The `decision_hash` that the signed statement of the block or the escalation must contain. */
  decision_hash?: string;
  settlement_id?: string | null;
  approval_id?: string | null;
  decision?: Decision;
  details?: Problem[];
  retry_at?: string | null;
  retry_after?: number;
  retryable?: boolean;
  reason?: string;
  amount_units?: number;
  max_payment_units?: number;
  max_per_call_units?: number;
  max_per_day_units?: number;
  require_approval_above_units?: number;
  rule_above_units?: number;
  rule_id?: string;
  spend_today?: number;
  balance_usdc?: string;
  required_usdc?: string;
  wallet_address?: string;
  code?: string;
  service_id?: string;
  operation_id?: string | null;
  enabled_operations?: string[] | null;
  allowed_domains?: string[];
  hostname?: string;
  limit_bytes?: number;
  missing?: string;
  claim?: string;
  max_age_seconds?: number;
  status?: string;
  version?: number;
}
