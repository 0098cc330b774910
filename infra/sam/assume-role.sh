#!/usr/bin/env bash
# Exchanges the identity of a GitHub Actions job for credentials of a role of infra/deployer.yaml, for the job's later steps.
#
#   infra/sam/assume-role.sh <role's ARN> <region>
set -euo pipefail
export AWS_REGION=$2

# The token is valid for some minutes, and the credentials for an hour.
credentials=$(curl -sSf -H "Authorization: bearer $ACTIONS_ID_TOKEN_REQUEST_TOKEN" "$ACTIONS_ID_TOKEN_REQUEST_URL&audience=sts.amazonaws.com" \
  | jq -je .value \
  | aws sts assume-role-with-web-identity --role-arn "$1" --role-session-name "purser-$GITHUB_RUN_ID" \
    --web-identity-token file:///dev/stdin --query 'Credentials.[AccessKeyId,SecretAccessKey,SessionToken]' --output text)
read -r id secret session <<< "$credentials"
printf '::add-mask::%s\n' "$id" "$secret" "$session"
printf '%s\n' "AWS_ACCESS_KEY_ID=$id" "AWS_SECRET_ACCESS_KEY=$secret" "AWS_SESSION_TOKEN=$session" \
  "AWS_REGION=$AWS_REGION" >> "$GITHUB_ENV"
