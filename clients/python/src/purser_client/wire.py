"""What goes over the wire in the same way for every call: names, proxies, TLS settings, encodings and charsets."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Iterator
from email.message import Message
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx


def user_agent() -> str:
    """Returns the name and version with which this package calls Purser."""
    try:
        return f"purser-client-python/{version('purser-client')}"
    except PackageNotFoundError:
        return "purser-client-python/unpackaged"


class ClientTransport(httpx.BaseTransport):
    """A transport over an httpx client of its own, which picks the proxy for each URL, and knows the TLS settings."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._client = httpx.Client(**settings)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._client.send(request, stream=True, auth=None, follow_redirects=False)

    def close(self) -> None:
        self._client.close()


class AsyncClientTransport(httpx.AsyncBaseTransport):
    """The same for asyncio and trio."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._client = httpx.AsyncClient(**settings)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._client.send(request, stream=True, auth=None, follow_redirects=False)

    async def aclose(self) -> None:
        await self._client.aclose()


def utf8(body: bytes, content_type: str | None) -> bytes:
    """Converts a text to UTF-8 from the charset of its byte order mark or of `Content-Type`.

    Returns the body unchanged if it is no text of that charset, or if the charset is not known.
    """
    charset = "utf-8"
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        charset = "utf-16"
    elif not body.startswith(codecs.BOM_UTF8):
        message = Message()
        message["Content-Type"] = content_type or ""
        charset = message.get_content_charset("utf-8")
    try:
        return body.decode(charset).encode()
    except (LookupError, ValueError):
        return body


class Decoded(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The decoded body of a response.

    A decoder unpacks all that it gets, so it gets few bytes at once: whoever reads this can stop at a limit before a
    decompression bomb is unpacked.
    """

    def __init__(self, response: httpx.Response) -> None:
        encodings = response.headers.get("content-encoding", "").lower()
        # Without an encoding, nothing has to be cut. A kilobyte of gzip or deflate unpacks to a megabyte; one of br or
        # zstd to much more.
        step = 64 if "br" in encodings or "zstd" in encodings else 4096 if encodings else None
        self._inner = httpx.Response(
            response.status_code, headers=response.headers, stream=_Sliced(response.stream, step)
        )

    def __iter__(self) -> Iterator[bytes]:
        return self._inner.iter_bytes()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._inner.aiter_bytes()


class _Sliced(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in chunks of at most `step` bytes. It closes nothing, which is its reader's task."""

    def __init__(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream, step: int | None) -> None:
        self._stream, self._step = stream, step

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._stream, httpx.SyncByteStream)
        for chunk in self._stream:
            yield from self._slices(chunk)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx.AsyncByteStream)
        async for chunk in self._stream:
            for part in self._slices(chunk):
                yield part

    def _slices(self, chunk: bytes) -> Iterator[bytes]:
        step = self._step or max(len(chunk), 1)
        return (chunk[at : at + step] for at in range(0, len(chunk), step))


def without_encoding(headers: httpx.Headers) -> httpx.Headers:
    """Returns the headers of a body that was decoded."""
    wire = {"content-encoding", "content-length", "transfer-encoding"}
    return httpx.Headers([(name, value) for name, value in headers.multi_items() if name.lower() not in wire])
