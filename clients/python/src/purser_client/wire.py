"""HTTP details that all calls share: the `User-Agent`, proxies, TLS settings, encodings and charsets."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Iterator
from email.message import Message
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx


def user_agent() -> str:
    """Returns the `User-Agent` for requests to Purser."""
    try:
        return f"purser-client-python/{version('purser-client')}"
    except PackageNotFoundError:
        return "purser-client-python/unpackaged"


class ClientTransport(httpx.BaseTransport):
    """A transport that sends through a separate httpx client. The client selects the proxy for each URL."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._client = httpx.Client(**settings)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._client.send(request, stream=True, auth=None, follow_redirects=False)

    def close(self) -> None:
        self._client.close()


class AsyncClientTransport(httpx.AsyncBaseTransport):
    """The equivalent class for asyncio and trio."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._client = httpx.AsyncClient(**settings)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._client.send(request, stream=True, auth=None, follow_redirects=False)

    async def aclose(self) -> None:
        await self._client.aclose()


def utf8(body: bytes, content_type: str | None) -> bytes:
    """Converts a text body to UTF-8. The charset comes from the byte order mark or from `Content-Type`.

    Returns the body unchanged if the body is not valid text in the charset, or if the charset is unknown.
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

    The decoder gets only a few bytes at a time, because it decompresses all bytes that it gets. Therefore, the reader
    can stop at a limit before a decompression bomb is decompressed.
    """

    def __init__(self, response: httpx.Response) -> None:
        encodings = response.headers.get("content-encoding", "").lower()
        # A body without an encoding is not sliced. One kilobyte of gzip or deflate can decompress to one megabyte, and
        # one kilobyte of br or zstd to much more.
        step = 64 if "br" in encodings or "zstd" in encodings else 4096 if encodings else None
        self._inner = httpx.Response(
            response.status_code, headers=response.headers, stream=_Sliced(response.stream, step)
        )

    def __iter__(self) -> Iterator[bytes]:
        return self._inner.iter_bytes()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._inner.aiter_bytes()


class _Sliced(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in chunks of at most `step` bytes. The reader has to close the inner stream."""

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
    """Returns the headers for a body that was decoded, without the headers about the encoding and the length."""
    wire = {"content-encoding", "content-length", "transfer-encoding"}
    return httpx.Headers([(name, value) for name, value in headers.multi_items() if name.lower() not in wire])
