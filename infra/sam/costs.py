#!/usr/bin/env python3
"""Prints the costs and the limits of a stack in us-east-1. docs/costs.txt is the output without parameters.

    .venv/bin/python infra/sam/costs.py [--parameter Name=value]…

The counts per payment are the limits that tests assert, and are read from the tests. Windows, shards, memory and
numbers of resources come from the template. Durations and sizes are assumptions, in ASSUMED.
"""

import argparse
import json
import re
import sys
from fractions import Fraction
from pathlib import Path

from limits import SHARDS, Stack, is_of, mappings, needs
from translate import templates

ROOT = Path(__file__).resolve().parents[2]
MONTH = 730 * 3_600
PAYMENTS = 1_000_000

# Prices in dollars for us-east-1 and arm64 (AWS's price pages, 2026-11).
PRICE = {
    name: Fraction(dollars) / per
    for name, dollars, per in [
        ("gateway request", "1.00", 10**6), ("function run", "0.20", 10**6), ("GB-second", "13.3334", 10**6),
        ("read unit", "0.125", 10**6), ("write unit", "0.625", 10**6), ("event", "1.00", 10**6), ("queue request", "0.40", 10**6),
        ("object put", "5.00", 10**6), ("object get", "0.40", 10**6), ("signature", "15.00", 10**6), ("KMS request", "3.00", 10**6),
        ("log GB", "0.50", 1), ("table GB", "0.25", 1), ("backup GB", "0.20", 1), ("metric", "0.30", 1), ("alarm metric", "0.10", 1),
        ("dashboard", "3.00", 1), ("secret", "0.40", 1), ("key", "1.00", 1),
    ]
}  # fmt: skip

# Seconds per run, what a million payments leave, and read units.
ASSUMED = {
    "authorize": Fraction("0.1"), "complete": Fraction("0.2"), "changes": Fraction("0.06"), "history": Fraction("0.15"),
    "message": Fraction("0.05"), "log GB": Fraction("3.8"), "stored GB": Fraction("2.5"), "KMS requests": 100_000,
    # The agent, the service and the policy of a decision (shared/store/src/usage/versions.rs), which the daily check
    # reads again. The statements of the test do not have them.
    "inputs": 3,
}  # fmt: skip


# ---- The counts ------------------------------------------------------------------------------------------------------


def found(path, pattern):
    match = re.search(pattern, (ROOT / path).read_text())
    if not match:
        raise SystemExit(f"costs: {path} has no `{pattern}`: say here where that count is now")
    return match


def number(text):
    """Parses a whole number as Rust writes it: `9 + 1`, `1_000`."""
    return sum(int(part.replace("_", "")) for part in text.split("+"))


def counts():
    """Returns the counts per payment, from the limits that tests assert."""
    counted = {"events": 2}  # Authorized and confirmed (docs/events.md).
    for name in ("ALLOW", "COMPLETE"):
        read, write = found("tests/src/costs.rs", rf"const {name}: Budget = budget\(\s*([\d +_]+),\s*([\d +_]+),").groups()
        counted[name.lower()] = {"read": number(read), "write": number(write)}
    for name in ("HISTORY", "STATEMENTS", "DAILY_CHECK"):
        units = found("functions/stream/tests/costs.rs", rf"const {name}: Units = Units \{{\s*read: ([\d_]+),\s*write: ([\d_]+),?\s*\}};")
        # The constants are in tenths.
        counted[name.lower()] = {"read": Fraction(number(units[1]), 10), "write": Fraction(number(units[2]), 10)}
    for name in ("SIGNATURES", "OBJECTS_OF_A_MINUTE", "CHECK_CALLS"):
        counted[name.lower()] = number(found("functions/stream/tests/costs.rs", rf"const {name}: usize = ([\d_]+);")[1])
    for name in ("REQUESTS_OF_A_RUN", "REQUESTS_OF_A_CHECK"):
        counted[name.lower()] = number(found("shared/log/tests/log.rs", rf"const {name}: u32 = ([\d_]+);")[1])
    counted["check_calls"] += ASSUMED["inputs"]
    partitions = found("tests/it/costs.rs", r"let expected = \[(\(\"I\".*)\];")[1]
    counted["partitions"] = {kind: int(units) for kind, units in re.findall(r'\("([\w ]+)", (\d+)\)', partitions)}
    return counted


# ---- The costs -------------------------------------------------------------------------------------------------------


