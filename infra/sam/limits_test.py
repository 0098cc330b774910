"""Tests that the stack keeps AWS's limits with names of every length, and that limits.py finds each violation."""

import copy
import json
import re
import unittest
from pathlib import Path

import limits
from limits import LIMITS, Stack, problems
from translate import TEMPLATE, templates

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"

# Names with 6, 24 and 32 characters.
NAMES = ("purser", "purser-production-europe", "purser-production-europe-ireland")
# The last region has one of the longest names.
REGIONS = ("us-east-1", "eu-west-1", "ap-southeast-1")
WRITER = "arn:aws:iam::123456789012:role/aws-reserved/sso.amazonaws.com/eu-west-1/AWSReservedSSO_Administrators_0123456789abcdef"
# Every condition is true in one of these parameter sets, and false in another.
EVERYTHING = {
    "ArchiveLock": "compliance", "ArchiveLockDays": "36500", "JournalDays": "3599",
    "StatementsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/mrk-" + "1" * 32,
    "AlarmEmail": "operators@example.test", "CertificateArn": "arn:aws:acm:eu-west-1:123456789012:certificate/1234", "Network": "base",
    "CodeSigningConfigArn": "arn:aws:lambda:eu-west-1:123456789012:code-signing-config:csc-0123456789abcdef0",
    "DashboardUrl": "https://purser.example.test", "DomainName": "purser.example.test", "FacilitatorUrl": "https://facilitator.example.test",
    "HostedZoneId": "Z0123456789", "InternalAuthorizationType": "AWS_IAM", "LedgerWarmWriteUnits": "8000", "NoticesSender": "purser@example.test",
    "ReconcileRuns": "4", "ReserveConcurrency": "all", "SecretsWriterArn": WRITER,
    "OperatorClaim": "groups", "OperatorValue": "operators", "BrowserOperators": ",".join([f"operator-{n:02}=" + "a" * 64 for n in range(26)]),
}
FOREIGN = {"OidcIssuer": "https://" + "issuer." * 20 + "test", "OidcClientId": "c" * 64, "RequireMfa": "false"}
CASES = (
    {},
    {"Custody": "kms", "ReserveConcurrency": "vital", "ReconcileRuns": "2"},
    EVERYTHING,
    {**EVERYTHING, **FOREIGN, "Custody": "kms"},
)

LONG = "x" * 40_000
HUGE = {"Version": "2012-10-17", "Statement": [{"Sid": LONG, "Effect": "Deny", "Principal": "*", "Action": "*", "Resource": "*"}]}


def first(stack, kind):
    return next(iter(stack.of_type(kind).values()))


def put(kind, **properties):
    """Puts these properties into the first resource of a type."""
    return lambda stack: first(stack, kind).update(properties)


def under(kind, field, **properties):
    return lambda stack: first(stack, kind)[field].update(properties)


def added(section, amount):
    return lambda stack: stack.files[TEMPLATE.name].setdefault(section, {}).update({f"Planted{at}": {"Type": "Planted"} for at in range(amount)})


def twice(kind):
    def plant(stack):
        logical = next(iter(stack.of_type(kind)))
        stack.resources[f"{logical}Again"] = copy.deepcopy(stack.resources[logical])

    return plant


def to(**attributes):
    return lambda stack: stack.__dict__.update(attributes)


def many_routes(stack):
    paths = limits.body_of(stack)["paths"]
    paths.update({f"/planted/{at}": paths["/services"] for at in range(300)})


def alarm_of(stack, **fields):
    return next(one for one in stack.of_type("AWS::CloudWatch::Alarm").values() if "Metrics" in one)["Metrics"][0].update(fields)


def with_mapping(choice, **properties):
    def plant(stack):
        next(one for _, one in limits.mappings(stack) if choice in one).update(properties)

    return plant


def third_reader(stack):
    logical = next(name for name, one in limits.mappings(stack) if "/stream/" in one["EventSourceArn"])
    for at in range(2):
        stack.resources[f"Planted{at}"] = copy.deepcopy(stack.resources[logical])


def second_mapping(stack):
    """Adds a second mapping of a function to its stream, as in the template before the decision history had its own
    function.
    """
    logical, one = next((name, one) for name, one in limits.mappings(stack) if "/stream/" in one["EventSourceArn"])
    stack.resources["Planted"] = copy.deepcopy(stack.resources[logical])
    stack.resources["Planted"]["Properties"]["FilterCriteria"] = {"Filters": [{"Pattern": '{"eventName": ["REMOVE"]}'}]}


def long_search(stack):
    one = first(stack, "AWS::CloudWatch::Dashboard")
    one["DashboardBody"] = json.dumps({"widgets": [{"properties": {"metrics": [[{"expression": f"SEARCH('{LONG}', 'Sum', 60)"}]]}}]})


