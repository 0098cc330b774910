#!/usr/bin/env bash
# Has evidence verified by tools of others, jose (npm), joserfc and aics-tlog (PyPI), and by `purser verify`: a sample of
# all formats, what the function `events` states of two days, and the published sample. DuckDB (PyPI) runs the queries of
# docs/archive.md. Without Python 3.12 (infra/setup.sh says so), those of Python are left out.
#
#   tests/evidence/run.sh
#   tests/evidence/run.sh --publish    writes docs/evidence/sample anew
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

built=${CARGO_TARGET_DIR:-target}/debug
# Built with `--workspace`, as everything (Makefile).
[[ -n ${EVIDENCE_BUILT:-} ]] || cargo build --locked --quiet --workspace --example evidence_sample --example evidence_day --bin purser
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sample=$work/sample
day=$work/day
"$built/examples/evidence_day" "$day"
published=docs/evidence/sample
if [[ ${1:-} == --publish ]]; then
  cp "$day"/sample/* "$published/"
  exit
fi
"$built/examples/evidence_sample" "$sample"

node tests/evidence/check.mjs "$sample"
if [[ -x .venv-evidence/bin/python ]]; then
  .venv-evidence/bin/python tests/evidence/check.py "$sample"
  .venv-evidence/bin/python tests/evidence/day.py "$day"
  .venv-evidence/bin/python "$published/verify.py"
else
  echo "evidence: there is no .venv-evidence, so joserfc, aics-tlog and DuckDB are skipped (infra/setup.sh evidence)"
fi

for document in statement.jws proof.txt evidence.json; do
  "$built/purser" verify "$published/$document" --trust "$published/trust.json"
  "$built/purser" verify "$day/sample/$document" --trust "$day/log/trust.json"
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
