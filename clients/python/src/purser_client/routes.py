"""The routes for agents. Each function builds the request for one route, and its type has the response type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from .models import (
    Agent,
    AgentDecisionStatement,
    Approval,
    AuthorizeBody,
    Authorized,
    CheckAnswer,
    CheckBody,
    CompleteBody,
    Completed,
    EnabledServiceList,
    ListServicesQuery,
    RaiseBody,
    ServiceDetail,
    ServiceList,
    ServicePolicy,
    Settlement,
    SettlementList,
    SettlementStatements,
    UnpaidCheckAnswer,
    UnpaidCheckBody,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Ask(Generic[T]):
    """A request to Purser with a response of type `T`."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    with_key: bool = True
    #: Additional read timeout, in seconds.
    waits: int = 0


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A successful response."""

    body: T
    #: Whether this is the stored response of an earlier request.
    is_replayed: bool


def authorize(body: AuthorizeBody) -> Ask[Authorized]:
    """Evaluates the policy for one payment, reserves the amount and signs the payment."""
    return Ask("POST", "/x402/authorize", body)


def check(body: CheckBody) -> Ask[CheckAnswer]:
    """Evaluates the policy for one payment without reserving or signing anything."""
    return Ask("POST", "/x402/check", body)


def check_unpaid(body: UnpaidCheckBody) -> Ask[UnpaidCheckAnswer]:
    """Checks one call that needs no payment."""
    return Ask("POST", "/x402/check/unpaid", body)


def complete(settlement_id: str, body: CompleteBody) -> Ask[Completed]:
    """Completes a settlement with the provider's settlement header."""
    return Ask("POST", f"/x402/settlements/{_segment(settlement_id)}/complete", body)


def ask_for_raise(body: RaiseBody) -> Ask[Approval]:
    """Requests a temporary limit increase from the agent's owner."""
    return Ask("POST", "/x402/raises", body)


def receipt(settlement_id: str) -> Ask[Settlement]:
    """Returns a settlement, which is the receipt of a payment."""
    return Ask("GET", f"/x402/settlements/{_segment(settlement_id)}")


def statements(settlement_id: str) -> Ask[SettlementStatements]:
    """Returns the signed statements about a payment."""
    return Ask("GET", f"/x402/settlements/{_segment(settlement_id)}/statement")


def decision_statement(transaction_id: str) -> Ask[AgentDecisionStatement]:
    """Returns the signed statement of a decision."""
    return Ask("GET", f"/x402/decisions/{_segment(transaction_id)}/statement")


def receipts(agent_id: str, limit: int | None) -> Ask[SettlementList]:
    """Lists the agent's receipts, newest first."""
    return Ask("GET", f"/agents/{_segment(agent_id)}/settlements", query={} if limit is None else {"limit": limit})


def approval(approval_id: str, wait_seconds: int = 0) -> Ask[Approval]:
    """Returns an approval once it is no longer `pending`, or after `wait_seconds`, at most 20."""
    query = {"wait_seconds": wait_seconds} if wait_seconds else {}
    return Ask("GET", f"/approvals/{_segment(approval_id)}", query=query, waits=wait_seconds)


def me() -> Ask[Agent]:
    """Returns the agent that the key belongs to."""
    return Ask("GET", "/mcp/agents/me")


def enabled_services(agent_id: str) -> Ask[EnabledServiceList]:
    """Lists the services that are enabled for the agent."""
    return Ask("GET", f"/mcp/agents/{_segment(agent_id)}/services")


def policy(agent_id: str, service_id: str) -> Ask[ServicePolicy]:
    """Returns the agent's policy for a service, and the remainder of its limits."""
    return Ask("GET", f"/agents/{_segment(agent_id)}/services/{_segment(service_id)}/policy")


def services(query: ListServicesQuery) -> Ask[ServiceList]:
    """Lists the services of the public catalog."""
    return Ask("GET", "/services", query=query, with_key=False)


def service(service_id: str) -> Ask[ServiceDetail]:
    """Returns a service of the catalog. `service_id` is a slug or an id."""
    return Ask("GET", f"/services/{_segment(service_id)}", with_key=False)


def _segment(text: str) -> str:
    if not text or text in (".", ".."):
        raise ValueError("an id can't be empty")
    return quote(text, safe="")
