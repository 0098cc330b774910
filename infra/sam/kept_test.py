#!/usr/bin/env python3
"""Tests what infra/sam/kept.py prints and leaves if it cannot continue. infra/sam/deploy_test.py tests everything else.

    .venv/bin/python infra/sam/kept_test.py
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import kept
import restore
from botocore.exceptions import ClientError, WaiterError
from restore import Refused

TABLE = {"Type": kept.TABLE, "DeletionPolicy": "Retain", "Properties": {}}
TEMPLATE = {"Parameters": {}, "Resources": {"LedgerTable": TABLE, "UsageTable": TABLE}}
ENVIRONMENT = SimpleNamespace(name="dev", stack="purser-dev", parameters={})
TABLES = [kept.Resource(kept.TABLE, name, f"purser-{name}") for name in TEMPLATE["Resources"]]
ABSENT = ClientError({"Error": {"Code": "ValidationError"}}, "DescribeStacks")


def account(*stacks, **cloudformation):
    """An account in which a stack has these statuses, one after the other. None means that the stack does not exist."""
    found = [{"Stacks": [{"StackName": "purser-dev", "StackStatus": status}]} if status else ABSENT for status in stacks]
    clients = {"cloudformation": mock.MagicMock(**{"describe_stacks.side_effect": found, **cloudformation})}
    return mock.MagicMock(**{"client.side_effect": lambda service: clients.setdefault(service, mock.MagicMock())})


def import_tables(session):
    kept.import_stack(session, ENVIRONMENT, TEMPLATE, TABLES)


class Import(unittest.TestCase):
    def test_a_failed_change_set_leaves_nothing_in_the_way_of_the_next(self):
        failed = WaiterError("ChangeSetCreateComplete", "failed", {})
        described = {"StatusReason": "purser-UsageTable has another key"}
        session = account(None, **{"get_waiter.return_value.wait.side_effect": failed, "describe_change_set.return_value": described})
        with self.assertRaisesRegex(Refused, "^nothing was imported, .*purser-UsageTable has another key"):
            import_tables(session)
        cloudformation = session.client("cloudformation")
        cloudformation.delete_stack.assert_called_once_with(StackName="purser-dev")
        cloudformation.execute_change_set.assert_not_called()
        session.client("dynamodb").tag_resource.assert_not_called()

    def test_an_import_that_ends_without_success_says_how_to_try_again(self):
        session = account(None, "IMPORT_ROLLBACK_COMPLETE")
        with self.assertRaisesRegex(Refused, "describe-stack-events.*delete-stack --stack-name purser-dev, then try again$"):
            import_tables(session)
        for status in kept.EMPTY:
            with self.assertRaisesRegex(Refused, "exists.*delete-stack --stack-name purser-dev, then try again$"):
                import_tables(account(status))
        with self.assertRaisesRegex(Refused, "exists; resources are imported into a new one$"):
            import_tables(account("UPDATE_COMPLETE"))

    def test_tables_are_marked_before_functions_can_write_to_them(self):
        session = account(None, "IMPORT_COMPLETE")
        dynamodb = session.client("dynamodb")
        session.client("cloudformation").execute_change_set.side_effect = lambda **_: self.assertEqual(dynamodb.tag_resource.call_count, 2)
        import_tables(session)
        session.client("cloudformation").execute_change_set.assert_called_once()


class Restore(unittest.TestCase):
    def restore(self, session, left, to="2026-11-28T18:00:00Z"):
        with mock.patch.object(kept, "kept", return_value=left):
            kept.restore(session, ENVIRONMENT, TEMPLATE, "purser-dev", [], to)

    def test_a_missing_table_and_an_empty_stack_are_named_with_the_next_step(self):
        with self.assertRaisesRegex(Refused, "not left: UsageTable. Name a table .* --table; of a deleted one there is a backup"):
            self.restore(account(None), TABLES[:1])
        with self.assertRaisesRegex(Refused, "delete-stack --stack-name purser-dev, then try again"):
            self.restore(account("REVIEW_IN_PROGRESS"), TABLES)

    def test_instants_without_a_zone_or_beyond_the_calendar_are_rejected(self):
        for wrong in ("", "now", "2026-11-28", "2026-11-28T18:00:00", "2026-11-28T18:00:00.5Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
            with self.assertRaisesRegex(Refused, "is not an instant in whole seconds"):
                restore.parse_instant(wrong)
        self.assertEqual(restore.parse_instant("2026-11-28T19:00:00+01:00"), restore.parse_instant("2026-11-28T18:00:00Z"))

    def test_a_warm_throughput_is_never_lowered(self):
        wanted = {"WarmThroughput": {"WriteUnitsPerSecond": "8000"}}
        for current, missing in ((None, 8_000), (4_000, 8_000), (8_000, None), (12_000, None)):
            described = {"WarmThroughput": {"WriteUnitsPerSecond": current}} if current else {}
            expected = {"WriteUnitsPerSecond": missing} if missing else {}
            self.assertEqual(restore.missing_throughput(wanted, described), expected)
        self.assertEqual(restore.missing_throughput({}, {}), {})


class Start(unittest.TestCase):
    def test_a_python_without_packages_starts_it(self):
        python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}"
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run([python, kept.__file__, "--help"], env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("restore", done.stdout)


if __name__ == "__main__":
    unittest.main()
