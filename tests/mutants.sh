#!/usr/bin/env bash
# Mutation tests of what decides and commits payments: the evaluation in shared/domain, the payments' transactions in
# shared/store. Changes the code in one place at a time, and fails if the tests of both crates miss more than 5 % of these.
#
#   tests/mutants.sh <k/n>     tests sample k (from 0) of n; the samples are stable as long as the code is unchanged
#
# Works on a copy of the tree. The mutants and the tests' output are left in target/mutants.out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
infra/setup.sh nextest mutants

status=0
# The timeout catches mutants that loop forever; the tests of both crates take a minute or two.
env -u CARGO_TARGET_DIR cargo mutants --package purser-domain --package purser-store \
  --file 'shared/domain/src/policy/*.rs' --file 'shared/store/src/payments/*.rs' --file shared/store/src/transact.rs \
  --test-package purser-domain,purser-store --test-tool nextest --shard "$1" --timeout 600 --output target -- --fail-fast || status=$?
# 2: some mutants were missed; 3: some timed out. Anything else is a failure of the run itself.
[[ $status == 0 || $status == 2 || $status == 3 ]] || exit "$status"
python3 - target/mutants.out/outcomes.json <<'PYTHON'
import json, sys
outcomes = json.load(open(sys.argv[1]))
noticed, missed = outcomes["caught"] + outcomes["timeout"], outcomes["missed"]
print(f"mutants: {missed} of {noticed + missed} were missed ({100 * missed / max(1, noticed + missed):.1f} %)")
sys.exit(20 * missed > noticed + missed)
PYTHON
