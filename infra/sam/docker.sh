# Sourced by the scripts that run functions in containers.

# The name of Lambda's base image, as the SAM CLI will look for it.
base_image() {
  .venv/bin/python -c 'from samcli.local.docker.lambda_image import LambdaImage as image
print(image._INVOKE_REPO_PREFIX + "/provided:al2023-x86_64")'
}

# Prints why containers can't be run on this machine. If they can, prints nothing and fails.
why_no_docker() {
  if ! command -v docker >/dev/null; then
    echo "there is no docker command here (apt-get install docker.io)"
  elif docker info >/dev/null 2>&1; then
    return 1
  elif ! command -v dockerd >/dev/null; then
    echo "the Docker daemon is not running, and there is no dockerd here to start"
  elif [[ $(id -u) != 0 ]]; then
    echo "the Docker daemon is not running, and only root can start it"
  else
    return 1
  fi
}

# Uses the running Docker daemon. If none is running, starts a daemon with its own folder, which stop_docker ends
# together with its images and containers.
start_docker() {
  docker info >/dev/null 2>&1 && return
  docker_folder=$(mktemp -d)
  # The daemon has its own session, because Ctrl-C at a terminal must first reach SAM, which still has to remove its
  # containers.
  setsid dockerd --data-root "$docker_folder/data" --exec-root "$docker_folder/exec" --pidfile "$docker_folder/pid" \
    > "$docker_folder/log" 2>&1 &
  docker_pid=$!
  for _ in $(seq 120); do
    docker info >/dev/null 2>&1 && return
    kill -0 "$docker_pid" 2>/dev/null || break
    sleep 0.5
  done
  echo "dockerd did not start:" >&2
  tail -n 20 "$docker_folder/log" >&2
  return 1
}

stop_docker() {
  [[ -n ${docker_pid:-} ]] || return 0
  kill "$docker_pid" 2>/dev/null || true
  wait "$docker_pid" 2>/dev/null || true
  rm -rf "$docker_folder"
}

# Prints the address of this machine that containers see: the gateway of Docker's default bridge, which is the first
# address of the bridge's subnet unless configured otherwise.
docker_gateway() {
  docker network inspect bridge | python3 -c '
import ipaddress, json, sys
config = json.load(sys.stdin)[0]["IPAM"]["Config"][0]
print(config.get("Gateway") or next(ipaddress.ip_network(config["Subnet"]).hosts()))'
}

# Starts a local stack that containers can reach, on free ports, with its files in a folder.
start_stack() { # start_stack <folder>
  mkdir -p "$1"
  rm -f "$1/stack.json"
  local gateway
  gateway=$(docker_gateway)
  PORTS=free STACK_FOLDER=$1 BIND=$gateway setsid target/debug/stack > "$1/stack.log" 2>&1 &
  stack_pid=$!
  for _ in $(seq 240); do
    [[ -f $1/stack.json ]] && return
    kill -0 "$stack_pid" 2>/dev/null || break
    sleep 0.5
  done
  echo "the local stack did not start:" >&2
  tail -n 20 "$1/stack.log" >&2
  return 1
}

stop_stack() {
  [[ -n ${stack_pid:-} ]] || return 0
  kill -INT "$stack_pid" 2>/dev/null || true
  wait "$stack_pid" 2>/dev/null || true
}

# Sets the environment of `sam local`, in addition to the template. `sam local` would pass on real credentials to the
# functions.
sam_surroundings() {
  unset AWS_PROFILE AWS_DEFAULT_PROFILE
  export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_SESSION_TOKEN=local AWS_DEFAULT_REGION=us-east-1
  export AWS_EC2_METADATA_DISABLED=true SAM_CLI_TELEMETRY=0
}

# Prints a value in a stack's file.
from_stack() { # from_stack <folder> <member> [<member in it>]
  python3 -c 'import functools, json, sys; print(functools.reduce(lambda at, name: at[name], sys.argv[2:], json.load(open(sys.argv[1]))))' \
    "$1/stack.json" "${@:2}"
}
