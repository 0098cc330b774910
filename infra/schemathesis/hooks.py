"""Hooks for what schemathesis cannot read in the OpenAPI document: payments that can be made, and agents that may be
broken. Adds two checks.

infra/schemathesis/schemathesis.toml loads this file, and infra/schemathesis/run.sh sets the environment variables.
"""

import atexit
import json
import os
import re
from collections import Counter
from datetime import datetime, timedelta, timezone

import schemathesis
from hypothesis import strategies as st
from schemathesis.core.failures import Failure
from schemathesis.generation import GenerationMode
from world import CHANCE, World

WORLD = World()
REACHED = {}


@atexit.register
def tell_what_was_reached():
    """Prints how often each operation responded with each status. An operation that never succeeded was not tested."""
    with open(os.environ["REACHED"], "w") as file:
        json.dump(REACHED, file)


# A random URI rarely matches the pattern of a web address, so this format draws web addresses.
schemathesis.openapi.format(
    "uri",
    st.builds(
        "{}://{}/{}".format,
        st.sampled_from(["http", "https"]),
        st.from_regex(r"[a-z0-9]{1,20}(\.[a-z0-9]{1,10}){1,3}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9_./~-]{0,30}", fullmatch=True),
    ),
)

# In mixed case, the letters would have to be the EIP-55 checksum.
schemathesis.openapi.format("evm-address", st.from_regex(r"0x[0-9a-f]{39}[1-9a-f]", fullmatch=True))

schemathesis.openapi.format(
    "host-pattern", st.sampled_from(["*", "example.com", "*.example.com", "api-*.example.com", "127.0.0.1", "b\u00fccher.example"])
)

# These operations end or remove objects that the other calls need: the used key, the agent, its services, the catalog. They
# are called on objects that no other call uses.
BREAKS_AGENTS = {
    "edit_agent", "revoke_key", "rotate_key", "add_rule", "replace_rule", "remove_rule", "disable_service",
    "edit_agent_service", "enable_service", "freeze_agent", "unfreeze_agent", "name_payout_address",
    "remove_payout_address", "limit_unlimited_services", "restore_policy_version", "restore_rule_version", "promote_shadow",
}  # fmt: skip
BREAKS_SERVICES = {"upsert", "curated", "trust_status"}

OAUTH_ROUTES = {"/oauth/device_authorization", "/oauth/register", "/oauth/token"}


@schemathesis.hook
def map_case(context, case):
    """Protects the objects that the run needs, and lets every other well-formed call outside of the links name existing
    objects. With random ids, the code behind the lookup would not be reached.
    """
    operation = case.operation.definition.raw["operationId"]
    path, meta = case.path_parameters, case.meta
    if operation in BREAKS_AGENTS and path.get("agentId") == WORLD.agent:
        path["agentId"] = WORLD.spare_agent
    if operation in BREAKS_SERVICES:
        path["serviceId"] = WORLD.spare_service
    well_formed = meta is not None and meta.generation.mode == GenerationMode.POSITIVE
    if operation == "edit_agents" and isinstance(case.body, dict):
        agents = case.body.get("agents")
        # "All agents", or the agents with a label, would include the agent that pays.
        if well_formed and agents.get("kind") != "ids" or agents == {"kind": "all"}:
            case.body["agents"] = {"kind": "ids", "ids": [WORLD.spare_agent]}
    # No schema says that an archived agent stays frozen.
    if isinstance(case.body, dict) and case.body.get("act") == "archive":
        case.body["act"] = "restore"
    if operation == "edit_agent" and isinstance(case.body, dict) and case.body.get("archived") is True:
        case.body["archived"] = False
    # A run has no time to wait for approvals that nobody decides.
    if operation == "approval" and re.fullmatch(r"[0-9]|1[0-9]|20", str((case.query or {}).get("wait_seconds", ""))):
        case.query["wait_seconds"] = min(int(case.query["wait_seconds"]), 1)
    # No schema says that two days must be in order and not far apart.
    if operation == "read_usage" and well_formed and (case.query or {}).get("from"):
        case.query["from"] = case.query["to"] = "2026-11-21"
    # schemathesis would send versions that it saw in bodies, without quotation marks.
    if well_formed and case.headers and not re.fullmatch(r'\*|"\d+"', case.headers.get("If-Match", "*")):
        case.headers["If-Match"] = "*"
    # Until an operation has succeeded once, all of its cases get valid values.
    reached = any(status < 300 for status in REACHED.get(operation, {}))
    if well_formed and meta.phase.name.value != "stateful" and (not reached or CHANCE.random() < 0.5):
        known(operation, case)
    return case


