#!/usr/bin/env bash
# Shows one payment through the whole flow: against the running stack, or one that is started for it and stopped after.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

infra/setup.sh run
echo "demo: building (the first time takes some minutes)"
cargo build --locked --workspace --bin stack --bin demo

if [[ -f .local/stack.json ]] && curl -sf -o /dev/null http://127.0.0.1:3000/services; then
  exec target/debug/demo
fi

echo "demo: no stack is running; starting one"
log=$(mktemp)
target/debug/stack > "$log" 2>&1 &
stack=$!
trap 'kill -INT "$stack" 2>/dev/null || true; wait "$stack" 2>/dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 120); do
  grep -q '^Purser answers at' "$log" && break
  kill -0 "$stack" 2>/dev/null || { cat "$log"; exit 1; }
  sleep 0.5
done
target/debug/demo
