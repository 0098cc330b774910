#!/usr/bin/env python3
"""Checks by a public library alone that a log begins with all entries of a checkpoint that you kept.

    pip install aics-tlog        # Python 3.12 or later
    python consistency.py https://purser.example/log trust.json kept-checkpoint

Reads the log's checkpoint and the tiles of hashes that the proof needs. Exits with 0, or with an error if the log was
cut, forked or rewritten.
"""

import json
import sys
from pathlib import Path
from urllib.request import urlopen

import aics_tlog

url, trust, kept = sys.argv[1:]
[log] = json.loads(Path(trust).read_text())["logs"]


def tree(checkpoint: str):
    note = aics_tlog.parse_note(checkpoint)
    found = aics_tlog.verify_checkpoint(note, aics_tlog.parse_vkey(log["vkey"]), expected_origin=log["origin"])
    assert found.ok, found.error
    return found


older, newer = tree(Path(kept).read_text()), tree(urlopen(f"{url}/checkpoint").read().decode())
assert newer.size >= older.size, f"the log was cut from {older.size} entries to {newer.size}"
proof = aics_tlog.consistency_proof_from_tiles(aics_tlog.HttpTileReader(url), older.size, newer.size)
assert aics_tlog.verify_consistency(older.size, newer.size, older.root, newer.root, proof), "the log was forked"
print(f"{log['origin']}: the {newer.size} entries begin with the {older.size} of the kept checkpoint")
