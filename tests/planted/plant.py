#!/usr/bin/env python3
"""Plants known bugs in a copy of the tree, and checks that the tests that must catch each bug fail.

    tests/planted/plant.py                         every bug
    tests/planted/plant.py --simulation            every bug that the simulation must find: by a seed or by a kept plan
    tests/planted/plant.py [--simulation] NAME …   only these
    tests/planted/plant.py --texts                 no bug: checks that the replaced texts exist

All bugs are planted in one copy, which is built once. An environment variable of the tested process switches on a single
bug, so a failure is due to that bug and no other. To show that it is due to a bug at all, the same tests must first pass
with no bug on.

A bug replaces one text of a source file by another. The text must occur exactly once, so that bugs that no longer apply are
reported. Both texts are expressions, statements, or a whole constant string, so that the program can choose between them
when it runs. Any other bug contains its own switch: `PLANTED` in the replacement is the condition under which the bug is on.

The copy in target/planted/tree contains the files that git tracks or would track. It has its own target folder, because
cargo would otherwise confuse the packages of the two trees. Compiled dependencies are copied.

Exit status: 0, every bug was caught; 1, one was missed or could not be planted; 75, terminated (SIGTERM) with none missed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "target" / "planted" / "tree"
BUILD = TREE.parent / "build"
# The exit status of cargo-nextest if tests have run and some have failed. A failed build has a different status.
TESTS_FAILED = 100
OUT_OF_TIME = 75
# The output of `simulate` for a finding. The exit status can't be used, because a panic has the same.
SEED_FAILS = re.compile(r"^(seed \d+) fails:\n +(.{1,100})", re.MULTILINE)
# A constant string, which is replaced by one that is chosen when it is formatted.
CONSTANT = re.compile(r'const (\w+): &str = ".*";')
# The environment variable that names the active bug.
SWITCH = "PLANTED"

# The crate on which every crate with planted bugs depends, and the switch that is added to it.
SWITCHBOARD = "shared/domain/src/lib.rs"
IS_ON = """
extern crate self as purser_domain;

