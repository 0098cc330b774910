#!/usr/bin/env python3
"""Checks that the claims of the documents name proofs that exist.

docs/guarantees.toml: each guarantee has a proof (a test, an invariant of the model, or a program), each proof exists,
and each invariant of `tests/model` proves a guarantee. docs/threat-model.md: each named test exists, and the page cites
each section of docs/guarantees.md. docs/data-model.toml: the tables and the kinds of keys are the same as in the IAM
simulator, each attribute of the sample rows (shared/store/tests/rows/items.json) is listed, and each test exists.
docs/asvs.toml: each requirement of OWASP ASVS 5.0.0, levels 1 and 2, is in one row, and each test, file and section
that a row names exists. docs/log-lines.toml: the functions log exactly these lines. This program does not check whether
a proof is sufficient.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The numbers of the requirements of levels 1 and 2, by section. The numbers have no gaps.
REQUIREMENTS = """
    1.1.1-2 1.2.1-9 1.3.1-11 1.4.1-3 1.5.1-2
    2.1.1-3 2.2.1-3 2.3.1-4 2.4.1-1
    3.2.1-2 3.3.1-4 3.4.1-6 3.5.1-5 3.7.1-2
    4.1.1-3 4.2.1-1 4.3.1-2 4.4.1-4
    5.1.1-1 5.2.1-3 5.3.1-2 5.4.1-3
    6.1.1-3 6.2.1-12 6.3.1-4 6.4.1-4 6.5.1-5 6.6.1-3 6.8.1-4
    7.1.1-3 7.2.1-4 7.3.1-2 7.4.1-5 7.5.1-2 7.6.1-2
    8.1.1-2 8.2.1-3 8.3.1-1 8.4.1-1
    9.1.1-3 9.2.1-4
    10.1.1-2 10.2.1-2 10.3.1-4 10.4.1-11 10.5.1-5 10.6.1-2 10.7.1-3
    11.1.1-2 11.2.1-3 11.3.1-3 11.4.1-4 11.5.1-1 11.6.1-1
    12.1.1-3 12.2.1-2 12.3.1-4
    13.1.1-1 13.2.1-5 13.3.1-2 13.4.1-5
    14.1.1-2 14.2.1-4 14.3.1-3
    15.1.1-3 15.2.1-3 15.3.1-7
    16.1.1-1 16.2.1-5 16.3.1-4 16.4.1-3 16.5.1-3
    17.1.1-1 17.2.1-4 17.3.1-2
"""
STATES = ["held", "partly", "gap", "issuer", "AWS", "n/a"]
PAGES = ["guarantees", "decisions", "deploy"]


def read_text(path):
    return (ROOT / path).read_text()


def read_sources():
    """The Rust and Python sources and the template, by file name; files with the same name are joined."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*_test.py"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    sources = {"template.yaml": read_text("template.yaml")}
    for path in filter(lambda path: (ROOT / path).exists(), listed):
        name = path.rsplit("/", 1)[-1]
        sources[name] = sources.get(name, "") + read_text(path)
    return sources


def defined_functions(sources):
    """Returns the names of all functions in the sources."""
    return {name for text in sources.values() for name in re.findall(r"\b(?:fn|def) (\w+)\(", text)}


def named_tests(page):
    """Returns the test names on a page: words in backticks with more than three underscores."""
    return {word for word in re.findall(r"`(\w+)`", page) if word.count("_") > 3}


def guarantee_faults(guarantees, functions, invariants):
    """Returns the errors in the rows of docs/guarantees.toml."""
    for guarantee in guarantees:
        claim = guarantee["claim"]
        if unknown := set(guarantee) - {"section", "claim", "invariants", "tests", "programs"}:
            yield f"{claim}: unknown fields {sorted(unknown)}"
        if guarantee["section"] not in range(1, 8):
            yield f"{claim}: unknown section {guarantee['section']}"
        if not any(guarantee.get(kind) for kind in ("invariants", "tests", "programs")):
            yield f"{claim}: no proof"
        yield from (f"{claim}: no test {test}" for test in guarantee.get("tests", []) if test not in functions)
        yield from (f"{claim}: no file {path}" for path in guarantee.get("programs", []) if not (ROOT / path).exists())
    named = {number for guarantee in guarantees for number in guarantee.get("invariants", [])}
    if named != invariants:
        yield f"invariants of the model: {sorted(invariants)}, named: {sorted(named)}"


