"""Compares the AWS calls that the functions made during all tests with the permissions of their roles, in both
directions.

    infra/sam/calls.py <file>

The tests write the file if PURSER_RECORD names it (infra/local/src/iam_recorder.rs). A call that no permission allows
would fail in the cloud. A permission that no call used is either unnecessary, or a test is missing. The same is true of
a permission that allows a write anywhere but was only used in transactions. Permissions for logs and keys are tested in
template_test.py, because functions do not call these services directly.

Exit status: 0, calls and roles agree; 1, they do not; 2, there is nothing to compare.
"""

import json
import sys
from pathlib import Path

import roles
from translate import translated

WRITES = {"dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}

# The calls that Lambda makes in a function's name for stream and queue mappings.
OF_MAPPINGS = {
    "dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams",
    "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage",
}
# Keys that only tests of the store read: a backfill of a window that counted payments before reads these payments.
BY_STORE_TESTS = {("PaymentsFunction", "dynamodb:BatchGetItem", "B#*")}
# Where Lambda puts the records that a stream's mapping gave up.
BY_MAPPINGS = {("sqs:SendMessage", "EventsUntold")}

# Parameters that give a role additional permissions: to send mail, and to request operators' actions from the browser.
GIVEN = {"NoticesSender": "purser@example.test", "BrowserOperators": "ada=" + "a" * 64}

# The tables whose rows are only added and never changed.
ONLY_ADDED = ("AuditTable", "DecisionsTable")


def main():
    path = Path(sys.argv[1])
    if not path.is_file():
        print(f"calls: `{path}` is not there: run the tests with PURSER_RECORD={path}", file=sys.stderr)
        return 2
    calls = [json.loads(line) for line in sorted(set(path.read_text().splitlines()))]
    template = translated()
    problems = []
    for function in roles.functions(template):
        # The tests run with both custodies.
        permissions = [
            permission for custody in ("seed", "kms")
            for permission in roles.permissions(roles.role_of(template, function, Custody=custody, **GIVEN)[1])
        ]
        problems += compare(function, sorted(set(permissions)), [call for call in calls if call["function"] == function])
    strangers = {call["function"] for call in calls} - set(roles.functions(template))
    problems += [f"`{name}` called AWS and is no function of the template" for name in sorted(strangers)]
    for problem in problems:
        print(f"calls: {problem}", file=sys.stderr)
    if not problems:
        print(f"calls: {len(calls)} kinds of calls, and every permission was used")
    return 1 if problems else 0


def compare(function, permissions, calls):
    """Returns the differences between a role and the function's calls."""
    problems = []
    if not calls:
        problems.append(f"{function}: {'called' if calls else 'never called'} AWS")
    for call in calls:
        if not any(permission.allows(call) for permission in permissions):
            problems.append(f"{function} may not, and did: {told(call)}")
        if call["resource"] in ONLY_ADDED and call["action"] == "dynamodb:PutItem" and not call["only_if_new"]:
            problems.append(f"{function} could overwrite a row: {told(call)}")
    for permission in permissions:
        # The local stack keeps the statement log in a folder, so these calls are not recorded.
        if permission.action.split(":")[0] in ("logs", "kms", "s3") or permission.action in OF_MAPPINGS:
            continue
        if (permission.action, permission.resource) in BY_MAPPINGS:
            continue
        used = [call for call in calls if permission.allows(call)]
        if not used:
            problems.append(f"{function} may, and never did: {permission}")
            continue
        unused = [
            pattern for pattern in permission.keys
            if (function, permission.action, pattern) not in BY_STORE_TESTS
            and not any(roles.Permission(permission.action, permission.resource, (pattern,)).allows(
                {**call, "keys": [key]}) for call in used for key in call["keys"])
        ]
        if unused:
            problems.append(f"{function} may, and never did with {' '.join(unused)}: {permission}")
        transacted = all(call.get("within") for call in used)
        if permission.action in WRITES and transacted and not permission.within:
            problems.append(f"{function} did this in transactions alone, and may elsewhere: {permission}")
    return problems


def told(call):
    within = f" in {call['within']}" if call.get("within") else ""
    return " ".join([call["action"], call["resource"], *call.get("keys", [])]) + within


if __name__ == "__main__":
    sys.exit(main())
