"""A client that pays for HTTP calls through Purser, within the limits that the agent's owner sets. See README.md.

`purser_client.httpx`, `purser_client.requests` and `purser_client.x402` each integrate one library.
"""

from . import errors
from .api import AsyncPurserClient, PurserClient
from .config import Purser
from .errors import PurserError
from .httpx import PurserAsyncTransport, PurserTransport
from .payment import Payment, Receipt, payment_of

__all__ = [
    "AsyncPurserClient",
    "Payment",
    "Purser",
    "PurserAsyncTransport",
    "PurserClient",
    "PurserError",
    "PurserTransport",
    "Receipt",
    "errors",
    "payment_of",
]
