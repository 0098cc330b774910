#!/usr/bin/env bash
# Checks template.yaml and the nested infra/monitoring.generated.yaml without a cloud account, warnings being errors:
#   0. the nested template is what infra/sam/expand.py makes of infra/monitoring.yaml;
#   1. SAM can translate them;
#   2. cfn-lint accepts them as written (`--lint` replaces the translation, so both are needed);
#   3. cfn-lint accepts what SAM makes of them. As written, cfn-lint does not look into Policies and Environment:
#      only there does it see a reference to a table that does not exist, or an action that IAM does not know;
#   4. checkov misses nothing but what infra/sam/checkov/checkov.yaml says why to do without;
#   5. the roles allow what infra/sam/iam says, and nothing else; those that deploy, what infra/sam/deployer_test.py says;
#   6. the templates hold what infra/sam/template_test.py says of them;
#   7. they keep the limits that AWS enforces and emulators do not (infra/sam/limits.py);
#   8. infra/sam/account.py stops before what an account has no room for, and infra/sam/kept.py says what to do where it stops;
#   9. the previous release can be upgraded to them (infra/sam/upgrade.py).
#
#   infra/sam/check.sh              all of it
#   infra/sam/check.sh --quick      without checkov
#   infra/sam/check.sh --checkov    checkov alone
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

[[ -x .venv/bin/sam && -x .venv/bin/cfn-lint && -d infra/sam/iam/node_modules ]] \
  || { echo "check: no SAM or IAM simulator; run infra/setup.sh" >&2; exit 2; }

# Whatever the caller's profile is, this script must not reach an account.
unset AWS_PROFILE AWS_DEFAULT_PROFILE
export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_SESSION_TOKEN=local
export AWS_EC2_METADATA_DISABLED=true SAM_CLI_TELEMETRY=0

.venv/bin/python infra/sam/expand.py --check
.venv/bin/python infra/sam/deployer.py --check
mkdir -p .aws-sam
.venv/bin/python infra/sam/translate.py template.yaml > .aws-sam/translated.json
.venv/bin/python infra/sam/translate.py infra/monitoring.generated.yaml > .aws-sam/monitoring.json

if [[ ${1:-} != --quick ]]; then
  [[ -x .venv/checkov/bin/checkov ]] || { echo "check: no checkov; run infra/setup.sh checkov" >&2; exit 2; }
  .venv/checkov/bin/checkov --config-file infra/sam/checkov/checkov.yaml --file .aws-sam/translated.json .aws-sam/monitoring.json
  echo "the translated templates pass checkov"
fi
if [[ ${1:-} == --checkov ]]; then exit; fi

# SAM does not check a nested template.
for template in template.yaml infra/monitoring.generated.yaml; do
  .venv/bin/sam validate --region us-east-1 --template-file "$template"
  .venv/bin/sam validate --lint --region us-east-1 --template-file "$template"
done

.venv/bin/cfn-lint --regions us-east-1 --template .aws-sam/translated.json .aws-sam/monitoring.json infra/deployer.yaml
echo "the translated templates are valid CloudFormation"

node --test infra/sam/iam/roles.test.mjs
.venv/bin/python infra/sam/deployer_test.py
.venv/bin/python infra/sam/template_test.py
.venv/bin/python infra/sam/limits_test.py
.venv/bin/python infra/sam/account_test.py
.venv/bin/python infra/sam/kept_test.py
.venv/bin/python infra/sam/costs_test.py
.venv/bin/python infra/sam/upgrade_test.py
