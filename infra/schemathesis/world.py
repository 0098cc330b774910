"""Creates the objects of the calls: an agent that has paid, was denied a payment and waits for an approval, and objects
that may be broken. All are created over HTTP in a running stack, whose files are in $STACK_FOLDER.
"""

import base64
import json
import os
import random
import time
import urllib.error
import urllib.request
import uuid

# Every run has the same ids and the same choices.
CHANCE = random.Random(5)


class World:
    BUDGET = {"kind": "budget_limit", "limit_units": 1, "window_seconds": 3600}

    def __init__(self):
        with open(os.path.join(os.environ["STACK_FOLDER"], "stack.json")) as file:
            stack = json.load(file)
        self.base, self.provider = stack["base_url"], stack["provider_url"]
        self.agent, self.key = stack["agent"]["agent_id"], stack["agent"]["key"]
        self.session, self.internal_token = stack["user"]["token"], stack["internal_token"]
        # No response may ever contain one of these texts.
        self.secrets = [self.key.split(":")[1], self.session, self.internal_token]

        # A second agent, and a catalog service that nobody pays. Calls that end keys, agents and services use these.
        self.spare_agent = self.own("POST", "/agents", {"name": "spare"})["agent_id"]
        at_spare = f"/agents/{self.spare_agent}"
        self.spare_keys = [self.own("POST", f"{at_spare}/keys", {})["key_id"] for _ in range(8)]
        self.spare_rules = [self.own("POST", f"{at_spare}/rules", self.BUDGET)["rule_id"] for _ in range(8)]
        self.rules_version = self.own("GET", f"{at_spare}/rules")["version"]
        self.spare_service = str(uuid.UUID(int=CHANCE.getrandbits(128), version=4))
        self.call("PUT", f"/internal/services/{self.spare_service}", self.entry(), {"X-Internal-Token": self.internal_token})

        # Every agent has the curated services.
        self.services = [service["slug"] for service in self.own("GET", f"{at_spare}/services")["services"]]
        # Searches require approval.
        self.own("PATCH", f"/agents/{self.agent}/services/lab-search", {"require_approval_above_units": 0})
        # On this stack, the address is usable at once.
        self.own("PUT", f"/agents/{self.agent}/payout-address", {"address": "0x" + "90" * 20})
        self.webhooks = [self.own("POST", "/webhooks", {"url": "https://hooks.example.invalid/purser"})["webhook_id"] for _ in range(6)]
        # A webhook whose host name does not exist. A test event was sent to it, so it has a delivery that can be sent
        # again.
        self.called_webhook = self.own("POST", "/webhooks", {"url": "https://called.example.invalid/purser"})["webhook_id"]
        self.own("POST", f"/webhooks/{self.called_webhook}/test", {})
        self.delivery = self.first(f"/webhooks/{self.called_webhook}/deliveries", "deliveries")["delivery_id"]
        self.backtests = [self.own("POST", "/backtests", {"agents": {"kind": "all"}})["backtest_id"]]
        # The template sets no limits, so an agent that follows it can still pay.
        self.call("PUT", "/policy-templates/research", {"services": {}}, {"Authorization": f"Bearer {self.session}"})
        self.weather = self.offer("/weather")
        search = self.offer("/search")
        # Fewer than the maximum, so that a limit increase can still be requested.
        self.approvals = [self.authorize("/search", search)["approval_id"] for _ in range(12)]
        # A weather call that exceeded its cap, for which a limit increase can be requested.
        at_weather = f"/agents/{self.agent}/services/lab-weather"
        self.own("PATCH", at_weather, {"max_per_call_units": 1})
        self.refused = [self.authorize("/weather", self.weather)["transaction_id"] for _ in range(2)]
        self.own("PATCH", at_weather, {"max_per_call_units": 1_000_000})
        self.settlements = [self.authorize("/weather", self.weather)["settlement_id"] for _ in range(4)]
        rows = self.own("GET", f"/settlements?agent_id={self.agent}&status=confirmed")["settlements"]
        # `make demo` has left a confirmed payment.
        self.confirmed, self.tx_hash = rows[0]["id"], rows[0]["tx_hash"]
        self.decisions = [row["transaction_id"] for row in self.own("GET", f"/decisions?agent_id={self.agent}&result=escalate")["decisions"]]

    def call(self, method, path, body=None, headers=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            # A payment that requires approval is rejected with 402, and the response contains the approval's id.
            answer = json.load(error)
            if error.code != 402:
                raise RuntimeError(f"{method} {path}: {error.code} {answer}") from None
            return answer

    def own(self, method, path, body=None):
        return self.call(method, path, body, {"Authorization": f"Bearer {self.session}", "If-Match": "*"})

    def first(self, path, members):
        """Returns the first item of a list that is filled in the background."""
        for _ in range(120):
            found = self.own("GET", path)[members]
            if found:
                return found[0]
            time.sleep(0.25)
        raise RuntimeError(f"{path} stays empty")

    def offer(self, path):
        try:
            urllib.request.urlopen(self.provider + path, timeout=30)
        except urllib.error.HTTPError as error:
            return json.loads(base64.b64decode(error.headers["PAYMENT-REQUIRED"]))
        raise RuntimeError(f"{path} is not paid")

    def authorize(self, path, offer):
        body = {
            "payment_requirement": offer,
            "max_payment_units": 1_000_000,
            "original_request": {"method": "GET", "url": self.provider + path, "body_hash": str(CHANCE.random())},
            "idempotency_key": str(CHANCE.random()),
        }
        return self.call("POST", "/x402/authorize", body, {"Authorization": f"Bearer {self.key}"})

    @staticmethod
    def entry():
        web = "https://spare.example/"
        return {"slug": "spare", "name": "Spare", "description": "For nobody.", "website": web, "category": "data",
                "source": "test", "operations": []}
