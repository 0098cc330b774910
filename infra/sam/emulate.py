#!/usr/bin/env python3
"""Calls a built function as Lambda would, without Docker, and prints its response.

    infra/sam/emulate.py --function CatalogFunction --event events/catalog/unknown-route.json

Starts the runtime interface emulator that comes with SAM on free loopback ports, with the `bootstrap` that `sam build`
left for the function, posts the event and prints the response on stdout. The function's log goes to stderr.

The function gets the caller's environment: unlike `sam local` nothing is read from template.yaml. Real AWS credentials
are not passed on, unless --keep-credentials says so.

Exit status: 0, the function answered (whatever the HTTP status in its answer); 1, it failed, timed out or never
started; 2, there is nothing to run. Whatever happens, everything that was started has ended before this returns.
"""

import argparse
import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INVOKE = "/2015-03-31/functions/function/invocations"
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """The error if the function could not be called, or did not respond."""


class Absent(Exception):
    """The error if something that must exist before the call is missing."""


def main():
    arguments = parse_arguments()
    # A caller that gives up sends SIGTERM. As an exception, the signal runs the `finally` that cleans up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        emulator = find_emulator()
        bootstrap = find_bootstrap(arguments.build_dir, arguments.function)
        event = read_event(arguments.event)
        environment = function_environment(arguments)
        response = call(emulator, bootstrap, environment, event, arguments.timeout)
    except Absent as absent:
        print(f"emulate: {absent}", file=sys.stderr)
        return 2
    except Failed as failed:
        print(f"emulate: {failed}", file=sys.stderr)
        return 1
    print(json.dumps(response, indent=2, ensure_ascii=False))
    # The emulator responds 200 to a function error too. Only the body shows the error.
    return 1 if isinstance(response, dict) and "errorType" in response else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--function", required=True, help="logical id in template.yaml, as in CatalogFunction")
    parser.add_argument("--event", required=True, type=Path, help="event file, HTTP API payload format 2.0")
    parser.add_argument("--build-dir", type=Path, default=ROOT / ".aws-sam" / "build", help="what `sam build` made")
    parser.add_argument("--timeout", type=float, default=30, help="seconds for all of it, start included (default 30)")
    parser.add_argument("--keep-credentials", action="store_true", help="pass the caller's AWS credentials on")
    return parser.parse_args()


def find_emulator():
    machine = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower())
    found = sorted(ROOT.glob(f".venv/lib/python*/site-packages/samcli/local/rapid/aws-lambda-rie-{machine}"))
    if not found:
        raise Absent("no emulator in .venv: pip install -r infra/sam/requirements.txt")
    return found[-1]


def find_bootstrap(build_dir, function):
    bootstrap = (build_dir / function / "bootstrap").resolve()
    if not os.access(bootstrap, os.X_OK):
        raise Absent(f"`{bootstrap}` is not there: run infra/sam/build.sh first")
    return bootstrap


def read_event(path):
    try:
        event = path.read_bytes()
        json.loads(event)
    except (OSError, ValueError) as error:
        raise Absent(f"`{path}` is not an event: {error}") from error
    return event


def function_environment(arguments):
    environment = dict(os.environ)
    environment.update(
        AWS_LAMBDA_FUNCTION_NAME=arguments.function,
        # Whole seconds, and a little less than this program's own timeout, so that the emulator's response arrives
        # first.
        AWS_LAMBDA_FUNCTION_TIMEOUT=str(max(1, int(arguments.timeout) - 1)),
    )
    if not arguments.keep_credentials:
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
            environment.pop(name, None)
        # The emulator replaces a missing value by an empty value, with which the SDK would try to sign.
        environment.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local", AWS_SESSION_TOKEN="local")
    environment.setdefault("AWS_REGION", "us-east-1")
    environment.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    return environment


def call(emulator, bootstrap, environment, event, timeout):
    deadline = time.monotonic() + timeout
    # Another process may take the free port before the emulator does. In that case, another port is chosen.
    for _ in range(3):
        invoke_port, runtime_port = free_ports(2)
        process = start(emulator, bootstrap, environment, invoke_port, runtime_port)
        try:
            if listening(process, invoke_port, deadline) and listening(process, runtime_port, deadline):
                return post(invoke_port, event, deadline)
        finally:
            stop(process)
    raise Failed("the emulator did not start")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def start(emulator, bootstrap, environment, invoke_port, runtime_port):
    libc = ctypes.CDLL(None)

    def die_with_parent():
        # If this process is killed, the emulator gets SIGTERM and ends the function.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    return subprocess.Popen(
        [
            emulator,
            "--log-level", "error",
            "--runtime-interface-emulator-address", f"127.0.0.1:{invoke_port}",
            "--runtime-api-address", f"127.0.0.1:{runtime_port}",
            bootstrap,
        ],
        # Lambda also starts the function in the folder of its files.
        cwd=bootstrap.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        # The emulator gives the function its own process group. The session contains both, and nothing else.
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def listening(process, port, deadline):
    """Waits until the port is open. Returns false if the process ends first."""
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise Failed("the emulator did not open its ports in time")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.02)
    return False


def post(port, event, deadline):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{INVOKE}", data=event, headers={"content-type": "application/json"}
    )
    # The request is for loopback, so it must not use a proxy of the caller's environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    remaining = max(0.1, deadline - time.monotonic())
    try:
        with opener.open(request, timeout=remaining) as response:
            body = response.read()
    except urllib.error.HTTPError as error:
        raise Failed(f"the emulator answered {error.code}: {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise Failed(f"no answer in {remaining:.0f} s: {error}") from error
    try:
        return json.loads(body)
    except ValueError as error:
        # "Task timed out after ... seconds" has this form.
        raise Failed(f"not a JSON response: {body.decode(errors='replace')!r}") from error


def stop(process):
    """Asks the emulator to end, which ends the function. Then ends what is left of its session, by process id."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            pass
    for _ in range(100):
        left = session_members(process.pid)
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.poll()
        time.sleep(0.02)
    process.wait()


def session_members(session):
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # `pid (name) state ppid pgrp session ...`: the name may contain anything, so the line is split after the
            # name.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(stat.parent.name))
    return members


if __name__ == "__main__":
    sys.exit(main())
