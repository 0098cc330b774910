#!/usr/bin/env python3
"""Verifies the evidence of two days with third-party tools, and runs docs/archive/duckdb.sql with DuckDB.

    day.py <folder>   as functions/stream/examples/evidence_day.rs writes it
"""

import base64
import gzip
import json
import sys
from pathlib import Path

import aics_tlog as tlog
import duckdb
from check import verified
from joserfc.jwk import KeySet

QUERIES = Path(__file__).parents[2] / "docs/archive/duckdb.sql"


def main(folder: Path) -> None:
    trust = json.loads((folder / "log/trust.json").read_text(encoding="utf-8"))
    keys = KeySet.import_key_set(trust["jwks"])
    current, earlier = (key["kid"] for key in trust["jwks"]["keys"])
    [log] = trust["logs"]
    note = tlog.parse_note((folder / "log/checkpoint").read_text(encoding="utf-8"))
    head = tlog.verify_checkpoint(note, tlog.parse_vkey(log["vkey"]), expected_origin=log["origin"])
    assert head.ok, head.error
    reader = tlog.FileSystemTileReader(folder / "log")
    tlog.audit_tiles(reader, head.size, head.root)
    entries = [tlog.read_entry(reader, index, head.size).decode("ascii") for index in range(head.size)]
    payloads = [verified(entry, keys) for entry in entries]
    kids = [json.loads(header_of(entry))["kid"] for entry in entries]
    assert kids == sorted(kids, key=[earlier, current].index) and set(kids) == {earlier, current}, "the key was replaced once"
    print(f"joserfc and aics-tlog: {head.size} statements of the function, by a key of a secret, then by one in KMS")

    # Each entry is archived once. The names of the objects are the indices of their entries.
    lines = []
    for path in sorted((folder / "archive/statements").glob("*/*.jsonl.gz")):
        first, last = path.name.removesuffix(".jsonl.gz").split("-")
        of_object = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        assert [line["log_index"] for line in of_object] == list(range(int(first), int(last) + 1)), path
        assert all(line["logged_at"].startswith(path.parent.name.removeprefix("date=")) for line in of_object), path
        lines += of_object
    assert [line["statement"] for line in lines] == entries

    [create, by_agent, by_result, unpaid, whole] = queries(folder / "archive")
    database = duckdb.connect()
    database.execute(create)
    receipts = [payload["settlement"] for payload in payloads if payload["statement"] == "purser.receipt.v1"]
    decisions = [payload for payload in payloads if payload["statement"] == "purser.decision.v1"]
    days = database.execute(by_agent).fetchall()
    assert len(days) == 2 and sum(payments for _, _, payments, _ in days) == len(receipts), days
    paid = sum(round(usdc * 1_000_000) for *_, usdc in days)
    assert paid == sum(receipt["amount_units"] for receipt in receipts), days
    results = {(result, reason): count for result, reason, count, _ in database.execute(by_result).fetchall()}
    assert sum(results.values()) == len(decisions) and any(result == "block" for result, _ in results), results
    allowed = {payload["settlement_id"] for payload in decisions if payload["result"] == "allow"}
    settled = {payload["settlement_id"] for payload in payloads if payload["statement"] == "purser.receipt.v1"}
    assert {row[0] for row in database.execute(unpaid).fetchall()} == allowed - settled != set()
    assert database.execute(whole).fetchall() == [(head.size, head.size, head.size)]
    print(f"DuckDB: {len(lines)} lines of the archive, {len(days)} days; the queries of docs/archive agree with the log")


def header_of(statement: str) -> bytes:
    header = statement.split(".", 1)[0]
    return base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))


def queries(archive: Path) -> list[str]:
    """Returns the documented queries, with a folder in place of the bucket."""
    text = QUERIES.read_text(encoding="utf-8").replace("s3://BUCKET", str(archive))
    return [query for query in text.split(";") if query.strip()]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
