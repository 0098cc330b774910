"""An agent of LangChain with a tool that pays for its call.

PURSER_URL and PURSER_KEY are Purser's address and the agent key. WEATHER_URL is a provider that asks for a payment.
"""

import os

import httpx
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool

from purser_client import Purser, PurserTransport, errors

# The run is the job that the agent works on: repeated under the same id, it pays nothing twice.
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
    """Returns the agent's answer."""
    agent = create_agent(model, [current_weather])
    result = agent.invoke({"messages": [{"role": "user", "content": question}]})
    return str(result["messages"][-1].text)


if __name__ == "__main__":
    print(ask(os.environ["MODEL"], "How is the weather in Lisbon?"))
