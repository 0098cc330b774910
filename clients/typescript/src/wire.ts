/**
 * The requests and answers of the agent's routes, with the same members as in the OpenAPI document; a test compares
 * them. Amounts are in whole micro-units, 1,000,000 to the dollar. Times are ISO 8601 in UTC.
 */

/** The request to the provider. */
export interface OriginalRequest {
  method: string;
  url: string;
  /** The hash of the body, which binds the decision to it. */
  body_hash?: string | null;
}

export interface Metadata {
  /** The page that a scrape or crawl operation fetches. */
  target_url?: string | null;
}

export interface AuthorizeBody {
  /** The provider's decoded requirement: an x402 v1 or v2 object, or one entry of its `accepts`. */
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

/** A call that is made without a payment. */
export interface UnpaidCheckBody {
  original_request: OriginalRequest;
  service_id?: string | null;
  operation_id?: string | null;
  metadata?: Metadata | null;
}

/** A call that may be made without a payment. A refusal is an error. */
export interface UnpaidCheckAnswer {
  check: boolean;
  result: string;
  agent_id: string;
  service_id: string;
  operation_id: string;
}

/** A request for higher caps until a time, after a refusal. */
export interface RaiseBody {
  /** The `transaction_id` of the refusal. */
  transaction_id: string;
  max_per_call_units?: number | null;
  max_per_day_units?: number | null;
  /** At most seven days from now. */
  until: string;
  reason: string;
}

export interface CompleteBody {
  /** The header's value, or an object keyed by the headers' names. */
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
  /** The `decision_hash` that the signed statement of the decision must have. */
  decision_hash: string;
  amount_units: number;
  /** The price that the catalog lists, if `amount_units` exceeds it. */
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
  /** The reasons that a provider may refuse the payment. */
  warnings?: Warning[];
}

export interface Warning {
  code: string;
  message: string;
}

export interface Check {
  name: string;
  /** The result: `passed`, `failed`, `lifted` (by an approval) or `unknown`. */
  outcome: string;
  passed?: boolean | null;
  limit?: number | null;
  used?: number | null;
  /** The remainder of the limit, without this call. */
  remaining?: number | null;
}

/** The reason that a call was blocked or escalated. */
export interface Decision {
  result: string;
  reason: string;
  rule_triggered: string;
  latency_ms: number;
  retry_at?: string | null;
  checks: Check[];
}

export interface Budget {
  rule_id: string;
  limit_units: number;
  window_seconds: number;
  used_units: number;
  remaining_units: number;
}

/** A rule that counts payments, and its use. */
export interface CountedPayments {
  rule_id: string;
  kind: string;
  services: string[] | null;
  count: number;
  window_seconds: number;
  used: number;
  remaining: number;
}

/** The spend against the limits. */
export interface Spend {
  spend_today_units: number;
  remaining_today_units: number;
  budgets: Budget[];
  /** Absent without such rules. */
  counts?: CountedPayments[];
}

export interface CheckAnswer extends Spend {
  check: boolean;
  would_authorize: boolean;
  result: string;
  reason: string;
  amount_units: number;
  /** The price that the catalog lists, if `amount_units` exceeds it. */
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

/** A signed statement, with the proof that it is in the log of the deployment. */
export interface SignedStatement {
  /** The statement: a JWS in the compact serialization. */
  statement: string;
  /** The proof (c2sp.org/tlog-proof), which has the statement too. */
  proof: string;
  index: number;
}

/** The signed statements about a payment. Each is null until it is in the log. */
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
  /** The raise that was asked for; absent where the payment itself is to be approved. */
  raised_caps?: Raise;
}

/** Higher caps for a limited time. */
export interface Raise {
  max_per_call_units: number | null;
  max_per_day_units: number | null;
  until: string;
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
  /** The URL, which may have path parameters as `{name}`. */
  endpoint: string;
  category: Category;
  execution: string;
  price_model: string;
  estimated_price_units: number;
  max_price_units: number | null;
  params: Record<string, unknown>;
  payment: OperationPayment | null;
  /** The pricing that will replace `price_model`, `max_price_units` and `payment`; absent if no change is scheduled. */
  next?: NextOperationPayment;
}

export interface NextOperationPayment {
  /** The first instant at which the new pricing applies. */
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
  /** The labels that its owner gave it. */
  labels: Record<string, unknown>;
}

export interface SpendPolicy {
  max_per_call_units: number;
  max_per_day_units: number;
  require_approval_above_units: number;
  enabled_operations: string[] | null;
  allowed_domains: string[];
  /** The higher caps that apply now. */
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

/** A rule of the agent, with the fields of its kind. */
export interface AgentRule {
  rule_id: string;
  rule_version: number;
  kind: string;
  [field: string]: unknown;
}

export interface ServicePolicy extends EnabledServiceView, Spend {
  /** All rules of the agent: those with `services` limit payments to these only. */
  rules: AgentRule[];
}

/** One entry of `details[]`. `path` is a JSON Pointer, or `/<name>` for a query parameter. */
export interface Problem {
  path: string;
  message: string;
}

/** The body of every error. Branch on `error`; the other members depend on it (docs/errors.md). */
export interface ErrorBody {
  error: string;
  message: string;
  request_id?: string;
  transaction_id?: string;
  /** The `decision_hash` that the signed statement of a block or an escalation must have. */
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
