#!/usr/bin/env bash
# Changes the code of shared/domain and shared/store, one place at a time, and tells which changes no test of theirs notices.
#
#   tests/mutants.sh <k/n>     one of n samples, with k from 0; the same places each time, as long as the code is the same
#
# It works in a copy of the tree. What was changed, and what the tests said, is left in target/mutants.out.
# Exit status: that of cargo-mutants, but 0 where all that it has to tell is what was missed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
# A mutant that loops for ever is noticed too; the tests of both take seconds.
env -u CARGO_TARGET_DIR cargo mutants --package purser-domain --package purser-store \
  --test-package purser-domain,purser-store --test-tool nextest --shard "$1" --timeout 180 --output target || status=$?
python3 - target/mutants.out/outcomes.json <<'PYTHON'
import json, sys
outcomes = json.load(open(sys.argv[1]))
noticed, missed = outcomes["caught"] + outcomes["timeout"], outcomes["missed"]
print(f"mutants: {missed} of {noticed + missed} were missed ({100 * missed / max(1, noticed + missed):.1f} %)")
PYTHON
# 2: some were missed; 3: some ran out of time.
[[ $status == 2 || $status == 3 ]] && status=0
exit "$status"
