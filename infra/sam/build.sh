#!/usr/bin/env bash
# Builds every function of template.yaml as SAM does, without Docker, into .aws-sam/build/<LogicalId>/bootstrap.
#
#   infra/sam/build.sh          quick: what CI does, to prove that the template builds and to run infra/sam/emulate.py
#   infra/sam/build.sh --full   with the release profile of Cargo.toml, as it is shipped
#   infra/sam/build.sh --arm64  the same for the template's default architecture, through zig, into .aws-sam/arm64:
#                               what a deployment ships; prints the sizes
#
# None is for deploying: that is `make deploy`, or `sam build && sam deploy`.
#
# SAM runs for each function `cargo lambda build --release --bin <Binary>` in the workspace root, one after
# the other; cargo's target folder is shared, so that dependencies are compiled once and a second run takes seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
infra/setup.sh sam

mode=${1:---quick}
architecture=x86_64 into=.aws-sam/build
case $mode in
  --quick)
    # Fat LTO and one codegen unit optimize each function as a whole, on one core, to make it small and quick to start.
    # A check needs neither. Level 1 skips most optimizations, but signing stays fast enough for tests. Settings that
    # change behaviour are the same as in a release: overflow checks, unwinding, no debug assertions. Cargo prefers
    # these variables to Cargo.toml, and cargo-lambda sets only keys that Cargo.toml omits.
    export CARGO_PROFILE_RELEASE_LTO=off
    export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=${CARGO_PROFILE_RELEASE_OPT_LEVEL:-1}
    ;;
  --full) ;;
  --arm64)
    architecture=arm64 into=.aws-sam/arm64
    rustup target add aarch64-unknown-linux-gnu
    ;;
  *) echo "build: unknown argument \`$mode\`" >&2; exit 2 ;;
esac

[[ -x .venv/bin/sam && -x .venv/bin/cargo-lambda ]] \
  || { echo "build: no SAM or cargo-lambda in .venv; pip install -r infra/sam/requirements.txt" >&2; exit 2; }
# SAM looks for cargo and cargo-lambda on PATH.
export PATH="$PWD/.venv/bin:$PATH"

# Whatever the caller's profile is, this script must not reach an account.
unset AWS_PROFILE AWS_DEFAULT_PROFILE
export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_SESSION_TOKEN=local AWS_DEFAULT_REGION=us-east-1
export AWS_EC2_METADATA_DISABLED=true SAM_CLI_TELEMETRY=0

# SAM has no option for --locked.
export CARGO_LAMBDA_COMPILER_EXTRA_ARGS=--locked
# The host's own linker instead of zig, where the architecture is the host's.
[[ $architecture == arm64 ]] || export CARGO_LAMBDA_COMPILER=cargo

sam build --no-cached --template-file template.yaml --build-dir "$into" --parameter-overrides "Architecture=$architecture"

# SAM fails if a build fails, but does not check the following.
functions=$(grep -c 'Type: AWS::Serverless::Function$' template.yaml)
built=0
for bootstrap in "$into"/*/bootstrap; do
  [[ -x $bootstrap ]] || { echo "build: $bootstrap is not executable" >&2; exit 1; }
  # The program is linked against the host's C library. Amazon Linux 2023 has glibc 2.34, and can't start a program that
  # needs a newer version.
  needs=$(grep -aoE 'GLIBC_2\.[0-9]+' "$bootstrap" | sort -Vu | tail -n 1 || true)
  if [[ $(printf '%s\n' GLIBC_2.34 "$needs" | sort -V | tail -n 1) != GLIBC_2.34 ]]; then
    echo "build: $bootstrap needs $needs, Lambda has GLIBC_2.34" >&2
    exit 1
  fi
  printf '%-44s %9d bytes  %9d gzipped  %s\n' \
    "$bootstrap" "$(stat -c %s "$bootstrap")" "$(gzip -6 --stdout "$bootstrap" | wc -c)" "$needs"
  built=$((built + 1))
done
[[ -s $into/Monitoring/template.yaml ]] || { echo "build: the nested template is missing" >&2; exit 1; }
[[ $built -eq $functions ]] || { echo "build: $built of $functions functions were built" >&2; exit 1; }
