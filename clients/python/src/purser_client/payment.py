"""The payment flow of one call: authorize, wait for an approval if needed, evaluate the response, complete.

The modules for the HTTP libraries read the provider's responses. This module only evaluates them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

from . import routes
from .api import AsyncPurserClient, PurserClient
from .config import Call, CallOptions, Purchase, Purser
from .errors import (
    AlreadyPaid,
    ApprovalExpired,
    ApprovalRequired,
    ApprovalUsed,
    NoProof,
    PaymentLapsed,
    PaymentNotAccepted,
    PaymentRedirected,
    PriceAboveListed,
    ProviderAnswer,
    PurserError,
    Refusal,
    Unreachable,
)
from .models import AuthorizeBody, Authorized, CheckBody, Completed, Settlement, UnpaidCheckBody, Warning
from .routes import Answer
from .steps import Reoffer, Sleep, Steps, asked, is_passing, run, run_async, waited
from .terms import (
    MAX_TERMS_BYTES,
    PAYMENT_HEADERS,
    PAYMENT_REQUIRED,
    PROOF_HEADERS,
    parse_object,
    read_header,
)

#: The maximum number of keys for one call. The next key is tried only if a key's payment has expired unused.
MAX_EXPIRED = 20
#: The longest wait for an approval after which the first payment requirements are still used, in seconds.
FRESH = 1.0
#: The maximum length of a reason, in characters, and of a body, in bytes, in an error.
MAX_REASON, MAX_BODY = 200, 4096
#: The first and the longest pause between two requests for a receipt, in seconds.
PAUSE, LONGEST_PAUSE = 2.0, 15.0
#: The redirect statuses.
REDIRECTS = frozenset({301, 302, 303, 307, 308})

Header = Callable[[str], str | None]


@dataclass(frozen=True)
class Receipt:
    """The state of a payment that was sent. Only `expired` means that nothing was paid.

    - `confirmed`: Purser has verified the transfer on chain.
    - `pending`: the transfer is not on chain yet, or Purser is unavailable.
    - `unproven`: the provider sent no settlement header, or Purser rejected the header. Don't pay again, because the
      provider may have taken the payment.
    - `expired`: the payment was not used before it expired, so nothing was paid.
    """

    status: Literal["confirmed", "pending", "unproven", "expired"]
    #: The settlement, if the status is `confirmed` or `expired`.
    settlement: Settlement | None = None
    #: The time to wait before the next request, in seconds, if the status is `pending`.
    retry_after: float | None = None
    #: The reason why the status is `pending` or `unproven`.
    error: PurserError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the status is final. `confirmed` and `expired` are final."""
        return self.status in ("confirmed", "expired")


@dataclass(frozen=True)
class Payment:
    """The payment for a call. `payment_of` returns the payment of a response."""

    settlement_id: str
    transaction_id: str
    #: The idempotency key with which this call can be repeated.
    idempotency_key: str
    amount_units: int
    #: The price in the catalog, if the provider requires more.
    listed_amount_units: int | None
    network: str
    pay_to: str
    #: Whether this is the payment of an earlier attempt, which was sent again.
    is_replayed: bool
    #: Reasons why the provider may reject the payment, for example a very long header.
    warnings: list[Warning]
    receipt: Receipt
    #: The provider's settlement header, with which the settlement is completed.
    proof: str | None = field(repr=False)
    _purser: Purser = field(repr=False)

    def confirm(self, within: float) -> Receipt:
        """Requests the receipt until it is `confirmed` or `expired`, but not longer than `within` seconds."""
        with PurserClient(self._purser.url, self._purser.key, timeout=self._purser.timeout) as api:
            return run(_confirmed(self, within), api)

    async def confirm_async(self, within: float) -> Receipt:
        """Does the same as the synchronous method, for asyncio and trio."""
        async with AsyncPurserClient(self._purser.url, self._purser.key, timeout=self._purser.timeout) as api:
            return await run_async(_confirmed(self, within), api)


@dataclass(frozen=True)
class Signed:
    """A signed payment that may be sent to the provider."""

    authorized: Authorized
    header_name: str
    header_value: str = field(repr=False)
    #: The decoded content of the header.
    payload: dict[str, Any] = field(repr=False)
    is_replayed: bool
    purchase: Purchase
    purser: Purser

    def so_far(self) -> Payment:
        """Returns the payment with an unproven receipt, for an error before the provider responds."""
        return _payment(
            self.purser, self.authorized, self.purchase, self.is_replayed, Receipt("unproven", error=NoProof())
        )


def payment_of(response: object) -> Payment | None:
    """Returns the payment of a response of httpx or requests, or None if the call was not paid."""
    extensions = getattr(response, "extensions", None)
    found = extensions.get("purser") if isinstance(extensions, dict) else getattr(response, "purser", None)
    return found if isinstance(found, Payment) else None


