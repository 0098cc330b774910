//! Models the decision history and its sums, which batches of stream records build.
//!
//! The steps are those of `shared/store/src/usage/fold.rs`. A batch begins with a record only after all earlier records
//! were processed. Processed records may be delivered again, also concurrently.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::Ledger,
    world::World,
};
use stateright::{Model, Property};

/// The functions that this model imitates: the name in the model, the file, and the name in the file.
pub const IMPLEMENTATIONS: [(&str, &str, &str); 3] = [
    ("put entries", "shared/store/src/usage/fold.rs", "put_history_entries"),
    ("put an entry", "shared/store/src/usage/journal.rs", "put_history_entry"),
    ("add to the sums", "shared/store/src/usage/fold.rs", "add_agent_sums"),
];

/// A bounded model of the decision history and its sums.
#[derive(Clone, Debug)]
pub struct Usage {
    /// The name of the model.
    pub name: &'static str,
    /// For each record, the index of its entry and the entry's new amount.
    pub records: Vec<(usize, i8)>,
    /// The number of batches.
    pub batches: u8,
    /// The bug planted in the model; `None` for a correct model.
    pub flaw: Option<Flaw>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Batch {
    Idle,
    /// The batch stores the entries of its records in order.
    Entries(u8, u8, u8),
    /// The batch has read the sums.
    Sums(u8, u8, Sums),
    Done,
}

/// The stored sums, the sequence number of their last record, and their version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Sums {
    amount: i8,
    last: u8,
    version: u8,
}

/// A state of the usage model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that all models have. This model uses only the field `broken`.
    pub world: World,
    /// The sequence number and the amount of each entry.
    journal: [(u8, i8); 2],
    sums: Sums,
    batches: Vec<Batch>,
    /// The number of records that were processed once.
    folded: u8,
}

/// A step of the usage model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A batch of these records begins.
    Begin(u8, u8, u8),
    /// A batch continues.
    Go(u8),
    /// A batch is interrupted.
    Kill(u8),
}

impl Usage {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns an entry's sequence number and amount after the first `records` records.
    fn after(&self, entry: usize, records: u8) -> (u8, i8) {
        let of = (1_u8..).zip(&self.records).take(usize::from(records));
        let last = of.filter(|(_, (of, _))| *of == entry).last();
        last.map_or((0, 0), |(sequence, (_, amount))| (sequence, *amount))
    }
}

impl Model for Usage {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            world: World::new(Ledger::new(None)),
            journal: [(0, 0); 2],
            sums: Sums::default(),
            batches: vec![Batch::Idle; usize::from(self.batches)],
            folded: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let all = u8::try_from(self.records.len()).unwrap_or(0);
        for (index, batch) in (0_u8..).zip(&state.batches) {
            match batch {
                Batch::Idle => {
                    for first in 1..=(state.folded + 1).min(all) {
                        actions.extend((first..=all).map(|last| Action::Begin(index, first, last)));
                    }
                }
                Batch::Entries(..) | Batch::Sums(..) => actions.extend([Action::Go(index), Action::Kill(index)]),
                Batch::Done => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin(index, first, last) => {
                state.batches[usize::from(index)] = Batch::Entries(first, first, last);
            }
            Action::Go(index) => {
                let batch = &mut state.batches[usize::from(index)];
                match *batch {
                    Batch::Entries(first, next, last) if next <= last => {
                        let (entry, amount) = self.records[usize::from(next) - 1];
                        if state.journal[entry].0 < next || self.has(Flaw::EntryIgnoresSequence) {
                            state.journal[entry] = (next, amount);
                        }
                        *batch = Batch::Entries(first, next + 1, last);
                    }
                    Batch::Entries(first, _, last) => *batch = Batch::Sums(first, last, state.sums),
                    Batch::Sums(first, last, read) => {
                        let mut sums = read;
                        for record in first..=last {
                            if record <= sums.last && !self.has(Flaw::SumsIgnoreSequence) {
                                continue;
                            }
                            let (entry, amount) = self.records[usize::from(record) - 1];
                            sums.amount += amount - self.after(entry, record - 1).1;
                            sums.last = sums.last.max(record);
                        }
                        if sums == read || read.version == state.sums.version {
                            if sums != read {
                                sums.version += 1;
                                state.sums = sums;
                            }
                            *batch = Batch::Done;
                            state.folded = state.folded.max(last);
                        } else {
                            *batch = Batch::Sums(first, last, state.sums);
                        }
                    }
                    Batch::Idle | Batch::Done => return None,
                }
            }
            // Lambda delivers the batch again.
            Action::Kill(index) => state.batches[usize::from(index)] = Batch::Done,
        }
        state.batches.sort_unstable();
        let mut broken = Broken::default();
        let sum = |records: u8| -> i8 { (0..2).map(|entry| self.after(entry, records).1).sum() };
        broken.unless(state.sums.amount == sum(state.sums.last), Law::Usage);
        broken.unless(state.sums.last >= state.folded, Law::Usage);
        for (entry, (sequence, amount)) in state.journal.iter().enumerate() {
            broken.unless(*sequence >= self.after(entry, state.folded).0, Law::Usage);
            broken.unless((*sequence, *amount) == self.after(entry, *sequence), Law::Usage);
        }
        state.world.broken = state.world.broken.and(broken);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = laws();
        properties.push(Property::sometimes(
            "everything is folded",
            |model: &Self, state: &State| usize::from(state.folded) == model.records.len(),
        ));
        properties
    }
}

crate::laws!(Usage);
