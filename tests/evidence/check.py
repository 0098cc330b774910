#!/usr/bin/env python3
"""Verifies a sample of the evidence with third-party tools: joserfc for the statements, and aics-tlog for the log.

    check.py <folder>   as shared/evidence/examples/evidence_sample.rs writes it

This script itself parses only the lines of a tlog-proof, because aics-tlog has no parser for them.
"""

import base64
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aics_tlog as tlog
from aics_tlog.tiles import parse_entry_bundle, parse_entry_bundle_path
from joserfc import jws
from joserfc.jwk import KeySet

ORIGIN = "log.example/decisions"
CONSISTENCY = Path(__file__).parents[2] / "docs/evidence/consistency.py"


def decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def verified(statement: str, keys: KeySet) -> dict:
    """Returns the payload of a statement whose signature is valid."""
    return json.loads(jws.deserialize_compact(statement, keys, algorithms=["ES256"]).payload)


def split(proof: str) -> tuple[bytes, int, list[bytes], str]:
    """Returns the statement, the index, the hashes and the checkpoint of a tlog-proof."""
    head, _, checkpoint = proof.partition("\n\n")
    header, extra, index, *hashes = head.split("\n")
    assert header == "c2sp.org/tlog-proof@v1" and extra.startswith("extra ") and index.startswith("index ")
    return decoded(extra[6:]), int(index[6:]), [decoded(line) for line in hashes], checkpoint


def refuses(what: str, check: Callable[[], object]) -> None:
    try:
        accepted = check() is not False
    except Exception as error:  # noqa: BLE001 - each library has errors of its own
        print(f"  {what}: refused ({type(error).__name__})")
        return
    assert not accepted, f"{what} was accepted"
    print(f"  {what}: refused")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves the objects of a log at the paths at which the function serves them below `/log`."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def stranger(folder: Path) -> None:
    """Runs the published check between two checkpoints against the log, a fork of it, and the log cut to an older size.
    """

    def check(log: Path, kept: Path) -> str:
        # Entries are not public.
        shutil.rmtree(log / "tile/entries", ignore_errors=True)
        with served(log) as url:
            run = subprocess.run(
                [sys.executable, CONSISTENCY, url, folder / "trust.json", kept], capture_output=True, text=True, check=False
            )
        if run.returncode != 0:
            raise ValueError(run.stderr.strip().rsplit("\n", 1)[-1])
        return run.stdout.strip()

    with tempfile.TemporaryDirectory() as copies:
        log, fork, cut = (Path(copies) / name for name in ("log", "fork", "cut"))
        shutil.copytree(folder / "log", log)
        shutil.copytree(folder / "fork", fork)
        shutil.copytree(folder / "log", cut)
        shutil.copy(folder / "older-checkpoint", cut / "checkpoint")
        older = folder / "older-checkpoint"
        print(f"a stranger: {check(log, older)}")
        refuses("a forked log", lambda: check(fork, older))
        refuses("a log that was cut", lambda: check(cut, folder / "log/checkpoint"))


def main(folder: Path) -> None:
    read = lambda name: (folder / name).read_text(encoding="utf-8")
    keys = KeySet.import_key_set(json.loads(read("jwks.json")))
    for key in keys.keys:
        assert key.kid == key.thumbprint(), key.kid
    statement, vkey, witness = read("statement.jws"), tlog.parse_vkey(read("vkey.txt")), tlog.parse_vkey(read("witness.txt"))

    # Verifies the checkpoint and its witness.
    policy = tlog.WitnessPolicy(quorum=1, witnesses=(witness,))

    def opened(text: str):
        found = tlog.verify_checkpoint(tlog.parse_note(text), vkey, expected_origin=ORIGIN, policy=policy)
        if not found.ok:
            raise ValueError(found.error)
        return found

    checkpoint = opened(read("log/checkpoint"))

    # Verifies every object of the log, and every statement in it.
    reader = tlog.FileSystemTileReader(folder / "log")
    audit = tlog.audit_tiles(reader, checkpoint.size, checkpoint.root)
    entries = [tlog.read_entry(reader, index, checkpoint.size) for index in range(checkpoint.size)]
    for entry in entries:
        verified(entry.decode("ascii"), keys)
    print(f"joserfc: {len(entries)} statements; aics-tlog: {audit.tiles} tiles, {audit.bundles} bundles, the witness")

    # The objects are those that aics-tlog creates from the entries, and partial ones of older sizes.
    for path, bytes_ in tlog.TileWriter(entries).materialise().items():
        assert (folder / "log" / path).read_bytes() == bytes_, path
    for bundle in (folder / "log/tile/entries").rglob("*"):
        if bundle.is_file():
            index, _ = parse_entry_bundle_path(str(bundle.relative_to(folder / "log")))
            held = parse_entry_bundle(bundle.read_bytes())
            assert held == entries[256 * index : 256 * index + len(held)], bundle

    # Verifies the proof, which contains the statement.
    extra, index, hashes, note = split(read("proof.txt"))
    assert extra == statement.encode() == entries[index]
    proven = opened(note)
    assert tlog.verify_leaf_inclusion(extra, index, proven.size, hashes, proven.root)
    assert hashes == tlog.inclusion_proof_from_tiles(reader, index, proven.size)

    # The current log begins with the log of the older checkpoint.
    older = tlog.verify_checkpoint(tlog.parse_note(read("older-checkpoint")), vkey, expected_origin=ORIGIN)
    assert older.ok, older.error
    path = tlog.consistency_proof_from_tiles(reader, older.size, checkpoint.size)
    assert tlog.verify_consistency(older.size, checkpoint.size, older.root, checkpoint.root, path)
    print(f"aics-tlog: the proof of entry {index}, and the log of {older.size} in that of {checkpoint.size}")

    stranger(folder)

    header, payload, signature = statement.split(".")
    other = entries[0].decode("ascii").split(".")[1]
    refuses("another payload", lambda: verified(f"{header}.{other}.{signature}", keys))
    refuses("a line break after the statement", lambda: verified(statement + "\n", keys))
    refuses("another index", lambda: tlog.verify_leaf_inclusion(extra, index - 1, proven.size, hashes, proven.root))
    refuses("another size", lambda: opened(note.replace("\n300\n", "\n301\n")))
    refuses("no cosignature", lambda: opened("\n".join(note.split("\n")[:-2]) + "\n"))
    refuses("another older root", lambda: tlog.verify_consistency(older.size, checkpoint.size, bytes(32), checkpoint.root, path))
    for changed in ("tile/0/000", "tile/0/001.p/44", "tile/1/000.p/1", "tile/entries/000", "tile/entries/001.p/44"):
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(folder / "log", copy, dirs_exist_ok=True)
            file = Path(copy) / changed
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
            audit_of = lambda: tlog.audit_tiles(tlog.FileSystemTileReader(copy), checkpoint.size, checkpoint.root)
            refuses(f"{changed} with another bit", audit_of)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