def deployment_group(stack):
    stack.resources["Planted"] = {"Type": "AWS::CodeDeploy::DeploymentGroup", "Properties": {"AlarmConfiguration": {"Alarms": [{}] * 11}}}


def conflicting_route(stack):
    paths = limits.body_of(stack)["paths"]
    path = next(path for path in paths if "{" in path)
    paths[path.replace("{", "{planted")] = paths[path]


def repeated_alarm(stack):
    one, other = list(stack.of_type("AWS::CloudWatch::Alarm").values())[:2]
    other["AlarmName"] = one["AlarmName"]


def long_operators(amount):
    """Returns this number of operators with names of eleven letters."""
    return {"BrowserOperators": ",".join(f"operator-{n:02}=" + "a" * 64 for n in range(amount))}


def crowded_widget(stack):
    one = first(stack, "AWS::CloudWatch::Dashboard")
    body = json.loads(one["DashboardBody"])
    body["widgets"][0]["properties"]["alarms"] *= 2
    one["DashboardBody"] = json.dumps(body)


def slow_function(stack):
    for one in stack.of_type("AWS::Lambda::Function").values():
        one["Timeout"] = 31


def unequal_share(stack):
    stack.resources["EventsFunction"]["Properties"]["ReservedConcurrentExecutions"] = 44


def looping(stack):
    del stack.resources["NoticesFunction"]["Properties"]["RecursiveLoop"]


def large_shares(stack):
    stack.resources["PaymentsFunction"]["Properties"]["ReservedConcurrentExecutions"] = 901


def granted(stack):
    """Adds one permission for each route, as SAM does for events."""
    for at in range(60):
        stack.resources[f"PeopleFunctionPlanted{at}Permission"] = copy.deepcopy(stack.resources["PeoplePermission"])


def passing(stack):
    stack.files[TEMPLATE.name]["Resources"]["Monitoring"]["Properties"]["Parameters"]["AlarmEmail"] = LONG


def named(stack):
    for resources in (stack.resources, stack.files[TEMPLATE.name]["Resources"]):
        resources["ProbeFunctionEveryMinute"]["Properties"]["Name"] = "ProbeFunctionEveryMinute"


