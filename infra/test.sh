#!/usr/bin/env bash
# Runs the tests, in order, with a summary of what ran, what failed, and what was skipped and why.
# Steps are independent: one that fails does not keep the others from telling.
#
#   infra/test.sh             what most changes break, within ten minutes on two idle cores: `make test`
#   infra/test.sh --rest      everything else, the most telling first
#   infra/test.sh --all       both: `make test-all`
#   infra/test.sh --kms <F>   the integration tests that the filter F picks, where KMS has the wallets' keys
#
# UNTIL, in seconds since 1970, is when the last steps of the rest have to be over. Of these, a step that has no time left is
# skipped, and one that is under way then is stopped; neither is a failure. No step at all begins after END, in seconds since
# 1970, so that a slow machine reports what it ran.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# CI builds once, so it needs no incremental data.
if [[ ${CI:-} == true ]]; then export CARGO_INCREMENTAL=0; fi

# The exit status of a step that found no failure, but had no time for everything.
readonly OUT_OF_TIME=75

passed=() failed=() skipped=()

step() { # step <name> <command …>
  local name=$1 started=$SECONDS status=0
  shift
  if [[ -n ${END:-} ]] && (($(date +%s) >= END)); then skip "$name" "no time left"; return; fi
  printf '\n=== %s\n' "$name"
  "$@" || status=$?
  case $status in
    0) passed+=("$name ($((SECONDS - started)) s)") ;;
    "$OUT_OF_TIME") skipped+=("$name: not all of it, for lack of time ($((SECONDS - started)) s)") ;;
    *) failed+=("$name ($(free_disk) MB of disk are free)") ;;
  esac
}

# Prints what is free where builds and temporary files are. On a full disk, steps fail with errors that do not name the cause.
free_disk() { df --output=avail --block-size=M . "${TMPDIR:-/tmp}" | tail -n +2 | tr -dc '0-9\n' | sort -n | head -n 1; }

skip() { # skip <name> <why>
  skipped+=("$1: $2")
}

# Runs a step of the rest, which must be over by UNTIL.
late_step() { # late_step <name> <program …>, not a function of this shell: `timeout` starts it
  local name=$1 left
  shift
  if [[ -z ${UNTIL:-} ]]; then step "$name" "$@"; return; fi
  left=$((UNTIL - $(date +%s)))
  if ((left <= 0)); then skip "$name" "no time left"; return; fi
  step "$name" in_time "$left" "$@"
}

# Ends a command and everything that it has started when its time is over.
in_time() { # in_time <seconds> <command …>
  local status=0
  # A command that has found failures can report them when it is terminated.
  timeout --preserve-status --kill-after=20 "$@" || status=$?
  # The command ended by the signal, or was killed because it did not end.
  if [[ $status == 143 || $status == 137 ]]; then return "$OUT_OF_TIME"; else return "$status"; fi
}

# Checks that all programs and tests use the same features of dependencies. Otherwise, `make run` and `make test` would
# each compile most dependencies.
one_set_of_features() {
  local of_programs of_tests apart
  of_programs=$(features normal,build) && of_tests=$(features normal,build,dev) || return
  apart=$(comm -23 <(echo "$of_programs") <(echo "$of_tests"))
  [[ -z $apart ]] || { printf 'the tests ask other features of these:\n%s\n' "$apart"; return 1; }
}
features() { # features <edges>
  cargo tree --locked --workspace --edges "$1" --prefix none --format '{p} {f}' | sed 's/ (\*)$//' | LC_ALL=C sort -u
}

# The tests record the functions' AWS calls, which are compared with the functions' roles afterwards. They also record
# the logs, and the texts that must not be logged.
readonly RECORDS=(PURSER_RECORD="$PWD/target/calls.jsonl" PURSER_LOGS="$PWD/target/logs")

# The Rust tests that `make test` leaves to `make test-all`: tests that kill processes, race, rewrite every row, wait or count
# for long, and of the tests over a whole stack those of single features.
readonly STORIES='flow|docs|errors|schemas|offers|approvals|attacks|isolation'
readonly LONG="package(purser-sim) or package(purser-instructions) or package(purser-tests) and binary(it) and not test(/^($STORIES)::/) \
  or package(purser-stream) and (test(/kill/) or test(/^rewrites::/) or binary(costs)) or package(purser-cli) and binary(it) \
  or package(purser-store) and test(/^(object|races)::/) or package(purser-model) and binary(traces)"
rust_tests() { # rust_tests <filter of nextest>
  env "${RECORDS[@]}" cargo nextest run --locked --workspace --no-fail-fast -E "$1"
}

# The same, for a stack whose wallet keys are in KMS: payments, kills, and what a user sees of them.
readonly PAYING='test(/^flow::/) or test(/^faults::kills::/) or test(/^browser::/) or test(/^secrets::/)'
kms_tests() { # kms_tests <which of the integration tests>
  env "${RECORDS[@]}" CUSTODY=kms cargo nextest run --locked --workspace --no-fail-fast -E "package(purser-tests) and binary(it) and ($1)"
}

quick() { # quick <parts of the setup>
  rm -rf target/calls.jsonl target/logs
  mkdir -p target
  # Packages are downloaded while the tests are compiled.
  cargo test --locked --workspace --no-run --quiet 2>target/test-compilation.log & local compilation=$!
  infra/setup.sh "$@" || { echo "test: setup failed"; exit 1; }
  step "formatting" cargo fmt --all --check
  wait "$compilation" || cat target/test-compilation.log
  step "Rust tests, without the long ones" rust_tests "not ($LONG)"
  step "a payment where KMS has the keys" kms_tests 'test(=flow::an_unmodified_x402_v2_provider_is_paid_and_confirmed)'
  step "template: sam validate, cfn-lint, roles, limits" infra/sam/check.sh --quick
  step "guarantees and ASVS rows name proofs that exist" infra/claims.py
  step "a claim without a proof would be found" infra/claims_test.py
}

