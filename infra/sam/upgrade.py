#!/usr/bin/env python3
"""Compares this checkout's templates with the previous release's, as CloudFormation would when it upgrades a stack.

    infra/sam/upgrade.py                  prints what would fail or lose data, each with the two deployments that do it instead
    infra/sam/upgrade.py keep <folder>    makes the release in this folder the previous one (infra/sam/previous.jsonl)

CloudFormation makes new resources before it deletes former ones. So nothing that AWS has once (a name, a queue's policy, a
function's mapping of a stream) can go from one logical id to another, or between root and nested stack, in one deployment.
Create-only properties are those of AWS's resource schemas, which cfn-lint brings.

previous.jsonl has the templates of release files (release.py), one resource a line. Exit status: 0; 1, something would fail;
2, wrong use.
"""

import json
import re
import sys
import tempfile
from functools import cache
from pathlib import Path

import release
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER
from samcli.yamlhelper import yaml_parse
from translate import NESTED, passed_into, translated
from values import ROOT

PREVIOUS = ROOT / "infra" / "sam" / "previous.jsonl"
ARCHITECTURE = "arm64"
TEMPLATE = f"template-{ARCHITECTURE}.json"
# Each deployment of new code creates a version. SAM retains earlier versions, so that a deployment can be undone.
VERSION = "AWS::Lambda::Version"
SECRET = "AWS::SecretsManager::Secret"
TABLE = "AWS::DynamoDB::Table"
# Resources that are not retained, but whose replacement has another address than the one that callers have.
ADDRESSED = {
    "AWS::ApiGatewayV2::Api": "callers use its URL",
    "AWS::Cognito::UserPoolClient": "sessions belong to it",
    "AWS::Events::EventBus": "rules of others belong to it, and CloudFormation can't delete a bus that has them",
    "AWS::SNS::Topic": "its e-mail subscription must be confirmed again, and until then no alarm is mailed",
}
# Resources that AWS allows once for these targets, and what happens if a second one is created before the first is
# deleted.
ATTACHED = {
    "AWS::ApiGatewayV2::ApiMapping": (["DomainName", "ApiMappingKey"], "API Gateway returns 409 to a second mapping of a domain name's path"),
    "AWS::Cognito::ManagedLoginBranding": (["ClientId"], "Cognito rejects a client's second style"),
    "AWS::Cognito::UserPoolDomain": (["UserPoolId"], "Cognito rejects a user pool's second domain"),
    "AWS::Lambda::EventSourceMapping": (["FunctionName", "EventSourceArn"], "Lambda returns 409 to a function's second mapping of a stream"),
    "AWS::S3::BucketPolicy": (["Bucket"], "CloudFormation rejects a bucket's second policy"),
    "AWS::SecretsManager::ResourcePolicy": (["SecretId"], "deleting the former one leaves the secret without a policy"),
    "AWS::SNS::Subscription": (["TopicArn", "Protocol", "Endpoint"], "deleting the former one ends the subscription"),
    "AWS::SNS::TopicPolicy": (["Topics"], "deleting the former one leaves the topic without a policy"),
    "AWS::SQS::QueuePolicy": (["Queues"], "deleting the former one leaves the queue without a policy"),
}
# Properties that can't change, and that the schemas don't list: CloudFormation rejects an update of a key or a user pool (template
# reference, AWS::KMS::Key; aws-amplify/amplify-cli#4227), and replaces a table (template reference, AWS::DynamoDB::Table).
FIXED = {
    "AWS::Cognito::UserPool": ["AliasAttributes", "UsernameAttributes", "UsernameConfiguration"],
    "AWS::DynamoDB::Table": ["LocalSecondaryIndexes"],
    "AWS::KMS::Key": ["KeySpec", "KeyUsage", "MultiRegion", "Origin"],
}
POLICIES = ("DeletionPolicy", "UpdateReplacePolicy")


