#!/usr/bin/env bash
# Runs a demo against the running stack. If no stack is running, the script starts a stack. `demo` makes one payment
# through the whole flow, and then stops a stack that it started. `demo-fleet` fills the stack, and leaves it running
# until Ctrl-C.
#
#   infra/demo.sh [demo | demo-fleet]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
demo=${1:-demo}

infra/setup.sh run
echo "$demo: building (the first time takes some minutes)"
cargo build --locked --workspace --bin stack --bin "$demo"

if [[ -f .local/stack.json ]] && curl -sf -o /dev/null http://127.0.0.1:3000/services; then
  exec "target/debug/$demo"
fi

echo "$demo: no stack is running; starting one"
log=$(mktemp)
target/debug/stack > "$log" 2>&1 &
stack=$!
trap 'kill -INT "$stack" 2>/dev/null || true; wait "$stack" 2>/dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 120); do
  grep -q '^Purser answers at' "$log" && break
  kill -0 "$stack" 2>/dev/null || { cat "$log"; exit 1; }
  sleep 0.5
done
"target/debug/$demo"
if [[ $demo == demo-fleet ]]; then
  echo "demo-fleet: the stack runs until Ctrl-C"
  wait "$stack"
fi
