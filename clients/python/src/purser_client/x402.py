"""The integration with the official `x402` package. The package's flow, policies, hooks and spend controls apply, and
Purser signs the payments.

    http = wrap_httpx(x402Client(), purser)                                # was wrapHttpxWithPayment
    session = wrap_requests(requests.Session(), x402ClientSync(), purser)  # was wrapRequestsWithPayment

The package has limits: the models drop unknown fields, the scheme is synchronous and gets neither method nor URL, the
response hooks are for version 2 only, and the package wraps errors. Therefore Purser's transport runs below the
package's transport, where it sees the raw responses, and its errors are unwrapped at the end. The package selects an
entry of `accepts`, and Purser evaluates the policy for the entry and signs the payment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import httpx
import requests
from requests.adapters import HTTPAdapter
from x402 import x402Client, x402ClientSync
from x402.http.clients.httpx import x402AsyncTransport
from x402.http.clients.requests import x402HTTPAdapter
from x402.schemas import PaymentCreationContext

from . import httpx as with_httpx
from . import requests as with_requests
from .api import AsyncPurserClient, PurserClient
from .config import Call, Purser
from .errors import PurserError
from .payment import Signed, checked, signed
from .steps import Steps, Unpriced, run, run_async
from .terms import PAYMENT_REQUIRED, write_header
from .wire import AsyncClientTransport

__all__ = ["wrap_httpx", "wrap_requests"]

#: The arguments of `httpx.AsyncClient` that concern connections. They are passed to the transport.
_CONNECTIONS = ("verify", "cert", "trust_env", "proxy", "mounts", "http1", "http2", "limits")

#: The USDC contracts by version 2 and version 1 network name (docs/x402.md §3.1), for the package's spend controls.
_USDC = {
    "eip155:8453": ("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "USD Coin"),
    "base": ("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "USD Coin"),
    "eip155:84532": ("0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC"),
    "base-sepolia": ("0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC"),
}


@dataclass
class _InHand:
    """The current call, with the provider's payment requirements and the payment that Purser signed."""

    call: Call
    #: The transport that makes the call. A client of the package may have several transports, and all their hooks are
    #: called.
    maker: object
    #: The request without a payment, and the arguments with which the request is sent.
    request: Any
    how: dict[str, Any] = field(default_factory=dict)
    terms: dict[str, Any] | None = None
    #: The entry of `accepts` that the package selected.
    chosen: dict[str, Any] = field(default_factory=dict)
    payment: Signed | None = None


_in_hand: ContextVar[_InHand] = ContextVar("purser_x402_call")
_Client = TypeVar("_Client", x402Client, x402ClientSync)


def wrap_httpx(client: x402Client, purser: Purser, **kwargs: Any) -> httpx.AsyncClient:
    """Returns an httpx client that pays through Purser with the package's flow. Other arguments are those of
    `httpx.AsyncClient`.

    The package's spend controls still apply: by default at most one dollar per call. With
    `client.set_spend_controls(False)`, only `max_amount` and the owner's policy limit the spend.
    """
    settings = {name: kwargs.pop(name) for name in _CONNECTIONS if name in kwargs}
    return httpx.AsyncClient(transport=_Transport(client, purser, kwargs.pop("transport", None), settings), **kwargs)


def wrap_requests(session: requests.Session, client: x402ClientSync, purser: Purser, **kwargs: Any) -> requests.Session:
    """Makes the session pay through Purser with the package's flow. Other arguments are those of `HTTPAdapter`."""
    adapter = _Adapter(client, purser, **kwargs)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


class _Scheme:
    """A scheme that returns the payment that Purser has already signed."""

    scheme = "exact"

    def find_default_asset(self, asset: str, network: str) -> dict[str, Any] | None:
        address, name = _USDC.get(network, ("", ""))
        if asset.lower() != address.lower():
            return None
        return {"asset": address, "decimals": 6, "symbol": "USDC", "name": name, "version": "2"}

    def create_payment_payload(self, requirements: object) -> dict[str, Any]:
        payment = _in_hand.get().payment
        if payment is None:
            raise PurserError("the payment was not authorized")
        # The package gets a copy, because it removes fields from the payload.
        return dict(payment.payload["payload"])


def _register(client: _Client) -> _Client:
    scheme = _Scheme()
    for network in _USDC:
        if network.startswith("eip155:"):
            client.register(network, scheme)
        else:
            client.register_v1(network, scheme)
    return client


def _signed(purser: Purser, context: PaymentCreationContext) -> Steps[Signed]:
    """Authorizes the entry that the package selected, with the provider's original JSON."""
    in_hand = _in_hand.get()
    offered = [entry is context.selected_requirements for entry in context.payment_required.accepts]
    if in_hand.terms is None or len(offered) != len(in_hand.terms["accepts"]) or True not in offered:
        raise PurserError("what the x402 package chose is not in the provider's terms")
    if in_hand.payment is not None:
        raise PurserError("the x402 package asks for a second payment for one call")
    in_hand.chosen = in_hand.terms["accepts"][offered.index(True)]
    return signed(purser, in_hand.call, {**in_hand.terms, "accepts": [in_hand.chosen]})


def _same_entry(in_hand: _InHand, newest: dict[str, Any]) -> dict[str, Any]:
    """Returns newer payment requirements with only the selected entry, or with all entries if it no longer exists."""
    judged = ("scheme", "network", "asset", "payTo", "amount", "maxAmountRequired")

    def key(entry: dict[str, Any]) -> list[str]:
        return [str(entry.get(name)).lower() for name in judged]

    same = [entry for entry in newest["accepts"] if key(entry) == key(in_hand.chosen)]
    return {**newest, "accepts": same[:1] or newest["accepts"]}


