"""Defines a buyer for each HTTP library, so that one test covers all libraries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import requests
from x402 import x402Client, x402ClientSync

from purser_client import (
    Payment,
    Purser,
    PurserAsyncTransport,
    PurserTransport,
    payment_of,
)
from purser_client.requests import PurserAdapter
from purser_client.x402 import wrap_httpx, wrap_requests

#: The status, the body, and the payment.
Bought = tuple[int, bytes, Payment | None]


def by_httpx(purser: Purser, url: str, **how: Any) -> Bought:
    with httpx.Client(transport=PurserTransport(purser), follow_redirects=True, timeout=30) as client:
        response = client.request(how.pop("method", "GET"), url, **how)
        return response.status_code, response.content, payment_of(response)


def by_async_httpx(purser: Purser, url: str, **how: Any) -> Bought:
    async def buy() -> Bought:
        async with httpx.AsyncClient(
            transport=PurserAsyncTransport(purser), follow_redirects=True, timeout=30
        ) as client:
            response = await client.request(how.pop("method", "GET"), url, **how)
            return response.status_code, response.content, payment_of(response)

    return asyncio.run(buy())


def by_requests(purser: Purser, url: str, **how: Any) -> Bought:
    with requests.Session() as session:
        session.mount("http://", PurserAdapter(purser))
        return _requested(session, url, how)


def by_x402_httpx(purser: Purser, url: str, **how: Any) -> Bought:
    async def buy() -> Bought:
        async with wrap_httpx(_free(x402Client()), purser, follow_redirects=True, timeout=30) as client:
            response = await client.request(how.pop("method", "GET"), url, **how)
            return response.status_code, response.content, payment_of(response)

    return asyncio.run(buy())


def by_x402_requests(purser: Purser, url: str, **how: Any) -> Bought:
    with wrap_requests(requests.Session(), _free(x402ClientSync()), purser) as session:
        return _requested(session, url, how)


def _requested(session: requests.Session, url: str, how: dict[str, Any]) -> Bought:
    if "content" in how:
        how["data"] = how.pop("content")
    response = session.request(how.pop("method", "GET"), url, timeout=30, **how)
    return response.status_code, response.content, payment_of(response)


def _free(client: Any) -> Any:
    return client.set_spend_controls(False)


Buyer = Callable[..., Bought]
BUYERS: dict[str, Buyer] = {
    "httpx": by_httpx,
    "async httpx": by_async_httpx,
    "requests": by_requests,
    "x402 httpx": by_x402_httpx,
    "x402 requests": by_x402_requests,
}
