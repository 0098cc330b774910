#!/usr/bin/env python3
"""Checks, before anything is created, which of AWS's limits a deployment would exceed. Emulators enforce few of these
limits.

    .venv/bin/python infra/sam/limits.py --stack-name purser-dev --region eu-west-1 [--parameter Name=value]…
                                         [--needs]

The templates are translated like AWS does, and every reference is replaced by a name of real length. LIMITS, below,
lists what is measured, how much is allowed, which page documents the limit, and what to change. --needs prints what the
account must have, as JSON. No request is sent to AWS.

Exit status: 0, it fits; 1, it does not, and stderr says why; 2, a wrong command line.
"""

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

import boto3
from botocore.exceptions import UnknownRegionError
from cfnlint.helpers import REGIONS
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from translate import NESTED, TEMPLATE, evaluated, templates, whole

ACCOUNT = "123456789012"
AWS = "https://docs.aws.amazon.com"
# The suffix that CloudFormation adds to a name that it generates: a hyphen and 12 or 13 characters.
SUFFIX = "-1A2B3C4D5E6F7"
KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
# A new on-demand table has four partitions, each with a shard: 4,000 writes a second, 1,000 per partition.
SHARDS = 4
# The maximum lengths of names, in characters, that CloudFormation generates and policies match.
LONGEST = {
    "AWS::CodeDeploy::Application": 100, "AWS::CodeDeploy::DeploymentGroup": 100, "AWS::Events::Rule": 64, "AWS::IAM::ManagedPolicy": 128,
    "AWS::IAM::Role": 64, "AWS::Lambda::Function": 64, "AWS::S3::Bucket": 63, "AWS::SQS::Queue": 80, "AWS::Scheduler::Schedule": 64,
}  # fmt: skip
# Lambda requires this many unreserved executions (API reference, PutFunctionConcurrency).
UNRESERVED = 100


@cache
def partition_of(region):
    try:
        return boto3.Session(region_name="us-east-1").get_partition_for_region(region)
    except UnknownRegionError:
        return "none"


class Stack:
    """A deployment's translated templates as CloudFormation sees them in one account and region. Resources of nested
    stacks are included.
    """

    def __init__(self, files, name, region, **parameters):
        self.files, self.name, self.region, self.parameters = files, name, region, parameters
        self.template = whole(files)
        self.resources = {}
        for logical, resource in self.template["Resources"].items():
            if self.holds(resource.get("Condition")):
                self.resources[logical] = resource
        self.resources = {logical: self.resolved(resource) for logical, resource in self.resources.items()}

    @property
    def partition(self):
        return partition_of(self.region)

    def of_type(self, kind):
        return {name: one.get("Properties", {}) for name, one in self.resources.items() if one["Type"] == kind}

    def resolved(self, value):
        return self._plain(evaluated(self.template, value, **self.parameters))

    def physical(self, logical):
        """Returns the name that CloudFormation generates. It cuts the stack's name if the whole name is too long
        (cut_names).
        """
        end = f"-{logical}{SUFFIX}"
        most = LONGEST.get(self.template["Resources"][logical]["Type"], 255)
        return self.name[: max(0, most - len(end))] + end

    def holds(self, condition):
        return condition is None or evaluated(self.template, {"Fn::If": [condition, True, False]}, **self.parameters)

    def _plain(self, value):
        match value:
            case {"Ref": name}:
                return self.ref(name)
            case {"Fn::GetAtt": [logical, attribute]}:
                return self.attribute(logical, attribute)
            case {"Fn::Sub": [text, more]}:
                return self._substituted(text, {name: self._plain(one) for name, one in more.items()})
            case {"Fn::Sub": text}:
                return self._substituted(text, {})
            case {"Fn::Join": [between, parts]}:
                return between.join(str(part) for part in map(self._plain, parts))
            case {"Fn::Split": [between, text]}:
                return self._plain(text).split(between)
            case {"Fn::Select": [index, parts]}:
                return self._plain(parts)[int(index)]
            case dict():
                return {name: self._plain(one) for name, one in value.items()}
            case list():
                return [self._plain(one) for one in value]
        return value

    def _substituted(self, text, more):
        def one(found):
            name = found[1]
            if name in more:
                return str(more[name])
            logical, _, attribute = name.partition(".")
            return str(self.attribute(logical, attribute) if attribute else self.ref(name))

        return re.sub(r"\$\{([^}!]+)\}", one, text)

    def ref(self, name):
        pseudo = {
            "AWS::AccountId": ACCOUNT, "AWS::NoValue": "", "AWS::Partition": self.partition, "AWS::Region": self.region,
            "AWS::StackName": self.name, "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackId": f"arn:{self.partition}:cloudformation:{self.region}:{ACCOUNT}:stack/{self.name}/{KEY_ID}",
        }
        if name in pseudo:
            return pseudo[name]
        if name in self.template["Parameters"]:
            return self.parameters.get(name, self.template["Parameters"][name].get("Default", ""))
        return {
            "AWS::ApiGatewayV2::Api": lambda: "a1b2c3d4e5",
            "AWS::Cognito::UserPool": lambda: f"{self.region}_1a2B3c4D5",
            "AWS::Events::EventBus": lambda: self._named(name, "Name"),
            "AWS::Events::Rule": lambda: f"{self.name}|{self.physical(name)}",
            "AWS::IAM::ManagedPolicy": lambda: f"arn:{self.partition}:iam::{ACCOUNT}:policy/{self.physical(name)}",
            "AWS::KMS::Key": lambda: KEY_ID,
            "AWS::Lambda::Alias": lambda: self._qualified(name, "Name"),
            "AWS::Lambda::Version": lambda: self._qualified(name, None),
            "AWS::SNS::Topic": lambda: self.attribute(name, "TopicArn"),
            "AWS::SQS::Queue": lambda: f"https://sqs.{self.region}.amazonaws.com/{ACCOUNT}/{self.physical(name)}",
            "AWS::SecretsManager::Secret": lambda: self.attribute(name, "Arn"),
        }.get(self.template["Resources"][name]["Type"], lambda: self.physical(name))()

    def _named(self, logical, field):
        return self.resolved(self.template["Resources"][logical]["Properties"][field])

    def _qualified(self, logical, field):
        """Returns the ARN of a function's alias, or of its first version."""
        properties = self.resolved(self.template["Resources"][logical]["Properties"])
        name = properties["FunctionName"].rsplit(":", 1)[-1]
        return f"arn:{self.partition}:lambda:{self.region}:{ACCOUNT}:function:{name}:{properties[field] if field else 1}"

    def attribute(self, logical, attribute):
        if attribute not in ("Arn", "StreamArn", "TopicArn"):
            return self.physical(logical)
        name, place = self.physical(logical), f"{self.region}:{ACCOUNT}"
        return {
            "AWS::CloudWatch::Alarm": lambda: f"arn:{self.partition}:cloudwatch:{place}:alarm:{self._named(logical, 'AlarmName')}",
            "AWS::DynamoDB::Table": lambda: f"arn:{self.partition}:dynamodb:{place}:table/{name}"
            + ("/stream/2026-01-01T00:00:00.000" if attribute == "StreamArn" else ""),
            "AWS::Events::EventBus": lambda: f"arn:{self.partition}:events:{place}:event-bus/{self._named(logical, 'Name')}",
            "AWS::Events::Rule": lambda: f"arn:{self.partition}:events:{place}:rule/{self.name}/{name}",
            "AWS::IAM::Role": lambda: f"arn:{self.partition}:iam::{ACCOUNT}:role/{name}",
            "AWS::KMS::Key": lambda: f"arn:{self.partition}:kms:{place}:key/{KEY_ID}",
            "AWS::Lambda::Function": lambda: f"arn:{self.partition}:lambda:{place}:function:{name}",
            "AWS::Logs::LogGroup": lambda: f"arn:{self.partition}:logs:{place}:log-group:{name}:*",
            "AWS::SQS::Queue": lambda: f"arn:{self.partition}:sqs:{place}:{name}",
            "AWS::SecretsManager::Secret": lambda: f"arn:{self.partition}:secretsmanager:{place}:secret:{name}-AbCdEf",
        }.get(self.template["Resources"][logical]["Type"], lambda: f"arn:{self.partition}:service:{place}:{name}")()


