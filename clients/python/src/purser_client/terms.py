"""Reads a provider's payment terms (docs/x402.md §1, §2), with a size limit.

Every form that an official client reads is read.

The decoded terms are sent to Purser with all their members. Purser judges them and returns the entry that it pays.
"""

import base64
import codecs
import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from .errors import InvalidOffer

#: Purser reads requests of at most 65,536 bytes (docs/decisions.md §9), so longer terms can't be paid.
MAX_TERMS_BYTES = 65_536
PAYMENT_REQUIRED = "PAYMENT-REQUIRED"
#: The headers that carry a payment: v2's, v1's.
PAYMENT_HEADERS = ("PAYMENT-SIGNATURE", "X-PAYMENT")
#: The headers that carry a provider's payment response: v2's, v1's.
PROOF_HEADERS = ("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")

_URL_SAFE = str.maketrans("-_", "+/")


class Terms(dict[str, Any]):
    """A provider's terms, with the text in which it wrote them."""

    def __init__(self, members: dict[str, Any], text: bytes) -> None:
        super().__init__(members)
        self.text = text


def read_terms(header: str | None, body: bytes) -> Terms | None:
    """Returns the terms of a 402, from its header (v2, v1) or body (v1). Returns None if it is not about x402."""
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

    Padding, white space and the choice of alphabet (RFC 4648 §4, §5) don't matter.
    """
    if len(value) > MAX_TERMS_BYTES:
        raise ValueError("too long")
    digits = "".join(value.split()).rstrip("=").translate(_URL_SAFE)
    padding = "=" * (-len(digits) % 4)
    return base64.b64decode((digits + padding).encode("ascii"), validate=True)


def write_header(terms: dict[str, Any]) -> str:
    """Encodes terms as an x402 header, in the form that every client reads."""
    return base64.b64encode(json.dumps(terms).encode()).decode()


def encoded(body: Mapping[str, Any]) -> bytes:
    """Encodes a request to Purser. Terms stay as the provider wrote them, because some numbers would change."""
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
        # The byte order mark, if any, is skipped (RFC 8259 §8.1).
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