class Deployment:
    """The translated templates of a release. The key of a resource is (nested stack or "", logical id)."""

    def __init__(self, files):
        self.templates = {"": translate(files[TEMPLATE])}
        self.resources = {("", name): each for name, each in self.templates[""]["Resources"].items()}
        for (_, name), stack in list(self.resources.items()):
            if stack["Type"] == NESTED:
                nested = self.templates[name] = translate(files[stack["Properties"]["TemplateURL"]])
                self.resources |= {(name, each): one for each, one in passed_into(nested["Resources"], stack["Properties"]["Parameters"]).items()}

    def settled(self, value):
        """Returns a value together with what it depends on: the defaults of its parameters and the definitions of its
        conditions.
        """
        parameters, conditions = self.templates[""]["Parameters"], self.templates[""]["Conditions"]
        match value:
            case {"Ref": name} if name in parameters:
                return {"Ref": name, "Default": parameters[name].get("Default")}
            case {"Fn::Sub": str(text)}:
                used = set(re.findall(r"\$\{(\w+)\}", text)) & parameters.keys()
                return {"Fn::Sub": text, "Defaults": {name: parameters[name].get("Default") for name in sorted(used)}}
            case {"Fn::If": [name, *branches]}:
                return {"Fn::If": [self.settled({"Condition": name}), *map(self.settled, branches)]}
            case {"Condition": str(name)} if name in conditions:
                return {"Condition": self.settled(conditions[name])}
            case dict():
                return {name: self.settled(member) for name, member in value.items()}
            case list():
                return [self.settled(item) for item in value]
        return value

    def create_only(self, resource):
        """Returns the properties of a resource that can change only by replacing the resource."""
        properties = resource.get("Properties", {})
        return {path: self.settled(value) for path in create_only_paths(resource["Type"]) if (value := at(properties, path)) is not None}

    def presence(self, resource):
        """Returns the condition under which a deployment has the resource."""
        return self.settled({"Condition": resource["Condition"]}) if "Condition" in resource else None

    def names(self):
        """Returns the resources by physical name, if the template sets the name."""
        return {name: key for key, resource in self.resources.items() if (name := self.physical_name(resource))}

    def physical_name(self, resource):
        """Returns the type and the names that a template gives a resource, or None if AWS makes them."""
        if resource["Type"] == VERSION:
            return None
        given = {path: value for path in name_properties(resource["Type"]) if (value := at(resource.get("Properties", {}), path)) is not None}
        return (resource["Type"], plain(given)) if any(map(self.is_text, given.values())) else None

    def is_text(self, value):
        """Returns whether a value is a text. Otherwise, the value refers to a resource to which the named one belongs.
        """
        match value:
            case {"Ref": name}:
                return all(name != logical for _, logical in self.resources)
            case {"Fn::Sub": _}:
                return True
        return isinstance(value, str)

    def attached(self):
        """Returns the resources by target, for resources that AWS allows once per target."""
        found = {}
        for key, resource in self.resources.items():
            if resource["Type"] in ATTACHED:
                targets = [resource["Properties"].get(name) for name in ATTACHED[resource["Type"]][0]]
                for each in targets[0] if isinstance(targets[0], list) else [targets]:
                    found[resource["Type"], plain(each)] = key
        return found


def translate(template):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "template.json"
        file.write_text(json.dumps(template))
        return translated(file)


@cache
def schema(kind):
    return PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema


@cache
def create_only_paths(kind):
    paths = schema(kind).get("createOnlyProperties", []) + schema(kind).get("conditionalCreateOnlyProperties", [])
    return sorted([*(path.removeprefix("/properties/") for path in paths), *FIXED.get(kind, [])])


@cache
def name_properties(kind):
    """Returns the properties that make a resource of this type unique, if the template sets them."""
    identifier = [path.removeprefix("/properties/") for path in schema(kind)["primaryIdentifier"]]
    read_only = {path.removeprefix("/properties/") for path in schema(kind).get("readOnlyProperties", [])}
    whole = [] if read_only & set(identifier) else identifier
    return sorted({*whole, *(path for path in create_only_paths(kind) if re.search(r"(Name|Domain)$", path))} - read_only)


def at(properties, path):
    for part in path.split("/"):
        properties = properties.get(part) if isinstance(properties, dict) else None
    return properties


def plain(value):
    return json.dumps(value, sort_keys=True)


def is_retained(resource):
    return resource["Type"] != VERSION and bool(retaining(resource))


