"""Runs agent-security-harness against the local stack, and compares the results with expected.json.

The harness has no approval protocol of its own. Its `approve` and `call` operations and the approval requests of its
floods are translated into `POST /x402/authorize` and the API of the user. A call counts as executed if Purser has
stored a settlement for it.

The stack is in the folder $STACK_FOLDER.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlencode

from protocol_tests.approval_binding_harness import ApprovalBindingHarness
from protocol_tests.hitl_harness import HITLSecurityTests
from protocol_tests.x402_merchant import PaymentRequirements, SyntheticMerchant

HERE = Path(__file__).resolve().parent
STACK = json.loads((Path(os.environ["STACK_FOLDER"]) / "stack.json").read_text())
BASE = STACK["base_url"]
EXPECTED = json.loads((HERE / "expected.json").read_text())


def call(method, path, body=None, token=None):
    """Sends a request; returns the status and the body."""
    headers = {"Content-Type": "application/json", "If-Match": "*"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    url = path if path.startswith("http") else BASE + path
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"{}")


def done(answer):
    status, body = answer
    assert status in (200, 201), (status, body)
    return body


class Owner:
    """The demo owner, who decides on approvals."""

    def __init__(self):
        self.token = done(call("POST", "/_local/token", {}))["token"]

    def agent(self, name, rules=()):
        """Creates an agent with money and with these rules."""
        made = done(call("POST", "/agents", {"name": name}, self.token))
        path = f"/agents/{made['agent_id']}"
        call("POST", "/_local/fund", {"wallet_address": made["wallet_address"], "units": 1_000_000_000})
        for rule in rules:
            done(call("POST", f"{path}/rules", rule, self.token))
        return Agent(self, path, done(call("POST", f"{path}/keys", {}, self.token))["key"])


class Agent:
    """An agent that buys from the local provider."""

    def __init__(self, owner, path, key):
        self.owner, self.path, self.key = owner, path, key

    def offer(self, url):
        """Returns the provider's payment requirements for a call."""
        try:
            urllib.request.urlopen(url, timeout=30)
        except urllib.error.HTTPError as wanted:
            return json.loads(base64.b64decode(wanted.headers["PAYMENT-REQUIRED"]))
        raise AssertionError("the provider wants no payment")

    def authorize(self, url, approval=None, requirement=None):
        """Requests the payment for a call."""
        body = {
            "payment_requirement": requirement or self.offer(url),
            "max_payment_units": 1_000_000,
            "original_request": {"method": "GET", "url": url},
            "idempotency_key": str(uuid.uuid4()),
            "metadata": {"reason": "the harness asks for it"},
        }
        if approval:
            body["approval_id"] = approval
        return call("POST", "/x402/authorize", body, self.key)

    def rule(self, rule):
        """Adds a rule to the agent."""
        return done(call("POST", f"{self.path}/rules", rule, self.owner.token))

    def approval(self, approval):
        """Returns an approval as the user sees it, and the position of the approval in the queue."""
        waiting = done(call("GET", "/approvals?status=pending", None, self.owner.token))["approvals"]
        place, row = next((place, row) for place, row in enumerate(waiting, 1) if row["approval_id"] == approval)
        return {**row, "queue_position": place}

    def decide(self, approval, verdict):
        """Sends the user's decision."""
        return call("POST", f"{self.path}/approvals/{approval}/{verdict}", {}, self.owner.token)

    def paid(self):
        """Returns the ids of the stored settlements."""
        rows = done(call("GET", f"{self.path}/settlements?limit=100", None, self.key))["settlements"]
        return {row["id"] for row in rows}


def weather(args):
    """The paid call that represents a tool call with these arguments."""
    return f"{STACK['provider_url']}/weather?" + urlencode({"args": json.dumps(args, sort_keys=True)})


def search(args):
    """A paid call of another category, which a rule can deny."""
    return f"{STACK['provider_url']}/search?" + urlencode({"args": json.dumps(args, sort_keys=True)})


class ApprovalTarget:
    """The five operations of the approval-binding tests."""

    def __init__(self, owner):
        self.agent = owner.agent("outside-approvals", [{"kind": "approval_required"}])
        self.denied, self.executed, self.approvals = [], [], []

    def url(self, args):
        return search(args) if args in self.denied else weather(args)

    def __call__(self, request):
        args = request.get("args")
        match request["op"]:
            case "profile":
                return {"_status": 200, "single_use": True}
            case "declare":
                self.denied.append(request["deny"]["args"])
                self.agent.rule({"kind": "category_block", "categories": ["search"]})
                return {"_status": 200, "declared": True}
            case "approve":
                status, answer = self.agent.authorize(self.url(args))
                if status != 402 or answer["error"] != "approval_required":
                    return {"_status": status, "approved": False, **answer}
                self.approvals.append(answer["approval_id"])
                status, answer = self.agent.decide(self.approvals[-1], "approve")
                return {"_status": status, "approved": status == 200}
            case "call":
                # The agent tries each of its approvals, and then a payment without an approval.
                for approval in [*reversed(self.approvals), None]:
                    status, answer = self.agent.authorize(self.url(args), approval)
                    if status == 200:
                        self.executed.append({"tool": request["tool"], "args": args, "id": answer["settlement_id"]})
                        break
                return {"_status": status, **answer}
            case "executions":
                stored = self.agent.paid()
                assert stored == {one["id"] for one in self.executed}, "what was answered is what is stored"
                return {"_status": 200, "executions": [{"tool": one["tool"], "args": one["args"]} for one in self.executed]}


