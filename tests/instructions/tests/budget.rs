//! What a call may take between the bytes of its event and those of its answer, counted in instructions: the same on any
//! machine, however busy. The database's and the node's work is not counted, that of their clients is.
//!
//! The counts are of the build that the tests have, without optimization: many times what ships, and so only their
//! change says something. `docs/performance.md` has what ships.
//!
//! Callgrind is run as it is, and not by gungraun (which was iai-callgrind): its runner would have to be built and
//! installed in exactly the library's version, for what three options and one number of a file give here.

use std::path::Path;
use std::process::Command;

/// Thousands of instructions, and how many percent more a count may be. More is a waste to be found, or work that is worth
/// a higher budget here.
const BUDGETS: [(&str, u64); 4] = [
    ("allow", 18_487),
    ("replay", 17_898),
    ("block", 14_218),
    ("complete", 13_047),
];
const TOLERANCE_PERCENT: u64 = 3;

#[test]
fn allow_stays_within_its_budget() {
    judge("allow");
}

#[test]
fn replay_stays_within_its_budget() {
    judge("replay");
}

#[test]
fn block_stays_within_its_budget() {
    judge("block");
}

#[test]
fn complete_stays_within_its_budget() {
    judge("complete");
}

fn judge(operation: &str) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: there is no valgrind (apt-get install valgrind)");
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

/// The instructions of one call.
fn counted(operation: &str) -> u64 {
    let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{operation}.callgrind"));
    let mut callgrind = Command::new("valgrind");
    callgrind.args(["--tool=callgrind", "--collect-atstart=no"]);
    // Each switches counting on where it was off, and off where it was on.
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
