#!/usr/bin/env python3
"""Tests that the previous release can be upgraded to this checkout, and that infra/sam/upgrade.py finds each planted violation.

    .venv/bin/python infra/sam/upgrade_test.py
"""

import copy
import json
import shutil
import tempfile
import unittest
from functools import cache
from pathlib import Path

import release
import upgrade
from release_test import written



@cache
def deployment(which):
    return upgrade.Deployment(upgrade.previous_files() if which == "previous" else upgrade.release_files())


def planted(change):
    """Returns this checkout's deployment with a change of its resources, which are (nested stack or "", logical id)."""
    after = copy.deepcopy(deployment("current"))
    change(after.resources, after.templates[""])
    return after


def rename(stack, name, new, **more):
    def change(resources, _):
        resources[more.get("into", stack), new] = resources.pop((stack, name))

    return change


def put(stack, name, *path, value):
    def change(resources, _):
        *parents, last = path
        part = resources[stack, name]
        for each in parents:
            part = part[each]
        part[last] = value

    return change


def remove(stack, name):
    return lambda resources, _: resources.pop((stack, name))


def first(kind, stack=""):
    """Returns the logical id of the first resource of a type in a stack."""
    return next(name for (where, name), each in deployment("current").resources.items() if where == stack and each["Type"] == kind)


def reindex(*indexes):
    """Adds or replaces indexes of the ledger."""

    def change(resources, _):
        properties = resources["", "LedgerTable"]["Properties"]
        named = {each["IndexName"]: each for each in [*properties["GlobalSecondaryIndexes"], *indexes]}
        properties["GlobalSecondaryIndexes"] = list(named.values())

    return change


def index(name, attribute="owner"):
    return {"IndexName": name, "KeySchema": [{"AttributeName": attribute, "KeyType": "HASH"}], "Projection": {"ProjectionType": "KEYS_ONLY"}}


def watch_new_alarm(resources, _):
    group = next(each for each in resources.values() if each["Type"] == "AWS::CodeDeploy::DeploymentGroup")
    group["Properties"]["AlarmConfiguration"]["Alarms"].append({"Name": {"Fn::Sub": "${AWS::StackName}-new"}})


def rename_nested(resources, _):
    for stack, name in list(resources):
        if stack == "Monitoring" or name == "Monitoring":
            renamed = ("Alarms", name) if stack else ("", "Alarms")
            resources[renamed] = resources.pop((stack, name))