def retaining(resource):
    """Returns the policies of a resource with which CloudFormation retains it."""
    return {policy for policy in POLICIES if str(resource.get(policy, "")).startswith("Retain")}


def path_of(key):
    return "/".join(part for part in key if part)


def compare(before, after):
    """Returns what an upgrade of a stack would break, in one or two sentences each."""
    checks = (lost_resources, moved_names, moved_attachments, removed_outputs, changed_secrets, changed_tables, unknown_alarms)
    return [violation for check in checks for violation in check(before, after)]


def lost_resources(before, after):
    for key, resource in before.resources.items():
        path, kind, new = path_of(key), resource["Type"], after.resources.get(key)
        if new and new["Type"] != kind:
            yield f"{path} was {kind} and is {new['Type']}: CloudFormation rejects it. Give the new resource another logical id."
        elif not (is_retained(resource) or kind in ADDRESSED):
            continue
        elif new is None:
            why = ADDRESSED.get(kind, "CloudFormation would leave it, with its data, outside of the stack")
            yield f"{path} ({kind}) is gone: {why}. Keep it; or first deploy what no longer uses it, then move its data and remove it."
        elif changed := changes(before.create_only(resource), after.create_only(new)):
            yield (
                f"{path} ({kind}) changes {', '.join(changed)}, which can't change: CloudFormation would make an empty one. First deploy a "
                "second resource under another logical id, copy the data, and use it; remove the former one in the next deployment."
            )
        elif before.presence(resource) != after.presence(new):
            yield f"{path} ({kind}) has another condition: where it does not hold, the stack loses it. First deploy with the former condition."
        elif lacks := sorted(retaining(resource) - retaining(new)):
            yield f"{path} ({kind}) is no longer retained by its {', '.join(lacks)}: CloudFormation would delete it with its data. Keep both policies."


def changes(before, after):
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def moved_names(before, after):
    former = before.names()
    for name, key in after.names().items():
        if (other := former.get(name)) is None:
            continue
        if other != key:
            yield (
                f"{path_of(key)} takes the name of {path_of(other)}, {name[1]}: the name is in use when CloudFormation makes the new one. "
                "First deploy without the former one, then with the new one; or give it another name."
            )
        elif changed := changes(before.create_only(before.resources[key]), after.create_only(after.resources[key])):
            yield (
                f"{path_of(key)} changes {', '.join(changed)} and keeps its name, so CloudFormation can't replace it. "
                "Give it another name, or first deploy without it."
            )


def moved_attachments(before, after):
    former = before.attached()
    for (kind, target), key in after.attached().items():
        if (other := former.get((kind, target))) is None:
            continue
        changed = changes(before.create_only(before.resources[other]), after.create_only(after.resources[key]))
        if other != key or changed:
            yield (
                f"{path_of(key)} takes the place of {path_of(other)} at {target}: {ATTACHED[kind][1]}. Keep the logical id and the create-only "
                "properties; or first deploy without the former one, then with the new one."
            )


def removed_outputs(before, after):
    for stack, template in before.templates.items():
        outputs = after.templates.get(stack, {}).get("Outputs", {})
        for name, output in template.get("Outputs", {}).items():
            path = path_of((stack, name))
            if export := output.get("Export"):
                if outputs.get(name, {}).get("Export") != export:
                    yield f"the export of {path} changes: CloudFormation rejects that while a stack imports it. First deploy those without the import."
            elif not stack and name not in outputs:
                yield f"the output {path} is gone: commands and other stacks read it. Keep it for a release in which CHANGELOG.md says so."


def changed_secrets(before, after):
    """Finds changed secrets. The policies of secrets may prevent CloudFormation from reading them, which an update of a
    secret does. This has not been tried.
    """
    with_policy = {target for kind, target in before.attached() if kind == "AWS::SecretsManager::ResourcePolicy"}
    for key, resource in before.resources.items():
        new = after.resources.get(key)
        if resource["Type"] != SECRET or new is None or plain([{"Ref": key[1]}]) not in with_policy:
            continue
        if changed := changes(resource["Properties"], new["Properties"]):
            yield (
                f"{path_of(key)} changes {', '.join(changed)} under a policy that may keep CloudFormation from it. First deploy without "
                "the secret's policy, then with both."
            )