def threat_model_faults(page, sections, functions):
    """Returns the errors in the citations of docs/threat-model.md."""
    yield from (f"threat-model.md: no test {test}" for test in sorted(named_tests(page) - functions))
    yield from (f"threat-model.md does not cite §{number}" for number in sections if not re.search(rf"§{number}\b", page))


def key_kinds(simulator):
    """Returns the kinds of items of each table in infra/sam/iam/roles.test.mjs, except `Z#`, which stands for no kind.
    """
    items = re.search(r"^const ITEMS = \{(.*?)^\};", simulator, re.M | re.S)[1]
    tables = re.findall(r"(\w+)Table: \[(.*?)\]", items, re.S)
    return {table.lower(): set(re.findall(r'"([^"]+)"', kinds)) - {"Z#"} for table, kinds in tables}


def data_model_faults(model, kinds, functions):
    """Returns the errors in the tables, rows and ownership transfers of docs/data-model.toml."""
    if {table["name"] for table in model["table"]} != set(kinds):
        yield f"data-model.toml: the tables are {sorted(kinds)}"
    listed = {table: set() for table in kinds}
    for row in model["row"]:
        listed.setdefault(row["table"], set()).update(re.match(r"[^#]*#?", key)[0] for key in row["pk"])
    for table, keys in listed.items():
        if keys != kinds.get(table):
            yield f"data-model.toml, {table}: {sorted(keys ^ kinds.get(table, set()))} in one of two lists"
    tests = [test for row in model["transfer"] for test in row.get("tests", [])]
    yield from (f"data-model.toml: no test {test}" for test in tests if test not in functions)


def sample_faults(model, samples):
    """Returns the attributes of stored rows (shared/store/tests/rows/items.json) that docs/data-model.toml does not
    list.
    """
    prefix = re.compile(r"[^#]*#?")
    attributes = {}
    for row in model["row"]:
        text = re.sub(r"\*(\w+)\*", lambda part: model["common"].get(part[1], ""), row["attributes"])
        # The attributes of a common part can refer to another part.
        text = re.sub(r"\*(\w+)\*", lambda part: model["common"].get(part[1], ""), text)
        for key in row["pk"]:
            attributes.setdefault((row["table"], prefix.match(key)[0]), {"pk", "sk"}).update(re.findall(r"`(\w+)`", text))
    for sample in samples:
        listed = attributes.get((sample["table"], prefix.match(sample["item"]["pk"]["S"])[0]), set())
        if unlisted := sorted(sample["item"].keys() - listed):
            yield f"data-model.toml, {sample['table']}, {sample['row']}: does not list {unlisted}"


def logged_names():
    """Returns the names of the log lines that the functions and their crates log, without the names in tests."""
    sources = [path.read_text().split("#[cfg(test)]")[0] for folder in ("functions", "shared") for path in ROOT.glob(f"{folder}/*/src/**/*.rs")]
    # `line!` is a macro of reconcile that selects the level.
    macro = r'\b(?:info|warn|error|tracing::\$level)!\([^;]*?"([a-z_]+(?:\.[a-z_]+)?)",?\s*\)\s*(?:[;,})]|$)'
    return {name for text in sources for name in re.findall(macro, text, re.M)}


def log_line_faults(listed, logged):
    """Returns the log lines that are only in docs/log-lines.toml or only in the code."""
    yield from (f"log-lines.toml: no code logs {name}" for name in sorted(listed - logged))
    yield from (f"log-lines.toml does not list {name}" for name in sorted(logged - listed))


def known_ids():
    """Returns the ids of all requirements, in order."""
    ids = []
    for section in REQUIREMENTS.split():
        first, last = section.split("-")
        ids += [f"{first.rsplit('.', 1)[0]}.{number}" for number in range(1, int(last) + 1)]
    return ids


