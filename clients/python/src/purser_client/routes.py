"""The agent's routes: the request of each, and the type of its answer."""

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
    """A request to Purser, whose answer is a `T`."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    with_key: bool = True
    #: Additional read timeout, in seconds.
    waits: int = 0


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A successful answer."""

    body: T
    #: Whether this is the stored result of an earlier request.
    is_replayed: bool


def authorize(body: AuthorizeBody) -> Ask[Authorized]:
    """Judges one payment, reserves the spend and signs it."""
    return Ask("POST", "/x402/authorize", body)


def check(body: CheckBody) -> Ask[CheckAnswer]:
    """Judges one payment without any effect."""
    return Ask("POST", "/x402/check", body)


def check_unpaid(body: UnpaidCheckBody) -> Ask[UnpaidCheckAnswer]:
    """Judges one call that is made without a payment."""
    return Ask("POST", "/x402/check/unpaid", body)


def complete(settlement_id: str, body: CompleteBody) -> Ask[Completed]:
    """Completes a settlement with the provider's payment response."""
    return Ask("POST", f"/x402/settlements/{_segment(settlement_id)}/complete", body)


def ask_for_raise(body: RaiseBody) -> Ask[Approval]:
    """Asks the agent's owner for higher caps for a limited time."""
    return Ask("POST", "/x402/raises", body)


def receipt(settlement_id: str) -> Ask[Settlement]:
    """Fetches one receipt."""
    return Ask("GET", f"/x402/settlements/{_segment(settlement_id)}")


def statements(settlement_id: str) -> Ask[SettlementStatements]:
    """Fetches the signed statements about a payment."""
    return Ask("GET", f"/x402/settlements/{_segment(settlement_id)}/statement")


def decision_statement(transaction_id: str) -> Ask[AgentDecisionStatement]:
    """Fetches the signed statement of a decision."""
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
    """Returns the agent's policy for one service, and the remainder of its limits."""
    return Ask("GET", f"/agents/{_segment(agent_id)}/services/{_segment(service_id)}/policy")


def services(query: ListServicesQuery) -> Ask[ServiceList]:
    """Lists the catalog, which is public."""
    return Ask("GET", "/services", query=query, with_key=False)


def service(service_id: str) -> Ask[ServiceDetail]:
    """Returns one service of the catalog, by slug or id."""
    return Ask("GET", f"/services/{_segment(service_id)}", with_key=False)


def _segment(text: str) -> str:
    if not text or text in (".", ".."):
        raise ValueError("an id can't be empty")
    return quote(text, safe="")