class Questions(BaseHTTPRequestHandler):
    """The endpoint `approvals/request` of the floods: each approval request is shown to the user as Purser does it."""

    agent = None

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["method"] != "approvals/request":
            return self.answer(404, {"error": {"code": -32601, "message": "agents do not talk to people here"}})
        asked = request["params"]
        verdict = asked.pop("decision", None)
        status, answer = self.agent.authorize(weather(asked))
        if status != 402 or answer["error"] != "approval_required":
            return self.answer(status, answer)
        shown = self.agent.approval(answer["approval_id"])
        shown["call"]["url"] = unquote(shown["call"]["url"])
        if shown["asked_before"]:
            shown["prior"] = "the same call was asked about before"
        if verdict == "deny":
            self.agent.decide(answer["approval_id"], "reject")
        return self.answer(200, {**shown, "result": shown})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def serve(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def verdict(result):
    inconclusive = result.get("not_evaluated") or str(result.get("details", "")).startswith("INCONCLUSIVE")
    return "inconclusive" if inconclusive else "pass" if result["passed"] else "fail"


def mcp(owner):
    """Runs the attacks on an MCP server."""
    agent = owner.agent("outside-mcp")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "protocol_tests.mcp_harness", "--transport", "http", "--url", f"{BASE}/mcp"]
        command += ["--header", f"Authorization:Bearer {agent.key}", "--report", str(report)]
        subprocess.run(command, cwd=folder, timeout=300, check=False, stdout=subprocess.DEVNULL)
        results = json.loads(report.read_text())["results"]
    return {result["test_id"]: (verdict(result), result["details"]) for result in results}


def people(owner):
    """Runs the attacks on users who decide approvals."""
    url, found = serve(Questions), {}
    # The last four tests need an agent that writes to users.
    for name in ("001_approval_flood", "002_risk_priority_starvation", "003_context_stripping", "004_reversal_replay"):
        Questions.agent = owner.agent(f"outside-{name}", [{"kind": "approval_required"}])
        # The flood is smaller than the maximum number of pending approvals of an agent, so that the approval request
        # after it is visible.
        burst = 25 if name.startswith("001") else 5
        result = vars(getattr(HITLSecurityTests(url, burst=burst), f"test_hitl_{name}")())
        found[result["test_id"]] = (verdict(result), result["details"])
    return found


def approvals(owner):
    """Runs the tests of what an approval authorizes."""
    results = [vars(result) for result in ApprovalBindingHarness(ApprovalTarget(owner)).run_all()]
    return {result["test_id"]: (verdict(result), result["details"]) for result in results}


# The fields of the payment requirements that the merchant changes, each with the false value.
LIES = {
    "payTo": "0x000000000000000000000000000000000000dEaD",
    "asset": "0x036CbD53842c5426634e7929541eC2318f3dCF70",
    "network": "base",
    "scheme": "upto",
    "maxAmountRequired": "1000000001",
    "amount of a float": 10000.5,
    "amount below zero": "-10000",
    "amount of zero": "0",
    "amount as hexadecimal": "0x2710",
    "maxTimeoutSeconds": -1,
    "resource": "https://other.example/paid",
}


def merchant(owner):
    """Runs the merchant of the harness with one piece of false information each time. A payment of the correct amount
    to the correct payee is not a failure.
    """
    agent = owner.agent("outside-merchant")
    url = weather({"buyer": "merchant"})
    true = agent.offer(url)["accepts"][0]
    found = {}
    for name, lie in LIES.items():
        requirements = PaymentRequirements(
            pay_to=true["payTo"], max_amount_required=true["amount"], network="base-sepolia", asset=true["asset"], resource=url
        )
        _, challenge = SyntheticMerchant(requirements).handle(url, None)
        entry = challenge["accepts"][0]
        entry["extra"] = true["extra"]
        entry["maxAmountRequired" if name.startswith("amount") else name] = lie
        status, answer = agent.authorize(url, requirement=challenge)
        if status == 200:
            transfer = answer["payment"]["payload"]["payload"]["authorization"]
            is_true = (transfer["to"].lower(), transfer["value"]) == (true["payTo"].lower(), true["amount"])
            found[name] = ("pass" if is_true else "fail", f"signed {transfer['value']} to {transfer['to']}")
        else:
            found[name] = ("pass" if status in (400, 402, 403) else "fail", f"{status} {answer['error']}")
    return found


def main():
    owner, odd, count = Owner(), [], 0
    for suite in (mcp, people, approvals, merchant):
        found = suite(owner)
        expected = EXPECTED[suite.__name__]
        for name in sorted({*found, *expected}):
            said, details = found.get(name, ("not run", ""))
            wanted = expected.get(name, {"verdict": "pass"})["verdict"]
            count += 1
            mark = "as expected" if said == wanted else f"INSTEAD OF {wanted}"
            print(f"{suite.__name__:<10} {name:<24} {said:<13} {mark}  {details[:160]}")
            if said != wanted:
                odd.append(name)
    print(f"{count - len(odd)} passed, {len(odd)} failed")
    return 1 if odd else 0


if __name__ == "__main__":
    sys.exit(main())
