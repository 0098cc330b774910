#!/usr/bin/env bash
# Installs what the stack and the tests need and Cargo does not bring: Node and Python packages always, Debian packages
# by apt when run as root. Does nothing, quickly, when all is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

missing=()
for tool in cargo cc node npm python3; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
if ((${#missing[@]})); then
  say "missing: ${missing[*]}. Expected to be here: Rust 1.95, a C compiler, Node 20, Python 3.11."
  exit 1
fi
cargo nextest --version >/dev/null 2>&1 || {
  say "installing cargo-nextest, which runs the tests"
  cargo install --locked cargo-nextest
}

# A marker holds the hash of what was installed from, so that an unchanged package list costs nothing.
fresh() { [[ -f $1 && $(<"$1") == "$2" ]]; }
hash_of() { cat "$@" | sha256sum | cut -d ' ' -f 1; }

x402=infra/local/x402
want=$(hash_of $x402/package.json $x402/package-lock.json)
if ! fresh $x402/node_modules/.purser "$want"; then
  say "installing the x402 SDK and Anvil from npm"
  (cd $x402 && npm ci --no-progress --loglevel=error)
  echo "$want" > $x402/node_modules/.purser
fi

want=$(hash_of infra/sam/requirements.txt infra/sam/constraints.txt)
if ! fresh .venv/.purser "$want"; then
  say "installing SAM and cargo-lambda from PyPI"
  rm -rf .venv
  if ! python3 -m venv .venv 2>/dev/null; then
    if [[ $(id -u) == 0 ]]; then
      say "installing python3-venv from Debian"
      apt-get update -qq && apt-get install -y -qq python3-venv
    else
      say "python3 can't make virtual environments: apt-get install python3-venv"
      exit 1
    fi
    python3 -m venv .venv
  fi
  .venv/bin/pip install --quiet --disable-pip-version-check --requirement infra/sam/requirements.txt
  echo "$want" > .venv/.purser
fi
