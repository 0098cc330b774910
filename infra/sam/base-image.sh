#!/usr/bin/env bash
# Makes sure that Docker has Lambda's base image for x86_64. If no registry can be reached, builds a stand-in under the
# same name from files of this machine, with everything that SAM and a Rust function need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source infra/sam/docker.sh

base_image=$(base_image)
docker image inspect "$base_image" >/dev/null 2>&1 && exit 0
if timeout 120 docker pull --quiet "$base_image" >/dev/null 2>&1; then
  echo "base image: pulled $base_image"
  exit 0
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
put() { # put <file> <its path in the image>
  install -D -m "$(stat -L -c %a "$1")" "$(readlink -f "$1")" "$root$2"
}
# Copies a program with its libraries, including the loader, to the paths where the loader looks for them.
put_program() { # put_program <name>
  local program library
  program=$(command -v "$1")
  put "$program" "/bin/$1"
  for library in $(ldd "$program" | grep -oE '/[^ ]+'); do put "$library" "$library"; done
}
# SAM adds the runtime emulator to the image with these three programs.
for program in sh mv chmod; do put_program "$program"; done
# The libraries that a Rust function needs besides the C library, whose version infra/sam/build.sh checks.
for library in libm.so.6 libgcc_s.so.1; do
  path=$(ldconfig -p | sed -n "s|.*$library (libc6,x86-64) => ||p" | head -n 1)
  put "$path" "$path"
done
# The root certificates, at their paths on Amazon Linux and on Debian.
put /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
put /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt
mkdir -p "$root"/{tmp,usr,var/task,var/runtime,var/rapid,proc,sys,dev}
chmod 1777 "$root/tmp"
ln -s /bin "$root/usr/bin"
tar -C "$root" -c . | docker import \
  --change 'WORKDIR /var/task' \
  --change 'ENV PATH=/bin:/var/task LAMBDA_TASK_ROOT=/var/task LAMBDA_RUNTIME_DIR=/var/runtime' \
  --change 'LABEL purser=stand-in' \
  - "$base_image" >/dev/null
echo "base image: no registry, so a stand-in was made of this machine's files"
