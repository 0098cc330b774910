//! Compares the instructions of one call with a budget. The number is the same on every machine, even under load.
//!
//! The counts are for the unoptimized build of the tests, so only their changes matter. Callgrind runs without
//! gungraun, because its runner would have to be installed in exactly the library's version.

use std::path::Path;
use std::process::Command;

/// The budgets in thousands of instructions, and the percentage by which a call may exceed its budget.
const BUDGETS: [(&str, u64); 4] = [
    ("allow", 22_211),
    ("replay", 21_394),
    ("block", 17_703),
    ("complete", 13_510),
];
const TOLERANCE_PERCENT: u64 = 3;

#[test]
fn allowing_a_payment_stays_within_its_instruction_budget() {
    judge("allow");
}

#[test]
fn a_replay_stays_within_its_instruction_budget() {
    judge("replay");
}

#[test]
fn blocking_a_payment_stays_within_its_instruction_budget() {
    judge("block");
}

#[test]
fn a_completion_stays_within_its_instruction_budget() {
    judge("complete");
}

#[test]
fn a_decision_with_limits_takes_at_most_twice_the_cpu_instructions() {
    if !is_counting() {
        return;
    }
    let [without, with] = ["allow", "limited"].map(counted);
    assert!(with > without, "the limits take part");
    assert!(
        with <= 2 * without,
        "{with} instructions with limits, {without} without"
    );
    println!("{with} instructions with limits, {without} without");
}

fn is_counting() -> bool {
    let is_counting = Command::new("valgrind").arg("--version").output().is_ok();
    if !is_counting {
        println!("skipped: there is no valgrind (apt-get install valgrind)");
    }
    is_counting
}

fn judge(operation: &str) {
    if !is_counting() {
        return;
    }
    let (_, budget) = BUDGETS.iter().find(|(name, _)| *name == operation).expect("a budget");
    let found = counted(operation) / 1_000;
    assert!(found >= budget / 2, "{operation}: nothing was counted");
    let most = budget + budget * TOLERANCE_PERCENT / 100;
    assert!(
        found <= most,
        "{operation}: {found} thousand instructions; the budget is {budget}, and {TOLERANCE_PERCENT} % more"
    );
}

/// Returns the number of instructions of one call.
fn counted(operation: &str) -> u64 {
    let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{operation}.callgrind"));
    let mut callgrind = Command::new("valgrind");
    callgrind.args(["--tool=callgrind", "--collect-atstart=no"]);
    // Callgrind starts and stops counting when one of these functions is entered or left.
    callgrind.args([
        "--toggle-collect=one_call::measured",
        "--toggle-collect=one_call::uncounted",
    ]);
    callgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    let ran = callgrind
        .args([env!("CARGO_BIN_EXE_one-call"), operation])
        .output()
        .expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let profile = std::fs::read_to_string(profile).expect("a profile");
    let total = profile
        .lines()
        .find_map(|line| line.strip_prefix("totals: "))
        .expect("a total");
    total.trim().parse().expect("a number")
}
