#!/usr/bin/env python3
"""Tests that infra/names.py finds names that break a rule, and no other names."""

import unittest

import names


def found(code):
    return [name for _, name, _ in names.violations(code)]


class NamesTest(unittest.TestCase):
    def test_a_participle_is_found_unless_the_function_returns_a_bool(self):
        self.assertEqual(found("    pub(crate) async fn paid_out(&self) -> Result<Payout> {"), ["paid_out"])
        self.assertEqual(found("fn told(\n    events: &[Event],\n) -> &[Event] {"), ["told"])
        self.assertEqual(found("fn encoded(digits: [u8; 2]) -> bool {\nfn expired(&self) -> bool {\nasync fn claimed(&self) -> Result<bool> {"), [])

    def test_a_participle_before_a_noun_is_found_only_in_async_functions(self):
        self.assertEqual(found("fn listed_events(events: &[Event]) -> &[Event] {\nfn told_by_name(events: &[Event]) -> &[Event] {"), ["told_by_name"])
        self.assertEqual(found("async fn stored_edit(&self) -> Result<Edit> {"), ["stored_edit"])

    def test_a_verb_that_ends_like_a_participle_is_not_found(self):
        self.assertEqual(found("fn proceed(self) -> Paid {\nfn need(action: &str) -> Need {\nfn pay_out() {"), [])

    def test_a_constructor_named_of_is_found(self):
        self.assertEqual(found("    pub const fn of(secret: &str) -> Self {"), ["of"])

    def test_a_name_that_needs_the_code_around_the_function_is_found(self):
        self.assertEqual(found("fn answer(self) -> Response {\nfn path_of(agent: AgentId) -> String {"), ["answer", "path_of"])
        self.assertEqual(found("fn agent_path(agent: AgentId) -> String {\nfn is_cause_of(error: &Error) -> bool {"), [])

    def test_a_parameter_named_by_an_everyday_word_is_found(self):
        self.assertEqual(found("async fn withdraw(&self, asked: &Request) {\nfn share(of: u64, most: usize) {"), ["asked", "of", "most"])
        self.assertEqual(found("fn withdraw(request: &Request) {\nfn state(&self) -> State { State { sent: 1 } }"), [])

    def test_a_limit_with_another_word_than_max_or_min_is_found(self):
        code = "const MOST_PAGES: u32 = 10;\n    pub const MOST: usize = 50;\nconst LEAST_CHARS: u8 = 1;\nconst MAX_PAGES: u32 = 10;"
        self.assertEqual(found(code), ["MOST_PAGES", "MOST", "LEAST_CHARS"])

    def test_tests_and_exceptions_are_not_found(self):
        self.assertEqual(found("fn settled_at(&self) -> Option<Timestamp> {\n#[cfg(test)]\nmod tests {\n    fn paid() -> Chain {"), [])

    def test_a_name_is_reported_with_its_line(self):
        self.assertEqual([line for line, _, _ in names.violations("\n\nfn of() -> Self {")], [3])


if __name__ == "__main__":
    unittest.main()
