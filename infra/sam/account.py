#!/usr/bin/env python3
"""Checks, before anything is created in an account, whether an environment can be deployed.

    infra/sam/account.py [--plan] [<environment of samconfig.toml>]

`make deploy` runs this program first. The program prints what to request or to remove. Checks that the credentials do
not permit are reported and skipped. --plan: another role will execute the change set and write the secrets
(infra/deployer.yaml), so the caller's role is not compared. Exit status: 0, nothing known would fail; 1, something
would; 2, wrong use or no credentials.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from kept import kept, living
from translate import translated
from values import Environment, Wrong

LIMITS = Path(__file__).parent / "limits.py"
# The concurrent executions that Lambda reserves for functions without a share (API reference, PutFunctionConcurrency).
UNRESERVED = 100
# The resource policy to which AWS adds each log group that a service writes, and its limits (CloudWatch Logs user guide, "Logs sent
# to CloudWatch Logs", and API reference, PutResourcePolicy).
LOG_DELIVERY, LOG_POLICIES, LOG_POLICY_LENGTH = "AWSLogDeliveryWrite20150319", 10, 5_120
DENIED = re.compile("AccessDenied|NotAuthorized|UnauthorizedOperation|OptInRequired|SubscriptionRequired")

# States of a stack from which `sam deploy` cannot continue.
STUCK = {
    "ROLLBACK_COMPLETE": "its first deployment failed",
    "ROLLBACK_FAILED": "its first deployment failed, and so did the cleaning up",
    "CREATE_FAILED": "its first deployment failed",
    "DELETE_FAILED": "it could not be deleted; describe-stack-events says why, and infra/sam/kept.py list names rules on its bus",
}


@dataclass(frozen=True)
class Plan:
    """The planned deployment."""

    environment: Environment
    session: object
    needs: dict
    stack: dict | None

    @property
    def parameters(self):
        return self.environment.parameters

    def client(self, service):
        # A service that does not respond must not hold up a deployment.
        config = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 3})
        return self.session.client(service, config=config)


class Stop(str):
    """A reason why the deployment would fail."""


class Note(str):
    """A remark that does not stop the deployment."""


def writer(plan):
    """Checks whether the caller may write the secrets."""
    arn = plan.client("sts").get_caller_identity()["Arn"]
    own, named = role_of(plan, arn), plan.parameters["SecretsWriterArn"]
    if not named:
        if own and ":role/" in own:
            yield Note(f'SecretsWriterArn is empty: any administrator may write the secrets. This role is "{own}"')
    elif own is None:
        name = arn.split("/")[1]
        if named.rsplit("/", 1)[-1] != name:
            yield Stop(f"this role is `{name}`, and SecretsWriterArn names `{named}`, which alone may write the secrets")
        else:
            yield Note(f"whether the path of SecretsWriterArn is right can't be asked (iam:GetRole); it must be that of `{name}`")
    elif own != named:
        yield Stop(
            f"this is `{own}`, and SecretsWriterArn names `{named}`: that role alone may write the secrets and their "
            "policies, so updates and their rollbacks would fail. Deploy with that role, or name this one"
        )


def role_of(plan, arn):
    """Returns the caller's ARN as policies see it. For a session this is the role's ARN, with the path. Returns None if
    IAM does not tell.
    """
    session = re.fullmatch(r"arn:[^:]+:sts::\d+:assumed-role/([^/]+)/.+", arn)
    if not session:
        return arn
    try:
        return plan.client("iam").get_role(RoleName=session[1])["Role"]["Arn"]
    except ClientError:
        return None


def concurrency(plan):
    """Checks the quota of Lambda's concurrent executions."""
    limit = plan.client("lambda").get_account_settings()["AccountLimit"]
    total, free, share = limit["ConcurrentExecutions"], limit["UnreservedConcurrentExecutions"], plan.needs["lambda_reserved"]
    request = (
        "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "
        f"--desired-value {max(1000, share + UNRESERVED)}"
    )
    reserve = plan.parameters["ReserveConcurrency"]
    if share and total < share + UNRESERVED:
        yield Stop(
            f"ReserveConcurrency={reserve} takes {share + UNRESERVED} concurrent executions and the account has {total}. "
            f'Request more ({request}), or write ReserveConcurrency = "none" meanwhile'
        )
    elif share and (free := free + own_shares(plan)) < share + UNRESERVED:
        yield Stop(
            f"ReserveConcurrency={reserve} takes {share + UNRESERVED} executions and other functions leave {free} of the "
            f"account's {total}: they reserve the rest. Request more ({request})"
        )
    elif total < UNRESERVED:
        yield Note(f"the account has {total} concurrent executions for all functions together: enough for tests. {request}")


