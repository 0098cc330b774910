"""Tests the templates, after their translation to plain CloudFormation. infra/sam/check.sh runs these tests.

tests/it/docs.rs tests the routes. infra/sam/iam tests the permissions of the roles, and infra/sam/calls.py tests that
the functions need them.
"""

import hashlib
import json
import logging
import re
import unittest

from samcli.lib.providers.api_provider import ApiProvider
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider

import calls
import roles
from translate import TEMPLATE, evaluated, templates, translated, whole

ROOT = TEMPLATE.parent
TRANSACTIONS = ("TransactWriteItems",)

NO_IAM = {"InternalAuthorizationType": "NONE"}
IAM = {"InternalAuthorizationType": "AWS_IAM"}

# The resources with data that can't be created again. A failed first deployment leaves the resources that are protected
# from deletion, and no others.
RETAINED = {
    "AWS::Cognito::UserPool": "Retain",
    "AWS::DynamoDB::Table": "Retain",
    "AWS::KMS::Key": "RetainExceptOnCreate",
    "AWS::Logs::LogGroup": "RetainExceptOnCreate",
    "AWS::S3::Bucket": "RetainExceptOnCreate",
    "AWS::SQS::Queue": "RetainExceptOnCreate",
    "AWS::SecretsManager::ResourcePolicy": "RetainExceptOnCreate",
    "AWS::SecretsManager::Secret": "RetainExceptOnCreate",
}


# Each secret, with the hash of its resource.
SECRETS = {
    "AgentsClientIpKeySecret": "70edf6ae4a56",
    "ClientIpKeySecret": "f2c590ba7fe1",
    "NonceKeySecret": "d41ff99280a8",
    "OauthKeySecret": "376245a810ce",
    "OperatorsSecret": "ff015ff9756f",
    "PeopleClientIpKeySecret": "44fe32566ec2",
    "RpcUrlSecret": "23f1b9525985",
    "SignInKeySecret": "c7f1a529587d",
    "StatementsKeySecret": "a7eb845a323d",
    "WalletSeedSecret": "a1615206946b",
}


