"""Conversations with Purser, written once as generators: each yields what it asks, and is sent the answer.

`run` and `run_async` hold them, so that the flow is the same for every HTTP library.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import anyio

from . import routes
from .errors import PurserError, Refusal, Unreachable
from .models import Approval
from .routes import Answer, Ask

T = TypeVar("T")

#: How often a request is sent that may be sent again, and the longest wait in between that is not the caller's matter.
ATTEMPTS, LONGEST_RETRY = 3, 5.0
#: From one look at an approval to the next, where Purser doesn't wait: from a second up to a quarter of a minute.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
#: How long Purser waits at most in one request for an approval.
LONGEST_WAIT = 20


@dataclass(frozen=True)
class Sleep:
    """A pause of so many seconds."""

    seconds: float



Steps = Generator[Ask[Any] | Sleep, Any, T]


class Sends(Protocol):
    """What holds a conversation."""

    def send(self, ask: Ask[Any]) -> Answer[Any]:
        """Sends one request, or raises a `PurserError`."""


class SendsAsync(Protocol):
    """The same, for asyncio and trio."""

    async def send(self, ask: Ask[Any]) -> Answer[Any]:
        """Sends one request, or raises a `PurserError`."""


def run(steps: Steps[T], api: Sends) -> T:
    """Holds a conversation to its end."""
    result: object = None
    error: PurserError | None = None
    try:
        while True:
            step = steps.send(result) if error is None else steps.throw(error)
            result = error = None
            try:
                if isinstance(step, Sleep):
                    time.sleep(step.seconds)
                else:
                    result = api.send(step)
            except PurserError as raised:
                error = raised
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        steps.close()


async def run_async(steps: Steps[T], api: SendsAsync) -> T:
    """Holds a conversation to its end."""
    result: object = None
    error: PurserError | None = None
    try:
        while True:
            step = steps.send(result) if error is None else steps.throw(error)
            result = error = None
            try:
                if isinstance(step, Sleep):
                    await anyio.sleep(step.seconds)
                else:
                    result = await api.send(step)
            except PurserError as raised:
                error = raised
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        steps.close()


def is_passing(error: PurserError) -> bool:
    """Whether the same request may succeed later."""
    return error.is_passing if isinstance(error, Refusal) else isinstance(error, Unreachable)


def asked(ask: Ask[T]) -> Steps[Answer[T]]:
    """One request, sent again where that can't do anything twice and is soon enough."""
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
    """Where an approval stands once it is decided, or after so many seconds."""
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
        # Asked once more at the end, but never sooner than Purser said.
        now = time.monotonic()
        yield Sleep(max(hint, min(pause - (now - began), end - now), 0.0))
        pause = min(pause * 1.5, LONGEST_PAUSE)
