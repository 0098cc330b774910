#!/usr/bin/env python3
"""Lists, deletes, imports and restores what deleted stacks left: tables, secrets, keys, queues, logs, the buckets and
the user pool.

    infra/sam/kept.py list   [<environment>]          shows it, and what keeps a stack from being deleted
    infra/sam/kept.py delete [<environment>] --yes <stack name>
    infra/sam/kept.py import [<environment>] [--from <former stack name>] [--table <logical id>=<table> ...]
    infra/sam/kept.py restore [<environment>] --to <instant> [--table <logical id>=<table> ...]

The stack is that of the environment in samconfig.toml. Resources are found by the tags that CloudFormation puts on
them; what belongs to a stack that exists is never touched. `import` makes a stack of the kept resources alone, which
`make deploy` then completes. `restore` makes new tables with the rows that the left ones had at an instant, which
`import` then takes in their place. `--table` names a table that has no such tags, or is meant where several were left.
Exit status: 0, done; 1, refused or failed; 2, wrong use.
"""

import argparse
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# The environment that infra/setup.sh installs is used, whichever Python starts this program.
VENV = Path(__file__).resolve().parents[2] / ".venv"
if __name__ == "__main__" and Path(sys.executable).parent != VENV / "bin":
    if not (VENV / "bin" / "python").exists():
        sys.exit("kept: first run infra/setup.sh sam")
    os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), *sys.argv])

import boto3
from botocore.exceptions import BotoCoreError, ClientError, WaiterError
from restore import TABLE, Refused, check_restored_together, check_windows, mark_as_imported, parse_instant, restore_tables
from translate import evaluated, translated
from values import Environment, Wrong

# The identifier with which CloudFormation imports each type of resource that the template retains. The order is the
# order of deletion: keys come last, because nothing else can be read without the keys.
IDENTIFIERS = {
    "AWS::SQS::Queue": "QueueUrl",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::Cognito::UserPool": "UserPoolId",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SecretsManager::Secret": "Id",
    "AWS::KMS::Key": "KeyId",
}
# States of a stack in which no resource was created or imported.
EMPTY = ("IMPORT_ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS")
DAYS = 30
PATIENCE = 900


@dataclass(frozen=True)
class Resource:
    """A resource that a deleted stack left."""

    type: str
    logical_id: str
    id: str


def living(session, stack):
    """Returns the stack with this name, unless it was deleted."""
    try:
        return session.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":
            return None
        raise


def kept(session, stack, template):
    """Returns what former stacks with this name left, in the order in which it can be deleted."""
    types = {name: resource["Type"] for name, resource in template["Resources"].items()}
    present = living(session, stack)
    owned = set()
    if present:
        resources = session.client("cloudformation").get_paginator("list_stack_resources")
        for page in resources.paginate(StackName=stack):
            owned |= {each.get("PhysicalResourceId") for each in page["StackResourceSummaries"]}
    found = set()
    tagged = session.client("resourcegroupstaggingapi").get_paginator("get_resources")
    for page in tagged.paginate(TagFilters=[{"Key": "aws:cloudformation:stack-name", "Values": [stack]}]):
        for each in page["ResourceTagMappingList"]:
            tags = {tag["Key"]: tag["Value"] for tag in each["Tags"]}
            logical_id = tags.get("aws:cloudformation:logical-id")
            kind, is_present = types.get(logical_id), present and tags.get("aws:cloudformation:stack-id") == present["StackId"]
            if kind in IDENTIFIERS and not is_present:
                found.add(Resource(kind, logical_id, identifier(session, kind, each["ResourceARN"])))
    # Log groups are not tagged in every region, so they are also recognized by their generated names.
    name = re.compile(rf"{re.escape(stack)}-([A-Za-z]+)-[A-Za-z0-9]+")
    for page in session.client("logs").get_paginator("describe_log_groups").paginate(logGroupNamePrefix=f"{stack}-"):
        for group in page["logGroups"]:
            match = name.fullmatch(group["logGroupName"])
            if match and types.get(match[1]) == "AWS::Logs::LogGroup":
                found.add(Resource("AWS::Logs::LogGroup", match[1], group["logGroupName"]))
    order = list(IDENTIFIERS)
    left = [each for each in found if each.id not in owned and exists(session, each)]
    return sorted(left, key=lambda each: (order.index(each.type), each.logical_id, each.id))


