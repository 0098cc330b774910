#!/usr/bin/env bash
# Builds the files of a release (infra/sam/release.py) from a commit without local changes and without known vulnerabilities.
#
#   infra/sam/build-release.sh <folder> <architecture> …     arm64, x86_64 or both, into an empty folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=${1:?a folder}
shift
# A release must be reproducible from its commit. deploy/*.toml is not part of any commit.
[[ -z $(git status --porcelain) ]] || { echo "build-release: the tree has changes that are in no commit" >&2; exit 1; }
# Files of an earlier build would get checksums too.
[[ -z $(ls -A "$folder" 2>/dev/null) ]] || { echo "build-release: $folder is not empty" >&2; exit 1; }
infra/setup.sh sam deny cyclonedx
# Skipping the check, without access to RustSec's database, is explicit.
if [[ ${SKIP_ADVISORIES:-} == 1 ]]; then
  echo "build-release: the check for known vulnerabilities is SKIPPED (SKIP_ADVISORIES=1)" >&2
else
  cargo deny --locked check advisories \
    || { echo "build-release: SKIP_ADVISORIES=1 builds without the check for known vulnerabilities" >&2; exit 1; }
fi

export PATH="$PWD/.venv/bin:$PATH"
mapfile -t programs < <(.venv/bin/python infra/sam/release.py programs)
for architecture in "$@"; do
  case $architecture in
    arm64) target=aarch64-unknown-linux-gnu ;;
    x86_64) target=x86_64-unknown-linux-gnu ;;
    *) echo "build-release: unknown architecture \`$architecture\`" >&2; exit 2 ;;
  esac
  built=.aws-sam/programs-$architecture
  rm -rf "$built"
  rustup target add "$target"
  # zig links both architectures against Lambda's version of the C library.
  cargo-lambda lambda build --release --locked "--${architecture/_/-}" --lambda-dir "$built" "${programs[@]/#/--bin=}"
  infra/sbom.sh "$target"
  cp target/sbom/*.cdx.json "$built"
  .venv/bin/python infra/sam/release.py write "$folder" "$architecture" "$built"
done
