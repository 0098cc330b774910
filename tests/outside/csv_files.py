"""Reads every CSV file that the dashboard exports with pandas, and with LibreOffice if that is installed. Both must
read the same cells, with correct times and exact amounts, and no cell may be a formula.
"""

import base64
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import openpyxl
import pandas

STACK = json.loads((Path(os.environ["STACK_FOLDER"]) / "stack.json").read_text())
BASE = STACK["base_url"]
NAME = '=HYPERLINK("https://a.example"), Zoë; "Müller" \u6771\u4eac'
USER_AGENT = "@SUM(1+1)*cmd|' /C calc'!A0"
WAIT = 60
# Each file with its columns of times, its columns of amounts, and a text column with a text that some row must contain.
FILES = {
    "settlements": (["decided_at", "settled_at", "expires_at"], "agent_name", NAME),
    "decisions": (["decided_at", "settled_at", "expires_at"], "agent_name", NAME),
    "audit-log": (["at"], "user_agent", USER_AGENT),
}


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(NoRedirects, urllib.request.ProxyHandler({}))


def send(method, url, body=None, **headers):
    """Sends a request; returns the response, whatever its status."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    url = url if url.startswith("http") else BASE + url
    try:
        return OPENER.open(urllib.request.Request(url, body, headers, method=method), timeout=60)
    except urllib.error.HTTPError as error:
        return error


def post(path, body, token, **headers):
    response = send("POST", path, json.dumps(body).encode(), Authorization=f"Bearer {token}", If_Match="*", **headers)
    text = response.read()
    assert response.status in (200, 201), (path, response.status, text)
    return json.loads(text)


def pay():
    """Makes one payment with an agent of this name."""
    token = json.load(send("POST", "/_local/token", b"{}"))["token"]
    agent = post("/agents", {"name": NAME}, token, User_Agent=USER_AGENT)
    post("/_local/fund", {"wallet_address": agent["wallet_address"], "units": 1_000_000}, token)
    key = post(f"/agents/{agent['agent_id']}/keys", {}, token)["key"]
    url = f"{STACK['provider_url']}/weather"
    offer = json.loads(base64.b64decode(send("GET", url).headers["payment-required"]))
    post("/x402/authorize", {
        "payment_requirement": offer, "max_payment_units": 20_000, "idempotency_key": "a-row-of-a-file",
        "original_request": {"method": "GET", "url": url},
    }, key)


def session():
    """Returns the cookie of a session of the demo owner."""
    def cookie(response):
        pairs = [value.split(";")[0] for value in response.headers.get_all("set-cookie")]
        return next(pair for pair in pairs if not pair.endswith("="))

    started = send("GET", "/dashboard/sign-in/start")
    question = started.headers["location"]
    email = re.search(r'name="email" value="([^"]+)"', send("GET", question).read().decode()).group(1)
    back = send("POST", question, urllib.parse.urlencode({"email": email}).encode()).headers["location"]
    return cookie(send("GET", back, Cookie=cookie(started)))


def export(name, cookie, column, text):
    """Returns the file as soon as it has a row with this text. Lists are updated with a delay of some seconds."""
    until = time.monotonic() + WAIT
    while True:
        response = send("GET", f"/dashboard/{name}.csv", Cookie=cookie)
        data = response.read()
        assert response.status == 200, (name, response.status, data)
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"))))
        if any(row[column].lstrip("'") == text for row in rows):
            return data, rows
        assert time.monotonic() < until, f"{name} has no row with {text}"
        time.sleep(0.5)


def check_pandas(data, rows, times):
    texts = pandas.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)
    assert texts.to_dict("records") == rows, "pandas reads other cells"
    table = pandas.read_csv(io.BytesIO(data), parse_dates=times, converters={"amount": Decimal})
    for column in times:
        kind = table[column].dtype
        assert pandas.api.types.is_datetime64_any_dtype(kind), f"{column} is {kind} for pandas"
    if "amount" in table:
        assert (table["amount"] * 1_000_000 == table["amount_units"]).all(), "an amount is not exact"
        assert pandas.api.types.is_integer_dtype(table["amount_units"].dtype)


def check_libreoffice(data, rows, times, folder):
    file = folder / "file.csv"
    file.write_bytes(data)
    # The filter options of LibreOffice: UTF-8 (76), separated by commas (44), with quotation marks (34), from the first
    # line on, and with the other cells as displayed.
    subprocess.run(["soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless", "--convert-to", "xlsx",
                    "--infilter=CSV:44,34,76,1", "--outdir", folder, file], check=True, capture_output=True, timeout=300)
    sheet = openpyxl.load_workbook(folder / "file.xlsx").active
    lines = list(sheet.iter_rows())
    names = [cell.value for cell in lines[0]]
    assert names == list(rows[0]), "LibreOffice reads other columns"
    assert len(lines) - 1 == len(rows), f"LibreOffice reads {len(lines) - 1} rows of {len(rows)}"
    for line, row in zip(lines[1:], rows):
        for cell, (name, text) in zip(line, row.items()):
            assert cell.data_type != "f", f"{name} is the formula {cell.value}"
            if name in times and text:
                assert cell.value == datetime.fromisoformat(text), f"{name}: {cell.value!r} instead of {text}"
            elif name in ("amount", "amount_units"):
                assert Decimal(str(cell.value)) == Decimal(text), f"{name}: {cell.value!r} instead of {text}"
            elif name in ("agent_name", "user_agent", "reason"):
                assert (cell.value or "") == text, f"{name}: {cell.value!r} instead of {text!r}"


def main():
    pay()
    cookie = session()
    has_libreoffice = shutil.which("soffice")
    for name, (times, column, text) in FILES.items():
        data, rows = export(name, cookie, column, text)
        # A cell that would be a formula begins with an apostrophe.
        assert any(row[column] == f"'{text}" for row in rows), name
        check_pandas(data, rows, times)
        print(f"csv: {name}: pandas reads {len(rows)} rows")
        if has_libreoffice:
            with tempfile.TemporaryDirectory() as folder:
                check_libreoffice(data, rows, times, Path(folder))
            print(f"csv: {name}: LibreOffice reads {len(rows)} rows")
    if not has_libreoffice:
        print("csv: skipped with LibreOffice, which is not installed (apt-get install libreoffice-calc-nogui)")
    sys.stdout.flush()


main()
