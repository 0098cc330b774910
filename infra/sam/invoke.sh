#!/usr/bin/env bash
# Sends one recorded event to its function in a container, with `sam local invoke`:
#
#   infra/sam/invoke.sh events/payments/authorize.json
#
# over the stack that is running with a bridge (`make run BIND=…`, or the one of `infra/sam/local.sh`). Placeholders are
# filled from that stack's files as far as they tell, and from variables of the same name:
#
#   SETTLEMENT_ID=… infra/sam/invoke.sh events/payments/get-settlement.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source infra/sam/docker.sh

event=${1:?which event? infra/sam/invoke.sh events/<function>/<name>.json}
group=$(basename "$(dirname "$event")")
folder=${STACK_FOLDER:-.local}
grep -qsF "http://$(docker_gateway):" "$folder/functions.json" || { echo "invoke: no stack that containers reach: make run BIND=$(docker_gateway)" >&2; exit 2; }

sam_surroundings
python3 - "$event" "$folder/stack.json" <<'PYTHON' |
import json, os, re, sys
stack = json.load(open(sys.argv[2]))
known = {
    "agent_key": stack["agent"]["key"],
    "agent_id": stack["agent"]["agent_id"],
    "session_token": stack["user"]["token"],
    "internal_token": stack["internal_token"],
}
fill = lambda found: os.environ.get(found[1].upper()) or known.get(found[1]) or sys.exit(f"invoke: {found[1].upper()} is not set")
print(re.sub(r"\{\{(\w+)\}\}", fill, open(sys.argv[1]).read()))
PYTHON
  .venv/bin/sam local invoke "${group^}Function" --event - --skip-pull-image --env-vars "$folder/functions.json"