# ---- What is measured: each yields where, and a figure ---------------------------------------------------------------


def size(document):
    return len(json.dumps(document, separators=(",", ":")).encode())


def many(value):
    return value if isinstance(value, list) else [value]


def statements(document):
    return many(document["Statement"])


def strings(value, where=""):
    match value:
        case str():
            yield where, value
        case dict():
            for name, one in value.items():
                yield where, name
                yield from strings(one, f"{where}.{name}" if where else name)
        case list():
            for one in value:
                yield from strings(one, where)


def is_of(stack, logical, name):
    """Returns whether a name or an ARN, possibly with an alias or a version, names this function."""
    return stack.physical(logical) in name.split(":")


def called_by_api(stack):
    """Returns the functions that the API calls, possibly by an alias."""
    names = set(re.findall(r":function:([\w-]+)(?::\w+)?/invocations", json.dumps(body_of(stack))))
    return {logical for logical in stack.of_type("AWS::Lambda::Function") if stack.physical(logical) in names}


def function_policies(stack):
    for logical in stack.of_type("AWS::Lambda::Function"):
        granted = [
            {"Sid": name + SUFFIX, "Effect": "Allow", "Principal": {"Service": one["Principal"]}, "Action": one["Action"],
             "Resource": stack.attribute(logical, "Arn"), "Condition": {"ArnLike": {"AWS:SourceArn": one.get("SourceArn")}}}
            for name, one in stack.of_type("AWS::Lambda::Permission").items() if is_of(stack, logical, one["FunctionName"])
        ]
        yield logical, size({"Version": "2012-10-17", "Id": "default", "Statement": granted})


def permissions_per_function(stack):
    for name, count in Counter(one["FunctionName"] for one in stack.of_type("AWS::Lambda::Permission").values()).items():
        yield name, count


def unpermitted_functions(stack):
    """Finds functions that the API calls without a permission."""
    permitted = [one["FunctionName"] for one in stack.of_type("AWS::Lambda::Permission").values()]
    for logical in called_by_api(stack):
        yield logical, int(not any(is_of(stack, logical, name) for name in permitted))


def missing_aliases(stack):
    """Finds functions that are called by an alias that they don't have."""
    made = {(one["FunctionName"], one["Name"]) for one in stack.of_type("AWS::Lambda::Alias").values()}
    for where, text in strings(stack.resources):
        for named in re.findall(r":function:([\w-]+):([A-Za-z][\w-]*)", text):
            yield f"{where}: {':'.join(named)}", int(named not in made)


def inline_policies(stack):
    for name, role in stack.of_type("AWS::IAM::Role").items():
        yield name, sum(len(re.sub(r"\s", "", json.dumps(one["PolicyDocument"]))) for one in role.get("Policies", []))


def managed_policies(stack):
    for name, policy in stack.of_type("AWS::IAM::ManagedPolicy").items():
        yield name, len(re.sub(r"\s", "", json.dumps(policy["PolicyDocument"])))


def attached_policies(stack):
    for name, role in stack.of_type("AWS::IAM::Role").items():
        yield name, len(role.get("ManagedPolicyArns", []))


def trust_policies(stack):
    for name, role in stack.of_type("AWS::IAM::Role").items():
        yield name, size(role["AssumeRolePolicyDocument"])


def policies(kind, field):
    def measure(stack):
        for name, one in stack.of_type(kind).items():
            document = one.get(field)
            if document:
                yield name, size(document.get("PolicyDocument", document))

    return measure


def queue_statements(stack):
    for name, one in stack.of_type("AWS::SQS::QueuePolicy").items():
        yield name, len(statements(one["PolicyDocument"]))


