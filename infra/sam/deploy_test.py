#!/usr/bin/env python3
"""Deploys release files to an emulator of AWS on loopback, as docs/deploy.md says; upgrades, restores, and tears down again.

    .venv/bin/python infra/sam/deploy_test.py

The programs are stubs, and the templates those of release files: this checkout's, and the previous release's (upgrade.py). The
emulator is ministack behind infra/sam/emulator.py, which says what is taken out of the templates, with the rules of AWS that
infra/ministack/serve.py adds. It enforces no quotas and no permissions, and runs no functions without Docker. Its tag API lists
neither secrets nor log groups nor buckets, so the test adds them from their own services; it can't import secrets, so their part
of the request is checked and then left out. What AWS itself rejects is infra/sam/limits.py's.
"""

import contextlib
import copy
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import account
import boto3
import changeset
import kept
import release
import restore
import upgrade
from botocore.exceptions import BotoCoreError
from emulator import MINISTACK, Emulator
from release_test import written
from samcli.cli.types import CfnParameterOverridesType
from translate import TEMPLATE, templates, whole
from values import ROOT, Environment, Wrong

NEEDS = {"lambda_reserved": 0, "scheduler_schedules": 8, "iam_roles": 12}


@cache
def translation(*parameters):
    return json.dumps(templates(**dict(parameters)))


def all_translated(**parameters):
    """Translates the templates. The result is cached, because translating takes seconds."""
    return json.loads(translation(*parameters.items()))


def translated(**parameters):
    return all_translated(**parameters)[TEMPLATE.name]


# These programs also translate templates.
account.translated = kept.translated = translated


