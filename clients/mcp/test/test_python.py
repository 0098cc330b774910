"""Tests every tool with the official Python SDK as the host, over HTTP and stdio, in each mode of the SDK.

$STACK_FOLDER has the stack's files, and $PURSER is the program.
"""

import asyncio
import json
import os
import urllib.request
from pathlib import Path

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).resolve().parents[3]
STACK = json.loads((Path(os.environ["STACK_FOLDER"]) / "stack.json").read_text())
PURSER = os.environ.get("PURSER", str(ROOT / "target/debug/purser"))
WEATHER = {"service": "lab-weather", "operation": "weather.current", "max_usd": "0.05"}


def call(method, path, body=None, headers=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(STACK["base_url"] + path, data, headers or {}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def owner(method, path, body=None):
    """Sends a request as the demo owner."""
    token = call("POST", "/_local/token", {})["token"]
    return call(method, path, body, {"Authorization": f"Bearer {token}", "If-Match": "*"})


def new_agent_id(name):
    """Creates an agent of the demo owner and funds its wallet. Returns the agent's id."""
    agent = owner("POST", "/agents", {"name": name})
    call("POST", "/_local/fund", {"wallet_address": agent["wallet_address"], "units": 1_000_000})
    return agent["agent_id"]


def new_agent(name):
    """Creates a funded agent. Returns the agent's key."""
    return owner("POST", f"/agents/{new_agent_id(name)}/keys", {})["key"]


def target(way, key):
    if way == "http":
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60)
        return streamable_http_client(f"{STACK['base_url']}/mcp", http_client=http)
    env = {"PURSER_URL": STACK["base_url"], "PURSER_KEY": key}
    return StdioServerParameters(command=PURSER, args=["mcp"], env=env)


async def story(way, mode):
    async with Client(target(way, new_agent(f"mcp-python-{way}-{mode}")), mode=mode, read_timeout_seconds=60) as client:
        async def call(name, arguments):
            result = await client.call_tool(name, arguments)
            assert not result.is_error, (name, result.content)
            called.add(name)
            return result.structured_content or json.loads(result.content[0].text)

        called = set()
        tools = {tool.name for tool in (await client.list_tools()).tools}
        found = await call("find_services", {"text": "weather"})
        assert found["services"], found
        await call("get_service", {"service": "lab-weather"})
        await call("list_enabled", {"service": "lab-weather"})
        assert (await call("check_payment", WEATHER))["would_pay"]
        paid = await call("call_service", {**WEATHER, "idempotency_key": "first"})
        assert paid["payment"]["receipt_status"] == "confirmed", paid
        receipt = {"settlement_id": paid["payment"]["settlement_id"]}
        assert (await call("get_receipt", receipt))["amount_usd"] == "0.01"
        assert len((await call("list_receipts", {}))["receipts"]) == 1
        refused = await client.call_tool("call_service", {**WEATHER, "max_usd": "0.001"})
        told = json.loads(refused.content[0].text)
        assert refused.is_error and told["error"] == "amount_exceeds_max" and told["what_to_do"], told
        unknown = await client.call_tool("get_approval", {"approval_id": receipt["settlement_id"]})
        assert unknown.is_error and json.loads(unknown.content[0].text)["error"] == "not_found", unknown
        cursor = {"cursor": f"0.{'0' * 32}.0"}
        unknown = await client.call_tool("read_response", cursor)
        assert unknown.is_error and json.loads(unknown.content[0].text)["error"] == "response_not_kept", unknown
        assert tools == called | {"read_response", "get_approval", "request_raise"}, tools ^ called
        version = getattr(client, "protocol_version", "")
    print(f"ok  {way} {mode} {version}")


async def main():
    for way in ("http", "stdio"):
        for mode in ("auto", "legacy", "2026-07-28"):
            await story(way, mode)


if __name__ == "__main__":
    asyncio.run(main())
