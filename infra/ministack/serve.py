#!/usr/bin/env python3
"""Starts ministack, for the tests of deployments, with rules of AWS that ministack lacks.

    .venv-ministack/bin/python infra/ministack/serve.py

- A function has one event source mapping for a source: 409 to a second (localstack/pull/9996 has the response, recorded
  on AWS).
- An alarm or dashboard whose name is in use is not created by CloudFormation.
- CloudFormation gives a table its TTL, point-in-time recovery, resource policy, warm throughput and encryption.
- An alarm that an update of a nested stack leaves as it is keeps its attributes.
- An imported table keeps its name, and a table and its indexes their warm throughput.
- CodeDeploy, which it does not have: an update of an alias by a deployment group fails while one of the group's alarms
  is on. No time passes, and no traffic is shifted.
- Point-in-time recovery has a window, keeps its days, and restores rows as of the instant.
"""

import copy
import json
import time

from ministack import app
from ministack.core.responses import error_response_json
from ministack.services import cloudwatch, dynamodb, lambda_svc
from ministack.services.cloudformation import provisioners

# For each table: (time, rows) after each write, and (time since which the table can be restored, days).
history, recovery = {}, {}
# The names of the alarms that stop a deployment, for each deployment group.
groups = {}


def wrap(module, name, wrapper):
    original = getattr(module, name)
    setattr(module, name, lambda *args, **more: wrapper(original, *args, **more))


def wrap_handler(kind, verb, wrapper):
    handlers = provisioners._RESOURCE_HANDLERS[kind]
    original = handlers[verb]
    handlers[verb] = lambda *args: wrapper(original, *args)


def conflicting(function, source):
    """Returns AWS's response to a second mapping of a function and a source. Returns None if there is no other mapping.
    """
    for mapping in lambda_svc._esms.values():
        target = mapping["FunctionName"] + (f":{mapping['Qualifier']}" if mapping.get("Qualifier") else "")
        if (target, mapping["EventSourceArn"]) == (function, source):
            return (
                f'The event source arn (" {source} ") and function (" {mapping["FunctionName"]} ") provided mapping already exists. '
                f"Please update or delete the existing mapping with UUID {mapping['UUID']}"
            )
    return None


def create_mapping(original, logical_id, props, stack):
    function, name, _, qualifier = provisioners._lambda_function_for_cfn_ref(props.get("FunctionName", ""))
    if message := conflicting(name + (f":{qualifier}" if qualifier else ""), props.get("EventSourceArn", "")):
        raise ValueError(f"Resource handler returned message: {message} (Service: Lambda, Status Code: 409)")
    return original(logical_id, props, stack)


def call_create_mapping(original, data):
    name, qualifier, error = lambda_svc._resolve_existing_esm_function(data.get("FunctionName", ""))
    if not error and (message := conflicting(name + (f":{qualifier}" if qualifier else ""), data.get("EventSourceArn", ""))):
        return error_response_json("ResourceConflictException", message, 409)
    return original(data)


def create_named(property_name, existing):
    def create(original, logical_id, props, stack):
        if (name := props.get(property_name)) in existing():
            raise ValueError(f"Resource handler returned message: {name} already exists (HandlerErrorCode: AlreadyExists)")
        return original(logical_id, props, stack)

    return create


def put_group(name, props):
    groups[name] = [alarm["Name"] for alarm in props.get("AlarmConfiguration", {}).get("Alarms", [])]
    return name, {}


def update_alias(original, physical_id, old, new, *more):
    """Updates an alias. `DeploymentGroup` is the alias's update policy, which the proxy puts among the properties
    (infra/sam/emulator.py).
    """
    known = [cloudwatch._alarms[name] for name in groups.get(new.get("DeploymentGroup"), []) if name in cloudwatch._alarms]
    alarms = sorted(alarm["AlarmName"] for alarm in known if alarm["StateValue"] == "ALARM")
    # A rollback moves the aliases back even if alarms are on.
    if alarms and int(new["FunctionVersion"]) > int(old["FunctionVersion"]):
        raise ValueError(f"CodeDeploy stopped the deployment and rolled it back, as an alarm is on: {', '.join(alarms)}")
    return original(physical_id, old, new, *more)


def create_table(original, logical_id, props, stack):
    name, attributes = original(logical_id, props, stack)
    if spec := props.get("TimeToLiveSpecification"):
        dynamodb._update_ttl({"TableName": name, "TimeToLiveSpecification": spec})
    if spec := props.get("PointInTimeRecoverySpecification"):
        dynamodb._update_continuous_backups({"TableName": name, "PointInTimeRecoverySpecification": spec})
    if spec := props.get("ResourcePolicy"):
        dynamodb._put_resource_policy({"ResourceArn": attributes["Arn"], "Policy": json.dumps(spec["PolicyDocument"])})
    if spec := props.get("WarmThroughput"):
        dynamodb._update_table({"TableName": name, "WarmThroughput": {key: int(units) for key, units in spec.items()}})
    for index in dynamodb._tables[name]["GlobalSecondaryIndexes"]:
        if spec := index.get("WarmThroughput"):
            index["WarmThroughput"] = {key: int(units) for key, units in spec.items()}
    if spec := props.get("SSESpecification"):
        dynamodb._tables[name]["SSEDescription"] = dynamodb._sse_description_from_spec({**spec, "Enabled": spec["SSEEnabled"]})
    return name, attributes


