"""Tests that the client matches the OpenAPI document, and derives the same keys as all other clients."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal, NotRequired, Union

import pytest

from purser_client import AsyncPurserClient, PurserClient, errors, models, routes
from purser_client.config import Call, call_key

ROOT = Path(__file__).parents[3]
DOCUMENT = json.loads((ROOT / "docs/openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
#: Maps operation ids to the client's routes.
ROUTES = {
    "authorize": routes.authorize,
    "check": routes.check,
    "check_unpaid": routes.check_unpaid,
    "complete": routes.complete,
    "raise": routes.ask_for_raise,
    "receipt": routes.receipt,
    "settlement_statement": routes.statements,
    "agent_decision_statement": routes.decision_statement,
    "receipts": routes.receipts,
    "approval": routes.approval,
    "me": routes.me,
    "services": routes.enabled_services,
    "policy": routes.policy,
    "list_services": routes.services,
    "read_service": routes.service,
}
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


#: Schemas whose fields depend on a kind, to which Purser may add kinds.
OPEN = {"AgentRule"}


def members(name: str) -> tuple[dict[str, Any], set[str]]:
    """Returns the fields of a schema, and the names of the required fields."""
    properties: dict[str, Any] = {}
    required: set[str] = set()
    for part in SCHEMAS[name].get("allOf", [SCHEMAS[name]]):
        more, needed = members(name_of(part)) if "$ref" in part else (part["properties"], set(part.get("required", [])))
        properties |= more
        required |= needed
    return properties, required


def name_of(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def text_of(schema: dict[str, Any]) -> str:
    """Writes a schema as a Python type."""
    if "$ref" in schema:
        if name_of(schema) in OPEN:
            return "dict"
        named = SCHEMAS[name_of(schema)]
        return name_of(schema) if "properties" in named or "allOf" in named else text_of(named)
    if "oneOf" in schema:
        return " | ".join(sorted(text_of(one) for one in schema["oneOf"]))
    if "enum" in schema:
        return "Literal " + " ".join(sorted(schema["enum"]))
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    names = {"integer": "int", "string": "str", "boolean": "bool", "null": "None", "object": "dict"}
    return " | ".join(sorted(f"list {text_of(schema['items'])}" if kind == "array" else names[kind] for kind in kinds))


def text_of_type(annotation: Any) -> str:
    """Writes a Python type in the form of `text_of`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is NotRequired:
        return text_of_type(arguments[0])
    if origin is Literal:
        return "Literal " + " ".join(sorted(arguments))
    if origin is list:
        return f"list {text_of_type(arguments[0])}"
    if origin in (Union, types.UnionType):
        return " | ".join(sorted(text_of_type(one) for one in arguments))
    return "None" if annotation is types.NoneType else getattr(origin or annotation, "__name__", str(annotation))


def typed(name: str) -> list[Any]:
    return [one for one in vars(models).values() if typing.is_typeddict(one) and one.__name__ == name]


MODELS = [one.__name__ for one in vars(models).values() if typing.is_typeddict(one) and one.__name__ in SCHEMAS]


@pytest.mark.parametrize("name", MODELS)
def test_a_type_is_its_schema(name: str) -> None:
    model = typed(name)[0]
    properties, required = members(name)
    hints = typing.get_type_hints(model)
    assert {member: text_of_type(hint) for member, hint in hints.items()} == {
        member: text_of(schema) for member, schema in properties.items()
    }
    assert model.__required_keys__ == required


def test_every_route_of_an_agent_is_there() -> None:
    def for_agents(operation: dict[str, Any]) -> bool:
        return operation.get("security") is None or {"agentKey": []} in operation["security"]

    # The OAuth operations are for MCP clients.
    described = {
        name
        for name, (_, _, operation) in OPERATIONS.items()
        if for_agents(operation) and not name.startswith("oauth_")
    }
    assert set(ROUTES) == described - {
        "close_run",
        "document",
        "llms_txt",
        "log_checkpoint",
        "log_trust",
        "mcp",
        "open_run",
        "skill",
        "statement_keys",
    }


@pytest.mark.parametrize("name", list(ROUTES))
def test_a_route_is_asked_for_as_it_is_described(name: str) -> None:
    method, path, operation = OPERATIONS[name]
    route: Any = ROUTES[name]
    answer = typing.get_type_hints(route)["return"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert typing.get_args(answer)[0].__name__ == name_of(schema)
    hints = typing.get_type_hints(route)
    query = (
        {one["name"] for one in operation["parameters"] if one["in"] == "query"} if "parameters" in operation else set()
    )
    ids = re.findall(r"{(\w+)}", path)
    given: list[Any] = [f"<{name}>" for name in ids]
    if "body" in hints:
        body = name_of(operation["requestBody"]["content"]["application/json"]["schema"])
        assert hints["body"].__name__ == body
        given.append({"a": "body"})
    elif "query" in hints:
        assert set(hints["query"].__annotations__) == query
        given.append({"limit": 3})
    elif query:
        assert query in ({"limit"}, {"wait_seconds"})
        given.append(3)
    ask = route(*given)
    escaped = re.sub(r"{(\w+)}", r"%3C\1%3E", path)
    assert (ask.method, ask.path) == (method, escaped)
    assert ask.with_key == (operation.get("security") is not None)
    assert dict(ask.query) == ({name: 3 for name in query} if "query" not in hints else {"limit": 3})


def test_both_clients_have_the_same_methods() -> None:
    def methods(client: type) -> dict[str, inspect.Signature]:
        found = inspect.getmembers(client, inspect.isfunction)
        return {name: inspect.signature(one) for name, one in found if not name.startswith("_")}

    of_sync, of_async = methods(PurserClient), methods(AsyncPurserClient)
    of_async["close"] = of_async.pop("aclose")
    assert of_sync == of_async


def test_every_error_of_an_agent_s_routes_has_its_class() -> None:
    catalogue = (ROOT / "docs/errors.md").read_text().split("\n## 3.")[1].split("\n## 4.")[0]
    slugs = set(re.findall(r"^### `(\w+)`", catalogue, re.MULTILINE))
    of_people = {"invalid_session", "not_entitled", "recent_sign_in_required", "cross_site_request"}
    of_people |= {"approval_not_pending", "slug_taken", "too_many_freezes", "version_required", "version_conflict"}
    of_people |= {"payout_refused"}
    of_operators = {"invalid_internal_token", "second_operator_required"}
    assert set(errors.BY_SLUG) == (slugs - of_people - of_operators) | {"target_url_required"}
    assert all(kind.todo != errors.Refusal.todo for kind in errors.BY_SLUG.values())


VECTORS = ROOT / "clients/vectors.json"


@pytest.mark.skipif(not VECTORS.exists(), reason="clients/vectors.json is not here")
def test_keys_are_those_of_every_client() -> None:
    vectors = json.loads(VECTORS.read_text())
    assert len(vectors) > 10
    for vector in vectors:
        body = bytes.fromhex(vector["body_hex"])
        # The vectors contain arbitrary text, which `Call.of` would normalise.
        call = Call(vector["method"].upper(), vector["url"], Call.of("GET", "", body).body_sha256, bool(body))
        assert call.body_sha256 == vector["body_sha256"]
        assert call_key(vector["run"], call, vector["ordinal"]) == vector["key"], vector["name"]
