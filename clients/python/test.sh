#!/usr/bin/env bash
# Type-checks the Python client and tests it against the local stack. clients/test.sh starts the stack, whose stack.json
# is in $STACK_FOLDER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
infra/setup.sh python
cd clients/python
python=../../.venv-clients/bin/python
# Python writes no files next to the sources.
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=src:tests
"$python" -m mypy --cache-dir=/dev/null
"$python" -m pytest -q "$@"
