"""The typed agent API. `PurserClient` and `AsyncPurserClient` have the same methods, one for each route.

The clients follow no redirects, so that the agent key is sent to Purser only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, Unpack, cast

import httpx

from . import routes
from .config import check_key, check_url
from .errors import ApprovalRequired, Unreachable, refusal
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
from .routes import Answer, Ask
from .steps import run, run_async, waited
from .terms import encoded, parse_object
from .wire import user_agent

T = TypeVar("T")


class _Requests:
    """The shared part of both clients, which builds requests and parses responses."""

    def __init__(self, url: str | None, key: str | None, timeout: float) -> None:
        url = os.environ.get("PURSER_URL", "") if url is None else url
        key = os.environ.get("PURSER_KEY", "") if key is None else key
        self._settings = (url, key, timeout)
        self._timeout = timeout
        check_url(url)
        check_key(key)
        self._url = url.rstrip("/")
        self._authorization = {"Authorization": f"Bearer {key}"}
        self._agent_id: str | None = None

    def _request(self, ask: Ask[T]) -> dict[str, Any]:
        return {
            "method": ask.method,
            "url": self._url + ask.path,
            "params": dict(ask.query) or None,
            "content": None if ask.body is None else encoded(ask.body),
            "headers": {
                "User-Agent": user_agent(),
                **(self._authorization if ask.with_key else {}),
                **({} if ask.body is None else {"Content-Type": "application/json"}),
            },
            "timeout": httpx.Timeout(self._timeout, read=self._timeout + ask.waits),
        }

    def _answer(self, ask: Ask[T], response: httpx.Response) -> Answer[T]:
        try:
            body = parse_object(response.content)
        except ValueError:
            body = {}
        if response.is_success:
            if not body:
                raise Unreachable("Purser's answer is not in its own words")
            return Answer(cast(T, body), response.headers.get("Idempotent-Replayed") == "true")
        error = refusal(response.status_code, body, _seconds(response.headers.get("Retry-After"), body))
        if isinstance(error, ApprovalRequired):
            error.approval = PendingApproval(error.approval_id, *self._settings)
        raise error


def _seconds(header: str | None, body: Mapping[str, Any]) -> float | None:
    for value in (header, body.get("retry_after")):
        if isinstance(value, int) or (isinstance(value, str) and value.isascii() and value.isdigit()):
            return float(value)
    return None


class PurserClient(_Requests):
    """The synchronous client for the agent API. The client is a context manager and raises `purser_client.errors`.

    The defaults of `url` and `key` are the environment variables `PURSER_URL` and `PURSER_KEY`.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout: float = 30.0) -> None:
        super().__init__(url, key, timeout)
        self._http = httpx.Client(timeout=timeout, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the client's connections."""
        self._http.close()

    def send(self, ask: Ask[T]) -> Answer[T]:
        """Sends one request."""
        try:
            response = self._http.request(**self._request(ask))
        except httpx.HTTPError as error:
            raise Unreachable(f"Purser did not answer: {type(error).__name__}") from error
        return self._answer(ask, response)

    def authorize(self, **body: Unpack[AuthorizeBody]) -> Authorized:
        """Evaluates the policy for one payment, reserves the amount and signs the payment."""
        return self.send(routes.authorize(body)).body

    def check(self, **body: Unpack[CheckBody]) -> CheckAnswer:
        """Evaluates the policy for one payment without reserving or signing anything."""
        return self.send(routes.check(body)).body

    def check_unpaid(self, **body: Unpack[UnpaidCheckBody]) -> UnpaidCheckAnswer:
        """Checks one call that needs no payment against the key's permissions, the policy and the freezes."""
        return self.send(routes.check_unpaid(body)).body

    def complete(self, settlement_id: str, **body: Unpack[CompleteBody]) -> Completed:
        """Completes a settlement with the provider's settlement header. The call may be repeated."""
        return self.send(routes.complete(settlement_id, body)).body

    def receipt(self, settlement_id: str) -> Settlement:
        """Returns a settlement, which is the receipt of a payment."""
        return self.send(routes.receipt(settlement_id)).body

    def statements(self, settlement_id: str) -> SettlementStatements:
        """Returns the signed statements about a payment. A statement is None until it is in the log."""
        return self.send(routes.statements(settlement_id)).body

    def decision_statement(self, transaction_id: str) -> AgentDecisionStatement:
        """Returns the signed statement of a decision. Raises `NotFound` until the statement is in the log."""
        return self.send(routes.decision_statement(transaction_id)).body

    def receipts(self, limit: int | None = None) -> SettlementList:
        """Lists the agent's receipts, newest first."""
        return self.send(routes.receipts(self._own_id(), limit)).body

    def approval(self, approval_id: str) -> Approval:
        """Returns an approval with its current status."""
        return self.send(routes.approval(approval_id)).body

    def wait_for_approval(self, approval_id: str, within: float) -> Approval:
        """Waits at most `within` seconds until an approval is decided. Returns the approval's last state."""
        return run(waited(approval_id, within), self)

    def ask_for_raise(self, **body: Unpack[RaiseBody]) -> Approval:
        """Requests a temporary limit increase from the agent's owner. After the owner has approved the increase, repeat
        the payment with a new idempotency key and without `approval_id`."""
        return self.send(routes.ask_for_raise(body)).body

    def me(self) -> Agent:
        """Returns the agent that the key belongs to."""
        return self.send(routes.me()).body

    def enabled_services(self) -> EnabledServiceList:
        """Lists the services that are enabled for the agent."""
        return self.send(routes.enabled_services(self._own_id())).body

    def policy(self, service_id: str) -> ServicePolicy:
        """Returns the agent's policy for a service, and the remainder of its limits."""
        return self.send(routes.policy(self._own_id(), service_id)).body

    def services(self, **query: Unpack[ListServicesQuery]) -> ServiceList:
        """Lists the services of the catalog."""
        return self.send(routes.services(query)).body

    def service(self, service_id: str) -> ServiceDetail:
        """Returns a service of the catalog. `service_id` is a slug or an id."""
        return self.send(routes.service(service_id)).body

    def _own_id(self) -> str:
        if self._agent_id is None:
            self._agent_id = self.me()["agent_id"]
        return self._agent_id


class AsyncPurserClient(_Requests):
    """The client for the agent API for asyncio and trio. The client is an async context manager and raises
    `purser_client.errors`.

    The defaults of `url` and `key` are the environment variables `PURSER_URL` and `PURSER_KEY`.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout: float = 30.0) -> None:
        super().__init__(url, key, timeout)
        self._http = httpx.AsyncClient(timeout=timeout, follow_redirects=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the client's connections."""
        await self._http.aclose()

    async def send(self, ask: Ask[T]) -> Answer[T]:
        """Sends one request."""
        try:
            response = await self._http.request(**self._request(ask))
        except httpx.HTTPError as error:
            raise Unreachable(f"Purser did not answer: {type(error).__name__}") from error
        return self._answer(ask, response)

    async def authorize(self, **body: Unpack[AuthorizeBody]) -> Authorized:
        """Evaluates the policy for one payment, reserves the amount and signs the payment."""
        return (await self.send(routes.authorize(body))).body

    async def check(self, **body: Unpack[CheckBody]) -> CheckAnswer:
        """Evaluates the policy for one payment without reserving or signing anything."""
        return (await self.send(routes.check(body))).body

    async def check_unpaid(self, **body: Unpack[UnpaidCheckBody]) -> UnpaidCheckAnswer:
        """Checks one call that needs no payment against the key's permissions, the policy and the freezes."""
        return (await self.send(routes.check_unpaid(body))).body

    async def complete(self, settlement_id: str, **body: Unpack[CompleteBody]) -> Completed:
        """Completes a settlement with the provider's settlement header. The call may be repeated."""
        return (await self.send(routes.complete(settlement_id, body))).body

    async def receipt(self, settlement_id: str) -> Settlement:
        """Returns a settlement, which is the receipt of a payment."""
        return (await self.send(routes.receipt(settlement_id))).body

    async def statements(self, settlement_id: str) -> SettlementStatements:
        """Returns the signed statements about a payment. A statement is None until it is in the log."""
        return (await self.send(routes.statements(settlement_id))).body

    async def decision_statement(self, transaction_id: str) -> AgentDecisionStatement:
        """Returns the signed statement of a decision. Raises `NotFound` until the statement is in the log."""
        return (await self.send(routes.decision_statement(transaction_id))).body

    async def receipts(self, limit: int | None = None) -> SettlementList:
        """Lists the agent's receipts, newest first."""
        return (await self.send(routes.receipts(await self._own_id(), limit))).body

    async def approval(self, approval_id: str) -> Approval:
        """Returns an approval with its current status."""
        return (await self.send(routes.approval(approval_id))).body

    async def wait_for_approval(self, approval_id: str, within: float) -> Approval:
        """Waits at most `within` seconds until an approval is decided. Returns the approval's last state."""
        return await run_async(waited(approval_id, within), self)

    async def ask_for_raise(self, **body: Unpack[RaiseBody]) -> Approval:
        """Requests a temporary limit increase from the agent's owner. After the owner has approved the increase, repeat
        the payment with a new idempotency key and without `approval_id`."""
        return (await self.send(routes.ask_for_raise(body))).body

    async def me(self) -> Agent:
        """Returns the agent that the key belongs to."""
        return (await self.send(routes.me())).body

    async def enabled_services(self) -> EnabledServiceList:
        """Lists the services that are enabled for the agent."""
        return (await self.send(routes.enabled_services(await self._own_id()))).body

    async def policy(self, service_id: str) -> ServicePolicy:
        """Returns the agent's policy for a service, and the remainder of its limits."""
        return (await self.send(routes.policy(await self._own_id(), service_id))).body

    async def services(self, **query: Unpack[ListServicesQuery]) -> ServiceList:
        """Lists the services of the catalog."""
        return (await self.send(routes.services(query))).body

    async def service(self, service_id: str) -> ServiceDetail:
        """Returns a service of the catalog. `service_id` is a slug or an id."""
        return (await self.send(routes.service(service_id))).body

    async def _own_id(self) -> str:
        if self._agent_id is None:
            self._agent_id = (await self.me())["agent_id"]
        return self._agent_id


@dataclass(frozen=True)
class PendingApproval:
    """An approval that a user has to decide. Repeat the call once the status is `approved`."""

    approval_id: str
    _url: str = field(repr=False)
    _key: str = field(repr=False)
    _timeout: float = field(repr=False)

    def wait(self, within: float) -> Approval:
        """Waits at most `within` seconds until the approval is decided. Returns the approval's last state."""
        with PurserClient(self._url, self._key, timeout=self._timeout) as api:
            return api.wait_for_approval(self.approval_id, within)

    async def wait_async(self, within: float) -> Approval:
        """Does the same as the synchronous method, for asyncio and trio."""
        async with AsyncPurserClient(self._url, self._key, timeout=self._timeout) as api:
            return await api.wait_for_approval(self.approval_id, within)
