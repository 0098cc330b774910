"""The requests and responses of the agents' routes. A test compares the fields with docs/openapi.json.

Amounts are integers in micro-USDC (1,000,000 are 1.00 USD). Times are in ISO 8601 format in UTC. A response may have
additional fields from a later version of Purser.
"""

from typing import Any, Literal, NotRequired, TypedDict

Category = Literal["search", "scrape", "ai", "data", "infrastructure", "security", "finance", "creative"]
TrustStatus = Literal["listed", "discovered", "probe_passed", "platform_verified", "disabled"]
Availability = Literal["paid_x402", "free_verified", "unverified"]


class OriginalRequest(TypedDict):
    """The request to the provider."""

    method: str
    url: str
    body_hash: NotRequired[str | None]


class Metadata(TypedDict):
    """Additional data of the call."""

    target_url: NotRequired[str | None]


class AuthorizeBody(TypedDict):
    """The body of an authorize request."""

    payment_requirement: dict[str, Any]
    max_payment_units: int
    original_request: OriginalRequest
    idempotency_key: str
    replay_key: NotRequired[str | None]
    approval_id: NotRequired[str | None]
    service_id: NotRequired[str | None]
    operation_id: NotRequired[str | None]
    metadata: NotRequired[Metadata | None]


class CheckBody(TypedDict):
    """The body of a check request, which reserves and signs nothing."""

    payment_requirement: dict[str, Any]
    max_payment_units: int
    original_request: OriginalRequest
    replay_key: str
    idempotency_key: NotRequired[str | None]
    approval_id: NotRequired[str | None]
    service_id: NotRequired[str | None]
    operation_id: NotRequired[str | None]
    metadata: NotRequired[Metadata | None]


class UnpaidCheckBody(TypedDict):
    """The body of a request to check a call that needs no payment."""

    original_request: OriginalRequest
    service_id: NotRequired[str | None]
    operation_id: NotRequired[str | None]
    metadata: NotRequired[Metadata | None]


class UnpaidCheckAnswer(TypedDict):
    """The result for a call that the agent may make without a payment. A rejection is raised as an error."""

    check: bool
    result: str
    agent_id: str
    service_id: str
    operation_id: str


class RaiseBody(TypedDict):
    """A request for a temporary limit increase after the rejection `transaction_id`. `until` is at most in 7 days."""

    transaction_id: str
    max_per_call_units: NotRequired[int | None]
    max_per_day_units: NotRequired[int | None]
    until: str
    reason: str


class Raise(TypedDict):
    """A temporary limit increase. `until` is when the first of the caps ends."""

    max_per_call_units: int | None
    max_per_day_units: int | None
    until: str
    max_per_call_until: str | None
    max_per_day_until: str | None


class CompleteBody(TypedDict):
    """The provider's settlement header: the header's value, or an object with header names as keys."""

    payment_response_header: str | dict[str, Any]
    tx_hash: NotRequired[str | None]


class Payment(TypedDict):
    """A signed x402 payment."""

    x402_version: int
    header_name: str
    header_value: str
    payload: dict[str, Any]


class Warning(TypedDict):  # noqa: A001
    """A reason why a provider may reject a payment."""

    code: str
    message: str


class Authorized(TypedDict):
    """An authorized payment. `payment` is null once the payment can no longer be used."""

    authorized: bool
    result: str
    reason: str
    settlement_id: str
    transaction_id: str
    #: The `decision_hash` that the signed statement of the decision must contain.
    decision_hash: str
    amount_units: int
    #: The price in the catalog, if `amount_units` exceeds it.
    listed_amount_units: NotRequired[int]
    receipt_status: str
    network: str
    token: str
    pay_to: str
    wallet_address: str
    authorized_at: str
    expires_at: str
    payment: Payment | None
    warnings: NotRequired[list[Warning]]


class Check(TypedDict):
    """One check of a decision, with the limit and its usage if the check has a limit."""

    name: str
    outcome: str
    passed: NotRequired[bool | None]
    limit: NotRequired[int | None]
    used: NotRequired[int | None]
    remaining: NotRequired[int | None]


class Budget(TypedDict):
    """A budget rule with its current usage."""

    rule_id: str
    limit_units: int
    window_seconds: NotRequired[int]
    period: NotRequired[str]
    time_zone: NotRequired[str]
    services: NotRequired[list[str]]
    categories: NotRequired[list[str]]
    action: NotRequired[str]
    used_units: int
    remaining_units: int


class CountedPayments(TypedDict):
    """A rule that limits the number of payments, with its current usage."""

    rule_id: str
    kind: str
    services: list[str] | None
    categories: NotRequired[list[str]]
    count: int
    window_seconds: NotRequired[int]
    period: NotRequired[str]
    time_zone: NotRequired[str]
    action: NotRequired[str]
    used: int
    remaining: int


class Spend(TypedDict):
    """The agent's spend and the remainder of its limits."""

    spend_today_units: int
    remaining_today_units: int
    budgets: list[Budget]
    counts: NotRequired[list[CountedPayments]]


class Decision(TypedDict):
    """The decision that caused a block or an escalation."""

    result: str
    reason: str
    rule_triggered: str
    latency_ms: int
    retry_at: NotRequired[str | None]
    checks: list[Check]


class CheckAnswer(Spend):
    """The result of a check request, and the remainder of the limits without this call."""

    check: bool
    would_authorize: bool
    result: str
    reason: str
    amount_units: int
    #: The price in the catalog, if `amount_units` exceeds it.
    listed_amount_units: NotRequired[int]
    approval_required: bool
    checks: list[Check]
    #: Absent if `result` is `allow`.
    decision: NotRequired[Decision]


