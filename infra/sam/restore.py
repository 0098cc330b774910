"""Restores the tables of a deleted stack to one instant, for `kept.py restore` (docs/runbook.md, "Restoring").

DynamoDB restores into new tables, which have the rows, the keys and the indexes, and none of the other settings. The restored
ledger does not have the payments that were authorized after the instant, so it would authorize them again: the deployment is
frozen in it, and what must not go back in time is taken over from the former ledger.
"""

import json
import time
from datetime import UTC, datetime

from botocore.exceptions import ClientError

TABLE = "AWS::DynamoDB::Table"
# The properties of a table that DynamoDB restores. `settings` restores the others.
WITH_ROWS = {"AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes", "KeySchema", "SSESpecification"}
SETTINGS = {
    "DeletionProtectionEnabled", "PointInTimeRecoverySpecification", "ResourcePolicy", "StreamSpecification", "TimeToLiveSpecification",
    "WarmThroughput",
}  # fmt: skip
# A restore of a large table takes hours.
POLLS = {"Delay": 5, "MaxAttempts": 17_280}
LEDGER = "LedgerTable"
# Keys in the ledger (shared/store/src/codec/key.rs).
FREEZE_COPIES = [f"FREEZES#{copy}" for copy in range(4)]
FREEZE_REASONS = "FREEZES#WHY"
# The tag of a restored table that a stack has imported, and that may therefore have later rows.
IMPORTED = "purser-imported"
ONLY = "#"


class Refused(Exception):
    """The error for a request that cannot or must not be carried out."""


def parse_instant(text):
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo and not instant.microsecond:
            return instant.astimezone(UTC)
    except (OverflowError, ValueError):
        pass
    raise Refused(f"`{text}` is not an instant in whole seconds with its zone, such as 2026-11-28T18:00:00Z")


def check_windows(dynamodb, sources, instant):
    """Rejects the instant unless all tables can be restored to it. The error says which instants are possible."""
    unrestorable, windows = [], []
    for logical_id, name in sources.items():
        described = dynamodb.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
        window = described["PointInTimeRecoveryDescription"]
        if window["PointInTimeRecoveryStatus"] != "ENABLED":
            raise Refused(f"{logical_id} ({name}) has no point-in-time recovery; restore its copy from AWS Backup, and name it with import's --table")
        earliest, latest = window["EarliestRestorableDateTime"], window["LatestRestorableDateTime"]
        windows.append((earliest, latest))
        if not earliest <= instant <= latest:
            unrestorable.append(logical_id)
    if unrestorable:
        earliest, latest = (bound(each[index] for each in windows).astimezone(UTC) for index, bound in enumerate((max, min)))
        raise Refused(
            f"{', '.join(unrestorable)} can't be restored to {instant.isoformat()}; all tables can be to an instant from "
            f"{earliest.isoformat()} to {latest.isoformat()}"
        )


def restore_tables(session, environment, tables, sources, instant, note=print):
    """Restores all tables, with their settings, and returns their names. If the function is repeated, it continues.
    `tables` are the properties of the template's tables, and `sources` the names of the former tables, by logical id.
    """
    dynamodb = session.client("dynamodb")
    check_windows(dynamodb, sources, instant)
    targets = {logical_id: f"{environment.stack}-{logical_id}-{instant:%Y%m%dT%H%M%SZ}" for logical_id in sources}
    started = time.monotonic()
    for logical_id, target in targets.items():
        start_restore(dynamodb, sources[logical_id], target, instant)
    for logical_id, target in targets.items():
        wait_until_active(dynamodb, target)
        note(f"{logical_id}: the rows are in {target} after {time.monotonic() - started:.0f} s")
        apply_settings(dynamodb, target, tables[logical_id], environment.settings["tags"])
    take_over(dynamodb, sources[LEDGER], targets[LEDGER], instant)
    note(f"all settings are restored, and the deployment is frozen in {LEDGER}, after {time.monotonic() - started:.0f} s")
    return targets


def start_restore(dynamodb, source, target, instant):
    described = dynamodb.describe_table(TableName=source)["Table"]
    try:
        existing = dynamodb.describe_table(TableName=target)["Table"]
    except dynamodb.exceptions.ResourceNotFoundException:
        encryption = described["SSEDescription"]
        dynamodb.restore_table_to_point_in_time(
            SourceTableName=source,
            TargetTableName=target,
            RestoreDateTime=instant,
            SSESpecificationOverride={"Enabled": True, "SSEType": encryption["SSEType"], "KMSMasterKeyId": encryption["KMSMasterKeyArn"]},
        )
        return
    summary = existing.get("RestoreSummary", {})
    if any(tag["Key"] == IMPORTED for tag in dynamodb.list_tags_of_resource(ResourceArn=existing["TableArn"])["Tags"]):
        raise Refused(f"the table {target} has belonged to a stack since it was restored; name another instant")
    if (summary.get("SourceTableArn"), summary.get("RestoreDateTime")) != (described["TableArn"], instant):
        raise Refused(f"the table {target} exists and was not restored from {source} to this instant")


def wait_until_active(dynamodb, table):
    dynamodb.get_waiter("table_exists").wait(TableName=table, WaiterConfig=POLLS)