def environment(values="", name="dev", stack=None):
    """Returns an environment of samconfig.toml with these values, and this stack name."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for file in ("samconfig.toml", "template.yaml"):
            shutil.copy(ROOT / file, root)
        (root / "deploy").mkdir()
        (root / "deploy" / f"{name}.toml").write_text(values)
        made = Environment(name, root)
        made.stack = stack or made.stack
        return made


def write_previous(folder):
    """Writes the files of the previous release, with stubs of its programs."""
    folder.mkdir()
    for name, template in upgrade.previous_files().items():
        (folder / name).write_text(json.dumps(template))
        for resource in template["Resources"].values():
            if resource["Type"] == release.FUNCTION:
                with zipfile.ZipFile(folder / resource["Properties"]["CodeUri"], "w") as code:
                    code.writestr("bootstrap", "previous")


def add_second_mapping(template):
    """Maps a stream to a function a second time, after all resources that are kept are created."""
    resources = template["Resources"]
    source = {"Fn::GetAtt": ["LedgerTable", "StreamArn"]}
    resources["SecondMapping"] = {
        "Type": "AWS::Lambda::EventSourceMapping",
        "DependsOn": ["EventsFunctionLedgerChanges", *(name for name, each in resources.items() if kept.is_kept(each) and "Condition" not in each)],
        "Properties": {"FunctionName": {"Ref": "EventsFunction"}, "EventSourceArn": source, "StartingPosition": "LATEST"},
    }


def rename_mapping(template):
    events = template["Resources"]["EventsFunction"]["Properties"]["Events"]
    events["Renamed"] = events.pop("LedgerChanges")


@contextlib.contextmanager
def clocked(seconds, step):
    begun = time.monotonic()
    yield
    seconds[step] = time.monotonic() - begun


class Values(unittest.TestCase):
    def test_every_parameter_is_written_and_read_back_by_sam(self):
        given = environment('AlarmEmail = "ops@example.com"\nOidcClientId = "a \\"b\\" c=d"\nThrottlePerMinute = 60')
        read = CfnParameterOverridesType().convert(given.overrides(), None, None)
        self.assertEqual(read, given.parameters)
        self.assertEqual(given.parameters["ThrottlePerMinute"], "60")
        self.assertEqual(given.parameters["LogRetentionDays"], "7", "of samconfig.toml")
        # A value that was removed from the file has its default again.
        self.assertEqual(environment().parameters["AlarmEmail"], "")

    def test_wrong_values_are_refused_by_name(self):
        for values, words in [
            ('AlarmMail = "x"', "`AlarmMail`"),
            ("RequireMfa = false", "`RequireMfa`"),
            ("AlarmEmail = 'a\\'", "`AlarmEmail`"),
            ("AlarmEmail = [", "not TOML"),
        ]:
            with self.assertRaisesRegex(Wrong, words):
                environment(values)
        with self.assertRaisesRegex(Wrong, "no environment"):
            environment(name="test")

    def test_what_is_kept_refers_to_nothing_that_is_not(self):
        template = translated()
        names = {name for name, resource in template["Resources"].items() if kept.is_kept(resource)}
        retained = {name for name, each in template["Resources"].items() if str(each.get("DeletionPolicy", "")).startswith("Retain")}
        others = {name for name in retained - names if template["Resources"][name]["Type"] != "AWS::SecretsManager::ResourcePolicy"}
        self.assertEqual(others, set(), "kept, and infra/sam/kept.py does not know their type")
        for name in sorted(names):
            text = json.dumps(template["Resources"][name])
            for other in sorted(template["Resources"].keys() - names):
                self.assertNotRegex(text, rf'"{other}"|"{other}\.|\$\{{{other}[.}}]', f"{name} refers to {other}")
        # restore.py restores the settings that the template has for tables.
        for name, table in kept.all_tables(template).items():
            self.assertEqual(table["Properties"].keys() - restore.WITH_ROWS - restore.SETTINGS, set(), name)
        # A template in a request may have at most 51,200 bytes.
        resources = [SimpleNamespace(logical_id=name) for name in names]
        self.assertLess(len(json.dumps(kept.importable(template, resources), separators=(",", ":"))), 51_200)


class Deployment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.emulator = Emulator()
        cls.addClassCleanup(cls.emulator.stop)
        variables = mock.patch.dict(os.environ, cls.emulator.environment | {"SAM_CLI_TELEMETRY": "0"})
        variables.start()
        cls.addClassCleanup(variables.stop)
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
            os.environ.pop(name, None)
        cls.session = boto3.Session()
        cls.session.events.register("before-parameter-build.resource-groups-tagging-api.GetResources", cls.note_stack)
        cls.session.events.register("after-call.resource-groups-tagging-api.GetResources", cls.add_tagged)
        # The programs create their own session.
        patch = mock.patch.object(boto3, "Session", return_value=cls.session)
        patch.start()
        cls.addClassCleanup(patch.stop)
        cls.session.client("s3").create_bucket(Bucket="purser-code")
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        written(cls.folder / "current", [upgrade.ARCHITECTURE])
        write_previous(cls.folder / "previous")

    @classmethod
    def note_stack(cls, params, context, **_):
        context["stack"] = params["TagFilters"][0]["Values"][0]

    @classmethod
    def add_tagged(cls, parsed, context, **_):
        """Adds a stack's secrets, log groups and buckets with their tags, which AWS returns but the emulator does not.
        """
        secrets, logs = cls.session.client("secretsmanager"), cls.session.client("logs")
        found = [(each["ARN"], each.get("Tags", [])) for page in secrets.get_paginator("list_secrets").paginate() for each in page["SecretList"]]
        for page in logs.get_paginator("describe_log_groups").paginate():
            for group in page["logGroups"]:
                arn = group["arn"].removesuffix(":*")
                tags = logs.list_tags_for_resource(resourceArn=arn)["tags"]
                found.append((arn, [{"Key": key, "Value": value} for key, value in tags.items()]))
        for bucket in cls.session.client("s3").list_buckets()["Buckets"]:
            if match := re.fullmatch(r"(.+)-logbucket-\w+", bucket["Name"]):
                tags = {"aws:cloudformation:stack-name": match[1], "aws:cloudformation:logical-id": "LogBucket"}
                found.append((f"arn:aws:s3:::{bucket['Name']}", [{"Key": key, "Value": value} for key, value in tags.items()]))
        stack = {"Key": "aws:cloudformation:stack-name", "Value": context["stack"]}
        known = {each["ResourceARN"] for each in parsed["ResourceTagMappingList"]}
        parsed["ResourceTagMappingList"] += [
            {"ResourceARN": arn, "Tags": tags} for arn, tags in found if arn not in known and stack in tags
        ]

    def deploy(self, given, which="current", change=None):
        """Deploys release files like infra/sam/deploy.sh, after a change of their template. Returns the output, and why
        the deployment failed.
        """
        folder = self.folder / which
        template = json.loads((folder / upgrade.TEMPLATE).read_text())
        if change:
            change(template)
        (folder / "template.json").write_text(json.dumps(template))
        packaged = folder / "packaged.yaml"
        command = ["sam", "package", "--config-env", "dev", "--s3-bucket", "purser-code", "--template-file", folder / "template.json"]
        subprocess.run([Path(sys.executable).parent / command[0], *command[1:], "--output-template-file", packaged], cwd=ROOT, check=True, capture_output=True, timeout=600)
        parameters = {name: given.parameters.get(name, each.get("Default")) for name, each in template["Parameters"].items()}
        deployed = copy.copy(given)
        deployed.parameters = parameters
        said = io.StringIO()
        changeset.SUMMARY.parent.mkdir(exist_ok=True)
        with contextlib.redirect_stderr(said):
            try:
                changeset.execute(deployed, self.session, changeset.create(deployed, self.session, packaged))
            except Wrong as wrong:
                return said.getvalue(), str(wrong)
        return said.getvalue(), None

    def deploy_completely(self, given, which="current"):
        said, failed = self.deploy(given, which)
        self.assertIsNone(failed, said[-4_000:])

    def physical(self, given):
        """Returns the physical ids of a stack's resources, by logical id."""
        pages = self.session.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=given.stack)
        return {each["LogicalResourceId"]: each["PhysicalResourceId"] for page in pages for each in page["StackResourceSummaries"]}

    def outputs(self, given):
        return {each["OutputKey"]: each["OutputValue"] for each in kept.living(self.session, given.stack)["Outputs"]}

    def alarms(self, given):
        pages = self.session.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=f"{given.stack}-")
        return {alarm["AlarmName"] for page in pages for alarm in page["MetricAlarms"]}

    def asked(self, given, **needs):
        plan = account.Plan(given, self.session, NEEDS | needs, kept.living(self.session, given.stack))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = account.ask(plan)
        return status, said.getvalue()

    def left(self, given):
        return kept.kept(self.session, given.stack, translated(**given.parameters))

    def run_kept(self, what, given, *arguments):
        """Returns the exit status of infra/sam/kept.py for an environment, and its output."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), mock.patch.object(kept, "Environment", lambda _: given):
            status = kept.main([what, given.name, *arguments])
        return status, said.getvalue()

    def test_a_quota_is_asked_for_before_anything_is_made(self):
        given = environment('ReserveConcurrency = "all"')
        status, said = self.asked(given, lambda_reserved=5_000)
        self.assertEqual(status, 1, said)
        self.assertIn("STOP: ReserveConcurrency=all takes 5100 concurrent executions", said)
        self.assertIn("--desired-value 5100", said)

    def test_limits_and_account_are_asked_together(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = account.main(["dev"])
        self.assertEqual(status, 0, said.getvalue())
        self.assertIn("nothing known keeps `purser-dev` from being deployed", said.getvalue())

    def test_a_role_that_does_not_deploy_may_not_be_the_writer(self):
        given = environment('SecretsWriterArn = "arn:aws:iam::000000000000:role/other"')
        status, said = self.asked(given)
        self.assertEqual(status, 1, said)
        self.assertIn("names `arn:aws:iam::000000000000:role/other`", said)
        plan = account.Plan(given, self.session, NEEDS, None)
        assumed = "arn:aws:sts::000000000000:assumed-role/deployer/me"
        self.assertIsNone(account.role_of(plan, assumed))
        iam = self.session.client("iam")
        role = iam.create_role(Path="/aws-reserved/sso.amazonaws.com/", RoleName="deployer", AssumeRolePolicyDocument="{}")
        self.assertEqual(account.role_of(plan, assumed), role["Role"]["Arn"])

    def test_a_failed_first_deployment_blocks_no_second_one(self):
        given = environment(name="default")
        said, failed = self.deploy(given, change=add_second_mapping)
        self.assertIn("ROLLBACK_COMPLETE", failed)
        self.assertIn("provided mapping already exists", said)
        status, said = self.asked(given)
        self.assertEqual(status, 1, said)
        stop = re.search(r"STOP: .*ROLLBACK_COMPLETE.*\. (aws .*)", said)
        self.assertIsNotNone(stop, said)
        subprocess.run(stop[1], shell=True, check=True, timeout=120)
        status, said = self.asked(given)
        self.assertEqual(status, 0, said)
        self.deploy_completely(given)

    def test_an_upgrade_keeps_what_the_previous_release_has(self):
        given = environment(stack="purser-upgraded")
        self.deploy_completely(given, "previous")
        before, outputs = self.physical(given), self.outputs(given)
        row = {"pk": {"S": "A#1"}, "sk": {"S": "#"}}
        self.session.client("dynamodb").put_item(TableName=outputs["LedgerTableName"], Item=row)
        self.session.client("secretsmanager").put_secret_value(SecretId=outputs["RpcUrlSecretArn"], SecretString="https://rpc.example.com")
        files = upgrade.previous_files()
        keys = upgrade.Deployment(files).resources
        stay = {name for (stack, name), each in keys.items() if not stack and (upgrade.is_retained(each) or each["Type"] in upgrade.ADDRESSED)} & before.keys()
        self.assertGreater(len(stay), 40)

        said, failed = self.deploy(given, change=rename_mapping)
        self.assertIn("UPDATE_ROLLBACK_COMPLETE", failed)
        self.assertIn("provided mapping already exists", said)
        self.assertEqual({name: self.physical(given)[name] for name in stay}, {name: before[name] for name in stay}, "the rollback keeps all")

        self.deploy_completely(given)
        self.assertEqual({name: self.physical(given)[name] for name in stay}, {name: before[name] for name in stay})
        self.assertEqual({name: self.outputs(given).get(name) for name in outputs}, outputs)
        self.assertIn("Item", self.session.client("dynamodb").get_item(TableName=outputs["LedgerTableName"], Key=row))
        value = self.session.client("secretsmanager").get_secret_value(SecretId=outputs["RpcUrlSecretArn"])
        self.assertEqual(value["SecretString"], "https://rpc.example.com")

    def test_a_canary_is_taken_back_while_an_alarm_is_on(self):
        """CodeDeploy is a stand-in (infra/ministack/serve.py), which reads the deployment groups that SAM creates from
        the template.
        """
        given = environment(stack="purser-canary")
        self.deploy_completely(given)
        functions = [self.physical(given)[name] for name in ("PaymentsFunction", "PeopleFunction", "McpFunction")]
        alarms, aliases = self.session.client("cloudwatch"), self.session.client("lambda")

        def versions():
            return [int(aliases.get_alias(FunctionName=name, Name="live")["FunctionVersion"]) for name in functions]

        before = versions()
        written(self.folder / "next", [upgrade.ARCHITECTURE], more=b"next")
        alarm = {"AlarmName": f"{given.stack}-payments-errors", "StateReason": "a drill"}
        alarms.set_alarm_state(**alarm, StateValue="ALARM")
        said, failed = self.deploy(given, "next")
        self.assertIn("UPDATE_ROLLBACK_COMPLETE", failed)
        self.assertIn(f"an alarm is on: {given.stack}-payments-errors", said)
        self.assertEqual(versions(), before, "the former versions serve all requests again")
        alarms.set_alarm_state(**alarm, StateValue="OK")
        self.deploy_completely(given, "next")
        self.assertTrue(all(new > old for new, old in zip(versions(), before, strict=True)), (versions(), before))

    def test_all_tables_are_restored_to_one_instant(self):
        """Follows docs/runbook.md, "Restoring"."""
        given, seconds = environment('LedgerWarmWriteUnits = 8000\nNetwork = "base-sepolia"', stack="purser-restored"), {}
        self.deploy_completely(given)
        former = {name: table for name, table in self.physical(given).items() if name in kept.all_tables(translated())}
        self.assertEqual(len(former), 7)
        instant = self.write_around_an_instant(former)
        to = instant.isoformat()
        with clocked(seconds, "check"):
            status, said = self.run_kept("restore", given, "--to", to)
        self.assertEqual(status, 1)
        self.assertIn("exists and could pay with the present ledger", said)
        status, said = self.run_kept("restore", given, "--to", (instant - timedelta(days=1)).isoformat())
        self.assertRegex(said, r"AuditTable, CatalogTable.* can't be restored to .*; all tables can be to an instant from")
        with clocked(seconds, "delete the stack"):
            self.delete(given)

        options = self.restore_in_two_runs(given, to, seconds)
        restored = dict(option.split("=") for option in options[1::2])
        self.assertEqual(restored.keys(), former.keys())
        for name, table in restored.items():
            self.assertEqual(self.settings(table), self.settings(former[name]), name)
        self.assertEqual(self.rows(restored["CatalogTable"]), [("SVC#1", "before")])

        mixed = [option.replace(restored["UsageTable"], former["UsageTable"]) for option in options]
        for wrong, words in [(options[:2], "must name all tables or none"), (mixed, "not of one instant"), (["--table", "LedgerTable=none"], "no such table")]:
            self.assertIn(words, self.run_kept("import", given, *wrong)[1])
        with clocked(seconds, "import"):
            self.import_without_secrets(given, *options)
        with clocked(seconds, "deploy"):
            self.deploy_completely(given)
        self.assertEqual({name: self.physical(given)[name] for name in restored}, restored)
        for name, table in restored.items():
            self.assertEqual(self.settings(table), self.settings(former[name]), f"{name}, after the deployment")
        self.check_restored_ledger(restored["LedgerTable"])
        # The functions read the streams of the restored tables.
        mappings = self.session.client("lambda").get_paginator("list_event_source_mappings").paginate().search("EventSourceMappings[].EventSourceArn")
        of_ledger = {arn for arn in mappings if f"/{restored['LedgerTable']}/stream/" in arn}
        self.assertEqual(len(of_ledger), 1)
        self.assertTrue(self.rows(former["CatalogTable"]), "the former tables stay")
        # The restored tables may already have later rows.
        self.delete(given)
        status, said = self.run_kept("restore", given, "--to", to, *(word for name, table in former.items() for word in ("--table", f"{name}={table}")))
        self.assertIn("has belonged to a stack since it was restored", said)
        whole_drill = sum(seconds.values())
        print("drill:", ", ".join(f"{step} {spent:.1f} s ({spent / whole_drill:.0%})" for step, spent in seconds.items()), file=sys.stderr)

    def restore_in_two_runs(self, given, to, seconds):
        """Stops the restore half way and runs it again. Returns the options of the import that it prints."""
        with self.failing_call("RestoreTableToPointInTime", after=3):
            self.assertEqual(self.run_kept("restore", given, "--to", to)[0], 1)
        restores = self.emulator.calls.count("dynamodb RestoreTableToPointInTime")
        with clocked(seconds, "restore"):
            status, said = self.run_kept("restore", given, "--to", to)
        self.assertEqual(status, 0, said)
        self.assertEqual((restores, self.emulator.calls.count("dynamodb RestoreTableToPointInTime")), (3, 7))
        return said.splitlines()[-1].split()[3:]

    def write_around_an_instant(self, tables):
        """Writes rows before and after an instant, and returns the instant. The later rows include what a restored
        ledger must not lose.
        """
        dynamodb = self.session.client("dynamodb")

        def write(ledger, state):
            for name, table in tables.items():
                keys = [each["AttributeName"] for each in dynamodb.describe_table(TableName=table)["Table"]["KeySchema"]]
                dynamodb.put_item(TableName=table, Item={key: {"S": "SVC#1" if key == "pk" else "#"} for key in keys} | {"state": {"S": state}})
            for item in ledger:
                dynamodb.put_item(TableName=tables["LedgerTable"], Item=item)

        agent, other = {"BS": [b"1" * 16]}, {"BS": [b"2" * 16]}
        write([
            restore.key("WALLETS") | {"n": {"N": "5"}},
            restore.key("WALLETS", "SPARE") | {"spare": {"L": [{"S": "key"}]}},
            restore.key("FREEZES#0") | {"agents": agent},
            restore.key("I#1", "before") | {"sid": {"S": "1"}},
        ], "before")  # fmt: skip
        instant = datetime.fromtimestamp(int(time.time()) + 1, UTC)
        while time.time() <= instant.timestamp():
            time.sleep(0.05)
        write([
            restore.key("WALLETS") | {"n": {"N": "7"}},
            restore.key("FREEZES#0") | {"agents": other},
            restore.key("FREEZES#WHY", "agent#2") | {"why": {"S": "stolen"}},
            restore.key("I#1", "after") | {"sid": {"S": "2"}},
        ], "after")  # fmt: skip
        return instant

    def check_restored_ledger(self, table):
        """Checks that the ledger has the rows of the instant, and what must not go back in time."""
        dynamodb = self.session.client("dynamodb")

        def row(pk, sk="#"):
            return dynamodb.get_item(TableName=table, Key=restore.key(pk, sk)).get("Item")

        self.assertEqual(row("SVC#1")["state"], {"S": "before"})
        self.assertIsNotNone(row("I#1", "before"))
        self.assertIsNone(row("I#1", "after"))
        for copy_of_freezes in restore.FREEZE_COPIES:
            self.assertEqual(row(copy_of_freezes)["dep"], {"BOOL": True})
        self.assertEqual(set(row("FREEZES#0")["agents"]["BS"]), {b"1" * 16, b"2" * 16})
        self.assertIn("restored", row("FREEZES#WHY", "deployment")["why"]["S"])
        self.assertEqual(row("FREEZES#WHY", "agent#2")["why"], {"S": "stolen"})
        self.assertEqual(row("WALLETS")["n"], {"N": "7"})
        self.assertIsNone(row("WALLETS", "SPARE"))

    def rows(self, table):
        items = self.session.client("dynamodb").scan(TableName=table, ConsistentRead=True)["Items"]
        return sorted((item["pk"]["S"], item["state"]["S"]) for item in items)

    def settings(self, table):
        """Returns everything that CloudFormation sets for a table, as DynamoDB describes it."""
        dynamodb = self.session.client("dynamodb")
        described = dynamodb.describe_table(TableName=table)["Table"]
        names = ("AttributeDefinitions", "DeletionProtectionEnabled", "KeySchema", "SSEDescription", "StreamSpecification", "WarmThroughput")
        found = {name: described.get(name) for name in names} | {"billing": described["BillingModeSummary"]["BillingMode"]}
        indexes = [{name: each.get(name) for name in ("IndexName", "KeySchema", "Projection", "WarmThroughput")} for each in described.get("GlobalSecondaryIndexes", [])]
        found["indexes"] = sorted(indexes, key=lambda index: index["IndexName"])
        recovery = dynamodb.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
        found |= {name: recovery.get(name) for name in ("PointInTimeRecoveryStatus", "RecoveryPeriodInDays")}
        found["ttl"] = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        with contextlib.suppress(dynamodb.exceptions.PolicyNotFoundException):
            found["policy"] = json.loads(dynamodb.get_resource_policy(ResourceArn=described["TableArn"])["Policy"])
        tags = dynamodb.list_tags_of_resource(ResourceArn=described["TableArn"])["Tags"]
        found["tags"] = sorted((tag["Key"], tag["Value"]) for tag in tags if not tag["Key"].startswith("aws:") and tag["Key"] != restore.IMPORTED)
        return found

    @contextlib.contextmanager
    def failing_call(self, operation, after):
        """Lets a DynamoDB operation succeed this many times, and then fail."""
        count = iter(range(after))

        def fail(**_):
            if next(count, None) is None:
                raise BotoCoreError

        event = f"before-call.dynamodb.{operation}"
        self.session.events.register(event, fail)
        try:
            yield
        finally:
            self.session.events.unregister(event, fail)

    def test_the_page_leads_from_an_empty_account_to_an_empty_account(self):
        given = environment('NoticesSender = "notices@example.com"')
        status, said = self.asked(given)
        self.assertEqual(status, 0, said)
        self.deploy_completely(given)
        outputs = self.outputs(given)
        alarms = [each["Properties"] for each in whole(all_translated(**given.parameters))["Resources"].values() if each["Type"] == "AWS::CloudWatch::Alarm"]
        named = [alarm["AlarmName"]["Fn::Sub"] for alarm in alarms if "Metrics" not in alarm]
        self.assertEqual(self.alarms(given), {name.replace("${AWS::StackName}", given.stack) for name in named})
        self.run_page("aws", outputs)
        pool = self.session.client("cognito-idp").admin_get_user(UserPoolId=outputs["UserPoolId"], Username="ada@example.com")
        self.assertEqual(pool["UserStatus"], "FORCE_CHANGE_PASSWORD")

        # Data survives the stack, and the next stack imports the data.
        tables = self.session.client("dynamodb")
        row = {"pk": {"S": "A#1"}, "sk": {"S": "#"}}
        tables.put_item(TableName=outputs["LedgerTableName"], Item=row)
        events = self.session.client("events")
        events.put_rule(Name="theirs", EventBusName=given.stack, EventPattern='{"source": ["purser"]}')
        self.assertIn("theirs", self.run_kept("list", given)[1])
        events.delete_rule(Name="theirs", EventBusName=given.stack)
        self.delete(given)
        self.assertEqual(self.alarms(given), set(), "the nested stack goes with the stack")
        left = self.left(given)
        template = translated(**given.parameters)
        kept_names = sorted(name for name, each in template["Resources"].items() if kept.is_kept(each) and kept.holds(template, each, given))
        self.assertEqual(sorted(each.logical_id for each in left), kept_names, "all that the template keeps is found")
        self.assertIn("have left", self.asked(given)[1])
        secrets = {each for each in left if each.type == "AWS::SecretsManager::Secret"}
        for wrong, words in [([*left, left[0]], "several stacks have left"), (left[1:], f"not left: {left[0].logical_id}")]:
            with self.assertRaisesRegex(kept.Refused, words):
                kept.import_stack(self.session, given, template, wrong)
        requested = self.import_without_secrets(given)
        self.assertEqual({(each["LogicalResourceId"], each["ResourceIdentifier"].get("Id")) for each in requested}, {(each.logical_id, each.id) for each in secrets})
        self.assertEqual(set(self.physical(given).values()), {each.id for each in left if each not in secrets})
        self.deploy_completely(given)
        self.assertEqual(self.outputs(given)["LedgerTableName"], outputs["LedgerTableName"])
        self.assertEqual(self.outputs(given)["UserPoolId"], outputs["UserPoolId"])
        self.assertIn("Item", tables.get_item(TableName=outputs["LedgerTableName"], Key=row))
        # The emulator creates new secrets under the former names.
        self.assertEqual(self.left(given), [], "all of it belongs to the stack again")

        # The resources are deleted only if the user asks for it by name.
        self.delete(given)
        self.assertEqual(self.run_kept("delete", given)[0], 1)
        self.assertEqual(len(self.left(given)), len(left))
        status, said = self.run_kept("delete", given, "--yes", given.stack)
        self.assertEqual(status, 0, said)
        self.assertEqual(self.left(given), [])
        self.assertNotIn(outputs["LedgerTableName"], tables.list_tables()["TableNames"])

    def import_without_secrets(self, given, *arguments):
        """Runs `kept.py import`, removes the secrets from its request, and returns them."""
        taken = []

        def take(params, **_):
            body = json.loads(params["TemplateBody"])
            for each in params["ResourcesToImport"]:
                if each["ResourceType"] == "AWS::SecretsManager::Secret":
                    self.assertEqual(body["Resources"].pop(each["LogicalResourceId"])["Type"], each["ResourceType"])
                    taken.append(each)
            params["ResourcesToImport"] = [each for each in params["ResourcesToImport"] if each not in taken]
            params["TemplateBody"] = json.dumps(body)

        event = "provide-client-params.cloudformation.CreateChangeSet"
        self.session.events.register(event, take)
        try:
            status, said = self.run_kept("import", given, *arguments)
        finally:
            self.session.events.unregister(event, take)
        self.assertEqual(status, 0, said)
        return taken

    def delete(self, given):
        cloudformation = self.session.client("cloudformation")
        cloudformation.delete_stack(StackName=given.stack)
        cloudformation.get_waiter("stack_delete_complete").wait(StackName=given.stack, WaiterConfig={"Delay": 1})

    def run_page(self, program, outputs):
        """Runs the commands of docs/deploy.md that are marked for this test, with their placeholders filled in."""
        page = (ROOT / "docs" / "deploy.md").read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
        self.assertTrue(blocks)
        values = outputs | {"address": "ada@example.com", "rpc url": "https://rpc.example.com", "function": "none"}
        for block in blocks:
            for command in re.split(r"(?<!\\)\n", block.strip()):
                filled = re.sub(r"<([^>]+)>", lambda name: values[name[1]], command)
                done = subprocess.run(["bash", "-c", filled], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, 0, f"{filled}\n{done.stderr}")


if __name__ == "__main__":
    if not MINISTACK.exists():
        print(f"deploy_test: no {MINISTACK.relative_to(ROOT)}; run infra/setup.sh ministack", file=sys.stderr)
        sys.exit(2)
    unittest.main()
