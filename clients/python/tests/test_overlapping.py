"""Tests that concurrent identical calls of a run are separate purchases."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from buyers import Buyer
from world import Agent, Exchange, World

from purser_client import Purser, PurserClient

WORKERS, CALLS = 4, 40


def test_four_workers_make_forty_purchases(
    world: World, agent: Agent, payer: Callable[..., Purser], buy: Buyer
) -> None:
    # Some calls end before earlier calls, or start while other calls run.
    delays = itertools.cycle([0.4, 0.0, 0.2, 0.0, 0.1])

    def provider(exchange: Exchange) -> None:
        if exchange.payment is not None:
            time.sleep(next(delays))
        exchange.send(world.real(exchange))

    purser, url = payer(), world.provider(provider)
    with ThreadPoolExecutor(WORKERS) as workers:
        bought = list(workers.map(lambda _: buy(purser, url), range(CALLS)))
    assert [status for status, _, _ in bought] == [200] * CALLS
    assert len({payment.settlement_id for _, _, payment in bought if payment is not None}) == CALLS
    with PurserClient(world.base, agent.key) as api:
        assert api.receipts(100)["count"] == CALLS
    assert agent.transfers() == CALLS
