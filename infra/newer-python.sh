#!/usr/bin/env bash
# Prints the path of a Python of version 3.12 or later, which some packages need. Fails if no such Python is installed.
set -euo pipefail

candidates=(python3 python3.14 python3.13 python3.12)
# pyenv's commands fail for versions that are not selected, but the versions themselves can be run.
if command -v pyenv >/dev/null; then candidates+=("$(pyenv root)"/versions/*/bin/python3); fi
for candidate in "${candidates[@]}"; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
    "$candidate" -c 'import sys; print(sys.executable)'
    exit
  fi
done
exit 1
