"""`PurserTransport` and `PurserAsyncTransport`, which make httpx clients pay for their calls.

    http = httpx.Client(transport=PurserTransport(Purser(url=..., key=..., run=job_id, max_amount="0.05")))

Only the paid request contains the payment. The request that httpx stores and uses for redirects does not.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

import anyio
import httpx

from .api import AsyncPurserClient, PurserClient
from .config import Call, Purser
from .errors import InvalidOffer, PaymentUnanswered
from .payment import (
    REDIRECTS,
    Payment,
    Signed,
    checked,
    not_taken,
    proof_of,
    provider_answer,
    receipted,
    signed,
)
from .steps import Unpriced, run, run_async
from .terms import MAX_TERMS_BYTES, PAYMENT_HEADERS, PAYMENT_REQUIRED, read_terms

from .wire import AsyncClientTransport, ClientTransport, Decoded, utf8, without_encoding

__all__ = ["PurserAsyncTransport", "PurserTransport"]


T = TypeVar("T")


class PurserTransport(httpx.BaseTransport):
    """A transport that pays for the client's calls. It sends requests through another transport, by default with the
    proxies and the certificate authorities from the environment.

    The other arguments are the arguments of `httpx.Client` that concern connections: `verify`, `cert`, `proxy`,
    `mounts`, `trust_env`, `http1`, `http2`, `limits`. Pass them to this transport, because httpx does not pass a
    client's arguments to a custom transport.
    """

    def __init__(self, purser: Purser, transport: httpx.BaseTransport | None = None, **settings: Any) -> None:
        self._purser = purser
        self._transport = inner_transport(transport, settings, ClientTransport)
        #: The client for Purser's API, with the same agent key.
        self.api = PurserClient(purser.url, purser.key, timeout=purser.timeout)

    def close(self) -> None:
        """Closes the connections to providers and to Purser."""
        self._transport.close()
        self.api.close()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, and pays if the provider requires a payment."""
        request.read()
        run(checked(self._purser, call_of(request)), self.api)
        try:
            terms = self._asked(request)
            payment = run(signed(self._purser, call_of(request), terms), self.api, lambda: self._asked(request))
        except Unpriced as found:
            answer: httpx.Response = found.response
            return answer
        return send_paid(self._transport, self._purser, self.api, request, payment)

    def _asked(self, request: httpx.Request) -> dict[str, Any]:
        """Calls the provider without a payment and returns its payment requirements, or raises `Unpriced`."""
        response = self._transport.handle_request(bounded(request, self._purser))
        if response.status_code != 402 or is_paid(request):
            raise Unpriced(response)
        terms = read_402(response, self._purser)
        if isinstance(terms, httpx.Response):
            raise Unpriced(terms)
        return terms


class PurserAsyncTransport(httpx.AsyncBaseTransport):
    """The transport for `httpx.AsyncClient` with asyncio and trio. It has the same arguments as `PurserTransport`."""

    def __init__(self, purser: Purser, transport: httpx.AsyncBaseTransport | None = None, **settings: Any) -> None:
        self._purser = purser
        self._transport = inner_transport(transport, settings, AsyncClientTransport)
        #: The client for Purser's API, with the same agent key.
        self.api = AsyncPurserClient(purser.url, purser.key, timeout=purser.timeout)

    async def aclose(self) -> None:
        """Closes the connections to providers and to Purser."""
        await self._transport.aclose()
        await self.api.aclose()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, and pays if the provider requires a payment."""
        await request.aread()
        await run_async(checked(self._purser, call_of(request)), self.api)
        try:
            terms = await asked_async(self._transport, self._purser, request)
            payment = await run_async(
                signed(self._purser, call_of(request), terms),
                self.api,
                lambda: asked_async(self._transport, self._purser, request),
            )
        except Unpriced as found:
            answer: httpx.Response = found.response
            return answer
        return await send_paid_async(self._transport, self._purser, self.api, request, payment)


def inner_transport(transport: T | None, settings: dict[str, Any], make: Callable[[dict[str, Any]], T]) -> T:
    """Returns the caller's transport or, if there is none, a new transport with the given settings."""
    if transport is None:
        return make(settings)
    if settings:
        raise TypeError(f"the given transport has its own {', '.join(sorted(settings))}")
    return transport


async def asked_async(
    transport: httpx.AsyncBaseTransport, purser: Purser, request: httpx.Request
) -> dict[str, Any]:
    """Calls the provider without a payment and returns its payment requirements, or raises `Unpriced`."""
    response = await send_async(transport, purser, request)
    if response.status_code != 402 or is_paid(request):
        raise Unpriced(response)
    terms = await read_402_async(response, purser)
    if isinstance(terms, httpx.Response):
        raise Unpriced(terms)
    return terms