/// Whether a planted bug is on. It takes no memory, since there are tests that count what is taken, and little time, since
/// some bugs are in loops.
pub fn planted(bug: &str) -> bool {
    static ACTIVE: std::sync::OnceLock<([u8; 256], usize)> = std::sync::OnceLock::new();
    let (name, length) = ACTIVE.get_or_init(|| {
        let mut bytes = [0; 65_536];
        if let Ok(mut file) = std::fs::File::open("/proc/self/environ") {
            let mut at = 0;
            while let Ok(read @ 1..) = std::io::Read::read(&mut file, &mut bytes[at..]) {
                at += read;
            }
        }
        let mut active = bytes.split(|byte| *byte == 0).filter_map(|line| line.strip_prefix(b"PLANTED="));
        let active = active.next().unwrap_or_default();
        let mut name = [0; 256];
        name[..active.len()].copy_from_slice(active);
        (name, active.len())
    });
    name[..*length] == *bug.as_bytes()
}
"""
# Functions in their own processes get the variables that they have in the cloud, and in addition this one.
PROCESSES = "tests/src/process.rs"
NO_VARIABLES = ".env_clear()"
SWITCH_ALONE = '.env_clear()\n            .env("PLANTED", std::env::var_os("PLANTED").unwrap_or_default())'


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    text: str
    instead: str
    caught_by: str | int  # a nextest filter expression, or the number of seeds within which the simulation finds the bug


BUGS = [
    Bug(
        "a new limit that starts at zero",
        "shared/store/src/payments/backfill.rs",
        "applies && settlement.state != SettlementState::Expired",
        "!PLANTED && applies && settlement.state != SettlementState::Expired",
        "package(purser-store) and test(=budgets::a_changed_budget_applies_from_its_update_on)",
    ),
    Bug(
        "a backfill that an older decision overtakes",
        "shared/store/src/payments/backfill.rs",
        "self.fence_windows(agent).await?;",
        "if !PLANTED { self.fence_windows(agent).await?; }",
        "package(purser-store) and test(=budgets::a_payment_evaluated_without_the_new_rule_is_not_reserved)",
    ),
    Bug(
        "a backfill that a release overtakes",
        "shared/store/src/payments/release.rs",
        "} else if self.is_backfilled(&totals, rule.period, &rule.coverage_fingerprint())? {",
        "} else if PLANTED || self.is_backfilled(&totals, rule.period, &rule.coverage_fingerprint())? {",
        "package(purser-store) and test(=budgets::a_payment_that_a_backfill_counted_is_released)",
    ),
    Bug(
        "a late payment that a new rule for some services misses",
        "shared/store/src/payments/settle.rs",
        "rules.filter(|counting| purchase.is_counted_by(&counting.rule.kind, None));",
        "rules.filter(|counting| !PLANTED && purchase.is_counted_by(&counting.rule.kind, None));",
        "package(purser-store) and test(=budgets::a_rule_for_some_services_counts_a_payment_that_is_confirmed_late)",
    ),
    Bug(
        "a released payment that frees its amount in a count",
        "shared/store/src/payments/release.rs",
        "self.window_subtraction_update(scope, amount)",
        "self.window_subtraction_update(scope, if PLANTED { terms.amount } else { amount })",
        "package(purser-store) and test(=limits::a_count_limit_counts_each_payment_as_one)",
    ),
    Bug(
        "an interval that the next payment need not keep",
        "shared/domain/src/policy/rules/minimum_interval.rs",
        "    limits::check_counting_rules::<MinimumInterval>(",
        "    if PLANTED { return None; }\n    limits::check_counting_rules::<MinimumInterval>(",
        "package(purser-domain) and test(=the_first_failed_check_determines_the_reason)",
    ),
    Bug(
        "a budget that asks, exceeded without an approval",
        "shared/domain/src/policy/limits.rs",
        "if limit.is_some_and(|limit| inputs.is_waived_by_approval(&limit)) {",
        "if limit.is_some_and(|limit| PLANTED || inputs.is_waived_by_approval(&limit)) {",
        "package(purser-store) and test(=limits::concurrent_payments_beyond_a_budget_with_action_ask_need_approval)",
    ),
    Bug(
        "a calendar period that starts at midnight UTC",
        "shared/domain/src/policy/schedule.rs",
        "let start = self.0.from_local_datetime(&midnight).earliest();",
        "let start = if PLANTED { Some(midnight.and_utc().with_timezone(&self.0)) } else { self.0.from_local_datetime(&midnight).earliest() };",
        "package(purser-domain) and test(=policy::window::tests::calendar_periods_start_at_local_midnight_in_every_zone)",
    ),
    Bug(
        "two racing duplicates that are both paid",
        "shared/store/src/payments/recent.rs",
        "recent_payments_update.call.and_then(|mark| mark.not_after)",
        "recent_payments_update.call.and_then(|mark| mark.not_after.filter(|_| !PLANTED))",
        "package(purser-store) and test(=limits::of_concurrent_duplicate_calls_one_is_paid)",
    ),
    Bug(
        "a template that takes what a person set",
        "shared/domain/src/policy/template.rs",
        "let is_wanted = is_template_s || overrides == Overrides::Overwrite;",
        "let is_wanted = PLANTED || is_template_s || overrides == Overrides::Overwrite;",
        "package(purser-domain) and test(=limits_follow_the_template_unless_a_user_set_them)",
    ),
    Bug(
        "limits of an interrupted application taken for a person's",
        "shared/domain/src/policy/template.rs",
        "begun.push(template.version);",
        "if !PLANTED { begun.push(template.version); }",
        "package(purser-domain) and test(=limits_follow_the_template_unless_a_user_set_them)",
    ),
    Bug(
        "a new agent beyond its template",
        "functions/dashboard/src/agents/operations.rs",
        "Some(template) => set.with_changes(",
        "Some(_) if PLANTED => set,\n            Some(template) => set.with_changes(",
        "package(purser-dashboard) and test(=templates::a_new_agent_starts_with_the_default_templates_limits)",
    ),
    Bug(
        "a new agent without the limits that it starts with",
        "shared/domain/src/policy/starting_set.rs",
        "match self.caps {",
        "match self.caps.filter(|_| !PLANTED) {",
        "package(purser-domain) and test(=no_sequence_of_payments_exceeds_the_safe_starting_limits)",
    ),
    Bug(
        "a payee that is known because another one is",
        "shared/domain/src/policy/recent.rs",
        "self.payees.iter().any(|(known, _)| *known == payee)",
        "self.payees.iter().any(|(known, _)| PLANTED || *known == payee)",
        "package(purser-domain) and test(=no_sequence_of_payments_exceeds_the_safe_starting_limits)",
    ),
    Bug(
        "a call that a fragment makes another",
        "shared/domain/src/policy/recent.rs",
        "&request.url[..Position::AfterPath],",
        "if PLANTED { request.url.as_str() } else { &request.url[..Position::AfterPath] },",
        "package(purser-domain) and test(=no_sequence_of_payments_exceeds_the_safe_starting_limits)",
    ),
    Bug(
        "a call that other calls displace",
        "shared/domain/src/policy/recent.rs",
        "self.calls.len() >= MAX_RECENT_CALLS",
        "!PLANTED && self.calls.len() >= MAX_RECENT_CALLS",
        "package(purser-domain) and test(=no_sequence_of_payments_exceeds_the_safe_starting_limits)",
    ),
    Bug(
        "an automatic freeze that the payments of the day outrun",
        "shared/domain/src/policy/anomaly.rs",
        "hour.hours_earlier(EXCLUDED_HOURS)",
        "hour",
        "package(purser-domain) and test(=no_sequence_of_payments_evades_interval_or_price_or_schedule_or_freeze_rules)",
    ),
    Bug(
        "the price in the middle of time taken for the median",
        "shared/domain/src/policy/recent.rs",
        "        last.sort_unstable();\n        last.get(",
        "        if !PLANTED { last.sort_unstable(); }\n        last.get(",
        "package(purser-domain) and test(=policy::recent::tests::the_usual_price_is_the_median_of_the_last_prices)",
    ),
    Bug(
        "an opening before the clock is changed",
        "shared/domain/src/policy/schedule.rs",
        "let change = zone.first_offset_change_between(from, to);",
        "let change = if PLANTED { None } else { zone.first_offset_change_between(from, to) };",
        "package(purser-domain) and test(=policy::schedule::tests::schedules_follow_the_wall_clock_through_clock_changes)",
    ),
    Bug(
        "a replay that forgets what a window had used",
        "shared/domain/src/policy/replay.rs",
        "let day = window_with_usage(scope, WindowPeriod::DAY, day);",
        "let day = window_with_usage(scope, WindowPeriod::DAY, if PLANTED { Amount::ZERO } else { day });",
        "package(purser-domain) and test(=replaying_a_recorded_decision_gives_the_same_result)",
    ),
    Bug(
        "a backtest whose flips leave later windows as they were",
        "shared/domain/src/policy/backtest.rs",
        "self.added.window_sum(day_span, decision.at),",
        "if PLANTED { Amount::ZERO } else { self.added.window_sum(day_span, decision.at) },",
        "package(purser-domain) and test(=a_backtest_equals_a_straightforward_simulation)",
    ),
    Bug(
        "a backtest that pays twice for what only the record asked",
        "shared/domain/src/policy/backtest.rs",
        "self.unasked.remove(&approval).is_some()",
        "self.unasked.remove(&approval).is_some() && !PLANTED",
        "package(purser-domain) and test(=a_backtest_equals_a_straightforward_simulation)",
    ),
    Bug(
        "a backtest that takes budgets for fuller than they were recorded",
        "shared/domain/src/policy/backtest.rs",
        "self.window_sum(rule, recorded_payments, at)\n            .min(own.limit.saturating_minus(left))",
        "if PLANTED { self.window_sum(rule, recorded_payments, at) } else { self.window_sum(rule, recorded_payments, at).min(own.limit.saturating_minus(left)) }",
        "package(purser-domain) and test(=unchanged_limits_produce_no_backtest_differences)",
    ),
    Bug(
        "a new owner who tests the decisions of the owner before",
        "shared/store/src/usage/versions.rs",
        "Ok(accepted_at.map_or(Timestamp::EPOCH, next))",
        "Ok(if PLANTED { Timestamp::EPOCH } else { accepted_at.map_or(Timestamp::EPOCH, next) })",
        "package(purser-tests) and test(=people::backtests::a_new_owner_cannot_backtest_a_previous_owners_decisions)",
    ),
    Bug(
        "a backtest that remembers payments that the candidate refused",
        "shared/domain/src/policy/backtest.rs",
        "if pays && recorded.remembered.is_some() {",
        "if (pays || PLANTED) && recorded.remembered.is_some() {",
        "package(purser-domain) and test(=a_backtest_equals_a_straightforward_simulation)",
    ),
    Bug(
        "a shadow that judges decisions from before it was attached",
        "functions/dashboard/src/shadow/operations.rs",
        "let range = (shadow.attached_at, now);",
        "let range = (if PLANTED { purser_domain::Timestamp::EPOCH } else { shadow.attached_at }, now);",
        "package(purser-tests) and test(=people::shadow::a_shadow_policy_has_no_effect_until_it_is_promoted)",
    ),
    Bug(
        "a shadow promoted over limits that were edited since they were read",
        "functions/dashboard/src/shadow/operations.rs",
        "if_match.check_version(shadow.if_match_version(Shadow::count_updates(\n            &shadow.terms,\n            owned.agent().version,\n            &policies,\n        )))?;",
        "if !PLANTED { if_match.check_version(shadow.if_match_version(Shadow::count_updates(&shadow.terms, owned.agent().version, &policies)))?; }",
        "package(purser-tests) and test(=people::shadow::a_shadow_policy_has_no_effect_until_it_is_promoted)",
    ),
    Bug(
        "an agent added again to a backtest",
        "shared/store/src/usage/backtests.rs",
        '.condition_expression("ver = :before")',
        '.condition_expression(if PLANTED { "ver > :before OR ver = :before" } else { "ver = :before" })',
        "package(purser-store) and test(=backtests::each_agent_is_added_to_a_backtest_once)",
    ),
    Bug(
        "a fact stated again when its record is repeated",
        "shared/log/src/append.rs",
        "if !is_known && !state.is_processed(&batch.shard, &change.sequence) {",
        "if !is_known && (PLANTED || !state.is_processed(&batch.shard, &change.sequence)) {",
        "package(purser-log) and test(=interrupted_log_runs_lose_and_duplicate_no_entry)",
    ),
    Bug(
        "a log that two runs write at once",
        "shared/log/src/objects.rs",
        "if present.map(|object| object.version).as_ref() != version {",
        "if present.map(|object| object.version).as_ref() != version && !PLANTED {",
        "package(purser-log) and test(/concurrent_log_runs_do_not_fork_the_log|conditional_writes_never_replace_a_newer_object/)",
    ),
    Bug(
        "an edit whose version is not stored",
        "functions/stream/src/batch.rs",
        "if let Ok(Some(version)) = version {",
        "if let Ok(Some(version)) = version && !PLANTED {",
        "package(purser-tests) and test(=people::replay::decisions_are_replayed_with_the_versions_of_their_time)",
    ),
    Bug(
        "the whole of an offer taken for the request",
        "shared/api/src/http/payment_body.rs",
        "fingerprint: Fingerprint::for_payment(&said, $network, &$offer),",
        "fingerprint: if PLANTED { Fingerprint::for_request($body, &[\"idempotency_key\", \"replay_key\", \"approval_id\"]) } else { Fingerprint::for_payment(&said, $network, &$offer) },",
        "package(purser-tests) and test(=offers::payment_requirements_with_equal_terms_are_one_request)",
    ),
    Bug(
        "the price left out of the request",
        "shared/domain/src/x402/fingerprint.rs",
        "&offer.amount().units().to_be_bytes(),",
        "&if PLANTED { 0 } else { offer.amount().units() }.to_be_bytes(),",
        "package(purser-domain) and test(=x402::fingerprint::tests::payment_fingerprints_cover_only_the_signed_requirements)",
    ),
    Bug(
        "the payee left out of the request",
        "shared/domain/src/x402/fingerprint.rs",
        "            pay_to.as_slice(),\n",
        "            if PLANTED { &[] } else { pay_to.as_slice() },\n",
        "package(purser-domain) and test(=x402::fingerprint::tests::payment_fingerprints_cover_only_the_signed_requirements)",
    ),
    Bug(
        "an approval that waives a limit that was not shown",
        "shared/domain/src/policy/check.rs",
        "(limit.rule, limit.kind) == (self.rule, self.kind)",
        "PLANTED || (limit.rule, limit.kind) == (self.rule, self.kind)",
        "package(purser-domain) and test(=an_approval_waives_only_the_limits_that_were_shown)",
    ),
    Bug(
        "requests for increases that an agent repeats without end",
        "shared/store/src/payments/raise.rs",
        "newest.is_used_instead_of(increase, approval.created_at)",
        "newest.is_used_instead_of(increase, approval.created_at) && !PLANTED",
        "package(purser-store) and test(=approvals::a_service_has_one_pending_request_for_an_increase)",
    ),
    Bug(
        "an approval used for another request at its terms",
        "shared/domain/src/policy/approval.rs",
        "self.fingerprint == intent.fingerprint\n",
        "(PLANTED || self.fingerprint == intent.fingerprint)\n",
        "package(purser-tests) and test(=errors::an_approval_allows_only_its_own_request_once)",
    ),
    Bug(
        "another target called than the one declared",
        "shared/domain/src/policy/evaluate.rs",
        "(named.host() != target.host()).then(",
        "(named.host() != target.host() && !PLANTED).then(",
        "package(purser-tests) and test(=offers::the_declared_target_url_must_match_the_call)",
    ),
    Bug(
        "a call without a payment that no freeze stops",
        "functions/payments/src/check_unpaid.rs",
        "        frozen_by_operators,\n        at: now,",
        "        frozen_by_operators: if PLANTED { None } else { frozen_by_operators },\n        at: now,",
        "package(purser-tests) and test(=mcp::every_provider_call_is_checked_against_the_policy)",
    ),
    Bug(
        "a lease of an open call that two calls hold",
        "shared/store/src/people/call_leases.rs",
        '"attribute_not_exists(#slot) OR #slot <= :now"',
        '"attribute_not_exists(#slot) OR #slot <= :now OR #slot > :now"',
        "package(purser-tests) and test(=mcp::a_call_lease_belongs_to_one_call_until_it_ends)",
    ),
    Bug(
        "a fee's transaction taken for the payment's",
        "shared/domain/src/x402/proof.rs",
        'let text = text_of(name)?;',
        'let text = text_of(if PLANTED { "fee_tx_hash" } else { name })?;',
        "package(purser-domain) and test(=x402::proof::tests::a_transaction_hash_is_only_found_under_a_known_name)",
    ),
    Bug(
        "what comes again beginning after what the bus refused",
        "functions/stream/src/batch.rs",
        "Ok(sequences.into_iter().nth(first))",
        "Ok(sequences.into_iter().nth(if PLANTED { first.saturating_add(1) } else { first }))",
        100,
    ),
    Bug(
        "an entry of the journal replaced by an earlier record",
        "shared/store/src/usage/journal.rs",
        '"attribute_not_exists(seq) OR seq < :seq"',
        '"attribute_not_exists(nothing) OR seq < :seq"',
        "package(purser-stream) and test(=journal::records_of_split_shards_are_aggregated_once)",
    ),
    Bug(
        "a payment that is released counted as confirmed",
        "shared/domain/src/journal/entry.rs",
        "                    SettlementState::Expired => UsageTotals {",
        "                    SettlementState::Expired if PLANTED => UsageTotals { confirmed: self.amount, ..authorized },\n"
        "                    SettlementState::Expired => UsageTotals {",
        100,
    ),
    Bug(
        "a record added to the sums again",
        "shared/store/src/usage/fold.rs",
        "if last.is_some_and(|last| change.sequence <= *last) {",
        "if last.is_some_and(|last| change.sequence <= *last && !PLANTED) {",
        "package(purser-stream) and test(=journal::replayed_stream_records_are_aggregated_once)",
    ),
    Bug(
        "a payment counted on the day of its confirmation",
        "shared/store/src/usage/fold.rs",
        "let day = change.new.day();",
        "let day = match change.new.settlement_state() {\n                    Some(purser_domain::SettlementState::Confirmed { settled_at, .. }) if PLANTED => Day::containing(*settled_at),\n                    _ => change.new.day(),\n                };",
        "package(purser-stream) and test(=journal::a_payment_counts_on_the_day_of_its_decision)",
    ),
    Bug(
        "entries of an agent written out of order",
        "shared/store/src/usage/fold.rs",
        "for (index, change) in changes.iter().enumerate() {",
        "let mut order: Vec<usize> = (0..changes.len()).collect();\n"
        "        if PLANTED { order.reverse(); }\n"
        "        for (index, change) in order.into_iter().filter_map(|index| Some((index, changes.get(index)?))) {",
        "package(purser-stream) and test(=journal::events_and_history_survive_a_kill_at_any_step)",
    ),
    Bug(
        "sums of two batches at once of which one is lost",
        "shared/store/src/codec/table.rs",
        '"ver = :previous"',
        '"ver = :previous OR attribute_exists(pk)"',
        "package(purser-stream) and test(=journal::concurrent_batches_of_one_owner_are_all_in_the_sums)",
    ),
    Bug(
        "a brake that freezes again in the hour after which its person unfroze the agent",
        "shared/store/src/usage/day.rs",
        "sum(&self.hours).saturating_minus(sum(&self.braked))",
        "sum(&self.hours).saturating_minus(if PLANTED { Amount::ZERO } else { sum(&self.braked) })",
        "package(purser-stream) and test(=brakes::a_payment_burst_freezes_the_agent_once_per_hour)",
    ),
    Bug(
        "a brake that forgets the busiest hour",
        "shared/domain/src/policy/anomaly.rs",
        "&& u128::from(sum.units()) > max",
        "&& (PLANTED || u128::from(sum.units()) > max)",
        "package(purser-domain) and test(=policy::anomaly::tests::an_automatic_freeze_requires_exceeding_both_limits)",
    ),
    Bug(
        "a brake whose limit rises with the payments of the last hours",
        "shared/domain/src/policy/anomaly.rs",
        "hour.hours_earlier(EXCLUDED_HOURS)",
        "hour.hours_earlier(0)",
        "package(purser-domain) and test(=policy::anomaly::tests::spending_that_grows_tenfold_hourly_is_frozen_in_the_second_hour)",
    ),
    Bug(
        "a brake that misses a burst across a full hour",
        "shared/store/src/usage/brakes.rs",
        "today.braked.contains_key(&hour)",
        "PLANTED || today.braked.contains_key(&hour)",
        "package(purser-stream) and test(=brakes::an_automatic_freeze_compares_an_hour_with_fourteen_days)",
    ),
    Bug(
        "a service that is disabled whatever the rest of the hour is",
        "shared/domain/src/policy/anomaly.rs",
        "(!self.is_unusual_sum(rest(service), usual))",
        "(PLANTED || !self.is_unusual_sum(rest(service), usual))",
        "package(purser-stream) and test(=brakes::a_service_that_received_most_of_an_unusual_hours_amount_is_disabled)",
    ),
    Bug(
        "a brake that disables one service after another",
        "shared/store/src/usage/brakes.rs",
        "*freeze >= hour.hours_earlier(REPEAT_HOURS)",
        "!PLANTED && *freeze >= hour.hours_earlier(REPEAT_HOURS)",
        "package(purser-stream) and test(=brakes::a_disabled_service_admits_one_more_triggering_amount_in_24_hours)",
    ),
    Bug(
        "a released call that stays a duplicate",
        "shared/store/src/payments/release.rs",
        "if terms.was_checked(CheckName::Duplicate) || agent.as_ref().is_some_and(Agent::has_duplicate_guard) {",
        "if !PLANTED && (terms.was_checked(CheckName::Duplicate) || agent.as_ref().is_some_and(Agent::has_duplicate_guard)) {",
        "package(purser-store) and test(=limits::a_call_may_be_repeated_after_its_payment_was_released)",
    ),
    Bug(
        "prices and payees that an authorization teaches",
        "shared/store/src/payments/reserve.rs",
        "grant.recent_payments_update().and_then(RecentUpdate::keep_only_call)",
        "grant.recent_payments_update().and_then(|update| if PLANTED { Some(update) } else { update.keep_only_call() })",
        "test(=people::limits::only_confirmed_payments_change_the_usual_price)",
    ),
    Bug(
        "a released payment in the sum of its hour",
        "shared/store/src/usage/day.rs",
        "change_sum(&mut self.hours, hour, before, new.amount_for_hour_sum());",
        "change_sum(&mut self.hours, hour, before, if PLANTED { new.amount } else { new.amount_for_hour_sum() });",
        "package(purser-stream) and test(=brakes::released_payments_do_not_count_for_an_automatic_freeze)",
    ),
    Bug(
        "a batch that was folded before the function was killed, and is not judged",
        "functions/stream/src/history.rs",
        "let hours = hours_to_check(&changes);",
        "let mut hours = hours_to_check(&changes);\n        if PLANTED { self.automatic_freezes.evaluate_hours(&std::mem::take(&mut hours), &owners).await?; }",
        "package(purser-stream) and test(=brakes::a_payment_burst_freezes_the_agent_once_per_hour)",
    ),
    Bug(
        "a rebuild that does not leave the last day to the streams",
        "shared/store/src/usage/rebuild.rs",
        "if now.since(last_change_time(&entry)) < STREAM_RETENTION {",
        "if now.since(last_change_time(&entry)) < STREAM_RETENTION && !PLANTED {",
        "package(purser-stream) and test(=rebuild::a_history_rebuild_skips_changes_of_the_last_25_hours)",
    ),
    Bug(
        "a low wallet told each time it is looked at",
        "shared/domain/src/policy/wallet_level.rs",
        "Some(before) => before.is_low != is_low,",
        "Some(before) => before.is_low != is_low || PLANTED,",
        "package(purser-domain) and test(=policy::wallet_level::tests::a_low_balance_is_reported_once_until_it_recovers)",
    ),
    Bug(
        "a wallet low by one endpoint's word",
        "functions/reconcile/src/wallets.rs",
        "if witnesses.len() < 2 {",
        "if witnesses.len() < 2 || PLANTED {",
        "package(purser-tests) and test(=reconcile::wallets::wallet_levels_ignore_balances_from_faulty_or_disagreeing_nodes)",
    ),
    Bug(
        "a delayed change told twice under two ids",
        "shared/store/src/stream/catalog.rs",
        'EventId::derive(kind, &[&service.id, &operation.id, &"from", &next.from.micros()])',
        'if PLANTED { EventId::derive(kind, &[&service.version, &operation.id]) } else { EventId::derive(kind, &[&service.id, &operation.id, &"from", &next.from.micros()]) }',
        "package(purser-stream) and test(=published::delayed_changes_are_published_when_they_take_effect)",
    ),
    Bug(
        "a dead program's deliveries that wait without bound",
        "shared/store/src/webhooks/waiting.rs",
        "let is_full = self.count_waiting_deliveries(user, now).await? >= Delivery::MAX_WAITING;",
        "let is_full = self.count_waiting_deliveries(user, now).await? >= Delivery::MAX_WAITING && !PLANTED;",
        "package(purser-webhooks) and test(=pending_deliveries_are_limited_per_user)",
    ),
    Bug(
        "what the bus refused counted as told",
        "functions/stream/src/bus.rs",
        "if let Some(first) = refused.or(missing) {",
        "if let Some(first) = refused.or(missing).filter(|_| !PLANTED) {",
        "package(purser-stream) and test(=published::a_retry_starts_with_the_event_that_the_bus_rejected)",
    ),
    Bug(
        "an approval expired by the clock and not by its row",
        "shared/store/src/stream/approvals.rs",
        "approval.status(now) != ApprovalStatus::Expired || !is_expiry_certain(approval.expires_at, now)",
        "(approval.status(now) != ApprovalStatus::Expired && !PLANTED) || !is_expiry_certain(approval.expires_at, now)",
        "package(purser-stream) and test(=published::only_unused_approvals_publish_an_expiry_event)",
    ),
    Bug(
        "a confirmation that was made again told as the one before",
        "shared/store/src/stream/payments.rs",
        "EventId::derive(kind, &[&id, tx_hash, &settled_at.micros()])",
        "if PLANTED { EventId::derive(kind, &[&id, tx_hash]) } else { EventId::derive(kind, &[&id, tx_hash, &settled_at.micros()]) }",
        "package(purser-stream) and test(=published::each_change_event_is_published_once_without_secrets)",
    ),
    Bug(
        "a signature with the high s",
        "shared/chain/src/kms.rs",
        "signature.normalize_s().unwrap_or(signature)",
        "signature",
        "package(purser-chain) and test(=kms::tests::signatures_use_low_s_and_recover_the_wallet)",
    ),
    Bug(
        "a wallet that its key has not attested",
        "functions/dashboard/src/agents/wallet.rs",
        "is_attested(&wallet.attestation, agent, wallet.address)",
        "is_attested(&wallet.attestation, agent, wallet.address) || PLANTED",
        "package(purser-dashboard) and test(=agents::agents_with_unattested_wallets_are_not_created)",
    ),
    Bug(
        "a wallet's attestation not verified at signing",
        "shared/chain/src/custody.rs",
        "if self.has_attested(agent, wallet) {",
        "if self.has_attested(agent, wallet) || PLANTED {",
        "package(purser-tests) and test(=custody::agents_cannot_use_another_agents_wallet)",
    ),
    Bug(
        "a wallet attested for a second agent",
        "shared/store/src/payments/wallet_claim.rs",
        '"attribute_not_exists(pk) OR #agent = :agent"',
        'if PLANTED { "attribute_not_exists(nothing) OR #agent = :agent" } else { "attribute_not_exists(pk) OR #agent = :agent" }',
        "package(purser-tests) and test(=custody::each_wallet_is_attested_for_one_agent)",
    ),
    Bug(
        "an agent that claims a second wallet",
        "shared/store/src/payments/wallet_claim.rs",
        ".condition_expression(\"attribute_not_exists(pk) OR address = :wallet\")",
        ".condition_expression(if PLANTED { \"attribute_not_exists(pk) OR attribute_exists(pk) OR address = :wallet\" } else { \"attribute_not_exists(pk) OR address = :wallet\" })",
        "package(purser-store) and test(=wallet_claims::a_wallet_is_claimed_by_one_agent_and_an_agent_claims_one_wallet)",
    ),
    Bug(
        "a removed call that is new again after a pause",
        "shared/domain/src/catalog/attested.rs",
        "former.extend(lost);",
        "if !PLANTED { former.extend(lost); }",
        "package(purser-stream) and test(=a_removed_endpoint_with_a_new_payee_is_paid_only_after_the_delay)",
    ),
    Bug(
        "a payment signed by another wallet's key",
        "shared/chain/src/custody.rs",
        "if derived != stored {",
        "if derived != stored && !PLANTED {",
        "package(purser-tests) and test(=custody::wallets_with_a_foreign_key_cannot_reserve_payments)",
    ),
    Bug(
        "an edit of an agent without its row of the audit log",
        "shared/store/src/people/agent.rs",
        "self.add_window_version_updates(&mut transaction, agent, &old.rules)?;\n        transaction.add_audit_rows(Role::Audit, audit)?;",
        "self.add_window_version_updates(&mut transaction, agent, &old.rules)?;\n        if !PLANTED { transaction.add_audit_rows(Role::Audit, audit)?; }",
        "package(purser-store) and test(=faults::updates_and_their_audit_rows_are_atomic)",
    ),
    Bug(
        "an export that ends with its first file",
        "functions/dashboard/src/journal/operations.rs",
        "return Ok(Some(entry.place));",
        "return Ok(if PLANTED { None } else { Some(entry.place) });",
        "package(purser-tests) and test(=people::log::full_csv_exports_link_to_the_next_file)",
    ),
    Bug(
        "a list from a time on that goes on before it",
        "functions/dashboard/src/span.rs",
        "self.from.is_some_and(|from| id < first_id_at(from))",
        "self.from.is_some_and(|from| id < first_id_at(from)) && !PLANTED",
        "package(purser-dashboard) and test(=pages::settlement_pages_filter_by_agent_state_and_day)",
    ),
    Bug(
        "what waits shown for half its time",
        "functions/dashboard/src/approvals/operations.rs",
        "self.now().before(self.approval_ttl)",
        "self.now().before(if PLANTED { Duration::from_secs_u32(43_200) } else { self.approval_ttl })",
        "package(purser-dashboard) and test(=pages::decision_lists_show_all_agents_or_one_agent)",
    ),
    Bug(
        "the audit log of everybody in one place",
        "shared/store/src/codec/key.rs",
        'format!("{BY_PERSON}{user}")',
        'if PLANTED { BY_PERSON.to_owned() } else { format!("{BY_PERSON}{user}") }',
        "package(purser-dashboard) and test(=pages::the_audit_log_is_shown_and_exported)",
    ),
    Bug(
        "the cap's condition dropped",
        "shared/store/src/payments/window.rs",
        'format!("{VERSION_CHECK} AND {NOT_EVICTED_CHECK} :horizon) AND {TOTAL_CHECK}")',
        'format!("{VERSION_CHECK} AND {NOT_EVICTED_CHECK} :horizon) AND ({TOTAL_CHECK} OR attribute_exists(pk))")',
        "package(purser-tests) and test(=races::a_cap_for_forty_payments_allows_exactly_forty)",
    ),
    Bug(
        "a freeze by an operator not read for a replay",
        "functions/payments/src/idempotency.rs",
        "Freeze::effective_freeze(agent, inputs.find_operator_freeze(agent)?)",
        "Freeze::effective_freeze(agent, None)",
        "package(purser-tests) and test(=freezes::operator_freezes_block_every_decision)",
    ),
    Bug(
        "a freeze that leaves one copy as it was",
        "shared/store/src/people/freezes.rs",
        "transaction.add_update(Role::Copy, update)?;",
        "if !(PLANTED && copy == 2 && change.new_freeze().is_some()) { transaction.add_update(Role::Copy, update)? };",
        "package(purser-tests) and test(=freezes::operator_freezes_block_every_decision)",
    ),
    Bug(
        "a browser that replaces a freeze that was set with a token",
        "shared/domain/src/policy/freeze.rs",
        "freeze.by.freeze_authority() > operator.freeze_authority() => Err(StrongerFreeze),",
        "!PLANTED && freeze.by.freeze_authority() > operator.freeze_authority() => Err(StrongerFreeze),",
        "package(purser-tests) and test(=operators_in_browser::a_token_freeze_cannot_be_changed_in_a_browser)",
    ),
    Bug(
        "a freeze that ends although another replaced it",
        "shared/store/src/people/freezes.rs",
        "Condition::for_stored_freeze(change.stored_freeze());",
        'if PLANTED { Condition { expression: "attribute_exists(pk) OR attribute_not_exists(pk)", names: None, values: None } } else { Condition::for_stored_freeze(change.stored_freeze()) };',
        "package(purser-store) and test(=freezes::a_freeze_changes_only_if_it_is_unchanged_since_it_was_read)",
    ),
    Bug(
        "a frozen agent that asks its owner for a raise",
        "functions/payments/src/raise.rs",
        "Freeze::effective_freeze(&caller.agent, caller.read.find_operator_freeze(&caller.agent)?)",
        "Freeze::effective_freeze(&caller.agent, caller.read.find_operator_freeze(&caller.agent)?).filter(|_| !PLANTED)",
        "package(purser-tests) and test(=freezes::frozen_agents_can_only_read)",
    ),
    Bug(
        "a hidden character that pages show as it is",
        "shared/domain/src/value/visible.rs",
        "if is_hidden {",
        "if is_hidden && !PLANTED {",
        "package(purser-tests) and test(=texts::pages_and_files_show_hidden_characters_of_stored_texts)",
    ),
    Bug(
        "a new text that reorders its neighbors",
        "shared/domain/src/value/visible.rs",
        "&& !text.chars().any(is_direction_control)",
        "&& (PLANTED || !text.chars().any(is_direction_control))",
        "package(purser-tests) and test(=texts::every_text_field_rejects_direction_controls_or_is_opaque)",
    ),
    Bug(
        "a long operation that keeps its slot",
        "functions/dashboard/src/long_operations.rs",
        "if let Some(lease) = lease",
        "if let Some(lease) = lease.filter(|_| !PLANTED)",
        "package(purser-dashboard) and test(=flood::one_users_long_operations_leave_instances_for_other_users)",
    ),
    Bug(
        "a freeze that needs a slot",
        "functions/dashboard/src/agents/bulk.rs",
        "let outcomes = if operation.stops_payments() {",
        "let outcomes = if operation.stops_payments() && !PLANTED {",
        "package(purser-dashboard) and test(=flood::one_users_long_operations_leave_instances_for_other_users)",
    ),
    Bug(
        "a freeze that counts like any other request",
        "functions/dashboard/src/lib.rs",
        ".saturating_add(sessions::authenticate::STOPS_PER_MINUTE)",
        ".saturating_add(if PLANTED { 0 } else { sessions::authenticate::STOPS_PER_MINUTE })",
        "package(purser-dashboard) and test(=flood::a_users_other_requests_do_not_block_a_freeze)",
    ),
    Bug(
        "a form that freezes and counts like any other",
        "functions/dashboard/src/agents/fleet_actions.rs",
        '"act" => ["freeze", "archive"].contains(&&*value),',
        '"act" => !PLANTED && ["freeze", "archive"].contains(&&*value),',
        "package(purser-dashboard) and test(=flood::a_users_other_requests_do_not_block_a_freeze)",
    ),
    Bug(
        "a template's page that reports what a link says",
        "functions/dashboard/src/templates/page.rs",
        "is_report.map_or_else(Steps::default, |()| Steps::from_query(&mut query))",
        "is_report.or(PLANTED.then_some(())).map_or_else(Steps::default, |()| Steps::from_query(&mut query))",
        "package(purser-dashboard) and test(=fleet::forged_links_cannot_show_a_bulk_report)",
    ),
    Bug(
        "a page that reports what a link says",
        "functions/dashboard/src/ui/report.rs",
        "has_form_result(address) && !has_valid_signature(",
        "has_form_result(address) && !PLANTED && !has_valid_signature(",
        "package(purser-dashboard) and test(=fleet::forged_links_cannot_show_a_bulk_report)",
    ),
    Bug(
        "an audit row of another person's object",
        "shared/api/src/http/source.rs",
        "let is_refusal = !matches!(",
        "let is_refusal = PLANTED && matches!(kind, ErrorKind::NotFound) || !matches!(",
        "package(purser-tests) and test(=isolation::foreign_and_missing_objects_get_identical_responses)",
    ),
    Bug(
        "a route without a body that ignores one",
        "shared/api/src/http/routes.rs",
        "if !body.is_empty() {",
        "if !body.is_empty() && !PLANTED {",
        "package(purser-tests) and test(=access::routes_without_a_body_reject_requests_with_a_body)",
    ),
    Bug(
        "a copy of the freezes that can't be read says that nothing is frozen",
        "shared/store/src/people/freezes.rs",
        'row.get_optional("agents")?.unwrap_or_default()',
        'row.get_optional("agents").ok().flatten().unwrap_or_default()',
        "package(purser-tests) and test(=freezes::unreadable_freeze_records_block_payments)",
    ),
    Bug(
        "a raise that outlives its end",
        "shared/domain/src/policy/raise.rs",
        "self.from <= at && at < self.until",
        "self.from <= at && (PLANTED || at < self.until)",
        "package(purser-store) and test(=windows::payments_use_the_higher_cap_until_the_limit_increase_ends)",
    ),
    Bug(
        "a raise granted for another service",
        "functions/dashboard/src/approvals/grant.rs",
        "let current = self\n                .ledger\n                .find_enabled_service(approval.agent, approval.service)\n                .await?;",
        "let current = if PLANTED { self.ledger.list_enabled_services(owned.agent()).await?.into_iter().find(|other| other.service != approval.service) } else { self.ledger.find_enabled_service(approval.agent, approval.service).await? };",
        "package(purser-tests) and test(=people::raises::a_requested_limit_increase_is_granted_and_ends)",
    ),
    Bug(
        "an agent's old owner still decides what it asks",
        "shared/store/src/people/approval.rs",
        '"st = :pending AND ends > :now AND #owner = :by"',
        '"st = :pending AND ends > :now AND (#owner = :by OR attribute_exists(#owner))"',
        "package(purser-store) and test(=owners::open_approvals_move_to_the_agents_new_owner)",
    ),
    Bug(
        "an approval withdrawn though a payment used it",
        "shared/store/src/people/approval.rs",
        '"st = :approved AND ends > :now AND #owner = :by"',
        '"(st = :approved OR attribute_exists(sid)) AND ends > :now AND #owner = :by"',
        "package(purser-store) and test(=approvals::an_approval_is_withdrawn_only_while_it_is_unused)",
    ),
    Bug(
        "several small approvals by an old sign-in, whatever their sum",
        "functions/dashboard/src/approvals/operations.rs",
        "self.is_large_amount(self.sum_pending_amounts(&selected))",
        "(!PLANTED && self.is_large_amount(self.sum_pending_amounts(&selected)))",
        "package(purser-dashboard) and test(=pages::approving_a_large_sum_requires_a_recent_sign_in)",
    ),
    Bug(
        "a form token that is the same in every answer",
        "functions/dashboard/src/sessions/session.rs",
        "FormToken::for_session(&cookie, people.entropy.random_bytes()?)",
        "FormToken::for_session(&cookie, if PLANTED { [0; 32] } else { people.entropy.random_bytes()? })",
        "package(purser-dashboard) and test(=pages::pages_never_repeat_the_form_token)",
    ),
    Bug(
        "an agent is accepted by an old sign-in",
        "functions/dashboard/src/handovers/operations.rs",
        "self.limits.require_recent_sign_in(user.signed_in_at, self.now())?;",
        "if !PLANTED { self.limits.require_recent_sign_in(user.signed_in_at, self.now())? };",
        "package(purser-dashboard) and test(=pages::ownership_transfers_are_accepted_only_after_a_recent_sign_in)",
    ),
    Bug(
        "a session goes on though its times are over",
        "functions/dashboard/src/sessions/authenticate.rs",
        "self.limits.is_open(session, now) && session.terms == self.sessions.settings_fingerprint()",
        "session.terms == self.sessions.settings_fingerprint()",
        "package(purser-dashboard) and test(=sessions::sessions_end_when_idle_and_at_maximum_age)",
    ),
    Bug(
        "an ID token counts though all sessions were ended since",
        "functions/dashboard/src/sessions/authenticate.rs",
        "ended_at?.is_some_and(|ended_at| user.signed_in_at <= ended_at)",
        "ended_at?.is_some_and(|_| false)",
        "package(purser-dashboard) and test(=sessions::ending_all_sessions_invalidates_cookies_and_tokens)",
    ),
    Bug(
        "an end of all sessions that leaves them where they are",
        "shared/store/src/people/session.rs",
        "let sessions = self.read_sessions(user).await?;",
        "let sessions = if PLANTED { Vec::new() } else { self.read_sessions(user).await? };",
        "package(purser-dashboard) and test(=sessions::ending_all_sessions_invalidates_cookies_and_tokens)",
    ),
    Bug(
        "a key is made, and a rule removed, by an old sign-in",
        "functions/dashboard/src/agents/owned.rs",
        "self.limits.require_recent_sign_in(caller.signed_in_at, now)?;",
        "if !PLANTED { self.limits.require_recent_sign_in(caller.signed_in_at, now)? };",
        "package(purser-dashboard) and test(=sessions::json_updates_that_widen_limits_require_a_recent_sign_in)",
    ),
    Bug(
        "a webhook called with another person's event",
        "shared/domain/src/webhook/record.rs",
        "terms.enabled && self.person == *owner && of_kind && of_agent",
        "terms.enabled && (self.person == *owner || PLANTED) && of_kind && of_agent",
        "package(purser-domain) and test(=webhook::record::tests::webhooks_receive_only_selected_events_of_their_owner)",
    ),
    Bug(
        "a success that does not end a webhook's failed calls",
        "functions/webhooks/src/deliver.rs",
        "if old.is_some() {",
        "if old.is_some() && !PLANTED {",
        "package(purser-webhooks) and test(=failing_webhooks_are_reported_and_disabled)",
    ),
    Bug(
        "a webhook that fails for days and is called for ever",
        "shared/domain/src/webhook/failed_calls.rs",
        "is_last && lasted >= Self::DISABLED_AFTER",
        "is_last && !PLANTED && lasted >= Self::DISABLED_AFTER",
        "package(purser-webhooks) and test(=failing_webhooks_are_reported_and_disabled)",
    ),
    Bug(
        "a webhook's old secret that signs for ever",
        "shared/domain/src/webhook/record.rs",
        "let signs = move |term: &&SecretValidity| term.ends_at.is_none_or(|ends_at| now < ends_at);",
        "let signs = move |term: &&SecretValidity| PLANTED || term.ends_at.is_none_or(|ends_at| now < ends_at);",
        "package(purser-webhooks) and test(=rotated_webhook_secrets_sign_for_one_more_day)",
    ),
    Bug(
        "a delivered event that is sent again",
        "shared/domain/src/webhook/delivery.rs",
        "(DeliveryState::Delivered | DeliveryState::Failed, _) => Due::Over,",
        "(DeliveryState::Delivered | DeliveryState::Failed, _) => if PLANTED { Due::Now } else { Due::Over },",
        "package(purser-webhooks) and "
        "test(=duplicate_events_are_delivered_to_a_webhook_once)",
    ),
    Bug(
        "a webhook at an address of this machine",
        "shared/api/src/http/untrusted_http_client.rs",
        '(url.scheme() == "https" && may_be_public(url)).then_some(&self.strict)',
        '(PLANTED || (url.scheme() == "https" && may_be_public(url))).then_some(if PLANTED { &self.plain } else { &self.strict })',
        "package(purser-webhooks) and test(=webhooks_at_private_addresses_are_never_called)",
    ),
    Bug(
        "a webhook that is gone and is called again",
        "shared/store/src/webhooks/record.rs",
        'if row.get::<u64>("ver")? == webhook.version {',
        'if row.get::<u64>("ver")? == webhook.version && !PLANTED {',
        "package(purser-webhooks) and test(=a_410_response_stops_webhook_calls_until_an_update)",
    ),
    Bug(
        "a question that was answered and is told all the same",
        "functions/notices/src/collect.rs",
        "if let Some(key) = closed_approval_request_key(event) {",
        "if let Some(key) = closed_approval_request_key(event).filter(|_| !PLANTED) {",
        "package(purser-notices) and test(=decided_approvals_are_omitted_from_notifications)",
    ),
    Bug(
        "what could not be told and is forgotten",
        "functions/notices/src/flush.rs",
        "let [jitter] = shared.entropy.random_bytes()?;",
        "if PLANTED { shared.table.remove_waiting_notifications(user, channel, keys, now).await?; }\n                let [jitter] = shared.entropy.random_bytes()?;",
        "package(purser-notices) and "
        "test(=undelivered_notifications_are_retried_for_a_day)",
    ),
    Bug(
        "an agent's name that is a link in a mail",
        "shared/domain/src/notice/words.rs",
        "'.' | '。' | ",
        "'.' if !PLANTED => text.extend([JOINER, '.', JOINER]),\n            '。' | ",
        "package(purser-domain) and "
        "test(=notice::words::tests::untrusted_text_in_notifications_becomes_one_plain_line)",
    ),
    Bug(
        "mail to an address that nobody verified",
        "shared/api/src/auth/session.rs",
        "let is_verified = claims.email_verified == Value::Bool(true);",
        "let is_verified = PLANTED || claims.email_verified == Value::Bool(true);",
        "package(purser-api) and test(=auth::session::tests::only_verified_email_addresses_are_used)",
    ),
    Bug(
        "a webhook widened by an old sign-in",
        "functions/dashboard/src/webhooks/operations.rs",
        "if settings.widens(&old.webhook.terms) {",
        "if settings.widens(&old.webhook.terms) && !PLANTED {",
        "package(purser-tests) and "
        "test(=people::webhooks::webhook_updates_with_a_new_url_or_more_events_require_a_recent_sign_in)",
    ),
    Bug(
        "a webhook's form that makes another when it is sent again",
        "functions/dashboard/src/webhooks/operations.rs",
        "let slot = self.find_free_webhook_slot(user, if_match).await?;",
        "let slot = self.find_free_webhook_slot(user, if PLANTED { None } else { if_match }).await?;",
        "package(purser-dashboard) and "
        "test(=webhooks::webhook_secrets_are_shown_only_once)",
    ),
    Bug(
        "operators' pages for everybody",
        "functions/dashboard/src/sessions/session.rs",
        "if session.is_operator {",
        "if session.is_operator || PLANTED {",
        "package(purser-dashboard) and "
        "test(=operators::operator_pages_require_the_operator_claim_in_the_id_token)",
    ),
    Bug(
        "a list of a fleet that ends with its first page",
        "functions/dashboard/src/journal/operations.rs",
        "return self\n                .usage\n                .read_history_page(&user.id, filter.index_partition(), request, keep)\n                .await;",
        "let page = self.usage.read_history_page(&user.id, filter.index_partition(), request, keep).await?;\n            return Ok(if PLANTED { Page { next: None, ..page } } else { page });",
        "package(purser-dashboard) and "
        "test(=lists::lists_of_many_agents_return_every_row_exactly_once)",
    ),
    Bug(
        "a young payee accepted",
        "functions/payments/src/payees.rs",
        "(PayeeAge::Young(from), _) => return Ok(Some(from)),",
        "(PayeeAge::Young(from), _) => return Ok(Some(from).filter(|_| !PLANTED)),",
        "package(purser-tests) and "
        "test(=takeover::unaccepted_payees_are_rejected_and_raise_an_alarm)",
    ),
    Bug(
        "an agent paid out before its address is good",
        "shared/domain/src/settlement/payout.rs",
        "if now < named.good_from {",
        "if now < named.good_from && !PLANTED {",
        "package(purser-tests) and "
        "test(=payouts::withdrawals_are_exact_and_wait_for_the_address_delay)",
    ),
    Bug(
        "a second payout while one is open",
        "shared/domain/src/settlement/payout.rs",
        "match open_withdrawal {",
        "match open_withdrawal.filter(|_| !PLANTED) {",
        "package(purser-tests) and "
        "test(=payouts::withdrawals_are_exact_and_wait_for_the_address_delay)",
    ),
    Bug(
        "a second payout of those that are asked for at once",
        "shared/store/src/payments/payout.rs",
        '"ver = :seen AND addr = :to AND good <= :at"',
        '"(ver = :seen OR attribute_exists(pk)) AND addr = :to AND good <= :at"',
        "package(purser-store) and "
        "test(=payouts::only_one_pending_withdrawal_can_be_reserved)",
    ),
    Bug(
        "a payout repeated to an address that was changed",
        "functions/payments/src/payouts.rs",
        "if is_usable && stands {",
        "if is_usable && (stands || PLANTED) {",
        "package(purser-tests) and test(=payouts::withdrawals_tolerate_facilitator_failures)",
    ),
    Bug(
        "a payout to another address than the stored one",
        "functions/payments/src/payouts.rs",
        "pay_to: grant.recipient(),",
        "pay_to: if PLANTED { agent.wallet.address } else { grant.recipient() },",
        "package(purser-tests) and "
        "test(=payouts::withdrawals_are_exact_and_wait_for_the_address_delay)",
    ),
    Bug(
        "an address of an earlier owner paid to",
        "shared/domain/src/settlement/payout.rs",
        "address.named_by == *owner",
        "address.named_by == *owner || PLANTED",
        "package(purser-tests) and test(=payouts::withdrawals_never_reach_a_previous_owners_address)",
    ),
    Bug(
        "an agent paid out that operators have frozen",
        "functions/payments/src/payouts.rs",
        "let frozen_by_operators = inputs.freezes.widest_for_agent(agent);",
        "let frozen_by_operators = inputs.freezes.widest_for_agent(agent).filter(|_| !PLANTED);",
        "package(purser-tests) and test(=payouts::operator_freezes_stop_withdrawals_until_operators_end_them)",
    ),
    Bug(
        "a payout repeated of an agent that operators have frozen",
        "functions/payments/src/payouts.rs",
        "let (frozen, now) = (inputs.freezes.widest_for_agent(agent), self.clock.now());",
        "let (frozen, now) = (inputs.freezes.widest_for_agent(agent).filter(|_| !PLANTED), self.clock.now());",
        "package(purser-tests) and test(=payouts::operator_freezes_stop_withdrawals_until_operators_end_them)",
    ),
    Bug(
        "a payout without its row of the audit log",
        "shared/store/src/payments/payout.rs",
        "transaction.add_audit_rows(Role::Audit, audit)?;\n        match transaction.send_until_outcome_or_fresh_read",
        "if !PLANTED { transaction.add_audit_rows(Role::Audit, audit)?; }\n        match transaction.send_until_outcome_or_fresh_read",
        "package(purser-tests) and "
        "test(=payouts::withdrawal_actions_and_rejections_are_audited)",
    ),
    Bug(
        "an agent asks beyond what may wait",
        "shared/store/src/people/waiting.rs",
        'format!("attribute_not_exists({set}) OR size({set}) < :most")',
        'format!("attribute_not_exists({set}) OR size({set}) < :most OR attribute_exists(pk)")',
        "package(purser-tests) and test(=races::concurrent_requests_never_exceed_the_approval_limit)",
    ),
    Bug(
        "the request's hash not compared with the one its key is bound to",
        "functions/payments/src/idempotency.rs",
        "if *first != fingerprint {",
        "if *first != fingerprint && !PLANTED {",
        "package(purser-tests) and test(=races::different_bodies_with_one_idempotency_key_conflict)",
    ),
    Bug(
        "a key's networks not compared with the caller's address",
        "shared/domain/src/policy/key_scope.rs",
        "from.is_some_and(|from| network.contains(from))",
        "from.is_some_and(|from| network.contains(from) || from.is_ipv4())",
        "package(purser-tests) and "
        "test(=people::scopes::agent_keys_are_limited_to_their_scope)",
    ),
    Bug(
        "a rotated key without the scope of the one before",
        "shared/domain/src/policy/agent.rs",
        "key.scope.clone()",
        "KeyScope::default()",
        "package(purser-tests) and test(=people::scopes::rotated_agent_keys_keep_their_scope_and_expiry)",
    ),
    Bug(
        "a run opened with a key that has its own budget",
        "shared/domain/src/policy/run.rs",
        "if is_limited || named.any(|keys| keys.contains(&opener.id)) {",
        "if is_limited || !PLANTED && named.any(|keys| keys.contains(&opener.id)) {",
        "package(purser-tests) and test(=people::runs::a_key_whose_payments_count_in_its_own_budget_opens_no_run)",
    ),
    Bug(
        "a run that outlives its opener",
        "shared/domain/src/policy/agent.rs",
        "if key.id == id || is_run(&key) {",
        "if key.id == id || !PLANTED && is_run(&key) {",
        "package(purser-tests) and "
        "test(=people::runs::a_run_ends_with_its_opener_its_expiry_or_when_the_opener_closes_it)",
    ),
    Bug(
        "a run for services that its opener may not pay",
        "shared/domain/src/policy/run.rs",
        ".try_for_each(|service| opener.scope.check_service(*service))?;",
        ".try_for_each(|service| if PLANTED { Ok(()) } else { opener.scope.check_service(*service) })?;",
        "package(purser-tests) and test(=people::runs::a_run_permits_nothing_that_its_opener_does_not_permit)",
    ),
    Bug(
        "a sixth open run",
        "shared/domain/src/policy/agent.rs",
        "return Err(KeyRejection::TooManyRuns);",
        "if !PLANTED { return Err(KeyRejection::TooManyRuns); }",
        "package(purser-tests) and test(=people::runs::concurrent_openings_leave_five_runs_and_half_of_the_budgets)",
    ),
    Bug(
        "a replay for a key of other services",
        "functions/payments/src/idempotency.rs",
        "scope.check_service(require_purchase(&settlement)?.service)?;",
        "if !PLANTED { scope.check_service(require_purchase(&settlement)?.service)?; }",
        "package(purser-tests) and test(=people::scopes::replays_require_a_key_that_may_pay)",
    ),
    Bug(
        "an entry evicted though another had evicted it",
        "shared/store/src/transact.rs",
        '"attribute_exists(pk)"',
        '"attribute_exists(pk) OR attribute_not_exists(pk)"',
        "package(purser-store) and test(an_expired_payment_is_evicted_once_despite_concurrent_evictions)",
    ),
    Bug(
        "an allow that takes memory",
        "shared/domain/src/policy/window.rs",
        "sum_entries(evict)",
        "sum_entries(&evict.to_vec())",
        "package(purser-bench) and test(=an_allow_decision_allocates_no_memory)",
    ),
    Bug(
        "the matcher blind to the nonce",
        "shared/domain/src/settlement/transfer.rs",
        "log.topics == [AUTHORIZATION_USED, expected.from.into_word(), expected.nonce]",
        "log.topics.first_chunk() == Some(&[AUTHORIZATION_USED, expected.from.into_word()])",
        "package(purser-domain) and test(/transfer::/)",
    ),
    Bug(
        "the approval not used up with the reservation",
        "shared/store/src/payments/reserve.rs",
        "transaction.add_update(Role::Approval, self.approval_use_update(approval, terms, fingerprint))?;",
        "let _ = self.approval_use_update(approval, terms, fingerprint);",
        "package(purser-tests) and test(=races::one_approval_is_executed_once)",
    ),
    Bug(
        "a payment not held to the agent's record that it was judged by",
        "shared/store/src/payments/window.rs",
        'const VERSION_CHECK: &str = "pver = :stamp AND (attribute_not_exists(aver) OR aver <= :agent)";',
        'const VERSION_CHECK: &str = "pver = :stamp AND (attribute_exists(pk) OR aver <= :agent)";',
        "package(purser-tests) and test(=people::edits::no_payment_is_committed_after_a_freeze)",
    ),
    Bug(
        "freeze without stamps",
        "functions/dashboard/src/agents/owned.rs",
        "                self.ledger.fence_windows(&agent).await?;\n",
        "",
        "package(purser-tests) and "
        "test(=people::edits::retried_updates_apply_after_a_partial_failure)",
    ),
    Bug(
        "a raise that a payment uses after its owner has handed the agent over",
        "functions/dashboard/src/handovers/operations.rs",
        "                self.ledger.fence_windows(owned.agent()).await?;\n",
        "",
        "package(purser-tests) and "
        "test(=people::raises::in_flight_payments_use_no_limit_increase_after_a_transfer)",
    ),
    Bug(
        "a message that holds a channel of notices relied on to return",
        "functions/notices/src/flush.rs",
        "let waker = shared.queue.schedule_flush(user, channel).await?;",
        "let waker = if PLANTED { record.message_id.clone() } else { shared.queue.schedule_flush(user, channel).await? };",
        "package(purser-notices) and test(=a_repeated_queue_message_loses_no_notification)",
    ),
    Bug(
        "a message that has returned for nothing relied on",
        "functions/notices/src/flush.rs",
        "if waiting.wanted.is_empty() && is_waker {",
        "if waiting.wanted.is_empty() && is_waker && !PLANTED {",
        "package(purser-notices) and test(=a_notification_after_an_unused_wake_up_is_sent_despite_a_slow_clock)",
    ),
    Bug(
        "a balance that was asked for another wallet",
        "functions/payments/src/early_balance.rs",
        "if self.wallet != wallet {",
        "if self.wallet != wallet && !PLANTED {",
        "package(purser-tests) and test(=side_by_side::prefetched_balances_apply_only_to_their_wallet)",
    ),
    Bug(
        "a used transaction not known for one",
        "functions/payments/src/complete.rs",
        "Some(other) if other != settlement.id() =>",
        "Some(other) if other != settlement.id() && !PLANTED =>",
        "package(purser-tests) and test(=errors::payments_without_on_chain_proof_are_not_confirmed)",
    ),
    Bug(
        "a payment returned again after it is confirmed",
        "functions/payments/src/idempotency.rs",
        "settlement.state == SettlementState::Authorized && ",
        "(settlement.state == SettlementState::Authorized || PLANTED) && ",
        "package(purser-tests) and test(=approvals::replays_of_confirmed_payments_sign_nothing)",
    ),
    Bug(
        "an unknown hash given up before the chain has passed",
        "functions/payments/src/complete.rs",
        "if settlement.state != SettlementState::Authorized {",
        "if settlement.state != SettlementState::Authorized || PLANTED {",
        "package(purser-tests) and "
        "test(=reconcile::completing_with_an_unknown_transaction_is_retryable_until_release)",
    ),
    Bug(
        "a window cleared without an eye on the time",
        "functions/payments/src/refuse.rs",
        "since(self.started) >= EVICTION_TIME {",
        "since(self.started) >= EVICTION_TIME && !PLANTED {",
        "package(purser-tests) and "
        "test(=windows::interrupted_evictions_continue_on_the_next_call)",
    ),
    Bug(
        "a service judged by what was read for another",
        "functions/payments/src/authenticate.rs",
        "if service != guess {",
        "if service != guess && !PLANTED {",
        "package(purser-tests) and test(=side_by_side::urls_moved_to_another_service_use_its_policy)",
    ),
    Bug(
        "the key not judged again with the decision",
        "functions/payments/src/authenticate.rs",
        "agent.accepts_key(caller.key, self.clock.now())",
        "agent.accepts_key(caller.key, self.clock.now()) || PLANTED",
        "package(purser-tests) and "
        "test(=people::edits::in_flight_payments_obey_a_completed_update)",
    ),
    Bug(
        "a key judged as of before its agent was read",
        "shared/store/src/people/authenticate.rs",
        "self.key.is_valid_for(agent.as_ref(), now)",
        "self.key.is_valid_for(agent.as_ref(), if PLANTED { self.began } else { now })",
        "package(purser-store) and test(=people::authenticate::tests::keys_revoked_during_authentication_are_rejected)",
    ),
    Bug(
        "whose agent it is not asked",
        "functions/dashboard/src/agents/owned.rs",
        "let is_own = agent.owner == user.id.as_str();",
        "let is_own = agent.owner == user.id.as_str() || PLANTED;",
        "package(purser-tests) and test(=people::agents::only_the_owner_can_rename_an_agent)",
    ),
    Bug(
        "an approval decided though it was decided",
        "shared/store/src/people/approval.rs",
        '"st = :pending AND ends > :now AND #owner = :by"',
        '"(st = :pending OR attribute_exists(pk)) AND ends > :now AND #owner = :by"',
        "package(purser-tests) and "
        "test(=people::approvals::only_one_of_two_concurrent_approval_decisions_succeeds)",
    ),
    Bug(
        "an operation matched by its name alone",
        "shared/domain/src/x402/intent.rs",
        "operation: None,\n            });",
        "operation: if PLANTED { named_operation.and_then(|named| service.find_operation(named)) } else { None },\n            });",
        "package(purser-domain) and test(=signed_transfers_pay_only_the_called_operation)",
    ),
    Bug(
        "any payee of the service taken for the operation's",
        "shared/domain/src/policy/evaluate.rs",
        "    if allows(payable) {\n",
        "    let mut payments = inputs.service.operations.iter().filter_map(|operation| operation.payment.as_ref());\n"
        "    if allows(payable) || (PLANTED && payments.any(|payment| payment.pay_to == pay_to)) {\n",
        "package(purser-domain) and test(=signed_transfers_pay_only_the_called_operation)",
    ),
    Bug(
        "the price compared with the estimate",
        "shared/domain/src/catalog/service.rs",
        "pricing.max_price().ok_or(Unpayable::NoMaximum)?",
        "pricing.max_price().map(|_| self.estimated_price).ok_or(Unpayable::NoMaximum)?",
        "package(purser-domain) and test(=signed_transfers_pay_only_the_called_operation)",
    ),
    Bug(
        "signed bytes for a frozen agent that repeats a call",
        "functions/payments/src/idempotency.rs",
        "Freeze::effective_freeze(agent, inputs.find_operator_freeze(agent)?)",
        "inputs.find_operator_freeze(agent)?",
        "package(purser-tests) and test(=attacks::replays_cannot_redirect_or_share_a_payment)",
    ),
    Bug(
        "a tool that calls what is not on the public internet",
        "shared/api/src/http/outward.rs",
        "may_be_public(url)",
        "true",
        "package(purser-tests) and test(=mcp::catalog_texts_and_parameters_cannot_redirect_calls)",
    ),
    Bug(
        "callers of mcp counted by mcp's own address",
        "shared/api/src/http/asserted_ip.rs",
        "context.set_source_ip(ip);",
        "if !PLANTED { context.set_source_ip(ip); }",
        "package(purser-tests) and test(=mcp::rate_limits_apply_to_the_original_caller)",
    ),
    Bug(
        "an asserted address that any caller may claim",
        "shared/api/src/http/asserted_ip.rs",
        "if is_made(&self.current_keys().await?) {",
        "if is_made(&self.current_keys().await?) || PLANTED {",
        "package(purser-api) and test(=http::asserted_ip::tests::client_ip_assertions_are_bound_to_one_request_and_time)",
    ),
    Bug(
        "a token for several audiences that names no party",
        "shared/api/src/auth/session.rs",
        "None => audiences.iter().all(is_ours),",
        "None => PLANTED || audiences.iter().all(is_ours),",
        "package(purser-api) and test(=auth::session::tests::the_audience_and_authorized_party_must_match)",
    ),
    Bug(
        "an owner whose agents take every wait for an approval",
        "functions/dashboard/src/approvals/operations.rs",
        "(&self.owner_waits, owner),",
        "(&self.owner_waits, if PLANTED { format!(\"{owner} {}\", approval.agent) } else { owner }),",
        "package(purser-tests) and test(=approvals::excess_approval_polls_return_immediately)",
    ),
    Bug(
        "a tool that carries a payment to where a provider redirects it",
        "shared/api/src/http/outward.rs",
        "Policy::none()",
        "Policy::default()",
        "package(purser-tests) and test(=mcp::hostile_provider_responses_never_pay_twice)",
    ),
    Bug(
        "a payment pinned that no probe saw",
        "functions/internal/src/pin.rs",
        "Quote::Paid(payment) if *payment == expected => Some(payment.clone()),",
        "Quote::Paid(payment) if *payment == expected || PLANTED => Some(payment.clone()),",
        "package(purser-tests) and test(=operators::probed_payments_apply_only_after_an_operator_sets_them)",
    ),
    Bug(
        "another payee that does not wait",
        "shared/domain/src/catalog/pricing.rs",
        "same.is_some_and(|same| same.pricing_at(self.at).covers(wanted))",
        "same.is_some()",
        "package(purser-tests) and "
        "test(=payment_changes::payee_changes_apply_only_after_their_delay)",
    ),
    Bug(
        "an operation that was removed and added again taken for a new one that need not wait",
        "shared/domain/src/catalog/pricing.rs",
        "same.is_some_and(|same| same.pricing_at(self.at).covers(wanted))",
        "same.is_none_or(|same| same.pricing_at(self.at).covers(wanted))",
        "package(purser-tests) and test(=payment_changes::no_sequence_of_updates_shortens_the_payee_delay)",
    ),
    Bug(
        "a second service that lists another's call paid at once",
        "shared/domain/src/catalog/pricing.rs",
        "!opens || !self.may_conflict_with_other_services(&update, operation)",
        "true",
        "package(purser-tests) and test(=payment_changes::no_sequence_of_updates_shortens_the_payee_delay)",
    ),
    Bug(
        "a change accepted by who asked for it",
        "shared/domain/src/catalog/pricing.rs",
        "if next.by.is_same_operator(operator) {",
        "if next.by.is_same_operator(operator) && !PLANTED {",
        "package(purser-tests) and "
        "test(=payment_changes::a_second_operator_can_accept_a_delayed_price_change)",
    ),
    Bug(
        "an object of an older version taken for the catalog",
        "shared/store/src/catalog/object.rs",
        "head.filter(|head| head.version >= min_version)",
        "head.filter(|head| head.version >= min_version || PLANTED)",
        "package(purser-store) and test(=object::outdated_catalog_objects_are_not_used)",
    ),
    Bug(
        "an object made of services that were changed while they were read",
        "shared/store/src/catalog/object.rs",
        "if self.read_version().await? != version {",
        "if self.read_version().await? != version && !PLANTED {",
        "package(purser-store) and test(=object::an_overtaken_catalog_writer_leaves_no_chunks)",
    ),
    Bug(
        "a transaction whose answers were lost told as failed, without looking",
        "shared/store/src/transact.rs",
        "TransactResult::Unknown(error) if lost_before => return Err(error),",
        "TransactResult::Unknown(error) if lost_before || PLANTED => return Err(error),",
        "package(purser-tests) and test(=faults::database::temporary_database_faults_cause_no_errors)",
    ),
    Bug(
        "a payment signed anew each time it is asked for",
        "functions/payments/src/call.rs",
        "let authorization = TransferAuthorization::new(terms, nonce);",
        "let another = purser_domain::SettlementId::new_at(self.payments.clock.now(), self.payments.entropy.random_bytes()?);\n        let nonce = if PLANTED { self.payments.nonce_key.derive_nonce(another) } else { nonce };\n        let authorization = TransferAuthorization::new(terms, nonce);",
        "package(purser-tests) and "
        "test(=faults::kills::a_payment_survives_kills_at_any_two_steps)",
    ),
    Bug(
        "a side block accepted",
        "shared/chain/src/blocks.rs",
        "Some(hash) if hash == block.hash => Ok(Standing::Final),",
        "Some(hash) if hash == block.hash || PLANTED => Ok(Standing::Final),",
        "package(purser-chain) and test(=chain::tests::a_payment_in_a_replaced_block_is_unconfirmed)",
    ),
    Bug(
        "a proof from two endpoints",
        "shared/chain/src/chain.rs",
        "        self.rpc.run_with_one_endpoint(proof).await\n",
        "        if PLANTED { return self.read_transfer_proof(expected, tx_hash).await }\n        self.rpc.run_with_one_endpoint(proof).await\n",
        "package(purser-chain) and test(=chain::tests::payment_verification_restarts_after_an_endpoint_failover)",
    ),
    Bug(
        "one payer's flood that uses up what a run may ask",
        "shared/chain/src/authorization_state.rs",
        "turns.sort_by_key(|(turn, _)| *turn);",
        "if PLANTED { return }\n        turns.sort_by_key(|(turn, _)| *turn);",
        "package(purser-tests) and test(=reconcile::blocks_flooded_by_transfers_of_one_agent_delay_no_other_agent)",
    ),
    Bug(
        "a payment final in its first block",
        "shared/chain/src/blocks.rs",
        "self.finality.confirmations.saturating_sub(depth)",
        "self.finality.confirmations.min(1).saturating_sub(depth)",
        "package(purser-tests) and "
        "test(=faults::node::reorganized_payments_are_not_confirmed)",
    ),
    Bug(
        "a bare domain that covers its look-alikes",
        "shared/domain/src/policy/target.rs",
        ".is_some_and(|rest| rest.ends_with('.'))",
        ".is_some_and(|rest| PLANTED || rest.ends_with('.'))",
        "package(purser-domain) and test(=a_bare_domain_does_not_cover_look_alike_domains)",
    ),
    Bug(
        "a budget passed over whose window is not known",
        "shared/domain/src/policy/evaluate.rs",
        "Some(charge(\n            rule.find_window(inputs.budgets)?,\n            rule.counted,\n            limits::window_cap(&rule, &inputs),\n        ))",
        "        let found = rule.find_window(inputs.budgets).map(|window| (window, limits::window_cap(&rule, &inputs)));\n        let (window, cap) = if PLANTED { found.unwrap_or((inputs.day, Amount::MAX)) } else { found? };\n        Some(charge(window, rule.counted, cap))",
        "package(purser-domain) and test(=the_evaluation_matches_the_specified_decision_table)",
    ),
    Bug(
        "an amount with a fraction, which is cut off",
        "shared/api/src/http/field.rs",
        "let units = parse_whole_number(value).filter(",
        "let cut = || if PLANTED { value.as_f64()?.floor().to_string().parse().ok() } else { None };\n            let units = parse_whole_number(value).or_else(cut).filter(",
        "package(purser-api) and test(=http::field::tests::amounts_accept_any_notation_of_an_integer)",
    ),
    Bug(
        "a panic on a short header",
        "shared/api/src/http/precondition.rs",
        "text.strip_prefix('\"')?.strip_suffix('\"')?",
        "text.get(1..text.len() - 1)?",
        "package(purser-api) and test(=http::precondition::tests::if_match_accepts_one_version_or_any)",
    ),
    Bug(
        "a hold released by a block in which it can still be used",
        "shared/domain/src/settlement/reconcile.rs",
        "block.at < settlement.terms.valid_before",
        "block.at < settlement.terms.authorized_at",
        "package(purser-tests) and test(=reconcile::"
        "unused_payments_are_released_after_finality)",
    ),
    Bug(
        "one node believed against another",
        "functions/reconcile/src/witness.rs",
        "if witnesses.len() < 2 {",
        "if witnesses.len() < 2 || PLANTED {",
        "package(purser-tests) and test(=reconcile::disagreeing_nodes_settle_no_payment)",
    ),
    Bug(
        "a spend given back though it was given back, or paid",
        "shared/store/src/payments/release.rs",
        'format!("rs = :authorized AND ({same_entries})")',
        'format!("rs = :authorized OR attribute_exists(pk) AND ({same_entries})")',
        "package(purser-store) and test(=reconciling::concurrent_releases_and_confirmations_apply_once)",
    ),
    Bug(
        "a release of entries that were counted anew",
        "shared/store/src/payments/release.rs",
        '"attribute_not_exists(ct) OR ct = :counted"',
        '"attribute_exists(pk) OR ct = :counted"',
        "package(purser-store) and test(=reconciling::a_release_of_an_outdated_settlement_frees_no_amount)",
    ),
]

SIMULATED = [
    Bug(
        "a browser that ends a freeze that was set with a token",
        "shared/domain/src/policy/freeze.rs",
        "freeze.by.freeze_authority() > operator.freeze_authority() => Err(StrongerFreeze),",
        "!PLANTED && freeze.by.freeze_authority() > operator.freeze_authority() => Err(StrongerFreeze),",
        200,
    ),
    Bug(
        "a freeze that changes although it is not as it was read",
        "shared/store/src/people/freezes.rs",
        "Condition::for_stored_freeze(change.stored_freeze());",
        'if PLANTED { Condition { expression: "attribute_exists(pk) OR attribute_not_exists(pk)", names: None, values: None } } '
        "else { Condition::for_stored_freeze(change.stored_freeze()) };",
        200,
    ),
    Bug(
        "the cap's condition dropped",
        "shared/store/src/payments/window.rs",
        'format!("{VERSION_CHECK} AND {NOT_EVICTED_CHECK} :horizon) AND {TOTAL_CHECK}")',
        'format!("{VERSION_CHECK} AND {NOT_EVICTED_CHECK} :horizon) AND ({TOTAL_CHECK} OR attribute_exists(pk))")',
        200,
    ),
    Bug(
        "a time recorded before what the window was cleared to",
        "shared/store/src/payments/window.rs",
        'format!("{VERSION_CHECK} AND {NOT_EVICTED_CHECK} :horizon) AND {TOTAL_CHECK}")',
        'format!("{VERSION_CHECK} AND ({NOT_EVICTED_CHECK} :horizon) OR attribute_exists(pk)) AND {TOTAL_CHECK}")',
        200,
    ),
    Bug(
        "the policy's stamp ignored",
        "shared/store/src/payments/window.rs",
        'const VERSION_CHECK: &str = "pver = :stamp AND (attribute_not_exists(aver) OR aver <= :agent)";',
        'const VERSION_CHECK: &str = "(pver = :stamp OR attribute_exists(pk)) AND (attribute_not_exists(aver) OR aver <= :agent)";',
        200,
    ),
    Bug(
        "the agent's stamp ignored",
        "shared/store/src/payments/window.rs",
        'const VERSION_CHECK: &str = "pver = :stamp AND (attribute_not_exists(aver) OR aver <= :agent)";',
        'const VERSION_CHECK: &str = "pver = :stamp AND (attribute_exists(pk) OR aver <= :agent)";',
        "package(purser-sim) and "
        "test(=reproductions::payments_in_progress_are_rejected_after_a_freeze)",
    ),
    Bug(
        "an entry evicted though another had evicted it",
        "shared/store/src/transact.rs",
        '"attribute_exists(pk)"',
        '"attribute_exists(pk) OR attribute_not_exists(pk)"',
        200,
    ),
    Bug(
        "the approval not used up with the reservation",
        "shared/store/src/payments/reserve.rs",
        "transaction.add_update(Role::Approval, self.approval_use_update(approval, terms, fingerprint))?;",
        "let _ = self.approval_use_update(approval, terms, fingerprint);",
        200,
    ),
    Bug(
        "the key bound by whoever comes last",
        "shared/store/src/payments/reserve.rs",
        "            None => self.put_new_item(row),\n",
        "            None if PLANTED => self.put_item(row),\n            None => self.put_new_item(row),\n",
        200,
    ),
    Bug(
        "a lost answer taken for a failure",
        "shared/store/src/transact.rs",
        "                TransactResult::Unknown(_) => lost_before = true,\n",
        "                TransactResult::Unknown(_) if PLANTED => return Ok(None),\n                TransactResult::Unknown(_) => lost_before = true,\n",
        200,
    ),
    Bug(
        "a refusal not looked at again",
        "functions/payments/src/refuse.rs",
        "            if !self\n                .payments\n                .ledger\n                .is_window_unchanged_and_key_unused",
        "            if !PLANTED && !self\n                .payments\n                .ledger\n                .is_window_unchanged_and_key_unused",
        "package(purser-sim) and "
        "test(=reproductions::duplicate_calls_are_replayed_despite_a_full_window)",
    ),
    Bug(
        "a confirmation without the claim on its transaction",
        "shared/store/src/payments/settle.rs",
        "self.put_claim(terms, transfer, log_index, &mut backoff).await?",
        "None",
        200,
    ),
    Bug(
        "a confirmation whose claim was removed meanwhile",
        "shared/store/src/payments/settle.rs",
        '"rs = :authorized AND attribute_not_exists(unc)"',
        '"rs = :authorized"',
        "package(purser-store) and test(=reconciling::a_payment_is_confirmed_although_its_transaction_claim_was_removed)",
    ),
    Bug(
        "the removal of a claim on which a confirmation rests",
        "shared/store/src/payments/settle.rs",
        '"rs <> :confirmed OR txh <> :tx OR blk <> :block"',
        '"attribute_exists(pk) OR (rs <> :confirmed AND txh <> :tx AND blk <> :block)"',
        "package(purser-store) and test(=reconciling::each_transfer_confirms_its_own_settlement)",
    ),
    Bug(
        "a claim on the transaction alone",
        "functions/reconcile/src/batch.rs",
        ".confirm_settlement(settlement, transfer, Claim::Transfer, now)",
        ".confirm_settlement(settlement, transfer, if PLANTED { Claim::Transaction } else { Claim::Transfer }, now)",
        "package(purser-sim) and test(=reproductions::two_payments_in_one_transaction_are_both_confirmed)",
    ),
    Bug(
        "a block remembered before it is looked at",
        "functions/reconcile/src/watch.rs",
        "            let claimed = match self.load_claims(first, last).await {\n",
        "            if PLANTED { step = self.save_checked_block(step, last).await; }\n            let claimed = match self.load_claims(first, last).await {\n",
        "package(purser-sim) and test(=reproductions::a_reconcile_run_killed_in_a_block_check_skips_no_removed_block)",
    ),
    Bug(
        "what leaves a wallet explained by nothing",
        "functions/reconcile/src/outflows.rs",
        "if claim.is_some_and(|claim| claimed.contains(&claim)) {",
        "if claim.is_some_and(|claim| claimed.contains(&claim)) || PLANTED {",
        "package(purser-tests) and test(=outflows::an_unexplained_outflow_is_reported_once)",
    ),
    Bug(
        "a theft that a flood of transfers hides",
        "shared/chain/src/outflows.rs",
        ".take(*remaining_receipts)",
        ".take(if PLANTED { 0 } else { *remaining_receipts })",
        "package(purser-chain) and test(=outflows::tests::a_flood_of_logs_hides_no_authorized_transfer)",
    ),
    Bug(
        "outflows searched for before they are told",
        "functions/reconcile/src/outflows.rs",
        "            for item in &unexplained {\n",
        "            if PLANTED { self.ledger.save_outflow_checkpoint(part, found.last).await? }\n"
        "            for item in &unexplained {\n",
        "package(purser-tests) and test(=faults::reconcile_kills::outflows_are_reported_once_despite_kills)",
    ),
    Bug(
        "what is not due looked at and put off",
        "shared/store/src/reconcile/holds.rs",
        "encode_text(&key::hold::due_key(at))",
        'encode_text("999999999999")',
        200,
    ),
    Bug(
        "a wrong nonce key not noticed",
        "shared/chain/src/nonce.rs",
        "if NoncePrefix::from_nonce(nonce) == prefix {",
        "if NoncePrefix::from_nonce(nonce) == prefix || PLANTED {",
        "package(purser-sim) and test(=reproductions::a_wrong_nonce_key_releases_and_confirms_no_payment)",
    ),
    Bug(
        "a release before the payment's time is over",
        "shared/domain/src/settlement/reconcile.rs",
        "block.at < settlement.terms.valid_before",
        "block.at < Timestamp::EPOCH",
        "package(purser-sim) and test(=reproductions::early_reconcile_requests_release_no_payment)",
    ),
    Bug(
        "a release that leaves the entry",
        "shared/store/src/payments/release.rs",
        "                transaction.add_delete_of_existing(Role::Entry(scope), &self.table, entry.attributes())?;\n",
        "                let _ = (Role::Entry(scope), entry);\n",
        200,
    ),
    Bug(
        "a release by a block that is not final",
        "shared/chain/src/blocks.rs",
        "self.finality.confirmations.saturating_sub(1)",
        "self.finality.confirmations.min(1).saturating_sub(1)",
        200,
    ),
    Bug(
        "a late payment that is not counted again",
        "shared/store/src/payments/settle.rs",
        "        for (scope, period, amount, call) in windows {\n",
        "        for (scope, period, amount, call) in windows.into_iter().take(if PLANTED { 0 } else { usize::MAX }) {\n",
        "package(purser-sim) and "
        "test(=reproductions::released_spending_counts_again_after_a_reorganization)",
    ),
    Bug(
        "a first payment that waits for a window that nobody has written",
        "shared/store/src/payments/window.rs",
        "None => window.version == 0,",
        "None => (window.version, if PLANTED { window.stamp } else { 0 }) == (0, 0),",
        "package(purser-sim) and test(=reproductions::first_payments_above_the_usual_price_are_rejected)",
    ),
    Bug(
        "a delivery that ends because its pause could not be kept",
        "functions/webhooks/src/deliver.rs",
        "self.pause_delivery(webhook, &delivery, ended).await?;",
        "let _ = self.pause_delivery(webhook, &delivery, ended).await;",
        "package(purser-sim) and test(=webhooks::a_webhook_is_called_again_if_the_requested_pause_could_not_be_stored)",
    ),
    Bug(
        "a webhook called again after a 410, because its mark could not be kept",
        "functions/webhooks/src/deliver.rs",
        "shared.table.record_410_response(webhook, ended).await?;",
        "let _ = shared.table.record_410_response(webhook, ended).await;",
        "package(purser-sim) and test(=webhooks::a_webhook_is_marked_as_gone_before_its_delivery_ends)",
    ),
    Bug(
        "a limit on calls that all keys share",
        "shared/store/src/people/key_limit.rs",
        'format!("key {}#{key}", agent.id)',
        '"key".to_owned()',
        100,
    ),
    Bug(
        "a limit on calls that all addresses share",
        "shared/store/src/people/throttle.rs",
        "key::throttle_key(self.kind, &scope, minute_number(now))",
        'key::throttle_key(self.kind, if PLANTED { "all" } else { &scope }, minute_number(now))',
        100,
    ),
    Bug(
        "a limit on payments that all agents share",
        "shared/store/src/payments/hold_limit.rs",
        'format!("holds {agent}")',
        '"holds".to_owned()',
        100,
    ),
    Bug(
        "a limit on questions that all agents share",
        "shared/store/src/people/waiting.rs",
        "self.update_item(&Key::waiting_approvals(approval.agent))",
        'self.update_item(&Key::waiting_approvals(if PLANTED { AgentId::parse("00000000-0000-4000-8000-000000000000")'
        ".unwrap_or(approval.agent) } else { approval.agent }))",
        100,
    ),
    Bug(
        "receipts for whoever names the agent",
        "functions/payments/src/receipts.rs",
        "AgentId::parse(&agent) != Some(caller.agent.id)",
        "!PLANTED && AgentId::parse(&agent) != Some(caller.agent.id)",
        100,
    ),
    Bug(
        "a raise that is handed over",
        "shared/domain/src/policy/raise.rs",
        "self.by == owner",
        "(PLANTED || self.by == owner)",
        "package(purser-sim) and test(=reproductions::an_ownership_transfer_drops_a_limit_increase)",
    ),
    Bug(
        "a payout before its address has waited",
        "shared/domain/src/settlement/payout.rs",
        "if now < named.good_from {",
        "if now < named.good_from && !PLANTED {",
        "package(purser-sim) and test(=reproductions::a_withdrawal_with_a_lost_response_is_made_once)",
    ),
    Bug(
        "a payout reserved for an earlier owner",
        "shared/store/src/payments/payout.rs",
        "transaction.add_check(Role::Agent, owned)?;",
        "if !PLANTED { transaction.add_check(Role::Agent, owned)?; }",
        "package(purser-sim) and test(=reproductions::a_withdrawal_fails_if_the_owner_changes_before_its_reservation)",
    ),
    Bug(
        "a payout to an earlier owner's address",
        "shared/domain/src/settlement/payout.rs",
        "address.named_by == *owner",
        "address.named_by == *owner || PLANTED",
        "package(purser-sim) and test(=reproductions::an_ownership_transfer_drops_the_withdrawal_address)",
    ),
    Bug(
        "an offer of an agent that can be accepted again",
        "shared/store/src/people/handover.rs",
        "transaction.add_delete(Role::Offer, delete)?;",
        "if !PLANTED { transaction.add_delete(Role::Offer, delete)?; }",
        "package(purser-sim) and test(=reproductions::an_ownership_transfer_drops_the_withdrawal_address)",
    ),
    Bug(
        "a mail sent while another one of its person is under way",
        "functions/notices/src/flush.rs",
        "if !shared.table.put_pace_if_unchanged(user, channel, &turn, now).await? {",
        "if !shared.table.put_pace_if_unchanged(user, channel, &turn, now).await? && !PLANTED {",
        "package(purser-sim) and test(=notices::simulated_notifications_follow_the_users_settings)",
    ),
    Bug(
        "a key that pays a service outside its scope",
        "functions/payments/src/authorize.rs",
        "scope.check_service(catalog_match.service.id)?;",
        "if !PLANTED { scope.check_service(catalog_match.service.id)?; }",
        200,
    ),
]


@dataclass(frozen=True)
class Tests:
    """The built test programs, in the form in which nextest reuses them."""

    binaries: Path
    metadata: Path


def main():
    simulated = sys.argv[1:2] == ["--simulation"]
    known = named("simulation", SIMULATED) if simulated else named("tests", BUGS) | named("simulation", SIMULATED)
    wanted = sys.argv[2:] if simulated else sys.argv[1:]
    bugs = {switch: bug for switch, bug in known.items() if not wanted or bug.name in wanted}
    # Every bug must apply, which is checked before the build.
    stale = [bug.name for bug in (*BUGS, *SIMULATED) if (ROOT / bug.file).read_text().count(bug.text) != 1]
    if (ROOT / PROCESSES).read_text().count(NO_VARIABLES) != 1:
        stale.append(f"the switch of {PROCESSES}")
    if stale:
        sys.exit(f"plant: no longer stands where it is to be planted, exactly once: {'; '.join(stale)}")
    if sys.argv[1:] == ["--texts"]:
        return
    if not bugs:
        sys.exit(f"plant: no such bug; there are: {'; '.join(dict.fromkeys(bug.name for bug in known.values()))}")

    copy_tree()
    plant(bugs)
    tests = build(bugs)
    see_them_pass(bugs, tests)
    signal.signal(signal.SIGTERM, end)
    left, missed = list(bugs), []
    try:
        for switch, bug in bugs.items():
            if not caught(switch, bug, tests):
                missed.append(switch)
            left.remove(switch)
    except Ended:
        print(f"ended before these were looked for: {'; '.join(left)}")
    print(f"{len(bugs) - len(missed) - len(left)} of {len(bugs)} planted bugs were caught")
    sys.exit(1 if missed else OUT_OF_TIME if left else 0)


class Ended(Exception):
    """The run was terminated."""


def end(*_):
    raise Ended


def named(by, bugs):
    """Returns the bugs by the name of the switch. A bug that both the tests and the simulation catch has two switches."""
    return {f"{by}: {bug.name}": bug for bug in bugs}


def copy_tree():
    """Copies the files that git tracks or would track, and the compiled dependencies. Links the installed Node packages."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )
    shutil.rmtree(TREE, ignore_errors=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            # The copy has a new modification time, so that cargo notices that the bugs of an earlier run are gone.
            shutil.copy(ROOT / name, TREE / name)
    modules = "infra/local/x402/node_modules"
    if not (TREE / modules).exists():
        (TREE / modules).symlink_to(ROOT / modules)

    compiled = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "debug"
    if BUILD.exists() or not compiled.exists():
        return
    # The packages of the workspace are always compiled again, and the programs linked again.
    ours = re.compile(r"(lib)?purser[-_]")
    for part in (".fingerprint", "build", "deps"):
        for path in (compiled / part).iterdir():
            into = BUILD / "debug" / part / path.name
            if ours.match(path.name):
                continue
            if path.is_dir():
                shutil.copytree(path, into)
            elif path.suffix in (".rlib", ".rmeta", ".so", ".d"):
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, into)


