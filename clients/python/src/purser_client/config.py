"""The settings of an agent that pays, and the ordinals of a run's identical calls."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from .errors import ConfigurationError

#: The largest amount (docs/decisions.md §2), which every JSON parser represents exactly.
MAX_UNITS = 2**53 - 1
_DOLLARS = re.compile(r"(0|[1-9][0-9]{0,9})(?:\.([0-9]{1,6}))?")


@dataclass(frozen=True)
class CallOptions:
    """The options of one call. If an option is None, the setting of `Purser` applies."""

    max_amount: str | int | None = None
    idempotency_key: str | None = None
    approval_id: str | None = None
    service_id: str | None = None
    operation_id: str | None = None
    target: str | None = None
    wait_for_approval: float | None = None
    max_over_listed: int | None = None


_options: ContextVar[tuple[Purser, CallOptions] | None] = ContextVar("purser_call", default=None)


@dataclass(eq=False, kw_only=True)
class Purser:
    """The settings of an agent that pays: Purser's URL, the agent key, the run's id, and the limits of a call.

    A run that is repeated with the same `run` derives the same idempotency keys, and therefore gets the same payments.
    Several transports and threads may share one object. They then also share the ordinals of identical calls.
    """

    #: The URL of Purser. The default is the environment variable `PURSER_URL`. Plain HTTP is accepted only for a
    #: loopback host, because the agent key is sent to this URL.
    url: str = field(default_factory=lambda: os.environ.get("PURSER_URL", ""))
    #: The agent key, `gak_pub_...:gak_sec_...`. The default is `PURSER_KEY`. The key is sent to Purser only.
    key: str = field(default_factory=lambda: os.environ.get("PURSER_KEY", ""), repr=False)
    #: The id of this run, for example a job id or a conversation id.
    run: str
    #: The maximum price of a call: decimal USD (`"0.05"`) or micro-USDC (`50_000`). If None, each call must set
    #: `max_amount`.
    max_amount: str | int | None = None
    #: The maximum percentage by which a price may exceed the catalog's price. 0 allows no excess. By default, there is
    #: no limit.
    max_over_listed: int | None = None
    #: Whether Purser checks each call before the provider receives it, including calls that cost nothing. The key's
    #: permissions, the policy and the freezes then apply to every call, and only operations of the catalog can be
    #: called. By default, Purser is involved only if the provider requires a payment.
    check_first: bool = False
    #: How long to wait for an approval, in seconds. If None, `ApprovalRequired` is raised immediately.
    wait_for_approval: float | None = None
    #: The timeout for one request to Purser, in seconds.
    timeout: float = 30.0
    #: The timeout for a provider's response, in seconds, in addition to the HTTP client's own timeouts.
    answer_timeout: float = 120.0
    #: The maximum length of a paid response's body, in bytes.
    max_answer_bytes: int = 64 * 1024 * 1024
    _ordinals: Ordinals = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_url(self.url)
        check_key(self.key)
        if not isinstance(self.run, str) or not self.run:
            raise ConfigurationError("`run` has to say what this run is, as a job's or a conversation's id")
        _check(self.max_amount, self.wait_for_approval, self.max_over_listed)
        for name in ("timeout", "answer_timeout", "max_answer_bytes"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigurationError(f"`{name}` has to be positive and finite")
        self._ordinals = Ordinals(self.run)

    @contextmanager
    def call(
        self,
        *,
        max_amount: str | int | None = None,
        idempotency_key: str | None = None,
        approval_id: str | None = None,
        service_id: str | None = None,
        operation_id: str | None = None,
        target: str | None = None,
        wait_for_approval: float | None = None,
        max_over_listed: int | None = None,
    ) -> Iterator[None]:
        """Sets the options for all calls that this thread or task makes inside the `with` block.

        `target` is the URL of the page that a scrape or crawl operation fetches. `service_id` and `operation_id` are
        needed if two services of the catalog have an operation with the same method and URL.
        """
        _check(max_amount, wait_for_approval, max_over_listed)
        names = (idempotency_key, approval_id, service_id, operation_id, target)
        options = CallOptions(max_amount, *names, wait_for_approval, max_over_listed)
        token = _options.set((self, options))
        try:
            yield
        finally:
            _options.reset(token)

    def options(self) -> CallOptions:
        """Returns the options of the current call."""
        found = _options.get()
        return found[1] if found is not None and found[0] is self else CallOptions()

    def wait_seconds(self, options: CallOptions) -> float:
        """Returns how long a call waits for an approval, in seconds."""
        return (self.wait_for_approval if options.wait_for_approval is None else options.wait_for_approval) or 0.0

    def over_listed(self, options: CallOptions) -> int | None:
        """Returns the maximum percentage by which a call's price may exceed the catalog's price."""
        return self.max_over_listed if options.max_over_listed is None else options.max_over_listed

    def max_units(self, options: CallOptions) -> int:
        """Returns the maximum price of a call, in micro-USDC."""
        amount = self.max_amount if options.max_amount is None else options.max_amount
        if amount is None:
            raise ConfigurationError("no ceiling: give `max_amount`, or call within `purser.call(max_amount=...)`")
        return units(amount)

    def purchase(self, call: Call, options: CallOptions) -> Purchase:
        """Returns the purchase for a call, with the call's own key or with a derived key."""
        if options.idempotency_key is not None:
            return Purchase(options.idempotency_key)
        return self._ordinals.next(call)


