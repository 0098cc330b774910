#!/usr/bin/env bash
# Everything that CI runs, in order, with a summary of what ran, what failed and what was skipped and why.
# Steps are independent: one that fails does not keep the others from telling.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What is built once and thrown away needs no gigabytes to be built again.
if [[ ${CI:-} == true ]]; then export CARGO_INCREMENTAL=0; fi

passed=() failed=() skipped=()

step() { # step <name> <command …>
  local name=$1 started=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  if "$@"; then passed+=("$name ($((SECONDS - started)) s)"); else failed+=("$name"); fi
}

skip() { # skip <name> <why>
  skipped+=("$1: $2")
}

infra/setup.sh || { echo "test: setup failed"; exit 1; }

step "formatting" cargo fmt --all --check
step "formatting of what is outside of the workspace" cargo fmt --manifest-path tests/bench/references/Cargo.toml --check
step "lints" cargo clippy --locked --workspace --all-targets --quiet -- --deny warnings
step "dependencies: licences, sources, bans" cargo deny --locked check bans licenses sources
# The database is a git repository on a host of its own, which is not within reach from everywhere.
if why=$(timeout 120 cargo deny --locked fetch db 2>&1); then
  step "dependencies: known vulnerabilities" cargo deny --locked check advisories
else
  skip "dependencies: known vulnerabilities" "RustSec's database can't be had: ${why##*$'\n'}"
fi
step "a bench that got worse shows" infra/bench_test.py
step "x402 providers on the official SDK" npm --prefix infra/local/x402 test --silent
# What the functions call of AWS meanwhile is written down, and compared with their roles.
# So is what they log, and what they must not.
rm -rf target/calls.jsonl target/logs
step "Rust tests" env PURSER_RECORD="$PWD/target/calls.jsonl" PURSER_LOGS="$PWD/target/logs" \
  cargo nextest run --locked --workspace --no-fail-fast
step "roles allow what was called, and nothing else" .venv/bin/python infra/sam/calls.py target/calls.jsonl
step "secrets in logs would be found" tests/logs/check_test.py
step "no secret was logged" tests/logs/check.py target/logs
# A few cases of each kind for each route; `make hostile` has more.
step "schemathesis: the API is what its description says" infra/hostile/run.sh 10
[[ -x ${CHROMIUM:-/usr/bin/chromium} ]] || skip "the dashboard in a real browser" "there is no Chromium (apt-get install chromium)"
step "documentation examples" cargo test --locked --workspace --doc --quiet
step "planted bugs are caught" tests/planted/plant.py
step "template: sam validate, cfn-lint, checkov, what it has to say" infra/sam/check.sh
step "template: sam build" infra/sam/build.sh
step "events under the Lambda runtime emulator" infra/sam/replay.sh
if why=$(infra/sam/local-test.sh --why-not); then
  skip "sam local with a Docker engine" "$why"
else
  step "sam local with a Docker engine" infra/sam/local-test.sh
fi

printf '\n=== summary\n'
for name in "${passed[@]}"; do printf 'ran      %s\n' "$name"; done
for name in ${skipped[@]+"${skipped[@]}"}; do printf 'skipped  %s\n' "$name"; done
for name in ${failed[@]+"${failed[@]}"}; do printf 'FAILED   %s\n' "$name"; done
printf '%d passed, %d failed, %d skipped\n' "${#passed[@]}" "${#failed[@]}" "${#skipped[@]}"
[[ ${#failed[@]} == 0 ]]
