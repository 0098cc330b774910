#!/usr/bin/env python3
"""Plants known bugs, one at a time, in a copy of the tree, and sees the tests that must catch each of them fail.

    tests/planted/plant.py                         every bug that a test must catch
    tests/planted/plant.py --simulation            every bug that the simulation must find: by a seed, or a kept plan
    tests/planted/plant.py [--simulation] NAME …   only these

A bug is one text of a source file replaced by another. The text has to stand there exactly once, so that a bug that no
longer applies is noticed instead of passing. The copy is what git tracks or would track, in target/planted/tree, with a
target folder of its own: cargo takes packages of two trees for the same ones when they share it.

Exit status: 0, every bug was caught; 1, one was not, or could not be planted.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "target" / "planted" / "tree"
# cargo-nextest's exit status when tests ran and some failed; a build that fails has another.
TESTS_FAILED = 100
# What `simulate` says where it found something; its exit status is also that of a panic.
SEED_FAILS = re.compile(r"^(seed \d+) fails:\n +(.{1,100})", re.MULTILINE)


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    text: str
    instead: str
    caught_by: str | int  # a nextest filter expression; or the number of seeds within which the simulation finds it


BUGS = [
    Bug(
        "the cap's condition dropped",
        "shared/store/src/window.rs",
        'format!("{STAMPS} AND hz <= :horizon AND #total <= :room")',
        'format!("{STAMPS} AND hz <= :horizon AND (#total <= :room OR attribute_exists(pk))")',
        "package(purser-tests) and test(=races::a_cap_that_fits_forty_allows_exactly_forty)",
    ),
    Bug(
        "an agent asks beyond what may wait",
        "shared/store/src/waiting.rs",
        "attribute_not_exists(ids) OR size(ids) < :most",
        "attribute_not_exists(ids) OR size(ids) < :most OR attribute_exists(pk)",
        "package(purser-tests) and test(=races::of_forty_questions_at_once_exactly_as_many_wait_as_may)",
    ),
    Bug(
        "the request's hash not compared with the one its key is bound to",
        "functions/payments/src/authorize.rs",
        "if *first != fingerprint {",
        "if *first != fingerprint && false {",
        "package(purser-tests) and test(=races::of_two_bodies_on_one_key_one_wins_and_the_other_conflicts)",
    ),
    Bug(
        "an entry evicted though another had evicted it",
        "shared/store/src/transact.rs",
        'condition_expression("attribute_exists(pk)")',
        'condition_expression("attribute_exists(pk) OR attribute_not_exists(pk)")',
        "package(purser-store) and test(an_entry_is_evicted_once_whoever_evicts_it)",
    ),
    Bug(
        "an allow that takes memory",
        "shared/domain/src/window.rs",
        "evicted: sum(evict),",
        "evicted: sum(&evict.to_vec()),",
        "package(purser-bench) and test(=an_allow_allocates_nothing)",
    ),
    Bug(
        "the matcher blind to the nonce",
        "shared/domain/src/transfer.rs",
        "log.topics == [AUTHORIZATION_USED, expected.from.into_word(), expected.nonce]",
        "log.topics.first_chunk() == Some(&[AUTHORIZATION_USED, expected.from.into_word()])",
        "package(purser-domain) and test(/transfer::/)",
    ),
    Bug(
        "the approval not used up with the reservation",
        "shared/store/src/reserve.rs",
        "transaction.update(Role::Approval, self.use_up(approval, terms, fingerprint))?;",
        "let _ = self.use_up(approval, terms, fingerprint);",
        "package(purser-tests) and test(=races::one_approval_is_executed_once)",
    ),
    Bug(
        "a payment not held to the agent's record that it was judged by",
        "shared/store/src/window.rs",
        "(attribute_not_exists(aver) OR aver <= :agent)",
        "(attribute_exists(pk) OR aver <= :agent)",
        "package(purser-tests) and test(=people::edits::a_freeze_that_was_answered_is_followed_by_no_payment)",
    ),
    Bug(
        "freeze without stamps",
        "functions/dashboard/src/owned.rs",
        "                self.ledger.shut_windows(&agent).await?;\n",
        "",
        "package(purser-tests) and "
        "test(=people::edits::a_narrowing_edit_that_failed_before_its_stamps_holds_once_its_repetition_is_answered)",
    ),
    Bug(
        "a balance that was asked for another wallet",
        "functions/payments/src/early_balance.rs",
        "if self.wallet != wallet {",
        "if self.wallet != wallet && false {",
        "package(purser-tests) and test(=side_by_side::a_balance_counts_for_the_wallet_that_it_was_asked_for)",
    ),
    Bug(
        "a used transaction not known for one before the chain is asked",
        "functions/payments/src/complete.rs",
        "claimed_by.is_some_and(|other| other != settlement.id())",
        "claimed_by.is_some_and(|other| other != settlement.id() && false)",
        "package(purser-tests) and test(=errors::a_payment_that_the_chain_does_not_show_is_not_confirmed)",
    ),
    Bug(
        "an unknown hash given up before the chain has passed",
        "shared/chain/src/sight.rs",
        "Ok(block.at >= valid_before && ",
        "Ok((block.at >= valid_before || block.at < valid_before) && ",
        "package(purser-tests) and "
        "test(=reconcile::a_hash_that_the_node_does_not_know_is_given_up_when_the_chain_has_passed_and_not_before)",
    ),
    Bug(
        "a window cleared without an eye on the time",
        "functions/payments/src/authorize.rs",
        "self.payments.still_in_time(self.started)?;",
        "let _ = self.payments.still_in_time(self.started);",
        "package(purser-tests) and "
        "test(=windows::who_has_no_time_left_for_what_has_rolled_out_comes_back_and_goes_on_from_there)",
    ),
    Bug(
        "a service judged by what was read for another",
        "functions/payments/src/lib.rs",
        "if service != guess {",
        "if service != guess && false {",
        "package(purser-tests) and test(=side_by_side::a_service_that_has_changed_meanwhile_is_judged_by_its_own_policy)",
    ),
    Bug(
        "the key not judged again with the decision",
        "functions/payments/src/authorize.rs",
        "if !agent.takes(",
        "if false && !agent.takes(",
        "package(purser-tests) and "
        "test(=people::edits::a_payment_under_way_when_an_edit_is_answered_is_judged_by_the_edit)",
    ),
    Bug(
        "a key judged as of before its agent was read",
        "shared/api/src/entrance.rs",
        "            let (agent, rest) = read(&key).await?;\n            let now = clock.now();\n",
        "            let now = clock.now();\n            let (agent, rest) = read(&key).await?;\n",
        "package(purser-api) and test(=entrance::tests::a_key_that_ends_while_its_agent_is_read_does_not_get_in)",
    ),
    Bug(
        "whose agent it is not asked",
        "functions/dashboard/src/owned.rs",
        "(agent.owner == person.sub).then_some(",
        "(agent.owner == person.sub || true).then_some(",
        "package(purser-tests) and test(=people::agents::an_agent_is_renamed_by_its_owner_and_by_nobody_else)",
    ),
    Bug(
        "an approval decided though it was decided",
        "shared/store/src/approval.rs",
        '"st = :pending AND ends > :now"',
        '"(st = :pending OR attribute_exists(pk)) AND ends > :now"',
        "package(purser-tests) and "
        "test(=people::approvals::of_two_people_who_decide_at_once_one_decides_and_the_other_is_told)",
    ),
    Bug(
        "an operation matched by its name alone",
        "shared/domain/src/intent.rs",
        "operation: None,\n            });",
        "operation: intent.operation.as_ref().and_then(|named| service.operation(named)),\n            });",
        "package(purser-domain) and test(=what_is_signed_pays_for_the_operation_that_is_called)",
    ),
    Bug(
        "any payee of the service taken for the operation's",
        "shared/domain/src/evaluate.rs",
        "    if pay_to != payable.pay_to {\n",
        "    let payments = facts.service.operations.iter().filter_map(|operation| operation.payment.as_ref());\n"
        "    if payments.into_iter().all(|payment| payment.pay_to != pay_to) {\n",
        "package(purser-domain) and test(=what_is_signed_pays_for_the_operation_that_is_called)",
    ),
    Bug(
        "the price compared with the estimate",
        "shared/domain/src/catalog.rs",
        "most: self.max_price.or(fixed).ok_or(Unpayable::NoMaximum)?,",
        "most: self.max_price.or(fixed).map(|_| self.estimated_price).ok_or(Unpayable::NoMaximum)?,",
        "package(purser-domain) and test(=what_is_signed_pays_for_the_operation_that_is_called)",
    ),
    Bug(
        "signed bytes for a frozen agent that repeats a call",
        "functions/payments/src/authorize.rs",
        "if agent.status == AgentStatus::Frozen {",
        "if agent.status == AgentStatus::Frozen && false {",
        "package(purser-tests) and test(=attacks::a_replay_pays_nobody_else_and_nothing_that_is_another_agents)",
    ),
    Bug(
        "the payee that a probe saw put in the place of the pinned one",
        "shared/domain/src/probe.rs",
        "            if let (Ok(Quote::Paid(payment)), None) = (&seen, &before)\n"
        "                && self.may_pin(operation, payment.pay_to)\n",
        "            if let Ok(Quote::Paid(payment)) = &seen\n",
        "package(purser-tests) and "
        "test(=operators::a_probe_fills_in_what_nobody_said_and_never_changes_what_is_pinned)",
    ),
    Bug(
        "a transaction whose answers were lost told as failed, without looking",
        "shared/store/src/reserve.rs",
        "                Sent::Unknown(error) if lost_before => return Err(error),\n"
        "                Sent::Unknown(_) => lost_before = true,\n",
        "                Sent::Unknown(error) => return Err(error),\n",
        "package(purser-tests) and test(=faults::database::a_fault_of_the_database_that_passes_is_nobodys_error)",
    ),
    Bug(
        "a payment signed anew each time it is asked for",
        "functions/payments/src/lib.rs",
        "self.nonce_key.nonce(terms.settlement)",
        "self.nonce_key.nonce(SettlementId::at(self.clock.now(), self.chance.bytes()?))",
        "package(purser-tests) and "
        "test(=faults::kills::a_payment_whose_process_is_killed_at_any_two_steps_is_made_once)",
    ),
    Bug(
        "a payment final in its first block",
        "shared/chain/src/chain.rs",
        "if depth < self.finality.confirmations {",
        "if depth < 1 {",
        "package(purser-tests) and "
        "test(=faults::node::a_payment_that_is_reorganized_away_before_it_is_deep_enough_is_not_confirmed)",
    ),
    Bug(
        "a bare domain that covers its look-alikes",
        "shared/domain/src/target.rs",
        ".is_some_and(|rest| rest.ends_with('.'))",
        ".is_some()",
        "package(purser-domain) and test(=a_bare_domain_covers_no_look_alike)",
    ),
    Bug(
        "a budget passed over whose window is not known",
        "shared/domain/src/evaluate.rs",
        "let (limit, window) = budget_of(rule, &facts)?;",
        "let (limit, window) = budget_of(rule, &facts).unwrap_or((Amount::MAX, facts.day));",
        "package(purser-domain) and test(=the_first_line_of_the_table_that_holds_answers)",
    ),
    Bug(
        "an amount taken with a point",
        "shared/api/src/field.rs",
        "let units = value.as_u64().filter(",
        "let units = value.as_u64().or_else(|| value.as_f64()?.to_string().parse().ok()).filter(",
        "package(purser-fuzz) and test(=every_file_of_the_corpus_holds)",
    ),
    Bug(
        "a panic on a short header",
        "shared/api/src/precondition.rs",
        "text.strip_prefix('\"')?.strip_suffix('\"')?",
        "text.get(1..text.len() - 1)?",
        "package(purser-fuzz) and test(=every_file_of_the_corpus_holds)",
    ),
    Bug(
        "a hold released by a block in which it can still be used",
        "shared/domain/src/reconcile.rs",
        "SettlementState::Authorized if block.at < settlement.terms.valid_before => Verdict::NotYet,",
        "SettlementState::Authorized if block.at < settlement.terms.authorized_at => Verdict::NotYet,",
        "package(purser-tests) and test(=reconcile::"
        "an_unused_spend_is_given_back_by_the_first_final_block_past_its_time_and_not_before)",
    ),
    Bug(
        "a spend given back though it was given back, or paid",
        "shared/store/src/release.rs",
        '.condition_expression("rs = :authorized")',
        '.condition_expression("rs = :authorized OR attribute_exists(pk)")',
        "package(purser-store) and test(=reconciling::releases_and_confirmations_at_once_move_a_settlement_once)",
    ),
]

SIMULATED = [
    Bug(
        "the cap's condition dropped",
        "shared/store/src/window.rs",
        'format!("{STAMPS} AND hz <= :horizon AND #total <= :room")',
        'format!("{STAMPS} AND hz <= :horizon AND (#total <= :room OR attribute_exists(pk))")',
        200,
    ),
    Bug(
        "a time recorded before what the window was cleared to",
        "shared/store/src/window.rs",
        'format!("{STAMPS} AND hz <= :horizon AND #total <= :room")',
        'format!("{STAMPS} AND (hz <= :horizon OR attribute_exists(pk)) AND #total <= :room")',
        200,
    ),
    Bug(
        "the policy's stamp ignored",
        "shared/store/src/window.rs",
        '"pver = :stamp AND (',
        '"(pver = :stamp OR attribute_exists(pk)) AND (',
        200,
    ),
    Bug(
        "the agent's stamp ignored",
        "shared/store/src/window.rs",
        "(attribute_not_exists(aver) OR aver <= :agent)",
        "(attribute_exists(pk) OR aver <= :agent)",
        "package(purser-sim) and "
        "test(=reproductions::a_freeze_that_is_answered_while_a_payment_is_under_way_is_followed_by_none)",
    ),
    Bug(
        "an entry evicted though another had evicted it",
        "shared/store/src/transact.rs",
        'condition_expression("attribute_exists(pk)")',
        'condition_expression("attribute_exists(pk) OR attribute_not_exists(pk)")',
        200,
    ),
    Bug(
        "the approval not used up with the reservation",
        "shared/store/src/reserve.rs",
        "transaction.update(Role::Approval, self.use_up(approval, terms, fingerprint))?;",
        "let _ = self.use_up(approval, terms, fingerprint);",
        200,
    ),
    Bug(
        "the key bound by whoever comes last",
        "shared/store/src/reserve.rs",
        "            None => self.put_new(row),\n",
        "            None => self.put(row),\n",
        200,
    ),
    Bug(
        "a lost answer taken for a failure",
        "shared/store/src/reserve.rs",
        "                Sent::Unknown(_) => lost_before = true,\n",
        "                Sent::Unknown(_) => return Ok(Reserved::Raced),\n",
        200,
    ),
    Bug(
        "a refusal not looked at again",
        "functions/payments/src/authorize.rs",
        "if !self\n                        .payments\n                        .ledger\n                        .held_still(",
        "if false && !self\n                        .payments\n                        .ledger\n                        .held_still(",
        "package(purser-sim) and "
        "test(=reproductions::a_call_that_is_sent_twice_is_not_refused_for_the_room_that_it_has_taken)",
    ),
    Bug(
        "a confirmation without the claim on its transaction",
        "shared/store/src/settle.rs",
        "            transaction.put(Role::Transaction, self.claim(&settlement, transfer))?;\n",
        "            let _ = self.claim(&settlement, transfer);\n",
        200,
    ),
    Bug(
        "a release before the payment's time is over",
        "shared/domain/src/reconcile.rs",
        "SettlementState::Authorized if block.at < settlement.terms.valid_before => Verdict::NotYet,",
        "SettlementState::Authorized if block.at < Timestamp::EPOCH => Verdict::NotYet,",
        200,
    ),
    Bug(
        "a release that leaves the entry",
        "shared/store/src/release.rs",
        "            transaction.delete_existing(Role::Entry(*scope), &self.table, entry.attributes())?;\n",
        "            let _ = (Role::Entry(*scope), entry);\n",
        200,
    ),
    Bug(
        "a release by a block that is not final",
        "shared/chain/src/sight.rs",
        "head.saturating_add(1).saturating_sub(self.finality.confirmations)",
        "head.saturating_add(self.finality.confirmations).saturating_sub(self.finality.confirmations)",
        200,
    ),
    Bug(
        "a late payment that is not counted again",
        "shared/store/src/settle.rs",
        "        for (scope, length) in windows {\n",
        "        for (scope, length) in windows.into_iter().take(0) {\n",
        "package(purser-sim) and "
        "test(=reproductions::a_spend_that_was_given_back_counts_again_when_the_chain_remembers_the_payment)",
    ),
]


def main():
    simulated = sys.argv[1:2] == ["--simulation"]
    known, wanted = (SIMULATED, sys.argv[2:]) if simulated else (BUGS, sys.argv[1:])
    bugs = [bug for bug in known if not wanted or bug.name in wanted]
    if not bugs:
        sys.exit(f"plant: no such bug; there are: {'; '.join(bug.name for bug in known)}")
    # Before anything is built: one that can't be planted proves nothing.
    stale = [bug.name for bug in (*BUGS, *SIMULATED) if (ROOT / bug.file).read_text().count(bug.text) != 1]
    if stale:
        sys.exit(f"plant: no longer stands where it is to be planted, exactly once: {'; '.join(stale)}")
    copy_tree()
    missed = [bug for bug in bugs if not caught(bug)]
    print(f"{len(bugs) - len(missed)} of {len(bugs)} planted bugs were caught")
    sys.exit(1 if missed else 0)


def copy_tree():
    """Copies what git tracks or would track, and the installed Node packages by a link."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )
    shutil.rmtree(TREE, ignore_errors=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)
    # cargo goes by times: what an earlier run had planted has to be seen to be gone.
    for bug in (*BUGS, *SIMULATED):
        (TREE / bug.file).touch()
    modules = "infra/local/x402/node_modules"
    (TREE / modules).symlink_to(ROOT / modules)


