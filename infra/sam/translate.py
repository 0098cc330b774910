"""Prints a template as the plain CloudFormation that AWS makes of it, in JSON, without a cloud account.

    .venv/bin/python infra/sam/translate.py [<template>]

The routes and permissions exist only after this step, so lints and tests of routes and permissions read this output.
"""

import json
import re
import sys
from pathlib import Path

from samcli.lib.translate.sam_template_validator import SamTemplateValidator
from samcli.yamlhelper import yaml_parse

TEMPLATE = Path(__file__).resolve().parents[2] / "template.yaml"
SAM = "AWS::Serverless-2016-10-31"
NESTED = "AWS::CloudFormation::Stack"


class NoManagedPolicies:
    """Replaces SAM's lookup of policy ARNs by name in an account. The templates name no managed policy, and SAM knows
    its own.
    """

    def load(self):
        return {}


def translated(path=TEMPLATE, **parameters):
    """Returns a template after its transforms, with these parameters and otherwise the defaults. A nested stack stays a
    resource (`templates` also has the nested templates).
    """
    template = yaml_parse(path.read_text())
    transforms = template.get("Transform", [])
    transforms = transforms if isinstance(transforms, list) else [transforms]
    if SAM in transforms:
        validator = SamTemplateValidator(template, NoManagedPolicies(), region="us-east-1", parameter_overrides=parameters)
        template = yaml_parse(validator.get_translated_template_if_valid())
    template.pop("Transform", None)
    return template


def templates(**parameters):
    """Returns every template of a deployment, translated, by its path in the repository. The root comes first."""
    root = translated(**parameters)
    nested = [each["Properties"]["TemplateURL"] for each in root["Resources"].values() if each["Type"] == NESTED]
    return {TEMPLATE.name: root} | {path: translated(TEMPLATE.parent / path) for path in nested}


def whole(templates):
    """Returns a deployment's templates as one template: it includes the nested stacks' resources, with the values that
    the root passes in place of the parameters.
    """
    merged = {**templates[TEMPLATE.name]}
    merged["Conditions"], merged["Resources"] = dict(merged["Conditions"]), dict(merged["Resources"])
    for name, stack in templates[TEMPLATE.name]["Resources"].items():
        if stack["Type"] != NESTED:
            continue
        nested, passed = templates[stack["Properties"]["TemplateURL"]], stack["Properties"]["Parameters"]
        assert passed.keys() == nested["Parameters"].keys(), f"{name}: {sorted(passed.keys() ^ nested['Parameters'].keys())}"
        assert not re.search(r"AWS::Stack(Id|Name)", json.dumps(nested)), f"{name}: of the nested stack"
        for condition, value in passed_into(nested.get("Conditions", {}), passed).items():
            assert merged["Conditions"].setdefault(condition, value) == value, condition
        resources = passed_into(nested["Resources"], passed)
        del merged["Resources"][name]
        assert not merged["Resources"].keys() & resources.keys(), name
        merged["Resources"] |= resources
    return merged


def passed_into(value, passed):
    """Returns a part of a nested template with the passed values in place of the parameters."""

    def text(found, more):
        name, _, attribute = found[1].partition(".")
        match more.get(name, passed.get(name)):
            case None:
                return found[0]
            case {"Ref": other} if not attribute:
                return f"${{{other}}}"
            case {"Fn::GetAtt": [other, of_it]} if not attribute:
                return f"${{{other}.{of_it}}}"
            case str() | int() as plain if not attribute:
                return str(plain)
        raise AssertionError(f"`{found[0]}` is not a text")

    def substituted(template, more):
        plain = re.sub(r"\$\{([^}!]+)\}", lambda found: text(found, more), template)
        return {"Fn::Sub": plain} if "${" in plain else plain

    match value:
        case {"Ref": name}:
            return passed.get(name, value)
        case {"Fn::Sub": [template, more]}:
            return substituted(template, passed_into(more, passed))
        case {"Fn::Sub": template}:
            return substituted(template, {})
        case dict():
            return {name: passed_into(member, passed) for name, member in value.items()}
        case list():
            return [passed_into(item, passed) for item in value]
    return value


def evaluated(template, value, **parameters):
    """Returns a part of a template as CloudFormation reads it: each `Fn::If` is decided, and `AWS::NoValue` is left
    out.
    """
    defaults = {name: parameter.get("Default") for name, parameter in template["Parameters"].items()}
    parameters = {**defaults, **parameters}

    def holds(condition):
        match condition:
            case {"Condition": name}:
                return holds(template["Conditions"][name])
            case {"Fn::Equals": [one, other]}:
                # Parameters are texts, whatever their type is.
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
    printed = translated(Path(sys.argv[1]) if len(sys.argv) > 1 else TEMPLATE)
    for resource in printed["Resources"].values():
        if resource["Type"] == NESTED:
            # `sam deploy` uploads the file and puts the URL here.
            resource["Properties"]["TemplateURL"] = f"https://s3.us-east-1.amazonaws.com/bucket/{resource['Properties']['TemplateURL']}"
    json.dump(printed, sys.stdout, indent=2)
    print()
