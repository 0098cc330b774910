#!/usr/bin/env bash
# Writes a CycloneDX 1.5 software bill of materials for each deployed program into target/sbom/<program>.cdx.json: every
# crate that is linked in, with its version, licence and SHA-256.
#
#   infra/sbom.sh [<target>]    the target is what a deployment ships unless given
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${1:-aarch64-unknown-linux-gnu} into=target/sbom
infra/setup.sh cyclonedx
rm -rf "$into"
mkdir -p "$into"
# cargo-cyclonedx writes a bill of materials next to each Cargo.toml of the workspace.
trap 'git ls-files --others --exclude-standard -- "*.cdx.json" | xargs --no-run-if-empty rm' EXIT
cargo cyclonedx --quiet --format json --spec-version 1.5 --describe binaries --no-build-deps --target "$target"

for manifest in functions/*/Cargo.toml functions/payments/lambda/Cargo.toml; do
  folder=$(dirname "$manifest")
  for bill in "$folder"/*_bin.cdx.json; do
    [[ -f $bill ]] || continue
    # References to the workspace's own crates contain the path of this checkout, which is removed.
    sed "s|$PWD/||g" "$bill" > "$into/$(basename "${bill%_bin.cdx.json}").cdx.json"
  done
done

# Several functions may run the same program.
programs=$(grep -o 'Binary: [a-z-]*' template.yaml | sort -u | wc -l)
written=$(find "$into" -name '*.cdx.json' | wc -l)
[[ $written == "$programs" ]] || { echo "sbom: $written bills for $programs programs" >&2; exit 1; }
for bill in "$into"/*.cdx.json; do
  # A bill of materials without the crate that every function links is wrong.
  grep -q 'pkg:cargo/lambda_runtime@' "$bill" || { echo "sbom: $bill has no lambda_runtime" >&2; exit 1; }
  printf '%-40s %4d crates\n' "$bill" "$(grep -c '"purl": "pkg:cargo/' "$bill")"
done
