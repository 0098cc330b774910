#!/usr/bin/env bash
# Mutation tests of the code that decides and stores payments: the evaluation in shared/domain, and the transactions of
# payments in shared/store. Changes the code in one place at a time. Fails if the tests of both crates miss more than 5
# % of the changes.
#
#   tests/mutants.sh <k/n>     tests sample k (from 0) of n; the samples are stable as long as the code is unchanged
#
# Works on copies of the tree. The tests of a mutant's own crate come first, since they take seconds; what they miss is
# tested with both crates. The mutants and the tests' output are left in target/mutants.out and target/mutants-both.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
infra/setup.sh nextest mutants

mutants() { # mutants <options of cargo-mutants> … -- <options of nextest>
  local status=0
  # The dependencies are optimized, because without that the AWS SDK takes most of the time of the store's tests. The
  # timeout catches mutants with an endless loop.
  env -u CARGO_TARGET_DIR cargo mutants --package purser-domain --package purser-store \
    --file 'shared/domain/src/policy/*.rs' --file 'shared/store/src/payments/*.rs' --file shared/store/src/transact.rs \
    --cargo-arg=--config --cargo-arg='profile.dev.package."*".opt-level=2' --test-tool nextest --jobs 2 --timeout 300 \
    "$@" --fail-fast || status=$?
  # Status 2: some mutants were missed. Status 3: some timed out. Every other status is a failure of the run itself.
  [[ $status == 0 || $status == 2 || $status == 3 ]] || exit "$status"
}

rm -rf target/mutants-both
mkdir -p target/mutants-both
mutants --shard "$1" --output target --
names=()
while IFS= read -r name; do
  # The name as a regular expression.
  names+=(--re "^$(sed 's/[][\\.*^$()+?{}|]/\\&/g' <<<"$name")\$")
done < target/mutants.out/missed.txt
((${#names[@]} == 0)) ||
  mutants "${names[@]}" --test-package purser-domain,purser-store --output target/mutants-both --
python3 - <<'PYTHON'
import json, pathlib, sys
read = lambda path: json.loads(path.read_text()) if path.exists() else {"caught": 0, "timeout": 0, "missed": 0}
own, both = (read(pathlib.Path("target", path, "outcomes.json")) for path in ("mutants.out", "mutants-both/mutants.out"))
judged, missed = own["caught"] + own["timeout"] + own["missed"], both["missed"]
print(f"mutants: {missed} of {judged} were missed ({100 * missed / max(1, judged):.1f} %)")
sys.exit(20 * missed > judged)
PYTHON
