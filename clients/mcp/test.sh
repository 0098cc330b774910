#!/usr/bin/env bash
# Runs the MCP server under other people's clients, against the stack whose files are in $STACK_FOLDER (clients/test.sh
# starts one): the official SDKs of TypeScript and Python over HTTP and stdio, the conformance suite, the inspector.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
infra/setup.sh mcp
[[ -n ${PURSER:-} ]] || cargo build --locked --quiet --workspace --bin purser --example conformance
(cd clients/mcp/test && npm test --silent)
PYTHONDONTWRITEBYTECODE=1 .venv-mcp/bin/python clients/mcp/test/test_python.py
