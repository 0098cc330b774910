#!/usr/bin/env bash
# Renews every requirements.txt from the requirements.in beside it: all packages, each with the SHA-256 of its files, so that
# pip refuses a file that was replaced at the registry. Versions stay unless UPGRADE=1 is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools_of() { # tools_of <python> <folder>
  [[ -x $2/bin/pip-compile ]] && return
  "$1" -m venv "$2"
  "$2/bin/pip" install --quiet --disable-pip-version-check pip-tools==7.5.1
}
tools_of python3 target/pip-tools
# aics-tlog needs a newer Python, by which its own packages are resolved.
tools_of "$(infra/newer-python.sh)" target/pip-tools-newer
# The header of each file. The options keep the address of this machine's registry out of it.
export CUSTOM_COMPILE_COMMAND="infra/python-locks.sh"
options=(--quiet --generate-hashes --allow-unsafe --strip-extras --no-annotate --no-emit-options
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links ${UPGRADE:+--upgrade})
git ls-files -- '*requirements.in' | while read -r list; do
  echo "python-locks: $list"
  tools=target/pip-tools
  if [[ $list == tests/evidence/* ]]; then tools=target/pip-tools-newer; fi
  (cd "$(dirname "$list")" && "$OLDPWD/$tools/bin/pip-compile" "${options[@]}" --output-file requirements.txt requirements.in)
done
