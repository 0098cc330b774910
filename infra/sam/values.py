#!/usr/bin/env python3
"""Prints the parameters of an environment as `sam deploy --parameter-overrides` takes them, one a line.

    infra/sam/values.py [<environment of samconfig.toml>]

A parameter's value is from `deploy/<environment>.toml`, a file of `Name = value` lines that git ignores; otherwise from
samconfig.toml; otherwise the default in template.yaml. Every parameter is printed, because CloudFormation keeps the
former value of an omitted parameter, so a value that was removed from the file would stay.

Exit status: 0; 2, the values are wrong (see stderr).
"""

import re
import sys
import tomllib
from functools import cache
from pathlib import Path

from samcli.yamlhelper import yaml_parse

ROOT = Path(__file__).resolve().parents[2]


class Wrong(Exception):
    """The error for values that can't be used."""


class Environment:
    """An environment: the stack's name, the settings of `sam deploy`, and all parameters."""

    def __init__(self, name, root=ROOT):
        settings = tomllib.loads((root / "samconfig.toml").read_text())
        if "deploy" not in settings.get(name, {}):
            raise Wrong(f"samconfig.toml has no environment `{name}`")
        self.name = name
        self.stack = settings[name]["global"]["parameters"]["stack_name"]
        self.settings = settings[name]["deploy"]["parameters"]
        self.file = root / "deploy" / f"{name}.toml"
        declared = declared_in((root / "template.yaml").read_text())
        tracked = self.settings.get("parameter_overrides", [])
        values = {key: parameter["Default"] for key, parameter in declared.items() if "Default" in parameter}
        values |= dict(entry.split("=", 1) for entry in tracked)
        values |= own_values(self.file)
        unknown, missing = sorted(values.keys() - declared), sorted(declared.keys() - values)
        if unknown:
            raise Wrong(f"template.yaml has no parameter {', '.join(f'`{key}`' for key in unknown)}")
        if missing:
            raise Wrong(f"{self.file.relative_to(root)} must give {', '.join(f'`{key}`' for key in missing)}")
        self.parameters = {key: str(values[key]) for key in declared}

    def overrides(self):
        return [f'{key}="{escaped(value)}"' for key, value in self.parameters.items()]


@cache
def declared_in(template):
    """Reads only the parameters of a template, because parsing the whole template takes seconds."""
    section = re.search(r"^Parameters:\n(?:(?: .*)?\n|#.*\n)+", template, re.M)
    return yaml_parse(section[0])["Parameters"]


def own_values(file):
    if not file.exists():
        return {}
    try:
        values = tomllib.loads(file.read_text())
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"{file.name} is not TOML: {error}") from error
    for key, value in values.items():
        # TOML's `true` would become Python's `True`.
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise Wrong(f"{file.name}: `{key}` must be a text or a whole number")
        if "\\" in str(value) or "\n" in str(value):
            raise Wrong(f"{file.name}: `{key}` must have no backslash and one line")
    return values


def escaped(value):
    # SAM unescapes `\"`, and no other backslash. No parameter contains one.
    return value.replace('"', '\\"')


def main(arguments):
    try:
        print(*Environment(arguments[0] if arguments else "default").overrides(), sep="\n")
    except Wrong as wrong:
        print(f"values: {wrong}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