def caught(bug):
    """Whether the tests fail, or the simulation finds something, with the bug in place."""
    path = TREE / bug.file
    source = path.read_text()
    path.write_text(source.replace(bug.text, bug.instead))
    try:
        run = cargo(*looking_for(bug))
    finally:
        path.write_text(source)
    seed = SEED_FAILS.search(run.stdout)
    if run.returncode == TESTS_FAILED or seed:
        print(f"caught  {bug.name}{f' by {seed[1]}: {seed[2]}' if seed else ''}", flush=True)
        return True
    print(f"MISSED  {bug.name}: cargo ended with {run.returncode}\n{run.stdout[-500:]}{run.stderr[-2000:]}", flush=True)
    return False


def looking_for(bug):
    """What is run to catch a bug."""
    if isinstance(bug.caught_by, str):
        return ["nextest", "run", "--locked", "--workspace", "--filterset", bug.caught_by]
    return ["run", "--locked", "--package", "purser-sim", "--", "--seeds", str(bug.caught_by), "--shrink", "0"]


def cargo(*arguments):
    return subprocess.run(
        ["cargo", *arguments],
        cwd=TREE, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200,
        # Built again for every bug.
        env={**os.environ, "CARGO_TARGET_DIR": str(TREE.parent / "build"), "CARGO_TERM_COLOR": "never", "CARGO_INCREMENTAL": "1"},
    )


if __name__ == "__main__":
    main()