@contextmanager
def _made(in_hand: _InHand) -> Iterator[None]:
    """Makes a call with the package's flow, and unwraps errors that this package raised."""
    token = _in_hand.set(in_hand)
    try:
        yield
    except BaseException as error:
        # The payment may be authorized but not sent, for example if one of the caller's hooks raised an error.
        if in_hand.payment is not None:
            in_hand.payment.purchase.failed()
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, PurserError | Unpriced):
            cause = cause.__cause__
        if cause is None or cause is error:
            raise
        raise cause from cause.__cause__
    finally:
        _in_hand.reset(token)


class _Transport(x402AsyncTransport):
    """The package's transport, which sends through Purser's transport."""

    def __init__(
        self,
        client: x402Client,
        purser: Purser,
        transport: httpx.AsyncBaseTransport | None,
        settings: dict[str, Any],
    ) -> None:
        beneath = _Beneath(purser, transport, settings)
        self._purser, self._beneath = purser, beneath
        super().__init__(_register(client), beneath)

        async def authorize(context: PaymentCreationContext) -> None:
            in_hand = _in_hand.get()
            if in_hand.maker is self:
                newest = partial(beneath.newest, in_hand)
                in_hand.payment = await run_async(_signed(purser, context), beneath.api, newest)

        client.on_before_payment_creation(authorize)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        await run_async(checked(self._purser, with_httpx.call_of(request)), self._beneath.api)
        try:
            with _made(_InHand(with_httpx.call_of(request), self, request)):
                return await super().handle_async_request(request)
        except Unpriced as found:
            answer: httpx.Response = found.response
            return answer


class _Beneath(httpx.AsyncBaseTransport):
    """The transport below the package's transport. It sends Purser's own header and completes the settlement."""

    def __init__(
        self, purser: Purser, transport: httpx.AsyncBaseTransport | None, settings: dict[str, Any]
    ) -> None:
        self._purser = purser
        self._transport = with_httpx.inner_transport(transport, settings, AsyncClientTransport)
        self.api = AsyncPurserClient(purser.url, purser.key, timeout=purser.timeout)

    async def aclose(self) -> None:
        await self._transport.aclose()
        await self.api.aclose()

    async def newest(self, in_hand: _InHand) -> dict[str, Any]:
        """Requests the provider's current payment requirements."""
        return _same_entry(in_hand, await with_httpx.asked_async(self._transport, self._purser, in_hand.request))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        in_hand = _in_hand.get()
        if in_hand.payment is not None and with_httpx.is_paid(request):
            return await with_httpx.send_paid_async(self._transport, self._purser, self.api, request, in_hand.payment)
        response = await with_httpx.send_async(self._transport, self._purser, request)
        if response.status_code != 402 or with_httpx.is_paid(request):
            return response
        # The body is read here with a size limit, because the package has no limit.
        terms = await with_httpx.read_402_async(response, self._purser)
        if isinstance(terms, httpx.Response):
            return terms
        in_hand.terms = terms
        # The header is encoded again, because the package accepts fewer variants of base64.
        if with_httpx.header_of(response, PAYMENT_REQUIRED) is not None:
            response.headers[PAYMENT_REQUIRED] = write_header(terms)
        return with_httpx.again(response, json.dumps(terms).encode())


class _BeneathRequests(HTTPAdapter):
    """The equivalent for requests. The package's adapter sends through the next class in the MRO."""

    def __init__(self, purser: Purser, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.purser = purser
        self.api = PurserClient(purser.url, purser.key, timeout=purser.timeout)

    def close(self) -> None:
        super().close()
        self.api.close()

    def newest(self, in_hand: _InHand) -> dict[str, Any]:
        """Requests the provider's current payment requirements."""
        return _same_entry(in_hand, with_requests.asked(super(), self.purser, in_hand.request, in_hand.how))

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        in_hand = _in_hand.get()
        if in_hand.payment is not None and with_requests.is_paid(request):
            return with_requests.send_paid(super(), self.purser, self.api, request, in_hand.payment, kwargs)
        response = super().send(request, *args, **kwargs)
        if response.status_code == 402 and not with_requests.is_paid(request):
            in_hand.terms = with_requests.read_402(response, self.purser)
            if in_hand.terms is not None and response.headers.get(PAYMENT_REQUIRED, "").strip():
                response.headers[PAYMENT_REQUIRED] = write_header(in_hand.terms)
        return response


class _Adapter(x402HTTPAdapter, _BeneathRequests):
    """The package's adapter, which sends through Purser's adapter."""

    def __init__(self, client: x402ClientSync, purser: Purser, **kwargs: Any) -> None:
        super().__init__(_register(client), purser=purser, **kwargs)

        def authorize(context: PaymentCreationContext) -> None:
            in_hand = _in_hand.get()
            if in_hand.maker is self:
                in_hand.payment = run(_signed(purser, context), self.api, partial(self.newest, in_hand))

        client.on_before_payment_creation(authorize)

    # The method has the same signature as in the package's own adapter.
    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        kwargs["timeout"] = with_requests.bounded(kwargs.get("timeout"), self.purser)
        whole = with_requests.whole(request)
        run(checked(self.purser, with_requests.call_of(whole)), self.api)
        try:
            with _made(_InHand(with_requests.call_of(whole), self, whole, kwargs)):
                response = super().send(whole, **{**kwargs, "stream": True})
        except Unpriced as found:
            response = found.response
        # The session gets a request without the payment, so that a redirect cannot send the payment elsewhere.
        response.request = request
        return response
