#!/usr/bin/env bash
# Builds the client and tests it against the stack. clients/test.sh starts the stack, whose files are in $STACK_FOLDER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
npm run --silent build
npm test --silent
