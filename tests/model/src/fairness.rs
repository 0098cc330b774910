//! Runs of reconcile over the holds of two tenants, one of whom lands payments that the node refuses to show.
//!
//! A run takes the longest due holds, up to a limit, and has a number of calls for holds that the node refuses in one
//! query; they are spent in turns of the payers. What it can't decide is put off. The bound is in runs: liveness is
//! checked as a law on every state, so no cycle can hide a violation.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::Ledger,
    world::World,
};
use stateright::{Model, Property};

/// The functions that the model repeats: its name here, its file, its name there.
pub const IMPLEMENTATIONS: [(&str, &str, &str); 3] = [
    (
        "take the longest due",
        "functions/reconcile/src/due.rs",
        "read_due_holds",
    ),
    ("put off", "shared/store/src/reconcile/holds.rs", "postpone_hold"),
    (
        "calls in turns",
        "shared/chain/src/authorization_state.rs",
        "resolve_states_by_receipt",
    ),
];

/// A model.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// Its name.
    pub name: &'static str,
    /// The most holds of the hostile tenant.
    pub hostile: u8,
    /// The holds of the other tenant.
    pub honest: u8,
    /// The holds that a run takes.
    pub most: usize,
    /// The calls of a run for what the node refuses.
    pub calls: usize,
    /// The number of runs.
    pub runs: u8,
    /// The planted error.
    pub flaw: Option<Flaw>,
}

/// A hold: the run from which it is due, whether it is the hostile tenant's, and its number.
type Hold = (u8, bool, u8);

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The shared part, of which only the broken laws are used.
    pub world: World,
    holds: Vec<Hold>,
    added: u8,
    run: u8,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The hostile tenant has one more hold, due since this run.
    Add(u8),
    /// A run.
    Run,
}

impl Fairness {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The runs within which the holds of the honest tenant end: the hostile ones that may be due before, at `most` a run,
    /// and one run in which the honest tenant has its turn, as often as its holds need.
    fn bound(&self) -> u8 {
        let before = usize::from(self.hostile).div_ceil(self.most);
        let turns = usize::from(self.honest).div_ceil((self.calls / 2).max(1));
        u8::try_from(turns * (before + 1)).unwrap_or(u8::MAX)
    }
}

impl Model for Fairness {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            world: World::new(Ledger::new(None)),
            holds: (0..self.honest).map(|number| (0, false, number)).collect(),
            added: 0,
            run: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.added < self.hostile {
            actions.extend((0..=state.run).map(Action::Add));
        }
        if state.run < self.runs {
            actions.push(Action::Run);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Add(due) => {
                state.holds.push((due, true, state.added));
                state.added += 1;
            }
            Action::Run => {
                // The hostile tenant's come first among those that are due since the same time.
                state
                    .holds
                    .sort_unstable_by_key(|(due, hostile, number)| (*due, !hostile, *number));
                let due: Vec<Hold> = state
                    .holds
                    .iter()
                    .filter(|(due, ..)| *due <= state.run)
                    .copied()
                    .collect();
                let mut taken = due.into_iter().take(self.most).collect::<Vec<_>>();
                if !self.has(Flaw::NoTurns) {
                    // The first of each tenant, then the second of each.
                    let mut places = [0_usize; 2];
                    taken.sort_by_key(|(_, hostile, _)| {
                        let place = &mut places[usize::from(*hostile)];
                        *place += 1;
                        *place
                    });
                }
                let (asked, unasked) = taken.split_at(self.calls.min(taken.len()));
                let ended: Vec<Hold> = asked.iter().filter(|(_, hostile, _)| !hostile).copied().collect();
                let undecided = asked.iter().filter(|(_, hostile, _)| *hostile).chain(unasked);
                let undecided: Vec<Hold> = undecided.copied().collect();
                state.run += 1;
                state.holds.retain(|hold| !ended.contains(hold));
                if !self.has(Flaw::UndecidedStaysFirst) {
                    for hold in &mut state.holds {
                        if undecided.contains(hold) {
                            hold.0 = state.run;
                        }
                    }
                }
            }
        }
        state.holds.sort_unstable();
        let mut broken = Broken::default();
        let waits = state.holds.iter().any(|(_, hostile, _)| !hostile);
        broken.unless(!waits || state.run < self.bound(), Law::Liveness);
        state.world.broken = state.world.broken.and(broken);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = laws();
        properties.push(Property::sometimes(
            "a hostile hold stays",
            |model: &Self, state: &State| state.run == model.runs && !state.holds.is_empty(),
        ));
        properties
    }
}

crate::laws!(Liveness);
