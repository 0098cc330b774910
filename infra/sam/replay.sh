#!/usr/bin/env bash
# Replays recorded events against the functions that infra/sam/build.sh built, with SAM's runtime emulator. No Docker
# and no account is needed, and nothing leaves this machine. replay.py contains the checks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

[[ -x .venv/bin/sam ]] || { echo "replay: no SAM in .venv; pip install -r infra/sam/requirements.txt" >&2; exit 2; }
SAM_CLI_TELEMETRY=0 exec .venv/bin/python infra/sam/replay.py
