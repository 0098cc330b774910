"""Tests account.py with responses of AWS that the emulator does not give."""

import json
import unittest
from types import SimpleNamespace

import boto3
from botocore.stub import Stubber

import account

DEPLOYED = {"StackStatus": "UPDATE_COMPLETE"}


class Session:
    """Clients that return these responses, in order for each operation, and reject every other request."""

    region_name = "eu-west-1"

    def __init__(self, **responses):
        self.clients = {}
        for service, operations in responses.items():
            name = service.replace("_", "-")
            client = boto3.client(name, region_name=self.region_name, aws_access_key_id="local", aws_secret_access_key="local")
            stubber = Stubber(client)
            for operation, response in operations:
                stubber.add_response(operation, response)
            stubber.activate()
            self.clients[name] = client

    def client(self, service, config):
        return self.clients[service]


def reported(question, stack=None, needs=None, responses=None, **parameters):
    values = {"Custody": "seed", "ReserveConcurrency": "all", "StatementsKeyArn": ""} | parameters
    environment = SimpleNamespace(parameters=values, stack="purser-dev")
    plan = account.Plan(environment, Session(**(responses or {})), needs or {}, stack)
    return list(question(plan))


class Account(unittest.TestCase):
    def check(self, found, kind, words):
        self.assertEqual([type(each) for each in found], [kind], found)
        self.assertIn(words, found[0])

    @staticmethod
    def resources(kind, amount, status="CREATE_COMPLETE"):
        names = [f"{kind}-{at}" for at in range(amount)]
        rows = [
            {"LogicalResourceId": "Name", "PhysicalResourceId": name, "ResourceType": kind, "ResourceStatus": status, "LastUpdatedTimestamp": 0}
            for name in names
        ]
        return [("list_stack_resources", {"StackResourceSummaries": rows})]

    def concurrency(self, free, own):
        """Returns the report for 1,000 executions and shares of 421, if the stack's functions reserve `own`."""
        limit = {"ConcurrentExecutions": 1_000, "UnreservedConcurrentExecutions": free}
        shares = [("get_function_concurrency", {"ReservedConcurrentExecutions": share} if share else {}) for share in own or ()]
        responses = {
            "lambda": [("get_account_settings", {"AccountLimit": limit}), *shares],
            "cloudformation": self.resources("AWS::Lambda::Function", len(own or ())),
        }
        stack = None if own is None else DEPLOYED
        return reported(account.concurrency, stack=stack, needs={"lambda_reserved": 421}, responses=responses)

    def test_shares_must_fit_beside_what_others_reserve_also_in_an_update(self):
        for free, own in [(400, None), (400, (0, 0)), (215, (150, 35)), (520, None)]:
            with self.subTest(free=free, own=own):
                self.check(self.concurrency(free, own), account.Stop, f"leave {free + sum(own or ())} of")
        for free, own in [(521, None), (179, (391, 30)), (521, (0, 0))]:
            with self.subTest(free=free, own=own):
                self.assertEqual(self.concurrency(free, own), [])

    def roles(self, free, stack=None, own=()):
        responses = {"iam": [("get_account_summary", {"SummaryMap": {"RolesQuota": 1_000, "Roles": 1_000 - free}})], "cloudformation": own}
        return reported(account.roles, stack=stack, needs={"iam_roles": 20}, responses=responses)

    def test_roles_must_fit_beside_those_of_others_also_in_an_update(self):
        self.check(self.roles(19), account.Stop, "room for 19")
        self.assertEqual(self.roles(20), [])
        self.assertEqual(self.roles(2, DEPLOYED, self.resources("AWS::IAM::Role", 18)), [])
        self.check(self.roles(2, DEPLOYED, self.resources("AWS::IAM::Role", 17)), account.Stop, "room for 19")
        gone = self.resources("AWS::IAM::Role", 18, "DELETE_COMPLETE")
        self.check(self.roles(2, DEPLOYED, gone), account.Stop, "room for 2")

    def access_log(self, *policies):
        listed = [{"policyName": name, "policyDocument": document} for name, document in policies]
        return reported(account.access_log, responses={"logs": [("describe_resource_policies", {"resourcePolicies": listed})]})

    def test_the_access_log_needs_room_in_the_accounts_resource_policies(self):
        others = [(f"other-{at}", "{}") for at in range(10)]
        self.check(self.access_log(*others), account.Stop, "has 10 resource policies")
        self.assertEqual(self.access_log(*others[:9]), [])
        self.assertEqual(self.access_log(*others[:9], (account.LOG_DELIVERY, "{}")), [])
        self.check(self.access_log((account.LOG_DELIVERY, "x" * 4_921)), account.Note, "has 4921 of 5120 characters")
        covered = json.dumps({"Resource": "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/vendedlogs/*"}) + "x" * 5_000
        self.assertEqual(self.access_log((account.LOG_DELIVERY, covered)), [])

    def signatures(self, **parameters):
        quotas = [
            {"QuotaName": "Cryptographic operations (RSA) request rate", "QuotaCode": "L-RSA", "Value": 500.0},
            {"QuotaName": "Cryptographic operations (ECC) request rate", "QuotaCode": "L-ECC", "Value": 1_000.0},
        ]
        return reported(account.signatures, responses={"service_quotas": [("list_service_quotas", {"Quotas": quotas})]}, **parameters)

    def test_signatures_in_kms_bound_the_payments_a_second(self):
        key = "arn:aws:kms:eu-west-1:123456789012:key/1"
        self.check(self.signatures(StatementsKeyArn=key), account.Note, "takes 2: 500 payments a second (L-ECC)")
        self.check(self.signatures(Custody="kms"), account.Note, "takes 1: 1000 payments a second")
        self.check(self.signatures(StatementsKeyArn=key, Custody="kms"), account.Note, "takes 3: 333 payments a second")
        self.assertEqual(self.signatures(), [])


if __name__ == "__main__":
    unittest.main()
