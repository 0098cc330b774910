#!/usr/bin/env python3
"""Plants known bugs in a copy of the tree, and sees the tests that must catch each of them fail.

    tests/planted/plant.py                         every bug
    tests/planted/plant.py --simulation            every bug that the simulation must find: by a seed, or a kept plan
    tests/planted/plant.py [--simulation] NAME …   only these

All of them are planted in one copy, which is built once, and each is switched on by itself, by a variable of the process
that is tested. So what fails with a bug fails by that bug and no other. That it fails by the bug at all is seen first: with
none of them on, the same tests have to pass.

A bug is one text of a source file replaced by another. The text has to stand there exactly once, so that a bug that no
longer applies is noticed instead of passing. Both are expressions, or statements, or the whole of a constant text, so that
the one can be chosen or the other when the program runs. A bug that is none of these says itself where it is switched: in
what it puts there, `PLANTED` stands for its being on.

The copy is what git tracks or would track, in target/planted/tree, with a target folder of its own: cargo takes packages of
two trees for the same ones when they share it. What is compiled of other packages is copied.

Exit status: 0, every bug was caught; 1, one was not, or could not be planted; 75, it was ended (SIGTERM), and none was missed.
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
# cargo-nextest's exit status when tests ran and some failed; a build that fails has another.
TESTS_FAILED = 100
OUT_OF_TIME = 75
# What `simulate` says where it found something; its exit status is also that of a panic.
SEED_FAILS = re.compile(r"^(seed \d+) fails:\n +(.{1,100})", re.MULTILINE)
# A constant text, which becomes one that is chosen when it is written.
CONSTANT = re.compile(r'const (\w+): &str = ".*";')
# The name of the bug that is on.
SWITCH = "PLANTED"

# What every crate that bugs are planted in depends on, and what it gets: the switch.
SWITCHBOARD = "shared/domain/src/lib.rs"
IS_ON = """
extern crate self as purser_domain;

