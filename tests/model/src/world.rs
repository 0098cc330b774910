//! A ledger, the writes on their way to it, and what was answered.
//!
//! A write that was sent can be made at any later time, once, or never. Its sender waits for it, or has given up: a lost
//! request, a lost answer, a slow one and a crash of the sender are all the same to the ledger. A conflict with another
//! transaction is a write that is made later.

use crate::{
    flaw::Flaw,
    law::{self, Broken},
    ledger::{Answer, Ledger, Tick, Write},
};

/// A write on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flight {
    /// The process that sent it.
    pub by: u8,
    /// Whether the process waits for its answer.
    pub awaited: bool,
    /// The write.
    pub write: Write,
}

/// The versions of the newest answered edits: nothing may be reserved on earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The agent's record.
    pub agent: u8,
    /// The policy.
    pub policy: u8,
}

/// The part of a state that all models have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The stored rows.
    pub ledger: Ledger,
    /// The writes on their way, in order.
    pub flights: Vec<Flight>,
    /// What was answered.
    pub floor: Floor,
    /// The true time.
    pub now: Tick,
    /// The laws that a step has broken.
    pub broken: Broken,
}

impl World {
    /// A world with this ledger, in which nothing has happened.
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            flights: Vec::new(),
            floor: Floor::default(),
            now: 0,
            broken: Broken::default(),
        }
    }

    /// Sends a write, and waits for its answer.
    pub fn send(&mut self, by: u8, write: Write) {
        let awaited = true;
        self.flights.push(Flight { by, awaited, write });
        self.flights.sort_unstable();
    }

    /// The process no longer waits. Its write may still be made. Returns the write.
    pub fn give_up(&mut self, by: u8) -> Option<Write> {
        let flight = self
            .flights
            .iter_mut()
            .find(|flight| flight.by == by && flight.awaited)?;
        flight.awaited = false;
        let write = flight.write.clone();
        self.flights.sort_unstable();
        Some(write)
    }

    /// Makes a write that is on its way. Returns the answer, for the process that sent it.
    pub fn land(&mut self, index: usize, flaw: Option<Flaw>) -> (Flight, Answer) {
        let flight = self.flights.remove(index);
        let answer = self.make(&flight.write, flaw);
        (flight, answer)
    }

    /// Makes a write, and checks it.
    pub fn make(&mut self, write: &Write, flaw: Option<Flaw>) -> Answer {
        let before = self.ledger.clone();
        let answer = self.ledger.apply(write, flaw);
        if answer == Answer::Done {
            let broken = law::of_change(&before, &self.ledger, write, self.floor).and(law::of_ledger(&self.ledger));
            self.broken = self.broken.and(broken);
        }
        answer
    }
}
