"""That the pages have the costs and the capacity that costs.py computes, from the counts that tests assert."""

import unittest

import costs
from limits import Stack
from translate import templates

DOCS = costs.ROOT / "docs"


class Costs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = Stack(templates(), "purser", "us-east-1")

    def test_the_tables_are_those_of_the_page(self):
        page = (DOCS / "performance.md").read_text()
        for lines in costs.sections(self.stack):
            self.assertIn("\n".join(lines), page, "docs/performance.md: .venv/bin/python infra/sam/costs.py prints this table")

    def test_the_table_of_the_log_is_that_of_its_page(self):
        page = (DOCS / "evidence.md").read_text()
        self.assertIn("\n".join(costs.evidence()), page, "docs/evidence.md: .venv/bin/python infra/sam/costs.py prints this table")

    def test_the_sums_are_those_of_the_guide(self):
        page = (DOCS / "deploy.md").read_text()
        self.assertIn(f"${costs.total(costs.fixed(self.stack))} a month", page)
        self.assertIn(f"${costs.total(costs.million(self.stack))} for a million payments", page)

    def test_a_run_waits_its_window_for_others_of_its_lane(self):
        # One record a second to each of four lanes, and a window of five seconds: six in a run.
        mapping = {"MaximumBatchingWindowInSeconds": 5}
        self.assertEqual(costs.runs(4 * costs.MONTH, mapping), costs.Fraction(4 * costs.MONTH, 6))
        self.assertEqual(costs.runs(10, {}), 10)

    def test_a_count_that_moved_is_missed(self):
        with self.assertRaisesRegex(SystemExit, "say here where"):
            costs.found("tests/src/costs.rs", "const NOT_THERE")


if __name__ == "__main__":
    unittest.main()
