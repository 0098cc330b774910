#!/usr/bin/env bash
# Builds and deploys: infra/sam/deploy.sh [<environment of samconfig.toml>]. It is `sam build && sam deploy` with the tools
# of .venv, the lock file held to, the target for arm64 there, and the environment's own values (infra/sam/values.py), once
# infra/sam/account.py has nothing against it. docs/deploy.md is the guide.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

environment=${1:-default}
[[ -x .venv/bin/sam ]] || { echo "deploy: no SAM in .venv; run infra/setup.sh" >&2; exit 2; }
# A deployment is reproducible: it is built from a commit without local changes. deploy/*.toml is in none.
[[ -z $(git status --porcelain) ]] || { echo "deploy: the tree has changes that are in no commit" >&2; exit 1; }
values=$(.venv/bin/python infra/sam/values.py "$environment")
mapfile -t values <<< "$values"
# Before the build, which takes minutes, and before anything is made in the account.
.venv/bin/python infra/sam/account.py "$environment"
# A deployment has no known vulnerability. Skipping the check, without access to RustSec's database, is explicit.
if [[ ${SKIP_ADVISORIES:-} == 1 ]]; then
  echo "deploy: the check for known vulnerabilities is SKIPPED (SKIP_ADVISORIES=1)" >&2
else
  cargo deny --locked check advisories \
    || { echo "deploy: SKIP_ADVISORIES=1 deploys without the check for known vulnerabilities" >&2; exit 1; }
fi
export PATH="$PWD/.venv/bin:$PATH" CARGO_LAMBDA_COMPILER_EXTRA_ARGS=--locked
rustup target add aarch64-unknown-linux-gnu

infra/sbom.sh
sam build --config-env "$environment"
exec sam deploy --config-env "$environment" --parameter-overrides "${values[@]}"
