#!/usr/bin/env bash
# Installs what a command needs and Cargo does not bring: Node and Python packages, programs of Cargo's, Debian packages by
# apt where it may (root, or a sudo that asks for no password). Does nothing, quickly, when all is there.
#
#   infra/setup.sh                   everything
#   infra/setup.sh <part> …          these parts alone, each one of `parts` below, or one of the groups run, test and rest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A part is a function of this name.
parts=(x402 mail webhooks ministack nextest deny cyclonedx mutants browser valgrind sam checkov iam schemathesis typescript python mcp evidence outside receivers generators)
run=(x402 mail)
test=(x402 mail webhooks nextest sam iam)
rest=(ministack checkov deny browser valgrind schemathesis typescript python mcp evidence outside receivers generators)

say() { printf 'setup: %s\n' "$*" >&2; }

need() { # need <command> …
  local missing=()
  for tool in "$@"; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  ((${#missing[@]} == 0)) && return
  say "missing: ${missing[*]}. README.md, "Run Purser on your machine", lists what is needed."
  exit 1
}

# A marker has the hash of the package list that was installed, so an unchanged list is installed only once.
fresh() { [[ -f $1 && $(<"$1") == "$2" ]]; }
hash_of() { cat "$@" | sha256sum | cut -d ' ' -f 1; }

npm_packages() { # npm_packages <folder> <what it brings>
  local folder=$1 want
  want=$(hash_of "$folder/package.json" "$folder/package-lock.json")
  fresh "$folder/node_modules/.purser" "$want" && return
  need node npm
  say "installing $2 from npm"
  # Install scripts of packages are untrusted programs, and none of these packages needs one.
  (cd "$folder" && npm ci --ignore-scripts --no-progress --no-audit --no-fund --loglevel=error)
  echo "$want" > "$folder/node_modules/.purser"
}

# Runs apt-get as root, or with a sudo that asks for no password.
as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi; }
apt_usable() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }
apt_install() {
  as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

python_packages() { # python_packages <environment> <folder of requirements.txt> <what it brings> [<the Python>]
  local environment=$1 folder=$2 python=${4:-python3} want
  want=$(hash_of "$folder/requirements.txt")
  fresh "$environment/.purser" "$want" && return
  need "$python"
  say "installing $3 from PyPI"
  rm -rf "$environment"
  if ! "$python" -m venv "$environment" 2>/dev/null; then
    if apt_usable; then
      say "installing python3-venv from Debian"
      apt_install python3-venv
    else
      say "python3 can't make virtual environments: apt-get install python3-venv"
      exit 1
    fi
    "$python" -m venv "$environment"
  fi
  # Files other than the locked ones (`infra/python-locks.sh`) are refused. The lock names every package, so that nothing is
  # resolved here; `pip check` reports one that is missing.
  "$environment/bin/pip" install --quiet --disable-pip-version-check --require-hashes --no-deps \
    --requirement "$folder/requirements.txt"
  "$environment/bin/pip" check --quiet
  echo "$want" > "$environment/.purser"
}

# Without optimization, these programs are built in a minute or two, and their own run time does not matter.
cargo_program() { # cargo_program <name> <version, or a part of it> <what for>
  need cargo cc
  cargo "${1#cargo-}" --version >/dev/null 2>&1 && return
  say "installing $1, $3"
  cargo install --quiet --locked --debug "$1@$2"
}

x402() {
  npm_packages infra/local/x402 "the x402 SDK and Anvil"
  # The stack starts the bundle only while no source is newer (infra/local/src/processes.rs).
  [[ -z $(find infra/local/x402 -maxdepth 1 -name '*.mjs' -newer infra/local/x402/stack.bundle.mjs 2>&1) ]] ||
    npm --prefix infra/local/x402 run --silent bundle
}
mail() { npm_packages infra/local/mail "the mail service of the local stack"; }
webhooks() { npm_packages infra/local/webhooks "the official library that verifies webhooks"; }
ministack() { python_packages .venv-ministack infra/ministack "ministack, which has queues and a bus of AWS's kind"; }
nextest() { cargo_program cargo-nextest 0.9.143 "which runs the tests"; }
deny() { cargo_program cargo-deny 0.20.2 "which judges the dependencies"; }
cyclonedx() { cargo_program cargo-cyclonedx 0.5.9 "which lists what a function is built of"; }
mutants() { cargo_program cargo-mutants 25.3.1 "which mutates the code"; }
sam() { python_packages .venv infra/sam "SAM and cargo-lambda"; }
# The environment is inside the other one, and is removed with it.
checkov() { python_packages .venv/checkov infra/sam/checkov "checkov"; }
iam() { npm_packages infra/sam/iam "the IAM simulator"; }
outside() { python_packages .venv-outside tests/outside "the security tests of others, and pandas"; }
receivers() {
  npm_packages tests/receivers "Express, for the webhook receivers of the documentation"
  python_packages .venv-receivers tests/receivers "FastAPI and Django REST framework, for the webhook receivers of the documentation"
}
generators() {
  npm_packages tests/generators "openapi-typescript"
  python_packages .venv-generators tests/generators "openapi-python-client and datamodel-code-generator"
}
schemathesis() { python_packages .venv-schemathesis infra/schemathesis "schemathesis"; }
typescript() { npm_packages clients/typescript "TypeScript and the official x402 client"; }
mcp() {
  npm_packages clients/mcp/test "the official MCP client, its conformance suite with Node 22, and its inspector"
  python_packages .venv-mcp clients/mcp/test "the official MCP client of Python"
}
evidence() {
  local newer
  npm_packages tests/evidence "the JOSE library that verifies the evidence"
  if newer=$(infra/newer-python.sh); then
    python_packages .venv-evidence tests/evidence "the libraries of Python that verify the evidence" "$newer"
  else
    rm -rf .venv-evidence
    say "there is no Python 3.12 or later: the evidence will not be verified by the libraries of Python"
  fi
}
python() { python_packages .venv-clients clients/python "the Python HTTP libraries, the official x402 package and mypy"; }

# The browser tests need Chromium and a font. Without them, only these tests are skipped.
browser() {
  npm_packages tests/browser "playwright-core, which drives the browser of the tests,"
  command -v chromium >/dev/null && return
  if ! apt_usable; then
    say "chromium is not here, and installing it takes root: the browser tests will be skipped (apt-get install chromium)"
  elif say "installing Chromium from Debian, for the browser tests" && ! apt_install chromium fonts-liberation; then
    say "Chromium could not be installed: the browser tests will be skipped"
  fi
}

# For counting instructions. Without valgrind, only these tests are skipped.
valgrind() {
  type -P valgrind >/dev/null && return
  if ! apt_usable; then
    say "valgrind is not here, and installing it takes root: no instructions will be counted (apt-get install valgrind)"
  elif say "installing valgrind from Debian, which counts instructions" && ! apt_install valgrind; then
    say "valgrind could not be installed: no instructions will be counted"
  fi
}

wanted=() compiles=
for name in "${@:-all}"; do
  case $name in
    all) wanted+=("${parts[@]}"); compiles=1 ;;
    run) wanted+=("${run[@]}"); compiles=1 ;;
    test) wanted+=("${test[@]}"); compiles=1 ;;
    rest) wanted+=("${rest[@]}"); compiles=1 ;;
    *)
      [[ " ${parts[*]} " == *" $name "* ]] || { say "no such part: $name; there are: run test rest ${parts[*]}"; exit 2; }
      wanted+=("$name")
      ;;
  esac
done
# A deployment of release files compiles nothing, so it needs no compiler.
if [[ -n $compiles ]]; then need cargo cc; fi
for part in "${wanted[@]}"; do "$part"; done
