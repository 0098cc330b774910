"""The environment of the tests: the local stack, new agents, and a server between the client and the provider or
Purser.

The stack is started by `make run`, and its `stack.json` is in `STACK_FOLDER`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

FUNDS = 100_000_000
PRICE = 10_000
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


@dataclass
class Exchange:
    """A request to the server in between, which the test can answer or forward."""

    handler: BaseHTTPRequestHandler
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def payment(self) -> str | None:
        """Returns the payment in the request, if any."""
        return self.headers.get("payment-signature") or self.headers.get("x-payment")

    def forward(self, base: str, *, path: str | None = None) -> Reply:
        """Forwards the request to another server, and returns the server's response."""
        to = urlsplit(base)
        connection = http.client.HTTPConnection(to.hostname or "", to.port, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name not in ("host", "connection")}
        headers["accept-encoding"] = "identity"
        connection.request(self.method, path or to.path + self.path, self.body, headers)
        answer = connection.getresponse()
        wire = ("transfer-encoding", "content-length", "connection", "keep-alive")
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in wire]
        reply = Reply(answer.status, kept, answer.read())
        connection.close()
        return reply

    def send(self, reply: Reply) -> None:
        """Sends a response."""
        self.head(reply.status, [*reply.headers, ("Content-Length", str(len(reply.body)))])
        self.handler.wfile.write(reply.body)

    def head(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Sends the status and headers, without a body."""
        self.handler.send_response(status)
        for name, value in headers:
            self.handler.send_header(name, value)
        self.handler.end_headers()

    def drop(self) -> None:
        """Closes the connection."""
        self.handler.close_connection = True
        self.handler.connection.close()

    def drip(self, piece: bytes, pause: float = 0.0) -> None:
        """Sends a piece repeatedly, until the other side closes the connection or a minute has passed."""
        end = time.monotonic() + 60
        with contextlib.suppress(OSError):
            while time.monotonic() < end:
                self.handler.wfile.write(piece)
                self.handler.wfile.flush()
                time.sleep(pause)
        self.handler.close_connection = True


@dataclass
class Reply:
    """A response."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Returns a header's value."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


Behaviour = Callable[[Exchange], None]


class Between:
    """A server of the test with a behaviour for each path. The server can be a proxy or a provider."""

    def __init__(self) -> None:
        behaviours: dict[str, Behaviour] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                _, name, rest = (self.path + "/").split("/", 2)
                length = int(self.headers.get("content-length") or 0)
                headers = {key.lower(): value for key, value in self.headers.items()}
                exchange = Exchange(self, self.command, "/" + rest.rstrip("/"), headers, self.rfile.read(length))
                with contextlib.suppress(OSError):
                    behaviours[name](exchange)

            do_GET = do_POST = do_PUT = handle_one

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._behaviours = behaviours
        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def put(self, behaviour: Behaviour) -> str:
        """Adds a behaviour, and returns its URL."""
        name = f"b{uuid.uuid4().hex}"
        self._behaviours[name] = behaviour
        return f"{self.url}/{name}"


@dataclass
class Agent:
    """An agent of a test, with its own wallet."""

    world: World
    agent_id: str
    key: str
    wallet: str

    def policy(self, service: str, **edit: object) -> None:
        """Changes the agent's policy for a service, as its owner."""
        self.world.person("PATCH", f"/agents/{self.agent_id}/services/{service}", edit)

    def open_approval(self) -> str:
        """Waits for a pending approval of the agent, and returns its id."""
        url = f"{self.world.base}/approvals?agent_id={self.agent_id}&status=pending"
        for _ in range(300):
            found = self.world.http.get(url, headers=self.world.owner).json()["approvals"]
            if found:
                approval_id: str = found[0]["approval_id"]
                return approval_id
            time.sleep(0.1)
        raise AssertionError("no approval is pending")

    def approve(self, approval_id: str) -> None:
        """Approves a call, as the agent's owner."""
        self.world.person("POST", f"/agents/{self.agent_id}/approvals/{approval_id}/approve", {"note": "for the tests"})

    def reject(self, approval_id: str) -> None:
        """Rejects a call, as the agent's owner."""
        self.world.person("POST", f"/agents/{self.agent_id}/approvals/{approval_id}/reject", {"note": "not this one"})

    def transfers(self) -> int:
        """Counts the wallet's transfers on chain."""
        wallet = "0x" + self.wallet[2:].lower().rjust(64, "0")
        looked_for = {"fromBlock": "0x0", "toBlock": "latest", "address": self.world.usdc, "topics": [TRANSFER, wallet]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [looked_for]}
        return len(httpx.post(self.world.rpc, json=call, timeout=30).json()["result"])


class World:
    """The stack, its demo owner and operator, and the server in between, which is listed in the catalog."""

    def __init__(self) -> None:
        stack = json.loads((Path(os.environ["STACK_FOLDER"]) / "stack.json").read_text())
        self.base: str = stack["base_url"]
        self.v2: str = stack["provider_url"]
        self.rpc: str = stack["rpc_url"]
        self.usdc: str = stack["usdc_address"]
        self._operator: str = stack["internal_token"]
        self.http = httpx.Client(timeout=30)
        self._funding = threading.Lock()
        weather_v1 = self.http.get(f"{self.base}/services/lab-weather-v1").json()["operations"][0]
        self.v1 = weather_v1["endpoint"].removesuffix("/weather")
        self.pay_to: str = weather_v1["payment"]["pay_to"]
        self.between = Between()
        self.service = f"between-{uuid.uuid4().hex[:8]}"
        self._list()

    @property
    def owner(self) -> dict[str, str]:
        """Returns the headers of the demo owner: a fresh sign-in, and `If-Match` for any version."""
        token = self.http.post(f"{self.base}/_local/token").json()["token"]
        return {"Authorization": f"Bearer {token}", "If-Match": "*"}

    def _list(self) -> None:
        """Adds the server in between to the catalog, as an operator."""
        payment = {"scheme": "exact", "network": "base-sepolia", "token": "USDC", "amount_units": PRICE}
        payment["pay_to"] = self.pay_to
        operation = {
            "id": str(uuid.uuid4()),
            "label": "What stands in between",
            "endpoint": f"{self.between.url}/{{name}}/weather",
            "category": "data",
            "execution": "sync",
            "price_model": "fixed",
            "estimated_price_units": PRICE,
            "max_price_units": 1_000_000,
            "params": {"name": {"type": "string", "in": "path", "required": True}},
            "payment": payment,
        }
        post = {**operation, "id": str(uuid.uuid4())}
        service = {
            "slug": self.service,
            "name": "Between",
            "description": "A server of the tests.",
            "website": "https://between.example/",
            "logo_url": None,
            "category": "data",
            "source": "curated",
            "trust_status": "platform_verified",
            "curated": True,
            "operations": [
                {**operation, "operation_id": "between.get", "method": "GET"},
                {**post, "operation_id": "between.post", "method": "POST"},
            ],
        }
        headers = {"X-Internal-Token": self._operator}
        answer = self.http.put(f"{self.base}/internal/services/{uuid.uuid4()}", json=service, headers=headers)
        assert answer.is_success, answer.text
        # The functions reload the catalog every five seconds.
        time.sleep(5.5)

    def person(self, method: str, path: str, body: object) -> dict[str, Any]:
        """Sends a request as the demo owner."""
        answer = self.http.request(method, self.base + path, json=body, headers=self.owner)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def advance(self, seconds: int) -> None:
        """Advances the clocks of the stack and of the chain."""
        answer = self.http.post(f"{self.base}/_local/clock", json={"advance_seconds": seconds})
        assert answer.is_success, answer.text

    def agent(self, funds: int = FUNDS) -> Agent:
        """Creates an agent with a key and a funded wallet."""
        made = self.person("POST", "/agents", {"name": "A test's agent"})
        key = self.person("POST", f"/agents/{made['agent_id']}/keys", {})["key"]
        body = {"wallet_address": made["wallet_address"], "units": funds}
        # Agents are funded one at a time, because the chain numbers the transactions of an account.
        with self._funding:
            assert self.http.post(f"{self.base}/_local/fund", json=body).is_success
        return Agent(self, made["agent_id"], key, made["wallet_address"])

    def provider(self, behaviour: Behaviour) -> str:
        """Adds a provider with this behaviour, and returns its URL."""
        return self.between.put(behaviour) + "/weather"

    def real(self, exchange: Exchange, version: int = 2) -> Reply:
        """Returns the response of the official SDK's provider."""
        return exchange.forward(self.v2 if version == 2 else self.v1, path="/weather")


def encoded(value: object) -> str:
    """Encodes an x402 header."""
    return base64.b64encode(json.dumps(value).encode()).decode()


def decoded(value: str | None) -> dict[str, Any]:
    """Decodes an x402 header."""
    found: dict[str, Any] = json.loads(base64.b64decode(value or ""))
    return found
