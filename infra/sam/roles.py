"""The functions' roles in the translated template, one permission at a time.

A permission is one action on one resource, which is named by its logical id, possibly only for some keys or within a
transaction. Any other form is rejected, because a role with statements that this file does not understand would not be
checked.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from translate import evaluated

KEYS = ("ForAllValues:StringLike", "dynamodb:LeadingKeys")
ATTRIBUTES = ("ForAllValues:StringLike", "dynamodb:Attributes")
# `ForAllValues` is true if the key is missing, so the key must be present (IAM guide, "Multivalued context keys").
THERE = {KEYS: ("Null", "dynamodb:LeadingKeys"), ATTRIBUTES: ("Null", "dynamodb:Attributes")}
# A read of some attributes must name them, because without a projection it returns all attributes (IAM user guide,
# "Allows access to specific columns"). DynamoDB sends this key only for reads.
SELECT = ("StringEqualsIfExists", "dynamodb:Select")
READS = {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"}
WITHIN = ("ForAnyValue:StringEquals", "dynamodb:EnclosingOperation")
# Actions without a resource. `BatchGetSecretValue` opens no secret without `GetSecretValue` for the same secret.
OF_NOTHING = {"dynamodb:ListStreams", "kms:CreateKey", "secretsmanager:BatchGetSecretValue"}
VIA = ("StringEquals", "kms:ViaService")
# The use of the key for users' secrets (`SecretOf`, shared/domain/src/webhook/ciphertext.rs).
USE = ("StringEquals", "kms:EncryptionContext:use")
# All mail has the same sender.
FROM = ("StringEquals", "ses:FromAddress")
# Wallet keys have no names, so roles identify them by the tag with the stack's name.
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
        """Returns whether this permission allows a recorded call (infra/local/src/iam_recorder.rs)."""
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
    """Returns the functions by logical id, with their properties."""
    resources = template["Resources"].items()
    return {name: resource["Properties"] for name, resource in resources if resource["Type"] == "AWS::Lambda::Function"}


def role_of(template, function, **parameters):
    """Returns the logical id and the properties of a function's role, with these parameters and otherwise the defaults.
    The template's managed policies are included in the role's policies.
    """
    name = logical_id(functions(template)[function]["Role"])
    role = template["Resources"][name]
    assert role["Type"] == "AWS::IAM::Role", name
    properties = dict(evaluated(template, role["Properties"], **parameters))
    managed = [template["Resources"][arn["Ref"]] for arn in properties.pop("ManagedPolicyArns", [])]
    assert all(policy["Type"] == "AWS::IAM::ManagedPolicy" for policy in managed), name
    more = [evaluated(template, policy["Properties"], **parameters) for policy in managed]
    return name, {**properties, "Policies": [*properties["Policies"], *more]}


def permissions(role):
    """Returns all permissions of a role, in order."""
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
    """Returns what a reference refers to: `Table` for its ARN, a function for its alias, `Table/index/name` for an
    index, `Table/stream` for a stream, `Bucket/prefix*` for objects.
    """
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
    """Returns a text as it is; for a service's host name in a region, the service's name; for a pseudo parameter, its
    name.
    """
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return value["Ref"]
    return value["Fn::Sub"].removesuffix(".${AWS::Region}.${AWS::URLSuffix}")
