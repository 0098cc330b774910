"""Tests with the stack's unsteady providers: payment requirements that vary, lost responses, and an approval that takes
ten minutes.

The last test advances the stack's clock, so this file runs after the tests that compare that clock with the machine's
clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from buyers import Buyer
from world import PRICE, Agent, World

from purser_client import Purser, PurserClient, errors

Payer = Callable[..., Purser]


@pytest.mark.parametrize("version", [1, 2])
def test_a_lost_answer_is_sent_again_for_the_same_payment(
    world: World, agent: Agent, payer: Payer, buy: Buyer, version: int
) -> None:
    base = world.v2 if version == 2 else world.v1
    purser, url = payer(), f"{base}/weather?answers=lost&offers=vary"
    with pytest.raises(errors.PaymentUnanswered) as lost:
        buy(purser, url)
    assert agent.transfers() == 1
    status, _, payment = buy(purser, url)
    assert payment is not None
    assert (status, payment.is_replayed, payment.receipt.status) == (200, True, "confirmed")
    assert payment.settlement_id == lost.value.settlement_id
    assert agent.transfers() == 1, "the same nonce"


def test_an_approved_call_is_bought_at_a_newer_offer(world: World, agent: Agent, payer: Payer, buy: Buyer) -> None:
    agent.policy("lab-weather", require_approval_above_units=PRICE - 1)
    purser, url = payer(), f"{world.v2}/weather?offers=vary"
    with pytest.raises(errors.ApprovalRequired) as asked:
        buy(purser, url)
    with pytest.raises(errors.ApprovalRequired) as again:
        buy(purser, url)
    assert again.value.approval_id == asked.value.approval_id
    agent.approve(asked.value.approval_id)
    assert buy(purser, url)[0] == 200
    assert agent.transfers() == 1


def test_a_person_may_take_ten_minutes(world: World, agent: Agent, payer: Payer, buy: Buyer) -> None:
    agent.policy("lab-weather", require_approval_above_units=PRICE - 1)
    # After this time, the provider no longer accepts the first payment requirements.
    purser, url = payer(wait_for_approval=120), f"{world.v2}/weather?offers=vary"
    with ThreadPoolExecutor(1) as worker:
        call = worker.submit(buy, purser, url)
        approval_id = agent.open_approval()
        world.advance(600)
        # The client measures the wait with the machine's clock, and still sends payment requirements that are one
        # second old.
        time.sleep(1.5)
        agent.approve(approval_id)
        status, _, payment = call.result(timeout=60)
    assert payment is not None
    assert (status, payment.receipt.status) == (200, "confirmed")
    with PurserClient(world.base, agent.key) as api:
        assert api.approval(approval_id)["settlement_id"] == payment.settlement_id
    assert agent.transfers() == 1