def changed_tables(before, after):
    """Finds changes of tables that DynamoDB rejects or that would lose records (API reference, UpdateTable)."""
    for key, resource in before.resources.items():
        new = after.resources.get(key)
        if resource["Type"] != TABLE or new is None or new["Type"] != TABLE:
            continue
        path, former, properties = path_of(key), resource["Properties"], new["Properties"]
        indexes, new_indexes = ({each["IndexName"]: each for each in one.get("GlobalSecondaryIndexes", [])} for one in (former, properties))
        if len(different := sorted(indexes.keys() ^ new_indexes.keys())) > 1:
            yield f"{path} adds or removes {', '.join(different)}: DynamoDB takes one index in an update. Deploy each by itself."
        for name in sorted(indexes.keys() & new_indexes.keys()):
            if any(indexes[name].get(each) != new_indexes[name].get(each) for each in ("KeySchema", "Projection")):
                yield f"{path} changes the index {name}, which can't change. First deploy one with another name, and remove this one once nothing reads it."
        types, new_types = ({each["AttributeName"]: each["AttributeType"] for each in one["AttributeDefinitions"]} for one in (former, properties))
        if changed := sorted(name for name in types.keys() & new_types.keys() if types[name] != new_types[name]):
            yield f"{path} changes the type of {', '.join(changed)}, a key: DynamoDB rejects it. Use another attribute."
        if former.get("StreamSpecification", properties.get("StreamSpecification")) != properties.get("StreamSpecification"):
            yield f"{path} changes its stream: the records that nobody has read are lost with it. Keep it, or first let all be read while payments are stopped."
        if at(former, "TimeToLiveSpecification/AttributeName") not in (None, at(properties, "TimeToLiveSpecification/AttributeName")):
            yield f"{path} changes the attribute of its TTL: DynamoDB rejects it. First deploy with `Enabled: false`, and after an hour the other attribute."


def unknown_alarms(before, after):
    """Finds alarms that may not exist yet when a canary of this upgrade looks for them, because alarms of canaries are
    created after the functions.
    """
    known = {plain(each["Properties"].get("AlarmName")) for each in before.resources.values() if each["Type"] == "AWS::CloudWatch::Alarm"}
    for key, resource in after.resources.items():
        for alarm in at(resource.get("Properties", {}), "AlarmConfiguration/Alarms") or []:
            if key in before.resources and plain(alarm["Name"]) not in known:
                yield f"{path_of(key)} watches {plain(alarm['Name'])}, which the former release does not have. First deploy the alarm, and let the canary watch it in the next."


def release_files(root=ROOT):
    """Returns the templates of a release of this checkout, by file name."""
    text, nested, _ = release.template(ARCHITECTURE, root)
    return {TEMPLATE: json.loads(text)} | {name: yaml_parse(content) for name, content in nested.items()}


def pack(files):
    """Returns templates as lines of JSON: file, section, name in the section or null, and value."""
    lines = []
    for file, template in files.items():
        for section, content in template.items():
            members = content.items() if isinstance(content, dict) and content else [(None, content)]
            lines += [json.dumps([file, section, *member], separators=(",", ":")) + "\n" for member in members]
    return "".join(lines)


def unpack(text):
    files = {}
    for file, section, name, value in map(json.loads, text.splitlines()):
        template = files.setdefault(file, {})
        if name is None:
            template[section] = value
        else:
            template.setdefault(section, {})[name] = value
    return files


def previous_files():
    return unpack(PREVIOUS.read_text())


def keep(folder):
    """Makes the release in a folder the previous one."""
    template = json.loads((folder / TEMPLATE).read_text())
    nested = [each["Properties"]["TemplateURL"] for each in template["Resources"].values() if each["Type"] == NESTED]
    return pack({TEMPLATE: template} | {name: yaml_parse((folder / name).read_text()) for name in nested})


def main(arguments):
    match arguments:
        case []:
            violations = compare(Deployment(previous_files()), Deployment(release_files()))
            for violation in violations:
                print(f"upgrade: {violation}", file=sys.stderr)
            return 1 if violations else 0
        case ["keep", folder]:
            PREVIOUS.write_text(keep(Path(folder)))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
