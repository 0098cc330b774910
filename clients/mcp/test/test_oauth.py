"""Tests the official Python SDK's OAuth provider: a client that never has a key pays after one sign-in and one consent."""

import asyncio
import html
import json
import re
import urllib.parse

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from test_python import STACK, WEATHER, new_agent_id, owner

BASE = STACK["base_url"]
CALLBACK = "http://127.0.0.1:33419/callback"


class Memory:
    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


async def consent(url, agent):
    """Signs the demo owner in at the local issuer, and allows the client to act for the agent."""
    async with httpx2.AsyncClient(timeout=30, follow_redirects=False) as browser:
        async def follow(url):
            answer = await browser.get(url)
            target = answer.headers.get("location")
            return await follow(urllib.parse.urljoin(url, target)) if target else (url, answer.text)

        _, page = await follow(url)
        start = html.unescape(re.search(r'href="(/dashboard/sign-in/start[^"]*)"', page)[1])
        issuer, page = await follow(BASE + start)
        email = re.search(r'name="email" value="([^"]+)"', page)[1]
        signed_in = await browser.post(issuer, data={"email": email})
        address, page = await follow(signed_in.headers["location"])
        token = re.search(r'name="form_token" value="([^"]+)"', page.split('action="/dashboard/connect')[1])[1]
        fields = {"agent": agent, "may": ["read", "pay"], "per_day": "1", "expires_days": "1", "decision": "allow"}
        answer = await browser.post(address, data={**fields, "form_token": token}, headers={"Origin": BASE})
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(answer.headers["location"]).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0])


async def main():
    agent, results = new_agent_id("oauth-python"), []

    async def redirect(url):
        results.append(await consent(url, agent))

    async def callback():
        return results.pop()

    metadata = OAuthClientMetadata(client_name="Python SDK", redirect_uris=[CALLBACK], token_endpoint_auth_method="none")
    provider = OAuthClientProvider(f"{BASE}/mcp", metadata, Memory(), redirect, callback)
    http = httpx2.AsyncClient(auth=provider, timeout=60)
    async with Client(streamable_http_client(f"{BASE}/mcp", http_client=http), read_timeout_seconds=60) as client:
        assert (await client.list_tools()).tools
        result = await client.call_tool("call_service", WEATHER)
        paid = result.structured_content or json.loads(result.content[0].text)
        assert paid["payment"]["receipt_status"] == "confirmed", paid
    (grant,) = [key for key in owner("GET", f"/agents/{agent}/keys")["keys"] if key["client_name"]]
    assert (grant["client_name"], grant["redirect_host"]) == ("Python SDK", "127.0.0.1"), grant
    print("ok  oauth")


asyncio.run(main())