rest() {
  infra/setup.sh test rest || { echo "test: setup failed"; exit 1; }
  local why client
  step "lints" cargo clippy --locked --workspace --all-targets --quiet -- --deny warnings
  step "no files use each other" infra/rings.py
  step "functions and limits have plain names" infra/names.py
  step "names that are not plain would be found" infra/names_test.py
  step "crates stay within their lines" infra/lines.py
  step "planted bugs replace texts that exist" tests/planted/plant.py --texts
  step "programs and tests are built of the same" one_set_of_features
  step "dependencies: licences, sources, bans" cargo deny --locked check bans licenses sources
  # The advisory database is a git repository on a host that can't be reached from everywhere.
  if why=$(timeout 120 cargo deny --locked fetch db 2>&1); then
    step "dependencies: known vulnerabilities" cargo deny --locked check advisories
  else
    skip "dependencies: known vulnerabilities" "RustSec's database can't be had: ${why##*$'\n'}"
  fi
  step "long Rust tests" rust_tests "$LONG"
  step "Rust tests of payments, where KMS has the keys" kms_tests "$PAYING"
  step "roles allow what was called, and nothing else" .venv/bin/python infra/sam/calls.py target/calls.jsonl
  step "secrets in logs would be found" tests/logs/check_test.py
  step "no secret was logged" tests/logs/check.py target/logs
  step "x402 providers on the official SDK" npm --prefix infra/local/x402 test --silent
  # A few cases of each kind for each route. `infra/schemathesis/run.sh` can run more.
  step "schemathesis: the API is what its description says" infra/schemathesis/run.sh 10
  for client in clients/*/test.sh; do
    client=$(basename "$(dirname "$client")")
    step "client over a local stack: $client" clients/test.sh "$client"
  done
  if [[ ! -x ${CHROMIUM:-/usr/bin/chromium} ]]; then
    skip "the dashboard and the TypeScript client in a real browser" "there is no Chromium (apt-get install chromium)"
  fi
  command -v valgrind >/dev/null || skip "instructions between event and answer" "there is no valgrind (apt-get install valgrind)"
  if ! infra/newer-python.sh >/dev/null; then
    skip "evidence, by the libraries of Python" "there is no Python 3.12 or later"
  fi
  step "evidence, by tools of others" tests/evidence/run.sh
  step "clients that others generate from docs/openapi.json" tests/generators/run.sh
  step "webhook receivers of the documentation" tests/receivers/run.sh
  step "attacks of a harness of others, and CSV files in pandas and LibreOffice" tests/outside/run.sh
  step "documentation examples" cargo test --locked --workspace --doc --quiet
  step "template: checkov" infra/sam/check.sh --checkov
  step "a deployment to an emulator, and back to an empty account" .venv/bin/python infra/sam/deploy_test.py
  step "release files are deployed without a toolchain" .venv/bin/python infra/sam/release_test.py
  step "a bench that got worse shows" infra/bench_test.py
  late_step "planted bugs are caught" tests/planted/plant.py
  late_step "the models of the protocol, with their large bounds" \
    cargo nextest run --locked --workspace --run-ignored only -E 'package(purser-model)'
  late_step "the other Rust tests, where KMS has the keys" infra/test.sh --kms "not ($PAYING)"
  # If time is short, the slow optimizations of a release are skipped.
  late_step "template: sam build" infra/sam/build.sh "$([[ -n ${UNTIL:-} ]] && echo --quick || echo --full)"
  late_step "bills of materials of what is deployed" infra/sbom.sh
  late_step "events under the Lambda runtime emulator" infra/sam/replay.sh
  if why=$(infra/sam/local-test.sh --why-not); then
    skip "sam local with a Docker engine" "$why"
  else
    late_step "sam local with a Docker engine" infra/sam/local-test.sh
  fi
  if [[ -n ${X402_CHECKOUT:-} ]]; then
    late_step "the official end-to-end suite of x402" tests/outside/x402/run.sh "$X402_CHECKOUT"
  else
    skip "the official end-to-end suite of x402" "X402_CHECKOUT names no checkout of its repository"
  fi
  # A short, unoptimized run at a rate that two cores can handle. `make load` runs the full load.
  late_step "load with faults" \
    cargo bench --locked --profile dev --workspace --bench load -- --seconds 60 --rate 10 --agents 20 --environments 4
  late_step "schemathesis: ten times the cases" infra/schemathesis/run.sh 100
  late_step "the simulation: 2,000 seeds" make --no-print-directory simulate
}

summary() {
  printf '\n=== summary\n'
  for name in ${passed[@]+"${passed[@]}"}; do printf 'ran      %s\n' "$name"; done
  for name in ${skipped[@]+"${skipped[@]}"}; do printf 'skipped  %s\n' "$name"; done
  for name in ${failed[@]+"${failed[@]}"}; do printf 'FAILED   %s\n' "$name"; done
  printf '%d passed, %d failed, %d skipped; %d MB of disk are free\n' \
    "${#passed[@]}" "${#failed[@]}" "${#skipped[@]}" "$(free_disk)"
  [[ ${#failed[@]} == 0 ]]
}

case ${1:-} in
  '') quick test ;;
  --rest) rest ;;
  --all) quick test rest; rest ;;
  --kms) kms_tests "${2:?a filter of nextest}"; exit ;;
  *) echo "test: unknown argument \`$1\`" >&2; exit 2 ;;
esac
summary