@dataclass(frozen=True)
class Call:
    """A call to a provider, as the client sends the call."""

    method: str
    url: str
    body_sha256: str
    has_body: bool

    @classmethod
    def of(cls, method: str, url: str, body: bytes) -> Call:
        """Creates a call from a request.

        The URL has no fragment, user name or password, because they are not sent as part of the URL.
        """
        parts = urlsplit(url)
        sent = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
        return cls(method.upper(), sent, hashlib.sha256(body).hexdigest(), bool(body))


def call_key(run: str, call: Call, ordinal: int) -> str:
    """Derives the idempotency key for a run's n-th identical call, as all clients do (clients/vectors.json)."""
    digest = hashlib.sha256(b"purser-call-v1\n")
    for part in (run, call.method, call.url, call.body_sha256, str(ordinal)):
        text = part.encode()
        digest.update(b"%d:%b\n" % (len(text), text))
    return digest.hexdigest()


class Purchase:
    """A purchase of a run. No other call in this process gets the same idempotency key until the purchase ends."""

    def __init__(self, key: str, ordinals: Ordinals | None = None, call: Call | None = None, number: int = 0) -> None:
        self.key = key
        self._ordinals, self._call, self._number = ordinals, call, number

    @property
    def is_derived(self) -> bool:
        """Whether the key was derived. Otherwise, the caller chose the key."""
        return self._ordinals is not None

    def over(self) -> None:
        """Ends the purchase, so that the next identical call is a new purchase."""
        if self._ordinals is not None and self._call is not None:
            self._ordinals.end(self, self._call, self._number, over=True)

    def failed(self) -> None:
        """Marks the purchase as failed, so that the next identical call continues the purchase and does not pay twice.
        """
        if self._ordinals is not None and self._call is not None:
            self._ordinals.end(self, self._call, self._number, over=False)


class Ordinals:
    """The ordinals of a run's identical calls. Ordinals start at 1.

    A failed call releases its ordinal. Concurrent calls get different ordinals.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = threading.Lock()
        # For each call: the number up to which all purchases have ended, and a map from each higher ordinal to the
        # purchase that has reserved it, or to None if that purchase has ended.
        self._numbers: dict[Call, tuple[int, dict[int, Purchase | None]]] = {}

    def next(self, call: Call) -> Purchase:
        """Reserves the lowest free ordinal for a call."""
        with self._lock:
            over, above = self._numbers.setdefault(call, (0, {}))
            number = over + 1
            while number in above:
                number += 1
            purchase = Purchase(call_key(self._run, call, number), self, call, number)
            above[number] = purchase
        return purchase

    def end(self, purchase: Purchase, call: Call, number: int, *, over: bool) -> None:
        """Releases an ordinal or, if `over`, marks the ordinal as used for ever.

        Only the purchase that has reserved the ordinal can release it, because another call may have reserved it since.
        """
        with self._lock:
            up_to, above = self._numbers.setdefault(call, (0, {}))
            if over and number > up_to:
                above[number] = None
            elif above.get(number) is purchase:
                del above[number]
            while above.get(up_to + 1, purchase) is None:
                del above[up_to + 1]
                up_to += 1
            self._numbers[call] = (up_to, above)


def units(amount: str | int) -> int:
    """Converts an amount to micro-USDC.

    An integer is in micro-USDC. A string is in USD with at most six decimal places.
    """
    if isinstance(amount, int) and not isinstance(amount, bool):
        value = amount
    else:
        found = _DOLLARS.fullmatch(amount) if isinstance(amount, str) else None
        if found is None:
            raise ConfigurationError('an amount is dollars as a text ("0.05"), or micro-units as an integer')
        value = int(found[1]) * 1_000_000 + int((found[2] or "").ljust(6, "0"))
    if not 0 <= value <= MAX_UNITS:
        raise ConfigurationError(f"an amount is from 0 to {MAX_UNITS} micro-units")
    return value


def _check(max_amount: str | int | None, wait_for_approval: float | None, max_over_listed: int | None) -> None:
    if max_amount is not None:
        units(max_amount)
    if max_over_listed is not None and (type(max_over_listed) is not int or max_over_listed < 0):
        raise ConfigurationError("`max_over_listed` is whole percent, 0 or more")
    if wait_for_approval is not None and not 0 <= wait_for_approval < float("inf"):
        raise ConfigurationError("`wait_for_approval` is a finite number of seconds")


def check_key(key: str) -> None:
    """Raises `ConfigurationError` if the text is not an agent key. The error does not contain the text."""
    if not isinstance(key, str) or re.fullmatch(r"gak_pub_[\x21-\x7e]+:gak_sec_[\x21-\x7e]+", key) is None:
        raise ConfigurationError("`key`, or PURSER_KEY, is no agent key: it has the form gak_pub_...:gak_sec_...")


def check_url(url: str) -> None:
    """Raises `ConfigurationError` if the agent key must not be sent to this URL."""
    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment or not parts.hostname:
        raise ConfigurationError("`url`, or PURSER_URL, is Purser's address alone, such as https://purser.example")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        raise ConfigurationError("`url`, or PURSER_URL, has to be https, but on this machine")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
