#!/usr/bin/env python3
"""Tests the permissions of the roles in infra/deployer.yaml with an IAM simulator. infra/sam/check.sh runs this test.

infra/sam/release_test.py compares the calls of a deployment with the same policies.
"""

import json
import re
import subprocess
import unittest
from fnmatch import fnmatchcase
from functools import cache

import deployer
from limits import LONGEST, Stack
from samcli.yamlhelper import yaml_parse
from translate import TEMPLATE, evaluated, templates, translated

ACCOUNT, REGION, STACK, ZONE = "111122223333", "us-east-1", "purser-dev", "Z1234"
NAMES = {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "StackName": STACK, "HostedZoneId": ZONE, "AWS::StackName": STACK}
# A key's policy leaves access to the key to the account's policies.
KEY_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "kms:*", "Resource": "*"}],
}
# The simulator cannot distinguish the kinds of resources of these actions.
AMBIGUOUS = {"appconfig:DeleteHostedConfigurationVersion", "appconfig:GetHostedConfigurationVersion", "lambda:GetProvisionedConcurrencyConfig"}
CLOUDFORMATION = {"aws:CalledVia": ["cloudformation.amazonaws.com"], "iam:PassedToService": "lambda.amazonaws.com"}


def role(name):
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"


def arn(service, rest, region=REGION, account=ACCOUNT):
    return f"arn:aws:{service}:{region}:{account}:{rest}"


# The ARNs of resources by type, as AWS names resources that the template does not name.
ARNS = {
    "AWS::AppConfig::ConfigurationProfile": lambda name: arn("appconfig", "application/a1/configurationprofile/b2"),
    "AWS::AppConfig::HostedConfigurationVersion": lambda name: arn("appconfig", "application/a1/configurationprofile/b2/hostedconfigurationversion/1"),
    "AWS::AppConfig": lambda name: arn("appconfig", "application/a1"),
    "AWS::CloudFormation::Stack": lambda name: arn("cloudformation", f"stack/{STACK}-{name}-1A2B/uuid"),
    "AWS::CloudWatch::Alarm": lambda name: arn("cloudwatch", f"alarm:{STACK}-payments-failing"),
    "AWS::CloudWatch::Dashboard": lambda name: arn("cloudwatch", f"dashboard/{STACK}-{REGION}", region=""),
    "AWS::CodeDeploy::Application": lambda name: arn("codedeploy", f"application:{STACK}-{name}-1A2B"),
    "AWS::CodeDeploy::DeploymentGroup": lambda name: arn("codedeploy", f"deploymentgroup:{STACK}-App-1A2B/{STACK}-{name}-3C4D"),
    "AWS::Cognito": lambda name: arn("cognito-idp", "userpool/us-east-1_a1b2"),
    "AWS::DynamoDB::Table": lambda name: arn("dynamodb", f"table/{STACK}-{name}-1A2B"),
    "AWS::Events::EventBus": lambda name: arn("events", f"event-bus/{STACK}"),
    "AWS::Events::Rule": lambda name: arn("events", f"rule/{STACK}/{STACK}-{name}-1A2B"),
    "AWS::IAM::ManagedPolicy": lambda name: arn("iam", f"policy/{STACK}-{name}-1A2B", region=""),
    "AWS::IAM::Role": lambda name: role(f"{STACK}-{name}-1A2B"),
    "AWS::KMS::Key": lambda name: arn("kms", "key/1234"),
    "AWS::Lambda::Alias": lambda name: arn("lambda", f"function:{STACK}-PaymentsFunction-1A2B:live"),
    "AWS::Lambda::Version": lambda name: arn("lambda", f"function:{STACK}-PaymentsFunction-1A2B:7"),
    "AWS::Lambda::EventSourceMapping": lambda name: arn("lambda", "event-source-mapping:1234"),
    "AWS::Lambda": lambda name: arn("lambda", f"function:{STACK}-{name}-1A2B"),
    "AWS::Logs": lambda name: arn("logs", f"log-group:{STACK}-{name}-1A2B"),
    "AWS::Route53::RecordSet": lambda name: arn("route53", f"hostedzone/{ZONE}", region="", account=""),
    "AWS::S3": lambda name: arn("s3", f"{STACK}-{name.lower().removesuffix('policy')}-1a2b", region="", account=""),
    "AWS::Scheduler::Schedule": lambda name: arn("scheduler", f"schedule/default/{STACK}-{name}-1A2B"),
    "AWS::SNS": lambda name: arn("sns", f"{STACK}-Monitoring-1A2B-AlarmTopic-3C4D"),
    "AWS::SQS": lambda name: arn("sqs", f"{STACK}-{name}-1A2B"),
    "AWS::SecretsManager": lambda name: arn("secretsmanager", f"secret:{re.sub('Policy$', 'Secret', name)}-1A2B-cdef"),
}
# The calls of a resource's handler on other resources.
OTHERS = {
    "iam:CreateServiceLinkedRole": role("aws-service-role/ops.apigateway.amazonaws.com/AWSServiceRoleForAPIGateway"),
    "iam:": role(f"{STACK}-PaymentsRole-1A2B"),
    "kms:": arn("kms", "key/1234"),
    "logs:": arn("logs", f"log-group:{STACK}-PaymentsLogs-1A2B"),
    "route53:GetChange": arn("route53", "change/C1", region="", account=""),
    "lambda:GetCodeSigningConfig": arn("lambda", "code-signing-config:csc-1"),
    # The simulator does not know the paths of HTTP APIs.
    "apigateway:POST": arn("apigateway", "/domainnames", account=""),
    "apigateway:PUT": arn("apigateway", "/tags/arn", account=""),
    "apigateway:": arn("apigateway", "/domainnames/pay.example.com", account=""),
    "iam:AttachRolePolicy": role(f"{STACK}-PaymentsRole-1A2B"),
    "iam:DetachRolePolicy": role(f"{STACK}-PaymentsRole-1A2B"),
    "s3:ListBucket": arn("s3", f"{STACK}-logbucket-1a2b", region="", account=""),
    "s3:GetObject": arn("s3", "aws-sam-cli-managed-default-samclisourcebucket-1a2b/key", region="", account=""),
    "codedeploy:GetDeploymentConfig": arn("codedeploy", "deploymentconfig:Canary"),
    "codedeploy:GetApplicationRevision": arn("codedeploy", f"application:{STACK}-App-1A2B"),
    "codedeploy:RegisterApplicationRevision": arn("codedeploy", f"application:{STACK}-App-1A2B"),
    "codedeploy:": arn("codedeploy", f"deploymentgroup:{STACK}-App-1A2B/{STACK}-PaymentsGroup-3C4D"),
}


