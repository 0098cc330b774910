"""The functions' roles in the translated template, one permission at a time.

A permission is one action on one resource, named by its logical id, perhaps only for some keys or within a transaction.
What is not of that form is refused here: a role that says more than this file understands is one that nobody checks.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from translate import evaluated

KEYS = ("ForAllValues:StringLike", "dynamodb:LeadingKeys")
ATTRIBUTES = ("ForAllValues:StringLike", "dynamodb:Attributes")
# `ForAllValues` is true of a key that is missing, so each has to be there (IAM guide, "Multivalued context keys").
THERE = {KEYS: ("Null", "dynamodb:LeadingKeys"), ATTRIBUTES: ("Null", "dynamodb:Attributes")}
# A read of some attributes names them: without a projection it returns all (IAM user guide, "Allows access to specific
# columns"). DynamoDB sends the key for reads alone.
SELECT = ("StringEqualsIfExists", "dynamodb:Select")
READS = {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"}
WITHIN = ("ForAnyValue:StringEquals", "dynamodb:EnclosingOperation")
# Actions without a resource: this one opens no secret without `GetSecretValue` of that very one.
OF_NOTHING = {"dynamodb:ListStreams", "kms:CreateKey", "secretsmanager:BatchGetSecretValue"}
VIA = ("StringEquals", "kms:ViaService")
# The use of the key of people's secrets (`SecretOf`, shared/domain/src/webhook/ciphertext.rs).
USE = ("StringEquals", "kms:EncryptionContext:use")
# Mail has one sender.
FROM = ("StringEquals", "ses:FromAddress")
# The keys of wallets have no names: roles know them by the tag with their stack's name.
WALLET_KEYS = {"Fn::Sub": "arn:${AWS::Partition}:kms:${AWS::Region}:${AWS::AccountId}:key/*"}
OF_STACK = {("StringEquals", "aws:ResourceTag/purser-stack"), ("StringEquals", "aws:RequestTag/purser-stack")}
OF_WALLET_KEYS = OF_STACK | {
    ("StringEquals", "kms:KeySpec"), ("StringEquals", "kms:KeyUsage"), ("StringEquals", "kms:MessageType"),
    ("StringEquals", "kms:SigningAlgorithm"), ("Null", "aws:RequestTag/purser-agent"),
    ("Null", "aws:ResourceTag/purser-agent"), ("Null", "aws:ResourceTag/purser-stack"),
}


@dataclass(frozen=True, order=True)
class Permission:
    action: str
    resource: str
    keys: tuple = ()  # patterns of partition keys; none for any
    within: tuple = ()  # the only operations around it; none for any
    via: tuple = ()  # the only services through which it is used
    attributes: tuple = ()  # the only attributes that are touched; none for any

    def allows(self, call):
        """Whether a recorded call (infra/local/src/iam_recorder.rs) is allowed by this permission."""
        if (call["action"], call["resource"]) != (self.action, self.resource):
            return False
        keys = call.get("keys", [])
        if self.keys and not all(any(fnmatchcase(key, pattern) for pattern in self.keys) for key in keys):
            return False
        if self.attributes and not set(call.get("attributes", ["?"])) <= set(self.attributes):
            return False
        return not self.within or call.get("within") in self.within

    def __str__(self):
        conditions = [" ".join(self.keys), "in " + " ".join(self.within) if self.within else "",
                      "via " + " ".join(self.via) if self.via else "",
                      "of " + " ".join(self.attributes) if self.attributes else ""]
        return " ".join([self.action, self.resource, *filter(None, conditions)])


def functions(template):
    """Every function by its logical id, with its properties."""
    resources = template["Resources"].items()
    return {name: resource["Properties"] for name, resource in resources if resource["Type"] == "AWS::Lambda::Function"}


def role_of(template, function, **parameters):
    """The logical id of a function's role, and the role's properties where these are given beside the defaults. What the
    template's own managed policies allow is among its policies."""
    name = logical_id(functions(template)[function]["Role"])
    role = template["Resources"][name]
    assert role["Type"] == "AWS::IAM::Role", name
    properties = dict(evaluated(template, role["Properties"], **parameters))
    managed = [template["Resources"][arn["Ref"]] for arn in properties.pop("ManagedPolicyArns", [])]
    assert all(policy["Type"] == "AWS::IAM::ManagedPolicy" for policy in managed), name
    more = [evaluated(template, policy["Properties"], **parameters) for policy in managed]
    return name, {**properties, "Policies": [*properties["Policies"], *more]}


def permissions(role):
    """All that a role allows, in the order in which it stands there."""
    assert "ManagedPolicyArns" not in role, "a managed policy of AWS's says what AWS wants it to say"
    found = []
    for policy in role["Policies"]:
        assert policy["PolicyDocument"]["Version"] == "2012-10-17"
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow", statement
            assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}, statement
            conditions = {
                (operator, key): tuple(text_of(value) for value in many(values))
                for operator, keys in statement.get("Condition", {}).items()
                for key, values in keys.items()
            }
            for listed, there in THERE.items():
                assert (listed in conditions) == (conditions.pop(there, None) == ("false",)), statement
            reads_some = ATTRIBUTES in conditions and READS & set(many(statement["Action"]))
            assert conditions.pop(SELECT, None) == (("SPECIFIC_ATTRIBUTES",) if reads_some else None), statement
            if statement["Resource"] == WALLET_KEYS or statement["Action"] == "kms:CreateKey":
                assert OF_STACK & set(conditions) and set(conditions) <= OF_WALLET_KEYS, conditions
            elif statement["Action"] == "ses:SendEmail":
                assert set(conditions) == {FROM}, statement
            elif statement["Resource"] == {"Fn::GetAtt": ["WebhookSecretsKey", "Arn"]}:
                assert set(conditions) == {USE}, statement
            else:
                assert set(conditions) <= {KEYS, ATTRIBUTES, WITHIN, VIA}, conditions
            found += [
                Permission(action, resource_of(action, resource), conditions.get(KEYS, ()), conditions.get(WITHIN, ()),
                           conditions.get(VIA, ()), conditions.get(ATTRIBUTES, ()))
                for action in many(statement["Action"])
                for resource in many(statement["Resource"])
            ]
    return found


def many(value):
    return value if isinstance(value, list) else [value]


def resource_of(action, value):
    if value == WALLET_KEYS:
        return "WalletKeys"
    if action == "ses:SendEmail":
        return "NoticesSender"
    return value if action in OF_NOTHING and value == "*" else logical_id(value)


def logical_id(value):
    """What a reference refers to: `Table` of its ARN, a function of its alias, `Table/index/name` of an index's, `Table/stream` of its stream's,
    `Bucket/prefix*` of objects."""
    match value:
        case {"Ref": name} | {"Fn::GetAtt": [name, "Arn"]}:
            return name
        case {"Fn::Sub": text} if text.endswith(".Arn}:live"):
            return text[2:].removesuffix(".Arn}:live")
        case {"Fn::GetAtt": [name, "StreamArn"]}:
            return f"{name}/stream"
        case {"Fn::Sub": text} if found := re.fullmatch(r"\$\{(\w+)\.Arn\}(/.+)", text):
            # An index of a table, or objects of a bucket.
            return found[1] + found[2]
    raise AssertionError(f"`{value}` is not a reference to one resource of this template")


def text_of(value):
    """A text; of a service's address in a region, the service's name; of what AWS knows, its name there."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return value["Ref"]
    return value["Fn::Sub"].removesuffix(".${AWS::Region}.${AWS::URLSuffix}")