def identifier(session, kind, arn):
    match kind:
        case "AWS::SecretsManager::Secret":
            return arn
        case "AWS::S3::Bucket":
            return arn.rsplit(":", 1)[-1]
        case "AWS::SQS::Queue":
            # CloudFormation identifies a queue by the URL that SQS returns. A deleted queue has no URL.
            try:
                return session.client("sqs").get_queue_url(QueueName=arn.rsplit(":", 1)[-1])["QueueUrl"]
            except ClientError as error:
                return absent(error)
        case "AWS::Logs::LogGroup":
            return arn.split(":log-group:", 1)[-1].removesuffix(":*")
    return arn.rsplit("/", 1)[-1]


def exists(session, resource):
    """Returns whether the resource exists. Tags can be found for some time after a resource was deleted."""
    if resource.id is None:
        return False
    try:
        match resource.type:
            case "AWS::DynamoDB::Table":
                session.client("dynamodb").describe_table(TableName=resource.id)
            case "AWS::Cognito::UserPool":
                session.client("cognito-idp").describe_user_pool(UserPoolId=resource.id)
            case "AWS::S3::Bucket":
                session.client("s3").head_bucket(Bucket=resource.id)
            case "AWS::SecretsManager::Secret":
                return "DeletedDate" not in session.client("secretsmanager").describe_secret(SecretId=resource.id)
            case "AWS::KMS::Key":
                key = session.client("kms").describe_key(KeyId=resource.id)["KeyMetadata"]
                return key["KeyState"] != "PendingDeletion"
            case "AWS::Logs::LogGroup":
                groups = session.client("logs").describe_log_groups(logGroupNamePrefix=resource.id)["logGroups"]
                return any(group["logGroupName"] == resource.id for group in groups)
    except ClientError as error:
        absent(error)
        return False
    return True


def absent(error):
    """Raises the error again, unless the error says that the resource does not exist."""
    if not re.search("NotFound|NonExistent|DoesNotExist|NoSuchBucket|^404$", error.response["Error"]["Code"]):
        raise error


def foreign_rules(session, stack):
    """Returns rules that other stacks added to the stack's bus. Such rules prevent the deletion of the bus, and so of
    the stack.
    """
    events, resources = session.client("events"), session.client("cloudformation").get_paginator("list_stack_resources")
    of_stack = [each for page in resources.paginate(StackName=stack) for each in page["StackResourceSummaries"]]
    ours = {each.get("PhysicalResourceId", "").rsplit("|", 1)[-1] for each in of_stack}
    buses = [each["PhysicalResourceId"] for each in of_stack if each["ResourceType"] == "AWS::Events::EventBus"]
    for bus in buses:
        try:
            for page in events.get_paginator("list_rules").paginate(EventBusName=bus):
                yield from ((bus, rule["Name"]) for rule in page["Rules"] if rule["Name"] not in ours)
        except events.exceptions.ResourceNotFoundException:
            pass


def delete(session, resource):
    match resource.type:
        case "AWS::SQS::Queue":
            session.client("sqs").delete_queue(QueueUrl=resource.id)
        case "AWS::Logs::LogGroup":
            session.client("logs").delete_log_group(logGroupName=resource.id)
        case "AWS::DynamoDB::Table":
            tables = session.client("dynamodb")
            tables.update_table(TableName=resource.id, DeletionProtectionEnabled=False)
            tables.get_waiter("table_exists").wait(TableName=resource.id)
            tables.delete_table(TableName=resource.id)
        case "AWS::Cognito::UserPool":
            pools = session.client("cognito-idp")
            pools.update_user_pool(UserPoolId=resource.id, DeletionProtection="INACTIVE")
            pools.delete_user_pool(UserPoolId=resource.id)
        case "AWS::S3::Bucket":
            session.resource("s3").Bucket(resource.id).object_versions.delete()
            try:
                session.client("s3").delete_bucket(Bucket=resource.id)
            except ClientError as error:
                if error.response["Error"]["Code"] != "BucketNotEmpty":
                    raise
                # For versions that Object Lock retains, the response contains errors, which boto3 does not raise.
                raise Refused(f"the bucket {resource.id} has objects that are locked (docs/archive.md)") from error
        case "AWS::SecretsManager::Secret":
            session.client("secretsmanager").delete_secret(SecretId=resource.id, RecoveryWindowInDays=DAYS)
        case "AWS::KMS::Key":
            session.client("kms").schedule_key_deletion(KeyId=resource.id, PendingWindowInDays=DAYS)