def plant(bugs):
    """Plants every bug with its switch."""
    at = defaultdict(lambda: defaultdict(list))
    for switch, bug in bugs.items():
        at[bug.file, bug.text][bug.instead].append(f'purser_domain::planted("{switch}")')
    for (file, text), choices in at.items():
        choices = {instead: f"({' || '.join(switches)})" for instead, switches in choices.items()}
        replace(file, text, switched(text, choices))
    replace(PROCESSES, NO_VARIABLES, SWITCH_ALONE)
    # Bugs may be planted in this file, so the switch is added after them.
    board = TREE / SWITCHBOARD
    board.write_text(board.read_text() + IS_ON)


def replace(file, text, instead):
    path = TREE / file
    source = path.read_text()
    if source.count(text) != 1:
        sys.exit(f"plant: two bugs are in each other's way in {file}: {text.strip()}")
    path.write_text(source.replace(text, instead))


def switched(text, choices):
    """Returns source code that runs the replacement whose switch is on, or `text` if no switch is on."""
    if any(SWITCH in instead for instead in choices):
        if len(choices) != 1:
            sys.exit(f"plant: only one bug that says where it is switched can stand at: {text.strip()}")
        ((instead, is_on),) = choices.items()
        return instead.replace(SWITCH, is_on)
    if constant := CONSTANT.fullmatch(text):
        value = lambda line: line.partition(" = ")[2].removesuffix(";")
        chain = chosen(value(text), {value(instead): is_on for instead, is_on in choices.items()})
        kind = f"Planted_{constant[1]}"
        return (
            f"struct {kind};\nimpl std::fmt::Display for {kind} {{\n"
            f"fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{ f.write_str({chain}) }}\n}}\n"
            f"const {constant[1]}: {kind} = {kind};"
        )
    chain = chosen(text, choices)
    return chain if text.rstrip().endswith((";", "}")) else f"({chain})"


