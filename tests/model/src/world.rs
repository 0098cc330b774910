//! A ledger, and the writes that were sent to it.
//!
//! A write may be applied once at any later time, or never. This covers lost requests and responses, slow requests,
//! crashes and conflicts.

use crate::{
    flaw::Flaw,
    law::{self, Broken},
    ledger::{Answer, Ledger, Tick, Write},
};

/// A write that was sent and is not applied yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flight {
    /// The process that sent the write.
    pub by: u8,
    /// Whether the process waits for the result.
    pub awaited: bool,
    /// The write that was sent.
    pub write: Write,
}

/// The versions that completed updates have stored. No reservation may use an earlier version.
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
    /// The versions that completed updates have stored.
    pub floor: Floor,
    /// The true time, without clock skew.
    pub now: Tick,
    /// The invariants that a step to this state has violated.
    pub broken: Broken,
}

impl World {
    /// Creates a world with this ledger.
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

    /// Stops waiting for a process's write and returns it. The write may still be applied.
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

    /// Applies a sent write. Returns the write and its result.
    pub fn land(&mut self, index: usize, flaw: Option<Flaw>) -> (Flight, Answer) {
        let flight = self.flights.remove(index);
        let answer = self.make(&flight.write, flaw);
        (flight, answer)
    }

    /// Applies a write, and checks the invariants that the write can violate.
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
