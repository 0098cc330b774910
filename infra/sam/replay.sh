#!/usr/bin/env bash
# Replays golden events against the functions that infra/sam/build.sh built, under the runtime emulator that comes with
# SAM: no Docker, no account, nothing leaves this machine. The checks are in replay.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

[[ -x .venv/bin/sam ]] || { echo "replay: no SAM in .venv; pip install -r infra/sam/requirements.txt" >&2; exit 2; }
SAM_CLI_TELEMETRY=0 exec .venv/bin/python infra/sam/replay.py
