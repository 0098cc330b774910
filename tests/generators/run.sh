#!/usr/bin/env bash
# Generates clients from docs/openapi.json with openapi-typescript, openapi-python-client and datamodel-code-generator,
# and calls a local stack with each of them. Without the packages of `infra/setup.sh generators`, the test is skipped.
#
#   tests/generators/run.sh                   against a stack that is started here
#   STACK_FOLDER=… tests/generators/run.sh    against the one whose stack.json is in that folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ ! -x .venv-generators/bin/python || ! -d tests/generators/node_modules ]]; then
  echo "generators: skipped, their packages are not installed (infra/setup.sh generators)"
  exit
fi
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
    kill -0 "$stack_pid" 2>/dev/null || { echo "generators: the local stack did not start:"; tail -n 20 "$folder/stack.log"; exit 1; }
    sleep 0.5
  done
  export STACK_FOLDER=$folder
fi
.venv-generators/bin/python tests/generators/run.py
