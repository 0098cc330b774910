//! Shrinks a failing plan to a smaller plan that fails in the same way.

use crate::plan::{Plan, Setting};
use crate::run::run;

/// Returns the kind of a finding: the first words of the first violation, without ids and numbers.
pub fn kind(complaints: &[String]) -> Option<String> {
    let words = complaints.first()?.split_whitespace();
    let plain = words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit() && !word.starts_with('I')));
    Some(plain.take(6).collect::<Vec<_>>().join(" "))
}

/// Removes the parts of a plan that the failure does not need. `most` is the maximum number of runs.
pub fn shrink(plan: &Plan, most: usize) -> Plan {
    let Some(wanted) = kind(&run(plan).complaints) else {
        return plan.clone();
    };
    let mut shrinking = Shrinking {
        best: plan.clone(),
        wanted,
        left: most,
    };
    loop {
        let before = shrinking.best.clone();
        shrinking.rounds();
        shrinking.steps();
        shrinking.faults();
        shrinking.calm();
        if shrinking.best == before || shrinking.left == 0 {
            return shrinking.best;
        }
    }
}

struct Shrinking {
    best: Plan,
    wanted: String,
    left: usize,
}

impl Shrinking {
    /// Keeps a plan if it fails in the same way.
    fn take(&mut self, plan: Plan) -> bool {
        if self.left == 0 || plan == self.best {
            return false;
        }
        self.left -= 1;
        let fails = kind(&run(&plan).complaints).as_ref() == Some(&self.wanted);
        if fails {
            self.best = plan;
        }
        fails
    }

    /// Removes ranges of rounds, long ranges first.
    fn rounds(&mut self) {
        let mut length = self.best.rounds.len();
        while length > 0 {
            let mut at = 0;
            while at < self.best.rounds.len() {
                let mut plan = self.best.clone();
                plan.rounds.drain(at..(at + length).min(plan.rounds.len()));
                if !self.take(plan) {
                    at += length;
                }
            }
            length /= 2;
        }
    }

    fn steps(&mut self) {
        let mut round = 0;
        while round < self.best.rounds.len() {
            let mut step = 0;
            while step < self.best.rounds[round].len() {
                let mut plan = self.best.clone();
                plan.rounds[round].remove(step);
                if !self.take(plan) {
                    step += 1;
                }
            }
            round += 1;
        }
    }

    fn faults(&mut self) {
        for round in 0..self.best.rounds.len() {
            for step in 0..self.best.rounds[round].len() {
                let mut plan = self.best.clone();
                plan.rounds[round][step].faults.clear();
                if self.take(plan) {
                    continue;
                }
                let mut fault = 0;
                while fault < self.best.rounds[round][step].faults.len() {
                    let mut plan = self.best.clone();
                    plan.rounds[round][step].faults.remove(fault);
                    if !self.take(plan) {
                        fault += 1;
                    }
                }
            }
        }
    }

    /// Removes unusual settings, clock skews and delays.
    fn calm(&mut self) {
        let now = self.best.setting;
        let Setting {
            start, two_endpoints, ..
        } = Setting::USUAL;
        for setting in [
            Setting::USUAL,
            Setting { start, ..now },
            Setting { two_endpoints, ..now },
            Setting { crowd: false, ..now },
            Setting { payouts: false, ..now },
            Setting { webhooks: false, ..now },
        ] {
            let mut plan = self.best.clone();
            plan.setting = setting;
            if self.take(plan) {
                break;
            }
        }
        for worker in 0..self.best.skews.len() {
            let mut plan = self.best.clone();
            plan.skews[worker] = 0;
            self.take(plan);
        }
        for round in 0..self.best.rounds.len() {
            for step in 0..self.best.rounds[round].len() {
                let mut plan = self.best.clone();
                plan.rounds[round][step].pace = 0;
                self.take(plan);
            }
        }
        self.best.rounds.retain(|round| !round.is_empty());
    }
}
