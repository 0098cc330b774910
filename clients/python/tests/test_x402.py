"""Tests the features of the official package in its own flow: selecting an entry, spend controls and hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import requests
from world import PRICE, Agent, Exchange, Reply, World, decoded, encoded
from x402 import x402Client, x402ClientSync
from x402.http.clients.httpx import PaymentError as HttpxPaymentError
from x402.http.clients.requests import PaymentError as RequestsPaymentError

from purser_client import Purser, errors, payment_of
from purser_client.x402 import wrap_httpx, wrap_requests

Payer = Callable[..., Purser]


def test_its_spend_controls_hold_until_they_are_set(world: World, agent: Agent, payer: Payer) -> None:
    agent.policy("lab-reports", require_approval_above_units=PRICE)
    client, purser, url = x402ClientSync(), payer(max_amount="20"), f"{world.v2}/premium"
    session = wrap_requests(requests.Session(), client, purser)
    with pytest.raises(RequestsPaymentError, match="spend_controls"):
        session.get(url)
    client.set_spend_controls({"max_amount_per_payment": "$20"})
    with pytest.raises(errors.ApprovalRequired) as asked:
        session.get(url)
    agent.approve(asked.value.approval_id)
    assert asked.value.approval.wait(10)["status"] == "approved"
    assert session.get(url).status_code == 200
    assert agent.transfers() == 1


def test_its_hooks_are_called_and_see_the_payment(world: World, payer: Payer) -> None:
    seen: list[Any] = []
    client = x402Client()
    client.on_after_payment_creation(lambda context: seen.append(context.payment_payload))
    client.on_payment_response(lambda context: seen.append(context.settle_response))

    async def buy() -> httpx.Response:
        async with wrap_httpx(client, payer()) as http:
            return await http.get(f"{world.v2}/weather")

    response = asyncio.run(buy())
    payment = payment_of(response)
    assert payment is not None
    assert payment.receipt.settlement is not None
    assert seen[0].payload["authorization"]["value"] == str(PRICE)
    assert seen[1].transaction == payment.receipt.settlement["tx_hash"]


def test_a_hook_that_throws_gives_the_call_back_to_be_repeated(world: World, agent: Agent, payer: Payer) -> None:
    thrown: list[str] = []

    def throws_once(_: object) -> None:
        if not thrown:
            thrown.append("once")
            raise RuntimeError("of the caller's own")

    client = x402Client()
    client.on_after_payment_creation(throws_once)

    async def buy() -> None:
        async with wrap_httpx(client, payer()) as http:
            with pytest.raises(HttpxPaymentError, match="of the caller's own"):
                await http.get(f"{world.v2}/weather")
            payment = payment_of(await http.get(f"{world.v2}/weather"))
            assert payment is not None
            assert payment.is_replayed

    asyncio.run(buy())
    assert agent.transfers() == 1


def test_calls_at_once_are_kept_apart(world: World, agent: Agent, payer: Payer) -> None:
    async def buy() -> list[httpx.Response]:
        async with wrap_httpx(x402Client(), payer(), timeout=30) as http:
            return await asyncio.gather(*(http.get(f"{world.v2}/weather") for _ in range(3)))

    payments = [payment_of(response) for response in asyncio.run(buy())]
    assert len({payment.settlement_id for payment in payments if payment is not None}) == 3
    assert agent.transfers() == 3


def test_the_entry_that_the_package_chooses_is_the_one_that_is_judged(world: World, agent: Agent, payer: Payer) -> None:
    def provider(exchange: Exchange) -> None:
        if exchange.payment is not None:
            return exchange.send(world.real(exchange))
        terms = decoded(world.real(exchange).header("PAYMENT-REQUIRED"))
        dearer = {**terms["accepts"][0], "amount": str(2 * PRICE), "of the vendor": 1}
        exchange.send(Reply(402, [("PAYMENT-REQUIRED", encoded({**terms, "accepts": [*terms["accepts"], dearer]}))]))

    client = x402ClientSync()
    client.register_policy(lambda _, offered: [one for one in offered if one.get_amount() == str(2 * PRICE)])
    session = wrap_requests(requests.Session(), client, payer())
    # The provider rejects the payment because its real price is lower, but this entry was signed.
    with pytest.raises(errors.PaymentNotAccepted) as told:
        session.get(world.provider(provider))
    assert told.value.payment.amount_units == 2 * PRICE
    assert agent.transfers() == 0
