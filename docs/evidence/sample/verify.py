#!/usr/bin/env python3
"""Verifies the evidence of a payment, a block and an approved escalation by the keys of trust.json, with public
libraries alone.

    pip install aics-tlog joserfc        # Python 3.12 or later
    python verify.py
"""

import base64
import hashlib
import json
from pathlib import Path

import aics_tlog
from joserfc import jws
from joserfc.jwk import KeySet

folder = Path(__file__).parent
trust = json.loads((folder / "trust.json").read_text())
keys = KeySet.import_key_set(trust["jwks"])
[log] = trust["logs"]


def verify(signed: dict) -> dict:
    """Returns the payload of a statement that a key signed and that is in the log."""
    payload = json.loads(jws.deserialize_compact(signed["statement"], keys, algorithms=["ES256"]).payload)
    # A tlog-proof: the statement, its index, hashes, an empty line, and the log's signed checkpoint.
    lines, _, checkpoint = signed["proof"].partition("\n\n")
    _, _, index, *hashes = lines.split("\n")
    note = aics_tlog.parse_note(checkpoint)
    tree = aics_tlog.verify_checkpoint(note, aics_tlog.parse_vkey(log["vkey"]), expected_origin=log["origin"])
    assert tree.ok, tree.error
    place, hashes = int(index.removeprefix("index ")), [base64.b64decode(line) for line in hashes]
    assert aics_tlog.verify_leaf_inclusion(signed["statement"].encode(), place, tree.size, hashes, tree.root)
    print(f"{payload['statement']}, entry {place} of {tree.size} in the log {log['origin']}")
    return payload


def hash_of(document: object) -> str:
    """The SHA-256 of the RFC 8785 form, which this is for documents without fractions whose names are ASCII."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


for name in ("receipt", "block", "escalation"):
    evidence = json.loads((folder / f"{name}.json").read_text())
    decision = verify(evidence["decision"])
    hashed = ("transaction_id", "settlement_id", "approval_id", "facts", "result", "reason")
    assert decision["decision_hash"] == hash_of({part: decision[part] for part in hashed})
    for document, content in evidence["inputs"].items():
        assert decision["inputs"][f"{document}_hash"] == hash_of(content), document
    checks = ", ".join(f"{check['name']} {check['outcome']}" for check in decision["facts"]["checks"])
    print(f"  {decision['result']}, {decision['reason']}: {checks}")
    if evidence["receipt"]:
        paid = verify(evidence["receipt"])["settlement"]
        assert paid["amount_units"] == decision["facts"]["amount_units"] and paid["pay_to"] == decision["facts"]["pay_to"]
        print(f"  paid {paid['amount_units']} units in {paid['tx_hash']}")
    for signed in evidence["changes"]:
        change = verify(signed)
        assert change["changed_decision"]["decision_hash"] == decision["decision_hash"]
        print(f"  {change['change']} by the {change['approval']['decided_by']} at {change['changed_at']}")