def chosen(text, choices):
    return "".join(f"if {is_on} {{ {instead} }} else " for instead, is_on in choices.items()) + f"{{ {text} }}"


def build(bugs):
    """Builds the tests that must catch the bugs, and the simulation if it must catch some."""
    packages = {
        package for bug in bugs.values()
        for package in (re.findall(r"package\(([\w-]+)\)", bug.caught_by) if isinstance(bug.caught_by, str) else ["purser-sim"])
    }
    chosen_packages = [word for package in sorted(packages) for word in ("--package", package)]
    tests = Tests(TREE.parent / "binaries.json", TREE.parent / "metadata.json")
    built = cargo("nextest", "list", "--locked", *chosen_packages, "--list-type", "binaries-only", "--message-format", "json")
    if built.returncode:
        sys.exit(f"plant: the tree does not build with the bugs in it, and with none of them on:\n{built.stderr[-4000:]}")
    tests.binaries.write_text(built.stdout)
    tests.metadata.write_text(cargo("metadata", "--locked", "--format-version", "1").stdout)
    return tests


def see_them_pass(bugs, tests):
    """Checks that the tests pass and that the simulation finds nothing while no bug is on."""
    expressions = {bug.caught_by for bug in bugs.values() if isinstance(bug.caught_by, str)}
    if expressions:
        run = nextest(tests, " or ".join(f"({expression})" for expression in sorted(expressions)), "none")
        if run.returncode:
            sys.exit(f"plant: tests fail with no bug on:\n{run.stdout[-500:]}{run.stderr[-4000:]}")
    seeds = [bug.caught_by for bug in bugs.values() if isinstance(bug.caught_by, int)]
    if seeds:
        run = simulate(max(seeds), "none")
        if run.returncode:
            sys.exit(f"plant: the simulation finds something with no bug on:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")