def signed(purser: Purser, call: Call, terms: dict[str, Any]) -> Steps[Signed]:
    """Authorizes the payment for a call. The caller must end the purchase."""
    options = purser.options()
    ceiling = purser.max_units(options)
    yield from _within_listed(call, terms, ceiling, options, purser.over_listed(options))
    for _ in range(MAX_EXPIRED):
        purchase = purser.purchase(call, options)
        try:
            body = _body(call, terms, ceiling, purchase.key, options)
            answer = yield from _authorized(body, purser.wait_seconds(options))
            payment = yield from _usable(purser, answer, purchase, ceiling)
        except ApprovalExpired:
            # The key is bound to the expired approval, so the key has not paid and can never pay.
            purchase.over()
            raise
        except BaseException:
            purchase.failed()
            raise
        if payment is not None:
            return payment
        # This payment expired unused, so authorizing with the next key does not pay twice.
        purchase.over()
    raise Unreachable("all payments of this call have expired")


def checked(purser: Purser, call: Call) -> Steps[None]:
    """Checks a call with Purser before the call is made, if `check_first` is set. Raises a `Refusal`."""
    if not purser.check_first:
        return
    named = _body(call, {}, 0, "", purser.options())
    body: UnpaidCheckBody = {
        "original_request": named["original_request"],
        "service_id": named.get("service_id"),
        "operation_id": named.get("operation_id"),
        "metadata": named.get("metadata"),
    }
    yield from asked(routes.check_unpaid(body))


def _within_listed(
    call: Call, terms: dict[str, Any], ceiling: int, options: CallOptions, most: int | None
) -> Steps[None]:
    """Raises `PriceAboveListed` if the price exceeds the catalog's price by more than `most` percent."""
    if most is None:
        return
    named = _body(call, terms, ceiling, "", options)
    body: CheckBody = {
        "payment_requirement": named["payment_requirement"],
        "max_payment_units": named["max_payment_units"],
        "original_request": named["original_request"],
        "replay_key": str(uuid.uuid4()),
        "service_id": named.get("service_id"),
        "operation_id": named.get("operation_id"),
        "metadata": named.get("metadata"),
    }
    answer = (yield from asked(routes.check(body))).body
    listed, amount = answer.get("listed_amount_units"), answer["amount_units"]
    if listed is not None and amount * 100 > listed * (100 + most):
        raise PriceAboveListed(amount, listed)


def _body(call: Call, terms: dict[str, Any], ceiling: int, key: str, options: CallOptions) -> AuthorizeBody:
    body: AuthorizeBody = {
        "payment_requirement": terms,
        "max_payment_units": ceiling,
        "original_request": {"method": call.method, "url": call.url},
        "idempotency_key": key,
    }
    if call.has_body:
        body["original_request"]["body_hash"] = f"sha256:{call.body_sha256}"
    if options.approval_id is not None:
        body["approval_id"] = options.approval_id
    if options.service_id is not None:
        body["service_id"] = options.service_id
    if options.operation_id is not None:
        body["operation_id"] = options.operation_id
    if options.target is not None:
        body["metadata"] = {"target_url": options.target}
    return body


def _authorized(body: AuthorizeBody, wait: float) -> Steps[Answer[Authorized]]:
    try:
        return (yield from asked(routes.authorize(body)))
    except ApprovalUsed:
        pass
    except ApprovalRequired as required:
        # The approval may already be decided, for example if the run was stopped while it waited.
        began = time.monotonic()
        try:
            found = yield from waited(required.approval_id, wait)
        except PurserError as error:
            raise required from error
        if found["status"] == "pending":
            raise
        if time.monotonic() - began > FRESH and (newest := (yield Reoffer())) is not None:
            body["payment_requirement"] = newest
        body = {**body, "approval_id": required.approval_id}
        try:
            return (yield from asked(routes.authorize(body)))
        except ApprovalUsed:
            pass
    # The response to the approved call was lost. The same key without the approval returns the same payment.
    return (yield from asked(routes.authorize({**body, "approval_id": None})))


def _usable(purser: Purser, answer: Answer[Authorized], purchase: Purchase, ceiling: int) -> Steps[Signed | None]:
    """Validates the authorized payment. Returns None if the payment expired unused and another key may be tried."""
    try:
        found, payment = answer.body, answer.body["payment"]
        status, amount = found["receipt_status"], found["amount_units"]
        as_told = _payment(purser, found, purchase, answer.is_replayed, Receipt("unproven", error=NoProof()))
        name, value = (payment["header_name"], payment["header_value"]) if payment is not None else ("", "")
    except (KeyError, TypeError) as error:
        raise Unreachable("Purser's answer to authorize can't be read") from error
    if payment is None:
        if status == "expired" and purchase.is_derived:
            return None
        as_told, status = yield from _looked_up(as_told, status)
        if status == "confirmed":
            raise AlreadyPaid("this call is paid already", as_told, status, purchase.over)
        raise PaymentLapsed("the payment of this call can't be used any more", as_told, status)
    if name not in PAYMENT_HEADERS or not (value.isascii() and value.isprintable()) or amount > ceiling:
        raise Unreachable("Purser's answer to authorize is no payment as it was asked for")
    return Signed(found, name, value, payment["payload"], answer.is_replayed, purchase, purser)


