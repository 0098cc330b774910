"""Reads a provider's payment requirements (docs/x402.md §1, §2), with a size limit.

The parser accepts every format that the official x402 clients accept.

The decoded payment requirements are sent to Purser with all fields. Purser selects the entry of `accepts` to pay.
"""

import base64
import codecs
import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from .errors import InvalidOffer

#: The maximum length of payment requirements: Purser accepts requests of 65,536 bytes (docs/decisions.md §9).
MAX_TERMS_BYTES = 65_536
PAYMENT_REQUIRED = "PAYMENT-REQUIRED"
#: The headers that contain a payment, in x402 version 2 and version 1.
PAYMENT_HEADERS = ("PAYMENT-SIGNATURE", "X-PAYMENT")
#: The provider's settlement headers, in x402 version 2 and version 1.
PROOF_HEADERS = ("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")

_URL_SAFE = str.maketrans("-_", "+/")


class Terms(dict[str, Any]):
    """A provider's payment requirements, with the original JSON text."""

    def __init__(self, members: dict[str, Any], text: bytes) -> None:
        super().__init__(members)
        self.text = text


def read_terms(header: str | None, body: bytes) -> Terms | None:
    """Reads the payment requirements of a 402 response. Returns None if the response is not x402."""
    if header is not None:
        try:
            text = _decoded(header)
            return _checked(parse_object(text), text, (1, 2))
        except ValueError as error:
            raise InvalidOffer(f"the header {PAYMENT_REQUIRED} can't be read") from error
    try:
        terms = parse_object(body)
    except ValueError as error:
        if b"x402Version" in body:
            raise InvalidOffer("the body of the 402 can't be read") from error
        return None
    return _checked(terms, body, (1,)) if "x402Version" in terms else None


def read_header(value: str) -> dict[str, Any]:
    """Decodes an x402 header, which is base64 of JSON. Raises `ValueError` for anything else."""
    return parse_object(_decoded(value))


def _decoded(value: str) -> bytes:
    """Decodes the base64 of a header. Raises `ValueError` for anything else.

    Accepts both alphabets (RFC 4648 §4, §5), with or without padding, and ignores white space.
    """
    if len(value) > MAX_TERMS_BYTES:
        raise ValueError("too long")
    digits = "".join(value.split()).rstrip("=").translate(_URL_SAFE)
    padding = "=" * (-len(digits) % 4)
    return base64.b64decode((digits + padding).encode("ascii"), validate=True)


def write_header(terms: dict[str, Any]) -> str:
    """Encodes payment requirements as an x402 header in a format that every client accepts."""
    return base64.b64encode(json.dumps(terms).encode()).decode()


def encoded(body: Mapping[str, Any]) -> bytes:
    """Encodes a request to Purser. Payment requirements keep their original text, so that no number changes."""
    written = {
        name: value.text if isinstance(value, Terms) else json.dumps(value, allow_nan=False).encode()
        for name, value in body.items()
    }
    return b"{" + b",".join(json.dumps(name).encode() + b":" + text for name, text in written.items()) + b"}"


def _checked(terms: dict[str, Any], text: bytes, versions: tuple[int, ...]) -> Terms:
    accepts = terms.get("accepts")
    stated = terms.get("x402Version")
    if isinstance(stated, bool) or stated not in versions:
        raise InvalidOffer("the 402 is of no version of x402 that is sent in this way")
    if not isinstance(accepts, list) or not accepts or not all(isinstance(entry, dict) for entry in accepts):
        raise InvalidOffer("the 402 offers no way to pay")
    return Terms(terms, text.removeprefix(codecs.BOM_UTF8))


def parse_object(text: bytes) -> dict[str, Any]:
    """Parses a JSON object with unique names and finite numbers. Raises `ValueError` for anything else."""
    try:
        # The codec skips a byte order mark (RFC 8259 §8.1).
        decoded = text.decode("utf-8-sig")
        value = json.loads(decoded, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is there twice")
    return members


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number is too large")
    return value
