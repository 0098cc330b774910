//! The webhooks of small runs, with each kind of receiver and of fault.

use purser_sim::{Buy, Coverage, Op, Pay, Plan, Proof, Setting, Step, Twist, run};

/// Returns a plan with a payment, an approved payment and a denial.
pub(crate) fn plan(seed: u64) -> Plan {
    let agent = 0;
    let buy = |key, units, carry| Op::Authorize {
        buy: Buy {
            agent,
            key,
            service: 0,
            units,
            secs: 60,
            twist: Twist::Plain,
        },
        carry,
        first_key: false,
    };
    let (how, proof, yes) = (Pay::Soon, Proof::True, true);
    let steps = [
        buy(0, 100, None),
        Op::Pay { agent, key: 0, how },
        Op::Pass { secs: 10 },
        Op::Complete { agent, key: 0, proof },
        buy(1, 300, None),
        Op::Resolve { agent, key: 1, yes },
        buy(1, 300, Some(1)),
        buy(2, 600, None),
    ];
    let mut setting = Setting::USUAL;
    setting.webhooks = true;
    Plan {
        seed,
        skews: [0; 3],
        setting,
        rounds: steps.map(|op| vec![Step::on(0, 0, op)]).into(),
    }
}

/// Runs these seeds, and returns the coverage.
pub(crate) fn check(seeds: impl IntoIterator<Item = u64>) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let outcome = run(&plan(seed));
        assert!(outcome.complaints.is_empty(), "seed {seed}: {:#?}", outcome.complaints);
        coverage.add(outcome.coverage);
    }
    coverage
}

/// Some receivers fail, hang or respond with 410, and users change their webhooks.
#[test]
fn deliveries_end_according_to_the_receivers_responses() {
    let coverage = check(0..24);
    for what in [
        "Deliver crashed",
        "FanOut crashed",
        "Request done",
        "Resume done",
        "called on request",
        "delivered after a failure",
        "given up after a day",
        "given up: too many wait",
        "gone",
        "messages done and not removed",
        "received twice",
        "set aside",
    ] {
        assert!(coverage.occurrences(what) > 0, "{what} did not happen:\n{coverage}");
    }
}

/// The write that stores the pause fails, so the message stays in the queue.
#[test]
fn a_webhook_is_called_again_if_the_requested_pause_could_not_be_stored() {
    check([63]);
}

/// The write that stores the 410 fails, so the message stays in the queue.
#[test]
fn a_webhook_is_marked_as_gone_before_its_delivery_ends() {
    let coverage = check([244]);
    assert!(coverage.occurrences("answered 410") > 0, "{coverage}");
}

#[test]
fn simulated_webhook_calls_are_deterministic() {
    for seed in [7, 10, 63] {
        let [first, second] = [(); 2].map(|()| run(&plan(seed)).trace);
        assert!(first.iter().any(|call| call.contains("webhook 0")), "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
    }
}
