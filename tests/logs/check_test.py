#!/usr/bin/env python3
"""Tests that the search finds secrets in logs in every form."""

import base64
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from urllib.parse import quote

import check

KEY = "0123456789abcdef" * 4
CODE = "BCDF-GHJK"
NOTE = 'pay "Zoë"\nin full, please?~'


def found(secret, logged):
    """Whether the secret is found in a line with this body."""
    line = json.dumps({"level": "DEBUG", "message": "request", "body": logged}) + "\n"
    return [what for what, _ in check.find(line, [{"what": "it", "text": secret}])] == ["it"]


class TheCheck(unittest.TestCase):
    def test_finds_a_text_in_every_form_that_programs_write(self):
        for secret in (KEY, CODE, NOTE):
            raw = secret.encode()
            values = [raw, bytes.fromhex(secret)] if secret == KEY else [raw]
            written = [secret, secret.upper(), quote(secret, safe=""), json.dumps(secret), json.dumps({"a": secret}, ensure_ascii=False)]
            for value in values:
                written += [value.hex(), value.hex().upper(), str(list(value)), json.dumps(list(value))]
                for before in (b"", b"a", b"ab", b"abc"):
                    whole = before + value + b"after"
                    written += [base64.b64encode(whole).decode(), base64.urlsafe_b64encode(whole).decode()]
                    written += [base64.b64encode(before + value).decode()]
            for text in written:
                with self.subTest(text=text):
                    self.assertTrue(found(secret, f"before {text} after"))

    def test_finds_nothing_where_nothing_is(self):
        for text in (KEY[:-1], KEY[::-1], base64.b64encode(KEY[1:].encode()).decode(), ""):
            with self.subTest(text=text):
                self.assertFalse(found(KEY, text))

    def test_fails_where_too_little_was_recorded(self):
        line = json.dumps({"message": "request"}) + "\n"
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ends(folder), 2)
            (Path(folder) / "one.log").write_text(line * check.MIN_LINES)
            (Path(folder) / "one.secrets").write_text("")
            self.assertEqual(ends(folder), 2)
            (Path(folder) / "one.secrets").write_text(json.dumps({"what": "it", "text": "request"}) + "\n")
            self.assertEqual(ends(folder), 1)


def ends(folder):
    """Returns the exit status for a folder."""
    run = subprocess.run([sys.executable, check.__file__, folder], capture_output=True, check=False)
    return run.returncode


if __name__ == "__main__":
    unittest.main()
