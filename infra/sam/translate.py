"""Prints template.yaml as the plain CloudFormation that SAM makes of it, in JSON, without a cloud account.

    .venv/bin/python infra/sam/translate.py [template.yaml]

The routes and permissions exist only after this step; lint and tests that are about them read its output.
"""

import json
import sys
from pathlib import Path

from samcli.lib.translate.sam_template_validator import SamTemplateValidator
from samcli.yamlhelper import yaml_parse

TEMPLATE = Path(__file__).resolve().parents[2] / "template.yaml"


class NoManagedPolicies:
    """Stands where SAM asks an account for policy ARNs by name; we name none, and its own it knows."""

    def load(self):
        return {}


def translated(path=TEMPLATE, **parameters):
    """What SAM makes of a template that is deployed with these parameters beside the defaults."""
    validator = SamTemplateValidator(
        yaml_parse(path.read_text()), NoManagedPolicies(), region="us-east-1", parameter_overrides=parameters
    )
    return yaml_parse(validator.get_translated_template_if_valid())


def evaluated(template, value, **parameters):
    """A part of a template as CloudFormation reads it: `Fn::If` decided, and what is then `AWS::NoValue` left out."""
    defaults = {name: parameter.get("Default") for name, parameter in template["Parameters"].items()}
    parameters = {**defaults, **parameters}

    def holds(condition):
        match condition:
            case {"Condition": name}:
                return holds(template["Conditions"][name])
            case {"Fn::Equals": [one, other]}:
                # Parameters are texts, whatever their type.
                return str(plain(one)) == str(plain(other))
            case {"Fn::Not": [one]}:
                return not holds(one)
            case {"Fn::And": all_of}:
                return all(map(holds, all_of))
            case {"Fn::Or": any_of}:
                return any(map(holds, any_of))
        raise AssertionError(f"`{condition}` is not a condition")

    def plain(value):
        match value:
            case {"Ref": name}:
                return parameters.get(name, value)
            case {"Fn::If": [condition, one, other]}:
                return plain(one if holds({"Condition": condition}) else other)
            case dict():
                members = {name: plain(member) for name, member in value.items()}
                return {name: member for name, member in members.items() if member != {"Ref": "AWS::NoValue"}}
            case list():
                return [item for item in map(plain, value) if item != {"Ref": "AWS::NoValue"}]
        return value

    return plain(value)


if __name__ == "__main__":
    json.dump(translated(Path(sys.argv[1]) if len(sys.argv) > 1 else TEMPLATE), sys.stdout, indent=2)
    print()
