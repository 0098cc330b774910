//! Models runs of `reconcile` over the authorized settlements ("holds") of an honest and a hostile tenant. The node
//! does not show the payments of the hostile tenant.
//!
//! Invariant: all holds of the honest tenant end within a number of runs.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::Ledger,
    world::World,
};
use stateright::{Model, Property};

/// The functions that this model imitates: the name in the model, the file, and the name in the file.
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

/// A bounded model of runs that treat tenants fairly.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// The name of the model.
    pub name: &'static str,
    /// The maximum number of the hostile tenant's authorized settlements.
    pub hostile: u8,
    /// The number of the honest tenant's authorized settlements.
    pub honest: u8,
    /// The maximum number of authorized settlements that a run reads.
    pub most: usize,
    /// The number of calls that a run makes for single settlements after the node rejected the query for all of them.
    pub calls: usize,
    /// The number of runs of `reconcile`.
    pub runs: u8,
    /// The bug planted in the model; `None` for a correct model.
    pub flaw: Option<Flaw>,
}

/// An authorized settlement: the run in which it is due, whether it belongs to the hostile tenant, and its number.
type Hold = (u8, bool, u8);

/// A state of the fairness model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that all models have. This model uses only the field `broken`.
    pub world: World,
    holds: Vec<Hold>,
    added: u8,
    run: u8,
}

/// A step of the fairness model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Adds a settlement of the hostile tenant that is due in this run.
    Add(u8),
    /// Runs `reconcile`.
    Run,
}

impl Fairness {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns the number of runs within which all settlements of the honest tenant end.
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
                // Among settlements that are due in the same run, the hostile tenant's come first, as the worst case.
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
                    // The tenants take turns, so the first settlement of each tenant precedes the second of each.
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
