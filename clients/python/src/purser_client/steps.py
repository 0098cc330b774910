"""The request flows to Purser as generators. A generator yields requests and receives the responses.

`run` and `run_async` execute a generator, so that all HTTP libraries share the same flows.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import anyio

from . import routes
from .errors import PurserError, Refusal, Unreachable
from .models import Approval
from .routes import Answer, Ask

T = TypeVar("T")

#: The maximum number of attempts for a request, and the longest pause between two attempts, in seconds. If Purser
#: requires a longer pause, the caller gets the error.
ATTEMPTS, LONGEST_RETRY = 3, 5.0
#: The first and the longest pause between two requests for an approval, in seconds, if Purser responds immediately.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
#: The maximum time for which one request can wait for an approval, in seconds.
LONGEST_WAIT = 20


@dataclass(frozen=True)
class Sleep:
    """A pause."""

    seconds: float


@dataclass(frozen=True)
class Reoffer:
    """A request for the provider's current payment requirements. The result is None without a `reoffer` function."""


class Unpriced(Exception):  # noqa: N818
    """Raised if the provider no longer requires a payment. This package always catches the exception."""

    def __init__(self, response: Any) -> None:
        self.response = response
        super().__init__("the provider no longer asks for a payment")


Steps = Generator[Ask[Any] | Sleep | Reoffer, Any, T]


class Sends(Protocol):
    """A client that sends requests."""

    def send(self, ask: Ask[Any]) -> Answer[Any]:
        """Sends one request, or raises a `PurserError`."""


class SendsAsync(Protocol):
    """A client that sends requests, for asyncio and trio."""

    async def send(self, ask: Ask[Any]) -> Answer[Any]:
        """Sends one request, or raises a `PurserError`."""


def run(steps: Steps[T], api: Sends, reoffer: Callable[[], object] | None = None) -> T:
    """Executes the steps, and returns the result of the generator.

    `reoffer` returns the provider's current payment requirements, or raises `Unpriced`.
    """
    result: object = None
    error: PurserError | None = None
    try:
        while True:
            step = steps.send(result) if error is None else steps.throw(error)
            result = error = None
            try:
                if isinstance(step, Sleep):
                    time.sleep(step.seconds)
                elif isinstance(step, Reoffer):
                    result = None if reoffer is None else reoffer()
                else:
                    result = api.send(step)
            except PurserError as raised:
                error = raised
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        steps.close()


async def run_async(
    steps: Steps[T], api: SendsAsync, reoffer: Callable[[], Awaitable[object]] | None = None
) -> T:
    """Executes the steps, and returns the result of the generator.

    `reoffer` returns the provider's current payment requirements, or raises `Unpriced`.
    """
    result: object = None
    error: PurserError | None = None
    try:
        while True:
            step = steps.send(result) if error is None else steps.throw(error)
            result = error = None
            try:
                if isinstance(step, Sleep):
                    await anyio.sleep(step.seconds)
                elif isinstance(step, Reoffer):
                    result = None if reoffer is None else await reoffer()
                else:
                    result = await api.send(step)
            except PurserError as raised:
                error = raised
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        steps.close()


def is_passing(error: PurserError) -> bool:
    """Returns whether the same request may succeed later."""
    return error.is_passing if isinstance(error, Refusal) else isinstance(error, Unreachable)


def asked(ask: Ask[T]) -> Steps[Answer[T]]:
    """Sends a request, and retries the request after a temporary failure if the required pause is short."""
    pause = 0.2
    for attempt in range(1, ATTEMPTS + 1):
        try:
            answer: Answer[T] = yield ask
            return answer
        except PurserError as error:
            wait = error.retry_after if isinstance(error, Refusal) and error.retry_after is not None else pause
            if not is_passing(error) or attempt == ATTEMPTS or wait > LONGEST_RETRY:
                raise
            yield Sleep(wait)
            pause *= 3
    raise AssertionError("unreachable")


def waited(approval_id: str, within: float) -> Steps[Approval]:
    """Returns an approval once it is decided, or its current state after `within` seconds."""
    end, pause = time.monotonic() + within, FIRST_PAUSE
    while True:
        hint, began = 0.0, time.monotonic()
        try:
            wait = int(max(0.0, min(end - began, LONGEST_WAIT)))
            found: Answer[Approval] = yield routes.approval(approval_id, wait)
            if found.body["status"] != "pending" or time.monotonic() >= end:
                return found.body
        except PurserError as error:
            hint = (error.retry_after if isinstance(error, Refusal) else None) or 0.0
            if not is_passing(error) or time.monotonic() + hint >= end:
                raise
        # The last request is made when `within` ends, but never earlier than Purser's `Retry-After`.
        now = time.monotonic()
        yield Sleep(max(hint, min(pause - (now - began), end - now), 0.0))
        pause = min(pause * 1.5, LONGEST_PAUSE)
