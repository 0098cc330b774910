//! Operators' freezes of one target, by a token and from browsers, at once.
//!
//! Each request reads the stored freeze, judges its change by the authorities (`FreezeChange` in `shared/domain`), and
//! writes only if the freeze is as it was read; otherwise it reads again. A write may be made at any later time or never,
//! and so stands for a slow request, a lost answer and a crash alike.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::Ledger,
    world::World,
};
use stateright::{Model, Property};

/// The functions that the model repeats: its name here, its file, its name there.
pub const IMPLEMENTATIONS: [(&str, &str, &str); 3] = [
    ("judge a begin", "shared/domain/src/policy/freeze.rs", "begin_freeze"),
    ("judge an end", "shared/domain/src/policy/freeze.rs", "end_freeze"),
    ("write", "shared/store/src/people/freezes.rs", "change_freeze"),
];

/// An operator: with a token, or in a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// In a browser.
    Browser(u8),
    /// With a token.
    Token,
}

/// A model: the requests that begin (`true`) or end a freeze, and whether browsers need a second operator.
#[derive(Clone, Debug)]
pub struct Freezes {
    /// Its name.
    pub name: &'static str,
    /// The requests.
    pub requests: Vec<(Operator, bool)>,
    /// Whether a second operator has to end a browser's freeze.
    pub needs_second: bool,
    /// The planted error.
    pub flaw: Option<Flaw>,
}

/// The stored freeze: who began it, the request that did, and who asked for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Row {
    by: Operator,
    request: u8,
    end: Option<Operator>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Idle,
    /// Has read this, and writes.
    Writes(Option<Row>),
    Done,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The shared part, of which only the broken laws are used.
    pub world: World,
    stored: Option<Row>,
    requests: Vec<Request>,
    /// Who asked for the end of the stored freeze while it was stored.
    asked: Vec<Operator>,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A request reads.
    Read(u8),
    /// A request's write is made, if its condition holds.
    Write(u8),
}

impl Freezes {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The row that a request writes on what it has read; an error if the authorities reject it, or nothing is to end.
    fn judged(&self, request: u8, read: Option<Row>) -> Result<Option<Row>, ()> {
        let (by, begins) = self.requests[usize::from(request)];
        let is_weaker = read.is_some_and(|row| row.by == Operator::Token) && by != Operator::Token;
        if is_weaker && !self.has(Flaw::FreezeIgnoresAuthority) {
            return Err(());
        }
        if begins {
            let end = read
                .and_then(|row| row.end)
                .filter(|_| self.has(Flaw::RequestOutlivesFreeze));
            return Ok(Some(Row { by, request, end }));
        }
        let row = read.ok_or(())?;
        let is_second = row.end.is_some_and(|first| first != by);
        let asks = by != Operator::Token && self.needs_second && !is_second;
        Ok(asks.then_some(Row { end: Some(by), ..row }))
    }

    /// The laws that a write breaks.
    fn broken(&self, request: u8, last: &State, state: &State) -> Broken {
        let mut broken = Broken::default();
        let (by, begins) = self.requests[usize::from(request)];
        if let Some(row) = last.stored {
            let is_changed = state.stored != Some(row);
            broken.unless(
                row.by != Operator::Token || by == Operator::Token || !is_changed,
                Law::Freezes,
            );
            if state.stored.is_none() {
                let is_second = last.asked.iter().any(|first| *first != by);
                let may_end = by == Operator::Token || !self.needs_second || is_second;
                broken.unless(may_end, Law::Freezes);
                // Nobody ends a freeze that they have not seen.
                broken.unless(
                    last.requests[usize::from(request)] == Request::Writes(Some(row)),
                    Law::Freezes,
                );
            }
        }
        broken.unless(!begins || state.stored.is_some(), Law::Freezes);
        broken
    }
}

impl Model for Freezes {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            world: World::new(Ledger::new(None)),
            stored: None,
            requests: vec![Request::Idle; self.requests.len()],
            asked: Vec::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, request) in (0_u8..).zip(&state.requests) {
            match request {
                Request::Idle => actions.push(Action::Read(index)),
                Request::Writes(_) => actions.push(Action::Write(index)),
                Request::Done => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Read(index) => {
                let is_permitted = self.judged(index, last.stored).is_ok();
                state.requests[usize::from(index)] = if is_permitted {
                    Request::Writes(last.stored)
                } else {
                    Request::Done
                };
            }
            Action::Write(index) => {
                let Request::Writes(read) = last.requests[usize::from(index)] else {
                    return None;
                };
                if read != last.stored && !self.has(Flaw::FreezeIgnoresWhatWasRead) {
                    state.requests[usize::from(index)] = Request::Idle;
                    return Some(state);
                }
                let written = self.judged(index, read).ok()?;
                state.requests[usize::from(index)] = Request::Done;
                state.stored = written;
                let is_same = |row: Row| written.is_some_and(|written| written.request == row.request);
                if last.stored.is_none_or(|row| !is_same(row)) {
                    state.asked.clear();
                } else if let (by, false) = self.requests[usize::from(index)] {
                    state.asked.push(by);
                    state.asked.sort_unstable();
                    state.asked.dedup();
                }
                state.world.broken = state.world.broken.and(self.broken(index, last, &state));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = laws();
        properties.push(Property::sometimes(
            "a token's freeze stands after every request",
            |_: &Self, state: &State| {
                let is_done = state.requests.iter().all(|request| *request == Request::Done);
                is_done && state.stored.is_some_and(|row| row.by == Operator::Token)
            },
        ));
        properties
    }
}

crate::laws!(Freezes);
