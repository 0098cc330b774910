#!/usr/bin/env bash
# Reads the CSV files of the dashboard with pandas and LibreOffice, and runs the tests of agent-security-harness (PyPI),
# against a local stack: the attacks on an MCP server, the attacks on users who decide approvals, the tests of what an
# approval authorizes, and the x402 merchant, which is changed to send false information. expected.json lists the
# results other than a pass, with their reasons.
#
#   tests/outside/run.sh              against a stack that is started here
#   STACK_FOLDER=… tests/outside/run.sh   against the one whose stack.json is in that folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
infra/setup.sh outside
source infra/sam/docker.sh # stop_stack
export PYTHONDONTWRITEBYTECODE=1

if [[ -z ${STACK_FOLDER:-} ]]; then
  [[ -n ${STACK:-} ]] || cargo build --locked --quiet --workspace --bin stack
  folder=$(mktemp -d)
  trap 'stop_stack; rm -rf "$folder"' EXIT
  PORTS=free STACK_FOLDER=$folder THROTTLE_PER_MINUTE=1000000 setsid "${STACK:-target/debug/stack}" > "$folder/stack.log" 2>&1 &
  stack_pid=$!
  for _ in $(seq 240); do
    [[ -f $folder/stack.json ]] && break
    sleep 0.5
  done
  export STACK_FOLDER=$folder
fi
status=0
.venv-outside/bin/python tests/outside/csv_files.py || status=1
.venv-outside/bin/python tests/outside/harness.py || status=1
exit $status
