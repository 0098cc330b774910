#!/usr/bin/env bash
# `infra/sam/local.sh`: the built functions in Lambda's own containers behind SAM's gateway, over a local stack's tables,
# secrets and chain, until Ctrl-C.
#
#   PORT=3010                 where SAM's gateway listens, on loopback
#   ACCEPT_PROVIDER_OK=true   of the stack that is started: CONTRIBUTING.md
#
# A stack that was started with `make run BIND=<gateway of the Docker bridge>` is used; without one, one is started for
# it and stopped after. SAM asks for no AWS credentials: every function judges its callers itself.
# People's routes are refused here, since a container does not reach the issuer on this machine's loopback.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
infra/setup.sh x402 mail sam
source infra/sam/docker.sh

if why=$(why_no_docker); then echo "sam-local: $why" >&2; exit 1; fi
trap 'stop_stack; stop_docker' EXIT
start_docker
infra/sam/base-image.sh
# The functions are always built, because a cached build would not contain changes in shared/.
infra/sam/build.sh
folder=.local
if ! grep -qsF "http://$(docker_gateway):" .local/functions.json; then
  echo "sam-local: no stack that containers reach is running; starting one"
  cargo build --locked --workspace --bin stack --bin demo
  folder=.local/sam
  start_stack "$folder"
elif [[ -n ${ACCEPT_PROVIDER_OK:-} ]]; then
  echo "sam-local: the stack that is running decides on ACCEPT_PROVIDER_OK; stop it, or start it with that" >&2
  exit 1
fi

sam_surroundings
port=${PORT:-3010}
cat <<TEXT

sam-local: the API will answer at http://127.0.0.1:$port; the first call of each function starts its container
  the demo agent's key      $(from_stack "$folder" agent key)
  a paid provider           $(from_stack "$folder" provider_url)
  a whole payment           BASE_URL=http://127.0.0.1:$port STACK_FOLDER=$folder target/debug/demo
  one recorded event        STACK_FOLDER=$folder infra/sam/invoke.sh events/agents/get-me.json

TEXT
.venv/bin/sam local start-api --skip-pull-image --port "$port" --env-vars "$folder/functions.json"
