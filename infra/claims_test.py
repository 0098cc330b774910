#!/usr/bin/env python3
"""Tests that infra/claims.py finds a claim without a proof, and a proof that does not exist."""

import unittest

import claims

CLAIM = {"section": 1, "claim": "C"}
SOURCES = {"races.rs": "async fn one_approval_is_executed_once() {", "template.yaml": "  MinimumLength: 15"}


class GuaranteesTest(unittest.TestCase):
    def faults(self, *guarantees, functions=("a_test",), invariants=frozenset()):
        return list(claims.guarantee_faults(guarantees, functions, invariants))

    def test_each_kind_of_proof_is_enough(self):
        for proof in ({"tests": ["a_test"]}, {"programs": ["infra/claims.py"]}):
            self.assertEqual(self.faults(CLAIM | proof), [])
        self.assertEqual(self.faults(CLAIM | {"invariants": [3]}, invariants={3}), [])

    def test_a_missing_proof_is_found(self):
        for proof in ({}, {"tests": []}, {"tests": ["no_test"]}, {"programs": ["infra/nowhere"]}, {"test": ["a_test"]}):
            self.assertTrue(self.faults(CLAIM | proof), proof)
        self.assertTrue(self.faults(CLAIM | {"section": 9, "tests": ["a_test"]}))

    def test_invariants_are_those_of_the_model(self):
        self.assertTrue(self.faults(CLAIM | {"invariants": [3]}, invariants={3, 4}))
        self.assertTrue(self.faults(CLAIM | {"invariants": [3, 4]}, invariants={3}))

    def test_the_threat_model_cites_every_section(self):
        page = "S (§1): `a_test_that_is_there`, `some_field`"
        self.assertEqual(list(claims.threat_model_faults(page, ["1"], {"a_test_that_is_there"})), [])
        self.assertEqual(len(list(claims.threat_model_faults(page, ["1", "2"], set()))), 2)
        self.assertTrue(list(claims.threat_model_faults("§11", ["1"], set())))


class DataModelTest(unittest.TestCase):
    def faults(self, *keys, tests=(), tables=("ledger",)):
        simulator = 'const ITEMS = {\n  LedgerTable: ["A#", "MARKS", "Z#"],\n};\n'
        model = {"row": [{"table": "ledger", "pk": list(keys)}], "transfer": [{}, {"tests": list(tests)}]}
        model["table"] = [{"name": name} for name in tables]
        return list(claims.data_model_faults(model, claims.key_kinds(simulator), {"a_test"}))

    def test_keys_are_those_of_the_simulator(self):
        self.assertEqual(self.faults("A#<agent>", "MARKS", tests=["a_test"]), [])
        for keys in (("A#<agent>",), ("A#<agent>", "MARKS", "B#<rule>"), ("A<agent>", "MARKS")):
            self.assertTrue(self.faults(*keys), keys)
        self.assertTrue(self.faults("A#<agent>", "MARKS", tests=["no_test"]))
        for tables in ((), ("ledger", "audit")):
            self.assertTrue(self.faults("A#<agent>", "MARKS", tables=tables))


class LogLinesTest(unittest.TestCase):
    def test_a_line_in_one_place_alone_is_found(self):
        self.assertEqual(list(claims.log_line_faults({"a.b"}, {"a.b"})), [])
        self.assertTrue(list(claims.log_line_faults({"a.b"}, set())))
        self.assertTrue(list(claims.log_line_faults(set(), {"a.b"})))

    def test_names_are_found_in_the_code(self):
        logged = claims.logged_names()
        self.assertLessEqual({"request", "payment.decided", "reconcile.settlement", "audit"}, logged)
        self.assertNotIn("contention", logged, "a debug line")


class AsvsTest(unittest.TestCase):
    def faults(self, by, state="held", key=None):
        known = claims.known_ids()
        rows = {f"{known[0]}-{known[-1]}" if key is None else key: {"subject": "S", "state": state, "by": by}}
        return list(claims.asvs_faults(rows, SOURCES, {"decisions": "# T\n\n## 1. A\n\n2. **B**\n\n## 2. C\n"}))

    def test_there_are_253_requirements(self):
        self.assertEqual(len(set(claims.known_ids())), 253)

    def test_rows_may_name_tests_settings_files_and_sections(self):
        for by in (
            "`races.rs::one_approval_is_executed_once`", "`template.yaml::MinimumLength: 15`", "`infra/claims.py`", "`url`",
            "decisions §1, §1.2 and §2",
        ):
            self.assertEqual(self.faults(by), [], by)
        self.assertEqual(self.faults("", state="issuer"), [])

    def test_what_does_not_exist_is_found(self):
        for by in (
            "", "`races.rs::one_approval_is`", "`flow.rs::one_approval_is_executed_once`", "`template.yaml::NoParameter`",
            "`infra/nowhere.py`", "decisions §3", "decisions §1.1", "decisions §2.2", "§1", "guarantees §1",
        ):
            self.assertTrue(self.faults(by), by)
        self.assertTrue(self.faults("x", state="good"))

    def test_wrong_counts_are_found(self):
        rows = {"1.1.1-1.2.1": {"state": "held"}, "1.2.2": {"state": "gap"}}
        page = "\n| held | 3 |\n| partly | 0 |\n| gap | 1 |\n| issuer | 0 |\n| AWS | 0 |\n| n/a | 0 |\n"
        self.assertEqual(list(claims.count_faults(rows, page)), [])
        self.assertEqual(len(list(claims.count_faults(rows, page.replace("3", "13")))), 1)

    def test_missing_repeated_and_unknown_ids_are_found(self):
        self.assertEqual(claims.row_ids("4.4.3-5.1.1, 1.1.1", claims.known_ids()), ["4.4.3", "4.4.4", "5.1.1", "1.1.1"])
        for key in ("1.1.1", "1.1.1-17.3.2, 1.1.1", "1.1.1-17.3.3", "17.3.2-1.1.1", ""):
            self.assertTrue(self.faults("x", key=key), key)


if __name__ == "__main__":
    unittest.main()
