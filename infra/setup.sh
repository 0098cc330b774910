#!/usr/bin/env bash
# Installs what the stack and the tests need and Cargo does not bring: Node and Python packages always, Debian packages
# by apt where it may (root, or a sudo that asks for no password). Does nothing, quickly, when all is there.
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
# Unoptimized it is built in a minute instead of many, and looks at everything in three seconds.
cargo deny --version >/dev/null 2>&1 || {
  say "installing cargo-deny, which judges the dependencies"
  cargo install --locked --debug cargo-deny@0.20.2
}

# A marker holds the hash of what was installed from, so that an unchanged package list costs nothing.
fresh() { [[ -f $1 && $(<"$1") == "$2" ]]; }
hash_of() { cat "$@" | sha256sum | cut -d ' ' -f 1; }

npm_packages() { # npm_packages <folder> <what it brings>
  local folder=$1 want
  want=$(hash_of "$folder/package.json" "$folder/package-lock.json")
  fresh "$folder/node_modules/.purser" "$want" && return
  say "installing $2 from npm"
  (cd "$folder" && npm ci --no-progress --loglevel=error)
  echo "$want" > "$folder/node_modules/.purser"
}
npm_packages infra/local/x402 "the x402 SDK and Anvil"
npm_packages tests/browser "playwright-core, which drives the browser of the tests,"

# apt-get as root: by ourselves, or by a sudo that asks for nothing.
as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi; }
apt_usable() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }
apt_install() {
  as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# The browser tests need Chromium, and a font to write with. Without them the tests are skipped, and all else works.
if ! command -v chromium >/dev/null; then
  if ! apt_usable; then
    say "chromium is not here, and installing it takes root: the browser tests will be skipped (apt-get install chromium)"
  elif say "installing Chromium from Debian, for the browser tests" && ! apt_install chromium fonts-liberation; then
    say "Chromium could not be installed: the browser tests will be skipped"
  fi
fi

python_packages() { # python_packages <environment> <folder of requirements.txt> <what it brings>
  local environment=$1 folder=$2 want
  want=$(hash_of "$folder/requirements.txt" "$folder/constraints.txt")
  fresh "$environment/.purser" "$want" && return
  say "installing $3 from PyPI"
  rm -rf "$environment"
  if ! python3 -m venv "$environment" 2>/dev/null; then
    if apt_usable; then
      say "installing python3-venv from Debian"
      apt_install python3-venv
    else
      say "python3 can't make virtual environments: apt-get install python3-venv"
      exit 1
    fi
    python3 -m venv "$environment"
  fi
  "$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$folder/requirements.txt"
  echo "$want" > "$environment/.purser"
}
python_packages .venv infra/sam "SAM and cargo-lambda"
# Within the other, which is removed with it.
python_packages .venv/checkov infra/sam/checkov "checkov"
python_packages .venv-hostile infra/hostile "schemathesis"