def own_shares(plan):
    """Returns the concurrency that the deployed stack's functions reserve, which an update can use again."""
    functions = plan.client("lambda")
    shares = [functions.get_function_concurrency(FunctionName=name) for name in own(plan, "AWS::Lambda::Function")]
    return sum(share.get("ReservedConcurrentExecutions", 0) for share in shares)


def own(plan, kind):
    """Returns the names of the deployed stack's resources of a type."""
    if not plan.stack:
        return []
    pages = plan.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=plan.environment.stack)
    resources = [each for page in pages for each in page["StackResourceSummaries"] if each["ResourceStatus"] != "DELETE_COMPLETE"]
    return [each["PhysicalResourceId"] for each in resources if each["ResourceType"] == kind and "PhysicalResourceId" in each]


def access_log(plan):
    """Checks the resource policies of CloudWatch Logs, one of which lets API Gateway write the access log."""
    pages = plan.client("logs").get_paginator("describe_resource_policies").paginate()
    policies = {each["policyName"]: each["policyDocument"] for page in pages for each in page["resourcePolicies"]}
    document = policies.get(LOG_DELIVERY)
    if document is None and len(policies) >= LOG_POLICIES:
        yield Stop(
            f"the account has {len(policies)} resource policies of CloudWatch Logs in this region, and AWS must add "
            f"`{LOG_DELIVERY}`: remove one (aws logs describe-resource-policies, aws logs delete-resource-policy)"
        )
    elif document and "log-group:/aws/vendedlogs/*" not in document and len(document) > LOG_POLICY_LENGTH - 200:
        yield Note(
            f"the resource policy `{LOG_DELIVERY}` has {len(document)} of {LOG_POLICY_LENGTH} characters. If the deployment fails with "
            '"Policy document length breaking Cloudwatch Logs Constraints", take log groups of deleted APIs out of it '
            "(aws logs put-resource-policy)"
        )


def mail(plan):
    """Checks the sender in SES, and whether SES is in the sandbox."""
    sender = plan.parameters["NoticesSender"]
    if not sender:
        return
    ses = plan.client("sesv2")
    names = [sender, *parents(sender.rsplit("@", 1)[-1])]
    if not any(is_verified(ses, name) for name in names):
        yield Note(f"SES knows no verified identity for `{sender}`: aws sesv2 create-email-identity --email-identity {sender}")
    account = ses.get_account()
    if not account.get("ProductionAccessEnabled"):
        yield Note("SES is in its sandbox: it mails to verified addresses alone (aws sesv2 put-account-details asks to leave it)")
    if not account.get("SendingEnabled", True):
        yield Note("SES has paused sending in this account")


def parents(domain):
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(len(labels) - 1)]


def is_verified(ses, name):
    try:
        return ses.get_email_identity(EmailIdentity=name).get("VerifiedForSendingStatus", False)
    except ses.exceptions.NotFoundException:
        return False


def keys(plan):
    """Checks whether KMS has room for a key for each agent."""
    if plan.parameters["Custody"] != "kms":
        return
    quota = plan.client("service-quotas").get_service_quota(ServiceCode="kms", QuotaCode="L-C2F1777E")["Quota"]["Value"]
    yield Note(f"KMS may hold {quota:.0f} keys in this region, one for each agent and three of the stack")


def signatures(plan):
    """Checks the number of signatures per second, if a KMS key signs."""
    a_payment = 2 * bool(plan.parameters["StatementsKeyArn"]) + (plan.parameters["Custody"] == "kms")
    if not a_payment:
        return
    pages = plan.client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="kms")
    for quota in (each for page in pages for each in page["Quotas"]):
        if quota["QuotaName"] == "Cryptographic operations (ECC) request rate":
            yield Note(
                f"KMS makes {quota['Value']:.0f} ECC signatures a second for the whole account in this region, and a payment takes "
                f"{a_payment}: {quota['Value'] // a_payment:.0f} payments a second ({quota['QuotaCode']})"
            )


def roles(plan):
    """Checks the quota of IAM roles."""
    summary = plan.client("iam").get_account_summary()["SummaryMap"]
    free, needed = summary["RolesQuota"] - summary["Roles"], plan.needs.get("iam_roles", 0)
    if free < needed and (free := free + len(own(plan, "AWS::IAM::Role"))) < needed:
        yield Stop(f"the stack has {needed} roles and the account has room for {free} (Service Quotas, IAM, L-FE177D64)")


def schedules(plan):
    """Checks the quota of EventBridge Scheduler."""
    quotas = plan.client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="scheduler")
    needed = plan.needs.get("scheduler_schedules", 0)
    for page in quotas:
        for quota in page["Quotas"]:
            if quota["QuotaName"].lower().startswith("number of schedules") and quota["Value"] < needed:
                yield Stop(f"the account may have {quota['Value']:.0f} schedules and the stack has {needed}")