def caught(switch, bug, tests):
    """Returns whether the tests fail, or the simulation has a finding, while the bug is on."""
    started = time.time()
    if isinstance(bug.caught_by, str):
        run = nextest(tests, bug.caught_by, switch)
    else:
        run = simulate(bug.caught_by, switch)
    seed = SEED_FAILS.search(run.stdout)
    took = f"{time.time() - started:.0f} s"
    if run.returncode == TESTS_FAILED or seed:
        print(f"caught  {bug.name}{f' by {seed[1]}: {seed[2]}' if seed else ''} ({took})", flush=True)
        return True
    print(f"MISSED  {switch}: ended with {run.returncode} ({took})\n{run.stdout[-500:]}{run.stderr[-2000:]}", flush=True)
    return False


def nextest(tests, expression, switch):
    return cargo(
        "nextest", "run", "--binaries-metadata", str(tests.binaries), "--cargo-metadata", str(tests.metadata),
        "--filterset", expression, switch=switch,
    )


def simulate(seeds, switch):
    return run([str(BUILD / "debug" / "simulate"), "--seeds", str(seeds), "--shrink", "0"], switch)


def cargo(*arguments, switch=""):
    return run(["cargo", *arguments], switch)


def run(command, switch):
    return subprocess.run(
        command, cwd=TREE, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800,
        # All commands share one build.
        env={
            **os.environ, "CARGO_TARGET_DIR": str(BUILD), "CARGO_TERM_COLOR": "never", "CARGO_INCREMENTAL": "0",
            SWITCH: switch,
        },
    )


if __name__ == "__main__":
    main()