def known(operation, case):
    path, body = case.path_parameters, case.body
    spare = operation in BREAKS_AGENTS
    ids = {
        "agentId": [WORLD.spare_agent if spare else WORLD.agent],
        "serviceId": WORLD.services,
        "version": [str(WORLD.rules_version) if operation == "restore_rule_version" else "1"],
        # This service's operations are replaced again and again.
        "operationId": ["86576a95-9c5c-45d2-a83c-39ed168ea1a2"],
        # A user without agents.
        "person": ["5e" * 32],
        "keyId": WORLD.spare_keys,
        "ruleId": WORLD.spare_rules,
        "approvalId": WORLD.approvals,
        "id": WORLD.approvals,
        "transactionId": WORLD.decisions,
        "sessionId": ["0" * 64],
        "webhookId": [WORLD.called_webhook] if operation == "redeliver_webhook_delivery" else WORLD.webhooks,
        "backtestId": WORLD.backtests,
        "templateName": ["research"],
        "deliveryId": [WORLD.delivery],
        "settlementId": [WORLD.confirmed] if operation == "complete" else [WORLD.confirmed, *WORLD.settlements],
    }
    for name in path or {}:
        path[name] = CHANCE.choice(ids[name])
    if operation in BREAKS_SERVICES or operation.endswith("_internal_service") or operation == "probe":
        path["serviceId"] = WORLD.spare_service
    if case.headers and "If-Match" in case.headers:
        case.headers["If-Match"] = "*"
    if not isinstance(body, dict):
        return
    if operation in ("authorize", "check", "check_unpaid"):
        if operation != "check_unpaid":
            # No schema describes a provider's payment requirement.
            body["payment_requirement"] = WORLD.weather
        body["original_request"] = {**body["original_request"], "method": "GET", "url": WORLD.provider + "/weather"}
        for name in ("service_id", "operation_id", "approval_id", "metadata"):
            body.pop(name, None)
    elif operation == "raise":
        until = datetime.now(timezone.utc) + timedelta(days=2)
        body["transaction_id"] = CHANCE.choice(WORLD.refused)
        # The caps for a denied payment are always the same.
        body.update(max_per_call_units=2_000_000, until=until.strftime("%Y-%m-%dT00:00:00Z"))
        body.pop("max_per_day_units", None)
    elif operation == "open_run":
        end = datetime.now(timezone.utc) + timedelta(hours=1)
        body["expires_at"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
        body.pop("services", None)
    elif operation == "approve":
        # Caps and an end are only for limit increases.
        for name in ("max_per_call_units", "max_per_day_units", "until"):
            body.pop(name, None)
    elif operation == "complete":
        body["tx_hash"] = WORLD.tx_hash
    elif operation == "replace_rule":
        # A rule keeps its kind, and the known rules are budgets.
        case.body = {**WORLD.BUDGET, "limit_units": CHANCE.randrange(1_000_000)}
    elif operation in ("create_webhook", "replace_webhook"):
        # The host name does not exist.
        body["url"] = "https://hooks.example.invalid/purser"
    elif operation == "replace_notices":
        # The host name does not exist.
        if isinstance(body.get("slack"), dict) and "url" in body["slack"]:
            body["slack"]["url"] = "https://hooks.example.invalid/x"
    elif operation == "edit_agent":
        body["name"] = "spare"
    elif operation == "edit_agent_service":
        body["max_per_call_units"] = CHANCE.randrange(1_000_000)
    elif operation == "enable_service":
        body["service_id"] = CHANCE.choice(WORLD.services)
    elif operation == "pay_out":
        # Each of these calls is the same withdrawal, so that only one is made.
        body |= {"amount_units": 1, "idempotency_key": "once"}
    elif operation == "oauth_device":
        # The command line's id needs no registration.
        case.body = {"client_id": "purser-cli"}
    elif operation == "oauth_register":
        body["redirect_uris"] = ["https://client.example.com/callback"]
    elif operation == "upsert":
        body |= {"slug": f"spare-{CHANCE.random()}".replace(".", "-"), "operations": []}
        case.headers = {**(case.headers or {}), "If-Match": "*"}
    # These names are in the catalog.
    for name, value in (("services", ["lab-search"]), ("enabled_operations", None), ("allowed_domains", ["*.example.com"])):
        if name in body:
            body[name] = value


def leaves(value):
    if isinstance(value, (dict, list)):
        for member in value.values() if isinstance(value, dict) else value:
            yield from leaves(member)
    else:
        yield value


@schemathesis.hook
def filter_body(context, body):
    """Leaves out bodies that the document cannot classify: it does not say that white space around a text is removed
    first.
    """
    return not any(isinstance(leaf, str) and leaf != leaf.strip() for leaf in leaves(body))


class Broken(Failure):
    """The error for one of this file's checks that failed."""

    __slots__ = ("operation", "title", "message", "case_id")

    def __init__(self, operation, title, message):
        self.operation, self.title, self.message, self.case_id = operation, title, message, None

    @property
    def _unique_key(self):
        return self.title


def demand(holds, case, title, message):
    if not holds:
        raise Broken(operation=case.operation.label, title=title, message=message)


@schemathesis.check
def envelope(ctx, response, case):
    """Checks that every error has the error envelope with the request's id, and that no response contains a secret."""
    REACHED.setdefault(case.operation.definition.raw["operationId"], Counter())[response.status_code] += 1
    named = response.headers.get("x-request-id", [""])[0]
    demand(re.fullmatch(r"[0-9a-f-]{36}", named), case, "Request without a name", f"X-Request-Id is {named!r}")
    if response.status_code >= 400:
        body = response.json()
        demand(re.fullmatch(r"[a-z0-9_]+", body.get("error", "")), case, "Refusal without a slug", response.text)
        # The routes of the authorization server have OAuth's errors (RFC 6749 §5.2).
        if "error_description" in body:
            demand(case.operation.path in OAUTH_ROUTES, case, "Refusal in the form of another protocol", response.text)
        else:
            demand(body.get("message"), case, "Refusal without words", response.text)
            demand(body.get("request_id") == named, case, "Refusal of another request", response.text)
    for secret in WORLD.secrets:
        demand(secret not in response.text, case, "A secret in an answer", "one of the run's own secrets is in it")


@schemathesis.check
def undeclared_method(ctx, response, case):
    """Checks that a method that a path does not have is an unknown route (docs/decisions.md §9)."""
    method = response.request.method
    declared = {name.upper() for name in case.operation.schema[case.operation.path]}
    # The OAuth routes also answer preflight requests of browsers (CORS).
    if method == "OPTIONS" and response.status_code == 204 and "access-control-allow-methods" in response.headers:
        return
    if method not in declared:
        slug = response.json()["error"] if response.content else None
        demand(response.status_code == 404 and slug == "not_found", case, "Undeclared method", f"{method}: {response.status_code}")
