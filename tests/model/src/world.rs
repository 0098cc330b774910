//! A ledger, the writes that were sent to it, and the completed edits.
//!
//! A write that was sent may be applied once, at any later time, or never. Its sender waits for the result, or has
//! given up. For the ledger, a lost request, a lost response, a slow request and a crash of the sender have the same
//! effect. A conflict with another transaction is a write that is applied later.

use crate::{
    flaw::Flaw,
    law::{self, Broken},
    ledger::{Answer, Ledger, Tick, Write},
};

/// A write that was sent and not applied yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flight {
    /// The process that sent the write.
    pub by: u8,
    /// Whether the process waits for the result.
    pub awaited: bool,
    /// The write that was sent.
    pub write: Write,
}

/// The versions of the newest completed edits. Nothing may be reserved on earlier versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The version of the agent's record.
    pub agent: u8,
    /// The version of the policy.
    pub policy: u8,
}

/// The state that all models have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The stored rows.
    pub ledger: Ledger,
    /// The writes that were sent and not applied yet, in order.
    pub flights: Vec<Flight>,
    /// The versions of the completed edits.
    pub floor: Floor,
    /// The true time.
    pub now: Tick,
    /// The invariants that a step has violated.
    pub broken: Broken,
}

impl World {
    /// A world with this ledger and no steps.
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            flights: Vec::new(),
            floor: Floor::default(),
            now: 0,
            broken: Broken::default(),
        }
    }

    /// Sends a write and waits for its result.
    pub fn send(&mut self, by: u8, write: Write) {
        let awaited = true;
        self.flights.push(Flight { by, awaited, write });
        self.flights.sort_unstable();
    }

    /// Stops waiting for the process's write, and returns the write. It may still be applied.
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

    /// Applies a write that was sent. Returns the result for the process that sent it.
    pub fn land(&mut self, index: usize, flaw: Option<Flaw>) -> (Flight, Answer) {
        let flight = self.flights.remove(index);
        let answer = self.make(&flight.write, flaw);
        (flight, answer)
    }

    /// Applies a write, and checks the invariants that it can violate.
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
