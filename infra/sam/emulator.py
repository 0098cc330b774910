"""An emulator of AWS on loopback for the tests of deployments: ministack, behind a proxy that adds what ministack
lacks.

The commands of a deployment run unchanged against the proxy. The proxy translates templates like CloudFormation,
removes what ministack does not support, and records the name of every call.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
from functools import cache
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import botocore.session
from samcli.yamlhelper import yaml_parse
from translate import NESTED, TEMPLATE, translated

MINISTACK = TEMPLATE.parent / ".venv-ministack" / "bin" / "python"
SERVE = TEMPLATE.parent / "infra" / "ministack" / "serve.py"
# ministack has neither policies of secrets nor managed logins.
UNKNOWN = ("AWS::Cognito::ManagedLoginBranding", "AWS::SecretsManager::ResourcePolicy")
TRANSFER = ("connection", "content-length", "content-md5", "expect", "host", "transfer-encoding")


class Emulator:
    """ministack and its proxy. `environment` is what a program needs to call the proxy, and `calls` has the names of
    the calls so far.
    """

    def __init__(self):
        self.calls = []
        port = free_port()
        # ministack without the proxy, for a test's own requests.
        self.direct = f"http://127.0.0.1:{port}"
        local = {"BIND_HOST": "127.0.0.1", "MINISTACK_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SFTP_ENABLED": "0", "IOT_MTLS_ENABLED": "0"}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([MINISTACK, SERVE], env=os.environ | local, **quiet)
        deadline = time.monotonic() + 60
        while not accepts(port):
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.process.kill()
                raise AssertionError("ministack does not start")
            time.sleep(0.1)
        self.proxy = ThreadingHTTPServer(("127.0.0.1", 0), proxy_of(port, self.calls))
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        unset = {"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"}
        self.environment = {name: value for name, value in os.environ.items() if name not in unset} | {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.proxy.server_port}", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_PAGER": "",
            # The proxy changes bodies, so the client must not compute checksums.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required", "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }  # fmt: skip

    def stop(self):
        self.proxy.shutdown()
        self.proxy.server_close()
        # ministack stores nothing that must survive.
        self.process.kill()
        self.process.wait(20)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def proxy_of(port, calls):
    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            calls.append(call_of(self.command, self.path, self.headers, body))
            if self.command == "PUT" and self.path.partition("?")[0].endswith(".template"):
                body = adapted(body.decode()).encode()
            elif b"Action=CreateChangeSet" in body:
                form = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
                if "TemplateBody" in form:
                    form["TemplateBody"] = adapted(form["TemplateBody"])
                body = urllib.parse.urlencode(form).encode()
            server = HTTPConnection("127.0.0.1", port, timeout=300)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in TRANSFER}
            server.request(self.command, self.path, body, headers | {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body))})
            response = server.getresponse()
            content = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("connection", "content-length", "date", "server", "transfer-encoding"):
                    self.send_header(name, value)
            length = response.getheader("Content-Length") if self.command == "HEAD" else len(content)
            self.send_header("Content-Length", str(length or 0))
            self.end_headers()
            self.wfile.write(content)
            server.close()

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = forward

        def log_message(self, *_):
            pass

    return Proxy


@cache
def adapted(text):
    """Returns a template as CloudFormation would translate it, without what ministack does not support. Translating
    takes seconds.
    """
    template = yaml_parse(text)
    if "Transform" in template:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "template.json"
            file.write_text(json.dumps(template))
            template = translated(file)
    for name, resource in list(template["Resources"].items()):
        if resource["Type"] in UNKNOWN or "Metrics" in resource.get("Properties", {}):
            # ministack does not support alarms on metric math either.
            del template["Resources"][name]
        elif resource["Type"] == NESTED:
            # ministack's `Ref` of a rule lacks the bus.
            resource["Properties"]["Parameters"] |= {rule: {"Ref": rule} for rule in ("NoticeEventsRule", "WebhookEventsRule")}
        elif policy := resource.pop("UpdatePolicy", {}).get("CodeDeployLambdaAliasUpdate"):
            # infra/ministack/serve.py, which stands for CodeDeploy, looks for this property.
            resource["Properties"]["DeploymentGroup"] = policy["DeploymentGroupName"]
        elif resource["Type"] == "AWS::Cognito::UserPool":
            # ministack creates temporary passwords that are shorter than the policy requires.
            resource["Properties"].pop("Policies", None)
    return json.dumps(template)


def call_of(method, path, headers, body):
    """Returns the service and the operation of a call, such as `s3 PutObject`."""
    scope = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", headers.get("Authorization", ""))
    service = scope[1] if scope else "unsigned"
    if target := headers.get("X-Amz-Target"):
        return f"{service} {target.rpartition('.')[2]}"
    if action := re.match(rb"Action=(\w+)", body):
        return f"{service} {action[1].decode()}"
    path, _, query = path.partition("?")
    given = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    for pattern, wanted, name in rest_operations(service, method):
        if pattern.fullmatch(path) and all(given.get(key, value) == value and key in given for key, value in wanted.items()):
            return f"{service} {name}"
    return f"{service} {method} {path}"


@cache
def rest_operations(service, method):
    """Returns the operations of a service with this method, each with the pattern of the path, the query and the name;
    the most specific first.
    """
    session, found = botocore.session.Session(), []
    named = {"ses": "sesv2", "tagging": "resourcegroupstaggingapi"}.get(service, service)
    if named not in session.get_available_services():
        return []
    model = session.get_service_model(named)
    for name in model.operation_names:
        http = model.operation_model(name).http
        # CopyObject has the same path as PutObject.
        if http["method"] != method or name == "CopyObject":
            continue
        path, _, query = http["requestUri"].partition("?")
        pattern = "".join(".+" if part.endswith("+}") else "[^/]+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{[^}]+\})", path))
        found.append((re.compile(pattern + "/?"), dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), name))
    return sorted(found, key=lambda each: (-len(each[1]), -len(each[0].pattern)))
