"""Tests with a provider that uses the official Python server. The stack's own providers use the TypeScript server."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from buyers import Buyer
from flask import Flask, Response, jsonify
from werkzeug.serving import make_server
from world import PRICE, Agent, Exchange, World
from x402 import x402ResourceServerSync
from x402.http import FacilitatorConfig, HTTPFacilitatorClientSync
from x402.http.middleware.flask import payment_middleware
from x402.mechanisms.evm.exact.server import ExactEvmScheme

from purser_client import Purser, errors

X402 = Path(__file__).parents[3] / "infra/local/x402"


@pytest.fixture(scope="module")
def facilitator(world: World) -> Iterator[str]:
    """Starts a second facilitator on the stack's chain."""
    environment = {**os.environ, "RPC_URL": world.rpc, "CHAIN_ID": "84532"}
    command = ["node", "stack.mjs"]
    # The process ends when its standard input is closed.
    with subprocess.Popen(
        command, cwd=X402, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["facilitator_url"]
        process.terminate()


@pytest.fixture(scope="module")
def server(world: World, facilitator: str) -> Iterator[str]:
    app = Flask(__name__)

    @app.get("/weather")
    def weather() -> Response:
        return jsonify(city="Porto")

    usdc = {"amount": str(PRICE), "asset": world.usdc, "extra": {"name": "USDC", "version": "2"}}
    entry = {"scheme": "exact", "network": "eip155:84532", "payTo": world.pay_to, "price": usdc}
    routes: Any = {"GET /weather": {"accepts": entry, "description": "Weather in Porto"}}
    resources = x402ResourceServerSync(HTTPFacilitatorClientSync(FacilitatorConfig(url=facilitator)))
    # The types in the package's scheme do not match the types that the package requires.
    scheme: Any = ExactEvmScheme
    resources.register("eip155:84532", scheme())
    payment_middleware(app, routes, resources)
    found = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.port}"
    found.shutdown()


def test_a_server_of_the_package_is_paid_and_proved(
    world: World, agent: Agent, payer: Callable[..., Purser], buy: Buyer, server: str
) -> None:
    def provider(exchange: Exchange) -> None:
        exchange.send(exchange.forward(server, path="/weather"))

    url = world.provider(provider)
    status, body, payment = buy(payer(), url)
    assert (status, json.loads(body)) == (200, {"city": "Porto"})
    assert payment is not None
    assert payment.receipt.status == "confirmed"
    with pytest.raises(errors.AlreadyPaid):
        buy(payer(), url)
    assert agent.transfers() == 1
