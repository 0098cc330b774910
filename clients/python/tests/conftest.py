"""Fixtures: the world (once per session), the buyers, and a payer with its own agent and run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from buyers import BUYERS, Buyer
from world import Agent, World

from purser_client import Purser


@pytest.fixture(scope="session")
def world() -> World:
    if "STACK_FOLDER" not in os.environ:
        pytest.fail("STACK_FOLDER names no stack: run clients/test.sh python")
    return World()


@pytest.fixture
def agent(world: World) -> Agent:
    return world.agent()


@pytest.fixture(params=list(BUYERS))
def buy(request: pytest.FixtureRequest) -> Buyer:
    return BUYERS[request.param]


@pytest.fixture(params=[name for name in BUYERS if "x402" not in name])
def own(request: pytest.FixtureRequest) -> Buyer:
    """Returns each buyer, except the buyers of the x402 package, which share the tested code."""
    return BUYERS[request.param]


@pytest.fixture
def payer(world: World, agent: Agent) -> Callable[..., Purser]:
    run = f"run-{uuid.uuid4()}"

    def made(**settings: Any) -> Purser:
        """Creates the settings of one process of a run."""
        return Purser(**{"url": world.base, "key": agent.key, "run": run, "max_amount": "0.05", **settings})

    return made
