#!/usr/bin/env bash
# Tests the MCP server with third-party clients: the official SDKs of TypeScript and Python over HTTP and stdio, the
# conformance suite, and the inspector. clients/test.sh starts the stack, whose files are in $STACK_FOLDER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
infra/setup.sh mcp
[[ -n ${PURSER:-} ]] || cargo build --locked --quiet --workspace --bin purser --example conformance
(cd clients/mcp/test && npm test --silent)
PYTHONDONTWRITEBYTECODE=1 .venv-mcp/bin/python clients/mcp/test/test_python.py
PYTHONDONTWRITEBYTECODE=1 .venv-mcp/bin/python clients/mcp/test/test_oauth.py
