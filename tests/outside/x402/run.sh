#!/usr/bin/env bash
# Runs the official end-to-end suite of x402 on the chain of a local stack, with three clients that pay through Purser.
#
#   tests/outside/x402/run.sh <checkout of the repository of x402, as of April 2026>
#
# The first run installs the suite's packages into the checkout and builds the SDK of TypeScript there: two minutes and 2 GB.
# STACK is a program to start instead of the stack that is built here.
set -euo pipefail
checkout=$(cd "${1:?the folder of a checkout of x402}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
root=$PWD tools=$PWD/target/x402-e2e e2e=$checkout/e2e
mkdir -p "$tools"
[[ -f $e2e/test.ts ]] || { echo "x402: $checkout has no e2e/test.ts"; exit 2; }

infra/setup.sh x402 typescript python
source infra/sam/docker.sh # stop_stack
# The suite calls pnpm, uv and python by these names. `python` runs our client, and uv finds the interpreter of the
# servers.
if ! command -v pnpm >/dev/null; then
  [[ -x $tools/node_modules/.bin/pnpm ]] || npm install --silent --no-audit --no-fund --prefix "$tools" pnpm@10.34.9
  PATH=$tools/node_modules/.bin:$PATH
fi
if ! command -v uv >/dev/null; then
  if [[ ! -x $tools/uv/bin/uv ]]; then
    python3 -m venv "$tools/uv"
    "$tools/uv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
  fi
  PATH=$tools/uv/bin:$PATH
fi
export PATH=$root/.venv-clients/bin:$PATH
export NEXT_TELEMETRY_DISABLED=1 PYTHONDONTWRITEBYTECODE=1 npm_config_manage_package_manager_versions=false

filters() { # filters <suffix>: what is used, with (`...`) or without (`^...`) itself, and what it depends on
  local project
  for project in 'servers/**' 'legacy/servers/**' facilitators/typescript clients/fetch; do
    echo "--filter={./$project}$1"
  done
}
if [[ ! -f $e2e/node_modules/.purser ]]; then
  (
    cd "$e2e"
    # The lock file refers to a host that only the authors of the suite can reach. The versions and digests of the
    # packages stay.
    cp pnpm-lock.yaml pnpm-lock.yaml.orig
    trap 'mv pnpm-lock.yaml.orig pnpm-lock.yaml' EXIT
    sed -i 's/, tarball: [^}]*}/}/' pnpm-lock.yaml
    mapfile -t with < <(filters ...)
    mapfile -t without < <(filters ^...)
    pnpm install --silent --frozen-lockfile --ignore-scripts --filter x402-e2e "${with[@]}"
    # The type declarations take longest, and are not needed here.
    pnpm --silent --workspace-concurrency=1 "${without[@]}" run build --no-dts >/dev/null
  )
  touch "$e2e/node_modules/.purser"
fi
for project in facilitators/python {,legacy/}servers/{fastapi,flask}; do
  [[ -d $e2e/$project/.venv ]] || (cd "$e2e/$project" && uv sync --quiet --frozen)
done
[[ -d clients/typescript/dist ]] || npm --prefix clients/typescript run --silent build

# Before the suite starts, it ends every process that listens on its ports.
for port in $(seq 4022 4061); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "x402: port $port is taken, and the suite would end who has it"
    exit 2
  fi
done

[[ -n ${STACK:-} ]] || cargo build --locked --quiet --workspace --bin stack
folder=$(mktemp -d)
trap 'stop_stack; rm -rf "$folder"' EXIT
export STACK_FOLDER=$folder FACILITATOR_URL=http://127.0.0.1:4061
PORTS=free THROTTLE_PER_MINUTE=1000000 PAYOUT_DELAY_SECONDS=0 setsid "${STACK:-target/debug/stack}" > "$folder/stack.log" 2>&1 &
stack_pid=$!
for _ in $(seq 240); do
  [[ -f $folder/stack.json ]] && break
  kill -0 "$stack_pid" 2>/dev/null || { tail -n 20 "$folder/stack.log"; exit 1; }
  sleep 0.5
done
PYTHONPATH=$root/clients/python/src RESULTS=$tools node tests/outside/x402/suite.mjs "$checkout"
