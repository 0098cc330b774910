"""Tests the requests on the wire: names, encodings, charsets, proxies and TLS settings, with a server that records
requests.

No stack is needed. The server also acts as Purser: it has no price, or its payment requirements are rejected.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import subprocess
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from x402 import x402Client

from purser_client import Purser, PurserAsyncTransport, PurserClient, PurserTransport, errors
from purser_client.requests import PurserAdapter
from purser_client.x402 import wrap_httpx

TEXT = json.dumps({"text": "Grüße"}, ensure_ascii=False)
TERMS = json.dumps({"x402Version": 1, "accepts": [{"scheme": "exact", "description": "Grüße"}]}, ensure_ascii=False)
#: Decompressed, this is more than a client reads of a 402 response. Compressed, it has a hundred kilobytes.
BOMB = gzip.compress(b" " * 96 * 1024 * 1024)
BODIES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "plain": (200, {}, TEXT.encode()),
    "gzip": (200, {"Content-Encoding": "gzip"}, gzip.compress(TEXT.encode())),
    "deflate": (200, {"Content-Encoding": "deflate"}, zlib.compress(TEXT.encode())),
    "402-gzip": (402, {"Content-Encoding": "gzip"}, gzip.compress(TERMS.encode())),
    "402-latin1": (402, {"Content-Type": "application/json; charset=ISO-8859-1"}, TERMS.encode("latin-1")),
    "402-utf16": (402, {"Content-Type": "application/json"}, TERMS.encode("utf-16")),
    # A byte order mark has precedence over the header, and is not part of the JSON.
    "402-mark": (402, {"Content-Type": "application/json; charset=ISO-8859-1"}, TERMS.encode("utf-8-sig")),
    "402-unknown": (402, {"Content-Type": "application/json; charset=no-such"}, TERMS.encode()),
    "402-bomb": (402, {"Content-Encoding": "gzip"}, BOMB),
}


class Recorder(ThreadingHTTPServer):
    """Records requests, and gives the response that the last path segment names. The server also acts as a proxy."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"{'http' if context is None else 'https'}://localhost:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error if a client rejects the server's certificate."""


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        status, headers, sent = BODIES.get(self.path.rsplit("/", 1)[-1], (200, {}, b"[]"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        yield server
        server.shutdown()


def payer(recorder: Recorder) -> Purser:
    return Purser(url=recorder.url, key="gak_pub_1:gak_sec_2", run="run", max_amount="0.05")


def by_httpx(purser: Purser, url: str, **settings: Any) -> bytes:
    with httpx.Client(transport=PurserTransport(purser, **settings)) as client:
        return client.get(url).content


def by_async_httpx(purser: Purser, url: str, **settings: Any) -> bytes:
    async def get() -> bytes:
        async with httpx.AsyncClient(transport=PurserAsyncTransport(purser, **settings)) as client:
            return (await client.get(url)).content

    return asyncio.run(get())


def by_x402(purser: Purser, url: str, **settings: Any) -> bytes:
    async def get() -> bytes:
        async with wrap_httpx(x402Client(), purser, **settings) as client:
            return (await client.get(url)).content

    return asyncio.run(get())


def by_requests(purser: Purser, url: str, **settings: Any) -> bytes:
    proxy = settings.pop("proxy", None)
    with requests.Session() as session:
        session.mount("http://", PurserAdapter(purser))
        session.mount("https://", PurserAdapter(purser))
        return session.get(url, proxies=proxy and {"http": proxy}, **settings).content


Getter = Callable[..., bytes]
GETTERS: list[Getter] = [by_httpx, by_async_httpx, by_x402, by_requests]
OWN: list[Getter] = [by_httpx, by_async_httpx, by_requests]


def test_calls_of_purser_have_a_name(recorder: Recorder) -> None:
    with PurserClient(recorder.url, "gak_pub_1:gak_sec_2") as api, pytest.raises(errors.Unreachable):
        api.me()
    name = recorder.seen[0][1]["user-agent"]
    assert name.startswith("purser-client-python/") and len(name) > len("purser-client-python/")


@pytest.mark.parametrize("get", GETTERS)
@pytest.mark.parametrize("encoding", ["plain", "gzip", "deflate"])
def test_bodies_are_decoded(recorder: Recorder, get: Getter, encoding: str) -> None:
    assert get(payer(recorder), f"{recorder.url}/{encoding}").decode() == TEXT


@pytest.mark.parametrize("get", OWN)
@pytest.mark.parametrize("form", ["402-gzip", "402-latin1", "402-utf16", "402-mark", "402-unknown"])
def test_terms_reach_purser_as_they_were_meant(recorder: Recorder, get: Getter, form: str) -> None:
    with pytest.raises(errors.Unreachable):
        get(payer(recorder), f"{recorder.url}/{form}")
    asked = [json.loads(body) for path, _, body in recorder.seen if path == "/x402/authorize"]
    assert asked and all(body["payment_requirement"] == json.loads(TERMS) for body in asked)


@pytest.mark.parametrize("get", OWN)
def test_a_decompression_bomb_is_not_unpacked(recorder: Recorder, get: Getter) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(errors.InvalidOffer):
            get(payer(recorder), f"{recorder.url}/402-bomb")
        assert tracemalloc.get_traced_memory()[1] < 24 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("get", GETTERS)
def test_the_proxies_of_the_environment_are_used(
    recorder: Recorder, get: Getter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", recorder.url)
    assert get(payer(recorder), "http://provider.example/plain").decode() == TEXT
    assert [path for path, _, _ in recorder.seen] == ["http://provider.example/plain"]
    recorder.seen.clear()
    monkeypatch.setenv("no_proxy", "localhost")
    get(payer(recorder), f"{recorder.url}/plain")
    assert [path for path, _, _ in recorder.seen] == ["/plain"]


@pytest.mark.parametrize("get", GETTERS)
def test_the_callers_proxy_is_used(recorder: Recorder, get: Getter) -> None:
    assert get(payer(recorder), "http://provider.example/plain", proxy=recorder.url).decode() == TEXT
    assert [path for path, _, _ in recorder.seen] == ["http://provider.example/plain"]


def test_a_given_transport_has_its_own_settings(recorder: Recorder) -> None:
    with pytest.raises(TypeError):
        PurserTransport(payer(recorder), httpx.HTTPTransport(), verify=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns a self-signed certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run([*new, "-keyout", key, "-out", certificate, *name], check=True, capture_output=True)
    return certificate, key


@pytest.mark.parametrize("get", GETTERS)
def test_the_callers_tls_settings_hold(get: Getter, authority: tuple[Path, Path]) -> None:
    """A provider's certificate is verified by default. The caller's settings `verify` and `cert` apply."""
    certificate, key = map(str, authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The server also requests a certificate from the client.
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with Recorder(context) as server:
        purser, url = payer(server), f"{server.url}/plain"
        with pytest.raises((httpx.ConnectError, requests.exceptions.SSLError)):
            get(purser, url)
        if get is by_requests:
            settings: dict[str, Any] = {"verify": certificate, "cert": (certificate, key)}
        else:
            trusted = ssl.create_default_context(cafile=certificate)
            trusted.load_cert_chain(certificate, key)
            settings = {"verify": trusted}
        assert get(purser, url, **settings).decode() == TEXT
        server.shutdown()
