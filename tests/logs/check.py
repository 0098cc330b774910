#!/usr/bin/env python3
"""Searches the functions' logs of the whole suite for secrets.

    tests/logs/check.py <folder>

The folder is the one that PURSER_LOGS named when the tests ran (infra/local/src/log_audit.rs). It has, for each process, its
log lines at the lowest level and the texts that must not be in them. A text is searched as it is, and in the forms in which
programs write bytes: hexadecimal, base64 at any offset, percent-encoded, and as a list of numbers.

Exit status: 0, nothing was found; 1, a secret was found; 2, too little was recorded to decide.
"""

import base64
import json
import re
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import quote

# The minimum number of lines and secrets in the logs of a whole suite. Far lower numbers mean that a part of the
# recording has stopped.
MIN_LINES = 8_000
MIN_SECRETS = {
    "a value of Secrets Manager": 400,
    "a secret at the start": 10,
    "an agent key": 200,
    "an authorization": 250,
    "an operator's token": 3,
    "a cookie": 4,
    "a sign-in": 3,
    "a form's token": 1,
    "a token": 16,
    "a user code": 2,
    "a state": 2,
    "a signed payment": 300,
    "a payment's signature or nonce": 600,
    "the body": 200,
}
# Messages that are logged only if the suite makes payments, requests approvals, causes failures, edits, and starts
# functions.
MESSAGES = {
    "approval.staged", "catalog.edited", "function.stopped", "grant.created", "grant.ended", "grant.redeemed",
    "grant.reused", "payment.completed", "payment.decided", "payment.replayed",
    "probe.call", "request", "request.failed", "rpc.failed", "rpc.retried", "session.refused", "store.contended",
}


def main():
    folder = Path(sys.argv[1])
    lines, secrets, messages, found = 0, Counter(), set(), []
    for path in sorted(folder.glob("*.log")):
        log = path.read_text()
        texts = [json.loads(line) for line in path.with_suffix(".secrets").read_text().splitlines()]
        lines += log.count("\n")
        secrets.update(re.sub("^the body of .*", "the body", text["what"], flags=re.DOTALL) for text in texts)
        messages |= set(re.findall(r'"message":"([^"]*)"', log))
        found += find(log, texts)
    for what, line in found:
        print(f"logs: {what} was logged: {line}", file=sys.stderr)
    if found:
        return 1
    missing = [f"{MIN_LINES} lines, and there are {lines}"] if lines < MIN_LINES else []
    missing += [
        f"{least} times {what}, and there are {secrets[what]}"
        for what, least in MIN_SECRETS.items() if secrets[what] < least
    ]
    missing += [f"a line `{message}`" for message in sorted(MESSAGES - messages)]
    for what in missing:
        print(f"logs: a whole suite has {what}", file=sys.stderr)
    if missing:
        return 2
    print(f"logs: {lines} lines, and none of {secrets.total()} secrets in them")
    return 0


def find(log, texts):
    """The texts that were logged, each with the first line that contains it."""
    plain = "\n".join([log, *strings(log), ""])
    lower = plain.lower()
    found = []
    for text in texts:
        folded, exact = forms(text["text"])
        places = [lower.find(form) for form in folded] + [plain.find(form) for form in exact]
        at = max(places)
        if at >= 0:
            start, end = plain.rfind("\n", 0, at) + 1, plain.find("\n", at)
            found.append((text["what"], plain[start:end][:1_000]))
    return found


def strings(log):
    """The strings in all lines, without JSON escapes."""
    def walk(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for member in value.values():
                yield from walk(member)
        elif isinstance(value, list):
            for member in value:
                yield from walk(member)
    for line in log.splitlines():
        yield from walk(json.loads(line))


def forms(text):
    """Returns the forms of a text in a log: case-insensitive forms, and case-sensitive ones."""
    raw = text.encode()
    folded = {text, quote(text, safe=""), "".join(f"%{byte:02x}" for byte in raw)}
    # The forms of the text in a JSON body.
    folded |= {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    folded = {form.lower() for form in folded}
    exact = set()
    binary = [raw]
    if len(text) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]{32,}", text):
        binary.append(bytes.fromhex(text))
    for value in binary:
        folded |= {value.hex(), ", ".join(map(str, value)), ",".join(map(str, value))}
        for offset in range(3):
            # The characters that depend only on these bytes, and not on those before or after them.
            encoded = base64.b64encode(bytes(offset) + value).decode().rstrip("=")
            known = encoded[(offset * 8 + 5) // 6:len(encoded) - (1 if (offset + len(value)) % 3 else 0)]
            exact |= {known, known.replace("+", "-").replace("/", "_")}
    return folded, exact


if __name__ == "__main__":
    sys.exit(main())
