//! The seeds and saved plans that `make test` runs. `make simulate` runs more seeds.

mod notices;
mod reproductions;
mod webhooks;

use purser_sim::{Plan, run, shrink};

fn check(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let outcome = run(&Plan::from_seed(seed));
        if !outcome.complaints.is_empty() {
            let plan = shrink(&Plan::from_seed(seed), 100);
            panic!("seed {seed}: {:#?}\nshrunk: {plan}", outcome.complaints);
        }
    }
}

#[test]
fn the_first_simulation_seeds_find_no_bug() {
    check(0..15);
}

#[test]
fn further_simulation_seeds_find_no_bug() {
    check(15..30);
}

#[test]
fn a_simulation_seed_always_gives_the_same_run() {
    for seed in [3, 11, 40] {
        let [first, second] = [(); 2].map(|()| run(&Plan::from_seed(seed)));
        assert!(first.trace.len() > 50, "seed {seed}");
        for (first, second) in first.trace.iter().zip(&second.trace) {
            assert_eq!(first, second, "seed {seed}");
        }
        assert_eq!(
            (first.trace.len(), first.print),
            (second.trace.len(), second.print),
            "seed {seed}"
        );
    }
}
