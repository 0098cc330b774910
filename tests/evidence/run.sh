#!/usr/bin/env bash
# Verifies evidence with third-party tools (jose of npm, joserfc and aics-tlog of PyPI) and with `purser verify`: a
# sample of all formats, the evidence of two days by the function `events`, and the published sample (a payment, a block
# and an approved request). DuckDB (PyPI) runs docs/archive/duckdb.sql. Without Python 3.12, which infra/setup.sh
# reports, the Python tools are skipped.
#
#   tests/evidence/run.sh
#   tests/evidence/run.sh --publish    replaces docs/evidence/sample by evidence of a local stack, whose keys are then gone
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

published=docs/evidence/sample
if [[ ${1:-} == --publish ]]; then
  SAMPLE=$PWD/$published cargo test --locked --quiet --package purser-tests --test it -- \
    --exact people::statements::evidence_of_each_result_verifies_with_its_checks_and_inputs
  exit
fi
built=${CARGO_TARGET_DIR:-target}/debug
# Like every build in the Makefile, this one uses `--workspace`.
[[ -n ${EVIDENCE_BUILT:-} ]] || cargo build --locked --quiet --workspace --example evidence_sample --example evidence_day --bin purser
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sample=$work/sample
day=$work/day
"$built/examples/evidence_day" "$day"
"$built/examples/evidence_sample" "$sample"

node tests/evidence/check.mjs "$sample"
for file in receipt block escalation; do node tests/evidence/evidence.mjs "$published/$file.json" "$published/jwks.json"; done
if [[ -x .venv-evidence/bin/python ]]; then
  .venv-evidence/bin/python tests/evidence/check.py "$sample"
  .venv-evidence/bin/python tests/evidence/day.py "$day"
  .venv-evidence/bin/python "$published/verify.py"
else
  echo "evidence: there is no .venv-evidence, so joserfc, aics-tlog and DuckDB are skipped (infra/setup.sh evidence)"
fi

for document in statement.jws proof.txt receipt.json block.json escalation.json; do
  "$built/purser" verify "$published/$document" --trust "$published/trust.json"
done

for document in statement.jws proof.txt; do "$built/purser" verify "$sample/$document" --trust "$sample/trust.json"; done

exits() { # exits <code> <file of the sample> <sed's change of it>
  local code=0
  sed "$3" "$sample/$2" > "$work/changed"
  "$built/purser" verify "$work/changed" --trust "$sample/trust.json" > "$work/said" 2>&1 || code=$?
  [[ $code == "$1" ]] || { echo "evidence: $3 of $2 exits with $code instead of $1"; cat "$work/said"; return 1; }
}
exits 6 proof.txt 's/^index 290$/index 289/'
exits 6 proof.txt 's/^300$/301/'
exits 6 proof.txt '/^— witness/d'
exits 6 statement.jws '$ s/$/\n/'
exits 6 statement.jws 's/\./A./'
exits 7 proof.txt 's/^index 290$/index 0290/'
exits 7 statement.jws 's/\./ /'
echo "purser verify: changed documents are refused"
