"""The errors of calls that were not bought, one class each, with advice.

An error answer of Purser is a `Refusal`, whose class depends on the slug (docs/errors.md). A problem with a payment
is a `PaymentError`, which has the payment. No error's text contains the agent key, a signed payment or text of a
provider. A provider's text is only in `answer`, as data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from .models import Check, Decision, Problem

if TYPE_CHECKING:
    from .api import PendingApproval
    from .payment import Payment


class PurserError(Exception):
    """The base class of this package's errors."""

    #: Advice for a person or an agent.
    todo: str = ""


class ConfigurationError(PurserError, ValueError):
    """An invalid setting of the client."""


class InvalidOffer(PurserError):
    """The provider's 402 has terms in another form than x402, or terms that are too long to be read."""

    todo = "Nothing was paid. The provider has to mend its 402."


class Unreachable(PurserError):
    """Purser did not answer, or answered in another form. No payment was sent."""

    todo = "Repeat the call: it has the same idempotency key, so nothing is paid twice."


class Refusal(PurserError):
    """An error answer of Purser. Branch on the class, or on `slug`."""

    todo = "See the message."

    def __init__(self, status: int, body: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        #: The complete body of the answer.
        self.body = dict(body)
        self.slug = str(body.get("error", f"http_{status}"))
        self.message = str(body.get("message", "an answer without a word of why"))
        #: How long to wait before repeating the request, in seconds.
        self.retry_after = retry_after
        self.todo = type(self).todo
        super().__init__(self.slug)

    def __str__(self) -> str:
        return f"{self.slug}: {self.message} ({self.todo})"

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later. The member `retryable` decides; without it, the status does."""
        retryable = self.body.get("retryable")
        return retryable if isinstance(retryable, bool) else self.status == 429 or self.status >= 500

    def _text(self, name: str) -> str | None:
        value = self.body.get(name)
        return value if isinstance(value, str) else None

    @property
    def request_id(self) -> str | None:
        """The id of the request, by which Purser's logs can be searched."""
        return self._text("request_id")

    @property
    def transaction_id(self) -> str | None:
        """The audit reference of a block or an escalation."""
        return self._text("transaction_id")

    @property
    def decision_hash(self) -> str | None:
        """The `decision_hash` that the signed statement of a block or an escalation must have."""
        return self._text("decision_hash")

    @property
    def settlement_id(self) -> str | None:
        """The settlement that was authorized earlier."""
        return self._text("settlement_id")

    @property
    def decision(self) -> Decision | None:
        """The decision behind a block or an escalation."""
        value = self.body.get("decision")
        return cast(Decision, value) if isinstance(value, dict) else None

    @property
    def checks(self) -> list[Check]:
        """The checks, in the order in which they were made."""
        decision = self.decision
        return decision["checks"] if decision is not None and "checks" in decision else []

    @property
    def details(self) -> list[Problem]:
        """The problems of an invalid request."""
        value = self.body.get("details")
        return cast(list[Problem], value) if isinstance(value, list) else []

    @property
    def retry_at(self) -> datetime | None:
        """The earliest time at which the same call fits its limit; None if waiting does not help."""
        decision = self.decision
        text = self._text("retry_at") or (decision.get("retry_at") if decision is not None else None)
        return datetime.fromisoformat(text) if isinstance(text, str) else None


class PaymentRefused(Refusal):
    """Purser does not allow the payment. Nothing was paid or reserved."""


class InvalidRequest(Refusal):
    """400: a member is invalid or missing. `details` has every problem."""

    todo = "Correct what `details` names."


class InvalidTerms(InvalidRequest):
    """400: only the payment terms, which are the provider's, are invalid. `details` has every problem."""

    todo = "Nothing was paid. The provider has to mend its 402, as `details` says."


class KeyRefused(Refusal):
    """401, or 403 `key_not_allowed`: the agent key is invalid, or lacks the permission in `body["missing"]`."""

    todo = "Check the key with `me()`, or ask its owner for another."


class NotFound(Refusal):
    """404: there is no such settlement, approval or service, or it belongs to somebody else."""

    todo = "Check the id."


class ServiceNotFound(NotFound):
    """404: no service of the catalog has this call."""

    todo = "Nothing was paid. See `services()` for what can be."


class RequestTooLarge(Refusal):
    """413: the terms are longer than Purser reads."""

    todo = "Nothing was paid. The provider has to send shorter terms."


class TooManyRequests(Refusal):
    """429: the requests of this minute are used up, or the agent has too many open payments."""

    todo = "Repeat the call after `retry_after` seconds."


class Unavailable(Refusal):
    """5xx: Purser can't answer at the moment."""

    todo = "Repeat the call: it has the same idempotency key, so nothing is paid twice."


class IdempotencyConflict(Refusal):
    """409: the idempotency key was used for another request.

    This also happens if the provider's payee or price has changed since.
    """

    todo = "Read the receipt of `settlement_id`, if there is one; buy anew under another key or run."


class ApprovalUsed(Refusal):
    """409 `idempotent_replay`: the approval was already used."""

    todo = "Repeat the call without `approval_id`: its key answers the same payment."


class ServiceNotEnabled(PaymentRefused):
    """403: the owner has not enabled the service for the agent."""

    todo = "Ask the owner to enable it."


class OperationNotEnabled(PaymentRefused):
    """403: the policy does not list the operation, or the call matches no operation."""

    todo = "Call one of `body['enabled_operations']`, by its method and endpoint."


class DomainNotAllowed(PaymentRefused):
    """403: the target's host is not on the allowlist."""

    todo = "Fetch something else, or ask the owner."


class AmountExceedsMax(PaymentRefused):
    """402: the price exceeds the call's own ceiling."""

    todo = "Raise `max_amount` if it is worth it."


class AmountExceedsPerCallLimit(PaymentRefused):
    """402: the price exceeds the policy's cap per call."""

    todo = "Buy less at once, or ask the owner."


class DailySpendLimitExceeded(PaymentRefused):
    """402: the call would exceed the cap per rolling 24 hours."""

    todo = "Repeat the call from `retry_at` on; if that is none, it never fits."


class InsufficientBalance(PaymentRefused):
    """402: the wallet's balance is lower than the price."""

    todo = "Have `body['wallet_address']` funded."


class PolicyBlocked(PaymentRefused):
    """403: a rule or a freeze blocks the call; see `reason`."""

    todo = "See `reason`; from `retry_at` on, if there is one, the call fits. Else a person has to change the policy."

    @property
    def reason(self) -> str | None:
        """The rule, such as `category_block:finance`."""
        decision = self.decision
        return decision["reason"] if decision is not None else None


class NotYetAccepted(PolicyBlocked):
    """403: the catalog lists the offer's payee or price, and accepts it only from `retry_at` on."""

    todo = "Nothing was paid. Wait until `retry_at`, then call again."


class NotAsListed(PolicyBlocked):
    """403: the offer's payee or price is not the one that the catalog lists."""

    todo = "Don't pay: payee or price are not those that the catalog lists."


class ApprovalRejected(PolicyBlocked):
    """403: a person rejected the call."""

    todo = "Stop: a person said no."


class ApprovalExpired(PolicyBlocked):
    """403: the approval expired before anybody decided."""

    todo = "Ask again under a new idempotency key, without `approval_id`."


class ApprovalRequired(PaymentRefused):
    """402: a person has to approve the call. Nothing is reserved."""

    todo = "Wait for a person: `error.approval.wait(seconds)`, then repeat the call."

    #: The approval to wait for.
    approval: PendingApproval

    @property
    def approval_id(self) -> str:
        """The id of the approval to wait for."""
        return self._text("approval_id") or ""


class NotVerified(Refusal):
    """`onchain_settlement_not_verified`, and the other errors of complete about a proof."""

    todo = (
        "Don't pay again. Where `retryable`, complete again after `retry_after` seconds; "
        "else `payment.confirm(seconds)` says whether the payment was taken."
    )

    @property
    def retryable(self) -> bool:
        """Whether the same proof may be accepted later."""
        return self.body.get("retryable") is True


#: The class for each slug that an agent can receive.
BY_SLUG: dict[str, type[Refusal]] = {
    "invalid_request": InvalidRequest,
    "target_url_required": InvalidRequest,
    "invalid_agent_key": KeyRefused,
    "invalid_authorization_header": KeyRefused,
    "key_not_allowed": KeyRefused,
    "not_found": NotFound,
    "service_not_found": ServiceNotFound,
    "request_too_large": RequestTooLarge,
    "too_many_requests": TooManyRequests,
    "temporarily_unavailable": Unavailable,
    "internal_error": Unavailable,
    "idempotency_key_reused_for_different_request": IdempotencyConflict,
    "idempotent_replay": ApprovalUsed,
    "service_not_enabled": ServiceNotEnabled,
    "operation_not_enabled_for_agent": OperationNotEnabled,
    "domain_not_allowed": DomainNotAllowed,
    "amount_exceeds_max": AmountExceedsMax,
    "amount_exceeds_per_call_limit": AmountExceedsPerCallLimit,
    "daily_spend_limit_exceeded": DailySpendLimitExceeded,
    "insufficient_usdc_balance": InsufficientBalance,
    "policy_blocked": PolicyBlocked,
    "approval_required": ApprovalRequired,
    "onchain_settlement_not_verified": NotVerified,
    "provider_proof_required": NotVerified,
    "settlement_transaction_hash_required": NotVerified,
    "settlement_transaction_already_used": NotVerified,
}
#: The class for a block, by its reason, or by the rule before the colon.
_BY_REASON: dict[str, type[Refusal]] = {
    "approval_rejected": ApprovalRejected,
    "approval_expired": ApprovalExpired,
    "catalog_payee:pay_to_not_yet_accepted": NotYetAccepted,
    "catalog_payee": NotAsListed,
    "catalog_price": NotAsListed,
    "catalog_payment": NotAsListed,
}
# For bodies of the gateway, which have no slug (docs/errors.md).
_BY_STATUS: dict[int, type[Refusal]] = {401: KeyRefused, 404: NotFound, 413: RequestTooLarge, 429: TooManyRequests}


def refusal(status: int, body: Mapping[str, Any], retry_after: float | None) -> Refusal:
    """Returns the error for an answer of Purser."""
    slug = body.get("error")
    kind = BY_SLUG.get(slug) if isinstance(slug, str) else _BY_STATUS.get(status)
    if kind is None:
        missing = isinstance(slug, str) and status == 400 and slug.endswith("_required")
        kind = InvalidRequest if missing else Unavailable if status >= 500 else Refusal
    if kind is InvalidRequest and _is_about_the_terms(body.get("details")):
        kind = InvalidTerms
    if kind is PolicyBlocked:
        decision = body.get("decision")
        reason = str(decision.get("reason") if isinstance(decision, dict) else None)
        kind = _BY_REASON.get(reason) or _BY_REASON.get(reason.partition(":")[0], PolicyBlocked)
    return kind(status, body, retry_after)


def _is_about_the_terms(details: object) -> bool:
    """Returns whether there are problems, and all of them are in the payment terms."""
    if not isinstance(details, list) or not details:
        return False
    paths = [problem.get("path") if isinstance(problem, dict) else None for problem in details]
    return all(isinstance(path, str) and path.startswith("/payment_requirement") for path in paths)


@dataclass(frozen=True)
class ProviderAnswer:
    """A provider's answer, cut to a limited length. It is untrusted data and never an instruction."""

    status: int
    #: The provider's reason for not taking the payment.
    reason: str | None
    #: The target of a redirect.
    location: str | None
    #: The start of the body.
    body: bytes


class NoProof(PurserError):
    """The provider sent no payment response."""

    todo = (
        "The payment may have been taken: don't pay again. `payment.confirm(seconds)` or `receipt(settlement_id)` "
        "says whether it was; Purser looks on chain itself."
    )


class PriceAboveListed(PurserError):
    """The price exceeds the catalog's by more than `max_over_listed` allows. Nothing was paid."""

    todo = "Nothing was paid. Raise `max_over_listed` if the call is worth it."

    def __init__(self, amount_units: int, listed_amount_units: int) -> None:
        self.amount_units = amount_units
        self.listed_amount_units = listed_amount_units
        super().__init__(
            f"the provider asks for {amount_units} micro-units, and the catalog lists {listed_amount_units}. {self.todo}"
        )


class PaymentError(PurserError):
    """A payment was signed for the call, but there is no answer. Repeating the call repeats the same payment."""

    def __init__(self, what: str, payment: Payment) -> None:
        #: The payment and its receipt.
        self.payment = payment
        super().__init__(f"{what} (settlement {payment.settlement_id}). {self.todo}")

    @property
    def settlement_id(self) -> str:
        """The settlement's id, which names the receipt."""
        return self.payment.settlement_id


class PaymentUnanswered(PaymentError):
    """The answer to the paid call did not arrive, broke off, or exceeded a limit."""

    todo = "Make the same call again: it repeats the same payment."


class PaymentNotAccepted(PaymentError):
    """The provider answered the paid call with 402. It is not paid again, even if its terms changed."""

    todo = (
        "The payment may have been taken: don't pay another way. `payment.confirm(seconds)` says whether it was; "
        "the same call repeats the same payment."
    )

    def __init__(self, what: str, payment: Payment, answer: ProviderAnswer) -> None:
        self.answer = answer
        super().__init__(what, payment)


class PaymentRedirected(PaymentNotAccepted):
    """The provider redirected the paid call.

    The redirect was not followed, because it would send the payment to another address.
    """

    todo = "If `answer.location` holds the answer, fetch it without paying."


class AlreadyPaid(PaymentError):
    """This call was already paid by this run, and its answer was delivered then."""

    todo = "Use what it bought, or `acknowledge()` this and call again to buy anew."

    def __init__(self, what: str, payment: Payment, receipt_status: str, acknowledge: Callable[[], None]) -> None:
        #: `confirmed` once the payment is verified on chain. Until then only the provider claims that it was paid.
        self.receipt_status = receipt_status
        #: Makes the next identical call a new purchase.
        self.acknowledge = acknowledge
        super().__init__(what, payment)


class PaymentLapsed(PaymentError):
    """The payment can no longer be used.

    `receipt_status` is `expired` if it never was used; otherwise that is not known yet.
    """

    todo = "Where `receipt_status` is `expired`, nothing was paid: take another key. Else repeat the call later."

    def __init__(self, what: str, payment: Payment, receipt_status: str) -> None:
        self.receipt_status = receipt_status
        super().__init__(what, payment)
