"""Runs the benches, prints their tables, and writes the tables to docs/performance.json. `make bench` runs this
program.

    infra/bench.py                     all of them
    infra/bench.py stack cold          these alone; the others' figures stay as they are in the file, as do those of a
                                       bench that gave none

Each bench writes one JSON object to a line of target/bench/<bench>.jsonl. A time is

    {"group", "name", "median_ns", "reference", "ratio"}       and "reference_ns", "limit", "units" where there are any

The ratio compares the median with a reference from the same run, and must not exceed the limit. The other shapes are a
count (group "costs"), a start (group "starts"), and rows of text ("cells"). The functions below describe them.

A row is marked if it is more than a tenth worse than in the committed file, or if it exceeds its limit. Exit status: 0;
1, a row exceeds its limit; 2, a bench could not be run.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "target" / "bench"
FILE = ROOT / "docs" / "performance.json"
TOLERANCE = 1.1

# The benches in the order of the file. Counts need no optimized build.
BENCHES = {
    "stack": ["cargo", "bench", "--locked", "--profile", "load", "--package", "purser-tests", "--bench", "stack"],
    # Each page must take less than a second. The results are the capacity units per page.
    "pages": ["cargo", "bench", "--locked", "--profile", "dev", "--package", "purser-tests", "--bench", "stack", "--", "pages"],
    "code": ["cargo", "bench", "--locked", "--package", "purser-bench", "--bench", "code"],
    "costs": ["cargo", "bench", "--locked", "--profile", "dev", "--package", "purser-tests", "--bench", "costs"],
    "usage": ["cargo", "bench", "--locked", "--profile", "dev", "--package", "purser-stream", "--bench", "usage"],
    "evidence": ["cargo", "bench", "--locked", "--package", "purser-stream", "--bench", "evidence"],
    "cold": [".venv/bin/python", "infra/sam/bench_cold.py"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benches", nargs="*", metavar="bench", help=f"of {', '.join(BENCHES)}; all unless given")
    chosen = parser.parse_args().benches or list(BENCHES)
    if unknown := set(chosen) - set(BENCHES):
        parser.error(f"there is no bench {', '.join(unknown)}")
    before = committed()
    FIGURES.mkdir(parents=True, exist_ok=True)
    failed, measured, over = [], {}, []
    for name in (name for name in BENCHES if name in chosen):
        began = load()
        if not run(name):
            failed.append(name)
        # Benches can be run separately, so each bench has the machine that it was measured on.
        place = f"{machine()} Load before and after: {began}, {load()}."
        if figures := lines(name):
            text = section(figures, before)
            measured[name] = {"place": place, "tables": tables(text)}
            over += [line for line in text if "**over" in line]
            print("\n".join([f"### {name}", "", place, *text]), end="\n\n")
    write(measured)
    for line in over:
        print(f"bench: {line}", file=sys.stderr)
    if failed:
        print(f"bench: {', '.join(failed)} failed", file=sys.stderr)
        return 2
    return 1 if over else 0


def run(name):
    (FIGURES / f"{name}.jsonl").unlink(missing_ok=True)
    print(f"bench: {name}", flush=True)
    started = time.monotonic()
    done = subprocess.run(BENCHES[name], cwd=ROOT)
    print(f"bench: {name} took {time.monotonic() - started:.0f} s", flush=True)
    return done.returncode == 0


def lines(name):
    path = FIGURES / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def section(figures, before):
    """Returns the tables of one bench as Markdown."""
    text, groups = [], {}
    for figure in figures:
        groups.setdefault(figure["group"], []).append(figure)
    for group, rows in groups.items():
        text += ["", f"#### {group}"]
        table = {"costs": costs, "starts": starts}.get(group, plain if "cells" in rows[0] else times)
        text += ["", *table(rows, {name: old for (at, name), old in before.items() if at == group})]
    return text


def times(rows, before):
    # A value that all rows share is printed above the table, and an empty column is left out.
    references = {row["reference"] for row in rows}
    common = f" {rows[0]['reference']}" if len(references) == 1 else ""
    with_limits = any("limit" in row for row in rows)
    with_units = any("units" in row for row in rows)
    titles = ["", "median", f"beside{common}", "ratio"] + ["limit"] * with_limits + ["read", "write"] * with_units
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        ratio, limit = row["ratio"], row.get("limit")
        remarks = ""
        if limit is not None and ratio > limit:
            remarks += " **over its limit**"
        old = before.get(row["name"])
        if old and ratio > old * TOLERANCE:
            remarks += f" **worse**, was {old:g}"
        beside = [duration(row["reference_ns"])] if "reference_ns" in row else []
        beside += [] if common else [row["reference"]]
        cells = [row["name"], duration(row["median_ns"]), ": ".join(beside), f"{ratio:.3g}{remarks}"]
        if with_limits:
            cells.append("" if limit is None else f"≤ {limit:g}")
        if with_units:
            cells += [f"{row['units'][kind]:g}" for kind in ("read", "write")] if "units" in row else ["", ""]
        yield f"| {' | '.join(cells)} |"


def plain(rows, before):
    """Returns a table of rows {"group", "name", "cells", "over"}. A cell is a pair of a title, which all rows share,
    and a text.
    """
    titles = [title for title, _ in rows[0]["cells"]]
    yield f"| {' | '.join(['', *titles])} |"
    yield "|---" * (1 + len(titles)) + "|"
    for row in rows:
        over = " **over its limit**" if row["over"] else ""
        yield f"| {' | '.join([row['name'] + over, *(text for _, text in row['cells'])])} |"


def costs(rows, before):
    """Returns a table of rows {"group": "costs", "name", "read", "read_budget", "write", "write_budget", "sequence"}.
    """
    yield "| | read | write | calls, in rounds |"
    yield "|---|---|---|---|"
    for row in rows:
        rounds = " → ".join(" + ".join(round) for round in row["sequence"]) or "none"
        read, write = (f"{row[kind]:g} of {row[f'{kind}_budget']}" for kind in ("read", "write"))
        over = any(row[kind] > row[f"{kind}_budget"] for kind in ("read", "write"))
        yield f"| {row['name']} | {read} | {write} | {rounds}{' **over its budget**' if over else ''} |"


def starts(rows, before):
    """Returns a table of rows {"group": "starts", "name", "binary", "gzip", "gzip_limit", "boot", "first", "cpu",
    "memory"}, in bytes and milliseconds. The other rows are compared with the first row.
    """
    units = {"binary": ("MB", 1e6), "gzip": ("MB", 1e6), "boot": ("ms", 1), "first": ("ms", 1), "cpu": ("ms", 1),
             "memory": ("MB", 1e6)}
    floor = rows[0]
    yield "| | binary | gzip | boot | first call | CPU of both | memory |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        cells = []
        for kind, (unit, size) in units.items():
            times = f" ({row[kind] / floor[kind]:.1f} ×)" if row is not floor else ""
            cells.append(f"{row[kind] / size:.2f} {unit}{times}")
        over = " **over its limit**" if row["gzip"] >= row.get("gzip_limit", float("inf")) else ""
        yield f"| {row['name']}{over} | {' | '.join(cells)} |"


def duration(nanoseconds):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def tables(text):
    """Returns the rows of Markdown tables by group. The first row of a table has the titles."""
    found, group = {}, None
    for line in text:
        if line.startswith("#### "):
            group = found.setdefault(line.removeprefix("#### "), [])
        elif line.startswith("| "):
            group.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def committed():
    """Returns the ratios of the committed file by group and name. Without a repository, returns the ratios of the file
    as it is.
    """
    shown = subprocess.run(["git", "show", f"HEAD:{FILE.relative_to(ROOT)}"], cwd=ROOT, capture_output=True, text=True)
    return ratios_of(json.loads(shown.stdout) if shown.returncode == 0 else stored())


def stored():
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def ratios_of(benches):
    """Returns the ratios in the file's tables, by group and name."""
    return {
        (group, cells[0]): float(ratio[0])
        for bench in benches.values()
        for group, rows in bench["tables"].items()
        for cells in rows[1:]
        if len(cells) >= 4 and (ratio := re.match(r"[0-9.e+-]+(?= \*|$)", cells[3]))
    }


def machine():
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    rustc = subprocess.run(["rustc", "--version"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    words = [
        cpu[1] if cpu else platform.processor(),
        f"{os.cpu_count()} CPUs",
        f"{memory:.0f} GiB",
        f"{platform.system()} {platform.release()} {platform.machine()}",
        rustc,
        time.strftime("%Y-%m-%d", time.gmtime()),
    ]
    return f"Machine: {', '.join(words)}."


def load():
    return f"{os.getloadavg()[0]:.1f}"


def write(measured):
    # A bench that was not run keeps its earlier figures.
    benches = stored() | measured
    ordered = {name: benches[name] for name in BENCHES if name in benches}
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    # Writes each row on one line.
    text = re.sub(r"\[\n\s+(\"[^\[\]]*?\")\n\s+\]", lambda row: "[" + re.sub(r",\n\s+", ", ", row[1]) + "]", text)
    FILE.write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
