#!/usr/bin/env python3
"""Verifies proof.txt by the keys of trust.json, with public libraries alone.

    pip install aics-tlog joserfc        # Python 3.12 or later
    python verify.py
"""

import base64
import json
from pathlib import Path

import aics_tlog
from joserfc import jws
from joserfc.jwk import KeySet

folder = Path(__file__).parent
trust = json.loads((folder / "trust.json").read_text())

# A tlog-proof: the statement, its index, hashes, an empty line, and the log's signed checkpoint.
lines, _, checkpoint = (folder / "proof.txt").read_text().partition("\n\n")
_, extra, index, *hashes = lines.split("\n")
statement = base64.b64decode(extra.removeprefix("extra "))
hashes = [base64.b64decode(line) for line in hashes]

# Its signature.
keys = KeySet.import_key_set(trust["jwks"])
payload = json.loads(jws.deserialize_compact(statement, keys, algorithms=["EdDSA", "ES256"]).payload)

# The log's signature, and the place of the statement in the log.
[log] = trust["logs"]
note = aics_tlog.parse_note(checkpoint)
tree = aics_tlog.verify_checkpoint(note, aics_tlog.parse_vkey(log["vkey"]), expected_origin=log["origin"])
assert tree.ok, tree.error
place = int(index.removeprefix("index "))
assert aics_tlog.verify_leaf_inclusion(statement, place, tree.size, hashes, tree.root)

print(f"{payload['statement']}, entry {place} of {tree.size} in the log {log['origin']}:")
print(json.dumps(payload, indent=2))
