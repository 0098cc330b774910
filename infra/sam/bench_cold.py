"""Measures how the built functions start, beside a hello-world function of the same build; run by `infra/sam/bench_cold.py`.

 1. Builds all functions with the release profile, as SAM does, and infra/sam/hello (`--no-build`: measures what is there).
 2. Starts a local stack of its own, whose tables and secrets the functions read, and in front of its AWS somebody who
    speaks TLS.
 3. Starts each function a number of times in a new process, against a Runtime API of its own: SAM's emulator does not
    tell when a function first asks for work. Boot is from the start of the process until then, and the first call from
    there to its answer; an answer that is an error ends the run.

Wall time is the median, since this machine does other things too; CPU time is what a small Lambda pays for, boot and
first call together. Memory is the most that the process ever held. AWS is plain HTTP here, but for those that are
started once more with TLS: `hello-tls`, which makes one call and nothing else, and payments, whose first authorization is
held to three times a hello-world's boot and such a call, and shown where KMS has the wallets' keys. These are started more
often: fifteen starts scatter by a tenth.
The figures go to target/bench/cold.jsonl.

Exit status: 0; 1, something failed or grew beyond its limit; 2, there is nothing to measure.
"""

import argparse
import contextlib
import datetime
import gzip
import ipaddress
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import emulate
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from samcli.yamlhelper import yaml_parse

ROOT = emulate.ROOT
BUILD = ROOT / ".aws-sam" / "build"
# The first call of each function, which is its most common call.
EVENTS = {
    "CatalogFunction": "catalog/list-services",
    "PaymentsFunction": "payments/authorize",
    "AgentsFunction": "agents/get-me",
    "PeopleFunction": "people/list-agents",
    "InternalFunction": "internal/list-services",
    "ProbeFunction": "probe/every-minute",
    "ReconcileFunction": "reconcile/every-minute",
    "EventsFunction": "events/every-minute",
    "HistoryFunction": "history/ledger-stream",
    "NoticesFunction": "notices/what-happened",
    "WebhooksFunction": "webhooks/what-happened",
    "McpFunction": "mcp/list-tools",
    "OauthFunction": "oauth/token-unknown-code",
}
# Limits in bytes of gzip, which is how a deployment package is sent. Payments also contains KMS's client, for either
# custody.
LIMITS = {"PaymentsFunction": 4_500_000, "CatalogFunction": 3_000_000}
# The limit of a first authorization, as a multiple of a hello-world's boot with one TLS call.
LIMIT_OF_FIRST = 3
# The paths on Amazon Linux and on Debian.
AUTHORITIES = ["/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt"]
FIGURES = ROOT / "target" / "bench" / "cold.jsonl"
PATIENCE = 30


