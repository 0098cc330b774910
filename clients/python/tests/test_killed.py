"""Tests that a process pays once if it is killed at any point of a purchase and started again."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import buyers
import pytest
from world import Agent, Exchange, World

from purser_client import Purser, errors

#: The steps of a purchase, in order. The process is killed before each step, and after each step before the response.
STEPS = ["authorize", "paid", "complete"]
POINTS = [f"{when} {step}" for step in STEPS for when in ("before", "after")]


def purchase(how: str, settings: dict[str, Any], url: str, told: Connection) -> None:
    """Makes a purchase. This is the main function of the process."""
    try:
        status, _, payment = buyers.BUYERS[how](Purser(**settings), url)
        told.send((status, payment.receipt.status if payment else None))
    except errors.PurserError as error:
        told.send((type(error).__name__, getattr(error, "receipt_status", None)))


class Processes:
    """Starts and kills the processes of a run. A fork server makes starting fast."""

    def __init__(self, world: World, agent: Agent, **settings: object) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._world = world
        self._pid: int | None = None
        self.kill_at: str | None = None
        self.url = world.provider(self._provider)
        self._settings = {"key": agent.key, "run": "job-7", "max_amount": "0.05", **settings}
        self._settings["url"] = world.between.put(self._purser)

    def run(self, how: str, *, kill_at: str | None = None) -> tuple[object, object] | None:
        """Runs a process and returns its result, or None if the process was killed."""
        self.kill_at = kill_at
        told, teller = self._context.Pipe(duplex=False)
        arguments = (how, self._settings, self.url, teller)
        process: BaseProcess = self._context.Process(target=purchase, args=arguments)
        process.start()
        self._pid = process.pid
        teller.close()
        process.join(60)
        assert not process.is_alive()
        assert (process.exitcode == -signal.SIGKILL) == (kill_at is not None), f"{how}: {process.exitcode}"
        with contextlib.suppress(EOFError):
            answer: tuple[object, object] = told.recv()
            return answer
        return None

    def _kill(self, point: str) -> None:
        if point == self.kill_at:
            assert self._pid is not None
            os.kill(self._pid, signal.SIGKILL)

    @contextlib.contextmanager
    def _step(self, step: str) -> Iterator[None]:
        self._kill(f"before {step}")
        if self.kill_at == f"before {step}":
            raise OSError("the process is gone")
        yield
        self._kill(f"after {step}")

    def _provider(self, exchange: Exchange) -> None:
        with self._step("paid" if exchange.payment else "terms"):
            reply = self._world.real(exchange)
        exchange.send(reply)

    def _purser(self, exchange: Exchange) -> None:
        step = exchange.path.split("/")[-1] if exchange.method == "POST" else "poll"
        with self._step("approved" if b'"approval_id":"' in exchange.body else step):
            reply = exchange.forward(self._world.base)
        exchange.send(reply)


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    multiprocessing.get_context("forkserver").set_forkserver_preload(["pytest", "test_killed"])


@pytest.mark.parametrize("how", list(buyers.BUYERS))
def test_killed_anywhere_and_repeated_it_pays_once(world: World, how: str) -> None:
    def killed(point: str) -> tuple[tuple[object, object] | None, int]:
        agent = world.agent()
        processes = Processes(world, agent)
        assert processes.run(how, kill_at=point) is None
        return processes.run(how), agent.transfers()

    with ThreadPoolExecutor(len(POINTS)) as pool:
        told = dict(zip(POINTS, pool.map(killed, POINTS), strict=True))
    for point, (answer, paid) in told.items():
        # The only response of the provider is lost, and the payment is not made again.
        lost = POINTS.index(point) >= POINTS.index("after paid")
        assert answer is not None, point
        assert (answer[0], paid) == ("AlreadyPaid" if lost else 200, 1), point
        assert answer[1] == "confirmed" or lost, point


def test_killed_while_a_person_thinks_it_goes_on_once_approved(world: World, agent: Agent) -> None:
    agent.policy(world.service, require_approval_above_units=1)
    processes = Processes(world, agent, wait_for_approval=30)
    assert processes.run("httpx", kill_at="after poll") is None
    assert agent.transfers() == 0
    pending = world.http.get(f"{world.base}/approvals", headers=world.owner).json()["approvals"]
    agent.approve(next(one["approval_id"] for one in pending if one["agent_id"] == agent.agent_id))
    assert processes.run("httpx", kill_at="after approved") is None
    assert processes.run("httpx") == (200, "confirmed")
    assert agent.transfers() == 1