class Problem(TypedDict):
    """A validation error. `path` is a JSON Pointer, or `/<name>` for a query parameter."""

    path: str
    message: str


class Settlement(TypedDict):
    """A receipt. `receipt_status` is `authorized`, `confirmed` or `expired`."""

    id: str
    transaction_id: str
    agent_id: str
    service_id: str
    operation_id: str
    network: str
    token: str
    amount_units: int
    pay_to: str
    receipt_status: str
    tx_hash: str | None
    authorized_at: str
    settled_at: str | None


class Completed(Settlement):
    """A confirmed settlement, the response of a complete request."""

    confirmed_via: str


class SettlementItem(TypedDict):
    """A receipt in a list."""

    id: str
    transaction_id: str
    service_id: str
    operation_id: str
    amount_units: int
    receipt_status: str
    authorized_at: str
    settled_at: str | None


class SettlementList(TypedDict):
    """The agent's receipts, newest first."""

    settlements: list[SettlementItem]
    count: int


class SignedStatement(TypedDict):
    """A signed statement and the proof that the statement is in the deployment's log."""

    statement: str
    proof: str
    index: int


class SettlementStatements(TypedDict):
    """The signed statements about a payment. A statement is None until it is in the log."""

    settlement_id: str
    transaction_id: str
    decision: SignedStatement | None
    missing_reason: Literal["pending", "before_log", "not_stated"] | None
    differing: list[str]
    receipt: SignedStatement | None
    changes: list[SignedStatement]


class AgentDecisionStatement(TypedDict):
    """The signed statement of a decision. `settlement_id` is None if the decision did not allow the payment."""

    transaction_id: str
    settlement_id: str | None
    decision: SignedStatement
    changes: list[SignedStatement]


class DescribedCall(TypedDict):
    """The call that an approval is for, as the agent described the call, with the catalog's price at that time."""

    method: str
    url: str
    body_hash: str | None
    target_url: str | None
    metadata: dict[str, Any]
    catalog_price_units: int | None
    catalog_max_price_units: int | None


class Approval(TypedDict):
    """An approval. `status` is `pending`, `approved`, `rejected`, `expired` or `executed`."""

    approval_id: str
    status: str
    transaction_id: str
    service_id: str
    operation_id: str
    amount_units: int
    pay_to: str
    created_at: str
    expires_at: str
    resolved_at: str | None
    note: str | None
    settlement_id: str | None
    call: DescribedCall
    raised_caps: NotRequired[Raise]


class Agent(TypedDict):
    """The agent that the key belongs to, with the labels from the agent's owner."""

    agent_id: str
    name: str
    created_at: str
    labels: dict[str, Any]


class SpendPolicy(TypedDict):
    """An agent's limits for one service."""

    max_per_call_units: int
    max_per_day_units: int
    require_approval_above_units: int
    enabled_operations: list[str] | None
    allowed_domains: list[str]
    raised_caps: NotRequired[Raise]


class EnabledServiceView(TypedDict):
    """A service that is enabled for the agent. `unavailable_reason` is set if the agent can't pay the service now."""

    service_id: str
    slug: str | None
    name: str | None
    category: str | None
    trust_status: str | None
    enabled: bool
    unavailable_reason: str | None
    version: int
    policy: SpendPolicy


class EnabledServiceList(TypedDict):
    """The services that are enabled for the agent."""

    agent_id: str
    services: list[EnabledServiceView]
    count: int


class ServicePolicy(EnabledServiceView, Spend):
    """The agent's policy for one service, the remainder of its limits, and all rules of the agent.

    Each rule has `rule_id`, `rule_version`, `kind` and the fields of the rule's kind.
    """

    rules: list[dict[str, Any]]


class ServiceItem(TypedDict):
    """A service in the catalog's list."""

    id: str
    slug: str
    name: str
    description: str
    website: str
    logo_url: str | None
    category: Category
    source: str
    trust_status: TrustStatus
    operation_count: int
    paid_operation_count: int
    free_operation_count: int
    min_price_units: int


class ServiceList(TypedDict):
    """Services of the catalog, by slug."""

    services: list[ServiceItem]
    count: int


class OperationPayment(TypedDict):
    """The payment that an operation requires for one call."""

    scheme: str
    network: str
    token: str
    amount_units: int
    pay_to: str


# This type uses the functional syntax, because one field's name is a Python keyword.
NextOperationPayment = TypedDict(
    "NextOperationPayment",
    {"from": str, "price_model": str, "max_price_units": int | None, "payment": OperationPayment},
)


class Operation(TypedDict):
    """An operation of a service. `endpoint` may have path parameters as `{name}`."""

    id: str
    operation_id: str
    availability: Availability
    label: str
    method: str
    endpoint: str
    category: Category
    execution: str
    price_model: str
    estimated_price_units: int
    max_price_units: int | None
    params: dict[str, Any]
    payment: OperationPayment | None
    next: NotRequired[NextOperationPayment]


class ServiceDetail(TypedDict):
    """A service of the catalog with its operations."""

    id: str
    slug: str
    name: str
    description: str
    website: str
    logo_url: str | None
    category: Category
    trust_status: TrustStatus
    operations: list[Operation]


class ListServicesQuery(TypedDict):
    """The filter of `services`."""

    category: NotRequired[Category]
    trust_status: NotRequired[TrustStatus]
    slug: NotRequired[str]
    limit: NotRequired[int]