def apply_settings(dynamodb, table, properties, tags):
    """Gives a restored table the settings that it lacks. Protection from deletion comes first."""
    if unknown := properties.keys() - WITH_ROWS - SETTINGS:
        raise Refused(f"infra/sam/restore.py does not restore {', '.join(sorted(unknown))} of a table")
    described = dynamodb.describe_table(TableName=table)["Table"]
    arn = described["TableArn"]

    def update(**change):
        dynamodb.update_table(TableName=table, **change)
        wait_until_active(dynamodb, table)

    if properties.get("DeletionProtectionEnabled") and not described.get("DeletionProtectionEnabled"):
        update(DeletionProtectionEnabled=True)
    if recovery := properties.get("PointInTimeRecoverySpecification"):
        dynamodb.update_continuous_backups(TableName=table, PointInTimeRecoverySpecification=recovery)
    if expiry := properties.get("TimeToLiveSpecification"):
        status = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]["TimeToLiveStatus"]
        if status not in ("ENABLED", "ENABLING"):
            dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification=expiry)
    if (stream := properties.get("StreamSpecification")) and not described.get("StreamSpecification", {}).get("StreamEnabled"):
        update(StreamSpecification={"StreamEnabled": True, **stream})
    if warm := missing_throughput(properties, described):
        update(WarmThroughput=warm)
    indexes = {each["IndexName"]: each for each in described.get("GlobalSecondaryIndexes", [])}
    for index in properties.get("GlobalSecondaryIndexes", []):
        if warm := missing_throughput(index, indexes[index["IndexName"]]):
            update(GlobalSecondaryIndexUpdates=[{"Update": {"IndexName": index["IndexName"], "WarmThroughput": warm}}])
    if policy := properties.get("ResourcePolicy"):
        dynamodb.put_resource_policy(ResourceArn=arn, Policy=json.dumps(policy["PolicyDocument"]))
    dynamodb.tag_resource(ResourceArn=arn, Tags=[dict(zip(("Key", "Value"), tag.split("=", 1), strict=True)) for tag in tags])


def missing_throughput(properties, described):
    """Returns the warm throughput that a table or an index lacks. DynamoDB rejects a lower value than the current one.
    """
    current = described.get("WarmThroughput", {})
    wanted = {name: int(units) for name, units in properties.get("WarmThroughput", {}).items()}
    return {name: max(units, current.get(name, 0)) for name, units in wanted.items()} if any(current.get(name, 0) < units for name, units in wanted.items()) else {}


def take_over(dynamodb, former, ledger, instant):
    """Writes into the restored ledger what must not go back in time: freezes, and which wallets belong to an agent."""

    def row(table, pk, sk=ONLY):
        return dynamodb.get_item(TableName=table, Key=key(pk, sk), ConsistentRead=True).get("Item", {})

    for copy in FREEZE_COPIES:
        # Freezes of both times are kept. A restored freeze may have been ended since, which an operator can repeat.
        sets = {name: value for name, value in row(former, copy).items() if name in ("agents", "owners")}
        dynamodb.update_item(
            TableName=ledger,
            Key=key(copy),
            UpdateExpression="SET dep = :yes" + "".join(f"{' ADD' if not index else ','} {name} :{name}" for index, name in enumerate(sets)),
            ExpressionAttributeValues={":yes": {"BOOL": True}} | {f":{name}": value for name, value in sets.items()},
        )
    reasons = dynamodb.get_paginator("query").paginate(
        TableName=former, ConsistentRead=True, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": FREEZE_REASONS}}
    )
    deployment = {
        **key(FREEZE_REASONS, "deployment"),
        "why": {"S": f"The ledger was restored to {instant.isoformat()}."},
        "by": {"S": "restore"},
        "t": {"N": str(time.time_ns() // 1_000)},
    }
    for reason in [deployment, *(item for page in reasons for item in page["Items"])]:
        dynamodb.put_item(TableName=ledger, Item=reason)
    # Otherwise the next agent would get the wallet, and the money, of an agent that was created after the instant.
    if count := row(former, "WALLETS").get("n"):
        try:
            dynamodb.update_item(
                TableName=ledger, Key=key("WALLETS"), UpdateExpression="SET n = :n", ConditionExpression="attribute_not_exists(n) OR n < :n",
                ExpressionAttributeValues={":n": count},
            )  # fmt: skip
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
    dynamodb.delete_item(TableName=ledger, Key=key("WALLETS", "SPARE"))


def key(pk, sk=ONLY):
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def check_restored_together(dynamodb, tables):
    """Rejects tables that were restored to different instants."""
    instants = {name: dynamodb.describe_table(TableName=name)["Table"].get("RestoreSummary", {}).get("RestoreDateTime") for name in tables}
    if len(set(instants.values())) > 1:
        listed = ", ".join(f"{name} ({instant.isoformat() if instant else 'not restored'})" for name, instant in instants.items())
        raise Refused(f"these tables are not of one instant: {listed}")


def mark_as_imported(dynamodb, tables):
    """Marks these tables, so that `restore` does not mistake them for newly restored tables after functions have
    written to them.
    """
    for name in tables:
        arn = dynamodb.describe_table(TableName=name)["Table"]["TableArn"]
        dynamodb.tag_resource(ResourceArn=arn, Tags=[{"Key": IMPORTED, "Value": "true"}])
