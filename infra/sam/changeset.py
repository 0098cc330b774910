#!/usr/bin/env python3
"""Creates, shows and executes the change set of an environment, including the nested stack's changes.

    infra/sam/changeset.py create <environment> <packaged template>    prints the ARN; nothing, if nothing changes
    infra/sam/changeset.py execute <environment> <ARN>
    infra/sam/changeset.py confirm <environment> <ARN>                 asks first, where samconfig.toml says so

`create` writes the changes as Markdown to stderr and to .aws-sam/changes.md. It fails where a resource with data would
be replaced or removed: CloudFormation would keep it, and the service would go on with an empty one. `execute` waits for
the end. Exit status: 0; 1, rejected or failed; 2, wrong use.
"""

import re
import sys
import time
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError, WaiterError
from kept import is_kept, living
from samcli.yamlhelper import yaml_parse
from values import ROOT, Environment, Wrong

UNCHANGED = re.compile("didn't contain changes|No updates are to be performed")
SUMMARY = ROOT / ".aws-sam" / "changes.md"


def create(environment, session, packaged):
    """Creates the change set and returns its ARN, or None if nothing changes."""
    cloudformation = session.client("cloudformation")
    stack = living(session, environment.stack)
    parsed = yaml_parse(packaged.read_text())
    request = {
        "StackName": environment.stack,
        "ChangeSetType": "CREATE" if stack is None or stack["StackStatus"] == "REVIEW_IN_PROGRESS" else "UPDATE",
        "TemplateURL": upload(session, packaged, parsed),
        "Parameters": [{"ParameterKey": key, "ParameterValue": value} for key, value in environment.parameters.items()],
        "Capabilities": environment.settings["capabilities"].split(),
        "Tags": [dict(zip(("Key", "Value"), tag.split("=", 1), strict=True)) for tag in environment.settings.get("tags", [])],
    }
    try:
        arn = make_change_set(cloudformation, request | {"IncludeNestedStacks": True})
        changes = changes_of(cloudformation, arn)
    except Wrong as wrong:
        # AWS computes a nested stack's changes before all values are known, so this can fail although the deployment
        # would work.
        print(f"changeset: the nested stack's changes can't be shown: {wrong}", file=sys.stderr)
        arn = make_change_set(cloudformation, request)
        changes = changes_of(cloudformation, arn)
    if not changes:
        if arn:
            cloudformation.delete_change_set(ChangeSetName=arn)
        SUMMARY.unlink(missing_ok=True)
        print(f"changeset: `{environment.stack}` is up to date", file=sys.stderr)
        return None
    text = markdown(environment.stack, changes)
    SUMMARY.write_text(text)
    print(text, file=sys.stderr)
    lost = [change["LogicalResourceId"] for _, change in changes if loses_data(change, parsed["Resources"])]
    if lost:
        raise Wrong(f"the change set would replace or remove {', '.join(lost)}: `execute` does it all the same, if you mean it: {arn}")
    return arn


def upload(session, packaged, parsed):
    """Uploads the template to the bucket of the functions' code, and returns its URL."""
    code = next(each["Properties"]["CodeUri"] for each in parsed["Resources"].values() if each["Type"] == "AWS::Serverless::Function")
    bucket, key = code.removeprefix("s3://").split("/", 1)
    key = f"{key}.template"
    client = session.client("s3")
    client.put_object(Bucket=bucket, Key=key, Body=packaged.read_bytes())
    return f"https://s3.{session.region_name}.amazonaws.com/{bucket}/{key}"


def make_change_set(cloudformation, request):
    """Creates a change set and waits for it. Returns its ARN, or None if nothing changes."""
    arn = cloudformation.create_change_set(**request, ChangeSetName=f"deploy-{time.time_ns()}")["Id"]
    try:
        cloudformation.get_waiter("change_set_create_complete").wait(ChangeSetName=arn, WaiterConfig={"Delay": 2, "MaxAttempts": 300})
    except WaiterError:
        reason = cloudformation.describe_change_set(ChangeSetName=arn).get("StatusReason", "it was not made in time")
        cloudformation.delete_change_set(ChangeSetName=arn)
        if UNCHANGED.search(reason):
            return None
        raise Wrong(reason) from None
    return arn


def changes_of(cloudformation, arn, stack=""):
    """Returns the changes of a change set and of the nested change sets, each with the path of its stack."""
    found, more = [], {}
    while arn:
        page = cloudformation.describe_change_set(ChangeSetName=arn, **more)
        for change in (each["ResourceChange"] for each in page["Changes"]):
            found.append((stack, change))
            found += changes_of(cloudformation, change.get("ChangeSetId"), f"{stack}{change['LogicalResourceId']}/")
        if "NextToken" not in page:
            break
        more = {"NextToken": page["NextToken"]}
    return found


def loses_data(change, resources):
    """Returns whether a change replaces a resource with data by an empty resource, or removes it."""
    if not is_kept({"Type": change["ResourceType"], **resources.get(change["LogicalResourceId"], {"DeletionPolicy": "Retain"})}):
        return False
    return change["Action"] == "Remove" or change.get("Replacement") == "True"


def markdown(stack, changes):
    rows = [
        f"| {change['Action']} | {path}{change['LogicalResourceId']} | {change['ResourceType']} | {change.get('Replacement', '')} |"
        for path, change in sorted(changes, key=lambda each: (each[1]["Action"], each[0], each[1]["LogicalResourceId"]))
    ]
    return "\n".join([f"### Changes of `{stack}`", "", "| Action | Resource | Type | Replacement |", "|---|---|---|---|", *rows, ""])


def execute(environment, session, arn):
    """Executes a change set and waits until the stack is deployed."""
    cloudformation = session.client("cloudformation")
    described = cloudformation.describe_change_set(ChangeSetName=arn)
    if described["StackName"] != environment.stack:
        raise Wrong(f"the change set is of the stack `{described['StackName']}`, and not of `{environment.stack}`")
    first = (living(session, environment.stack) or {}).get("StackStatus") == "REVIEW_IN_PROGRESS"
    known = {event["EventId"] for event in events(cloudformation, described["StackId"])}
    cloudformation.execute_change_set(ChangeSetName=arn)
    waiter = cloudformation.get_waiter("stack_create_complete" if first else "stack_update_complete")
    try:
        waiter.wait(StackName=described["StackId"], WaiterConfig={"Delay": 2, "MaxAttempts": 3_600})
    except WaiterError:
        for event in reversed(events(cloudformation, described["StackId"])):
            if event["EventId"] not in known and event["ResourceStatus"].endswith("FAILED"):
                print(f"changeset: {event['LogicalResourceId']}: {event.get('ResourceStatusReason', event['ResourceStatus'])}", file=sys.stderr)
        status = (living(session, environment.stack) or {}).get("StackStatus")
        raise Wrong(f"`{environment.stack}` is {status}: the failed resources are listed above") from None
    print(f"changeset: `{environment.stack}` is deployed", file=sys.stderr)


def confirmed():
    print("changeset: execute these changes? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def events(cloudformation, stack):
    pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
    return [event for page in pages for event in page["StackEvents"]]


def main(arguments):
    try:
        session = boto3.Session()
        match arguments:
            case ["create", environment, packaged]:
                if arn := create(Environment(environment), session, Path(packaged)):
                    print(arn)
            case [("execute" | "confirm") as verb, environment, arn]:
                environment = Environment(environment)
                if verb == "confirm" and environment.settings.get("confirm_changeset") and not confirmed():
                    raise Wrong("nothing was changed")
                execute(environment, session, arn)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (Wrong, BotoCoreError, ClientError) as wrong:
        print(f"changeset: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