def fixed(stack):
    """Returns the rows of an idle month: item, arithmetic, dollars."""
    alarms = stack.of_type("AWS::CloudWatch::Alarm").values()
    metrics = sum(max(1, sum("MetricStat" in each for each in alarm.get("Metrics", []))) for alarm in alarms)
    counted = needs(stack)
    polled = sum("ScalingConfig" in one for _, one in mappings(stack))
    # Each queue has five pollers, which wait 20 s per request.
    polls = polled * 15 * MONTH // 60
    return [
        ("alarms", f"{len(alarms)} alarms over {metrics} metrics", metrics * PRICE["alarm metric"]),
        ("the overview", "1 dashboard", PRICE["dashboard"]),
        ("secrets", f"{counted['secrets']} secrets", counted["secrets"] * PRICE["secret"]),
        ("keys", f"{counted['kms_keys']} keys; $2 each from the first yearly rotation on, $3 from the second", counted["kms_keys"] * PRICE["key"]),
        ("idle queues", f"{polled} queues × 15 polls a minute = {millions(polls)}", polls * PRICE["queue request"]),
        ("scheduled functions, idle", "4 runs a minute × 0.1 s, and reads of watched blocks", Fraction("1.40")),
        idle_log_row(stack),
    ]


def log_runs(stack, is_reserved=True):
    """Returns how many runs archive and check the log each minute. Without `ReserveConcurrency`, only the runs that are
    always on.
    """
    schedules = stack.of_type("AWS::Scheduler::Schedule").values()
    runs = [one for one in schedules if one["Target"].get("Input") in ('{"job": "archive"}', '{"job": "check"}')]
    return sum(is_reserved or one.get("State") != "DISABLED" for one in runs)


def idle_log_row(stack):
    """Returns the row for these runs if no entry is due: each run reads an object, and one of them reads six more
    objects and two lists.
    """
    minutes, runs = MONTH // 60, log_runs(stack, is_reserved=False)
    memory = stack.of_type("AWS::Lambda::Function")["EventsFunction"]["MemorySize"]
    words = f"{runs} {'run' if runs == 1 else 'runs'} a minute × 0.05 s, {runs + 6} objects got, 2 lists"
    run = PRICE["function run"] + Fraction("0.05") * Fraction(memory, 1_024) * PRICE["GB-second"]
    return "archiving and checking the log, idle", words, minutes * (runs * run + (runs + 6) * PRICE["object get"] + 2 * PRICE["object put"])


def millions(amount):
    return f"{float(amount) / 1e6:.2f} M"


def runs(records, mapping):
    """Returns how many runs this many records start in a month, if evenly spread. Each run waits for the window for
    more records of its lane.
    """
    lanes = SHARDS * mapping.get("ParallelizationFactor", 1)
    rate = Fraction(records, MONTH)
    return records / (1 + rate / lanes * mapping.get("MaximumBatchingWindowInSeconds", 0))


def reader(stack, mapping):
    [function] = [one for name, one in stack.of_type("AWS::Lambda::Function").items() if is_of(stack, name, mapping["FunctionName"])]
    return function


def run_row(item, times, seconds, memory):
    dollars = times * (PRICE["function run"] + seconds * Fraction(memory, 1_024) * PRICE["GB-second"])
    return item, f"{millions(times)} runs × {float(seconds):g} s × {memory} MB", dollars


def units_row(item, units):
    words = [f"{float(units[kind]):g} {kind}" for kind in ("write", "read") if units[kind]]
    dollars = PAYMENTS * (units["write"] * PRICE["write unit"] + units["read"] * PRICE["read unit"])
    return item, f"{' and '.join(words)} units", dollars


def with_inputs(units):
    return {**units, "read": units["read"] + ASSUMED["inputs"]}