def call_of(request: httpx.Request) -> Call:
    """Returns the `Call` for a request. The request's body must have been read."""
    return Call.of(request.method, str(request.url), request.content)


def is_paid(request: httpx.Request) -> bool:
    """Returns whether the request already contains a payment from the caller."""
    return any(name in request.headers for name in PAYMENT_HEADERS)


def bounded(request: httpx.Request, purser: Purser, headers: httpx.Headers | None = None) -> httpx.Request:
    """Copies a request, limits its timeouts, and replaces its headers if `headers` is given."""
    waits = request.extensions.get("timeout", {})
    names = ("connect", "read", "write", "pool")
    limit = purser.answer_timeout
    timeout = {name: limit if waits.get(name) is None else min(waits[name], limit) for name in names}
    return httpx.Request(
        request.method,
        request.url,
        headers=request.headers if headers is None else headers,
        stream=request.stream,
        extensions={**request.extensions, "timeout": timeout},
    )


async def send_async(
    transport: httpx.AsyncBaseTransport, purser: Purser, request: httpx.Request, headers: httpx.Headers | None = None
) -> httpx.Response:
    """Sends a request, and limits the wait for the status line and headers of the response."""
    try:
        with anyio.fail_after(purser.answer_timeout):
            return await transport.handle_async_request(bounded(request, purser, headers))
    except TimeoutError as error:
        raise httpx.ReadTimeout("the provider took too long", request=request) from error


def read_402(response: httpx.Response, purser: Purser) -> dict[str, Any] | httpx.Response:
    """Reads and closes a 402 response. Returns the payment requirements, or a copy of the response if not x402."""
    header = header_of(response, PAYMENT_REQUIRED)
    body = b""
    if header is None:
        body = read_bounded(response, purser)
        if len(body) > MAX_TERMS_BYTES:
            raise InvalidOffer("the 402 is longer than is read")
    response.close()
    terms = read_terms(header, utf8(body, response.headers.get("Content-Type")))
    return again(response, body) if terms is None else terms


async def read_402_async(response: httpx.Response, purser: Purser) -> dict[str, Any] | httpx.Response:
    """Reads and closes a 402 response. Returns the payment requirements, or a copy of the response if not x402."""
    header = header_of(response, PAYMENT_REQUIRED)
    body = b""
    if header is None:
        body = await read_bounded_async(response, purser)
        if len(body) > MAX_TERMS_BYTES:
            raise InvalidOffer("the 402 is longer than is read")
    await response.aclose()
    terms = read_terms(header, utf8(body, response.headers.get("Content-Type")))
    return again(response, body) if terms is None else terms


def header_of(response: httpx.Response, name: str) -> str | None:
    """Returns a header, or None if it is empty. Repeated headers are joined, and the joined value is not valid x402."""
    found = response.headers.get(name)
    return found if isinstance(found, str) and found.strip() else None


def again(response: httpx.Response, body: bytes) -> httpx.Response:
    """Returns a copy of a response with a body that was already read, so that the body can be read again."""
    headers = without_encoding(response.headers)
    return httpx.Response(response.status_code, headers=headers, content=body, extensions=response.extensions)


def read_bounded(response: httpx.Response, purser: Purser) -> bytes:
    """Reads a body up to the size limit, or slightly more."""
    body, end = b"", time.monotonic() + purser.answer_timeout
    try:
        for chunk in Decoded(response):
            body += chunk
            if len(body) > MAX_TERMS_BYTES:
                break
            if time.monotonic() > end:
                raise httpx.ReadTimeout("the provider took too long")
    finally:
        response.close()
    return body


async def read_bounded_async(response: httpx.Response, purser: Purser) -> bytes:
    """Reads a body up to the size limit, or slightly more."""
    body = b""
    try:
        with anyio.fail_after(purser.answer_timeout):
            async for chunk in Decoded(response):
                body += chunk
                if len(body) > MAX_TERMS_BYTES:
                    break
    except TimeoutError as error:
        raise httpx.ReadTimeout("the provider took too long") from error
    finally:
        await response.aclose()
    return body


def with_payment(request: httpx.Request, payment: Signed) -> httpx.Headers:
    """Returns the request's headers with the payment that Purser signed and without any other payment."""
    headers = httpx.Headers(request.headers)
    for name in PAYMENT_HEADERS:
        headers.pop(name, None)
    headers[payment.header_name] = payment.header_value
    return headers