def importable(template, resources):
    """Returns a template with only these resources. No retained resource refers to a resource that is not retained
    (deploy_test.py).
    """
    wanted = {resource.logical_id for resource in resources}
    by_name = {name: resource for name, resource in template["Resources"].items() if name in wanted}
    sections = {key: template[key] for key in ("AWSTemplateFormatVersion", "Parameters", "Rules", "Conditions") if key in template}
    return {**sections, "Resources": by_name}


def import_stack(session, environment, template, resources):
    cloudformation, name = session.client("cloudformation"), environment.stack
    if present := living(session, name):
        raise Refused(f"the stack `{name}` exists; resources are imported into a new one{deletion(present)}")
    names = [resource.logical_id for resource in resources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Refused(f"several stacks have left {', '.join(twice)}: delete those that are not meant")
    # If one of the resources is missing, the stack would create an empty one, so all are required.
    needed = {name for name, each in template["Resources"].items() if is_kept(each) and holds(template, each, environment)}
    if missing := sorted(needed - set(names)):
        raise Refused(f"these were not left: {', '.join(missing)}")
    for resource in resources:
        if resource.type == "AWS::SecretsManager::Secret":
            # CloudFormation reads the resources that it imports. The deployment creates the policy again, but only if
            # there is none.
            session.client("secretsmanager").delete_resource_policy(SecretId=resource.id)
    body = json.dumps(importable(template, resources), separators=(",", ":"))
    change = {"StackName": name, "ChangeSetName": f"import-{int(time.time())}"}
    cloudformation.create_change_set(
        **change,
        ChangeSetType="IMPORT",
        TemplateBody=body,
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in environment.parameters.items()],
        ResourcesToImport=[
            {
                "ResourceType": each.type,
                "LogicalResourceId": each.logical_id,
                "ResourceIdentifier": {IDENTIFIERS[each.type]: each.id},
            }
            for each in resources
        ],
    )
    try:
        cloudformation.get_waiter("change_set_create_complete").wait(**change)
    except WaiterError:
        reason = cloudformation.describe_change_set(**change).get("StatusReason", "the change set was not made in time")
        # This stack has no resources, and would prevent the next attempt.
        cloudformation.delete_stack(StackName=name)
        raise Refused(f"nothing was imported, and the secrets have no policies until it is: {reason}") from None
    # The tables are marked before functions can write to them.
    mark_as_imported(session.client("dynamodb"), [each.id for each in resources if each.type == TABLE])
    cloudformation.execute_change_set(**change)
    deadline = time.monotonic() + PATIENCE
    while (present := living(session, name))["StackStatus"] != "IMPORT_COMPLETE":
        if time.monotonic() > deadline or not present["StackStatus"].endswith("IN_PROGRESS"):
            raise Refused(f"the stack is {present['StackStatus']}: `aws cloudformation describe-stack-events` says why{deletion(present)}")
        time.sleep(2)


def deletion(stack):
    """Returns what to do about a stack that a failed import left."""
    if stack["StackStatus"] not in EMPTY:
        return ""
    return f". It is {stack['StackStatus']} and has no resources: aws cloudformation delete-stack --stack-name {stack['StackName']}, then try again"


def given_tables(session, template, pairs):
    """Returns the tables that the command line names, by logical id."""
    given = {}
    for pair in pairs:
        logical_id, _, name = pair.partition("=")
        if template["Resources"].get(logical_id, {}).get("Type") != TABLE or not name or logical_id in given:
            raise Refused(f"--table {pair}: not a table of the template and a name, once")
        given[logical_id] = Resource(TABLE, logical_id, name)
        if not exists(session, given[logical_id]):
            raise Refused(f"--table {pair}: there is no such table")
    return given


def all_tables(template):
    return {name: each for name, each in template["Resources"].items() if each["Type"] == TABLE}


