#!/usr/bin/env bash
# Deploys an environment of samconfig.toml, from release files. docs/deploy.md is the guide.
#
#   infra/sam/deploy.sh <environment> [<release>]          shows the changes, asks where samconfig.toml says so, and deploys
#   infra/sam/deploy.sh --plan <environment> [<release>]   stops before that; `infra/sam/changeset.py execute` deploys
#
# The release is a tag of the repository, whose files are downloaded; a folder, which is used as it is; or nothing: then the
# files are built here, which takes a Rust toolchain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# With --plan, only the ARN of the change set is printed to standard output.
exec 3>&1 >&2

plan=()
if [[ ${1:-} == --plan ]]; then plan=(--plan); shift; fi
environment=${1:-default} release=${2:-}
infra/setup.sh sam
export PATH="$PWD/.venv/bin:$PATH"
export SAM_CLI_TELEMETRY=0
mkdir -p .aws-sam
# The values are checked before a build, which takes minutes, and before anything is created in the account.
infra/sam/values.py "$environment" > /dev/null
infra/sam/account.py "${plan[@]}" "$environment"

if [[ -z $release ]]; then
  architecture=$(infra/sam/values.py "$environment" | sed -n 's/^Architecture="\(.*\)"$/\1/p')
  release=.aws-sam/release
  rm -rf "$release"
  infra/sam/build-release.sh "$release" "$architecture"
elif [[ ! -d $release ]]; then
  tag=$release release=.aws-sam/release-$release
  command -v gh >/dev/null \
    || { echo "deploy: downloading $tag takes the GitHub CLI (gh); or download its files and name their folder" >&2; exit 2; }
  rm -rf "$release"
  gh release download "$tag" --dir "$release"
  # The checksums are attested, and release.py compares them with the files.
  repository=$(gh repo view --json nameWithOwner --jq .nameWithOwner)
  gh attestation verify "$release/SHA256SUMS" --repo "$repository" --signer-workflow "$repository/.github/workflows/release.yml" \
    --source-ref "refs/tags/$tag" --deny-self-hosted-runners
fi
template=$(infra/sam/release.py check "$release" "$environment")

sam package --config-env "$environment" --resolve-s3 --template-file "$template" --output-template-file .aws-sam/packaged.yaml
changes=$(infra/sam/changeset.py create "$environment" .aws-sam/packaged.yaml)
if [[ -z $changes ]]; then exit; fi
if [[ ${#plan[@]} -gt 0 ]]; then echo "$changes" >&3; exit; fi
exec infra/sam/changeset.py confirm "$environment" "$changes"
