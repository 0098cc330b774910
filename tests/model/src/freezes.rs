//! Models concurrent freezes of one target by operators, with tokens and from browsers.
//!
//! A request writes only if the freeze is unchanged since the read. The write may be applied later or never, which
//! covers slow requests, lost responses and crashes.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::Ledger,
    world::World,
};
use stateright::{Model, Property};

/// The functions that this model imitates: the name in the model, the file, and the name in the file.
pub const IMPLEMENTATIONS: [(&str, &str, &str); 3] = [
    ("judge a begin", "shared/domain/src/policy/freeze.rs", "begin_freeze"),
    ("judge an end", "shared/domain/src/policy/freeze.rs", "end_freeze"),
    ("write", "shared/store/src/people/freezes.rs", "change_freeze"),
];

/// An operator, who uses a token or a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// An operator in a browser.
    Browser(u8),
    /// An operator with a token.
    Token,
}

/// A bounded model of operators' freezes.
#[derive(Clone, Debug)]
pub struct Freezes {
    /// The name of the model.
    pub name: &'static str,
    /// The requests: the operator, and whether the request begins (`true`) or ends a freeze.
    pub requests: Vec<(Operator, bool)>,
    /// Whether a second operator must confirm the end of a freeze that was set in a browser.
    pub needs_second: bool,
    /// The bug planted in the model; `None` for a correct model.
    pub flaw: Option<Flaw>,
}

/// The stored freeze: who began it, in which request, and who requested its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Row {
    by: Operator,
    request: u8,
    end: Option<Operator>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Idle,
    /// The request has read this freeze, and writes next.
    Writes(Option<Row>),
    Done,
}

/// A state of the freeze model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that all models have. This model uses only the field `broken`.
    pub world: World,
    stored: Option<Row>,
    requests: Vec<Request>,
    /// The operators who requested the end of the stored freeze.
    asked: Vec<Operator>,
}

/// A step of the freeze model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The request reads the freeze.
    Read(u8),
    /// The request's write is applied if its condition holds.
    Write(u8),
}

impl Freezes {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns the freeze that a request writes after it read `read`. Returns an error if the operator may not make the
    /// change.
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

    /// Returns the invariants that a request's write violates.
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
                // A request may end only the freeze that this request has read.
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
