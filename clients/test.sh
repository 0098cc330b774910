#!/usr/bin/env bash
# Runs the tests of the clients. Each client gets its own local stack. The stack's stack.json is in $STACK_FOLDER.
#
#   clients/test.sh                 every client with a test.sh
#   clients/test.sh <client> …      only these: typescript, python, mcp or rust. `rust` tests the Rust client and the
#                                   command line, whose tests start their own stacks (as in `cargo test`)
#
# First, clients/release.py checks the metadata of all packages.
#
# STACK is a program to start instead of building the stack.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source infra/sam/docker.sh # stop_stack

folder=$(mktemp -d)
trap 'stop_stack; rm -rf "$folder"' EXIT

stack=${STACK:-target/debug/stack}
[[ -n ${STACK:-} ]] || cargo build --locked --quiet --workspace --bin stack

start() { # start <folder>
  mkdir "$1"
  # The throttle's limit is so high that no test reaches it.
  PORTS=free STACK_FOLDER=$1 THROTTLE_PER_MINUTE=1000000 \
    setsid "$stack" > "$1/stack.log" 2>&1 &
  stack_pid=$!
  for _ in $(seq 240); do
    [[ -f $1/stack.json ]] && return
    kill -0 "$stack_pid" 2>/dev/null || break
    sleep 0.5
  done
  echo "clients: the local stack did not start:"
  tail -n 20 "$1/stack.log"
  return 1
}

clients=("$@")
if ((${#clients[@]} == 0)); then
  for script in clients/*/test.sh; do clients+=("$(basename "$(dirname "$script")")"); done
fi
failed=0
python3 -B clients/release_test.py || failed=1
for client in "${clients[@]}"; do
  if [[ $client == rust ]]; then
    cargo nextest run --locked --workspace \
      -E 'package(purser-client) + package(purser-cli) + package(purser-tests) & test(/^(client|cli)/)' || failed=1
    continue
  fi
  [[ -x clients/$client/test.sh ]] || { echo "clients: there is no clients/$client/test.sh"; exit 2; }
  printf '\n--- clients/%s\n' "$client"
  start "$folder/$client"
  STACK_FOLDER=$folder/$client timeout 600 "clients/$client/test.sh" || { failed=1; echo "clients: $client failed"; }
  stop_stack
  stack_pid=
done
exit "$failed"