class Template(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.template = whole(templates())
        cls.resources = cls.template["Resources"]
        cls.functions = roles.functions(cls.template)

    def of_type(self, *kinds):
        found = {name: resource for name, resource in self.resources.items() if resource["Type"] in kinds}
        self.assertTrue(found, kinds)
        return found

    def permissions(self, function):
        return roles.permissions(roles.role_of(self.template, function)[1])

    def test_each_function_has_a_role_of_its_own_that_only_lambda_takes_on(self):
        taken = [roles.role_of(self.template, function) for function in self.functions]
        self.assertEqual(len({name for name, _ in taken}), len(self.functions))
        for name, role in taken:
            statements = role["AssumeRolePolicyDocument"]["Statement"]
            lambdas = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
            self.assertEqual(statements, [lambdas], name)

    def test_a_deployment_on_base_names_the_role_that_writes_secrets(self):
        rule = self.template["Rules"]["OnBaseOneRoleWritesSecrets"]
        [assertion] = rule["Assertions"]

        def is_refused(**parameters):
            conditions = {"Applies": rule["RuleCondition"], "Holds": assertion["Assert"]}
            refused = {"Fn::If": ["Applies", {"Fn::If": ["Holds", False, True]}, False]}
            return evaluated({**self.template, "Conditions": conditions}, refused, **parameters)

        writer = "arn:aws:iam::123456789012:role/deployer"
        self.assertTrue(is_refused(Network="base"))
        self.assertFalse(is_refused(Network="base", SecretsWriterArn=writer))
        self.assertFalse(is_refused(Network="base-sepolia"))
        self.assertIn("SecretsWriterArn", assertion["AssertDescription"])

    def test_one_more_role_starts_the_functions_that_have_schedules(self):
        of_functions = {roles.role_of(self.template, function)[0] for function in self.functions}
        self.assertEqual(self.of_type("AWS::IAM::Role").keys() - of_functions, {"CanaryRole", "ScheduleRole"})
        role = self.resources["ScheduleRole"]["Properties"]
        [trusted] = role["AssumeRolePolicyDocument"]["Statement"]
        self.assertEqual(trusted["Principal"], {"Service": "scheduler.amazonaws.com"})
        [policy] = role["Policies"]
        [statement] = policy["PolicyDocument"]["Statement"]
        self.assertEqual(statement["Action"], "lambda:InvokeFunction")
        targets = [schedule["Properties"]["Target"] for schedule in self.of_type("AWS::Scheduler::Schedule").values()]
        self.assertEqual({roles.logical_id(arn) for arn in statement["Resource"]}, {roles.logical_id(target["Arn"]) for target in targets})
        self.assertEqual({roles.logical_id(target["RoleArn"]) for target in targets}, {"ScheduleRole"})
        attached = [arn["Ref"] for _, role in self.of_type("AWS::IAM::Role").items()
                    for arn in role["Properties"].get("ManagedPolicyArns", [])]
        managed = [name for name, resource in self.resources.items() if resource["Type"] == "AWS::IAM::ManagedPolicy"]
        self.assertEqual(sorted(attached), sorted(managed), "each is of one role")
        for kind in ("AWS::IAM::Policy", "AWS::IAM::User"):
            self.assertFalse([name for name, resource in self.resources.items() if resource["Type"] == kind], kind)

    def test_decisions_and_audit_rows_are_added_and_never_changed(self):
        for name in calls.ONLY_ADDED:
            with self.subTest(name):
                self.check_only_added(name)

    def check_only_added(self, name):
        for function in self.functions:
            actions = {p.action for p in self.permissions(function) if p.resource == name}
            self.assertLessEqual(actions, {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"}, function)
        table = self.resources[name]["Properties"]
        [statement] = table["ResourcePolicy"]["PolicyDocument"]["Statement"]
        self.assertEqual((statement["Effect"], statement["Principal"]), ("Deny", "*"))
        self.assertNotIn("Condition", statement)
        for action in ("BatchWriteItem", "DeleteItem", "PartiQLDelete", "PartiQLUpdate", "UpdateItem"):
            self.assertIn(f"dynamodb:{action}", statement["Action"])
        self.assertNotIn("TimeToLiveSpecification", table, "rows would go by themselves")

    def test_what_cannot_be_made_again_outlives_the_stack(self):
        for name, resource in self.of_type(*RETAINED).items():
            # A retained group with this name would prevent the next stack.
            policy = "Delete" if name == "ApiLogs" else RETAINED[resource["Type"]]
            self.assertEqual(resource.get("DeletionPolicy"), policy, name)
            self.assertEqual(resource.get("UpdateReplacePolicy"), "Retain", name)

    def test_every_table_can_be_restored_and_not_be_deleted(self):
        for name, table in self.of_type("AWS::DynamoDB::Table").items():
            properties = table["Properties"]
            self.assertNotIn("TableName", properties, f"{name}: an account holds several stacks")
            self.assertEqual(properties["BillingMode"], "PAY_PER_REQUEST", name)
            self.assertTrue(properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], name)
            self.assertTrue(properties["DeletionProtectionEnabled"], name)
            self.assertEqual(properties["SSESpecification"]["KMSMasterKeyId"], {"Fn::GetAtt": ["DataKey", "Arn"]}, name)

    def test_no_secret_changes_under_its_policy(self):
        # CloudFormation's handler may read a secret that it updates (its schema lists GetSecretValue for updates), and
        # the secrets' policies deny that. So before a secret is changed, an earlier release must remove the policy.
        secrets = {name: hashlib.sha256(json.dumps(one, sort_keys=True).encode()).hexdigest()[:12]
                   for name, one in self.of_type("AWS::SecretsManager::Secret").items()}
        self.assertEqual(secrets, SECRETS)

    def test_secrets_and_logs_are_encrypted_each_by_its_key(self):
        for kind, key in (("AWS::SecretsManager::Secret", "SecretsKey"), ("AWS::Logs::LogGroup", "DataKey")):
            for name, resource in self.of_type(kind).items():
                self.assertEqual(resource["Properties"]["KmsKeyId"], {"Fn::GetAtt": [key, "Arn"]}, name)
            self.assertTrue(self.resources[key]["Properties"]["EnableKeyRotation"])

    def test_every_function_takes_only_signed_code_where_that_is_asked(self):
        asked = {"Fn::If": ["SignsCode", {"Ref": "CodeSigningConfigArn"}, {"Ref": "AWS::NoValue"}]}
        for name, function in self.of_type("AWS::Lambda::Function").items():
            self.assertEqual(function["Properties"]["CodeSigningConfigArn"], asked, name)

    def test_every_function_has_a_log_group_that_forgets_and_a_count_of_its_errors(self):
        filters = self.of_type("AWS::Logs::MetricFilter").values()
        filtered = [each["Properties"]["LogGroupName"]["Ref"] for each in filters]
        for function, properties in self.functions.items():
            logs = properties["LoggingConfig"]["LogGroup"]["Ref"]
            self.assertEqual(logs, function.removesuffix("Function") + "Logs")
            self.assertIn("RetentionInDays", self.resources[logs]["Properties"], function)
            self.assertIn(logs, filtered)

    def test_the_quotas_of_reserved_concurrency_are_documented(self):
        page = (ROOT / "docs" / "deploy.md").read_text()
        for choice in ("vital", "all"):
            resources = evaluated(self.template, self.resources, ReserveConcurrency=choice, ReconcileRuns=4).values()
            shares = [one["Properties"].get("ReservedConcurrentExecutions") for one in resources
                      if one["Type"] == "AWS::Lambda::Function"]
            # Lambda requires at least 100 unreserved executions.
            quota = sum(int(share or 0) for share in shares) + 100
            row = re.search(rf"^\| `{choice}`.*$", page, re.MULTILINE).group()
            self.assertTrue(row.endswith(f" {quota} |"), f"{quota}: {row}")

    def test_the_gateway_refuses_nobody_but_before_the_internal_group_where_that_is_asked_for(self):
        for parameters, gate in (({}, []), (NO_IAM, []), (IAM, [{"AWS_IAM": []}])):
            template = translated(**parameters)
            # A warning about `security` must not be ignored.
            stops = template["Resources"]["Api"]["Properties"]["FailOnWarnings"]
            self.assertEqual(evaluated(template, stops, **parameters), bool(gate))
            body = evaluated(template, template["Resources"]["Api"]["Properties"]["Body"], **parameters)
            schemes = body.get("components", {}).get("securitySchemes", {})
            self.assertEqual(list(schemes), ["AWS_IAM"] if gate else [])
            for scheme in schemes.values():
                self.assertEqual(scheme["x-amazon-apigateway-authtype"], "awsSigv4")
            self.assertNotIn("security", body)
            internal = 0
            for path, methods in body["paths"].items():
                for method, operation in methods.items():
                    if method == "parameters":
                        self.assertEqual([each["name"] for each in operation], re.findall(r"\{(\w+)\+?\}", path), path)
                        continue
                    function = operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
                    is_internal = "${InternalFunction.Arn}" in function
                    internal += is_internal
                    with self.subTest(f"{method} {path}", **parameters):
                        self.assertEqual(operation.get("security"), gate if is_internal else None)
            self.assertTrue(internal)

    def test_sam_local_serves_every_route(self):
        # For each route of the internal group, SAM warns that it does not know the gateway's authorizer.
        logging.getLogger("samcli").setLevel(logging.CRITICAL)
        stacks, _ = SamLocalStackProvider.get_stacks(str(TEMPLATE))
        served = {(route.function_name, route.path) for route in ApiProvider(stacks).api.routes}
        routed = set()
        for path, methods in self.resources["Api"]["Properties"]["Body"]["paths"].items():
            for method, operation in methods.items():
                if method != "parameters":
                    uri = operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
                    routed.add((re.search(r"\{(\w+)\.Arn\}", uri)[1], "$default" if path == "/$default" else path))
        self.assertEqual(served, routed)

    def test_an_aliased_function_is_called_through_its_alias(self):
        called = {name: one for name, one in self.resources.items() if one["Type"] not in ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard")}
        for alias in self.of_type("AWS::Lambda::Alias"):
            function = alias.removesuffix("Aliaslive")
            # A reference without the alias would reach $LATEST, which a deployment changes at once.
            told = {name: json.dumps(one).replace(f"{{{function}.Arn}}:live", "") for name, one in called.items()}
            named = {name for name, text in told.items() if re.search(rf'"{function}"|{function}[.}}]', text)}
            versions = {name for name in called if name.startswith(f"{function}Version")}
            self.assertEqual(named - versions, {alias, "CanaryRole"}, function)

    def test_an_alarm_that_sees_every_version_takes_a_canary_back(self):
        alarms = {one["Properties"]["AlarmName"]["Fn::Sub"]: one["Properties"] for one in self.of_type("AWS::CloudWatch::Alarm").values()}
        groups = self.of_type("AWS::CodeDeploy::DeploymentGroup")
        for alias, one in self.of_type("AWS::Lambda::Alias").items():
            policy = one["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
            group = groups[policy["DeploymentGroupName"]["Ref"]]["Properties"]
            self.assertIn("DEPLOYMENT_STOP_ON_ALARM", group["AutoRollbackConfiguration"]["Events"], alias)
            self.assertTrue(group["AlarmConfiguration"]["Enabled"], alias)
            for alarm in group["AlarmConfiguration"]["Alarms"]:
                # Lambda's metrics by the function's name alone cover all versions (developer guide, "Types of
                # metrics").
                dimensions = {each["Name"] for each in alarms[alarm["Name"]["Fn::Sub"]].get("Dimensions", [])}
                self.assertLessEqual(dimensions, {"FunctionName"}, alarm)
        self.assertEqual(len(groups), 3)
        without = translated(Canary="false")["Resources"]
        self.assertFalse([name for name, one in without.items() if one["Type"].startswith("AWS::CodeDeploy::") or "UpdatePolicy" in one])
        self.assertTrue([name for name, one in without.items() if one["Type"] == "AWS::Lambda::Alias"])

    def test_each_parameter_of_an_aliased_function_makes_a_version(self):
        def parameters(value):
            found = {name for name in re.findall(r'"Ref": "(\w+)"|\$\{(\w+)\}', json.dumps(value)) for name in name if name}
            conditions = set(re.findall(r'"(?:Fn::If": \[|Condition": )"(\w+)"', json.dumps(value)))
            return found.intersection(self.template["Parameters"]).union(*(parameters(self.template["Conditions"][one]) for one in conditions))

        content = parameters(self.resources["Configuration"]["Properties"]["Content"])
        for alias in self.of_type("AWS::Lambda::Alias"):
            function = alias.removesuffix("Aliaslive")
            # The other properties are not part of a version.
            of_version = {name: value for name, value in self.functions[function].items()
                          if name not in ("CodeSigningConfigArn", "ReservedConcurrentExecutions")}
            self.assertEqual(parameters(of_version) - content, set(), function)
            # Lambda creates no version if nothing has changed, so a number that changes is a variable.
            variables = self.functions[function]["Environment"]["Variables"]
            self.assertEqual(variables["CONFIGURATION"], {"Ref": "Configuration"}, function)
            [version] = [one for name, one in self.resources.items() if name.startswith(f"{function}Version")]
            self.assertEqual(version["Properties"]["Description"], {"Ref": "Configuration"}, function)
            self.assertEqual(version["DeletionPolicy"], "Delete", function)

    def test_no_parameter_turns_on_what_is_for_development_alone(self):
        variables = self.functions["PaymentsFunction"]["Environment"]["Variables"]
        self.assertEqual(variables["ACCEPT_PROVIDER_OK"], "")

    def test_no_variable_of_a_function_holds_a_secret(self):
        for function, properties in self.functions.items():
            for name, value in properties.get("Environment", {}).get("Variables", {}).items():
                self.assertNotIn("resolve:", json.dumps(value), f"{function} {name}")
                if isinstance(value, dict) and "Secret" in value.get("Ref", ""):
                    self.assertTrue(name.endswith("_ARN"), f"{function} {name}")

    def test_the_schedules_are_those_of_the_events(self):
        scheduled = [
            roles.logical_id(schedule["Properties"]["Target"]["Arn"])
            for schedule in self.of_type("AWS::Scheduler::Schedule").values()
        ]
        folders = [name.removesuffix("Function").lower() for name in scheduled]
        for folder in folders:
            self.assertTrue(list((ROOT / "events" / folder).glob("every-*.json")), folder)

    def test_the_ledgers_stream_passes_on_every_row_that_events_reads(self):
        mapping = self.resources["EventsFunctionLedgerChanges"]["Properties"]
        patterns = [json.loads(each["Pattern"]) for each in mapping["FilterCriteria"]["Filters"]]
        passed = {key["prefix"] for pattern in patterns for key in pattern["dynamodb"]["Keys"]["pk"]["S"]}
        stream = ROOT / "shared/store/src/stream"
        arms = "".join((stream / file).read_text() for file in ("rows.rs", "signs.rs"))
        arms = re.findall(r'^ +(?:Some\()?("[A-Z]+"(?: \| "[A-Z]+")*)\)?(?: if \w+)? =>', arms, re.MULTILINE)
        prefixes = {f"{kind}#" for arm in arms for kind in re.findall("[A-Z]+", arm)}
        self.assertEqual(passed, prefixes)

    def test_the_streams_pass_on_every_row_that_history_reads(self):
        mappings = [self.resources[f"HistoryFunction{table}Changes"]["Properties"] for table in ("Ledger", "Decisions")]
        patterns = [json.loads(each["Pattern"]) for mapping in mappings for each in mapping["FilterCriteria"]["Filters"]]
        passed = {key["prefix"] for pattern in patterns for key in pattern["dynamodb"]["Keys"]["pk"]["S"]}
        stream = ROOT / "shared/store/src/stream"
        read = "".join((stream / file).read_text() for file in ("payments.rs", "approvals.rs"))
        self.assertEqual(passed, set(re.findall(r'"([A-Z]+#)"', read)))

    def test_every_alarm_has_a_section_in_the_runbook_and_the_reverse(self):
        named = set()
        for name, alarm in self.of_type("AWS::CloudWatch::Alarm").items():
            properties = alarm["Properties"]
            section = properties["AlarmName"]["Fn::Sub"].removeprefix("${AWS::StackName}-")
            self.assertEqual(section, re.sub(r"(?<!^)([A-Z])", r"-\1", name.removesuffix("Alarm")).lower())
            self.assertRegex(properties["AlarmDescription"], rf"^[^.]+\.( [^.]+\.)? \(docs/runbook\.md, {section}\)$", "at most two sentences")
            self.assertIn("TreatMissingData", properties, name)
            self.assertIn("HasAlarmEmail", json.dumps(properties["AlarmActions"]), name)
            named.add(section)
        runbook = (ROOT / "docs" / "runbook.md").read_text()
        # One section may describe the same alarm for each function or table: `<function>-errors`.
        groups = "|".join(function.removesuffix("Function").lower() for function in self.functions)
        tables = "|".join(table.removesuffix("Table").lower() for table in self.of_type("AWS::DynamoDB::Table"))
        general = {re.sub(f"^({groups})-(errors|throttled)$", r"<function>-\2", section) for section in named}
        general = {re.sub(f"^({tables})-table-", "<table>-table-", section) for section in general}
        headings = re.findall(r"^### (`.*)$", runbook, re.MULTILINE)
        self.assertEqual({section for heading in headings for section in heading.split("`")[1::2]}, general)

    def test_every_function_has_its_alarms(self):
        alarms = self.of_type("AWS::CloudWatch::Alarm")
        for function in self.functions:
            group = function.removesuffix("Function")
            for kind, metric in (("Errors", "Errors"), ("Throttled", "Throttles")):
                properties = alarms[f"{group}{kind}Alarm"]["Properties"]
                self.assertEqual(properties["MetricName"], metric)
                self.assertEqual(properties["Dimensions"], [{"Name": "FunctionName", "Value": {"Ref": function}}])

    def test_every_table_is_watched(self):
        for kind, metric in (("Failing", "SystemErrors"), ("Throttled", "ThrottledRequests")):
            for table in self.of_type("AWS::DynamoDB::Table"):
                query = self.resources[f"{table}{kind}Alarm"]["Properties"]["Metrics"][0]["Expression"]["Fn::Sub"]
                self.assertIn(metric, query)
                self.assertIn(f"'${{{table}}}'", query)

    def test_the_dashboard_is_json_and_shows_every_alarm_and_function(self):
        text = self.resources["Overview"]["Properties"]["DashboardBody"]["Fn::Sub"]
        json.loads(text)
        for name in [*self.of_type("AWS::CloudWatch::Alarm"), *self.functions]:
            self.assertIn(f"${{{name}", text)

    @unittest.skipUnless((ROOT / "shared/api/src/telemetry/metrics.rs").is_file(), "nothing is counted yet")
    def test_every_metric_of_ours_is_one_that_the_code_counts(self):
        for function, properties in self.functions.items():
            variables = properties["Environment"]["Variables"]
            self.assertEqual(variables["METRICS_NAMESPACE"], {"Fn::Sub": "Purser/${AWS::StackName}"}, function)
        counted = (ROOT / "shared/api/src/telemetry/metrics.rs").read_text()
        metrics = {
            alarm["Properties"]["MetricName"] for alarm in self.of_type("AWS::CloudWatch::Alarm").values()
            if alarm["Properties"].get("Namespace") == {"Fn::Sub": "Purser/${AWS::StackName}"}
        }
        shown = self.resources["Overview"]["Properties"]["DashboardBody"]["Fn::Sub"]
        ours = re.escape("Purser/${AWS::StackName}")
        metrics |= set(re.findall(rf'"{ours}", "(\w+)"', shown))
        metrics |= set(re.findall(rf'\{{\\"{ours}\\"[^}}]*\}} MetricName=\\"(\w+)', shown))
        self.assertGreater(len(metrics), 10)
        # Log filters count these metrics.
        for metric in metrics - {"ErrorLines"}:
            self.assertIn(f'"{metric}"', counted)


class Calls(unittest.TestCase):
    """Tests that calls.py finds differences."""

    PUT = roles.Permission("dynamodb:PutItem", "LedgerTable", ("A#*", "L#*"), TRANSACTIONS)

    def check(self, permissions, called, *problems):
        found = calls.compare("PaymentsFunction", permissions, called)
        self.assertEqual(len(found), len(problems), found)
        for problem, words in zip(found, problems):
            self.assertIn(words, problem)

    @staticmethod
    def put(*keys, within="TransactWriteItems", table="LedgerTable", only_if_new=True):
        return {"action": "dynamodb:PutItem", "resource": table, "keys": list(keys), "within": within,
                "only_if_new": only_if_new}

    def test_what_was_called_is_what_is_allowed(self):
        self.check([self.PUT], [self.put("A#"), self.put("L#")])

    def test_a_call_that_no_permission_allows_is_seen(self):
        for call in (self.put("X#"), self.put("A#", "X#"), self.put("A#", within=None), self.put("A#", table="Other")):
            self.check([self.PUT], [self.put("A#"), self.put("L#"), call], "may not, and did")

    def test_a_permission_that_no_call_used_is_seen(self):
        unused = roles.Permission("dynamodb:DeleteItem", "LedgerTable", ("A#*",), TRANSACTIONS)
        self.check([self.PUT, unused], [self.put("A#"), self.put("L#")], "may, and never did: dynamodb:DeleteItem")
        self.check([self.PUT], [self.put("A#")], "may, and never did with L#*")

    def test_a_write_that_is_only_made_in_transactions_is_held_to_them(self):
        anywhere = roles.Permission("dynamodb:PutItem", "LedgerTable", ("A#*",))
        self.check([anywhere], [self.put("A#")], "in transactions alone")
        self.check([anywhere], [self.put("A#"), self.put("A#", within=None)])

    def test_a_row_that_could_be_overwritten_is_seen(self):
        for table in calls.ONLY_ADDED:
            rows = roles.Permission("dynamodb:PutItem", table, ("A#*",), TRANSACTIONS)
            self.check([rows], [self.put("A#", table=table, only_if_new=False)], "could overwrite")

    def test_a_function_that_calls_nothing_is_seen(self):
        self.check([], [], "never called")


if __name__ == "__main__":
    unittest.main()