def million(stack):
    """Returns the rows of a million allowed payments, evenly spread over a month and completed once: item, arithmetic,
    dollars.
    """
    counted = counts()
    ledger = stack.attribute("LedgerTable", "StreamArn")
    streams = [one for _, one in mappings(stack) if one["EventSourceArn"] == ledger]
    [changes] = [one for one in streams if "TumblingWindowInSeconds" not in one]
    [history] = [one for one in streams if "TumblingWindowInSeconds" in one]
    records = counted["events"] * PAYMENTS
    batches = runs(records, history)
    payments = stack.of_type("AWS::Lambda::Function")["PaymentsFunction"]["MemorySize"]
    rules = stack.of_type("AWS::Events::Rule")
    messages = records * len(rules)
    message_memory = stack.of_type("AWS::Lambda::Function")["WebhooksFunction"]["MemorySize"]
    puts = batches + counted["objects_of_a_minute"] * MONTH // 60
    return [
        ("gateway", "2 requests", 2 * PAYMENTS * PRICE["gateway request"]),
        run_row("`payments`, authorize", PAYMENTS, ASSUMED["authorize"], payments),
        run_row("`payments`, complete", PAYMENTS, ASSUMED["complete"], payments),
        units_row("DynamoDB, authorize", counted["allow"]),
        units_row("DynamoDB, complete", counted["complete"]),
        run_row("changes from streams", runs(records, changes), ASSUMED["changes"], reader(stack, changes)["MemorySize"]),
        run_row("decision history from streams", batches, ASSUMED["history"], reader(stack, history)["MemorySize"]),
        units_row("DynamoDB, decision history", counted["history"]),
        units_row("DynamoDB, two statements", counted["statements"]),
        units_row("DynamoDB, comparing both statements a day later", with_inputs(counted["daily_check"])),
        (
            "objects of the log", f"{millions(puts)} put: one a batch, {counted['objects_of_a_minute']} a minute; {millions(batches)} got",
            puts * PRICE["object put"] + batches * PRICE["object get"],
        ),
        ("event bus", f"{counted['events']} events", records * PRICE["event"]),
        ("queues", f"{len(rules)} rules × {counted['events']} events, each sent, received and deleted alone", 3 * messages * PRICE["queue request"]),
        run_row("`webhooks` and `notices`", messages, ASSUMED["message"], message_memory),
        ("lines of logs", f"{float(ASSUMED['log GB']):g} GB", ASSUMED["log GB"] * PRICE["log GB"]),
        (
            "keys in KMS, rows with backups for a month", f"{ASSUMED['KMS requests']:,} requests, {float(ASSUMED['stored GB']):g} GB",
            ASSUMED["KMS requests"] * PRICE["KMS request"] + ASSUMED["stored GB"] * (PRICE["table GB"] + PRICE["backup GB"]),
        ),
    ]  # fmt: skip


def more():
    """Returns what parameters add to the costs of a million payments."""
    signatures = counts()["signatures"]
    return [
        ("`StatementsKeyArn`", measure(signatures, "signatures"), signatures * PAYMENTS * PRICE["signature"]),
        ("`Custody=kms`", "1 signature; and $1 a month for each agent's key", PAYMENTS * PRICE["signature"]),
    ]


def leaves():
    """Returns the bytes of a payment's decision statement and receipt in the published sample."""
    sample = json.loads((ROOT / "docs/evidence/sample/receipt.json").read_text())
    return tuple(len(sample[part]["statement"]) for part in ("decision", "receipt"))


def evidence():
    """Returns the log's costs for a million payments, from the published sample and from counted calls."""
    counted = counts()
    decision, receipt = leaves()
    # A bundle has the length of each leaf, and a tile its hash.
    leaf = 2 + 32
    rows = [
        ("bytes of a decision statement and a receipt (published sample)", f"{decision:,} and {receipt:,}"),
        ("size of the log", f"{(decision + receipt + 2 * leaf) / 1_000:.2f} GB"),
        ("DynamoDB reads to sign both", f"{millions(PAYMENTS * counted['statements']['read'])} units"),
        ("DynamoDB reads of the daily check", f"{millions(PAYMENTS * with_inputs(counted['daily_check'])['read'])} units"),
        ("DynamoDB calls of the daily check", millions(PAYMENTS * counted["check_calls"])),
        ("signatures, all before the daily check", millions(PAYMENTS * counted["signatures"])),
    ]
    return ["| A million payments | |", "|---|---|", *(f"| {what} | {much} |" for what, much in rows)]


# Seconds of an S3 request, and the number of statements per second.
REQUEST, STATEMENTS = Fraction("0.03"), 2_000


def commit():
    """Returns the number of statements in the largest commit, and how many the log commits per second if only S3 takes
    time.
    """
    shift = found("shared/log/src/append.rs", r"const MAX_BYTES: usize = 8 << (\d+);")[1]
    largest = 2 * (8 << int(shift)) // sum(leaves())
    return largest, int(largest / (counts()["requests_of_a_run"] * REQUEST))


