#!/usr/bin/env bash
# Runs the webhook receivers of docs/webhooks.md and calls them. Without the packages of `infra/setup.sh receivers`, the
# test is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ ! -x .venv-receivers/bin/python || ! -d tests/receivers/node_modules ]]; then
  echo "receivers: skipped, their packages are not installed (infra/setup.sh receivers)"
  exit
fi
.venv-receivers/bin/python tests/receivers/run.py
