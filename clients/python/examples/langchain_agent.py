"""A LangChain agent with a tool that pays for a call.

PURSER_URL and PURSER_KEY are Purser's URL and the agent key. WEATHER_URL is the URL of a provider that requires a
payment.
"""

import os

import httpx
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool

from purser_client import Purser, PurserTransport, errors

# `run` is the id of the agent's job. A job that is repeated with the same id pays for no call twice.
purser = Purser(run=os.environ.get("RUN", "job-42"), max_amount="0.05")
http = httpx.Client(transport=PurserTransport(purser))


@tool
def current_weather() -> str:
    """Returns the current weather in Lisbon. A call costs one cent."""
    try:
        return http.get(os.environ["WEATHER_URL"]).text
    except errors.PurserError as error:
        return f"The call failed. {error.todo}"


def ask(model: str | BaseChatModel, question: str) -> str:
    """Returns the agent's response."""
    agent = create_agent(model, [current_weather])
    result = agent.invoke({"messages": [{"role": "user", "content": question}]})
    return str(result["messages"][-1].text)


if __name__ == "__main__":
    print(ask(os.environ["MODEL"], "How is the weather in Lisbon?"))