class Runtime:
    """The Runtime API for one process. It hands out one event, and records what the process sends and when."""

    def __init__(self, event):
        runtime = self
        self.asked = threading.Event()
        self.answered = threading.Event()
        self.asked_at = self.answered_at = self.answer = None
        self.closed = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if runtime.asked.is_set():
                    # The process gets one event. When it requests another event, it waits until the server ends.
                    runtime.closed.wait()
                    return
                runtime.asked_at = time.perf_counter()
                runtime.asked.set()
                self.send_response(200)
                self.send_header("lambda-runtime-aws-request-id", str(uuid.uuid4()))
                self.send_header("lambda-runtime-deadline-ms", str(int((time.time() + PATIENCE) * 1000)))
                self.send_header("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:bench")
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(event)))
                self.end_headers()
                self.wfile.write(event)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                runtime.answered_at = time.perf_counter()
                runtime.answer = body if self.path.endswith("/response") else None
                self.send_response(202)
                self.send_header("content-length", "0")
                self.end_headers()
                runtime.answered.set()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A function that is ended during a request closes the connection.
        self.server.handle_error = lambda *_: None
        # The server checks twenty times a second whether it should stop. The default of half a second would dominate a
        # run.
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-build", action="store_true", help="measure what was built before")
    parser.add_argument("--runs", type=int, default=15, help="starts of each function (default 15)")
    parser.add_argument("--compared", type=int, default=100, help="starts of the two whose ratio is judged, if more than that (default 100)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if not arguments.no_build:
        build()
    try:
        functions = variables_of_template()
        bootstraps = {name: emulate.find_bootstrap(BUILD, name) for name in functions}
        for name in ("hello", "hello-tls"):
            bootstraps[name] = emulate.find_bootstrap(ROOT / "target" / "lambda", name)
        for name in PAYMENTS:
            bootstraps[name] = bootstraps["PaymentsFunction"]
    except emulate.Absent as absent:
        print(f"bench-cold: {absent}", file=sys.stderr)
        return 2
    with contextlib.ExitStack() as started:
        try:
            stacks = {custody: started.enter_context(contextlib.closing(Stack(custody))) for custody in CUSTODIES}
            starts = {name: [] for name in ("hello", "hello-tls", *functions, *PAYMENTS)}
            # The functions take turns, so that other work on this machine affects all of them alike.
            for turn in range(max(arguments.runs, arguments.compared) + 1):
                for name in starts if turn <= arguments.runs else ("hello-tls", *OVER_TLS):
                    function = "PaymentsFunction" if name in PAYMENTS else name
                    stack = stacks[PAYMENTS.get(name, "seed")]
                    given_to = {variable: stack.given.get(variable, "") for variable in functions.get(function, [])}
                    if name in OVER_TLS:
                        given_to |= stack.over_tls
                    if name == "hello-tls":
                        given_to = {"TLS_URL": stack.over_tls["DYNAMODB_ENDPOINT"], **stack.tls.trust}
                    event = event_of(function, stack.known) if function in EVENTS else b"{}"
                    starts[name].append(start(bootstraps[name], given_to, event))
        except Failed as failed:
            print(f"bench-cold: {failed}", file=sys.stderr)
            return 1
    # The first run of each function is dropped, because a cold disk says nothing about Lambda.
    rows = {name: measured(bootstraps[name], starts[name][1:]) for name in starts}
    table(rows)
    late = write(rows)
    if late:
        print(f"bench-cold: {late}", file=sys.stderr)
    grown = [name for name, limit in LIMITS.items() if rows[name]["gzip"] >= limit]
    for name in grown:
        print(f"bench-cold: {name} is {rows[name]['gzip']} bytes of gzip; {LIMITS[name]} is its limit", file=sys.stderr)
    return 1 if grown or late else 0


# The custodies with which payments is started, and once more with TLS between payments and AWS.
CUSTODIES = ("seed", "kms")
OVER_TLS = ("payments over TLS", "payments over TLS, keys in KMS")
PAYMENTS = {OVER_TLS[0]: "seed", "payments, keys in KMS": "kms", OVER_TLS[1]: "kms"}


class Stack:
    """A local stack with this custody, its stack file, and a TLS proxy in front of its AWS."""

    def __init__(self, custody):
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        self.process = start_stack(folder, custody)
        self.known = json.loads((folder / "stack.json").read_text())
        self.given = json.loads((folder / "functions.json").read_text())["Parameters"]
        endpoints = ["DYNAMODB_ENDPOINT", "SECRETS_ENDPOINT", "KMS_ENDPOINT"]
        self.tls = Tls(folder, [self.given[name] for name in endpoints])
        self.over_tls = {**dict(zip(endpoints, self.tls.urls)), **self.tls.trust}

    def close(self):
        self.tls.close()
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.folder.cleanup()


class Tls:
    """A TLS proxy in front of these addresses. With `trust`, a function accepts its certificate."""

    def __init__(self, folder, upstreams):
        certificate, key = folder / "tls.pem", folder / "tls.key"
        make_certificate(certificate, key)
        # The certificate is added to the system's authorities, because a function must read these too.
        authorities = [Path(path).read_text() for path in AUTHORITIES if Path(path).exists()][:1]
        bundle = folder / "authorities.pem"
        bundle.write_text("".join([*authorities, certificate.read_text()]))
        self.trust = {"SSL_CERT_FILE": str(bundle)}
        upstreams = [upstream.removeprefix("http://") for upstream in upstreams]
        command = [ROOT / "target/load/tls", certificate, key, *upstreams]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.urls = [f"https://{self.process.stdout.readline().strip()}" for _ in upstreams]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def make_certificate(certificate, key):
    """Creates a self-signed certificate for 127.0.0.1."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench-cold")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


class Failed(Exception):
    """The error if a function did not start or its first call failed."""


def build():
    subprocess.run([ROOT / "infra/sam/build.sh", "--full"], check=True)
    # The same environment with which build.sh lets SAM build the other functions.
    environment = {
        **os.environ,
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "CARGO_LAMBDA_COMPILER": "cargo",
        "CARGO_LAMBDA_COMPILER_EXTRA_ARGS": "--locked",
    }
    command = ["cargo", "lambda", "build", "--release", "--package", "purser-hello"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    subprocess.run(["cargo", "build", "--locked", "--profile", "load", "--package", "purser-local", "--bin", "stack", "--bin", "tls"], cwd=ROOT, check=True)


def variables_of_template():
    template = yaml_parse((ROOT / "template.yaml").read_text())
    common = template["Globals"]["Function"].get("Environment", {}).get("Variables", {})
    return {
        name: [*common, *resource["Properties"].get("Environment", {}).get("Variables", {})]
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    }


def start_stack(folder, custody):
    log = open(folder / "stack.log", "w")
    environment = {**os.environ, "PORTS": "free", "STACK_FOLDER": str(folder), "CUSTODY": custody}
    stack = subprocess.Popen([ROOT / "target/load/stack"], env=environment, stdout=log, stderr=log)
    for _ in range(240):
        # The stack writes this file last.
        if (folder / "stack.json").exists():
            # The stack's own schedule probes and reconciles at once, which must not be measured.
            time.sleep(3)
            return stack
        if stack.poll() is not None:
            break
        time.sleep(0.5)
    stack.kill()
    sys.exit(f"bench-cold: the local stack did not start: {(folder / 'stack.log').read_text()[-2000:]}")


def event_of(function, stack):
    text = (ROOT / "events" / f"{EVENTS[function]}.json").read_text()
    fields = {
        "agent_key": stack["agent"]["key"],
        "agent_id": stack["agent"]["agent_id"],
        "session_token": stack["user"]["token"],
        "internal_token": stack["internal_token"],
    }
    for name, value in fields.items():
        text = text.replace("{{%s}}" % name, value)
    event = json.loads(text)
    # Each start makes its own payment.
    if function == "PaymentsFunction":
        event["body"] = json.dumps({**json.loads(event["body"]), "idempotency_key": str(uuid.uuid4())})
    return json.dumps(event).encode()


def measured(bootstrap, starts):
    middle = {name: statistics.median(start[name] for start in starts) for name in starts[0]}
    data = bootstrap.read_bytes()
    # Level 6, the default of `zip`.
    return {"binary": len(data), "gzip": len(gzip.compress(data, 6)), **middle}


def start(bootstrap, variables, event):
    runtime = Runtime(event)
    name = bootstrap.parent.name
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{runtime.server.server_port}",
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_LOG_STREAM_NAME": "bench",
        "AWS_LAMBDA_LOG_GROUP_NAME": "bench",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        **variables,
    }
    began = time.perf_counter()
    process = subprocess.Popen(
        [bootstrap], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        if not (runtime.asked.wait(PATIENCE) and runtime.answered.wait(PATIENCE)):
            process.kill()
            raise Failed(f"{name} did not answer: {process.stdout.read().decode(errors='replace')[-2000:]}")
        answer = runtime.answer and json.loads(runtime.answer)
        status = answer.get("statusCode") if isinstance(answer, dict) else 200
        if runtime.answer is None or status not in (200, 404):
            raise Failed(f"{name} answered {answer}")
        held = Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        process.kill()
        # The CPU time until then, more exactly than in /proc, which counts hundredths of a second. (The memory in
        # `used` is the memory of this process when it created the child.)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return {
            "boot": (runtime.asked_at - began) * 1000,
            "first": (runtime.answered_at - runtime.asked_at) * 1000,
            "cpu": (used.ru_utime + used.ru_stime) * 1000,
            # In kilobytes of 1,024 bytes.
            "memory": int(held) * 1024,
        }
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        runtime.close()


def table(rows):
    columns = [("binary", "binary MB", 1e6), ("gzip", "gzip MB", 1e6), ("boot", "boot ms", 1),
               ("first", "first call ms", 1), ("cpu", "CPU ms", 1), ("memory", "memory MB", 1e6)]
    print(f"\n{'':<18}" + "".join(f"{title:>22}" for _, title, _ in columns))
    hello = rows["hello"]
    for name, row in rows.items():
        cells = []
        for key, _, unit in columns:
            times = f"{row[key] / hello[key]:.1f} x" if hello[key] else "-"
            cells.append(f"{f'{row[key] / unit:.2f} ({times})':>22}")
        print(f"{name.removesuffix('Function').lower():<18}" + "".join(cells))
    print("(… x): as many times hello-world's\n", flush=True)


def write(rows):
    """Writes the figures for `make bench`. Returns the functions that exceed their limit, if any."""
    lines = []
    for name, row in rows.items():
        line = {"group": "starts", "name": name.removesuffix("Function").lower(), **row}
        if name in LIMITS:
            line["gzip_limit"] = LIMITS[name]
        lines.append(line)
    floor = rows["hello-tls"]["boot"] + rows["hello-tls"]["first"]
    late = []
    for name in OVER_TLS:
        first = rows[name]["boot"] + rows[name]["first"]
        ratio = first / floor
        line = {
            "group": "first authorization",
            "name": name.replace("payments", "payments: boot and first authorize,", 1),
            "median_ns": round(first * 1e6),
            "reference": "boot of a hello-world and one TLS call",
            "reference_ns": round(floor * 1e6),
            "ratio": round(ratio, 3),
        }
        # With KMS there is one more service to connect to.
        if PAYMENTS[name] == "seed":
            line["limit"] = LIMIT_OF_FIRST
            late += [f"{name} takes {ratio:.2f} x, more than {LIMIT_OF_FIRST} x"] if ratio > LIMIT_OF_FIRST else []
        lines.append(line)
        print(f"first authorization, {name}: {first:.1f} ms, {ratio:.2f} x a hello-world with one TLS call", flush=True)
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "; ".join(late)


if __name__ == "__main__":
    sys.exit(main())
