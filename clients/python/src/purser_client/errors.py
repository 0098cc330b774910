"""Every way in which a call is not bought, one class each, with what to do.

What Purser answers but success is a `Refusal`, of the class of its slug (docs/errors.md); what went wrong around a
payment is a `PaymentError`, which has the payment. No error's text has the agent's key, a signed payment, or a word of
a provider: what a provider said stands in `answer`, as data.
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
    """Whatever this package raises."""

    #: What to do about it, for a person or an agent.
    todo: str = ""


class ConfigurationError(PurserError, ValueError):
    """A setting of the client that can't be."""


class InvalidOffer(PurserError):
    """The provider's 402 asks for a payment in no form that x402 knows, or in more bytes than are read."""

    todo = "Nothing was paid. The provider has to mend its 402."


class Unreachable(PurserError):
    """Purser did not answer, or not in its own words. No payment was sent."""

    todo = "Repeat the call: it has the same idempotency key, so nothing is paid twice."


class Refusal(PurserError):
    """Purser's answer is an error. Branch on the class, or on `slug`."""

    todo = "See the message."

    def __init__(self, status: int, body: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        #: The body as it was answered, with all its members.
        self.body = dict(body)
        self.slug = str(body.get("error", f"http_{status}"))
        self.message = str(body.get("message", "an answer without a word of why"))
        #: Seconds to wait before the same request.
        self.retry_after = retry_after
        self.todo = type(self).todo
        super().__init__(self.slug)

    def __str__(self) -> str:
        return f"{self.slug}: {self.message} ({self.todo})"

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later: `retryable` decides where the answer has it, else the status."""
        retryable = self.body.get("retryable")
        return retryable if isinstance(retryable, bool) else self.status == 429 or self.status >= 500

    def _text(self, name: str) -> str | None:
        value = self.body.get(name)
        return value if isinstance(value, str) else None

    @property
    def request_id(self) -> str | None:
        """What to name the answer by."""
        return self._text("request_id")

    @property
    def transaction_id(self) -> str | None:
        """The audit reference of a block or an escalation."""
        return self._text("transaction_id")

    @property
    def settlement_id(self) -> str | None:
        """What was authorized earlier."""
        return self._text("settlement_id")

    @property
    def decision(self) -> Decision | None:
        """The decision behind a block or an escalation."""
        value = self.body.get("decision")
        return cast(Decision, value) if isinstance(value, dict) else None

    @property
    def checks(self) -> list[Check]:
        """Every check, in the order in which it was made."""
        decision = self.decision
        return decision["checks"] if decision is not None and "checks" in decision else []

    @property
    def details(self) -> list[Problem]:
        """Every problem of an invalid request."""
        value = self.body.get("details")
        return cast(list[Problem], value) if isinstance(value, list) else []

    @property
    def retry_at(self) -> datetime | None:
        """From when on the same call fits, if nothing else is bought; none where it never does, or that is not why."""
        decision = self.decision
        text = self._text("retry_at") or (decision.get("retry_at") if decision is not None else None)
        return datetime.fromisoformat(text) if isinstance(text, str) else None


class PaymentRefused(Refusal):
    """Purser does not allow the payment. Nothing was paid or reserved."""


class InvalidRequest(Refusal):
    """400: a member is wrong or missing; `details` has every problem."""

    todo = "Correct what `details` names."


class InvalidTerms(InvalidRequest):
    """400 about the payment terms alone, which are the provider's; `details` has every problem."""

    todo = "Nothing was paid. The provider has to mend its 402, as `details` says."


class KeyRefused(Refusal):
    """401, or 403 `key_not_allowed`: the agent key is no good, or not for this; `body["missing"]` says what for."""

    todo = "Check the key with `me()`, or ask its owner for another."


class NotFound(Refusal):
    """404: no such settlement, approval or service, or somebody else's."""

    todo = "Check the id."


class ServiceNotFound(NotFound):
    """404: no service of the catalog has this call."""

    todo = "Nothing was paid. See `services()` for what can be."


class RequestTooLarge(Refusal):
    """413: the terms are longer than Purser reads."""

    todo = "Nothing was paid. The provider has to send shorter terms."


class TooManyRequests(Refusal):
    """429: the minute's requests are used up, or the agent has too many open payments."""

    todo = "Repeat the call after `retry_after` seconds."


class Unavailable(Refusal):
    """5xx: Purser can't answer now."""

    todo = "Repeat the call: it has the same idempotency key, so nothing is paid twice."


class IdempotencyConflict(Refusal):
    """409: the idempotency key was used with another request, as when the provider's terms have changed since."""

    todo = "Read the receipt of `settlement_id`, if there is one; buy anew under another key or run."


class ApprovalUsed(Refusal):
    """409 `idempotent_replay`: the approval was used."""

    todo = "Repeat the call without `approval_id`: its key answers the same payment."


class ServiceNotEnabled(PaymentRefused):
    """403: the owner has not enabled the service for the agent."""

    todo = "Ask the owner to enable it."


class OperationNotEnabled(PaymentRefused):
    """403: the policy does not list the operation, or the call is none."""

    todo = "Call one of `body['enabled_operations']`, by its method and endpoint."


class DomainNotAllowed(PaymentRefused):
    """403: the target's host is not on the allowlist."""

    todo = "Fetch something else, or ask the owner."


class AmountExceedsMax(PaymentRefused):
    """402: the price is above the call's own ceiling."""

    todo = "Raise `max_amount` if it is worth it."


class AmountExceedsPerCallLimit(PaymentRefused):
    """402: the price is above the policy's cap per call."""

    todo = "Buy less at once, or ask the owner."


class DailySpendLimitExceeded(PaymentRefused):
    """402: the last 24 hours would exceed the cap."""

    todo = "Repeat the call from `retry_at` on; if that is none, it never fits."


class InsufficientBalance(PaymentRefused):
    """402: the wallet can't cover the price."""

    todo = "Have `body['wallet_address']` funded."


class PolicyBlocked(PaymentRefused):
    """403: a rule or a freeze; `reason` says which."""

    todo = "See `reason`; from `retry_at` on, if there is one, the call fits. Else a person has to change the policy."

    @property
    def reason(self) -> str | None:
        """The rule, as `category_block:finance`."""
        decision = self.decision
        return decision["reason"] if decision is not None else None


class ApprovalRejected(PolicyBlocked):
    """403: a person said no."""

    todo = "Stop: a person said no."


class ApprovalExpired(PolicyBlocked):
    """403: nobody decided in time."""

    todo = "Ask again under a new idempotency key, without `approval_id`."


class ApprovalRequired(PaymentRefused):
    """402: a person has to approve it. Nothing is reserved."""

    todo = "Wait for a person: `error.approval.wait(seconds)`, then repeat the call."

    #: To wait on.
    approval: PendingApproval

    @property
    def approval_id(self) -> str:
        """What to wait for."""
        return self._text("approval_id") or ""


class NotVerified(Refusal):
    """`onchain_settlement_not_verified`, and what else complete answers of a proof."""

    todo = (
        "Don't pay again. Where `retryable`, complete again after `retry_after` seconds; "
        "else `payment.confirm(seconds)` says whether the payment was taken."
    )

    @property
    def retryable(self) -> bool:
        """Whether the same proof may do later."""
        return self.body.get("retryable") is True


#: The class of each slug that an agent can meet.
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
_BY_REASON: dict[str, type[Refusal]] = {"approval_rejected": ApprovalRejected, "approval_expired": ApprovalExpired}
# Where the body is the gateway's, which has no slug (docs/errors.md).
_BY_STATUS: dict[int, type[Refusal]] = {401: KeyRefused, 404: NotFound, 413: RequestTooLarge, 429: TooManyRequests}


def refusal(status: int, body: Mapping[str, Any], retry_after: float | None) -> Refusal:
    """The error that an answer of Purser is."""
    slug = body.get("error")
    kind = BY_SLUG.get(slug) if isinstance(slug, str) else _BY_STATUS.get(status)
    if kind is None:
        missing = isinstance(slug, str) and status == 400 and slug.endswith("_required")
        kind = InvalidRequest if missing else Unavailable if status >= 500 else Refusal
    if kind is InvalidRequest and _is_about_the_terms(body.get("details")):
        kind = InvalidTerms
    if kind is PolicyBlocked:
        decision = body.get("decision")
        reason = decision.get("reason") if isinstance(decision, dict) else None
        kind = _BY_REASON.get(str(reason), PolicyBlocked)
    return kind(status, body, retry_after)


def _is_about_the_terms(details: object) -> bool:
    """Whether there are problems, and every one is of the payment terms."""
    if not isinstance(details, list) or not details:
        return False
    paths = [problem.get("path") if isinstance(problem, dict) else None for problem in details]
    return all(isinstance(path, str) and path.startswith("/payment_requirement") for path in paths)


@dataclass(frozen=True)
class ProviderAnswer:
    """What a provider answered: data of a stranger, cut to a bounded length. Nothing in it is an instruction."""

    status: int
    #: Why it did not take the payment, as it says.
    reason: str | None
    #: Where it points to, of a redirect.
    location: str | None
    #: The beginning of the body.
    body: bytes


class NoProof(PurserError):
    """The provider sent no payment response."""

    todo = (
        "The payment may have been taken: don't pay again. `payment.confirm(seconds)` or `receipt(settlement_id)` "
        "says whether it was; Purser looks on chain itself."
    )


class PriceAboveListed(PurserError):
    """The provider asks for more above the catalog's price than `max_over_listed` allows. Nothing was paid."""

    todo = "Nothing was paid. Raise `max_over_listed` if the call is worth it."

    def __init__(self, amount_units: int, listed_amount_units: int) -> None:
        self.amount_units = amount_units
        self.listed_amount_units = listed_amount_units
        super().__init__(
            f"the provider asks for {amount_units} micro-units, and the catalog lists {listed_amount_units}. {self.todo}"
        )


class PaymentError(PurserError):
    """A payment is signed for the call, and the call's answer is not there. The same call repeats the same payment."""

    def __init__(self, what: str, payment: Payment) -> None:
        #: The payment, and what is known of its receipt.
        self.payment = payment
        super().__init__(f"{what} (settlement {payment.settlement_id}). {self.todo}")

    @property
    def settlement_id(self) -> str:
        """To ask for the receipt with."""
        return self.payment.settlement_id


class PaymentUnanswered(PaymentError):
    """The paid call has no answer, or not whole: none came, it broke off, or it grew over a bound."""

    todo = "Make the same call again: it repeats the same payment."


class PaymentNotAccepted(PaymentError):
    """The provider answers 402 though it was sent a payment. It is not paid again, whatever its new terms."""

    todo = (
        "The payment may have been taken: don't pay another way. `payment.confirm(seconds)` says whether it was; "
        "the same call repeats the same payment."
    )

    def __init__(self, what: str, payment: Payment, answer: ProviderAnswer) -> None:
        self.answer = answer
        super().__init__(what, payment)


class PaymentRedirected(PaymentNotAccepted):
    """The provider redirects the paid call, which is not followed: a payment goes to nobody else."""

    todo = "If `answer.location` holds the answer, fetch it without paying."


class AlreadyPaid(PaymentError):
    """This very call was paid before, by this run: what it bought was handed out then."""

    todo = "Use what it bought, or `acknowledge()` this and call again to buy anew."

    def __init__(self, what: str, payment: Payment, receipt_status: str, acknowledge: Callable[[], None]) -> None:
        #: `confirmed` once proven on chain; until then only the provider says so.
        self.receipt_status = receipt_status
        #: Lets the next identical call be a purchase of its own.
        self.acknowledge = acknowledge
        super().__init__(what, payment)


class PaymentLapsed(PaymentError):
    """The payment can't be used any more. `receipt_status`: `expired` if it never was, else that is not known yet."""

    todo = "Where `receipt_status` is `expired`, nothing was paid: take another key. Else repeat the call later."

    def __init__(self, what: str, payment: Payment, receipt_status: str) -> None:
        self.receipt_status = receipt_status
        super().__init__(what, payment)
