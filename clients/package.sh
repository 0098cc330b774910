#!/usr/bin/env bash
# Builds the packages that a release of the clients publishes, with CycloneDX bills of materials:
#
#   clients/package.sh <folder>
#
#   <folder>/python   the sdist, and the wheel that is built from it
#   <folder>/npm      the tarball
#   <folder>/crates   the crates, which are compiled from their packages
#   <folder>/sbom     the bills of materials: of the wheel in a new environment, of the tarball, of the command line
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p "$1"
into=$(cd "$1" && pwd)
[[ -z $(ls -A "$into") ]] || { echo "package: $into is not empty" >&2; exit 1; }
mkdir "$into"/{python,npm,crates,sbom}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

infra/setup.sh python typescript cyclonedx

python=$PWD/.venv-clients/bin/python
(cd clients/python && "$python" -m hatchling build --target sdist --directory "$into/python")
tar -xzf "$into"/python/*.tar.gz -C "$work"
(cd "$work"/purser_client-* && "$python" -m hatchling build --target wheel --directory "$into/python")
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$into"/python/*.whl
"$work/venv/bin/pip" uninstall --quiet --yes pip setuptools
.venv-clients/bin/cyclonedx-py environment --pyproject clients/python/pyproject.toml --mc-type library \
  --output-file "$into/sbom/purser-client-python.cdx.json" "$work/venv/bin/python"

(cd clients/typescript && npm run --silent build && npm pack --silent --pack-destination "$into/npm" ./dist)
(cd clients/typescript && npm sbom --omit dev --package-lock-only --sbom-format cyclonedx) \
  > "$into/sbom/purser-client-npm.cdx.json"

# The checkout differs from its commit, because release.py has written the repository's address.
cargo package --locked --allow-dirty --package purser-client --package purser-domain --package purser-evidence --package purser-verify --package purser-mcp --package purser-cli
cp target/package/purser-{client,domain,evidence,verify,mcp,cli}-*.crate "$into/crates"
# cargo-cyclonedx writes a bill of materials next to each Cargo.toml of the workspace. Only the command line's bill is
# kept.
cargo cyclonedx --quiet --format json --spec-version 1.5 --describe binaries --no-build-deps
# References to the workspace's own crates contain the path of this checkout, which is removed.
sed "s|$PWD/||g" clients/cli/purser_bin.cdx.json > "$into/sbom/purser-cli.cdx.json"
cargo metadata --locked --no-deps --format-version 1 |
  "$python" -c 'import json, os, sys; [print(os.path.dirname(package["manifest_path"])) for package in json.load(sys.stdin)["packages"]]' |
  while read -r member; do rm -f "$member"/*.cdx.json; done
