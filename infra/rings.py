#!/usr/bin/env python3
"""Finds rings: files of a Rust crate that use each other, directly or through others.

`cargo modules dependencies --acyclic` also finds rings, but building it takes longer than all other lints together, and
it counts a module and its parent as a ring. This program reads `use` declarations and paths that start with `crate::`
or `super::`. A name that a module re-exports counts as the file that declares the name. The crates below `tests` are
not checked.
"""

import re
import subprocess
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

CHECKED = [f"{folder}/*/Cargo.toml" for folder in ("clients", "functions", "infra", "shared")]
PATH = re.compile(r"\b(?:crate|super)(?:::(?:\w+|\{[^;]*?\}))+")
USE = re.compile(r"\buse ([^;]+);")
REEXPORT = re.compile(r"pub(?:\([a-z]+\))? use ([^;]+);")


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def source(path):
    """Returns the file's text without tests and comments."""
    with open(path) as file:
        text = file.read().split("#[cfg(test)]")[0]
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))


def expanded(path):
    """Returns the paths in `a::{b, c::{d, e}}`."""
    if "{" not in path:
        return [path]
    start = path.index("{")
    items, depth, item = [], 0, ""
    for letter in path[start + 1:]:
        if depth == 0 and letter in ",}":
            items.append(item)
            item = ""
            if letter == "}":
                break
            continue
        depth += {"{": 1, "}": -1}.get(letter, 0)
        item += letter
    return [found for item in items if item for found in expanded(path[:start] + item)]


def module_of(path, crate):
    """Returns the module of a file: `a::b` for `crate/src/a/b.rs`, and an empty text for the root."""
    name = path.removeprefix(f"{crate}/src/").removesuffix(".rs").removesuffix("/mod")
    return "" if name in ("lib", "main") else name.replace("/", "::")


def absolute(path, module):
    """Returns the path from the root of the crate, or `None` for a path of another crate."""
    if path.startswith("crate::"):
        return path.removeprefix("crate::")
    if not path.startswith("super::"):
        return None
    parents = module.split("::")
    while path.startswith("super::"):
        path, parents = path.removeprefix("super::"), parents[:-1]
    return "::".join([*parents, path])


def uses_of(crate):
    """Returns the modules that each module uses."""
    texts = {module_of(path, crate): source(path) for path in lines_of("git", "ls-files", f"{crate}/src/*.rs")}

    def declared_by(path):
        parts = path.split("::")
        ends = (("::".join(parts[:end]), parts[end:]) for end in range(len(parts), 0, -1))
        return next(((module, rest) for module, rest in ends if module in texts), ("", parts))

    reexported = {}
    for module, text in texts.items():
        for use in REEXPORT.findall(text):
            for path in expanded(re.sub(r"\s+", "", use)):
                inner = absolute(path, module) or f"{module}::{path.removeprefix('self::')}".removeprefix("::")
                reexported[module, path.split("::")[-1]] = declared_by(inner)[0]

    uses = defaultdict(set)
    for module, text in texts.items():
        for found in PATH.findall(text) + USE.findall(text):
            for path in expanded(re.sub(r"\s+", "", found)):
                if inner := absolute(path, module):
                    target, rest = declared_by(inner)
                    target = reexported.get((target, rest[0]), target) if rest else target
                    if target not in ("", module):
                        uses[module].add(target)
    return uses


def main():
    crates = [path.removesuffix("/Cargo.toml") for path in lines_of("git", "ls-files", *CHECKED)]
    found = False
    for crate in crates:
        try:
            TopologicalSorter(uses_of(crate)).prepare()
        except CycleError as error:
            found = True
            print(f"{crate}: {' uses '.join(error.args[1][::-1])}")
    sys.exit(found)


if __name__ == "__main__":
    main()
