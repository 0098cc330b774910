#!/usr/bin/env python3
"""Finds names in the product's Rust code (shared, functions, clients) that break the naming rules.

A function that acts is named by an imperative, and a function that returns a value by a noun: `pay_out`, not
`paid_out`. Only a function that returns a `bool` may be named by a participle alone, as in `paid` or `confirmed_by`,
and no `async` function may begin with a participle. A participle before a noun is part of the noun: `listed_events`. A
constructor is `new`, `from_…` or `for_…`, never `of`. A limit is `MAX_…` or `MIN_…`. No function is named by a word
that needs the surrounding code, as in `answer`, or by a noun with `of` behind it: `agent_path`, not `path_of`. A parameter has the name of its
content, never an everyday word such as `asked`. Tests are not checked, because their names are sentences.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("shared/*/src/*.rs", "functions/*/src/*.rs", "clients/*/src/*.rs")
TESTS = re.compile(r"^#\[cfg\(test\)\]\n", re.M)
FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:const )?(async )?fn (\w+)((?:[^{;]|;(?!\n))*)", re.M)
CONSTANT = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:const|static) ((?:MOST|LEAST)(?:_\w+)?)\b", re.M)
IRREGULAR = "begun chosen drawn found given gone held kept known left made met paid said sent shown taken told written".split()
# Verbs that end like participles.
VERBS = "embed exceed feed need proceed read seed shed speed succeed".split()
# Words that are not a noun after a participle.
PREPOSITIONS = "again as at back before between by first for from in of or out since to under up with within".split()
# Words that say nothing without the surrounding code.
VAGUE = "again answer ask bought done each facts first judge keep later meant never note one own partial place told tell spent unread what whole why word words".split()
# Everyday words that do not say what a parameter is.
PARAMETERS = "asked facts least matched meant most odd of one own place sent thing told what who".split()
PARAMETER = re.compile(rf"[(,]\s*(?:mut )?({'|'.join(PARAMETERS)}): ")
# Names that stay, as patterns, each with its reason.
EXCEPTIONS = {
    r"\w+_at": "returns the time in the field of this name",
    r"unverified(_\w+)?": "the warning comes first, for readers of the evidence",
    r"passed|skipped|required|field_required": "makes the value of this state",
    r"curated": "a handler, whose name is the operation in docs/openapi.json",
}


def is_participle(word):
    return word in IRREGULAR or (word.endswith("ed") and word not in VERBS)


def is_without_noun(name, is_async):
    first, *others = name.split("_")
    return is_participle(first) and (is_async or not others or others[0] in PREPOSITIONS)


def returns_bool(signature):
    return re.search(r"->\s*(?:\w+::)*(?:bool\b|Result<bool\b)", signature) is not None


def violations(text):
    """Returns the names in a Rust file that break a rule, each with its line and what to write instead."""
    code = TESTS.split(text)[0]
    for match in FUNCTION.finditer(code):
        is_async, name, signature = match.groups()
        line = code.count("\n", 0, match.start(2)) + 1
        if name in VAGUE and not any(re.fullmatch(pattern, name) for pattern in EXCEPTIONS):
            yield line, name, "name the noun that the function returns, or the act and its object"
        elif name.endswith("_of") and not returns_bool(signature):
            yield line, name, "name the noun: `agent_path`, not `path_of`"
        elif name == "of":
            yield line, name, "a constructor is `new`, `from_…` or `for_…`"
        elif is_without_noun(name, is_async) and not returns_bool(signature):
            if not any(re.fullmatch(pattern, name) for pattern in EXCEPTIONS):
                yield line, name, "name what the function does (an imperative) or returns (a noun)"
        for parameter in PARAMETER.findall(signature):
            yield line, parameter, f"name what the parameter of `{name}` is, in the field's words"
    for match in CONSTANT.finditer(code):
        yield code.count("\n", 0, match.start(1)) + 1, match.group(1), "a limit is `MAX_…` or `MIN_…`"


def main():
    listed = subprocess.run(["git", "ls-files", "--", *PRODUCT], cwd=ROOT, check=True, capture_output=True, text=True)
    found = 0
    for path in listed.stdout.split():
        for line, name, instead in violations((ROOT / path).read_text()):
            print(f"{path}:{line}: `{name}`: {instead}", file=sys.stderr)
            found += 1
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