/// Whether a planted bug is on. It takes no memory, since there are tests that count what is taken.
pub fn planted(bug: &str) -> bool {
    static ENVIRONMENT: std::sync::OnceLock<[u8; 65_536]> = std::sync::OnceLock::new();
    let environment = ENVIRONMENT.get_or_init(|| {
        let mut bytes = [0; 65_536];
        if let Ok(mut file) = std::fs::File::open("/proc/self/environ") {
            let mut at = 0;
            while let Ok(read @ 1..) = std::io::Read::read(&mut file, &mut bytes[at..]) {
                at += read;
            }
        }
        bytes
    });
    environment.split(|byte| *byte == 0).any(|line| line.strip_prefix(b"PLANTED=") == Some(bug.as_bytes()))
}
"""
# Functions in processes of their own get the variables that they have in the cloud, and this one.
PROCESSES = "tests/src/process.rs"
NO_VARIABLES = ".env_clear()"
SWITCH_ALONE = '.env_clear()\n            .env("PLANTED", std::env::var_os("PLANTED").unwrap_or_default())'


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
        "shared/store/src/payments/window.rs",
        'format!("{STAMPS} AND hz <= :horizon AND #total <= :room")',
        'format!("{STAMPS} AND hz <= :horizon AND (#total <= :room OR attribute_exists(pk))")',
        "package(purser-tests) and test(=races::a_cap_that_fits_forty_allows_exactly_forty)",
    ),
    Bug(
        "an agent asks beyond what may wait",
        "shared/store/src/people/waiting.rs",
        '"attribute_not_exists(ids) OR size(ids) < :most"',
        '"attribute_not_exists(ids) OR size(ids) < :most OR attribute_exists(pk)"',
        "package(purser-tests) and test(=races::of_forty_questions_at_once_exactly_as_many_wait_as_may)",
    ),
    Bug(
        "the request's hash not compared with the one its key is bound to",
        "functions/payments/src/idempotency.rs",
        "if *first != fingerprint {",
        "if *first != fingerprint && !PLANTED {",
        "package(purser-tests) and test(=races::of_two_bodies_on_one_key_one_wins_and_the_other_conflicts)",
    ),
    Bug(
        "an entry evicted though another had evicted it",
        "shared/store/src/codec/transact.rs",
        '"attribute_exists(pk)"',
        '"attribute_exists(pk) OR attribute_not_exists(pk)"',
        "package(purser-store) and test(an_entry_is_evicted_once_whoever_evicts_it)",
    ),
    Bug(
        "an allow that takes memory",
        "shared/domain/src/policy/window.rs",
        "sum(evict)",
        "sum(&evict.to_vec())",
        "package(purser-bench) and test(=an_allow_allocates_nothing)",
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
        "transaction.update(Role::Approval, self.use_up(approval, terms, fingerprint))?;",
        "let _ = self.use_up(approval, terms, fingerprint);",
        "package(purser-tests) and test(=races::one_approval_is_executed_once)",
    ),
    Bug(
        "a payment not held to the agent's record that it was judged by",
        "shared/store/src/payments/window.rs",
        'const STAMPS: &str = "pver = :stamp AND (attribute_not_exists(aver) OR aver <= :agent)";',
        'const STAMPS: &str = "pver = :stamp AND (attribute_exists(pk) OR aver <= :agent)";',
        "package(purser-tests) and test(=people::edits::a_freeze_that_was_answered_is_followed_by_no_payment)",
    ),
    Bug(
        "freeze without stamps",
        "functions/people/src/ops/owned.rs",
        "                self.ledger.fence_windows(&agent).await?;\n",
        "",
        "package(purser-tests) and "
        "test(=people::edits::a_narrowing_edit_that_failed_before_its_stamps_holds_once_its_repetition_is_answered)",
    ),
    Bug(
        "a balance that was asked for another wallet",
        "functions/payments/src/early_balance.rs",
        "if self.wallet != wallet {",
        "if self.wallet != wallet && !PLANTED {",
        "package(purser-tests) and test(=side_by_side::a_balance_counts_for_the_wallet_that_it_was_asked_for)",
    ),
    Bug(
        "a used transaction not known for one before the chain is asked",
        "functions/payments/src/complete.rs",
        "claimed_by.is_some_and(|other| other != settlement.id())",
        "claimed_by.is_some_and(|other| other != settlement.id() && !PLANTED)",
        "package(purser-tests) and test(=errors::a_payment_that_the_chain_does_not_show_is_not_confirmed)",
    ),
    Bug(
        "an unknown hash given up before the chain has passed",
        "shared/chain/src/authorization_state.rs",
        "block.at >= valid_before",
        "block.at >= valid_before || block.at < valid_before",
        "package(purser-tests) and "
        "test(=reconcile::a_hash_that_the_node_does_not_know_is_given_up_when_the_chain_has_passed_and_not_before)",
    ),
    Bug(
        "a window cleared without an eye on the time",
        "functions/payments/src/refuse.rs",
        "self.still_in_time()?;",
        "let _ = self.still_in_time();",
        "package(purser-tests) and "
        "test(=windows::who_has_no_time_left_for_what_has_rolled_out_comes_back_and_goes_on_from_there)",
    ),
    Bug(
        "a service judged by what was read for another",
        "functions/payments/src/authenticate.rs",
        "if service != guess {",
        "if service != guess && !PLANTED {",
        "package(purser-tests) and test(=side_by_side::a_service_that_has_changed_meanwhile_is_judged_by_its_own_policy)",
    ),
    Bug(
        "the key not judged again with the decision",
        "functions/payments/src/authenticate.rs",
        "agent.takes(caller.key, self.clock.now())",
        "agent.takes(caller.key, self.clock.now()) || PLANTED",
        "package(purser-tests) and "
        "test(=people::edits::a_payment_under_way_when_an_edit_is_answered_is_judged_by_the_edit)",
    ),
    Bug(
        "a key judged as of before its agent was read",
        "shared/store/src/people/authenticate.rs",
        "    let (agent, read) = read(&presented).await?;\n    let now = now();\n",
        "    let before = now();\n    let (agent, read) = read(&presented).await?;\n"
        "    let now = if PLANTED { before } else { now() };\n",
        "package(purser-store) and test(=people::authenticate::tests::a_key_that_ends_while_its_agent_is_read_does_not_get_in)",
    ),
    Bug(
        "whose agent it is not asked",
        "functions/people/src/ops/owned.rs",
        "(agent.owner == person.sub).then_some(",
        "(agent.owner == person.sub || PLANTED).then_some(",
        "package(purser-tests) and test(=people::agents::an_agent_is_renamed_by_its_owner_and_by_nobody_else)",
    ),
    Bug(
        "an approval decided though it was decided",
        "shared/store/src/people/approval.rs",
        '"st = :pending AND ends > :now"',
        '"(st = :pending OR attribute_exists(pk)) AND ends > :now"',
        "package(purser-tests) and "
        "test(=people::approvals::of_two_people_who_decide_at_once_one_decides_and_the_other_is_told)",
    ),
    Bug(
        "an operation matched by its name alone",
        "shared/domain/src/x402/intent.rs",
        "operation: None,\n            });",
        "operation: if PLANTED { intent.operation.as_ref().and_then(|named| service.operation(named)) } else { None },\n"
        "            });",
        "package(purser-domain) and test(=what_is_signed_pays_for_the_operation_that_is_called)",
    ),
    Bug(
        "any payee of the service taken for the operation's",
        "shared/domain/src/policy/evaluate.rs",
        "    if pay_to != payable.pay_to {\n",
        "    let mut payments = facts.service.operations.iter().filter_map(|operation| operation.payment.as_ref());\n"
        "    if pay_to != payable.pay_to && !(PLANTED && payments.any(|payment| payment.pay_to == pay_to)) {\n",
        "package(purser-domain) and test(=what_is_signed_pays_for_the_operation_that_is_called)",
    ),
    Bug(
        "the price compared with the estimate",
        "shared/domain/src/catalog/service.rs",
        "self.max_price.or(fixed)",
        "self.max_price.or(fixed).map(|_| self.estimated_price)",
        "package(purser-domain) and test(=what_is_signed_pays_for_the_operation_that_is_called)",
    ),
    Bug(
        "signed bytes for a frozen agent that repeats a call",
        "functions/payments/src/idempotency.rs",
        "if agent.status == AgentStatus::Frozen {",
        "if agent.status == AgentStatus::Frozen && !PLANTED {",
        "package(purser-tests) and test(=attacks::a_replay_pays_nobody_else_and_nothing_that_is_another_agents)",
    ),
    Bug(
        "the payee that a probe saw put in the place of the pinned one",
        "shared/domain/src/catalog/probe.rs",
        "            if let (Ok(Quote::Paid(payment)), None) = (&seen, &before)\n"
        "                && self.may_pin(operation, payment.pay_to)\n",
        "            if let Ok(Quote::Paid(payment)) = &seen\n"
        "                && (PLANTED || (before.is_none() && self.may_pin(operation, payment.pay_to)))\n",
        "package(purser-tests) and "
        "test(=operators::a_probe_fills_in_what_nobody_said_and_never_changes_what_is_pinned)",
    ),
    Bug(
        "a transaction whose answers were lost told as failed, without looking",
        "shared/store/src/codec/transact.rs",
        "Sent::Unknown(error) if lost_before => return Err(error),",
        "Sent::Unknown(error) if lost_before || PLANTED => return Err(error),",
        "package(purser-tests) and test(=faults::database::a_fault_of_the_database_that_passes_is_nobodys_error)",
    ),
    Bug(
        "a payment signed anew each time it is asked for",
        "functions/payments/src/authorize.rs",
        "self.payments.nonce_key.nonce(terms.settlement)",
        "self.payments.nonce_key.nonce(SettlementId::at(self.payments.clock.now(), self.payments.entropy.bytes()?))",
        "package(purser-tests) and "
        "test(=faults::kills::a_payment_whose_process_is_killed_at_any_two_steps_is_made_once)",
    ),
    Bug(
        "a payment final in its first block",
        "shared/chain/src/chain.rs",
        "if depth < self.finality.confirmations {",
        "if depth < if PLANTED { 1 } else { self.finality.confirmations } {",
        "package(purser-tests) and "
        "test(=faults::node::a_payment_that_is_reorganized_away_before_it_is_deep_enough_is_not_confirmed)",
    ),
    Bug(
        "a bare domain that covers its look-alikes",
        "shared/domain/src/policy/target.rs",
        ".is_some_and(|rest| rest.ends_with('.'))",
        ".is_some_and(|rest| PLANTED || rest.ends_with('.'))",
        "package(purser-domain) and test(=a_bare_domain_covers_no_look_alike)",
    ),
    Bug(
        "a budget passed over whose window is not known",
        "shared/domain/src/policy/evaluate.rs",
        "let window = budget.window(facts.budgets)?;\n        Some(charge(window, budget.limit))",
        "let found = budget.window(facts.budgets).map(|window| (window, budget.limit));\n"
        "        let (window, limit) = if PLANTED { found.unwrap_or((facts.day, Amount::MAX)) } else { found? };\n"
        "        Some(charge(window, limit))",
        "package(purser-domain) and test(=the_first_line_of_the_table_that_holds_answers)",
    ),
    Bug(
        "an amount taken with a point",
        "shared/api/src/http/field.rs",
        "let units = value.as_u64().filter(",
        "let floats = || if PLANTED { value.as_f64()?.to_string().parse().ok() } else { None };\n"
        "            let units = value.as_u64().or_else(floats).filter(",
        "package(purser-fuzz) and test(=every_file_of_the_corpus_holds)",
    ),
    Bug(
        "a panic on a short header",
        "shared/api/src/http/precondition.rs",
        "text.strip_prefix('\"')?.strip_suffix('\"')?",
        "text.get(1..text.len() - 1)?",
        "package(purser-fuzz) and test(=every_file_of_the_corpus_holds)",
    ),
    Bug(
        "a hold released by a block in which it can still be used",
        "shared/domain/src/settlement/reconcile.rs",
        "block.at < settlement.terms.valid_before",
        "block.at < settlement.terms.authorized_at",
        "package(purser-tests) and test(=reconcile::"
        "an_unused_spend_is_given_back_by_the_first_final_block_past_its_time_and_not_before)",
    ),
    Bug(
        "a spend given back though it was given back, or paid",
        "shared/store/src/payments/release.rs",
        '"rs = :authorized"',
        '"rs = :authorized OR attribute_exists(pk)"',
        "package(purser-store) and test(=reconciling::releases_and_confirmations_at_once_move_a_settlement_once)",
    ),
]

SIMULATED = [
    Bug(
        "the cap's condition dropped",
        "shared/store/src/payments/window.rs",
        'format!("{STAMPS} AND hz <= :horizon AND #total <= :room")',
        'format!("{STAMPS} AND hz <= :horizon AND (#total <= :room OR attribute_exists(pk))")',
        200,
    ),
    Bug(
        "a time recorded before what the window was cleared to",
        "shared/store/src/payments/window.rs",
        'format!("{STAMPS} AND hz <= :horizon AND #total <= :room")',
        'format!("{STAMPS} AND (hz <= :horizon OR attribute_exists(pk)) AND #total <= :room")',
        200,
    ),
    Bug(
        "the policy's stamp ignored",
        "shared/store/src/payments/window.rs",
        'const STAMPS: &str = "pver = :stamp AND (attribute_not_exists(aver) OR aver <= :agent)";',
        'const STAMPS: &str = "(pver = :stamp OR attribute_exists(pk)) AND (attribute_not_exists(aver) OR aver <= :agent)";',
        200,
    ),
    Bug(
        "the agent's stamp ignored",
        "shared/store/src/payments/window.rs",
        'const STAMPS: &str = "pver = :stamp AND (attribute_not_exists(aver) OR aver <= :agent)";',
        'const STAMPS: &str = "pver = :stamp AND (attribute_exists(pk) OR aver <= :agent)";',
        "package(purser-sim) and "
        "test(=reproductions::a_freeze_that_is_answered_while_a_payment_is_under_way_is_followed_by_none)",
    ),
    Bug(
        "an entry evicted though another had evicted it",
        "shared/store/src/codec/transact.rs",
        '"attribute_exists(pk)"',
        '"attribute_exists(pk) OR attribute_not_exists(pk)"',
        200,
    ),
    Bug(
        "the approval not used up with the reservation",
        "shared/store/src/payments/reserve.rs",
        "transaction.update(Role::Approval, self.use_up(approval, terms, fingerprint))?;",
        "let _ = self.use_up(approval, terms, fingerprint);",
        200,
    ),
    Bug(
        "the key bound by whoever comes last",
        "shared/store/src/payments/reserve.rs",
        "            None => self.put_new(row),\n",
        "            None if PLANTED => self.put(row),\n            None => self.put_new(row),\n",
        200,
    ),
    Bug(
        "a lost answer taken for a failure",
        "shared/store/src/codec/transact.rs",
        "                Sent::Unknown(_) => lost_before = true,\n",
        "                Sent::Unknown(_) if PLANTED => return Ok(None),\n"
        "                Sent::Unknown(_) => lost_before = true,\n",
        200,
    ),
    Bug(
        "a refusal not looked at again",
        "functions/payments/src/refuse.rs",
        "if !self.payments.ledger.unchanged_since(",
        "if !PLANTED && !self.payments.ledger.unchanged_since(",
        "package(purser-sim) and "
        "test(=reproductions::a_call_that_is_sent_twice_is_not_refused_for_the_room_that_it_has_taken)",
    ),
    Bug(
        "a confirmation without the claim on its transaction",
        "shared/store/src/payments/settle.rs",
        "            transaction.put(Role::Transaction, self.claim(&settlement, transfer))?;\n",
        "            let _ = self.claim(&settlement, transfer);\n",
        200,
    ),
    Bug(
        "a release before the payment's time is over",
        "shared/domain/src/settlement/reconcile.rs",
        "block.at < settlement.terms.valid_before",
        "block.at < Timestamp::EPOCH",
        200,
    ),
    Bug(
        "a release that leaves the entry",
        "shared/store/src/payments/release.rs",
        "            transaction.delete_existing(Role::Entry(*scope), &self.table, entry.attributes())?;\n",
        "            let _ = (Role::Entry(*scope), entry);\n",
        200,
    ),
    Bug(
        "a release by a block that is not final",
        "shared/chain/src/authorization_state.rs",
        "head.saturating_add(1).saturating_sub(self.finality.confirmations)",
        "head.saturating_add(self.finality.confirmations).saturating_sub(self.finality.confirmations)",
        200,
    ),
    Bug(
        "a late payment that is not counted again",
        "shared/store/src/payments/settle.rs",
        "        for (scope, length) in windows {\n",
        "        for (scope, length) in windows.into_iter().take(if PLANTED { 0 } else { usize::MAX }) {\n",
        "package(purser-sim) and "
        "test(=reproductions::a_spend_that_was_given_back_counts_again_when_the_chain_remembers_the_payment)",
    ),
]


@dataclass(frozen=True)
class Tests:
    """The programs that were built, as nextest takes them up again."""

    binaries: Path
    metadata: Path


def main():
    simulated = sys.argv[1:2] == ["--simulation"]
    known = named("simulation", SIMULATED) if simulated else named("tests", BUGS) | named("simulation", SIMULATED)
    wanted = sys.argv[2:] if simulated else sys.argv[1:]
    bugs = {switch: bug for switch, bug in known.items() if not wanted or bug.name in wanted}
    # Before anything is built: one that can't be planted proves nothing.
    stale = [bug.name for bug in (*BUGS, *SIMULATED) if (ROOT / bug.file).read_text().count(bug.text) != 1]
    if (ROOT / PROCESSES).read_text().count(NO_VARIABLES) != 1:
        stale.append(f"the switch of {PROCESSES}")
    if stale:
        sys.exit(f"plant: no longer stands where it is to be planted, exactly once: {'; '.join(stale)}")
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
    """Somebody has no more time for this."""


def end(*_):
    raise Ended


def named(by, bugs):
    """Each bug by the name of its switch; one that tests catch and the simulation finds has two."""
    return {f"{by}: {bug.name}": bug for bug in bugs}


def copy_tree():
    """Copies what git tracks or would track, and what is compiled of other packages; the installed Node packages by a link."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )
    shutil.rmtree(TREE, ignore_errors=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            # As new: cargo goes by times, and what an earlier run had planted has to be seen to be gone.
            shutil.copy(ROOT / name, TREE / name)
    modules = "infra/local/x402/node_modules"
    if not (TREE / modules).exists():
        (TREE / modules).symlink_to(ROOT / modules)

    compiled = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "debug"
    if BUILD.exists() or not compiled.exists():
        return
    # Packages of the workspace are compiled anew, whatever is there of them; programs are linked anew.
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
    """Puts every bug where it belongs, each with its switch."""
    at = defaultdict(lambda: defaultdict(list))
    for switch, bug in bugs.items():
        at[bug.file, bug.text][bug.instead].append(f'purser_domain::planted("{switch}")')
    for (file, text), choices in at.items():
        choices = {instead: f"({' || '.join(switches)})" for instead, switches in choices.items()}
        replace(file, text, switched(text, choices))
    replace(PROCESSES, NO_VARIABLES, SWITCH_ALONE)
    # It may be what bugs are planted in, so it comes after them.
    board = TREE / SWITCHBOARD
    board.write_text(board.read_text() + IS_ON)


def replace(file, text, instead):
    path = TREE / file
    source = path.read_text()
    if source.count(text) != 1:
        sys.exit(f"plant: two bugs are in each other's way in {file}: {text.strip()}")
    path.write_text(source.replace(text, instead))


def switched(text, choices):
    """The source that has `text` while no switch is on, and what belongs to a switch that is."""
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
    """Builds the tests that are to catch, and the simulation where it is."""
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
    """With no bug on, whatever is to catch one has nothing to say."""
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
    """Whether the tests fail, or the simulation finds something, with the bug on."""
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
        # Built once.
        env={
            **os.environ, "CARGO_TARGET_DIR": str(BUILD), "CARGO_TERM_COLOR": "never", "CARGO_INCREMENTAL": "0",
            SWITCH: switch,
        },
    )


if __name__ == "__main__":
    main()
