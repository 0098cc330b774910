#!/usr/bin/env bash
# Checks the Python client's types and tests it against the local stack whose stack.json is in $STACK_FOLDER; clients/test.sh
# starts one for it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
infra/setup.sh python
cd clients/python
python=../../.venv-clients/bin/python
# Nothing is written beside the sources.
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=src:tests
"$python" -m mypy --cache-dir=/dev/null
"$python" -m pytest -q "$@"
