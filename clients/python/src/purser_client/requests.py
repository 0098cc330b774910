"""`PurserAdapter`, which makes a requests session pay for its calls.

    session.mount("https://", PurserAdapter(Purser(url=..., key=..., run=job_id, max_amount="0.05")))

Only the paid request contains the payment. The request that requests stores and uses for redirects does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from .api import PurserClient
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
from .steps import Unpriced, run
from .terms import MAX_TERMS_BYTES, PAYMENT_HEADERS, PAYMENT_REQUIRED, read_terms
from .wire import utf8

__all__ = ["PurserAdapter"]

_CHUNK = 65_536


class PurserAdapter(HTTPAdapter):
    """An adapter that pays for the session's calls. The other arguments are passed to `HTTPAdapter`."""

    def __init__(self, purser: Purser, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._purser = purser
        #: The client for Purser's API, with the same agent key.
        self.api = PurserClient(purser.url, purser.key, timeout=purser.timeout)

    def close(self) -> None:
        """Closes the connections to providers and to Purser."""
        super().close()
        self.api.close()

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: None | float | tuple[float, float] | tuple[float, None] = None,
        verify: bool | str = True,
        cert: None | bytes | str | tuple[bytes | str, bytes | str] = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Sends a request, and pays if the provider requires a payment."""
        how = {"timeout": bounded(timeout, self._purser), "verify": verify, "cert": cert, "proxies": proxies}
        request = whole(request)
        run(checked(self._purser, call_of(request)), self.api)
        try:
            terms = asked(super(), self._purser, request, how)
            again = partial(asked, super(), self._purser, request, how)
            payment = run(signed(self._purser, call_of(request), terms), self.api, again)
        except Unpriced as found:
            answer: requests.Response = found.response
            return answer
        return send_paid(super(), self._purser, self.api, request, payment, how)


def asked(
    adapter: Any, purser: Purser, request: requests.PreparedRequest, how: dict[str, Any]
) -> dict[str, Any]:
    """Calls the provider without a payment and returns its payment requirements, or raises `Unpriced`."""
    response: requests.Response = adapter.send(request, **{**how, "stream": True})
    terms = None if response.status_code != 402 or is_paid(request) else read_402(response, purser)
    if terms is None:
        raise Unpriced(response)
    return terms


def whole(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Returns the request with its body in memory, so that the body can be sent twice and hashed."""
    source: Any = request.body
    if source is None or isinstance(source, bytes | str):
        return request
    parts: Iterable[bytes | str] = [source.read()] if hasattr(source, "read") else source
    body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    request = request.copy()
    request.headers.pop("Transfer-Encoding", None)
    request.body = body
    request.headers["Content-Length"] = str(len(body))
    return request


def call_of(request: requests.PreparedRequest) -> Call:
    """Returns the `Call` for a request."""
    body = request.body or b""
    return Call.of(request.method or "GET", request.url or "", body.encode() if isinstance(body, str) else body)


def is_paid(request: requests.PreparedRequest) -> bool:
    """Returns whether the request already contains a payment from the caller."""
    return any(name in request.headers for name in PAYMENT_HEADERS)


def bounded(timeout: Any, purser: Purser) -> Any:
    """Returns the timeouts of a request, limited by `answer_timeout`."""
    limit = purser.answer_timeout
    waits = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    if not all(wait is None or isinstance(wait, int | float) for wait in waits):
        return timeout
    return tuple(limit if wait is None else min(wait, limit) for wait in waits)


def read_402(response: requests.Response, purser: Purser) -> dict[str, Any] | None:
    """Returns the payment requirements of a 402 response, or None if it is not x402. The body stays readable."""
    header = response.headers.get(PAYMENT_REQUIRED, "").strip() or None
    body = b"" if header is not None else read_bounded(response, purser)
    if len(body) > MAX_TERMS_BYTES:
        raise InvalidOffer("the 402 is longer than is read")
    keep(response, body)
    return read_terms(header, utf8(body, response.headers.get("Content-Type")))


def keep(response: requests.Response, body: bytes) -> None:
    """Closes a response and stores its body."""
    response.close()
    response._content = body
    response._content_consumed = True  # type: ignore[attr-defined]


def read_bounded(response: requests.Response, purser: Purser) -> bytes:
    """Reads a body up to the size limit, or slightly more."""
    body, end = b"", time.monotonic() + purser.answer_timeout
    try:
        while len(body) <= MAX_TERMS_BYTES:
            chunk = response.raw.read1(_CHUNK, decode_content=True)
            if not chunk:
                break
            body += chunk
            if time.monotonic() > end:
                raise requests.ReadTimeout("the provider took too long", request=response.request)
    except (HTTPError, OSError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.ConnectionError("the provider's answer broke off", request=response.request) from error
    finally:
        response.close()
    return body


def send_paid(
    adapter: Any,
    purser: Purser,
    api: PurserClient,
    request: requests.PreparedRequest,
    payment: Signed,
    how: dict[str, Any],
) -> requests.Response:
    """Sends the request with the payment through an `HTTPAdapter`, and evaluates the response."""
    paid_request = request.copy()
    for name in PAYMENT_HEADERS:
        paid_request.headers.pop(name, None)
    paid_request.headers[payment.header_name] = payment.header_value
    try:
        try:
            response: requests.Response = adapter.send(paid_request, **{**how, "stream": True})
            # The session gets a request without the payment, so that a redirect cannot send the payment elsewhere.
            response.request = request
            if response.status_code == 402 or response.status_code in REDIRECTS:
                body, header = read_bounded(response, purser), response.headers.get
                answer = provider_answer(response.status_code, header, utf8(body, header("Content-Type")))
                run(not_taken(payment, answer, proof_of(header)), api)
        except requests.RequestException as error:
            raise PaymentUnanswered(f"no answer to the paid call: {type(error).__name__}", payment.so_far()) from error
        try:
            paid = run(receipted(payment, proof_of(response.headers.get)), api)
        except BaseException:
            response.close()
            raise
    except BaseException:
        payment.purchase.failed()
        raise
    response.purser = paid  # type: ignore[attr-defined]
    response.raw = _PaidBody(response, payment, paid, purser)
    return response


class _PaidBody:
    """The body of a paid response, with a size limit and a time limit.

    The purchase is complete once the body has been read to its end.
    """

    def __init__(self, response: requests.Response, payment: Signed, paid: Payment, purser: Purser) -> None:
        self._raw = response.raw
        self._payment, self._paid, self._purser = payment, paid, purser
        self._end = time.monotonic() + purser.answer_timeout
        self._length = 0
        # A failed response does not complete the purchase, so a retry sends the same payment.
        self._is_over = not 200 <= response.status_code < 300
        if self._is_over:
            payment.purchase.failed()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, amt: int = _CHUNK, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yields the body in chunks of at most `amt` bytes."""
        while chunk := self.read1(amt, decode_content):
            yield chunk

    def read(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        """Reads `amt` bytes of the body, or the rest of the body if `amt` is None."""
        parts: list[bytes] = []
        while amt is None or amt > 0:
            chunk = self.read1(_CHUNK if amt is None else amt, decode_content)
            if not chunk:
                break
            parts.append(chunk)
            amt = None if amt is None else amt - len(chunk)
        return b"".join(parts)

    def read1(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        """Returns the available part of the body, or an empty result at the end of the body."""
        try:
            chunk: bytes = self._raw.read1(amt or _CHUNK, decode_content=decode_content)
        except (HTTPError, OSError) as error:
            self._lost(f"the answer to the paid call broke off: {type(error).__name__}", error)
        except BaseException:
            self._failed()
            raise
        self._length += len(chunk)
        if not chunk:
            self._whole()
        elif self._length > self._purser.max_answer_bytes:
            self._lost("the answer to the paid call is longer than is read")
        elif time.monotonic() > self._end:
            self._lost("the answer to the paid call took too long")
        return chunk

    def close(self) -> None:
        """Closes the body.

        If the body was not read to its end, the purchase is not complete, because the body may have been unreadable.
        """
        self._failed()
        self._raw.close()

    def release_conn(self) -> None:
        """Releases the connection. The effect on the purchase is the same as with `close`."""
        self._failed()
        self._raw.release_conn()

    def _whole(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._payment.purchase.over()

    def _failed(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._payment.purchase.failed()

    def _lost(self, what: str, error: BaseException | None = None) -> NoReturn:
        self._failed()
        self._raw.close()
        raise PaymentUnanswered(what, self._paid) from error
