"""A client of the official suite that pays through Purser's Python client (see client.mjs)."""

import base64
import json
import os
import sys
import uuid

import httpx
from purser_client import Purser, PurserTransport, payment_of


def pay():
    """Makes the paid call, and returns the result."""
    purser = Purser(run=str(uuid.uuid4()), max_amount="0.01")
    with httpx.Client(transport=PurserTransport(purser)) as http:
        response = http.get(os.environ["RESOURCE_SERVER_URL"] + os.environ["ENDPOINT_PATH"])
    payment = payment_of(response)
    if payment is None or payment.confirm(30).status != "confirmed":
        raise RuntimeError(f"not confirmed: {payment and payment.receipt}")
    proof = response.headers.get("PAYMENT-RESPONSE") or response.headers["X-PAYMENT-RESPONSE"]
    return {
        "success": True,
        "data": response.json(),
        "status_code": response.status_code,
        "payment_response": json.loads(base64.b64decode(proof)),
    }


try:
    result = pay()
    print("Client test completed successfully")
except Exception as error:  # noqa: BLE001: whatever it is, the suite reports it.
    result = {"success": False, "error": f"{type(error).__name__}: {error}"}
print(json.dumps(result))
sys.exit(0 if result["success"] else 1)