def queue_resources(stack):
    """Finds resources that a statement of a queue's policy must not name."""
    for name, one in stack.of_type("AWS::SQS::QueuePolicy").items():
        named = [many(each["Resource"]) for each in statements(one["PolicyDocument"])]
        # An ARN names one queue. `*` is the queue that has the policy.
        wrong = [each for each in named if len(each) > 1 or (each != ["*"] and len(one["Queues"]) > 1)]
        yield name, len(wrong)


def policies_per_queue(stack):
    named = Counter(queue for one in stack.of_type("AWS::SQS::QueuePolicy").values() for queue in one["Queues"])
    for name in stack.of_type("AWS::SQS::Queue"):
        yield name, abs(named[stack.ref(name)] - 1)


def policies_per_bucket(stack):
    yield from Counter(one["Bucket"] for one in stack.of_type("AWS::S3::BucketPolicy").values()).items()


def statement_ids(stack):
    """Finds ids that occur twice in a policy, or that have other characters than letters and digits."""
    def documents(where, value):
        match value:
            case {"Version": _, "Statement": list(listed)}:
                yield where, [one["Sid"] for one in listed if "Sid" in one]
            case dict() | list():
                for one in value.values() if isinstance(value, dict) else value:
                    yield from documents(where, one)

    for logical, resource in stack.resources.items():
        for where, ids in documents(logical, resource):
            yield where, len(ids) - len(set(ids)) + sum(not re.fullmatch("[A-Za-z0-9]+", one) for one in ids)


def policies_per_secret(stack):
    named = Counter(one["SecretId"] for one in stack.of_type("AWS::SecretsManager::ResourcePolicy").values())
    for name in stack.of_type("AWS::SecretsManager::Secret"):
        yield name, abs(named[stack.ref(name)] - 1)


def variables(stack):
    for name, function in stack.of_type("AWS::Lambda::Function").items():
        values = function.get("Environment", {}).get("Variables", {})
        yield name, size({key: str(value) for key, value in values.items()})


def descriptions(kind, field="Description"):
    def measure(stack):
        for name, one in stack.of_type(kind).items():
            yield name, len(one.get(field, ""))

    return measure


def dashboards(stack):
    for name, one in stack.of_type("AWS::CloudWatch::Dashboard").items():
        json.loads(one["DashboardBody"])
        yield name, len(one["DashboardBody"].encode())


def searches(stack):
    """Returns the lengths of SEARCH expressions."""
    for name, one in stack.of_type("AWS::CloudWatch::Dashboard").items():
        for _, text in strings(json.loads(one["DashboardBody"])):
            for found in re.finditer(r"SEARCH\('(.*?)',", text):
                yield name, len(found[1])


def alarms_in_widgets(stack):
    for name, one in stack.of_type("AWS::CloudWatch::Dashboard").items():
        for widget in json.loads(one["DashboardBody"])["widgets"]:
            yield name, len(widget["properties"].get("alarms", []))


def expressions(stack):
    for name, alarm in stack.of_type("AWS::CloudWatch::Alarm").items():
        for metric in alarm.get("Metrics", []):
            if "Expression" in metric:
                yield name, metric["Expression"]


def insights_lengths(stack):
    yield from ((name, len(text)) for name, text in expressions(stack) if text.startswith("SELECT"))


def insights_words(stack):
    """Finds words that the grammar of Metrics Insights does not have."""
    for name, text in expressions(stack):
        if text.startswith("SELECT"):
            yield name, len(re.findall(r"\b(?:OR|IN|LIKE|NOT)\b|<|>", re.sub(r"'[^']*'|\"[^\"]*\"", "", text)))


def metrics_of_alarms(stack):
    for name, alarm in stack.of_type("AWS::CloudWatch::Alarm").items():
        yield name, len(alarm.get("Metrics", [1]))


def alarm_seconds(stack):
    for name, alarm in stack.of_type("AWS::CloudWatch::Alarm").items():
        periods = [each.get("Period") or each.get("MetricStat", {}).get("Period", 0) for each in alarm.get("Metrics", [alarm])]
        yield name, max(periods) * alarm["EvaluationPeriods"]


def dimensions_with_bus(stack):
    """Finds dimensions that name a rule like `Ref` does (`bus|rule`). The metric has only the rule's name."""
    for name, alarm in stack.of_type("AWS::CloudWatch::Alarm").items():
        yield name, json.dumps(alarm).count("|")


def access_logs(stack):
    for name, stage in stack.of_type("AWS::ApiGatewayV2::Stage").items():
        yield name, len(stage["AccessLogSettings"]["Format"].encode())


def access_log_lines(stack):
    for name, stage in stack.of_type("AWS::ApiGatewayV2::Stage").items():
        yield name, stage["AccessLogSettings"]["Format"].strip().count("\n")


def wrong_stage_variables(stack):
    for name, stage in stack.of_type("AWS::ApiGatewayV2::Stage").items():
        pairs = (stage.get("StageVariables") or {}).items()
        yield name, sum(not re.fullmatch(r"\w+=[A-Za-z0-9._~:/?#&=,-]+", f"{key}={value}", re.ASCII) for key, value in pairs)


def patterns(stack):
    for name, rule in stack.of_type("AWS::Events::Rule").items():
        yield name, size(rule["EventPattern"])


def targets_with_role(stack):
    for name, rule in stack.of_type("AWS::Events::Rule").items():
        yield name, sum("RoleArn" in target for target in rule["Targets"])


def filters(stack):
    for name, mapping in stack.of_type("AWS::Lambda::EventSourceMapping").items():
        for each in mapping.get("FilterCriteria", {}).get("Filters", []):
            yield name, len(each["Pattern"])


def filter_counts(stack):
    for name, mapping in stack.of_type("AWS::Lambda::EventSourceMapping").items():
        yield name, len(mapping.get("FilterCriteria", {}).get("Filters", []))


def template_size(stack):
    for path, template in stack.files.items():
        yield path, size(template)


