"""The settings of a payer, and which of a run's identical calls a call is."""

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

#: The largest amount (docs/decisions.md §2): every JSON reader keeps it exact.
MAX_UNITS = 2**53 - 1
_DOLLARS = re.compile(r"(0|[1-9][0-9]{0,9})(?:\.([0-9]{1,6}))?")


@dataclass(frozen=True)
class CallOptions:
    """What one call has of its own; what is none is the payer's."""

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
    """How an agent pays: through which Purser, as whom, for what, and up to how much a call.

    A run that is repeated under the same `run` has the same idempotency keys, so it is answered with the same payments.
    One object may serve many transports and threads; the identical calls of all of them are counted together.
    """

    #: Where Purser answers; `PURSER_URL` of the environment by default. Over plain HTTP only on this machine, as the key
    #: goes there.
    url: str = field(default_factory=lambda: os.environ.get("PURSER_URL", ""))
    #: The agent key, `gak_pub_...:gak_sec_...`; `PURSER_KEY` of the environment by default. It goes to Purser and nowhere
    #: else.
    key: str = field(default_factory=lambda: os.environ.get("PURSER_KEY", ""), repr=False)
    #: What this run is: a job's or a conversation's id.
    run: str
    #: The most that a call may cost: USD as a decimal (`"0.05"`), or micro-units (`50_000`). If none, each call says.
    max_amount: str | int | None = None
    #: The most that a price may be above the one that the catalog lists, in percent: 0 allows none. If none, no limit.
    max_over_listed: int | None = None
    #: Seconds to wait for a person where one has to approve; if none, `ApprovalRequired` is raised at once.
    wait_for_approval: float | None = None
    #: Seconds that one call of Purser may take.
    timeout: float = 30.0
    #: Seconds that a provider's answer may take at most, beside the HTTP client's own limits.
    answer_timeout: float = 120.0
    #: The longest answer that is read of a provider that was paid.
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
        """Gives the calls made within, by this thread or task, what they have of their own.

        `target` is the page that a scrape or crawl is pointed at; service and operation are needed where two services
        of the catalog list the same call.
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
        """What the call in hand has of its own."""
        found = _options.get()
        return found[1] if found is not None and found[0] is self else CallOptions()

    def wait_seconds(self, options: CallOptions) -> float:
        """How long a call waits for a person."""
        return (self.wait_for_approval if options.wait_for_approval is None else options.wait_for_approval) or 0.0

    def over_listed(self, options: CallOptions) -> int | None:
        """The most that a call's price may be above the listed one, in percent."""
        return self.max_over_listed if options.max_over_listed is None else options.max_over_listed

    def max_units(self, options: CallOptions) -> int:
        """The ceiling of a call."""
        amount = self.max_amount if options.max_amount is None else options.max_amount
        if amount is None:
            raise ConfigurationError("no ceiling: give `max_amount`, or call within `purser.call(max_amount=...)`")
        return units(amount)

    def purchase(self, call: Call, options: CallOptions) -> Purchase:
        """Which purchase this call is, under its own key or the derived one."""
        if options.idempotency_key is not None:
            return Purchase(options.idempotency_key)
        return self._ordinals.next(call)


@dataclass(frozen=True)
class Call:
    """A call of a provider, as it goes out."""

    method: str
    url: str
    body_sha256: str
    has_body: bool

    @classmethod
    def of(cls, method: str, url: str, body: bytes) -> Call:
        """The call of a request. What is never sent of its URL as such is left out: a fragment, a name and password."""
        parts = urlsplit(url)
        sent = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
        return cls(method.upper(), sent, hashlib.sha256(body).hexdigest(), bool(body))


def call_key(run: str, call: Call, ordinal: int) -> str:
    """The idempotency key of a run's n-th call of this kind, the same in every client (clients/vectors.json)."""
    digest = hashlib.sha256(b"purser-call-v1\n")
    for part in (run, call.method, call.url, call.body_sha256, str(ordinal)):
        text = part.encode()
        digest.update(b"%d:%b\n" % (len(text), text))
    return digest.hexdigest()


class Purchase:
    """One purchase of a run: its idempotency key, which nobody else in this process has until it is over."""

    def __init__(self, key: str, ordinals: Ordinals | None = None, call: Call | None = None, number: int = 0) -> None:
        self.key = key
        self._ordinals, self._call, self._number = ordinals, call, number

    @property
    def is_derived(self) -> bool:
        """Whether the key is of us and not of the caller."""
        return self._ordinals is not None

    def over(self) -> None:
        """It was bought, or never can be under this key: the next identical call is another."""
        if self._ordinals is not None and self._call is not None:
            self._ordinals.end(self._call, self._number, over=True)

    def failed(self) -> None:
        """There is no answer yet: the next identical call is the same purchase, which pays nothing twice."""
        if self._ordinals is not None and self._call is not None:
            self._ordinals.end(self._call, self._number, over=False)


class Ordinals:
    """Numbers a run's identical calls from 1. What failed gives its number back; calls at once have different ones."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = threading.Lock()
        # Of each call: up to which number all are over, and what those above are, `True` once over.
        self._numbers: dict[Call, tuple[int, dict[int, bool]]] = {}

    def next(self, call: Call) -> Purchase:
        """The lowest number that is free."""
        with self._lock:
            over, above = self._numbers.setdefault(call, (0, {}))
            number = over + 1
            while number in above:
                number += 1
            above[number] = False
        return Purchase(call_key(self._run, call, number), self, call, number)

    def end(self, call: Call, number: int, *, over: bool) -> None:
        """Ends what has this number; what is over stays so."""
        with self._lock:
            up_to, above = self._numbers.setdefault(call, (0, {}))
            if over and number > up_to:
                above[number] = True
            elif not above.get(number, False):
                above.pop(number, None)
            while above.pop(up_to + 1, False):
                up_to += 1
            self._numbers[call] = (up_to, above)


def units(amount: str | int) -> int:
    """Micro-units of an amount: an integer is that already, a text is dollars with up to six decimals."""
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
    """Refuses what can't be an agent key, without repeating it."""
    if not isinstance(key, str) or re.fullmatch(r"gak_pub_[\x21-\x7e]+:gak_sec_[\x21-\x7e]+", key) is None:
        raise ConfigurationError("`key`, or PURSER_KEY, is no agent key: it has the form gak_pub_...:gak_sec_...")


def check_url(url: str) -> None:
    """Refuses addresses at which the agent key would be read by others."""
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