@cache
def policies():
    """Returns the statements of each policy, by the role that has it."""
    text = deployer.GENERATED.read_text()
    found = {"Deployer": [], "Planner": []}
    for name, resource in yaml_parse(text)["Resources"].items():
        if resource["Type"] == "AWS::IAM::ManagedPolicy":
            document = json.dumps(substituted(resource["Properties"]["PolicyDocument"]))
            for each in resource["Properties"]["Roles"]:
                found[each["Ref"]].append({"name": name, "policy": json.loads(document)})
    return found


def substituted(value):
    match value:
        case {"Fn::Sub": text}:
            return re.sub(r"\$\{([^}]+)\}", lambda found: NAMES[found[1]], text)
        case {"Ref": name}:
            return NAMES[name]
        case dict():
            return {key: substituted(each) for key, each in value.items()}
        case list():
            return [substituted(each) for each in value]
    return value


def allowed(who, requests):
    """Returns whether a role may make each request: an action, a resource, and the other fields of the request."""
    principal = role(f"{who.lower()}-{STACK}")
    asked = [
        {"principal": principal, "action": action, "resource": resource, "account": ACCOUNT, "context": context or {}, **more}
        | ({"resourcePolicy": KEY_POLICY} if action.startswith("kms:") else {})
        for action, resource, context, more in requests
    ]
    done = subprocess.run(
        ["node", TEMPLATE.parent / "infra/sam/iam/simulate.mjs"], input=json.dumps({"policies": policies()[who], "requests": asked}),
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    return [decision if decision[0] == "{" else decision == "Allowed" for decision in json.loads(done.stdout)]


def place(action, kind, name):
    """Returns the resource on which CloudFormation calls an action for a resource of the stack."""
    service, _, verb = action.partition(":")
    known = deployer.KNOWN[service]["Actions"].get(verb.lower())
    if known is not None and not known.get("Resources"):
        return "*"
    own = next((make(name) for prefix, make in ARNS.items() if kind.startswith(prefix)), "")
    if own.split(":")[2:3] == [service] and action not in OTHERS:
        return own
    return next(other for prefix, other in OTHERS.items() if action.startswith(prefix))


class Roles(unittest.TestCase):
    def test_cloudformation_may_call_what_the_resources_need(self):
        requests, said = [], []
        for name, kind in deployer.resources().items():
            for action in deployer.handler_actions(kind) - deployer.UNLISTED - AMBIGUOUS:
                requests.append((action, place(action, kind, name), CLOUDFORMATION, {}))
                said.append(f"{action} for {name}")
        self.assertGreater(len(requests), 1_000)
        decided = allowed("Deployer", requests)
        self.assertEqual([(one, request[1], may) for one, request, may in zip(said, requests, decided, strict=True) if may is not True], [])

    def test_names_that_cloudformation_makes_match_under_the_longest_stack_name(self):
        stack = Stack(templates(), "x" * 32, REGION)
        for name in stack.resources:
            kind = stack.resources[name]["Type"]
            if kind in LONGEST:
                service = kind.split("::")[1].lower()
                patterns = [re.sub(r"\$\{StackName\}", stack.name, each).rsplit("/", 1)[-1].rsplit(":", 1)[-1] for each in deployer.NAMED[service]]
                given = stack.resources[name]["Properties"].get("Name") or stack.physical(name)
                self.assertTrue(any(fnmatchcase(given.lower(), each) for each in patterns), f"{given}: {patterns}")

    def test_what_is_not_the_stacks_is_out_of_reach(self):
        other = "other-stack"
        requests = [
            ("iam:PutRolePolicy", role(f"deployer-{STACK}"), CLOUDFORMATION),
            ("iam:UpdateAssumeRolePolicy", role(f"deployer-{STACK}"), CLOUDFORMATION),
            ("iam:CreatePolicyVersion", arn("iam", f"policy/deployer-{STACK}-1", region=""), CLOUDFORMATION),
            ("iam:PassRole", role("admin"), CLOUDFORMATION),
            ("iam:CreateUser", arn("iam", "user/me", region=""), CLOUDFORMATION),
            ("dynamodb:DeleteTable", arn("dynamodb", f"table/{other}-LedgerTable-1A2B"), CLOUDFORMATION),
            ("dynamodb:GetItem", arn("dynamodb", f"table/{STACK}-LedgerTable-1A2B"), None),
            ("dynamodb:PutItem", arn("dynamodb", f"table/{STACK}-LedgerTable-1A2B"), None),
            ("kms:PutKeyPolicy", arn("kms", "key/1234"), None),
            ("kms:Decrypt", arn("kms", "key/1234"), None),
            ("kms:ScheduleKeyDeletion", arn("kms", "key/1234"), {"aws:ResourceTag/aws:cloudformation:stack-name": other}),
            ("cognito-idp:DeleteUserPool", arn("cognito-idp", "userpool/us-east-1_a1b2"), None),
            ("cognito-idp:AdminCreateUser", arn("cognito-idp", "userpool/us-east-1_a1b2"), {"aws:ResourceTag/aws:cloudformation:stack-name": other}),
            ("apigateway:DELETE", arn("apigateway", "/domainnames/pay.example.com", account=""), None),
            ("lambda:InvokeFunction", arn("lambda", f"function:{STACK}-PaymentsFunction-1A2B"), None),
            ("lambda:DeleteFunction", arn("lambda", f"function:{other}-x"), CLOUDFORMATION),
            ("secretsmanager:PutSecretValue", arn("secretsmanager", "secret:other-cdef"), None),
            *((f"secretsmanager:{verb}", arn("secretsmanager", "secret:RpcUrlSecret-1A2B-cdef"), {"aws:ResourceTag/aws:cloudformation:stack-name": other})
              for verb in ("PutSecretValue", "GetSecretValue", "DeleteSecret", "PutResourcePolicy")),
            ("route53:ChangeResourceRecordSets", arn("route53", "hostedzone/Z9", region="", account=""), CLOUDFORMATION),
            ("cloudformation:UpdateStack", arn("cloudformation", f"stack/{STACK}-deployer/uuid"), None),
            ("cloudformation:ExecuteChangeSet", arn("cloudformation", f"stack/{other}/uuid"), None),
            ("s3:DeleteObjectVersion", arn("s3", f"{other}-logbucket-1a2b/key", region="", account=""), None),
        ]
        for (action, resource, _), may in zip(requests, allowed("Deployer", [(*each, {}) for each in requests]), strict=True):
            self.assertIs(may, False, f"{action} on {resource}")

    def test_the_commands_of_the_page_are_allowed(self):
        mine = {"aws:ResourceTag/aws:cloudformation:stack-name": STACK}
        requests = [
            ("cognito-idp:AdminCreateUser", arn("cognito-idp", "userpool/us-east-1_a1b2"), mine, {}),
            ("ses:CreateEmailIdentity", arn("ses", "identity/ada@example.com"), None, {}),
            ("cloudformation:DescribeStacks", arn("cloudformation", f"stack/{STACK}/uuid"), None, {}),
            ("secretsmanager:PutSecretValue", arn("secretsmanager", "secret:RpcUrlSecret-1A2B-cdef"), None, {}),
            ("lambda:GetAccountSettings", "*", None, {}),
        ]
        self.assertEqual(allowed("Deployer", requests), [True] * len(requests))

    def test_the_planner_makes_change_sets_and_executes_none(self):
        stack = arn("cloudformation", f"stack/{STACK}/uuid")
        verbs = ("CreateChangeSet", "DescribeChangeSet", "ExecuteChangeSet", "DeleteStack")
        requests = [(f"cloudformation:{verb}", stack, None, {}) for verb in verbs]
        self.assertEqual(allowed("Planner", requests), [True, True, False, False])
        self.assertEqual(allowed("Deployer", requests), [True] * 4)
        secret = arn("secretsmanager", "secret:WalletSeedSecret-1A2B-cdef")
        self.assertEqual(allowed("Planner", [("secretsmanager:PutSecretValue", secret, None, {}), ("iam:PassRole", role(f"{STACK}-X"), CLOUDFORMATION, {})]), [False, False])

    def test_the_deployer_writes_secrets_and_reads_none_that_is_a_functions_alone(self):
        template = translated(SecretsWriterArn=role(f"deployer-{STACK}"))
        secret = arn("secretsmanager", "secret:WalletSeedSecret-1A2B-cdef")
        given = evaluated(template, template["Resources"]["WalletSeedPolicy"]["Properties"]["ResourcePolicy"], SecretsWriterArn=role(f"deployer-{STACK}"))
        text = re.sub(r'\{"Fn::GetAtt": \["(\w+)", "Arn"\]\}', lambda found: json.dumps(role(f"{STACK}-{found[1]}-1A2B")), json.dumps(given))
        policy = substituted(json.loads(text))
        verbs = ["PutSecretValue", "PutResourcePolicy", "DeleteSecret", "UpdateSecret", "GetSecretValue"]
        requests = [(f"secretsmanager:{verb}", secret, CLOUDFORMATION, {"resourcePolicy": policy}) for verb in verbs]
        self.assertEqual(allowed("Deployer", requests), [True, True, True, True, False])
        key = arn("kms", "key/1234")
        for service, may in [("secretsmanager", True), ("dynamodb", False)]:
            via = {"kms:ViaService": f"{service}.{REGION}.amazonaws.com"}
            self.assertEqual(allowed("Deployer", [("kms:Decrypt", key, via, {}), ("kms:GenerateDataKey", key, via, {})]), [may, may], service)

    def test_policies_keep_iams_limits_with_room_for_the_longest_name(self):
        self.assertLessEqual(len(policies()["Deployer"]), 8, "a role has ten policies at most")
        for each in policies()["Deployer"]:
            text = json.dumps(each["policy"], separators=(",", ":")).replace(STACK, "x" * 32)
            self.assertLessEqual(len(text), 6_144 * 0.8, each["name"])


if __name__ == "__main__":
    unittest.main()