def send_paid(
    transport: httpx.BaseTransport, purser: Purser, api: PurserClient, request: httpx.Request, payment: Signed
) -> httpx.Response:
    """Sends the request with the payment, and evaluates the response."""
    try:
        headers = with_payment(request, payment)
        try:
            response = transport.handle_request(bounded(request, purser, headers))
            if response.status_code == 402 or response.status_code in REDIRECTS:
                body = read_bounded(response, purser)
                run(not_taken(payment, *_judged(response, body)), api)
        except httpx.HTTPError as error:
            raise PaymentUnanswered(f"no answer to the paid call: {type(error).__name__}", payment.so_far()) from error
        try:
            paid = run(receipted(payment, proof_of(response.headers.get)), api)
        except BaseException:
            response.close()
            raise
    except BaseException:
        payment.purchase.failed()
        raise
    return _told(response, paid, _PaidStream(response, payment, paid, purser))


async def send_paid_async(
    transport: httpx.AsyncBaseTransport, purser: Purser, api: AsyncPurserClient, request: httpx.Request, payment: Signed
) -> httpx.Response:
    """Sends the request with the payment, and evaluates the response."""
    try:
        headers = with_payment(request, payment)
        try:
            response = await send_async(transport, purser, request, headers)
            if response.status_code == 402 or response.status_code in REDIRECTS:
                body = await read_bounded_async(response, purser)
                await run_async(not_taken(payment, *_judged(response, body)), api)
        except httpx.HTTPError as error:
            raise PaymentUnanswered(f"no answer to the paid call: {type(error).__name__}", payment.so_far()) from error
        try:
            paid = await run_async(receipted(payment, proof_of(response.headers.get)), api)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await response.aclose()
            raise
    except BaseException:
        payment.purchase.failed()
        raise
    return _told(response, paid, _PaidStream(response, payment, paid, purser))


def _judged(response: httpx.Response, body: bytes) -> tuple[Any, str | None]:
    header = response.headers.get
    return provider_answer(response.status_code, header, utf8(body, header("Content-Type"))), proof_of(header)


def _told(response: httpx.Response, paid: Payment, stream: _PaidStream) -> httpx.Response:
    extensions = {**response.extensions, "purser": paid}
    is_encoded = "content-encoding" in response.headers
    headers = without_encoding(response.headers) if is_encoded else response.headers
    return httpx.Response(response.status_code, headers=headers, stream=stream, extensions=extensions)


class _PaidStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The decoded body of a paid response, with a size limit and a time limit.

    The purchase is complete once the body has been read to its end.
    """

    def __init__(self, response: httpx.Response, payment: Signed, paid: Payment, purser: Purser) -> None:
        self._stream, self._decoded = response.stream, Decoded(response)
        self._payment, self._paid, self._purser = payment, paid, purser
        self._end = time.monotonic() + purser.answer_timeout
        self._length = 0
        # A failed response does not complete the purchase, so a retry sends the same payment.
        self._is_over = not response.is_success
        if self._is_over:
            payment.purchase.failed()

    def __iter__(self) -> Iterator[bytes]:
        chunks = iter(self._decoded)
        while True:
            try:
                chunk = next(chunks, None)
            except (httpx.HTTPError, TimeoutError) as error:
                raise self._lost(f"the answer to the paid call broke off: {type(error).__name__}") from error
            except BaseException:
                self._failed()
                raise
            if chunk is None:
                self._whole()
                return
            self._count(chunk)
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._decoded)
        while True:
            try:
                with anyio.fail_after(max(0.0, self._end - time.monotonic())):
                    chunk = await anext(chunks, None)
            except (httpx.HTTPError, TimeoutError) as error:
                raise self._lost(f"the answer to the paid call broke off: {type(error).__name__}") from error
            except BaseException:
                self._failed()
                raise
            if chunk is None:
                self._whole()
                return
            self._count(chunk)
            yield chunk

    def close(self) -> None:
        """Closes the body.

        If the body was not read to its end, the purchase is not complete, because the body may have been unreadable.
        """
        self._failed()
        assert isinstance(self._stream, httpx.SyncByteStream)
        self._stream.close()

    async def aclose(self) -> None:
        """Closes the body.

        If the body was not read to its end, the purchase is not complete, because the body may have been unreadable.
        """
        self._failed()
        assert isinstance(self._stream, httpx.AsyncByteStream)
        await self._stream.aclose()

    def _count(self, chunk: bytes) -> None:
        self._length += len(chunk)
        if self._length > self._purser.max_answer_bytes:
            raise self._lost("the answer to the paid call is longer than is read")
        if time.monotonic() > self._end:
            raise self._lost("the answer to the paid call took too long")

    def _whole(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._payment.purchase.over()

    def _lost(self, what: str) -> PaymentUnanswered:
        self._failed()
        return PaymentUnanswered(what, self._paid)

    def _failed(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._payment.purchase.failed()
