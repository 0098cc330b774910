"""Runs the examples with scripted models. A model requests the paid tool, and responds with the tool's result."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import Model, ModelResponse, Tool, Usage, set_tracing_disabled
from agents.items import TResponseStreamEvent
from agents.tool import FunctionTool
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from world import Agent, World

from purser_client import PurserClient

EXAMPLES = Path(__file__).parents[1] / "examples"
QUESTION = "How is the weather in Lisbon?"


@pytest.fixture(autouse=True)
def settings(world: World, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the environment variables that the examples read."""
    monkeypatch.setenv("PURSER_URL", world.base)
    monkeypatch.setenv("PURSER_KEY", agent.key)
    monkeypatch.setenv("WEATHER_URL", f"{world.v2}/weather")
    monkeypatch.setenv("RUN", f"run-{uuid.uuid4()}")


def example(name: str) -> Any:
    """Loads an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verified(world: World, agent: Agent) -> bool:
    """Returns whether the agent paid once and the transfer was verified."""
    with PurserClient(world.base, agent.key) as api:
        (receipt,) = api.receipts()["settlements"]
    return agent.transfers() == 1 and receipt["receipt_status"] == "confirmed"


class Scripted(FakeMessagesListChatModel):
    """A scripted model for LangChain. LangChain's own scripted model does not support tools, so this class adds them
    and stores the tool's result.
    """

    told: list[str] = []

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        assert [tool.name for tool in tools] == ["current_weather"]
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **named: Any) -> Any:
        self.told += [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        return super()._generate(messages, *rest, **named)


def langchain_model() -> Scripted:
    call = {"name": "current_weather", "args": {}, "id": "call-1"}
    return Scripted(responses=[AIMessage("", tool_calls=[call]), AIMessage("It is partly cloudy.")])


def test_the_langchain_agent_pays_for_its_tool(world: World, agent: Agent) -> None:
    model = langchain_model()
    assert example("langchain_agent").ask(model, QUESTION) == "It is partly cloudy."
    assert json.loads(model.told[0])["conditions"] == "partly cloudy"
    assert verified(world, agent)


def test_the_langchain_agent_learns_of_a_refusal(agent: Agent) -> None:
    agent.policy("lab-weather", require_approval_above_units=0)
    model = langchain_model()
    example("langchain_agent").ask(model, QUESTION)
    assert model.told[0].startswith("The call failed. ") and "approv" in model.told[0]
    assert agent.transfers() == 0


class ScriptedModel(Model):
    """A scripted model for the Agents SDK. The model sets every argument of `call_service`, and responds with the
    result.
    """

    async def get_response(
        self, system_instructions: str | None, input: Any, model_settings: Any, tools: list[Tool], *_: Any, **__: Any
    ) -> ModelResponse:
        returned = [item["output"] for item in input if item.get("type") == "function_call_output"]
        output: ResponseFunctionToolCall | ResponseOutputMessage
        if returned:
            said = ResponseOutputText(text=returned[0][1]["text"], type="output_text", annotations=[])
            output = ResponseOutputMessage(
                id="message-1", content=[said], role="assistant", status="completed", type="message"
            )
        else:
            functions = {tool.name: tool for tool in tools if isinstance(tool, FunctionTool)}
            # The SDK does not change a schema in which an object may have any fields, such as `parameters`.
            open_schemas = {name for name, tool in functions.items() if not tool.strict_json_schema}
            assert (len(functions), open_schemas) == (10, {"call_service", "check_payment"})
            names = functions["call_service"].params_json_schema["properties"]
            given = {"service": "lab-weather", "operation": "weather.current", "max_usd": "0.05"}
            output = ResponseFunctionToolCall(
                call_id="call-1",
                name="call_service",
                arguments=json.dumps(dict.fromkeys(names) | given),
                type="function_call",
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError


def test_the_openai_agent_pays_with_mcp_tools(world: World, agent: Agent) -> None:
    set_tracing_disabled(True)
    answer = asyncio.run(example("openai_agents").ask(ScriptedModel(), QUESTION))
    assert json.loads(answer)["conditions"] == "partly cloudy"
    assert verified(world, agent)