def row_ids(key, known):
    """Returns the ids of a row: `1.2.1`, or `1.2.6-1.2.9, 1.3.1` for several. Raises `ValueError` for an unknown id or
    an empty range.
    """
    ids = []
    for part in key.split(", "):
        first, _, last = part.partition("-")
        ids += known[known.index(first) : known.index(last or first) + 1] or [known.index(f"backwards: {part}")]
    return ids


def exists(quoted, sources):
    """Returns whether `file::name` or a path exists. Other texts in backticks are not checked."""
    file, separator, name = quoted.partition("::")
    if separator:
        word = {"rs": f"fn {name}(", "py": f"def {name}("}.get(file.rsplit(".", 1)[-1], name)
        return word in sources.get(file, "")
    is_path = not quoted.startswith("/") and " " not in quoted and ("/" in quoted or quoted.endswith(".md"))
    return not is_path or (ROOT / quoted).exists()


def citations(text):
    """Returns the cited sections, each with its page, such as `decisions §9.8, §14.2 and guarantees §6`."""
    page = None
    for word in re.findall(rf"\b(?:{'|'.join(PAGES)})\b|§[0-9.]*[0-9]", text):
        if word in PAGES:
            page = word
        else:
            yield page, word[1:]


def has_section(page, number):
    """Returns whether the page has this section, or this item of a section's numbered list: `14`, `14.2`."""
    section, _, item = number.partition(".")
    text = re.search(rf"^## {section}\. (.*?)(?=^## |\Z)", page, re.M | re.S)
    return bool(text and (not item or re.search(rf"^{item}\. ", text[1], re.M)))


def asvs_faults(rows, sources, pages):
    """Returns the errors in the rows of docs/asvs.toml."""
    known, seen = known_ids(), []
    for key, row in rows.items():
        try:
            seen += row_ids(key, known)
        except ValueError as error:
            yield f"{key}: {error}"
        if row["state"] not in STATES:
            yield f"{key}: unknown state {row['state']}"
        if not row["by"] and row["state"] != "issuer":
            yield f"{key}: nothing is named"
        yield from (f"{key}: no {name}" for name in re.findall(r"`([^`]*)`", row["by"]) if not exists(name, sources))
        for page, number in citations(row["by"]):
            if not has_section(pages.get(page, ""), number):
                yield f"{key}: {page} has no §{number}"
    yield from (f"{id} is in {seen.count(id)} rows" for id in known if seen.count(id) != 1)


def count_faults(rows, page):
    """Returns the states for which docs/asvs.md has a wrong number of requirements."""
    known = known_ids()
    for state in STATES:
        count = sum(len(row_ids(key, known)) for key, row in rows.items() if row["state"] == state)
        if f"\n| {state} | {count} |" not in page:
            yield f"asvs.md does not say that {count} requirements are `{state}`"


def main():
    sources = read_sources()
    functions = defined_functions(sources)
    model = tomllib.loads(read_text("docs/data-model.toml"))
    pages = {name: read_text(f"docs/{name}.md") for name in PAGES}
    invariants = {int(number) for number in re.findall(r'^ +\w+ = "(\d+): ', read_text("tests/model/src/law.rs"), re.M)}
    guarantees = tomllib.loads(read_text("docs/guarantees.toml"))["guarantee"]
    chapters = tomllib.loads(read_text("docs/asvs.toml"))
    rows = {key: row for chapter in chapters.values() for key, row in chapter.items()}
    sections = re.findall(r"^## (\d+)\.", pages["guarantees"], re.M)
    faults = [
        *guarantee_faults(guarantees, functions, invariants),
        *threat_model_faults(read_text("docs/threat-model.md"), sections, functions),
        *data_model_faults(model, key_kinds(read_text("infra/sam/iam/roles.test.mjs")), functions),
        *sample_faults(model, json.loads(read_text("shared/store/tests/rows/items.json"))),
        *log_line_faults(set(tomllib.loads(read_text("docs/log-lines.toml"))), logged_names()),
        *asvs_faults(rows, sources, pages),
        *count_faults(rows, read_text("docs/asvs.md")),
    ]
    print(*faults, sep="\n", end="\n" if faults else "")
    tests = {test for guarantee in guarantees for test in guarantee.get("tests", [])}
    print(f"{len(guarantees)} guarantees name {len(tests)} tests; {len(rows)} rows have {len(known_ids())} requirements")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
