#!/usr/bin/env python3
"""Tests that the tables of infra/bench.py mark rows that got worse or exceed their limit."""

import unittest

import bench

GROUP = "one caller"


def row(name, ratio, **others):
    return {"group": GROUP, "name": name, "median_ns": 1_000, "reference": "the same calls, bare", "ratio": ratio, **others}


def section(rows, before):
    return "\n".join(bench.section(rows, before))


def line_of(name, text):
    return next(line for line in text.splitlines() if line.startswith(f"| {name} |"))


class TableTest(unittest.TestCase):
    def test_stored_ratios_are_read_back(self):
        rows = [row("allow", 1.2), row("tiny", 1.86e-05), row("large", 20.5)]
        stored = {"stack": {"tables": bench.tables(bench.section(rows, {}))}}
        self.assertEqual(bench.ratios_of(stored), {(GROUP, "allow"): 1.2, (GROUP, "tiny"): 1.86e-05, (GROUP, "large"): 20.5})

    def test_more_than_a_tenth_worse_is_marked(self):
        before = {(GROUP, name): 1.0 for name in ("slower", "much the same", "faster")}
        before["another group", "new"] = 0.1
        rows = [row("slower", 1.11), row("much the same", 1.09), row("faster", 0.5), row("new", 9.0)]
        text = section(rows, before)
        self.assertIn("**worse**, was 1", line_of("slower", text))
        for name in ("much the same", "faster", "new"):
            self.assertNotIn("worse", line_of(name, text))

    def test_what_is_over_its_limit_is_marked(self):
        text = section([row("over", 1.26, limit=1.25), row("at", 1.25, limit=1.25)], {})
        self.assertIn("**over its limit**", line_of("over", text))
        self.assertNotIn("over its limit", line_of("at", text))

    def test_rows_of_text_say_what_they_hold_and_what_is_over_its_limit(self):
        rows = [{"group": "g", "name": name, "cells": [["took", "1 s"]], "over": over}
                for name, over in (("slow", True), ("fine", False))]
        text = section(rows, {})
        self.assertIn("| slow **over its limit** | 1 s |", text)
        self.assertIn("| fine | 1 s |", text)


if __name__ == "__main__":
    unittest.main()
