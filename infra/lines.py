#!/usr/bin/env python3
"""Compares the lines of each product crate with its budget in infra/lines.toml.

    infra/lines.py          fails if a crate exceeds its budget, or if a budget is no longer needed
    infra/lines.py --write  writes the present lines into infra/lines.toml

A crate can grow only together with its budget, so a reviewer sees the growth. The product is `shared` and `functions`.
All lines count except blank lines, comments and tests. Tests are in `mod tests` at the end of a file, or in a file whose
module is declared with `#[cfg(test)]`.
"""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = ROOT / "infra" / "lines.toml"
TEST_MODULE = r"^#\[cfg\(test\)\]\n(?:#\[[^\]]*\]\n)*(?:pub(?:\([a-z]+\))? )?mod (\w+)"
TESTS = re.compile(TEST_MODULE + r" \{", re.M)
TEST_FILES = re.compile(TEST_MODULE + ";", re.M)
# A budget that exceeds the lines by more than this must be lowered, so that the next change does not use up the
# difference unseen.
SLACK = 40


def code_lines(text):
    """Counts the lines of a Rust file that are product code."""
    product = TESTS.split(text, maxsplit=1)[0]
    return sum(1 for line in product.splitlines() if line.strip() and not line.lstrip().startswith("//"))


def lines_by_crate():
    listed = subprocess.run(["git", "ls-files", "--", "shared/*.rs", "functions/*.rs"], cwd=ROOT, check=True, capture_output=True, text=True)
    sources = {Path(path): (ROOT / path).read_text() for path in listed.stdout.split() if "/src/" in path}
    tests = {path.with_name(f"{name}.rs") for path, text in sources.items() for name in TEST_FILES.findall(text)}
    lines = Counter()
    for path, text in sources.items():
        if path not in tests:
            lines[str(path).partition("/src/")[0]] += code_lines(text)
    return dict(sorted(lines.items()))


def violations(lines, budgets):
    """Returns the differences between lines and budgets, each as a sentence that says what to do."""
    for crate in sorted(lines.keys() | budgets.keys()):
        count, budget = lines.get(crate, 0), budgets.get(crate, 0)
        if count > budget:
            yield f"{crate} has {count:,} lines and a budget of {budget:,}: delete {count - budget:,}, or raise its row and say what they buy"
        elif budget - count > SLACK:
            yield f"{crate} has {count:,} lines and a budget of {budget:,}: lower its row"


def main(arguments):
    lines = lines_by_crate()
    if arguments == ["--write"]:
        rows = "".join(f'"{crate}" = {count}\n' for crate, count in lines.items())
        BUDGETS.write_text(f"# The lines that each crate may have (infra/lines.py).\n{rows}")
        return 0
    found = list(violations(lines, tomllib.loads(BUDGETS.read_text())))
    for each in found:
        print(f"lines: {each}", file=sys.stderr)
    print(f"lines: {sum(lines.values()):,} in {len(lines)} crates")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
