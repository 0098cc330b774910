#!/usr/bin/env python3
"""Finds sentences in comments and documents that are probably hard to read; run by `make english`.

    infra/english.py            the counts of code and documents; fails above the limits
    infra/english.py FILE …     the places in these files; fails if there are any

A place is one to look at: the patterns know the common slips, not the language. The limits are lowered as the text improves.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# The most places in a thousand lines of text.
LIMITS = {"code": 3.0, "documents": 2.0}

MARKERS = {
    ".rs": ("//!", "///", "//"),
    ".ts": ("//", "*"),
    ".mjs": ("//", "*"),
    ".py": ("#",),
    ".sh": ("#",),
    ".yaml": ("#",),
    ".yml": ("#",),
    ".toml": ("#",),
}

SLIPS = {
    "no noun as the subject": re.compile(
        r"^(?:One(?:,| that| whose| which| is| of (?:them|these|those|it))|Ones|Those|Whoever|Whose|Whom|What|That which|All that)\b"
        r"|^Of (?:one|two|those|so|which|what)\b"
    ),
    "a sentence of one word": re.compile(r"^(?:Yes|No|None|All|Both|When|Where|Why|What|Who|They|These|Those|It|The same)\.$"),
    "a measure without a name": re.compile(r"\bso (?:many|much|long|few|often)\b(?!.{0,40}\b(?:as|that)\b)", re.IGNORECASE),
    "`no more` for `no longer`": re.compile(
        r"\b(?:is|are|was|were|be|has|have|do|does|did|wants?|works?) no more\b|\bany more\b", re.IGNORECASE
    ),
    "`tell` for publish, send, log, report or return": re.compile(
        r"\b(?:is|are|was|were|be|been) (?:un)?told\b|\bto be told\b|\btells? (?:it|them|people|nobody|everybody)\b",
        re.IGNORECASE,
    ),
    "a pronoun as an owner": re.compile(r"\b(?:no|some|any|every)body's\b", re.IGNORECASE),
    "an idiom": re.compile(
        r"\b(?:set|put|laid) aside\b|\bat hand\b|\bfor want of\b|\bin (?:its|their) turn\b|\bhas the turn\b|\btakes? a look\b",
        re.IGNORECASE,
    ),
    "`the one` and `the other`": re.compile(r"\bthe one\b.{0,40}\bthe other\b", re.IGNORECASE),
}


def text_of(line, suffix):
    """The text of a comment or of a line of a document; None for code."""
    if suffix == ".md":
        return line.strip().lstrip("-*>|#0123456789. ") or None
    stripped = line.strip()
    for marker in MARKERS[suffix]:
        if stripped.startswith(marker) and not stripped.startswith(("#!", "#[")):
            return stripped[len(marker) :].strip() or None
    return None


def places(path):
    """The number of lines of text in a file, and a line to print for each place in it."""
    lines, found = 0, []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        text = text_of(line, path.suffix)
        if text is None:
            continue
        lines += 1
        for sentence in re.split(r"(?<=[.:;])\s+", text):
            slip = next((name for name, pattern in SLIPS.items() if pattern.search(sentence)), None)
            if slip:
                found.append(f"{path.relative_to(ROOT)}:{number}: {slip}: {sentence[:100]}")
    return lines, found


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = (ROOT / name for name in listed.stdout.splitlines())
    return [path for path in paths if path.suffix in (*MARKERS, ".md") and path.is_file()]


def main():
    if named := [Path(name).resolve() for name in sys.argv[1:]]:
        found = [place for path in named for place in places(path)[1]]
        print("\n".join(found) or "english: nothing found")
        return bool(found)
    failed = False
    for kind, limit in LIMITS.items():
        files = [path for path in tracked() if (path.suffix == ".md") == (kind == "documents")]
        counts = [places(path) for path in files]
        lines, found = sum(lines for lines, _ in counts), sum(len(found) for _, found in counts)
        share = 1000 * found / max(lines, 1)
        print(f"english: {kind}: {found} places in {lines} lines, {share:.1f} in a thousand; the limit is {limit}")
        failed |= share > limit
    if failed:
        print("english: infra/english.py FILE … lists the places")
    return failed


if __name__ == "__main__":
    sys.exit(main())
