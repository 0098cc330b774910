//! Models withdrawals that run concurrently with updates of the address, an ownership transfer, an operators' freeze,
//! and changes of the settlement on the chain.
//!
//! The steps are those of `functions/payments/src/payouts.rs`.

use crate::{
    flaw::Flaw,
    law::Law,
    ledger::{Answer, KeyId, Ledger, Payouts, Person, SettlementId, State as Paid, Tick, Write},
    world::World,
};
use stateright::{Model, Property};

/// A user's request in the withdrawal model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// The user requests a withdrawal with this idempotency key.
    PayOut(Person, KeyId),
    /// The user sets the withdrawal address.
    Name(Person, u8),
    /// The user removes the withdrawal address.
    Remove(Person),
}

/// A bounded model of withdrawals.
#[derive(Clone, Debug)]
pub struct Payout {
    /// The name of the model.
    pub name: &'static str,
    /// The requests.
    pub asks: Vec<Ask>,
    /// The number of times that an open withdrawal may be confirmed or released, or a confirmed withdrawal be reverted.
    pub ends: u8,
    /// Whether the agent's ownership is transferred from user 0 to user 1.
    pub handover: bool,
    /// Whether operators freeze the agent.
    pub freeze: bool,
    /// The number of ticks after which time stops.
    pub ticks: Tick,
    /// The maximum number of lost responses and crashed processes.
    pub faults: u8,
    /// The bug planted in the model; `None` for a correct model.
    pub flaw: Option<Flaw>,
}

/// The delay until a new withdrawal address can be used.
const DELAY: Tick = 1;
/// The process number of writes that no request sends.
const OTHERS: u8 = 50;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    /// The request has read the withdrawal record, and whether operators have frozen the agent.
    Read(Payouts, bool),
    Writing,
    Done,
}

/// A state of the withdrawal model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that all models have.
    pub world: World,
    asks: Vec<(Step, u8, bool)>,
    ends: u8,
    faults: u8,
    changed: (bool, bool),
    /// Whether the operators' freeze has completed.
    frozen: bool,
    /// For each request, whether the operators' freeze had completed before the request began.
    after_freeze: Vec<bool>,
}

/// A step of the withdrawal model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A request continues.
    Go(u8),
    /// The ledger applies the sent write with this index.
    Land(usize),
    /// A response is lost, and the same write is sent again.
    Lose(u8),
    /// A process crashes.
    Kill(u8),
    /// A withdrawal is confirmed (`true`) or released.
    End(SettlementId, bool),
    /// A confirmed withdrawal is reverted.
    Revert(SettlementId),
    /// The agent's ownership is transferred.
    HandOver,
    /// Operators freeze the agent.
    Freeze,
}

impl Payout {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn owns(state: &State, person: Person) -> bool {
        state.world.ledger.agent.owner == person
    }

    fn go(&self, state: &mut State, index: usize) {
        let by = u8::try_from(index).unwrap_or(0);
        let (step, attempt, resent) = state.asks[index].clone();
        let record = state.world.ledger.payouts.clone();
        let now = state.world.now;
        let (next, write) = match (step, self.asks[index]) {
            (Step::Idle, Ask::PayOut(person, key)) => {
                if attempt == 0 {
                    state.after_freeze[index] = state.frozen;
                }
                // The first round of reads: the agent, the withdrawal record, the freezes and the idempotency key.
                let used = state.world.ledger.payout_keys.contains_key(&key) && !self.has(Flaw::KeyIsOverwritten);
                if !Self::owns(state, person) || used {
                    (Step::Done, None)
                } else {
                    (Step::Read(record, state.world.ledger.frozen), None)
                }
            }
            (Step::Read(record, frozen), Ask::PayOut(person, key)) => {
                // The second round of reads: the latest withdrawal.
                let latest = record.latest.and_then(|id| state.world.ledger.settlements.get(&id));
                let is_open = latest.is_some_and(|of| of.state == Paid::Authorized);
                let usable = record.address.filter(|(_, named, good)| {
                    (*named == person || self.has(Flaw::PayoutIgnoresPerson))
                        && (*good <= now || self.has(Flaw::PayoutIgnoresWait))
                });
                match usable {
                    Some((to, ..)) if !is_open && (!frozen || self.has(Flaw::FreezeIsNotRead)) => {
                        let id = by * 8 + attempt;
                        let write = Write::PayOut {
                            id,
                            key,
                            seen: record.version,
                            latest: record.latest,
                            to,
                            by: person,
                            at: now,
                        };
                        (Step::Writing, Some(write))
                    }
                    _ => (Step::Done, None),
                }
            }
            (Step::Idle, Ask::Name(person, address)) => {
                let stands = record
                    .address
                    .is_some_and(|(to, named, _)| (to, named) == (address, person));
                if !Self::owns(state, person) || stands {
                    (Step::Done, None)
                } else {
                    let write = Write::PutPayouts {
                        old: record.version,
                        address: Some((address, person, now + DELAY)),
                        latest: record.latest,
                    };
                    (Step::Writing, Some(write))
                }
            }
            (Step::Idle, Ask::Remove(person)) => {
                if !Self::owns(state, person) || record.address.is_none() {
                    (Step::Done, None)
                } else {
                    let write = Write::PutPayouts {
                        old: record.version,
                        address: None,
                        latest: record.latest,
                    };
                    (Step::Writing, Some(write))
                }
            }
            (step, _) => (step, None),
        };
        state.asks[index] = (next, attempt, resent);
        if let Some(write) = write {
            state.world.send(by, write);
        }
    }