MAPPING = "EventsFunctionLedgerChanges"
QUEUE_POLICY = first("AWS::SQS::QueuePolicy")
BUCKET_POLICY = first("AWS::S3::BucketPolicy")
SECRET_POLICY = first("AWS::SecretsManager::ResourcePolicy")
ALARM = first("AWS::CloudWatch::Alarm", "Monitoring")
PLANTED = [
    ("a retained table is gone", remove("", "LedgerTable"), r"^LedgerTable \(AWS::DynamoDB::Table\) is gone"),
    ("a retained table has another logical id", rename("", "LedgerTable", "Ledger"), "^LedgerTable .* is gone"),
    ("a retained table is in another stack", rename("", "LedgerTable", "LedgerTable", into="Monitoring"), "^LedgerTable .* is gone"),
    ("a table has another key", put("", "UsageTable", "Properties", "KeySchema", value=[]), "^UsageTable .* changes KeySchema"),
    ("a table gets a name", put("", "UsageTable", "Properties", "TableName", value="usage"), "^UsageTable .* changes TableName"),
    ("a queue becomes FIFO", put("", "WebhookEventsQueue", "Properties", "FifoQueue", value=True), "^WebhookEventsQueue .* changes FifoQueue"),
    ("a table gets a condition", put("", "LedgerTable", "Condition", value="HasArchive"), "^LedgerTable .* another condition"),
    ("a table is no longer retained", lambda resources, _: [resources["", "LedgerTable"].pop(name) for name in ("DeletionPolicy", "UpdateReplacePolicy")],
     "^LedgerTable .* no longer retained"),
    ("a resource has another type", put("Monitoring", "AlarmTopic", "Type", value="AWS::SQS::Queue"), "^Monitoring/AlarmTopic was AWS::SNS::Topic"),
    ("the API has another logical id", rename("", first("AWS::ApiGatewayV2::Api"), "NewApi"), "callers use its URL"),
    ("the alarms' topic is in another stack", rename("Monitoring", "AlarmTopic", "AlarmTopic", into=""), "^Monitoring/AlarmTopic .* confirmed again"),
    ("an alarm moves to the root", rename("Monitoring", ALARM, ALARM, into=""), f"^{ALARM} takes the name of Monitoring/{ALARM}, .*First deploy without"),
    ("an alarm's name is given to another", rename("Monitoring", ALARM, "Renamed"), f"^Monitoring/Renamed takes the name of Monitoring/{ALARM}"),
    ("a mapping is renamed", rename("", MAPPING, "EventsFunctionOther"), f"^EventsFunctionOther takes the place of {MAPPING} .* 409"),
    ("a mapping starts elsewhere", put("", MAPPING, "Properties", "StartingPosition", value="LATEST"), f"^{MAPPING} takes the place of {MAPPING}"),
    ("a queue's policy is renamed", rename("", QUEUE_POLICY, "Renamed"), f"^Renamed takes the place of {QUEUE_POLICY} .* queue without a policy"),
    ("a bucket's policy is renamed", rename("", BUCKET_POLICY, "Renamed"), f"^Renamed takes the place of {BUCKET_POLICY} .* second policy"),
    ("a secret's policy is renamed", rename("", SECRET_POLICY, "Renamed"), f"^Renamed takes the place of {SECRET_POLICY} .* secret without"),
    ("an output is gone", lambda _, template: template["Outputs"].pop("ApiUrl"), "^the output ApiUrl is gone"),
    ("a table loses its DeletionPolicy alone", lambda resources, _: resources["", "LedgerTable"].pop("DeletionPolicy"),
     "^LedgerTable .* no longer retained by its DeletionPolicy"),
    ("a table loses its UpdateReplacePolicy alone", put("", "LedgerTable", "UpdateReplacePolicy", value="Delete"),
     "^LedgerTable .* no longer retained by its UpdateReplacePolicy"),
    ("a table gets two indexes", reindex(index("one"), index("two")), "^LedgerTable adds or removes one, two"),
    ("an index is renamed", put("", "LedgerTable", "Properties", "GlobalSecondaryIndexes", 1, "IndexName", value="renamed"),
     "^LedgerTable adds or removes owner, renamed"),
    ("an index has another key", reindex(index("hold")), "^LedgerTable changes the index hold"),
    ("a key has another type", put("", "LedgerTable", "Properties", "AttributeDefinitions", 2, "AttributeType", value="N"), "^LedgerTable changes the type of hp"),
    ("a table gets a local index", put("", "LedgerTable", "Properties", "LocalSecondaryIndexes", value=[index("local")]), "^LedgerTable .* changes LocalSecondaryIndexes"),
    ("a stream has other images", put("", "LedgerTable", "Properties", "StreamSpecification", "StreamViewType", value="NEW_IMAGE"), "^LedgerTable changes its stream"),
    ("a table loses its stream", lambda resources, _: resources["", "CatalogTable"]["Properties"].pop("StreamSpecification"), "^CatalogTable changes its stream"),
    ("rows expire by another attribute", put("", "UsageTable", "Properties", "TimeToLiveSpecification", value={"AttributeName": "ends", "Enabled": True}),
     "^UsageTable changes the attribute of its TTL"),
    ("a key has another spec", put("", "DataKey", "Properties", "KeySpec", value="RSA_2048"), "^DataKey .* changes KeySpec"),
    ("users sign in with a name", put("", "UserPool", "Properties", "UsernameAttributes", value=[]), "^UserPool .* changes UsernameAttributes"),
    ("the bus has another name", put("", "EventBus", "Properties", "Name", value="other"), "^EventBus .* changes Name"),
    ("the bus has another logical id", rename("", "EventBus", "Bus"), "(?s)^EventBus .* is gone.*^Bus takes the name of EventBus"),
    ("the domain name has another logical id", rename("", "ApiDomain", "Domain"), "^Domain takes the name of ApiDomain"),
    ("the API's mapping has another logical id", rename("", "ApiMapping", "Mapping"), "^Mapping takes the place of ApiMapping .* 409"),
    ("the address has another logical id", rename("", "ApiAddress", "Address"), "^Address takes the name of ApiAddress"),
    ("the sign-in domain has another logical id", rename("", "UserPoolDomain", "SignInDomain"), "^SignInDomain takes the place of UserPoolDomain"),
    ("the style has another logical id", rename("", "UserPoolLogin", "Style"), "^Style takes the place of UserPoolLogin"),
    ("the nested stack has another logical id", rename_nested, f"^Alarms/{ALARM} takes the name of Monitoring/{ALARM}"),
    ("a schedule has another logical id", rename("", "ProbeFunctionEveryMinute", "ProbeSchedule"), "^ProbeSchedule takes the name of ProbeFunctionEveryMinute"),
    ("an alias has another logical id", rename("", "PaymentsFunctionAliaslive", "Live"), "^Live takes the name of PaymentsFunctionAliaslive"),
    ("retries are configured under another logical id", rename("", "ProbeFunctionEventInvokeConfig", "Retries"), "^Retries takes the name of ProbeFunctionEventInvokeConfig"),
    ("a canary watches a new alarm", watch_new_alarm, "^\\w+DeploymentGroup watches .*-new"),
    ("a secret has another description", put("", "RpcUrlSecret", "Properties", "Description", value="x"), "^RpcUrlSecret changes Description"),
]  # fmt: skip


