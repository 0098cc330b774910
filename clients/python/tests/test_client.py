"""Tests that need no stack: settings, amounts, keys, payment requirements and ordinals."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime

import pytest

from purser_client import Purser, PurserClient, errors
from purser_client.config import Call, Ordinals, call_key, units
from purser_client.terms import MAX_TERMS_BYTES, encoded, read_terms

KEY = "gak_pub_a:gak_sec_" + "5" * 64
CALL = Call.of("get", "https://api.example.com/v1/weather", b"")


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("0.05", 50_000), ("1", 1_000_000), ("0.000001", 1), ("12.5", 12_500_000), (50_000, 50_000), ("0", 0), (0, 0)],
)
def test_an_amount_is_dollars_or_micro_units(amount: str | int, expected: int) -> None:
    assert units(amount) == expected


@pytest.mark.parametrize("amount", ["", "1e3", "-1", "0.0000001", ".5", "01", "1,5", "$1", "٣", True, 0.05, -1, 2**53])
def test_no_other_form_is_an_amount(amount: object) -> None:
    with pytest.raises(errors.ConfigurationError):
        units(amount)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://purser.example"},
        {"url": "https://user:word@purser.example"},
        {"url": "https://purser.example?x"},
        {"url": "purser.example"},
        {"key": "gak_pub_a"},
        {"key": KEY + "\n"},
        {"run": ""},
        {"max_amount": "a cent"},
        {"timeout": 0},
        {"answer_timeout": float("inf")},
        {"wait_for_approval": float("nan")},
    ],
)
def test_a_wrong_setting_is_told_without_the_key(wrong: dict[str, object]) -> None:
    with pytest.raises(errors.ConfigurationError) as told:
        Purser(**{"url": "https://purser.example", "key": KEY, "run": "job-42", **wrong})  # type: ignore[arg-type]
    assert "5555" not in str(told.value)


def test_url_and_key_come_from_the_environment_unless_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PURSER_URL", raising=False)
    monkeypatch.delenv("PURSER_KEY", raising=False)
    with pytest.raises(errors.ConfigurationError, match="PURSER_URL"):
        Purser(key=KEY, run="job-42")
    with pytest.raises(errors.ConfigurationError, match="PURSER_KEY"):
        PurserClient("https://purser.example")
    monkeypatch.setenv("PURSER_URL", "https://purser.example")
    monkeypatch.setenv("PURSER_KEY", KEY)
    assert (Purser(run="job-42").url, Purser(run="job-42").key) == ("https://purser.example", KEY)
    assert Purser(url="http://localhost", run="job-42").url == "http://localhost"
    PurserClient().close()


def test_a_providers_fault_is_not_the_callers() -> None:
    def told(*paths: str) -> errors.Refusal:
        details = [{"path": path, "message": ""} for path in paths]
        return errors.refusal(400, {"error": "invalid_request", "message": "", "details": details}, None)

    terms = told("/payment_requirement/accepts")
    assert isinstance(terms, errors.InvalidTerms)
    assert "provider" in terms.todo
    for mixed in (told("/payment_requirement", "/max_payment_units"), told("/metadata"), told()):
        assert type(mixed) is errors.InvalidRequest


def test_retryable_decides_whatever_the_status() -> None:
    def is_passing(status: int, **body: object) -> bool:
        return errors.refusal(status, {"error": "onchain_settlement_not_verified", "message": "", **body}, None).is_passing

    assert is_passing(422, retryable=True)
    assert is_passing(503)
    assert not is_passing(503, retryable=False)
    assert not is_passing(422)


def test_the_url_may_be_plain_http_on_this_machine() -> None:
    for url in ("http://127.0.0.1:3000", "http://localhost:3000/", "http://[::1]", "https://purser.example/base/"):
        PurserClient(url, KEY).close()


def test_a_key_is_the_digest_of_what_it_is_of() -> None:
    digest = hashlib.sha256(b"a body").hexdigest().encode()
    url = b"https://api.example.com/v1/k%C3%B6ln?a=b"
    parts = (b"job-42", b"POST", url, digest, b"3")
    expected = hashlib.sha256(b"purser-call-v1\n" + b"".join(b"%d:%b\n" % (len(part), part) for part in parts))
    call = Call.of("post", "https://api.example.com/v1/k%C3%B6ln?a=b#there", b"a body")
    assert call_key("job-42", call, 3) == expected.hexdigest()


def test_a_url_is_as_it_is_sent() -> None:
    assert (
        Call.of("GET", "https://name:word@api.example.com:8443/a?b=c#d", b"").url
        == "https://api.example.com:8443/a?b=c"
    )


def test_what_failed_gives_its_number_back_and_calls_at_once_have_others() -> None:
    ordinals = Ordinals("job-42")
    keys = [call_key("job-42", CALL, number) for number in range(5)]
    first, second = ordinals.next(CALL), ordinals.next(CALL)
    assert [first.key, second.key] == keys[1:3]
    first.failed()
    second.over()
    again = ordinals.next(CALL)
    assert again.key == keys[1]
    again.over()
    again.failed()
    third = ordinals.next(CALL)
    assert third.key == keys[3]
    third.failed()
    assert ordinals.next(CALL).key == keys[3]
    assert ordinals.next(Call.of("GET", "https://api.example.com/v1/other", b"")).key != keys[1]


def test_a_held_ordinal_is_given_to_nobody_else() -> None:
    ordinals = Ordinals("job-42")
    keys = [call_key("job-42", CALL, number) for number in range(6)]
    first, second = ordinals.next(CALL), ordinals.next(CALL)
    # A later call ends while the first call is still running.
    second.over()
    assert ordinals.next(CALL).key == keys[3]
    # Releasing a call again does not release an ordinal that another call has reserved since.
    first.failed()
    again = ordinals.next(CALL)
    first.failed()
    assert (again.key, ordinals.next(CALL).key) == (keys[1], keys[4])
    # Acknowledging the first attempt marks the ordinal as used for both attempts.
    first.over()
    again.failed()
    assert ordinals.next(CALL).key == keys[5]


ENTRY = {"scheme": "exact", "network": "base", "vendor": {"deep": [1.5, None]}}
TERMS = {"x402Version": 2, "accepts": [ENTRY], "of the vendor": "ü"}


def header(text: bytes) -> str:
    return base64.b64encode(text).decode()


def test_terms_are_read_whole() -> None:
    assert read_terms(header(json.dumps(TERMS).encode()), b"{}") == TERMS
    v1 = {**TERMS, "x402Version": 1}
    assert read_terms(None, json.dumps(v1).encode()) == v1


def test_terms_are_sent_as_they_were_written() -> None:
    text = b'{ "x402Version":2.0,"accepts":[{"precise":12345678901234567890.10}],"error":"\\ud800" }'
    body = {"payment_requirement": read_terms(header(text), b""), "max_payment_units": 5, "approval_id": None}
    assert encoded(body) == b'{"payment_requirement":' + text + b',"max_payment_units":5,"approval_id":null}'
    marked = read_terms(None, b"\xef\xbb\xbf" + text.replace(b"2.0", b"1"))
    assert encoded({"payment_requirement": marked}).startswith(b'{"payment_requirement":{ "x402Version":1,')


@pytest.mark.parametrize("body", [b"", b"declined", b'{"error": "declined"}', b"[]", b"[" * 5000])
def test_another_402_is_no_offer(body: bytes) -> None:
    assert read_terms(None, body) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"x402Version": 2}',
        b'{"x402Version": 2, "accepts": []}',
        b'{"x402Version": 2, "accepts": ["free"]}',
        b'{"x402Version": "2", "accepts": [{}]}',
        b'{"x402Version": true, "accepts": [{}]}',
        b'{"x402Version": 3, "accepts": [{}]}',
        b'{"x402Version": 2, "accepts": [{}], "accepts": [{}, {}]}',
        b'{"x402Version": 2, "accepts": [{"amount": NaN}]}',
        b'{"x402Version": 2, "accepts": [{"amount": 1e999}]}',
        b'{"x402Version": 2, "accepts": [{"amount": ' + b"9" * 5000 + b"}]}",
        b'{"x402Version": 2, "accepts": ' + b"[" * 20000,
        b'{"x402Version": 2, "accepts": [{}]}' + b" " * MAX_TERMS_BYTES,
        b'\xff{"x402Version": 2, "accepts": [{}]}',
    ],
)
def test_unreadable_terms_are_told(text: bytes) -> None:
    with pytest.raises(errors.InvalidOffer):
        read_terms(header(text), b"")


def test_a_header_is_read_in_every_form_of_base64() -> None:
    # The base64 form of this text contains `+`, `/` and padding.
    terms = {"x402Version": 2, "accepts": [ENTRY], "error": ">>>>>?????"}
    good = header(json.dumps(terms, ensure_ascii=False).encode())
    assert {"+", "/", "="} <= set(good)
    url_safe = good.replace("+", "-").replace("/", "_")
    for form in (good, good.rstrip("="), url_safe, url_safe.rstrip("="), f" {good}\t", f"{good[:40]}\r\n {good[40:]}"):
        assert read_terms(form, b"") == terms, form


def test_the_header_may_hold_terms_of_version_1() -> None:
    v1 = {**TERMS, "x402Version": 1}
    assert read_terms(header(json.dumps(v1).encode()), b"") == v1


def test_a_header_that_is_no_base64_is_told() -> None:
    good = header(json.dumps(TERMS).encode())
    for wrong in (f"{good}, {good}", f"{good}{good}", good[:-3], good.rstrip("=")[:-1], "%%%", "ü", "=", ""):
        with pytest.raises(errors.InvalidOffer):
            read_terms(wrong, b"")


def test_an_error_says_when_and_what_to_do() -> None:
    body = {"error": "policy_blocked", "message": "no", "decision": {"reason": "budget_limit:7", "checks": []}}
    body["decision"]["retry_at"] = "2026-11-24T02:41:13.418275Z"  # type: ignore[index]
    error = errors.refusal(403, body, None)
    assert isinstance(error, errors.PolicyBlocked)
    assert error.retry_at == datetime(2026, 11, 24, 2, 41, 13, 418275, tzinfo=UTC)
    assert (error.reason, error.slug, error.checks) == ("budget_limit:7", "policy_blocked", [])
    assert error.todo in str(error)
    for reason, kind in [
        ("approval_rejected", errors.ApprovalRejected),
        ("catalog_payee:pay_to_not_yet_accepted", errors.NotYetAccepted),
        ("catalog_payee:pay_to_not_in_catalog", errors.NotAsListed),
        ("catalog_price:price_above_catalog_maximum", errors.NotAsListed),
        ("category_block:finance", errors.PolicyBlocked),
    ]:
        assert type(errors.refusal(403, {**body, "decision": {"reason": reason}}, None)) is kind


@pytest.mark.parametrize(
    ("status", "slug", "kind"),
    [
        (400, "max_payment_units_required", errors.InvalidRequest),
        (429, None, errors.TooManyRequests),
        (502, None, errors.Unavailable),
        (418, "of_another_time", errors.Refusal),
        (503, "of_another_time", errors.Unavailable),
    ],
)
def test_an_error_without_a_class_of_its_own_has_its_status_s(
    status: int, slug: str | None, kind: type[errors.Refusal]
) -> None:
    error = errors.refusal(status, {} if slug is None else {"error": slug}, 3.0)
    assert type(error) is kind
    assert error.retry_after == 3.0
