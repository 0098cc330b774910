"""Starts the built functions as Lambda would and checks what only the built file can show; run by infra/sam/replay.sh.

 1. Recorded events through the runtime emulator: unknown routes and the API description, which need no AWS.
 2. Without its variables a function ends before it asks for work, with one line that names every one of them; and the
    template gives each function exactly those.
 3. So it does with a secret that is not what it should be; the line does not repeat the secret. Which ones there are is
    infra/local/tests/boot.rs.

What the functions answer to every other event is tests/it/events.rs. No AWS is reachable from here: endpoints point at
a closed port. Exit status: 0, all is well; 1, something is not; 2, there is nothing to run.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import emulate
from samcli.yamlhelper import yaml_parse

EVENTS = emulate.ROOT / "events"
BUILD = emulate.ROOT / ".aws-sam" / "build"
# No server listens on port 1, and only root could start one.
NOWHERE = "127.0.0.1:1"
# Limits have a default in the code, and so have the claim that entitles, the addresses of dashboard and API, who
# holds keys, which takes the rest where it is KMS, and what is for development alone; what else is named has not.
OPTIONAL = (
    "_APPROVALS", "_BYTES", "_CLAIM", "_CONFIRMATIONS", "_HOURS", "_MINUTES", "_PER_AGENT", "_PER_MINUTE", "_RANGE",
    "_SECONDS", "_SETTLEMENTS", "_UNITS", "_VALUE", "ACCEPT_PROVIDER_OK", "API_URL", "CUSTODY", "DASHBOARD_URL",
    "FACILITATOR_URL", "NOTICES_SENDER",
    "WALLET_KEYS_STACK", "WALLET_KEY_POLICY",
)
# The timeout for one function, including its start. A few seconds are usually enough.
PATIENCE = 30

problems = []


def main():
    # As in emulate.py, the started processes end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        template = yaml_parse((emulate.ROOT / "template.yaml").read_text())
        functions = {
            name: resource["Properties"].get("Environment", {}).get("Variables", {})
            for name, resource in template["Resources"].items()
            if resource["Type"] == "AWS::Serverless::Function"
        }
        bootstraps = {name: emulate.find_bootstrap(BUILD, name) for name in functions}
        emulator = emulate.find_emulator()
    except emulate.Absent as absent:
        print(f"replay: {absent}", file=sys.stderr)
        return 2

    for name in ("unknown-route", "wrong-method"):
        event = EVENTS / "catalog" / f"{name}.json"
        status, body, headers = replay(emulator, bootstraps["CatalogFunction"], event, {"CATALOG_TABLE": "catalog"})
        expect(event.name, status == 404 and body.get("error") == "not_found", f"{status} {body}")
        expect(f"{event.name}: x-request-id", headers.get("x-request-id"), headers)

    event = EVENTS / "catalog" / "openapi.json"
    status, body, headers = replay(emulator, bootstraps["CatalogFunction"], event, {"CATALOG_TABLE": "catalog"})
    expect(event.name, status == 200 and str(body.get("openapi")).startswith("3.1."), f"{status} {str(body)[:200]}")
    expect(f"{event.name}: etag, x-request-id", headers.get("etag") and headers.get("x-request-id"), headers)

    for name, variables in functions.items():
        refuses_to_start_without(name, bootstraps[name], variables)
    for name, variables in functions.items():
        refuses_to_start_with_bad_secrets(name, bootstraps[name], variables)

    print(f"replay: {len(problems)} problems" if problems else "replay: all is well", flush=True)
    return 1 if problems else 0


def expect(what, holds, otherwise):
    print(f"  {'ok    ' if holds else 'FAILED'}  {what}", flush=True)
    if not holds:
        print(f"          {otherwise}", flush=True)
        problems.append(what)


def surroundings(**variables):
    """Returns the environment of a function: nothing of the caller's environment, and no reachable network."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_SESSION_TOKEN": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
        "DYNAMODB_ENDPOINT": f"http://{NOWHERE}",
        "SECRETS_ENDPOINT": f"http://{NOWHERE}",
        "LAMBDA_ENDPOINT": f"http://{NOWHERE}",
        "KMS_ENDPOINT": f"http://{NOWHERE}",
        "EVENTBRIDGE_ENDPOINT": f"http://{NOWHERE}",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(PATIENCE - 1),
        **variables,
    }