def throughput(stack):
    """Returns the load of the log and the daily check at 1,000 payments a second, which are 2,000 statements."""
    counted = counts()
    largest, rate = commit()
    runs, function = log_runs(stack), stack.of_type("AWS::Lambda::Function")["EventsFunction"]
    seconds = function["Timeout"] - int(found("functions/stream/src/statements.rs", r"const RESERVED_TIME: Duration = Duration::from_secs\((\d+)\);")[1])
    # The time per statement if all runs share the work.
    time = Fraction(runs * seconds, 60) / STATEMENTS * 1_000
    calls = STATEMENTS * counted["check_calls"] / 2
    units = STATEMENTS * with_inputs(counted["daily_check"])["read"] / 2
    rows = [
        ("statements to commit and to check", f"{STATEMENTS:,} a second, {STATEMENTS * 86_400 / 1e6:.1f} M a day"),
        ("largest commit", f"{largest:,} statements"),
        ("consecutive S3 requests of a run that commits them", f"{counted['requests_of_a_run']}"),
        (f"commits, at {int(REQUEST * 1_000)} ms a request", f"{rate:,} statements a second"),
        (f"the same in {seconds} s of each minute", f"{rate * seconds // 60:,} statements a second"),
        ("KMS signatures with `StatementsKeyArn`", f"{STATEMENTS:,} a second; the quota is 1,000 until it is raised"),
        ("runs of the daily check with `ReserveConcurrency`, and their time", f"{runs} × {seconds} s of each minute"),
        ("time that a run has for a statement", f"{float(time):g} ms"),
        ("time that a statement may wait for calls, 64 at once", f"{float(64 * time):g} ms for {counted['check_calls'] / 2:g} calls"),
        ("DynamoDB calls and read units of the daily check", f"{int(calls):,} and {int(units):,} a second; a table's quota is 40,000 units"),
        ("consecutive S3 requests to claim and read 5,320 statements", f"{counted['requests_of_a_check']}"),
    ]
    return ["| 1,000 payments a second | |", "|---|---|", *(f"| {what} | {much} |" for what, much in rows)]


# ---- What carries how many payments a second -------------------------------------------------------------------------


def capacity():
    """Returns the rows of the capacity table: resource, use per payment, capacity per second, payments per second."""
    counted = counts()
    parts = counted["partitions"]
    ledger = sum(units for kind, units in parts.items() if not kind.startswith("index"))
    seconds, signatures = Fraction("0.348"), counted["signatures"]
    rows = [
        ("concurrency of a new account", seconds, "s", 10),
        ("an agent's payments to a service", parts["L"], "units", 1_000),
        ("`GatewayRateLimit` by default", 2, "requests", 500),
        ("an agent's payments", parts["S"] + parts["RL"], "units", 1_000),
        ("`PaymentsConcurrency` by default, if reserved", seconds, "s", 100),
        ("KMS signatures with `StatementsKeyArn` and `Custody=kms`", signatures + 1, "signatures", 1_000),
        ("a new ledger without `LedgerWarmWriteUnits`", ledger, "units", 4_000),
        ("KMS signatures with `StatementsKeyArn`", signatures, "signatures", 1_000),
        ("KMS signatures with `Custody=kms`", 1, "signatures", 1_000),
        ("the index `hold` without `LedgerWarmWriteUnits`", parts["index hold"], "units", 4_000),
        ("transaction claims in a block", parts["X"], "units", 2_000),
        ("concurrency of an account with a quota of 1,000", seconds, "s", 1_000),
        ("the ledger's default quota", ledger, "units", 40_000),
        ("the gateway's default quota", 2, "requests", 10_000),
        ("the index `hold`, warmed, with 16 keys", parts["index hold"], "units", 16_000),
    ]
    node = Fraction("4.4")
    return [
        *((what, measure(takes, unit), f"{has:,}", f"{int(has / takes):,}") for what, takes, unit, has in rows),
        ("the RPC node, including repeated calls", measure(node, "calls"), "what the node's plan allows", f"1,000 take {int(1_000 * node):,}"),
    ]  # fmt: skip


def measure(amount, unit):
    return f"{float(amount):g} {unit.removesuffix('s') or 's' if amount == 1 else unit}"


# ---- The page --------------------------------------------------------------------------------------------------------


def total(rows):
    return f"{sum(round(float(dollars), 2) for _, _, dollars in rows):.2f}"


def table(title, rows, with_total=True):
    lines = [f"| {title} | Arithmetic | $ |", "|---|---|---|"]
    lines += [f"| {item} | {arithmetic} | {float(dollars):.2f} |" for item, arithmetic, dollars in rows]
    return [*lines, f"| **sum** | | **{total(rows)}** |"] if with_total else lines


def sections(stack):
    """Returns the tables, each as lines of Markdown."""
    columns = ["| Limit | A payment takes | A second has | Payments a second |", "|---|---|---|---|"]
    return [
        columns + [f"| {' | '.join(row)} |" for row in capacity()],
        table("A month at rest", fixed(stack)),
        table("A payment, a million times in a month", million(stack)),
        table("In addition, with", more(), with_total=False),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE")
    parameters = dict(each.partition("=")[::2] for each in parser.parse_args().parameter)
    stack = Stack(templates(), "purser", "us-east-1", **parameters)
    tables = [*sections(stack), evidence(), throughput(stack)]
    print("\n\n".join("\n".join(lines) for lines in tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
