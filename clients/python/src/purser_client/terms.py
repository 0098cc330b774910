"""Reads a provider's payment terms (docs/x402.md §1, §2), strictly and with a size limit.

The decoded terms are sent to Purser with all their members. Purser judges them and returns the entry that it pays.
"""

import base64
import json
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


def read_terms(header: str | None, body: bytes) -> dict[str, Any] | None:
    """Returns the terms of a 402, from its header (v2) or its body (v1). Returns None if it is not about x402."""
    if header is not None:
        try:
            return _checked(read_header(header), 2)
        except ValueError as error:
            raise InvalidOffer(f"the header {PAYMENT_REQUIRED} can't be read") from error
    try:
        terms = parse_object(body)
    except ValueError as error:
        if b"x402Version" in body:
            raise InvalidOffer("the body of the 402 can't be read") from error
        return None
    return _checked(terms, 1) if "x402Version" in terms else None


def read_header(value: str) -> dict[str, Any]:
    """Decodes an x402 header, which is base64 of JSON. Raises `ValueError` for anything else."""
    if len(value) > MAX_TERMS_BYTES:
        raise ValueError("too long")
    return parse_object(base64.b64decode(value.encode("ascii"), validate=True))


def _checked(terms: dict[str, Any], version: int) -> dict[str, Any]:
    accepts = terms.get("accepts")
    stated = terms.get("x402Version")
    if isinstance(stated, bool) or stated != version:
        raise InvalidOffer(f"the 402 is not of x402 version {version}, by which it was sent")
    if not isinstance(accepts, list) or not accepts or not all(isinstance(entry, dict) for entry in accepts):
        raise InvalidOffer("the 402 offers no way to pay")
    try:
        # JSON allows a lone surrogate in text, but it can't be encoded as UTF-8.
        json.dumps(terms, ensure_ascii=False).encode()
    except ValueError as error:
        raise InvalidOffer("the 402 has text that is no Unicode") from error
    return terms


def parse_object(text: bytes) -> dict[str, Any]:
    """Parses a JSON object with unique names and finite numbers. Raises `ValueError` for anything else."""
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
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