def replay(emulator, bootstrap, event, variables):
    name = bootstrap.parent.name
    print(f"replay: {event.relative_to(EVENTS)} by {name}", flush=True)
    started = time.monotonic()
    environment = surroundings(AWS_LAMBDA_FUNCTION_NAME=name, **variables)
    try:
        answer = emulate.call(emulator, bootstrap, environment, event.read_bytes(), PATIENCE)
    except emulate.Failed as failed:
        expect(f"{name} answers", False, failed)
        return None, {}, {}
    print(f"  answered {time.monotonic() - started:.1f} s after its start", flush=True)
    # A function error has another form and no status.
    body = json.loads(answer.get("body") or "{}")
    return answer.get("statusCode"), body, answer.get("headers", {})


def refuses_to_start_without(name, bootstrap, variables):
    needed = sorted(variable for variable in variables if not variable.endswith(OPTIONAL))
    if not needed:
        return
    print(f"replay: {name} without {', '.join(needed)}", flush=True)
    line = refusal(bootstrap, {})
    if line is None:
        return
    named = {part.split("`")[1] for part in line.get("cause", "").split("; ") if part.endswith("` is not set")}
    # All functions are given the network, and not all miss it; of those that are given the pages' origin, one does.
    named = sorted(named - {"NETWORK", "DASHBOARD_URL"})
    expect("names exactly the variables that template.yaml sets", named == needed, f"{named}, not {needed}")


def refuses_to_start_with_bad_secrets(name, bootstrap, variables):
    if not any(variable.endswith("_SECRET_ARN") for variable in variables):
        return
    print(f"replay: {name} with secrets that are none", flush=True)
    words = "hunter2"
    manager = ThreadingHTTPServer(("127.0.0.1", 0), secrets_manager(words))
    threading.Thread(target=manager.serve_forever, daemon=True).start()
    plain = {"OIDC_ISSUER": f"http://{NOWHERE}"}
    values = {variable: plain.get(variable, "x") for variable in variables if not variable.endswith(OPTIONAL)}
    try:
        line = refusal(bootstrap, {"NETWORK": "base-sepolia", **values, "SECRETS_ENDPOINT": f"http://127.0.0.1:{manager.server_port}"})
    finally:
        manager.shutdown()
    if line is not None:
        expect("does not repeat the secret", words not in json.dumps(line), line)


def secrets_manager(text):
    """A stand-in for Secrets Manager in which every secret has this text."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps({"SecretString": text}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def refusal(bootstrap, variables):
    """Starts a function that must not start. Returns its only log line, or nothing if another error occurs."""
    # If the function requested an event, the request would be rejected, and that would be the line.
    environment = surroundings(
        AWS_LAMBDA_RUNTIME_API=NOWHERE,
        AWS_LAMBDA_FUNCTION_NAME=bootstrap.parent.name,
        AWS_LAMBDA_FUNCTION_MEMORY_SIZE="256",
        AWS_LAMBDA_FUNCTION_VERSION="1",
        AWS_LAMBDA_LOG_STREAM_NAME="replay",
        AWS_LAMBDA_LOG_GROUP_NAME="replay",
        # The issuer does not respond, which causes a warning that this check ignores.
        LOG_LEVEL="error",
    )
    environment.update(variables)
    try:
        ended = subprocess.run(
            [bootstrap], cwd=bootstrap.parent, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired as late:
        expect("ends", False, late)
        return None
    output = ended.stdout + ended.stderr
    expect("ends with a failure", ended.returncode > 0, ended.returncode)
    lines = output.splitlines()
    return json.loads(lines[0]) if expect_one_line(lines, output) else None


def expect_one_line(lines, output):
    try:
        holds = len(lines) == 1 and json.loads(lines[0])["level"] == "ERROR"
    except (ValueError, KeyError, TypeError):
        holds = False
    expect("says so in one ERROR line of JSON", holds, output)
    return holds


if __name__ == "__main__":
    sys.exit(main())
