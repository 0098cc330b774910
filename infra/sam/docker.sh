# Sourced by the scripts that run functions in containers.

# The name of Lambda's base image, as the SAM CLI will look for it.
base_image() {
  .venv/bin/python -c 'from samcli.local.docker.lambda_image import LambdaImage as image
print(image._INVOKE_REPO_PREFIX + "/provided:al2023-x86_64")'
}

# Says why containers can't be run here; says nothing, and fails, when they can.
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

# Uses the daemon that is running. Where there is none, starts one with a folder of its own, to be ended with
# stop_docker: its images and containers go with it.
start_docker() {
  docker info >/dev/null 2>&1 && return
  docker_folder=$(mktemp -d)
  # In a session of its own: Ctrl-C at a terminal must reach SAM first, whose containers it still has to remove.
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

# The address of this machine that containers see: the gateway of Docker's default bridge, which is its subnet's first
# address unless it says so itself.
docker_gateway() {
  docker network inspect bridge | python3 -c '
import ipaddress, json, sys
config = json.load(sys.stdin)[0]["IPAM"]["Config"][0]
print(config.get("Gateway") or next(ipaddress.ip_network(config["Subnet"]).hosts()))'
}

# Starts a local stack that containers reach, with its files in a folder, on whatever ports are free.
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

# The environment of `sam local` beside the template. It passes real credentials on to the functions if it finds any.
sam_surroundings() {
  unset AWS_PROFILE AWS_DEFAULT_PROFILE
  export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_SESSION_TOKEN=local AWS_DEFAULT_REGION=us-east-1
  export AWS_EC2_METADATA_DISABLED=true SAM_CLI_TELEMETRY=0
}

# One line of a stack's file.
from_stack() { # from_stack <folder> <member> [<member in it>]
  python3 -c 'import functools, json, sys; print(functools.reduce(lambda at, name: at[name], sys.argv[2:], json.load(open(sys.argv[1]))))' \
    "$1/stack.json" "${@:2}"
}
