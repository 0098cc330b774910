#!/usr/bin/env python3
"""Writes infra/monitoring.generated.yaml, the nested template that is deployed: infra/monitoring.yaml with its loops
expanded.

    .venv/bin/python infra/sam/expand.py [--check]

The generated template uses no language extension, so every SAM CLI can build the stack, and no stack needs
CAPABILITY_AUTO_EXPAND. --check writes nothing. Exit status: 0; 1 if the file is stale; 2 for a wrong command line.
"""

import json
import re
import sys
from pathlib import Path

from samcli.lib.cfn_language_extensions.models import TemplateProcessingContext
from samcli.lib.cfn_language_extensions.pipeline import ProcessingPipeline
from samcli.lib.cfn_language_extensions.processors.foreach import ForEachProcessor
from samcli.lib.cfn_language_extensions.processors.parsing import TemplateParsingProcessor
from samcli.yamlhelper import yaml_parse

INFRA = Path(__file__).resolve().parents[1]
SOURCE, GENERATED = INFRA / "monitoring.yaml", INFRA / "monitoring.generated.yaml"
HEADER = "# Generated from infra/monitoring.yaml by `.venv/bin/python infra/sam/expand.py`. Change that file, not this one.\n"


def expanded(template):
    """Returns a template without loops and mappings. SAM CLI expands the loops; its other processors would also decide
    conditions on parameters without a value.
    """
    loops = ProcessingPipeline([TemplateParsingProcessor(), ForEachProcessor()])
    template = loops.process_template(TemplateProcessingContext(fragment=template))

    def plain(value):
        match value:
            case {"Fn::FindInMap": [mapping, key, member]}:
                return template["Mappings"][mapping][plain(key)][member]
            case {"Ref": {"Fn::Sub": str(name)}}:
                return {"Ref": name}
            case {"Fn::Sub": [text, names]}:
                return substituted(text, plain(names))
            case dict():
                return {name: plain(member) for name, member in value.items()}
            case list():
                return [plain(item) for item in value]
        return value

    kept = {name: part for name, part in template.items() if name not in ("Mappings", "Transform")}
    return {**kept, "Resources": plain(template["Resources"])}


def substituted(text, names):
    """Returns an `Fn::Sub` in which the names that stand for a text or a parameter are replaced."""
    for name, value in names.items():
        text = text.replace(f"${{{name}}}", f"${{{value['Ref']}}}" if isinstance(value, dict) else value)
    return {"Fn::Sub": text} if re.search(r"\$\{", text) else text


def lines(value, levels, indent=""):
    """Formats a mapping as YAML. Down to this level, each name has its own line. Deeper values are JSON, and a text
    with several lines is a block.
    """
    for name, member in value.items():
        match member:
            case dict() if levels > 1 or "\n" in str(member.get("Fn::Sub")):
                yield f"{indent}{name}:"
                yield from lines(member, levels - 1, f"{indent}  ")
            case str() if "\n" in member:
                yield f"{indent}{name}: |"
                yield from (f"{indent}  {line}" for line in member.splitlines())
            case _:
                yield f"{indent}{name}: {json.dumps(member)}"


def generated():
    template = expanded(yaml_parse(SOURCE.read_text()))
    # Each property of a resource has its own line, and so has each parameter and condition.
    sections = (lines({name: part}, 4 if name == "Resources" else 2) for name, part in template.items())
    return HEADER + "".join(f"{line}\n" for section in sections for line in section)


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if not arguments:
        GENERATED.write_text(generated())
    elif not GENERATED.exists() or GENERATED.read_text() != generated():
        print("expand: infra/monitoring.generated.yaml is stale; run .venv/bin/python infra/sam/expand.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
