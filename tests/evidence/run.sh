#!/usr/bin/env bash
# Writes a sample of the evidence, and has it verified by tools of others: jose (npm), joserfc and aics-tlog (PyPI), and
# by `purser verify`. Without Python 3.12 (infra/setup.sh says so), those of Python are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

built=${CARGO_TARGET_DIR:-target}/debug
# Built with `--workspace`, as everything (Makefile).
[[ -n ${EVIDENCE_BUILT:-} ]] || cargo build --locked --quiet --workspace --example evidence_sample --bin purser
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sample=$work/sample
"$built/examples/evidence_sample" "$sample"

node tests/evidence/check.mjs "$sample"
if [[ -x .venv-evidence/bin/python ]]; then .venv-evidence/bin/python tests/evidence/check.py "$sample"; fi

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