def count(section):
    def measure(stack):
        for path, template in stack.files.items():
            yield path, len(template.get(section, {}))

    return measure


def passed_values(stack):
    """Returns the values that are passed to nested stacks."""
    for name, one in stack.files[TEMPLATE.name]["Resources"].items():
        if one["Type"] == NESTED:
            for parameter, value in one["Properties"]["Parameters"].items():
                yield f"{name}.{parameter}", len(str(stack.resolved(value)).encode())


def body_of(stack):
    return next(iter(stack.of_type("AWS::ApiGatewayV2::Api").values()))["Body"]


def operations(stack):
    for path, methods in body_of(stack)["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield path, method, operation


def routes(stack):
    yield "Api", sum(1 for _ in operations(stack))


def conflicting_variables(stack):
    """Finds routes with the same method whose paths differ only in the names of variables."""
    shapes = Counter((method, re.sub(r"\{[^}+]+", "{", path)) for path, method, _ in operations(stack))
    for (method, path), count in shapes.items():
        yield f"{method} {path}", count


def servers_without_url(stack):
    yield "Api", sum("url" not in each for each in body_of(stack).get("servers", []))


def paths_with_slash(stack):
    for path in body_of(stack)["paths"]:
        yield path, int(path != "/" and path.endswith("/"))


def operations_without_integration(stack):
    for path, method, operation in operations(stack):
        yield f"{method} {path}", int("x-amazon-apigateway-integration" not in operation)


def gateway_timeouts(stack):
    for name in called_by_api(stack):
        yield name, stack.of_type("AWS::Lambda::Function")[name]["Timeout"]


def stack_name(stack):
    yield stack.name, len(stack.name)


def wrong_stack_name(stack):
    yield stack.name, int(not re.fullmatch("[a-z][a-z0-9-]*", stack.name))


def domains(stack):
    for name, one in stack.of_type("AWS::Cognito::UserPoolDomain").items():
        wrong = re.search("aws|amazon|cognito", one["Domain"]) or not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", one["Domain"])
        yield name, 1_000 if wrong else len(one["Domain"])


# The properties with which a template can set a name. CloudFormation generates all other names from the stack's name.
NAMES = {
    "AWS::CloudWatch::Alarm": ("AlarmName", 255), "AWS::CloudWatch::Dashboard": ("DashboardName", 255),
    "AWS::Cognito::UserPool": ("UserPoolName", 128), "AWS::DynamoDB::Table": ("TableName", 255),
    "AWS::Events::EventBus": ("Name", 256), "AWS::Events::Rule": ("Name", 64), "AWS::IAM::ManagedPolicy": ("ManagedPolicyName", 128),
    "AWS::IAM::Role": ("RoleName", 64), "AWS::KMS::Alias": ("AliasName", 256), "AWS::Lambda::Function": ("FunctionName", 64),
    "AWS::Logs::LogGroup": ("LogGroupName", 512), "AWS::SNS::Topic": ("TopicName", 256), "AWS::SQS::Queue": ("QueueName", 80),
    "AWS::Scheduler::Schedule": ("Name", 64), "AWS::SecretsManager::Secret": ("Name", 512),
}
# Names that must be unique in an account across all regions.
GLOBAL = {"AWS::CloudWatch::Dashboard", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role"}


def given_names(stack):
    for logical, resource in stack.resources.items():
        field, longest = NAMES.get(resource["Type"], (None, 0))
        if field in resource.get("Properties", {}):
            yield logical, resource["Type"], resource["Properties"][field], longest


def repeated_names(stack):
    """Finds names that two resources of a type share."""
    for (kind, name), count in Counter((kind, name) for _, kind, name, _ in given_names(stack)).items():
        yield f"{kind} {name}", count


def long_names(stack):
    for logical, _, name, longest in given_names(stack):
        yield logical, max(0, len(name) - longest)


def shared_names(stack):
    """Finds names that a second stack of the account would share, or the same stack in another region."""
    other = {one: name for one, _, name, _ in given_names(Stack(stack.files, "other", stack.region, **stack.parameters))}
    away = {one: name for one, _, name, _ in given_names(Stack(stack.files, stack.name, "zz-elsewhere-1", **stack.parameters))}
    for logical, kind, name, _ in given_names(stack):
        yield logical, int(name == other[logical] or (kind in GLOBAL and name == away[logical]))


def cut_names(stack):
    """Returns the number of characters by which a generated name is too long. CloudFormation then cuts the stack's
    name, which policies match.
    """
    named = {logical for logical, *_ in given_names(stack)}
    for logical, resource in stack.resources.items():
        if resource["Type"] in LONGEST and logical not in named:
            yield logical, max(0, len(f"{stack.name}-{logical}{SUFFIX}") - LONGEST[resource["Type"]])


def unmatched_roles(stack):
    """Finds role name patterns in policies that don't match a function's role because its name was cut."""
    roles = [stack.attribute(name, "Arn") for name in stack.of_type("AWS::IAM::Role")]
    functions = {one["Role"] for one in stack.of_type("AWS::Lambda::Function").values()}
    for where, text in strings(stack.resources):
        for pattern in re.findall(r"arn:aws:iam::\d+:role/[\w+=,.@*-]*\*", text):
            matched = {role for role in roles if fnmatchcase(role, pattern)}
            yield where, len(functions - matched) if "-*Role-" in pattern else int(not matched)


def unencrypted_logs(stack):
    """Finds log groups that the condition in the key's policy does not cover."""
    allowed = {each for _, each in strings(stack.of_type("AWS::KMS::Key")) if ":log-group:" in each}
    for name in stack.of_type("AWS::Logs::LogGroup"):
        arn = stack.attribute(name, "Arn").removesuffix(":*")
        yield name, int(not any(fnmatchcase(arn, pattern) for pattern in allowed))


def beyond_ascii(stack):
    for where, text in strings(stack.files):
        if not text.isascii():
            yield where, sum(not letter.isascii() for letter in text)


def mappings(stack, function=None):
    for name, one in stack.of_type("AWS::Lambda::EventSourceMapping").items():
        if function is None or is_of(stack, function, one["FunctionName"]):
            yield name, one


def short_visibility(stack):
    """Returns the seconds by which a queue's visibility timeout is shorter than the mapping's window plus six times the
    function's timeout.
    """
    for logical, function in stack.of_type("AWS::Lambda::Function").items():
        for name, one in mappings(stack, logical):
            for queue, properties in stack.of_type("AWS::SQS::Queue").items():
                if one["EventSourceArn"] == stack.attribute(queue, "Arn"):
                    needed = 6 * function["Timeout"] + one.get("MaximumBatchingWindowInSeconds", 0)
                    yield queue, max(0, needed - properties.get("VisibilityTimeout", 30))


def mappings_per_source(stack):
    """Finds mappings of one function, or of one alias, on the same stream or queue."""
    yield from Counter((one["FunctionName"], one["EventSourceArn"]) for _, one in mappings(stack)).items()


def readers(stack):
    streams = Counter(one["EventSourceArn"] for _, one in mappings(stack) if "/stream/" in one["EventSourceArn"])
    yield from streams.items()


def windows_with_factor(stack):
    for name, one in mappings(stack):
        yield name, int(bool(one.get("TumblingWindowInSeconds")) and one.get("ParallelizationFactor", 1) != 1)


def batches_without_window(stack):
    for name, one in mappings(stack):
        yield name, int(one.get("BatchSize", 10) > 10 and not one.get("MaximumBatchingWindowInSeconds"))


def queue_concurrency(stack):
    for name, one in mappings(stack):
        if "ScalingConfig" in one:
            yield name, int(not 2 <= one["ScalingConfig"]["MaximumConcurrency"] <= 1_000)


def missing_share(stack):
    """Returns how many instances a function's sources may start beyond its reserved share."""
    called = called_by_api(stack)
    for logical, function in stack.of_type("AWS::Lambda::Function").items():
        share = function.get("ReservedConcurrentExecutions")
        wanted = sum(
            SHARDS * one.get("ParallelizationFactor", 1) if "/stream/" in one["EventSourceArn"]
            else one.get("ScalingConfig", {}).get("MaximumConcurrency", 1_000)
            for _, one in mappings(stack, logical)
        )
        sources = [one["Target"] for one in stack.of_type("AWS::Scheduler::Schedule").values() if one.get("State") != "DISABLED"]
        wanted += sum(is_of(stack, logical, one["Arn"]) for one in sources)
        yield logical, 0 if share is None or logical in called else max(0, wanted - int(share))


def reserved(stack):
    return sum(int(one.get("ReservedConcurrentExecutions") or 0) for one in stack.of_type("AWS::Lambda::Function").values())


def quota_needed(stack):
    yield "ReserveConcurrency", reserved(stack) + UNRESERVED if reserved(stack) else 10


# Lambda sets these variables or rejects them (developer guide, "Reserved environment variables"). TZ and LANG may be
# set.
RESERVED = re.compile(r"_HANDLER|_X_AMZN_TRACE_ID|AWS_(DEFAULT_REGION|REGION|EXECUTION_ENV|ACCESS_KEY(_ID)?|SECRET_ACCESS_KEY|SESSION_TOKEN|LAMBDA_\w+)|LAMBDA_(TASK_ROOT|RUNTIME_DIR)")


def reserved_variables(stack):
    for name, function in stack.of_type("AWS::Lambda::Function").items():
        variables = function.get("Environment", {}).get("Variables", {})
        yield name, sum(bool(RESERVED.fullmatch(variable)) for variable in variables)


def targets_of_rules(stack):
    for name, rule in stack.of_type("AWS::Events::Rule").items():
        yield name, len(rule["Targets"])


def target_ids(stack):
    """Finds ids that occur twice in a rule's targets."""
    for name, rule in stack.of_type("AWS::Events::Rule").items():
        yield name, len(rule["Targets"]) - len({target["Id"] for target in rule["Targets"]})


def alarms_of_deployments(stack):
    for name, one in stack.of_type("AWS::CodeDeploy::DeploymentGroup").items():
        yield name, len(one.get("AlarmConfiguration", {}).get("Alarms", []))


def stopped_loops(stack):
    """Finds functions that send to a queue that they read, which Lambda would stop."""
    for logical, function in stack.of_type("AWS::Lambda::Function").items():
        read = {one["EventSourceArn"] for _, one in mappings(stack, logical)}
        [role] = [one for name, one in stack.of_type("AWS::IAM::Role").items() if stack.attribute(name, "Arn") == function["Role"]]
        attached = role.get("ManagedPolicyArns", [])
        managed = [one for name, one in stack.of_type("AWS::IAM::ManagedPolicy").items() if stack.ref(name) in attached]
        sent = {
            resource for policy in [*role["Policies"], *managed] for each in statements(policy["PolicyDocument"])
            if "sqs:SendMessage" in many(each["Action"]) for resource in many(each["Resource"])
        }
        yield logical, int(bool(read & sent) and function.get("RecursiveLoop") != "Allow")


def foreign_partitions(stack):
    yield f"{stack.region} ({stack.partition})", int(stack.partition != "aws")


def missing_types(stack):
    """Finds types of resources that the region does not have, according to AWS's schemas of the region, which are part
    of cfn-lint.
    """
    if stack.region in REGIONS:
        known = set(PROVIDER_SCHEMA_MANAGER.get_resource_types(stack.region))
        for logical, resource in stack.resources.items():
            yield f"{logical} ({resource['Type']})", int(resource["Type"] not in known)


def broken_rules(stack):
    """Finds assertions of the template's Rules that are false for these parameters."""
    for name, rule in stack.template.get("Rules", {}).items():
        conditions = {"Applies": rule.get("RuleCondition", {"Fn::Equals": ["", ""]})}
        conditions |= {f"Holds{at}": each["Assert"] for at, each in enumerate(rule["Assertions"])}
        template = {**stack.template, "Conditions": conditions}
        holds = {each: evaluated(template, {"Fn::If": [each, True, False]}, **stack.parameters) for each in conditions}
        yield name, sum(not held for each, held in holds.items() if each != "Applies") if holds["Applies"] else 0


def is_allowed(declared, value):
    """Returns whether CloudFormation accepts this value for a parameter. A pattern must match the whole value, or each
    value of a list.
    """
    if "AllowedValues" in declared and value not in map(str, declared["AllowedValues"]):
        return False
    each = value.split(",") if declared["Type"] == "CommaDelimitedList" else [value]
    if "AllowedPattern" in declared and not all(re.fullmatch(declared["AllowedPattern"], one) for one in each):
        return False
    if declared["Type"] == "Number":
        # CloudFormation also accepts 1.5, but no resource or variable of ours does.
        if not re.fullmatch("-?[0-9]+", value):
            return False
        return int(declared.get("MinValue", value)) <= int(value) <= int(declared.get("MaxValue", value))
    return int(declared.get("MinLength", 0)) <= len(value) <= int(declared.get("MaxLength", 4_096))


def wrong_parameters(stack):
    """Finds values that a template does not allow, including defaults and values that are passed to nested stacks."""
    root = stack.files[TEMPLATE.name]
    values = [("", declared, name, stack.ref(name)) for name, declared in root["Parameters"].items()]
    for nested, one in root["Resources"].items():
        if one["Type"] == NESTED:
            declared = stack.files[one["Properties"]["TemplateURL"]]["Parameters"]
            passed = one["Properties"]["Parameters"]
            values += [(f"{nested}.", declared[name], name, stack.resolved(value)) for name, value in passed.items()]
    for where, declared, name, value in values:
        yield where + name, int(not is_allowed(declared, str(value)))


# ---- The limits ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    name: str
    at_most: int
    measure: object
    page: str
    change: str


LIMITS = (
    # Sizes, in characters or bytes. 12,000 of a function's 20,480 characters leave room for what SAM adds.
    Limit("bytes of a function's policy", 12_000, function_policies, f"{AWS}/lambda/latest/dg/gettingstarted-limits.html", "give it one permission for the whole API"),
    Limit("characters of a role's own policies", 10_240, inline_policies, f"{AWS}/IAM/latest/UserGuide/reference_iam-quotas.html", "shorten the stack's name, or move statements to a managed policy"),
    Limit("characters of a managed policy", 6_144, managed_policies, f"{AWS}/IAM/latest/UserGuide/reference_iam-quotas.html", "shorten the stack's name, or split the policy"),
    Limit("characters of a trust policy", 2_048, trust_policies, f"{AWS}/IAM/latest/UserGuide/reference_iam-quotas.html", "shorten it"),
    Limit("bytes of a key's policy", 32_768, policies("AWS::KMS::Key", "KeyPolicy"), f"{AWS}/kms/latest/developerguide/resource-limits.html", "shorten it"),
    Limit("characters of a secret's policy", 20_480, policies("AWS::SecretsManager::ResourcePolicy", "ResourcePolicy"), f"{AWS}/secretsmanager/latest/userguide/reference_limits.html", "shorten it"),
    Limit("bytes of a queue's policy", 8_192, policies("AWS::SQS::QueuePolicy", "PolicyDocument"), f"{AWS}/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-policies.html", "shorten it"),
    Limit("bytes of a table's policy", 20_480, policies("AWS::DynamoDB::Table", "ResourcePolicy"), f"{AWS}/amazondynamodb/latest/developerguide/rbac-considerations.html", "shorten it"),
    Limit("bytes of a function's variables", 4_096, variables, f"{AWS}/lambda/latest/dg/gettingstarted-limits.html", "shorten the values, such as OidcIssuer"),
    Limit("characters of a function's description", 256, descriptions("AWS::Lambda::Function"), f"{AWS}/lambda/latest/api/API_CreateFunction.html", "shorten it"),
    Limit("characters of an alarm's description", 1_024, descriptions("AWS::CloudWatch::Alarm", "AlarmDescription"), f"{AWS}/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html", "shorten it"),
    Limit("characters of a rule's description", 512, descriptions("AWS::Events::Rule"), f"{AWS}/eventbridge/latest/APIReference/API_PutRule.html", "shorten it"),
    Limit("characters of a schedule's description", 512, descriptions("AWS::Scheduler::Schedule"), f"{AWS}/scheduler/latest/APIReference/API_CreateSchedule.html", "shorten it"),
    Limit("characters of a secret's description", 2_048, descriptions("AWS::SecretsManager::Secret"), f"{AWS}/secretsmanager/latest/apireference/API_CreateSecret.html", "shorten it"),
    Limit("characters of a policy's description", 1_000, descriptions("AWS::IAM::ManagedPolicy"), f"{AWS}/IAM/latest/APIReference/API_CreatePolicy.html", "shorten it"),
    Limit("bytes of a dashboard", 1_000_000, dashboards, f"{AWS}/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html", "split it"),
    Limit("alarms in a widget", 100, alarms_in_widgets, f"{AWS}/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html", "split the widget"),
    Limit("characters of a SEARCH expression", 1_024, searches, f"{AWS}/AmazonCloudWatch/latest/monitoring/search-expression-syntax.html", "shorten the stack's name, or split the expression"),
    Limit("characters of a Metrics Insights query", 2_048, insights_lengths, f"{AWS}/AmazonCloudWatch/latest/monitoring/cloudwatch-metrics-insights-limits.html", "shorten the stack's name"),
    Limit("bytes of the access log's format", 3_072, access_logs, f"{AWS}/apigateway/latest/developerguide/http-api-quotas.html", "shorten it"),
    Limit("characters of an event pattern", 2_048, patterns, f"{AWS}/eventbridge/latest/userguide/eb-quota.html", "shorten it"),
    Limit("characters of a mapping's filter", 4_096, filters, f"{AWS}/lambda/latest/dg/invocation-eventfiltering.html", "shorten it"),
    Limit("bytes of the template", 1_000_000, template_size, f"{AWS}/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html", "split the stack"),
    # Counts.
    Limit("resources", 500, count("Resources"), f"{AWS}/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html", "split the stack"),
    Limit("parameters", 200, count("Parameters"), f"{AWS}/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html", "remove some"),
    Limit("bytes of a value for a nested stack", 4_096, passed_values, f"{AWS}/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html", "pass less"),
    Limit("outputs", 200, count("Outputs"), f"{AWS}/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html", "remove some"),
    Limit("routes of the API", 300, routes, f"{AWS}/apigateway/latest/developerguide/http-api-quotas.html", "merge some"),
    Limit("permissions of a function", 1, permissions_per_function, f"{AWS}/lambda/latest/dg/gettingstarted-limits.html", "give it one permission for the whole API"),
    Limit("managed policies of a role", 10, attached_policies, f"{AWS}/IAM/latest/UserGuide/reference_iam-quotas.html", "merge some"),
    Limit("statements of a queue's policy", 20, queue_statements, f"{AWS}/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-policies.html", "merge some"),
    Limit("policies of a queue, beside its one", 0, policies_per_queue, f"{AWS}/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html", "name each queue in one policy: a second one replaces the first"),
    Limit("policies of a secret, beside its one", 0, policies_per_secret, "https://github.com/aws/aws-cdk/pull/24365", "name each secret in one policy: a second one is rejected"),
    Limit("policies of a bucket", 1, policies_per_bucket, f"{AWS}/AmazonS3/latest/API/API_PutBucketPolicy.html", "merge them: a second one is rejected, or replaces the first"),
    Limit("targets of a rule", 5, targets_of_rules, f"{AWS}/eventbridge/latest/userguide/eb-quota.html", "write a second rule"),
    Limit("alarms of a deployment group", 10, alarms_of_deployments, f"{AWS}/codedeploy/latest/APIReference/API_AlarmConfiguration.html", "name fewer"),
    Limit("filters of a mapping", 5, filter_counts, f"{AWS}/lambda/latest/dg/invocation-eventfiltering.html", "merge some"),
    Limit("metrics of an alarm", 10, metrics_of_alarms, f"{AWS}/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html", "split the alarm"),
    Limit("mappings of a function on one source", 1, mappings_per_source, "https://github.com/localstack/localstack/pull/9996", "give the second mapping a function of its own: Lambda returns 409, whatever the filters are"),
    Limit("readers of a stream", 2, readers, f"{AWS}/amazondynamodb/latest/developerguide/Streams.Lambda.BestPracticesWithDynamoDB.html", "let one function read for two"),
    # Names. No name is cut if the stack's name has up to 32 characters: the other 32 of 64 are for `-ReconcileFunction`
    # and CloudFormation's 14.
    Limit("characters of the stack's name", 32, stack_name, f"{AWS}/AWSCloudFormation/latest/UserGuide/cfn-using-console-create-stack-parameters.html", "choose a shorter one"),
    Limit("characters that CloudFormation cuts from a name", 0, cut_names, "https://github.com/KensioSoftware/yulin/issues/1113", "shorten the stack's name, or name the resource: infra/deployer.yaml matches the stack's"),
    Limit("names that no stack has", 0, wrong_stack_name, f"{AWS}/AmazonS3/latest/userguide/bucketnamingrules.html", "begin with a letter, and use lower-case letters, digits and hyphens: buckets have the name, too"),
    Limit("characters of the sign-in pages' domain", 63, domains, f"{AWS}/cognito-user-identity-pools/latest/APIReference/API_CreateUserPoolDomain.html", "choose another"),
    Limit("characters of a name, beyond its longest", 0, long_names, f"{AWS}/AWSCloudFormation/latest/UserGuide/cfn-using-console-create-stack-parameters.html", "shorten the stack's name"),
    Limit("resources of one name", 1, repeated_names, f"{AWS}/AWSCloudFormation/latest/TemplateReference/aws-properties-name.html", "name each resource of a type otherwise"),
    Limit("names that another stack has too", 0, shared_names, f"{AWS}/AWSCloudFormation/latest/TemplateReference/aws-properties-name.html", "leave the name out (`OmitName`), or begin it with the stack's"),
    Limit("role patterns that miss a role", 0, unmatched_roles, "https://github.com/aws-solutions/aws-waf-security-automations/issues/143", "shorten the stack's name: CloudFormation cuts it in the names of roles"),
    Limit("log groups that their key does not encrypt", 0, unencrypted_logs, f"{AWS}/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html", "widen the condition of the key's policy"),
    # Grammar.
    Limit("characters beyond ASCII", 0, beyond_ascii, "https://github.com/aws-cloudformation/cloudformation-coverage-roadmap/issues/814", "write it in ASCII: GetTemplate returns `?`"),
    Limit("words that Metrics Insights has not", 0, insights_words, f"{AWS}/AmazonCloudWatch/latest/monitoring/cloudwatch-metrics-insights-querylanguage.html", "write an alarm for each value"),
    Limit("line ends in the access log's format", 0, access_log_lines, f"{AWS}/apigateway/latest/developerguide/http-api-logging.html", "write it in one line"),
    Limit("stage variables with other characters", 0, wrong_stage_variables, f"{AWS}/apigatewayv2/latest/api-reference/apis-apiid-stages.html", "use letters, digits and -._~:/?#&=,"),
    Limit("resources of a queue's statement, beside one", 0, queue_resources, f"{AWS}/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-creating-custom-policies.html", "write `Resource: '*'`, which is the queue"),
    Limit("servers without url", 0, servers_without_url, "https://github.com/aws/serverless-application-model/issues/2424", "add a `url` to each entry of `servers`"),
    Limit("paths that end in a slash", 0, paths_with_slash, "https://github.com/aws/serverless-application-model/issues/1949", "leave the slash out: the route is not made"),
    Limit("routes that differ in names of variables alone", 1, conflicting_variables, "https://github.com/plutomi/plutomi/issues/271", "give the variable one name: API Gateway returns 409"),
    Limit("operations without an integration", 0, operations_without_integration, f"{AWS}/apigateway/latest/developerguide/http-api-open-api.html", "name the function"),
    Limit("functions that the API may not call", 0, unpermitted_functions, f"{AWS}/lambda/latest/dg/services-apigateway.html", "add its permission"),
    Limit("aliases that no function has", 0, missing_aliases, f"{AWS}/lambda/latest/dg/configuration-aliases.html", "set AutoPublishAlias, or name the function alone: Lambda returns 404"),
    Limit("rules named with their bus", 0, dimensions_with_bus, f"{AWS}/eventbridge/latest/userguide/eb-monitoring.html", "take the name out of `Ref`, which is `bus|rule`"),
    Limit("queues sent to by a role", 0, targets_with_role, f"{AWS}/eventbridge/latest/userguide/eb-use-resource-based.html", "leave RoleArn out: an encrypted queue is reached by its own policy"),
    Limit("targets of a rule with an id of another", 0, target_ids, f"{AWS}/eventbridge/latest/APIReference/API_Target.html", "give each target its own id"),
    Limit("statement ids that are repeated or not of letters and digits", 0, statement_ids, f"{AWS}/IAM/latest/UserGuide/reference_policies_elements_sid.html", "give each statement of a policy its own id"),
    Limit("variables that Lambda reserves", 0, reserved_variables, f"{AWS}/lambda/latest/dg/configuration-envvars.html", "choose another name"),
    Limit("parameters that a template does not allow", 0, wrong_parameters, f"{AWS}/AWSCloudFormation/latest/UserGuide/parameters-section-structure.html", "see the parameter's description in template.yaml"),
    Limit("assertions that do not hold", 0, broken_rules, f"{AWS}/AWSCloudFormation/latest/UserGuide/rules-section-structure.html", "see the rule in template.yaml"),
    Limit("regions outside the partition aws", 0, foreign_partitions, f"{AWS}/whitepapers/latest/aws-fault-isolation-boundaries/partitions.html", "choose a region of the partition aws: China has no secp256k1 keys in KMS, and nothing is tested in the others"),
    Limit("types of resources that the region lacks", 0, missing_types, f"{AWS}/AWSCloudFormation/latest/UserGuide/resource-type-schemas.html", "choose another region"),
    # Times and concurrency.
    Limit("seconds of a function behind the gateway", 29, gateway_timeouts, f"{AWS}/apigateway/latest/developerguide/http-api-quotas.html", "end before the gateway's 30 s"),
    Limit("seconds by which a queue's visibility is short", 0, short_visibility, f"{AWS}/lambda/latest/dg/services-sqs-configure.html", "set it to six times the function's timeout"),
    Limit("seconds that an alarm looks back", 86_400, alarm_seconds, f"{AWS}/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html", "shorten the period, or take fewer"),
    Limit("tumbling windows with a factor", 0, windows_with_factor, f"{AWS}/lambda/latest/dg/services-ddb-windows.html", "set ParallelizationFactor to 1"),
    Limit("batches above 10 without a window", 0, batches_without_window, f"{AWS}/lambda/latest/api/API_CreateEventSourceMapping.html", "set MaximumBatchingWindowInSeconds"),
    Limit("queues' concurrency outside 2 to 1,000", 0, queue_concurrency, f"{AWS}/lambda/latest/dg/services-sqs-scaling.html", "set MaximumConcurrency within it"),
    Limit("environments missing from a share", 0, missing_share, f"{AWS}/lambda/latest/dg/configuration-concurrency.html", "reserve what its sources start at once"),
    Limit("concurrent executions of the account", 1_000, quota_needed, f"{AWS}/lambda/latest/api/API_PutFunctionConcurrency.html", "lower the shares, or ask for a quota first"),
    Limit("loops that Lambda stops", 0, stopped_loops, f"{AWS}/lambda/latest/dg/invocation-recursion.html", "set RecursiveLoop: Allow"),
)


def problems(stack):
    """Returns the exceeded limits, each with the place and the amount."""
    for limit in LIMITS:
        for where, figure in limit.measure(stack):
            if figure > limit.at_most:
                yield limit, where, figure


# ---- What the account needs ------------------------------------------------------------------------------------------


def needs(stack):
    counted = Counter(resource["Type"] for resource in stack.resources.values())
    kinds = {
        "alarms": "AWS::CloudWatch::Alarm", "iam_roles": "AWS::IAM::Role", "kms_keys": "AWS::KMS::Key", "log_groups": "AWS::Logs::LogGroup",
        "queues": "AWS::SQS::Queue", "scheduler_schedules": "AWS::Scheduler::Schedule", "secrets": "AWS::SecretsManager::Secret",
        "tables": "AWS::DynamoDB::Table",
    }
    [(_, quota)] = quota_needed(stack)
    return {
        "custody_kms": stack.ref("Custody") == "kms", "lambda_concurrent_executions": quota, "lambda_reserved": reserved(stack),
        **{name: counted[kind] for name, kind in kinds.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stack-name", default="purser")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--needs", action="store_true", help="print what the account must have, in JSON")
    arguments = parser.parse_args()
    parameters = {}
    for each in arguments.parameter:
        name, equals, parameters[name] = each.partition("=")
        if not equals:
            parser.error(f"`{each}` is not NAME=VALUE")
    files = templates()
    if unknown := set(parameters) - set(files[TEMPLATE.name]["Parameters"]):
        parser.error(f"template.yaml has no parameter {', '.join(sorted(unknown))}")
    stack = Stack(files, arguments.stack_name, arguments.region, **parameters)
    if arguments.needs:
        print(json.dumps(needs(stack), indent=2))
    else:
        found = list(problems(stack))
        for limit, where, figure in found:
            print(f"limits: {limit.name}: {where}: {figure:,} of {limit.at_most:,}; {limit.change} ({limit.page})", file=sys.stderr)
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