def _payment(
    purser: Purser, found: Authorized, purchase: Purchase, is_replayed: bool, receipt: Receipt, proof: str | None = None
) -> Payment:
    return Payment(
        settlement_id=found["settlement_id"],
        transaction_id=found["transaction_id"],
        idempotency_key=purchase.key,
        amount_units=found["amount_units"],
        listed_amount_units=found.get("listed_amount_units"),
        network=found["network"],
        pay_to=found["pay_to"],
        is_replayed=is_replayed,
        warnings=found.get("warnings", []),
        receipt=receipt,
        proof=proof,
        _purser=purser,
    )


def proof_of(header: Header) -> str | None:
    """Returns the provider's settlement header, unchanged."""
    return next((value for value in map(header, PROOF_HEADERS) if value), None)


def receipted(payment: Signed, proof: str | None) -> Steps[Payment]:
    """Completes a payment. An error of Purser does not discard the provider's response."""
    receipt = yield from _receipt(payment.authorized["settlement_id"], proof)
    return _payment(payment.purser, payment.authorized, payment.purchase, payment.is_replayed, receipt, proof)


def _receipt(settlement_id: str, proof: str | None) -> Steps[Receipt]:
    if proof is None:
        return Receipt("unproven", error=NoProof())
    try:
        # The request is not retried, because the caller is waiting for the paid response.
        completed: Answer[Completed] = yield routes.complete(settlement_id, {"payment_response_header": proof})
    except PurserError as error:
        if is_passing(error):
            after = error.retry_after if isinstance(error, Refusal) else None
            return Receipt("pending", retry_after=PAUSE if after is None else after, error=error)
        return Receipt("unproven", error=error)
    return Receipt("confirmed", settlement=completed.body)


def _confirmed(payment: Payment, within: float) -> Steps[Receipt]:
    receipt, end, pause = payment.receipt, time.monotonic() + within, PAUSE
    while not receipt.is_settled:
        if receipt.status == "pending":
            wait = PAUSE if receipt.retry_after is None else receipt.retry_after
            if time.monotonic() + wait > end:
                break
            yield Sleep(wait)
            receipt = yield from _receipt(payment.settlement_id, payment.proof)
        else:
            looked_up, _ = yield from _looked_up(payment, receipt.status)
            if looked_up.receipt.is_settled:
                return looked_up.receipt
            left = end - time.monotonic()
            if left <= 0:
                break
            yield Sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_PAUSE)
    return receipt


def _looked_up(payment: Payment, status: str) -> Steps[tuple[Payment, str]]:
    """Reads the receipt from Purser.

    Returns the updated payment and the status. Both are unchanged if Purser does not respond.
    """
    if payment.receipt.status == "confirmed":
        return payment, "confirmed"
    try:
        found: Settlement = (yield routes.receipt(payment.settlement_id)).body
        status = found["receipt_status"]
    except (PurserError, KeyError):
        return payment, status
    if status == "confirmed":
        payment = replace(payment, receipt=Receipt("confirmed", settlement=found))
    elif status == "expired":
        payment = replace(payment, receipt=Receipt("expired", settlement=found))
    return payment, status


def not_taken(sent: Signed, answer: ProviderAnswer, proof: str | None) -> Steps[NoReturn]:
    """Raises the error for a rejected payment. The provider's text and the receipt determine the error class."""
    payment = yield from receipted(sent, proof)
    payment, status = yield from _looked_up(payment, sent.authorized["receipt_status"])
    if answer.status in REDIRECTS:
        raise PaymentRedirected("the provider redirected the paid call", payment, answer)
    is_used = answer.reason is not None and "nonce_already_used" in answer.reason
    if payment.is_replayed and (status == "confirmed" or is_used):
        raise AlreadyPaid("this call is paid already", payment, status, sent.purchase.over)
    raise PaymentNotAccepted("the provider did not accept the payment", payment, answer)


def provider_answer(status: int, header: Header, body: bytes) -> ProviderAnswer:
    """Returns a provider's response, cut to the maximum length in an error."""
    location = header("Location")
    return ProviderAnswer(status, _reason(header, body), None if location is None else _cut(location), body[:MAX_BODY])


def _reason(header: Header, body: bytes) -> str | None:
    said = [(proof_of(header), "errorReason"), (header(PAYMENT_REQUIRED), "error")]
    for value, member in said:
        try:
            reason = None if value is None else read_header(value).get(member)
        except ValueError:
            continue
        if isinstance(reason, str) and reason:
            return _cut(reason)
    try:
        reason = parse_object(body).get("error") if len(body) <= MAX_TERMS_BYTES else None
    except ValueError:
        reason = None
    return _cut(reason) if isinstance(reason, str) and reason else None


def _cut(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:MAX_REASON])
