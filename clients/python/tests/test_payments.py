"""Tests the complete flow with each HTTP library, against the real service and the official SDK's providers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from buyers import Buyer
from world import PRICE, Agent, Exchange, Reply, World, decoded, encoded

from purser_client import Purser, PurserClient, errors

Payer = Callable[..., Purser]


@pytest.mark.parametrize("version", [1, 2])
def test_the_official_providers_are_paid_and_proved(
    world: World, agent: Agent, payer: Payer, buy: Buyer, version: int
) -> None:
    status, body, payment = buy(payer(), f"{world.v1 if version == 1 else world.v2}/weather")
    assert (status, json.loads(body)["city"]) == (200, "Lisbon")
    assert payment is not None
    assert (payment.amount_units, payment.pay_to) == (PRICE, world.pay_to)
    assert payment.receipt.status == "confirmed"
    assert payment.receipt.settlement is not None
    assert payment.receipt.settlement["tx_hash"] is not None
    assert agent.transfers() == 1


def test_what_is_free_is_not_paid(world: World, agent: Agent, payer: Payer, own: Buyer) -> None:
    assert own(payer(), f"{world.v2}/free")[2] is None
    assert agent.transfers() == 0


def test_a_body_is_sent_twice_and_bound_by_its_hash(world: World, payer: Payer, own: Buyer) -> None:
    seen, told = [], []

    def provider(exchange: Exchange) -> None:
        seen.append(exchange.body)
        exchange.method, exchange.body = "GET", b""
        exchange.send(world.real(exchange))

    def purser(exchange: Exchange) -> None:
        told.append(json.loads(exchange.body))
        exchange.send(exchange.forward(world.base))

    url = world.provider(provider)
    status, _, _ = own(payer(url=world.between.put(purser)), url, method="POST", content=b'{"topic":"tides"}')
    assert status == 200
    assert seen == [b'{"topic":"tides"}'] * 2
    digest = "sha256:c05ef271265d2515d7d0407fab5632661a0b805b0d6b047b902b61a08c86732b"
    assert told[0]["original_request"] == {"method": "POST", "url": url, "body_hash": digest}


def test_the_terms_reach_purser_with_every_member(world: World, payer: Payer, buy: Buyer) -> None:
    accepted = []

    def provider(exchange: Exchange) -> None:
        if exchange.payment is not None:
            accepted.append(decoded(exchange.payment)["accepted"])
            return exchange.send(world.real(exchange))
        reply = world.real(exchange)
        terms = decoded(reply.header("PAYMENT-REQUIRED"))
        terms["accepts"][0]["vendor"] = {"of": "the provider's own"}
        exchange.send(Reply(402, [("PAYMENT-REQUIRED", encoded(terms))], b"{}"))

    buy_or_be_told(buy, payer(), world.provider(provider))
    assert accepted == [accepted[0]]
    assert accepted[0]["vendor"] == {"of": "the provider's own"}


def test_the_story(world: World, agent: Agent, payer: Payer, buy: Buyer) -> None:
    url, purser = f"{world.v2}/weather", payer()
    agent.policy("lab-weather", max_per_day_units=2 * PRICE)
    began = datetime.now(UTC)
    for purchases in (1, 2):
        _, _, payment = buy(purser, url)
        assert payment is not None
        assert payment.receipt.status == "confirmed"
        assert agent.transfers() == purchases, "an identical call is a purchase of its own"

    with pytest.raises(errors.DailySpendLimitExceeded) as full:
        buy(purser, url)
    assert full.value.retry_at is not None
    day = timedelta(days=1)
    assert began + day - timedelta(minutes=1) < full.value.retry_at < datetime.now(UTC) + day + timedelta(minutes=1)
    assert [check["name"] for check in full.value.checks if check["outcome"] == "failed"] == ["max_per_day_units"]

    agent.policy("lab-weather", max_per_day_units=10 * PRICE, require_approval_above_units=PRICE - 1)
    with pytest.raises(errors.ApprovalRequired) as asked:
        buy(purser, url)
    with pytest.raises(errors.ApprovalRequired) as again:
        buy(purser, url)
    assert again.value.approval_id == asked.value.approval_id
    with PurserClient(purser.url, purser.key) as api:
        assert api.wait_for_approval(asked.value.approval_id, within=0)["status"] == "pending"
        agent.approve(asked.value.approval_id)
        assert api.wait_for_approval(asked.value.approval_id, within=10)["status"] == "approved"
        status, _, payment = buy(purser, url)
        assert status == 200
        assert payment is not None
        assert api.receipt(payment.settlement_id)["receipt_status"] == "confirmed"
        assert api.receipts()["count"] == 3
    assert agent.transfers() == 3


def test_a_rejection_is_told(world: World, agent: Agent, payer: Payer, own: Buyer) -> None:
    agent.policy("lab-weather", require_approval_above_units=PRICE - 1)
    with pytest.raises(errors.ApprovalRequired) as asked:
        own(payer(), f"{world.v2}/weather")
    agent.reject(asked.value.approval_id)
    with pytest.raises(errors.ApprovalRejected):
        own(payer(wait_for_approval=10), f"{world.v2}/weather")
    assert agent.transfers() == 0


def test_a_ceiling_holds(world: World, agent: Agent, payer: Payer, own: Buyer) -> None:
    purser = payer(max_amount=PRICE - 1)
    with pytest.raises(errors.AmountExceedsMax):
        own(purser, f"{world.v2}/weather")
    with pytest.raises(errors.ConfigurationError):
        own(payer(max_amount=None), f"{world.v2}/weather")
    assert agent.transfers() == 0
    with purser.call(max_amount="0.01"):
        assert own(purser, f"{world.v2}/weather")[0] == 200


def test_a_run_that_is_repeated_pays_nothing_twice(world: World, agent: Agent, payer: Payer, buy: Buyer) -> None:
    url = f"{world.v2}/weather"
    assert buy(payer(), url)[0] == 200
    repeated = payer()
    for _ in range(2):
        with pytest.raises(errors.AlreadyPaid) as paid:
            buy(repeated, url)
        assert paid.value.receipt_status == "confirmed"
    assert agent.transfers() == 1
    # After `acknowledge`, the next call is a new purchase.
    paid.value.acknowledge()
    assert buy(repeated, url)[0] == 200
    assert agent.transfers() == 2


def test_a_key_of_the_callers_own_is_one_purchase(world: World, agent: Agent, payer: Payer, own: Buyer) -> None:
    purser, url = payer(), f"{world.v2}/weather"
    with purser.call(idempotency_key="one-of-its-own"):
        _, _, payment = own(purser, url)
        assert payment is not None
        assert payment.idempotency_key == "one-of-its-own"
        with pytest.raises(errors.AlreadyPaid):
            own(purser, url)
    assert agent.transfers() == 1


def buy_or_be_told(buy: Buyer, purser: Purser, url: str) -> None:
    """Makes a purchase that the provider may reject."""
    with contextlib.suppress(errors.PaymentError):
        buy(purser, url)