class Upgrade(unittest.TestCase):
    def test_the_previous_release_can_be_upgraded_to_this_checkout(self):
        self.assertEqual(upgrade.compare(deployment("previous"), deployment("current")), [])

    def test_each_planted_violation_is_found(self):
        # The earlier deployment is this checkout too, so only the planted change differs.
        for what, change, words in PLANTED:
            with self.subTest(what):
                found = upgrade.compare(deployment("current"), planted(change))
                self.assertTrue(found and all(len(each) > 20 for each in found))
                self.assertRegex("\n".join(found), f"(?m){words}")

    def test_a_named_resource_is_not_replaced_under_its_name(self):
        bus = first("AWS::Events::EventBus")
        before, after = planted(put("", bus, "Type", value="AWS::SNS::Topic")), planted(put("", bus, "Type", value="AWS::SNS::Topic"))
        for each, fifo in ((before, False), (after, True)):
            each.resources["", bus]["Properties"] = {"TopicName": "x", "FifoTopic": fifo}
        self.assertRegex(upgrade.compare(before, after)[0], "changes FifoTopic")

    def test_an_export_stays_while_others_may_import_it(self):
        def export(_, template):
            template["Outputs"]["ApiUrl"]["Export"] = {"Name": "api"}

        self.assertRegex(upgrade.compare(planted(export), deployment("current"))[0], "^the export of ApiUrl changes")

    def test_a_create_only_property_includes_its_parameters_default(self):
        def named(default):
            def change(resources, template):
                template["Parameters"]["Name"] = {"Type": "String", "Default": default}
                resources["", "LedgerTable"]["Properties"]["TableName"] = {"Fn::Sub": "${Name}-ledger"}

            return planted(change)

        self.assertEqual(upgrade.compare(named("one"), named("one")), [])
        self.assertRegex(upgrade.compare(named("one"), named("other"))[0], "^LedgerTable .* changes TableName")

    def test_new_versions_of_functions_are_no_violation(self):
        def version(name):
            def change(resources, _):
                resources["", name] = {"Type": upgrade.VERSION, "DeletionPolicy": "Retain", "Properties": {"FunctionName": {"Ref": "PaymentsFunction"}}}

            return planted(change)

        self.assertEqual(upgrade.compare(version("PaymentsFunctionVersion1"), version("PaymentsFunctionVersion2")), [])


class Previous(unittest.TestCase):
    def test_the_previous_release_is_kept_as_a_release_ships_it(self):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        kept = upgrade.unpack(upgrade.keep(written(folder, [upgrade.ARCHITECTURE])))
        self.assertEqual(kept, upgrade.release_files())
        previous = upgrade.previous_files()
        self.assertEqual(upgrade.pack(previous), upgrade.PREVIOUS.read_text())
        self.assertEqual(previous.keys(), kept.keys())
        for files in (previous, kept):
            self.assertNotIn("Fn::ForEach", json.dumps(files))
            root = files[upgrade.TEMPLATE]
            self.assertEqual(root.keys(), kept[upgrade.TEMPLATE].keys())
            code = {each["Properties"]["CodeUri"] for each in root["Resources"].values() if each["Type"] == release.FUNCTION}
            self.assertTrue(all(name.endswith(f"-{upgrade.ARCHITECTURE}.zip") for name in code))


if __name__ == "__main__":
    unittest.main()