def restore(session, environment, template, former, pairs, to):
    """Restores the tables that a stack has left to an instant, and prints the command that imports them."""
    instant, given = parse_instant(to), given_tables(session, template, pairs)
    stack, tables = living(session, former), all_tables(template)
    if stack and stack["StackStatus"] in EMPTY:
        raise Refused(f"the stack `{former}` exists{deletion(stack)}")
    if stack:
        pages = session.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=former)
        found = [(each["LogicalResourceId"], each["PhysicalResourceId"]) for page in pages for each in page["StackResourceSummaries"]]
    else:
        found = [(each.logical_id, each.id) for each in kept(session, former, template)]
    found = [(name, table) for name, table in found if name in tables and name not in given]
    sources = dict(found) | {name: each.id for name, each in given.items()}
    if missing := sorted(tables.keys() - sources.keys()):
        raise Refused(
            f"these were not left: {', '.join(missing)}. Name a table that has no tags of the stack with --table; of a deleted one there is a "
            'backup (docs/runbook.md, "If a table was deleted")'
        )
    if len(dict(found)) < len(found):
        twice = sorted({name for name, _ in found if [each for each, _ in found].count(name) > 1})
        raise Refused(f"several stacks have left {', '.join(twice)}: name those that are meant with --table")
    check_windows(session.client("dynamodb"), sources, instant)
    if stack:
        raise Refused(
            f"all tables can be restored to {instant.isoformat()}, but the stack `{former}` exists and could pay with the present ledger: "
            'freeze the deployment and delete the stack first (docs/runbook.md, "Restoring")'
        )
    properties = {name: evaluated(template, each["Properties"], **environment.parameters) for name, each in tables.items()}
    targets = restore_tables(session, environment, properties, sources, instant)
    options = "".join(f" --table {name}={target}" for name, target in targets.items())
    print(f"infra/sam/kept.py import {environment.name}{'' if former == environment.stack else f' --from {former}'}{options}")


def is_kept(resource):
    return str(resource.get("DeletionPolicy", "")).startswith("Retain") and resource["Type"] in IDENTIFIERS


def holds(template, resource, environment):
    """Returns whether the environment has this resource, which may depend on a condition."""
    if "Condition" not in resource:
        return True
    return evaluated(template, {"Fn::If": [resource["Condition"], True, False]}, **environment.parameters)


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["list", "delete", "import", "restore"])
    parser.add_argument("environment", nargs="?", default="default")
    parser.add_argument("--from", dest="former", help="the name of the stack that left it, if it was another")
    parser.add_argument("--yes", metavar="STACK", help="deletes for good: the wallets' seed or keys are among it")
    parser.add_argument("--table", action="append", default=[], metavar="LOGICAL_ID=TABLE", help="a table, instead of one that was left")
    parser.add_argument("--to", metavar="INSTANT", help="the instant to restore to, such as 2026-11-28T18:00:00Z")
    arguments = parser.parse_args(words)
    if (arguments.to is None) == (arguments.what == "restore"):
        parser.error("--to belongs to `restore`, which needs it")
    try:
        run(boto3.Session(), arguments)
    except Wrong as wrong:
        print(f"kept: {wrong}", file=sys.stderr)
        return 2
    except (Refused, ClientError, BotoCoreError) as error:
        print(f"kept: {error}", file=sys.stderr)
        return 1
    return 0


def run(session, arguments):
    environment = Environment(arguments.environment)
    stack = arguments.former or environment.stack
    template = translated(**environment.parameters)
    if arguments.what == "restore":
        return restore(session, environment, template, stack, arguments.table, arguments.to)
    resources = kept(session, stack, template)
    if arguments.what == "list":
        for resource in resources:
            print(f"{resource.type}\t{resource.logical_id}\t{resource.id}")
        for bus, rule in foreign_rules(session, stack) if living(session, stack) else []:
            print(f"rule of another's on the bus {bus}, which can't be deleted before it: {rule}")
    elif arguments.what == "delete":
        if living(session, stack):
            raise Refused(f"the stack `{stack}` exists: `sam delete` it first")
        if arguments.yes != stack:
            raise Refused(f"{len(resources)} resources would be deleted for good; say --yes {stack}")
        for resource in resources:
            delete(session, resource)
            print(f"deleted {resource.type} {resource.id}")
    else:
        if given := given_tables(session, template, arguments.table):
            if missing := sorted(all_tables(template).keys() - given.keys()):
                raise Refused(f"--table must name all tables or none; these are missing: {', '.join(missing)}")
            check_restored_together(session.client("dynamodb"), [each.id for each in given.values()])
            resources = [each for each in resources if each.type != TABLE] + list(given.values())
        import_stack(session, environment, template, resources)
        print(f"imported {len(resources)} resources into {environment.stack}; `make deploy ENV={environment.name}` adds the rest")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
