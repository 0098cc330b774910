#!/usr/bin/env bash
# Holds the running service to the description that it serves: schemathesis calls every route of a local stack of its own
# with what the description allows, with what it does not, and along its links; then the stack's log is read for what must
# not be in it.
#
#   infra/schemathesis/run.sh <examples> [<schemathesis option> …]     as many cases of each kind for each route
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
infra/setup.sh x402 mail schemathesis
source infra/sam/docker.sh # from_stack, stop_stack

examples=$1
shift
folder=$(mktemp -d)
trap 'stop_stack; rm -rf "$folder"' EXIT

cargo build --locked --quiet --workspace --bin stack --bin demo
# A million calls per minute are allowed, because most responses would otherwise be 429. The single sign-in stays recent, and
# a withdrawal address can be used at once.
PORTS=free STACK_FOLDER=$folder THROTTLE_PER_MINUTE=1000000 RECENT_SIGN_IN_SECONDS=86400 PAYOUT_DELAY_SECONDS=0 \
  setsid target/debug/stack > "$folder/stack.log" 2>&1 &
stack_pid=$!
for _ in $(seq 240); do
  [[ -f $folder/stack.json ]] && break
  kill -0 "$stack_pid" 2>/dev/null || break
  sleep 0.5
done
[[ -f $folder/stack.json ]] || { echo "schemathesis: the local stack did not start:"; tail -n 20 "$folder/stack.log"; exit 1; }

base=$(from_stack "$folder" base_url)
AGENT_KEY=$(from_stack "$folder" agent key)
SESSION=$(from_stack "$folder" user token)
INTERNAL_TOKEN=$(from_stack "$folder" internal_token)
# The demo makes and completes a payment. infra/schemathesis/world.py creates the other objects of the calls.
BASE_URL=$base STACK_FOLDER=$folder target/debug/demo > "$folder/demo.log" 2>&1 || { tail -n 5 "$folder/demo.log"; exit 1; }
export AGENT_KEY SESSION INTERNAL_TOKEN STACK_FOLDER=$folder HYPOTHESIS_STORAGE_DIRECTORY=$folder/hypothesis
export REACHED=$folder/reached.json

failed=0
PYTHONPATH=infra/schemathesis .venv-schemathesis/bin/schemathesis --config-file infra/schemathesis/schemathesis.toml run "$base/openapi.json" \
  --no-color --max-examples "$examples" "$@" || failed=1

# A route without any successful response was not really tested. Some operations are exceptions, and other tests cover them:
# schemathesis doesn't call the route of the description, the end of all sessions is left out, the run has no session of a
# browser, JSON-RPC isn't described by OpenAPI, and some operations need the result of a probe, a pending change, a shadow
# policy, an open run or a user's consent.
python3 - "$folder/reached.json" docs/openapi.json <<'PYTHON' || failed=1
import json, sys
reached, document = (json.load(open(path)) for path in sys.argv[1:])
operations = [operation for path in document["paths"].values() for operation in path.values()]
names = [operation["operationId"] for operation in operations if operation["operationId"] not in ("accept_change", "close_run", "document", "end_session", "end_sessions", "mcp", "oauth_token", "pin", "promote_shadow", "withdraw_change")]
never = [name for name in names if not any(status[0] == "2" for status in reached.get(name, {}))]
for name in names:
    print(f"  {name:24}", *(f"{status}: {count}" for status, count in sorted(reached.get(name, {}).items())))
if never:
    print("schemathesis: never answered with success:", *never)
sys.exit(bool(never))
PYTHON

# A line of level ERROR is an internal failure, even if the response was successful. No line may contain a secret.
if grep -m 3 -E '"level":"ERROR"|panicked at' "$folder/stack.log"; then
  echo "schemathesis: the service logged the failures above"
  failed=1
fi
for secret in "${AGENT_KEY#*:}" "$SESSION" "$INTERNAL_TOKEN"; do
  if grep -v '^KEY=' "$folder/stack.log" | grep -q -F "$secret"; then
    echo "schemathesis: a secret is in the service's log"
    failed=1
  fi
done
exit "$failed"
