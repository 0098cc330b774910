"""What the agent's routes take and answer, member by member as docs/openapi.json has it; a test compares the two.

Amounts are whole micro-units, 1,000,000 to the dollar; times are ISO 8601 in UTC. An answer may have more members than
are named here: what the service adds later is no error.
"""

from typing import Any, Literal, NotRequired, TypedDict

Category = Literal["search", "scrape", "ai", "data", "infrastructure", "security", "finance", "creative"]
TrustStatus = Literal["listed", "discovered", "probe_passed", "platform_verified", "disabled"]
Availability = Literal["paid_x402", "free_verified", "unverified"]


class OriginalRequest(TypedDict):
    """What the provider was or will be asked."""

    method: str
    url: str
    body_hash: NotRequired[str | None]


class Metadata(TypedDict):
    """What else is known of the call."""

    target_url: NotRequired[str | None]


class AuthorizeBody(TypedDict):
    """One payment to judge, reserve and sign."""

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
    """One payment to judge without effect."""

    payment_requirement: dict[str, Any]
    max_payment_units: int
    original_request: OriginalRequest
    replay_key: str
    idempotency_key: NotRequired[str | None]
    approval_id: NotRequired[str | None]
    service_id: NotRequired[str | None]
    operation_id: NotRequired[str | None]
    metadata: NotRequired[Metadata | None]


class CompleteBody(TypedDict):
    """What the provider answered: the raw header, or headers by name."""

    payment_response_header: str | dict[str, Any]
    tx_hash: NotRequired[str | None]


class Payment(TypedDict):
    """A signed x402 payment."""

    x402_version: int
    header_name: str
    header_value: str
    payload: dict[str, Any]


class Authorized(TypedDict):
    """An authorized payment; `payment` is null once it can't be used any more."""

    authorized: bool
    result: str
    reason: str
    settlement_id: str
    transaction_id: str
    amount_units: int
    #: The price that the catalog lists, where `amount_units` is above it.
    listed_amount_units: NotRequired[int]
    receipt_status: str
    network: str
    token: str
    pay_to: str
    wallet_address: str
    authorized_at: str
    expires_at: str
    payment: Payment | None


class Check(TypedDict):
    """One check, with its numbers where it has any."""

    name: str
    outcome: str
    passed: NotRequired[bool | None]
    limit: NotRequired[int | None]
    used: NotRequired[int | None]
    remaining: NotRequired[int | None]


class Budget(TypedDict):
    """What of one budget rule is used and left."""

    rule_id: str
    limit_units: int
    window_seconds: int
    used_units: int
    remaining_units: int


class Spend(TypedDict):
    """What of the agent's limits is used and left."""

    spend_today_units: int
    remaining_today_units: int
    budgets: list[Budget]


class Decision(TypedDict):
    """The decision behind a block or an escalation."""

    result: str
    reason: str
    rule_triggered: str
    latency_ms: int
    retry_at: NotRequired[str | None]
    checks: list[Check]


class CheckAnswer(Spend):
    """A preflight's outcome, and what of the limits is left without this call."""

    check: bool
    would_authorize: bool
    result: str
    reason: str
    amount_units: int
    #: The price that the catalog lists, where `amount_units` is above it.
    listed_amount_units: NotRequired[int]
    approval_required: bool
    checks: list[Check]
    #: Absent where `result` is `allow`.
    decision: NotRequired[Decision]


class Problem(TypedDict):
    """One problem of an invalid request; `path` is a JSON Pointer, or `/<name>` of a query parameter."""

    path: str
    message: str


class Settlement(TypedDict):
    """A receipt; `receipt_status` is `authorized`, `confirmed` or `expired`."""

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
    """A confirmed settlement, as complete answers it."""

    confirmed_via: str


class SettlementItem(TypedDict):
    """A receipt, as receipts are listed."""

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


class DescribedCall(TypedDict):
    """The provider call that a payment is for, in the agent's own words, beside what the catalog said of its price."""

    method: str
    url: str
    body_hash: str | None
    target_url: str | None
    metadata: dict[str, Any]
    catalog_price_units: int | None
    catalog_max_price_units: int | None


class Approval(TypedDict):
    """Where an approval stands; `status` is `pending`, `approved`, `rejected`, `expired` or `executed`."""

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


class Agent(TypedDict):
    """Whose the key is."""

    agent_id: str
    name: str
    created_at: str


class SpendPolicy(TypedDict):
    """An agent's limits for one service."""

    max_per_call_units: int
    max_per_day_units: int
    require_approval_above_units: int
    enabled_operations: list[str] | None
    allowed_domains: list[str]


class EnabledServiceView(TypedDict):
    """A service enabled for the agent; `unavailable_reason` where it can't be paid now."""

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
    """The services enabled for the agent."""

    agent_id: str
    services: list[EnabledServiceView]
    count: int


class ServicePolicy(EnabledServiceView, Spend):
    """The agent's policy for one service, and what is left of it."""


class ServiceItem(TypedDict):
    """A service of the catalog, as services are listed."""

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
    """How an operation is paid."""

    scheme: str
    network: str
    token: str
    amount_units: int
    pay_to: str


# Functional, as one member's name is a keyword.
NextOperationPayment = TypedDict(
    "NextOperationPayment",
    {"from": str, "price_model": str, "max_price_units": int | None, "payment": OperationPayment},
)


class Operation(TypedDict):
    """What a service sells; `endpoint` may have path parameters, `{name}`."""

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
    """What `services` narrows the catalog to."""

    category: NotRequired[Category]
    trust_status: NotRequired[TrustStatus]
    slug: NotRequired[str]
    limit: NotRequired[int]