# A violation of each limit.
PLANTED = {
    "bytes of a function's policy": granted,
    "characters of a role's own policies": put("AWS::IAM::Role", Policies=[{"PolicyName": "p", "PolicyDocument": HUGE}]),
    "characters of a managed policy": put("AWS::IAM::ManagedPolicy", PolicyDocument=HUGE),
    "characters of a trust policy": put("AWS::IAM::Role", AssumeRolePolicyDocument=HUGE),
    "bytes of a key's policy": put("AWS::KMS::Key", KeyPolicy=HUGE),
    "characters of a secret's policy": put("AWS::SecretsManager::ResourcePolicy", ResourcePolicy=HUGE),
    "bytes of a queue's policy": put("AWS::SQS::QueuePolicy", PolicyDocument=HUGE),
    "bytes of a table's policy": put("AWS::DynamoDB::Table", ResourcePolicy={"PolicyDocument": HUGE}),
    "bytes of a function's variables": put("AWS::Lambda::Function", Environment={"Variables": {"X": LONG}}),
    "characters of a function's description": put("AWS::Lambda::Function", Description=LONG),
    "characters of an alarm's description": put("AWS::CloudWatch::Alarm", AlarmDescription=LONG),
    "characters of a rule's description": put("AWS::Events::Rule", Description=LONG),
    "characters of a schedule's description": put("AWS::Scheduler::Schedule", Description=LONG),
    "characters of a secret's description": put("AWS::SecretsManager::Secret", Description=LONG),
    "characters of a policy's description": put("AWS::IAM::ManagedPolicy", Description=LONG),
    "bytes of a dashboard": put("AWS::CloudWatch::Dashboard", DashboardBody=json.dumps({"widgets": [], "x": LONG * 26})),
    "alarms in a widget": crowded_widget,
    "characters of a SEARCH expression": long_search,
    "characters of a Metrics Insights query": lambda stack: alarm_of(stack, Expression=f"SELECT {LONG}"),
    "bytes of the access log's format": under("AWS::ApiGatewayV2::Stage", "AccessLogSettings", Format=LONG),
    "characters of an event pattern": put("AWS::Events::Rule", EventPattern={"source": [LONG]}),
    "characters of a mapping's filter": with_mapping("FilterCriteria", FilterCriteria={"Filters": [{"Pattern": LONG}]}),
    "bytes of the template": lambda stack: stack.files["infra/monitoring.generated.yaml"].update(Planted=LONG * 26),
    "resources": added("Resources", 500),
    "parameters": added("Parameters", 200),
    "bytes of a value for a nested stack": passing,
    "outputs": added("Outputs", 200),
    "routes of the API": many_routes,
    "permissions of a function": twice("AWS::Lambda::Permission"),
    "managed policies of a role": put("AWS::IAM::Role", ManagedPolicyArns=["arn"] * 11),
    "statements of a queue's policy": put("AWS::SQS::QueuePolicy", PolicyDocument={"Statement": HUGE["Statement"] * 21}),
    "policies of a queue, beside its one": twice("AWS::SQS::QueuePolicy"),
    "policies of a secret, beside its one": twice("AWS::SecretsManager::ResourcePolicy"),
    "policies of a bucket": twice("AWS::S3::BucketPolicy"),
    "targets of a rule": put("AWS::Events::Rule", Targets=[{}] * 6),
    "alarms of a deployment group": deployment_group,
    "filters of a mapping": with_mapping("FilterCriteria", FilterCriteria={"Filters": [{"Pattern": "{}"}] * 6}),
    "metrics of an alarm": put("AWS::CloudWatch::Alarm", Metrics=[{}] * 11),
    "mappings of a function on one source": second_mapping,
    "readers of a stream": third_reader,
    "characters of the stack's name": to(name="p" * 33),
    "characters that CloudFormation cuts from a name": to(name="p" * 33),
    "names that no stack has": to(name="Purser-dev"),
    "characters of the sign-in pages' domain": put("AWS::Cognito::UserPoolDomain", Domain="my-aws-pages"),
    "characters of a name, beyond its longest": put("AWS::Events::EventBus", Name="x" * 257),
    "resources of one name": repeated_alarm,
    "names that another stack has too": named,
    "role patterns that miss a role": to(name="p" * 40),
    "log groups that their key does not encrypt": to(name="other"),
    "characters beyond ASCII": lambda stack: stack.files["infra/monitoring.generated.yaml"].update(Description="nobody\u2019s"),
    "words that Metrics Insights has not": lambda stack: alarm_of(stack, Expression="SELECT SUM(x) FROM y WHERE a = 'b' OR a = 'c'"),
    "line ends in the access log's format": under("AWS::ApiGatewayV2::Stage", "AccessLogSettings", Format="{\n}"),
    "stage variables with other characters": put("AWS::ApiGatewayV2::Stage", StageVariables={"CLIENT": "a b"}),
    "resources of a queue's statement, beside one": put("AWS::SQS::QueuePolicy", PolicyDocument={"Statement": [{"Resource": ["a", "b"]}]}),
    "servers without url": lambda stack: limits.body_of(stack).update(servers=[{"x-amazon-apigateway-endpoint-configuration": {}}]),
    "paths that end in a slash": lambda stack: limits.body_of(stack)["paths"].update({"/mcp/": {}}),
    "routes that differ in names of variables alone": conflicting_route,
    "operations without an integration": lambda stack: limits.body_of(stack)["paths"].update({"/planted": {"get": {}}}),
    "functions that the API may not call": lambda stack: stack.resources.pop("PeoplePermission"),
    "aliases that no function has": lambda stack: stack.resources.pop("PeopleFunctionAliaslive"),
    "rules named with their bus": put("AWS::CloudWatch::Alarm", Dimensions=[{"Name": "RuleName", "Value": "bus|rule"}]),
    "queues sent to by a role": put("AWS::Events::Rule", Targets=[{"RoleArn": "arn"}]),
    "targets of a rule with an id of another": put("AWS::Events::Rule", Targets=[{"Id": "planted"}] * 2),
    "statement ids that are repeated or not of letters and digits": put(
        "AWS::KMS::Key", KeyPolicy={**HUGE, "Statement": [{**HUGE["Statement"][0], "Sid": "Planted"}] * 2}
    ),
    "variables that Lambda reserves": put("AWS::Lambda::Function", Environment={"Variables": {"AWS_REGION": "eu-west-1"}}),
    "parameters that a template does not allow": to(parameters={"PaymentsConcurrency": "many"}),
    "assertions that do not hold": to(parameters={"Network": "base"}),
    "regions outside the partition aws": to(region="us-gov-west-1"),
    "types of resources that the region lacks": to(region="cn-north-1"),
    "seconds of a function behind the gateway": slow_function,
    "seconds by which a queue's visibility is short": slow_function,
    "seconds that an alarm looks back": lambda stack: first(stack, "AWS::CloudWatch::Alarm").update(EvaluationPeriods=10_000),
    "tumbling windows with a factor": with_mapping("TumblingWindowInSeconds", ParallelizationFactor=2),
    "batches above 10 without a window": with_mapping("ScalingConfig", BatchSize=11),
    "queues' concurrency outside 2 to 1,000": with_mapping("ScalingConfig", ScalingConfig={"MaximumConcurrency": 1}),
    "environments missing from a share": unequal_share,
    "concurrent executions of the account": large_shares,
    "loops that Lambda stops": looping,
}


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # SAM leaves parameters as references, so one translation is valid for all cases.
        cls.files = templates()

    def stack(self, **parameters):
        return Stack(self.files, "purser", "us-east-1", **parameters)

    def test_every_limit_is_kept_under_names_of_every_length(self):
        for at, case in enumerate(CASES):
            for name in NAMES:
                for region in REGIONS:
                    with self.subTest(name=name, region=region, case=at):
                        stack = Stack(self.files, name, region, **case)
                        found = [(limit.name, where, figure) for limit, where, figure in problems(stack)]
                        self.assertEqual(found, [])

    def test_every_policy_has_room_for_a_fifth_more(self):
        for at, case in enumerate(CASES):
            stack = Stack(self.files, NAMES[-1], REGIONS[-1], **case)
            for limit in LIMITS:
                if re.search("policy$|own policies$", limit.name):
                    crowded = [(where, figure) for where, figure in limit.measure(stack) if figure > limit.at_most * 0.8]
                    self.assertEqual(crowded, [], f"{limit.name}, of {limit.at_most:,}, case {at}")

    def test_every_limit_is_seen_to_be_broken(self):
        self.assertEqual(sorted(PLANTED), sorted(limit.name for limit in LIMITS))
        base = self.stack()
        for limit in LIMITS:
            with self.subTest(limit.name):
                stack = copy.copy(base)
                stack.files, stack.template, stack.resources = map(copy.deepcopy, (base.files, base.template, base.resources))
                PLANTED[limit.name](stack)
                self.assertTrue(any(figure > limit.at_most for _, figure in limit.measure(stack)))

    def test_values_at_their_bounds_are_allowed_and_beyond_them_rejected(self):
        declared = self.files[TEMPLATE.name]["Parameters"]
        for name, one in declared.items():
            for bound, step in (("MinValue", -1), ("MaxValue", 1)):
                if bound in one:
                    self.assertTrue(limits.is_allowed(one, str(one[bound])), name)
                    self.assertFalse(limits.is_allowed(one, str(one[bound] + step)), name)
            if one["Type"] == "Number":
                for wrong in ("", " 1", "1.5", "1e3", "\u0661"):
                    self.assertFalse(limits.is_allowed(one, wrong), f"{name}={wrong}")
        operators = declared["BrowserOperators"]
        self.assertTrue(limits.is_allowed(operators, long_operators(26)["BrowserOperators"]))
        self.assertFalse(limits.is_allowed(operators, long_operators(27)["BrowserOperators"]), "2,078 of 2,048 characters")
        # A pattern must match the whole value, or each value of a list. This also holds for values that are passed to a
        # nested stack.
        self.assertFalse(limits.is_allowed({"Type": "String", "AllowedPattern": "[a-z]+"}, "abc1"))
        self.assertFalse(limits.is_allowed({"Type": "CommaDelimitedList", "AllowedPattern": "[a-z]+"}, "abc,1"))
        stack = self.stack()
        stack.files = copy.deepcopy(stack.files)
        stack.files["infra/monitoring.generated.yaml"]["Parameters"]["Stack"]["MaxLength"] = "5"
        self.assertIn(("Monitoring.Stack", 1), list(limits.wrong_parameters(stack)))

    def test_regions_that_nobody_has_are_rejected(self):
        for region, wrong in (("us-gov-east-1", 1), ("cn-northwest-1", 1), ("eusc-de-east-1", 1), ("mars-1", 1), ("ap-southeast-7", 0)):
            [(_, figure)] = limits.foreign_partitions(Stack(self.files, "purser", region))
            self.assertEqual(figure, wrong, region)

    def test_every_condition_is_tried_both_ways(self):
        stacks = [self.stack(**case) for case in CASES]
        for condition in stacks[0].template["Conditions"]:
            self.assertEqual({stack.holds(condition) for stack in stacks}, {True, False}, condition)

    def test_the_default_fits_a_new_account_and_all_a_usual_one(self):
        self.assertEqual(limits.needs(self.stack())["lambda_concurrent_executions"], 10)
        self.assertLessEqual(limits.needs(self.stack(**EVERYTHING))["lambda_concurrent_executions"], 1_000)

    def test_the_guide_says_how_many_operators_fit(self):
        operators = self.files[TEMPLATE.name]["Parameters"]["BrowserOperators"]
        fit = max(amount for amount in range(40) if limits.is_allowed(operators, long_operators(amount)["BrowserOperators"]))
        self.assertIn(f"{fit} fit with names of eleven letters", RUNBOOK.read_text())


if __name__ == "__main__":
    unittest.main()
