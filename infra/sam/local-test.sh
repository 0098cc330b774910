#!/usr/bin/env bash
# Proves that `sam local start-api`, with a real Docker engine, serves what infra/sam/build.sh built: the agent's whole
# flow over a local stack, the error envelope, and recorded events with `sam local invoke`.
#
#   infra/sam/local-test.sh              runs; a Docker daemon is started where there is none, and stopped after
#   infra/sam/local-test.sh --why-not    says why it can't run here; fails where it can
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source infra/sam/docker.sh

if [[ ${1:-} == --why-not ]]; then why_no_docker; exit; fi
if why=$(why_no_docker); then echo "local-test: $why" >&2; exit 1; fi
[[ -f .aws-sam/build/template.yaml ]] || { echo "local-test: nothing is built; run infra/sam/build.sh first" >&2; exit 1; }

folder=$(mktemp -d)
sam_pid=
stop_all() {
  if [[ -n $sam_pid ]]; then
    kill "$sam_pid" 2>/dev/null || true
    wait "$sam_pid" 2>/dev/null || true
  fi
  stop_stack
  stop_docker
  rm -rf "$folder"
}
trap stop_all EXIT

start_docker
infra/sam/base-image.sh
cargo build --locked --quiet --workspace --bin stack --bin demo
start_stack "$folder"

sam_surroundings
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
.venv/bin/sam local start-api --skip-pull-image --port "$port" --env-vars "$folder/functions.json" > "$folder/sam.log" 2>&1 &
sam_pid=$!
url=http://127.0.0.1:$port
for _ in $(seq 120); do
  (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
  kill -0 "$sam_pid" 2>/dev/null || break
  sleep 0.5
done

failed=0
fail() {
  echo "  FAILED  $1"
  failed=1
}

# Prints the response to a call: the status, and `error` if the response has it. The body must have the request's id,
# like a header.
answers() { # answers <status> <slug> <curl arguments …>
  local status=$1 slug=$2 got
  shift 2
  got=$(curl --silent --max-time 60 --dump-header "$folder/headers" --output "$folder/body" --write-out '%{http_code}' "$@" || true)
  if [[ $got == "$status" ]] && python3 - "$folder/body" "$slug" "$folder/headers" <<'PYTHON'
import json, sys
body, slug, headers = json.load(open(sys.argv[1])), sys.argv[2], open(sys.argv[3]).read().lower()
named = body["request_id"] if slug else ""
sys.exit(not (body.get("error", "") == slug and f"x-request-id: {named}" in headers and (not slug or body["message"])))
PYTHON
  then
    echo "  ok      $status $slug"
  else
    fail "$got instead of $status $slug: $(head -c 300 "$folder/body")"
  fi
}

echo "local-test: the error envelope"
key=$(from_stack "$folder" agent key)
answers 404 not_found "$url/nowhere"
answers 404 not_found --request DELETE "$url/services"
answers 401 invalid_agent_key "$url/mcp/agents/me"
answers 401 invalid_agent_key "$url/mcp/agents/me" --header "Authorization: Bearer gak_pub_x:gak_sec_y"
answers 400 invalid_request "$url/x402/authorize" --header "Authorization: Bearer $key" --data '{'
answers 400 idempotency_key_required "$url/x402/authorize" --header "Authorization: Bearer $key" \
  --data "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["body"])' events/payments/authorize-no-idempotency-key.json)"
# The functions authenticate callers themselves, as behind the deployed gateway.
answers 401 invalid_session "$url/agents"
answers 401 invalid_internal_token "$url/internal/services"
answers 200 '' "$url/services"
answers 200 '' "$url/mcp/agents/me" --header "Authorization: Bearer $key"

echo "local-test: an agent's whole flow"
if BASE_URL=$url STACK_FOLDER=$folder target/debug/demo > "$folder/demo.log" 2>&1; then
  echo "  ok      find, check, authorize, pay, complete, receipt"
else
  fail "the demo: $(tail -n 5 "$folder/demo.log")"
fi

echo "local-test: recorded events with sam local invoke"
for pair in agents/get-me:200 payments/authorize:200 payments/complete-settlement-no-credentials:401 internal/list-services:200 catalog/unknown-route:404; do
  event=${pair%:*} status=${pair#*:}
  answer=$(STACK_FOLDER=$folder infra/sam/invoke.sh "events/$event.json" 2>> "$folder/sam.log" | tail -n 1)
  if [[ $answer == *"\"statusCode\":$status"* || $answer == *"\"statusCode\": $status"* ]]; then
    echo "  ok      $event $status"
  else
    fail "$event: ${answer:0:300}"
  fi
done
# The response to a schedule's event is null.
for event in probe/every-minute reconcile/every-minute reconcile/every-hour events/every-minute webhooks/every-minute; do
  answer=$(STACK_FOLDER=$folder infra/sam/invoke.sh "events/$event.json" 2>> "$folder/sam.log" | tail -n 1)
  if [[ $answer == null ]]; then echo "  ok      $event"; else fail "$event: ${answer:0:300}"; fi
done

if [[ $failed != 0 ]]; then
  echo "local-test: the last lines of SAM's log:"
  tail -n 30 "$folder/sam.log"
fi
exit "$failed"