def former_schedules(plan):
    """Finds schedules with fixed names that an older version of the template left."""
    names = re.compile(r"(Probe|Reconcile|Events|Webhooks)Function(EveryMinute|EveryHour|(Second|Third|Fourth)Part)")
    pages = plan.client("scheduler").get_paginator("list_schedules").paginate(GroupName="default")
    found = sorted(each["Name"] for page in pages for each in page["Schedules"] if names.fullmatch(each["Name"]))
    if found and not plan.stack:
        yield Note(
            f"schedules of an older version are here: {', '.join(found)}. Where their stack is gone: "
            "aws scheduler delete-schedule --name <name>"
        )


def certificate(plan):
    """Checks the domain's certificate in ACM."""
    arn = plan.parameters["CertificateArn"]
    if not plan.parameters["DomainName"]:
        return
    if arn.split(":")[3:4] != [plan.session.region_name]:
        yield Stop(f"CertificateArn must be of {plan.session.region_name}, where the API is")
        return
    status = plan.client("acm").describe_certificate(CertificateArn=arn)["Certificate"]["Status"]
    if status != "ISSUED":
        yield Stop(f"the certificate is {status} and must be ISSUED")


def former_try(plan):
    """Finds what an earlier deployment left: of this stack, and of the stack in which SAM keeps its bucket."""
    name = plan.environment.stack
    for stack, present in [(name, plan.stack), ("aws-sam-cli-managed-default", living(plan.session, "aws-sam-cli-managed-default"))]:
        status = (present or {}).get("StackStatus", "")
        if status in STUCK:
            yield Stop(
                f"the stack `{stack}` is {status}: {STUCK[status]}. aws cloudformation delete-stack --stack-name {stack} && "
                f"aws cloudformation wait stack-delete-complete --stack-name {stack}"
            )
        elif status == "UPDATE_ROLLBACK_FAILED":
            yield Stop(f"the stack `{stack}` is {status}: aws cloudformation continue-update-rollback --stack-name {stack}")
        elif status.endswith("IN_PROGRESS") and status != "REVIEW_IN_PROGRESS":
            yield Stop(f"the stack `{stack}` is {status}: wait until that has ended")


def left_over(plan):
    """Finds what deleted stacks with this name left."""
    resources = kept(plan.session, plan.environment.stack, translated(**plan.parameters))
    if resources:
        counts = {}
        for each in resources:
            counts[each.type] = counts.get(each.type, 0) + 1
        what = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        yield Note(f"former stacks of this name have left {what}. A new stack does not use them; infra/sam/kept.py lists, deletes or imports them")


QUESTIONS = [former_try, writer, concurrency, certificate, roles, schedules, former_schedules, keys, signatures, access_log, mail, left_over]


def main(arguments):
    questions = QUESTIONS
    if arguments[:1] == ["--plan"]:
        arguments, questions = arguments[1:], [question for question in QUESTIONS if question is not writer]
    try:
        environment = Environment(arguments[0] if arguments else "default")
        session = boto3.Session()
        if not session.region_name:
            raise Wrong("no region: set AWS_REGION, or one in the profile")
        limits = [sys.executable, LIMITS, "--stack-name", environment.stack, "--region", session.region_name]
        for key, value in environment.parameters.items():
            limits += ["--parameter", f"{key}={value}"]
        if (status := subprocess.run(limits, check=False, stdout=subprocess.DEVNULL).returncode) != 0:
            return status
        needs = json.loads(subprocess.run([*limits, "--needs"], check=True, stdout=subprocess.PIPE).stdout)
        plan = Plan(environment, session, needs, living(session, environment.stack))
    except (Wrong, BotoCoreError, ClientError) as wrong:
        print(f"account: {wrong}", file=sys.stderr)
        return 2
    return ask(plan, questions)


def ask(plan, questions=QUESTIONS):
    stops = 0
    for question in questions:
        about = question.__doc__.split(".")[0]
        try:
            for found in question(plan):
                stops += isinstance(found, Stop)
                print(f"account: {'STOP' if isinstance(found, Stop) else 'note'}: {found}", file=sys.stderr)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            why = "these credentials may not ask" if DENIED.search(code) else f"{code} at {error.operation_name}"
            print(f"account: skipped: {about} ({why})", file=sys.stderr)
        except BotoCoreError as error:
            print(f"account: skipped: {about} ({type(error).__name__})", file=sys.stderr)
    if not stops:
        print(f"account: nothing known keeps `{plan.environment.stack}` from being deployed to {plan.session.region_name}", file=sys.stderr)
    return 1 if stops else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
