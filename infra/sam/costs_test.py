"""Tests that the pages have the costs and limits that costs.py computes from the counts that tests assert."""

import re
import unittest

import costs
from limits import Stack
from translate import templates

DOCS = costs.ROOT / "docs"


class Costs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = Stack(templates(), "purser", "us-east-1")

    def test_the_file_has_the_tables(self):
        text = (DOCS / "costs.txt").read_text()
        for lines in costs.sections(self.stack):
            self.assertIn("\n".join(lines), text, "run .venv/bin/python infra/sam/costs.py > docs/costs.txt")

    def test_the_page_has_limits_and_prices_of_the_file(self):
        page = (DOCS / "performance.md").read_text()
        limits = {f"| {limit} | {rate} |" for limit, _, _, rate in costs.capacity()}
        table = page.split("| Limit | Payments a second |")[1].split("\n\n")[0]
        rows = set(re.findall(r"^\| [^|-]+ \| [\d,]+ \|", table, re.M))
        self.assertTrue(rows)
        self.assertLessEqual(rows, limits)
        for parameter, _, dollars in costs.more():
            self.assertIn(f"| {parameter} | ${float(dollars):.2f} ", page)

    def test_the_log_and_its_check_carry_the_statements_that_the_page_says(self):
        text = (DOCS / "costs.txt").read_text()
        for lines in (costs.evidence(), costs.throughput(self.stack)):
            self.assertIn("\n".join(lines), text, "run .venv/bin/python infra/sam/costs.py > docs/costs.txt")
        largest, rate = costs.commit()
        requests = costs.counts()["requests_of_a_run"]
        page = " ".join((DOCS / "evidence.md").read_text().split())
        self.assertIn(f"commits up to {largest:,} statements with {requests} consecutive S3 requests", page)
        self.assertIn(f"at 30 ms each, {rate:,} statements a second", page)

    def test_the_sums_are_those_of_the_guide(self):
        for page in ("deploy.md", "performance.md"):
            text = (DOCS / page).read_text()
            self.assertIn(f"${costs.total(costs.fixed(self.stack))} a month", text)
            self.assertIn(f"${costs.total(costs.million(self.stack))} for a million payments", text)

    def test_a_run_waits_its_window_for_others_of_its_lane(self):
        # Four lanes get a record per second each, and the window is five seconds, so a run has six records.
        mapping = {"MaximumBatchingWindowInSeconds": 5}
        self.assertEqual(costs.runs(4 * costs.MONTH, mapping), costs.Fraction(4 * costs.MONTH, 6))
        self.assertEqual(costs.runs(10, {}), 10)

    def test_a_count_that_moved_is_missed(self):
        with self.assertRaisesRegex(SystemExit, "say here where"):
            costs.found("tests/src/costs.rs", "const NOT_THERE")


if __name__ == "__main__":
    unittest.main()
