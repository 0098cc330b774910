//! Kept plans: shrunk findings of the simulation, and schedules that should run every time.
//!
//! Each asserts what must hold, and that the situation it is about really happened.

use Fault::{Conflict, CrashAfter, Late, LostAnswer, Slow};
use Op::{Authorize, Complete, Freeze, Pass, PassToDeadline, Reconcile, Reorganize};
use Silence::{Broken, Nothing};
use Twist::Plain;
use purser_sim::{Buy, Fault, Op, Pay, Plan, Proof, Silence, Step, Twist, run};

/// Runs a plan: nothing may be found, and each of these must have happened.
fn check(plan: &Plan, happened: &[&str]) {
    let outcome = run(plan);
    assert!(outcome.complaints.is_empty(), "{:#?}", outcome.complaints);
    for what in happened {
        assert!(
            outcome.coverage.of(what) > 0,
            "{what} did not happen:\n{}",
            outcome.coverage
        );
    }
}

fn buy(key: u8, service: u8, units: u16, secs: u16) -> Op {
    let buy = Buy {
        agent: 0,
        key,
        service,
        units,
        secs,
        twist: Plain,
    };
    Authorize {
        buy,
        carry: None,
        first_key: false,
    }
}

fn plan(seed: u64, rounds: Vec<Vec<Step>>) -> Plan {
    Plan {
        seed,
        skews: [0; 3],
        rounds,
    }
}

/// Found by seed 119: the twin reads the key, then waits for the window; meanwhile the other call uses the room.
#[test]
fn a_call_that_is_sent_twice_is_not_refused_for_the_room_that_it_has_taken() {
    let rounds = vec![
        vec![Step::on(0, 0, Pass { secs: 10 })],
        vec![Step::on(0, 0, buy(6, 1, 450, 60))],
        vec![
            Step::on(2, 0, buy(5, 1, 100, 900)).but(3, LostAnswer(Nothing)),
            Step::on(1, 0, buy(5, 1, 100, 900)),
        ],
    ];
    check(&plan(119, rounds), &["Authorize allow", "Authorize replay"]);
}

#[test]
fn a_reservation_that_arrives_after_its_caller_died_and_asked_again_is_made_once() {
    let rounds = vec![
        vec![
            Step::on(0, 0, buy(0, 0, 100, 300))
                .but(4, Late(4_000))
                .but(5, CrashAfter),
        ],
        vec![Step::on(1, 0, buy(0, 0, 100, 300)), Step::on(2, 7, buy(0, 0, 100, 300))],
        vec![Step::on(0, 0, Pass { secs: 5 })],
        vec![Step::on(2, 0, buy(0, 0, 100, 300))],
    ];
    check(
        &plan(1, rounds),
        &["Authorize crashed", "Authorize replay", "fault Late"],
    );
}

#[test]
fn a_payment_of_the_last_second_is_confirmed_though_two_reconcile_and_one_completes() {
    let paid = Op::Pay {
        agent: 0,
        key: 0,
        how: Pay::LastSecond,
    };
    let rounds = vec![
        vec![Step::on(0, 0, buy(0, 0, 100, 30))],
        vec![Step::on(0, 0, paid)],
        vec![Step::on(
            0,
            0,
            PassToDeadline {
                agent: 0,
                key: 0,
                early: false,
            },
        )],
        vec![Step::on(0, 0, Reconcile { secs: 60 })],
        vec![Step::on(0, 0, Pass { secs: 8 })],
        vec![
            Step::on(0, 3, Reconcile { secs: 60 }),
            Step::on(1, 5, Reconcile { secs: 60 }),
            Step::on(
                2,
                9,
                Complete {
                    agent: 0,
                    key: 0,
                    proof: Proof::True,
                },
            ),
        ],
    ];
    check(&plan(2, rounds), &["reconciled: not_yet", "Complete confirmed"]);
}

/// Seed 1881: the SDK retries the transaction by itself, and finds it committed.
#[test]
fn a_payment_whose_answer_is_lost_and_that_then_meets_others_is_no_replay_of_itself() {
    let mut step = Step::on(0, 0, buy(1, 1, 250, 30)).but(6, LostAnswer(Broken));
    for call in 7..11 {
        step = step.but(call, Conflict);
    }
    check(&plan(1_881, vec![vec![step]]), &["Authorize allow"]);
}

/// From seed 653: it was not checked while it was unused, and later the cancellation had to be found, on a young chain.
#[test]
fn a_payment_that_is_canceled_long_after_its_time_gives_its_spend_back() {
    let rounds = vec![
        vec![Step::on(0, 0, Reorganize { depth: 5 })],
        vec![Step::on(0, 0, buy(0, 1, 1, 900))],
        vec![Step::on(0, 0, Pass { secs: 90_000 })],
        vec![Step::on(0, 0, Op::Cancel { agent: 0, key: 0 })],
    ];
    check(
        &plan(653, rounds),
        &["Authorize allow", "Cancel sent", "reconciled: released"],
    );
}

#[test]
fn a_freeze_that_is_answered_while_a_payment_is_under_way_is_followed_by_none() {
    let rounds = vec![vec![
        Step::on(0, 0, buy(0, 0, 100, 300)).but(3, Slow(900)),
        Step::on(1, 0, Freeze { agent: 0, frozen: true }),
    ]];
    check(
        &plan(3, rounds),
        &["Freeze stored", "Authorize policy_blocked agent_frozen"],
    );
}

#[test]
fn a_spend_that_was_given_back_counts_again_when_the_chain_remembers_the_payment() {
    let rounds = |depth| {
        let paid = Op::Pay {
            agent: 0,
            key: 0,
            how: Pay::LastSecond,
        };
        let steps = [
            buy(0, 0, 100, 30),
            PassToDeadline {
                agent: 0,
                key: 0,
                early: true,
            },
            paid,
            PassToDeadline {
                agent: 0,
                key: 0,
                early: false,
            },
            Reorganize { depth: 2 },
            Pass { secs: 10 },
            Reconcile { secs: 60 },
            Reorganize { depth },
            Pass { secs: 10 },
            Complete {
                agent: 0,
                key: 0,
                proof: Proof::True,
            },
        ];
        steps.into_iter().map(|step| vec![Step::on(0, 0, step)]).collect()
    };
    // Which transactions a reorganization loses, and includes again, depends on the seed.
    let late = |seed| run(&plan(seed, rounds(8)));
    let outcomes: Vec<_> = (0..40).map(late).collect();
    for outcome in &outcomes {
        assert!(outcome.complaints.is_empty(), "{:#?}", outcome.complaints);
    }
    let so_often = outcomes
        .iter()
        .filter(|outcome| outcome.coverage.of("confirmed after its release") > 0)
        .count();
    assert!(so_often > 0, "it never came to that");
}
