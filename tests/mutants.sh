#!/usr/bin/env bash
# Mutation tests for shared/domain and shared/store: changes the code in one place at a time, and reports which changes
# no test of theirs notices.
#
#   tests/mutants.sh <k/n>     tests sample k (from 0) of n; the samples are stable as long as the code is unchanged
#
# Works on a copy of the tree. The mutants and the tests' output are left in target/mutants.out. Exit status: that of
# cargo-mutants, but 0 if it only reports missed mutants or timeouts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
infra/setup.sh nextest mutants

status=0
# The timeout catches mutants that loop forever; the tests of both crates take seconds.
env -u CARGO_TARGET_DIR cargo mutants --package purser-domain --package purser-store \
  --test-package purser-domain,purser-store --test-tool nextest --shard "$1" --timeout 180 --output target || status=$?
python3 - target/mutants.out/outcomes.json <<'PYTHON'
import json, sys
outcomes = json.load(open(sys.argv[1]))
noticed, missed = outcomes["caught"] + outcomes["timeout"], outcomes["missed"]
print(f"mutants: {missed} of {noticed + missed} were missed ({100 * missed / max(1, noticed + missed):.1f} %)")
PYTHON
# 2: some mutants were missed; 3: some timed out.
[[ $status == 2 || $status == 3 ]] && status=0
exit "$status"
