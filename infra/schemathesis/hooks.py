"""What schemathesis can't read in the API's description: payments that can be made, agents that may be broken, and two
checks of our own.

Loaded by infra/schemathesis/schemathesis.toml; the environment variables are set by infra/schemathesis/run.sh.
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
    """How often each operation answered with which status: what was never answered with success was not tested."""
    with open(os.environ["REACHED"], "w") as file:
        json.dump(REACHED, file)


# `format: uri` with the pattern of a web address: random URIs are seldom one.
schemathesis.openapi.format(
    "uri",
    st.builds(
        "{}://{}/{}".format,
        st.sampled_from(["http", "https"]),
        st.from_regex(r"[a-z0-9]{1,20}(\.[a-z0-9]{1,10}){1,3}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9_./~-]{0,30}", fullmatch=True),
    ),
)

# Letters of both cases would have to be the checksum (EIP-55).
schemathesis.openapi.format("evm-address", st.from_regex(r"0x[0-9a-f]{39}[1-9a-f]", fullmatch=True))

schemathesis.openapi.format(
    "host-pattern", st.sampled_from(["*", "example.com", "*.example.com", "api-*.example.com", "127.0.0.1", "b\u00fccher.example"])
)

# These end what the other calls need: the key in use, the agent, its services, the catalog. They are made all the same,
# on what nobody else uses.
BREAKS_AGENTS = {
    "edit_agent", "revoke_key", "rotate_key", "add_rule", "replace_rule", "remove_rule", "disable_service",
    "edit_agent_service", "enable_service", "freeze_agent", "unfreeze_agent", "name_payout_address",
    "remove_payout_address", "limit_unlimited_services", "restore_policy_version", "restore_rule_version", "promote_shadow",
}  # fmt: skip
BREAKS_SERVICES = {"upsert", "curated", "trust_status"}


@schemathesis.hook
def map_case(context, case):
    """Spares what the run lives on, whatever is sent; and lets every other well-formed call, outside of the links, be
    about something that exists. Random ids would be unknown, and nothing behind that would be reached."""
    operation = case.operation.definition.raw["operationId"]
    path, meta = case.path_parameters, case.meta
    if operation in BREAKS_AGENTS and path.get("agentId") == WORLD.agent:
        path["agentId"] = WORLD.spare_agent
    if operation in BREAKS_SERVICES:
        path["serviceId"] = WORLD.spare_service
    well_formed = meta is not None and meta.generation.mode == GenerationMode.POSITIVE
    if operation == "edit_agents" and isinstance(case.body, dict):
        agents = case.body.get("agents")
        # All agents, or those with a label, are also the one that pays.
        if well_formed and agents.get("kind") != "ids" or agents == {"kind": "all"}:
            case.body["agents"] = {"kind": "ids", "ids": [WORLD.spare_agent]}
    # No schema says that an archived agent stays frozen.
    if isinstance(case.body, dict) and case.body.get("act") == "archive":
        case.body["act"] = "restore"
    if operation == "edit_agent" and isinstance(case.body, dict) and case.body.get("archived") is True:
        case.body["archived"] = False
    # A run has no time to wait for persons who don't come.
    if operation == "approval" and re.fullmatch(r"[0-9]|1[0-9]|20", str((case.query or {}).get("wait_seconds", ""))):
        case.query["wait_seconds"] = min(int(case.query["wait_seconds"]), 1)
    # That two days are in their order, and not far from each other, no schema says.
    if operation == "read_usage" and well_formed and (case.query or {}).get("from"):
        case.query["from"] = case.query["to"] = "2026-11-21"
    # It offers versions that it saw in bodies as they stand there.
    if well_formed and case.headers and not re.fullmatch(r'\*|"\d+"', case.headers.get("If-Match", "*")):
        case.headers["If-Match"] = "*"
    # Until it has answered with success, all of an operation's.
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
        # Its operations are replaced all the time.
        "operationId": ["86576a95-9c5c-45d2-a83c-39ed168ea1a2"],
        # Somebody without agents.
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
            # No schema describes a provider's requirement.
            body["payment_requirement"] = WORLD.weather
        body["original_request"] = {**body["original_request"], "method": "GET", "url": WORLD.provider + "/weather"}
        for name in ("service_id", "operation_id", "approval_id", "metadata"):
            body.pop(name, None)
    elif operation == "raise":
        until = datetime.now(timezone.utc) + timedelta(days=2)
        body["transaction_id"] = CHANCE.choice(WORLD.refused)
        # The terms of one refusal are the same each time.
        body.update(max_per_call_units=2_000_000, until=until.strftime("%Y-%m-%dT00:00:00Z"))
        body.pop("max_per_day_units", None)
    elif operation == "complete":
        body["tx_hash"] = WORLD.tx_hash
    elif operation == "replace_rule":
        # A rule keeps its kind, and the known ones are budgets.
        case.body = {**WORLD.BUDGET, "limit_units": CHANCE.randrange(1_000_000)}
    elif operation in ("create_webhook", "replace_webhook"):
        # At a name that nobody has.
        body["url"] = "https://hooks.example.invalid/purser"
    elif operation == "replace_notices":
        # At a name that nobody has.
        if isinstance(body.get("slack"), dict) and "url" in body["slack"]:
            body["slack"]["url"] = "https://hooks.example.invalid/x"
    elif operation == "edit_agent":
        body["name"] = "spare"
    elif operation == "edit_agent_service":
        body["max_per_call_units"] = CHANCE.randrange(1_000_000)
    elif operation == "enable_service":
        body["service_id"] = CHANCE.choice(WORLD.services)
    elif operation == "pay_out":
        # One at a time: each of these is the same payout.
        body |= {"amount_units": 1, "idempotency_key": "once"}
    elif operation == "upsert":
        body |= {"slug": f"spare-{CHANCE.random()}".replace(".", "-"), "operations": []}
        case.headers = {**(case.headers or {}), "If-Match": "*"}
    # Names of the catalog.
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
    """Leaves out what the description can't tell right from wrong: it knows of no space around a text that is dropped
    before the text is looked at."""
    return not any(isinstance(leaf, str) and leaf != leaf.strip() for leaf in leaves(body))


class Broken(Failure):
    """A check of ours that does not hold."""

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
    """Every refusal has our envelope and the name of its request; no answer tells a secret."""
    REACHED.setdefault(case.operation.definition.raw["operationId"], Counter())[response.status_code] += 1
    named = response.headers.get("x-request-id", [""])[0]
    demand(re.fullmatch(r"[0-9a-f-]{36}", named), case, "Request without a name", f"X-Request-Id is {named!r}")
    if response.status_code >= 400:
        body = response.json()
        demand(re.fullmatch(r"[a-z0-9_]+", body.get("error", "")), case, "Refusal without a slug", response.text)
        demand(body.get("message"), case, "Refusal without words", response.text)
        demand(body.get("request_id") == named, case, "Refusal of another request", response.text)
    for secret in WORLD.secrets:
        demand(secret not in response.text, case, "A secret in an answer", "one of the run's own secrets is in it")


@schemathesis.check
def undeclared_method(ctx, response, case):
    """A method that a path does not have is an unknown route (docs/decisions.md §9)."""
    method = response.request.method
    declared = {name.upper() for name in case.operation.schema[case.operation.path]}
    if method not in declared:
        slug = response.json()["error"] if response.content else None
        demand(response.status_code == 404 and slug == "not_found", case, "Undeclared method", f"{method}: {response.status_code}")