    fn land(&self, state: &mut State, index: usize) {
        let before = state.world.ledger.clone();
        let (flight, answer) = state.world.land(index, self.flaw);
        let is_done = answer == Answer::Done;
        if let (Write::PayOut { to, by, at, latest, .. }, true) = (&flight.write, is_done) {
            let stands = before
                .payouts
                .address
                .is_some_and(|(address, named, good)| address == *to && named == *by && good <= *at)
                && before.agent.owner == *by;
            let open = |id: &SettlementId| {
                before
                    .settlements
                    .get(id)
                    .is_some_and(|of| of.state == Paid::Authorized)
            };
            let newest = before.payouts.latest;
            let alone = !newest.is_some_and(|id| open(&id)) && newest == *latest;
            let opened = state
                .world
                .ledger
                .settlements
                .values()
                .filter(|of| of.state == Paid::Authorized)
                .count();
            let few = opened <= 1 + state.world.ledger.reverts.len();
            state.world.broken.unless(stands && alone && few, Law::Payout);
        }
        if !flight.awaited || flight.by == OTHERS {
            return;
        }
        let process = usize::from(flight.by);
        let (_, attempt, _) = state.asks[process];
        let ours = match &flight.write {
            Write::PayOut { id, key, .. } => state.world.ledger.payout_keys.get(key) == Some(id),
            // An audit row proves that an earlier attempt was stored, so the request succeeds.
            Write::PutPayouts { old, address, .. } => {
                let record = &state.world.ledger.payouts;
                record.version == old + 1 && record.address == *address
            }
            _ => false,
        };
        if is_done || ours {
            if let Write::PayOut { .. } = flight.write {
                let stands = state.after_freeze[process] && state.frozen;
                state.world.broken.unless(!stands, Law::Freeze);
            }
            state.asks[process] = (Step::Done, attempt, false);
        } else if attempt < 2 {
            state.asks[process] = (Step::Idle, attempt + 1, false);
        } else {
            state.asks[process] = (Step::Done, attempt, false);
        }
    }
}

impl Model for Payout {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut ledger = Ledger::new(None);
        ledger.payouts = Payouts {
            address: Some((1, 0, 0)),
            latest: None,
            version: 1,
        };
        vec![State {
            world: World::new(ledger),
            asks: vec![(Step::Idle, 0, false); self.asks.len()],
            ends: self.ends,
            faults: self.faults,
            changed: (false, false),
            frozen: false,
            after_freeze: vec![false; self.asks.len()],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.world.now < self.ticks {
            actions.push(Action::Tick);
        }
        for (index, (step, _, resent)) in (0_u8..).zip(&state.asks) {
            match step {
                Step::Idle | Step::Read(..) => actions.push(Action::Go(index)),
                Step::Writing if state.faults > 0 => {
                    if !resent {
                        actions.push(Action::Lose(index));
                    }
                    actions.push(Action::Kill(index));
                }
                Step::Writing | Step::Done => {}
            }
        }
        if state.ends > 0 {
            for (id, of) in &state.world.ledger.settlements {
                match of.state {
                    Paid::Authorized => actions.extend([true, false].map(|paid| Action::End(*id, paid))),
                    Paid::Confirmed { .. } => actions.push(Action::Revert(*id)),
                    Paid::Expired => {}
                }
            }
        }
        if self.handover && !state.changed.0 {
            actions.push(Action::HandOver);
        }
        if self.freeze && !state.changed.1 {
            actions.push(Action::Freeze);
        }
        actions.extend((0..state.world.flights.len()).map(Action::Land));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.world.now += 1,
            Action::Go(index) => self.go(&mut state, usize::from(index)),
            Action::Land(index) => self.land(&mut state, index),
            Action::Lose(index) => {
                state.faults -= 1;
                state.asks[usize::from(index)].2 = true;
                let write = state.world.give_up(index)?;
                state.world.send(index, write);
            }
            Action::Kill(index) => {
                state.faults -= 1;
                state.world.give_up(index);
                state.asks[usize::from(index)].0 = Step::Done;
            }
            Action::End(settlement, paid) => {
                state.ends -= 1;
                let tx = settlement;
                let write = if paid {
                    let place = (1, tx, None);
                    let claim = Write::Claim {
                        settlement,
                        place,
                        block: 1,
                    };
                    state.world.make(&claim, self.flaw);
                    Write::Confirm { settlement, place }
                } else {
                    Write::Release {
                        settlement,
                        counted_at: state.world.ledger.settlements[&settlement].counted_at,
                        scopes: Vec::new(),
                    }
                };
                state.world.make(&write, self.flaw);
            }
            Action::Revert(settlement) => {
                state.ends -= 1;
                let write = Write::Revert {
                    settlement,
                    tx: settlement,
                    decision: state.ends,
                };
                state.world.make(&write, self.flaw);
            }
            Action::HandOver => {
                state.changed.0 = true;
                state.world.make(&Write::Offer { to: 1, at: 0, ends: 1 }, None);
                let old = state.world.ledger.agent.clone();
                state.world.make(&Write::HandOver { old, to: 1, at: 0 }, None);
            }
            Action::Freeze => {
                state.changed.1 = true;
                state.frozen = true;
                state.world.make(&Write::Freeze(true), None);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = laws();
        properties.extend([
            Property::sometimes("a payout is made", |_, state: &State| {
                !state.world.ledger.payout_keys.is_empty()
            }),
            Property::sometimes("every request ends", |_, state: &State| {
                state.asks.iter().all(|(step, ..)| *step == Step::Done)
            }),
        ]);
        if self.ends > 1 {
            properties.push(Property::sometimes(
                "two payouts are open, by a revert",
                |_, state: &State| {
                    let open = state
                        .world
                        .ledger
                        .settlements
                        .values()
                        .filter(|of| of.state == Paid::Authorized);
                    open.count() == 2
                },
            ));
        }
        properties
    }
}

crate::laws!(OneSettlement, Payout, Freeze, Moves);
