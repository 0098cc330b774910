#!/usr/bin/env bash
# Builds the client and tests it against the stack whose files are in $STACK_FOLDER; clients/test.sh starts one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
npm run --silent build
npm test --silent