def update_table(original, physical_id, old, new, *more):
    """Keeps the name of a table that was imported under another name than CloudFormation would give it."""
    name = {} if "TableName" in new else {"TableName": physical_id}
    return original(physical_id, old | name, new | name, *more)


def update_resource(original, kind, physical_id, *more):
    """Keeps the ARN of an alarm, which the emulator forgets if a nested stack is updated and the alarm does not change.
    """
    physical_id, attributes = original(kind, physical_id, *more)
    if kind == "AWS::CloudWatch::Alarm" and physical_id in cloudwatch._alarms:
        attributes = {"Arn": cloudwatch._alarms[physical_id]["AlarmArn"]}
    return physical_id, attributes


def update_throughput(original, data):
    response = original(data)
    if response[0] == 200:
        table = dynamodb._tables[data["TableName"]]
        if warm := data.get("WarmThroughput"):
            table["WarmThroughput"] = warm
        for update in (each["Update"] for each in data.get("GlobalSecondaryIndexUpdates", []) if "Update" in each):
            for index in table["GlobalSecondaryIndexes"]:
                if index["IndexName"] == update["IndexName"] and "WarmThroughput" in update:
                    index["WarmThroughput"] = update["WarmThroughput"]
    return response


def write_rows(original, data):
    response = original(data)
    for name, table in dynamodb._tables.items():
        versions = history.setdefault(name, [])
        if not versions or versions[-1][1] != table["items"]:
            versions.append((time.time(), copy.deepcopy(table["items"])))
    return response


def update_recovery(original, data):
    response = original(data)
    spec = data["PointInTimeRecoverySpecification"]
    if response[0] == 200 and spec["PointInTimeRecoveryEnabled"]:
        since = recovery.get(data["TableName"], (time.time(), 0))[0]
        recovery[data["TableName"]] = (since, spec.get("RecoveryPeriodInDays", 35))
    return response


def describe_recovery(original, data):
    status, headers, body = original(data)
    parsed = json.loads(body)
    if status == 200 and data["TableName"] in recovery:
        since, days = recovery[data["TableName"]]
        parsed["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"] |= {
            "RecoveryPeriodInDays": days, "EarliestRestorableDateTime": since, "LatestRestorableDateTime": time.time(),
        }  # fmt: skip
    return status, headers, json.dumps(parsed).encode()


def restore(original, data):
    source, instant = data["SourceTableName"], data["RestoreDateTime"]
    if source not in recovery:
        return error_response_json("PointInTimeRecoveryUnavailableException", f"Point in time recovery is not enabled for table '{source}'", 400)
    if not recovery[source][0] <= instant <= time.time():
        return error_response_json("InvalidRestoreTimeException", "RestoreDateTime is out of the window", 400)
    status, headers, body = original(data)
    if status == 200:
        table = dynamodb._tables[data["TargetTableName"]]
        versions = [rows for at, rows in history.get(source, []) if at <= instant]
        table["items"] = copy.deepcopy(versions[-1]) if versions else type(table["items"])(dict)
        dynamodb._items_replaced(table)
        table["SSEDescription"] = dynamodb._sse_description_from_spec(data.get("SSESpecificationOverride"))
        for index in table["GlobalSecondaryIndexes"]:
            index.pop("WarmThroughput", None)
        table["RestoreSummary"] = {"SourceTableArn": dynamodb._tables[source]["TableArn"], "RestoreDateTime": instant, "RestoreInProgress": False}
    return status, headers, body


def describe_table(original, name):
    summary = dynamodb._tables[name].get("RestoreSummary")
    return original(name) | ({"RestoreSummary": summary} if summary else {})


if __name__ == "__main__":
    wrap_handler("AWS::Lambda::EventSourceMapping", "create", create_mapping)
    wrap(lambda_svc, "_create_esm", call_create_mapping)
    wrap_handler("AWS::CloudWatch::Alarm", "create", create_named("AlarmName", lambda: cloudwatch._alarms))
    wrap_handler("AWS::CloudWatch::Dashboard", "create", create_named("DashboardName", lambda: cloudwatch._dashboards))
    provisioners._RESOURCE_HANDLERS["AWS::CodeDeploy::Application"] = {
        "create": lambda logical_id, _, stack: (f"{stack}-{logical_id}", {}),
        "update": lambda physical_id, *_: (physical_id, {}),
        "delete": lambda *_: None,
    }
    provisioners._RESOURCE_HANDLERS["AWS::CodeDeploy::DeploymentGroup"] = {
        "create": lambda logical_id, props, stack: put_group(f"{stack}-{logical_id}", props),
        "update": lambda physical_id, _, props, *__: put_group(physical_id, props),
        "delete": lambda physical_id, _: groups.pop(physical_id, None),
    }
    wrap_handler("AWS::Lambda::Alias", "update", update_alias)
    wrap(provisioners, "_update_resource", update_resource)
    wrap_handler("AWS::DynamoDB::Table", "create", create_table)
    wrap_handler("AWS::DynamoDB::Table", "update", update_table)
    for operation in ("_put_item", "_update_item", "_delete_item", "_batch_write_item", "_transact_write_items"):
        wrap(dynamodb, operation, write_rows)
    wrap(dynamodb, "_update_table", update_throughput)
    wrap(dynamodb, "_update_continuous_backups", update_recovery)
    wrap(dynamodb, "_describe_continuous_backups", describe_recovery)
    wrap(dynamodb, "_restore_table_to_point_in_time", restore)
    wrap(dynamodb, "_table_description", describe_table)
    app.main()
