"""An agent with the OpenAI Agents SDK that finds services and pays for them with Purser's MCP tools.

PURSER_URL and PURSER_KEY are Purser's URL and the agent key.
"""

import asyncio
import os

from agents import Agent, Model, Runner
from agents.mcp import MCPServerStreamableHttp

INSTRUCTIONS = "Use the tools to buy what the question needs, for at most five cents. Do what `what_to_do` says."


async def ask(model: str | Model, question: str) -> str:
    """Returns the agent's response."""
    tools = MCPServerStreamableHttp(
        {"url": f"{os.environ['PURSER_URL']}/mcp", "headers": {"Authorization": f"Bearer {os.environ['PURSER_KEY']}"}},
        # A paid call takes at most 25 seconds.
        client_session_timeout_seconds=30,
    )
    async with tools:
        agent = Agent(
            name="Buyer",
            instructions=INSTRUCTIONS,
            model=model,
            mcp_servers=[tools],
            mcp_config={"convert_schemas_to_strict": True},
        )
        return str((await Runner.run(agent, question)).final_output)


if __name__ == "__main__":
    print(asyncio.run(ask(os.environ["MODEL"], "How is the weather in Lisbon?")))
