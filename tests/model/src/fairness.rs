//! Models runs of `reconcile` over the holds of two tenants. One tenant makes payments that the node doesn't show.
//!
//! A run takes the holds that have been due longest, up to a limit. It has a limited number of calls for holds that the
//! node rejects in one query, and gives them to the payers in turn. Holds that a run can't decide are tried again
//! later. The bound is a number of runs. Liveness is an invariant of every state, so a cycle can't hide a violation.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::Ledger,
    world::World,
};
use stateright::{Model, Property};

/// The functions that the model repeats: name in the model, file, name in the file.
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

/// A bounded model of fair runs.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// The name of the model.
    pub name: &'static str,
    /// The maximum number of holds of the hostile tenant.
    pub hostile: u8,
    /// The number of holds of the honest tenant.
    pub honest: u8,
    /// The number of holds that a run takes.
    pub most: usize,
    /// The number of calls of a run for holds that the node rejects.
    pub calls: usize,
    /// The number of runs.
    pub runs: u8,
    /// The planted bug.
    pub flaw: Option<Flaw>,
}

/// A hold: the run from which it is due, whether it belongs to the hostile tenant, and its number.
type Hold = (u8, bool, u8);

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that all models have. This model uses only the violated invariants.
    pub world: World,
    holds: Vec<Hold>,
    added: u8,
    run: u8,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Adds a hold of the hostile tenant that is due since this run.
    Add(u8),
    /// Runs `reconcile`.
    Run,
}

impl Fairness {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The number of runs within which all holds of the honest tenant end. They wait for the hostile holds that may be
    /// due earlier, at `most` per run, and each group of honest holds needs one more run.
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
                // The hold of the hostile tenant comes first among holds that are due since the same run.
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
                    // The first hold of each tenant, then the second of each.
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
